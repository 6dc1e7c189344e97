package policy

func init() { Register("baseline", "wait for every member", &Baseline{}) }

// Baseline waits for every member, as synchronous training does. A round stops
// waiting only for members that fall silent, give up or leave.
type Baseline struct{}

// Validate finds nothing wrong: there are no parameters.
func (*Baseline) Validate() error { return nil }

// Deadline returns nil: this policy sets none.
func (*Baseline) Deadline(*Round) *Deadline { return nil }

// Enough is always false: a round that all members have arrived for closes
// without it.
func (*Baseline) Enough(*Round) (needed int, enough bool) { return 0, false }

// Late evicts nobody. It is never called, because nobody is late.
func (*Baseline) Late(*Round, Member) (limit int, evict bool) { return 0, false }

// Closed does nothing.
func (*Baseline) Closed(*Round) {}
