package network

// LostError reports a host of the run that has gone.
type LostError struct{ Host, Why string }

func (e *LostError) Error() string { return e.Why }
