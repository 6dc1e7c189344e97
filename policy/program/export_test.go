package program

// Asked is how many questions the processes that wait for a run have been asked.
func Asked() (n int) {
	poolsMutex.Lock()
	defer poolsMutex.Unlock()
	for _, p := range pools {
		for _, q := range p.idle {
			n += q.n
		}
	}
	return n
}
