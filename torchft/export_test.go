package torchft

// Known returns how many replica ids the lighthouse remembers.
func (l *Lighthouse) Known() int { return len(l.replicas) }
