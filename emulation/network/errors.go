package network

// LostError reports that a host of the run has gone.
type LostError struct{ Host, Why string }

func (e *LostError) Error() string { return e.Why }
