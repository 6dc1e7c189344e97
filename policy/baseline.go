package policy

func init() { Register("baseline", "wait for every member", &Baseline{}) }

// Baseline waits for every member, as synchronous training does: only who is
// silent, gives up or leaves keeps a round from waiting for it.
type Baseline struct{}

// Validate finds nothing wrong: there are no parameters.
func (*Baseline) Validate() error { return nil }

// Deadline is none.
func (*Baseline) Deadline(*Round) *Deadline { return nil }

// Enough is everybody, and a round that everybody has arrived for closes under
// every policy.
func (*Baseline) Enough(*Round) (needed int, enough bool) { return 0, false }

// Late is never asked: nobody is late.
func (*Baseline) Late(*Round, Member) (limit int, evict bool) { return 0, false }

// Closed is of no use to it.
func (*Baseline) Closed(*Round) {}
