package sweep

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"testbed/policy"
	"testbed/record"
	"testbed/scenarios"
)

// Player plays one point. Play may call it from several goroutines at once.
type Player func(ctx context.Context, s *scenarios.Scenario, key string, pt Point) (record.Summary, error)

// maxFailures in a row end a sweep: then the fault is not in single points.
const maxFailures = 3

// PointError is a point that could not be played.
type PointError struct {
	Point Point
	Err   error
}

func (e *PointError) Error() string {
	set := ""
	if len(e.Point.Set) > 0 {
		set = e.Point.Set.String() + " with "
	}
	return fmt.Sprintf("playing %sseed %d under %s: %v", set, e.Point.Seed, e.Point.Policy, e.Err)
}

func (e *PointError) Unwrap() error { return e.Err }

// Play plays the points that are not done yet, as many at once as there are
// workers. It passes their rows to accept in the order of the points, from one
// goroutine. It returns when all are played, when accept fails, when the
// machine does not support a point, when a policy's program fails, after three
// failures in a row, or when ctx ends. Points that were played by then are
// still passed to accept. The errors of points and of accept are joined.
func (p *Plan) Play(ctx context.Context, workers int, keys []string, done map[string]Row, play Player, accept func(Row) error) error {
	var todo []int
	for i, key := range keys {
		if _, ok := done[key]; !ok {
			todo = append(todo, i)
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	o := &inOrder{accept: accept, stop: cancel, waiting: map[int]Row{}, skipped: map[int]bool{}}
	var failed []error
	inRow := 0 // failures
	for r := range p.playAll(ctx, workers, todo, keys, play) {
		if r.err == nil {
			inRow = 0
			o.add(r.n, r.row)
			continue
		}
		_, hopeless := errors.AsType[*policy.FailedError](r.err)                           // it would fail again
		cutShort := ctx.Err() != nil && (hopeless || errors.Is(r.err, context.Cause(ctx))) // the point was not at fault
		if !cutShort {
			inRow++
			failed = append(failed, r.err)
		}
		if !cutShort && (inRow >= maxFailures || hopeless || errors.Is(r.err, errors.ErrUnsupported)) {
			cancel()
		}
		o.skip(r.n)
	}
	o.rest()
	return errors.Join(append(failed, o.refused)...)
}

// played is the result of a point.
type played struct {
	n   int // position among the points to do
	row Row
	err error
}

// playAll plays the points at these positions in keys until ctx ends. The
// channel is closed when all playing has ended.
func (p *Plan) playAll(ctx context.Context, workers int, todo []int, keys []string, play Player) <-chan played {
	next, results := make(chan int), make(chan played, workers)
	go func() {
		defer close(next)
		for n := range todo {
			select {
			case next <- n:
			case <-ctx.Done():
				return
			}
		}
	}()
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			var cell *scenarios.Scenario // of the last point; the next is mostly of the same cell
			last := -1
			for n := range next {
				if ctx.Err() != nil {
					return
				}
				pt, key := p.Point(todo[n]), keys[todo[n]]
				var sum record.Summary
				var err error
				if pt.Cell != last {
					if cell, err = p.Scenario.With(pt.Set...); err == nil {
						last = pt.Cell
					}
				}
				if err == nil {
					s := *cell
					s.Seed = pt.Seed
					sum, err = play(ctx, &s, key, pt)
				}
				if err != nil {
					err = &PointError{Point: pt, Err: err}
				}
				results <- played{n, p.NewRow(key, pt, sum), err}
			}
		})
	}
	go func() {
		group.Wait()
		close(results)
	}()
	return results
}

// inOrder passes rows on in the order of their points, until one is refused.
type inOrder struct {
	accept  func(Row) error
	stop    func() // is called when a row is refused
	refused error

	turn    int          // the next in order
	waiting map[int]Row  // played before their turn
	skipped map[int]bool // there is no row
}

func (o *inOrder) hand(r Row) {
	if o.refused == nil {
		if o.refused = o.accept(r); o.refused != nil {
			o.stop()
		}
	}
}

func (o *inOrder) add(n int, r Row) {
	o.waiting[n] = r
	o.advance()
}

func (o *inOrder) skip(n int) {
	o.skipped[n] = true
	o.advance()
}

// advance passes on all rows whose turn has come.
func (o *inOrder) advance() {
	for {
		r, ok := o.waiting[o.turn]
		if !ok && !o.skipped[o.turn] {
			return
		}
		if ok {
			o.hand(r)
		}
		delete(o.waiting, o.turn)
		delete(o.skipped, o.turn)
		o.turn++
	}
}

// rest passes on the rows that wait for points that will not come.
func (o *inOrder) rest() {
	for _, n := range slices.Sorted(maps.Keys(o.waiting)) {
		o.hand(o.waiting[n])
	}
}
