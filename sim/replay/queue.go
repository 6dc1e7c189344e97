package replay

import "testbed/policy"

// scheduled is something that will happen.
type scheduled struct {
	at    policy.Time
	last  bool // behind everything else of the same time, as the simulator's timers
	order int  // among the others
	what  any
}

// queue is a heap of what is scheduled, for container/heap.
type queue []scheduled

func (q queue) Len() int      { return len(q) }
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(scheduled)) }

func (q queue) Less(i, j int) bool {
	a, b := &q[i], &q[j]
	switch {
	case a.at != b.at:
		return a.at < b.at
	case a.last != b.last:
		return b.last
	}
	return a.order < b.order
}

func (q *queue) Pop() any {
	n := len(*q) - 1
	x := (*q)[n]
	(*q)[n].what = nil
	*q = (*q)[:n]
	return x
}
