package sweep

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"testbed/runlog"
	"testbed/scenarios"
)

// Player plays one point. It is called from several goroutines at once if Play
// is told so.
type Player func(ctx context.Context, s *scenarios.Scenario, key string, pt Point) (runlog.Summary, error)

// maxFailures in a row end a sweep: then it is not the point that is at fault.
const maxFailures = 3

// PointError is a point that could not be played.
type PointError struct {
	Point Point
	Err   error
}

func (e *PointError) Error() string {
	return fmt.Sprintf("playing %s seed %d under %s: %v", e.Point.Set, e.Point.Seed, e.Point.Policy, e.Err)
}

func (e *PointError) Unwrap() error { return e.Err }

// Play plays the points that are not done yet, as many at once as there are
// workers, and hands their rows over in the order of the points, from one
// goroutine. It returns when all are played, when accept fails, when the
// machine does not support a point, after three failures in a row, or when ctx
// ends; what was played by then is still handed over. The errors of points and
// of accept are joined.
func (p *Plan) Play(ctx context.Context, workers int, keys []string, done map[string]Row, play Player, accept func(Row) error) error {
	var todo []int
	for i, key := range keys {
		if _, ok := done[key]; !ok {
			todo = append(todo, i)
		}
	}
	type played struct {
		n   int // position in todo
		row Row
		err error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
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
				var sum runlog.Summary
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

	waiting := map[int]Row{} // played before their turn
	var failed []error
	var refused error
	turn, inRow := 0, 0 // the next in order; failures in a row
	hand := func(r Row) {
		if refused == nil {
			if refused = accept(r); refused != nil {
				cancel()
			}
		}
	}
	skipped := map[int]bool{}
	for r := range results {
		if r.err != nil {
			skipped[r.n] = true
			if ctx.Err() != nil && errors.Is(r.err, context.Cause(ctx)) {
				continue // it was not its own fault
			}
			inRow++
			failed = append(failed, r.err)
			if inRow >= maxFailures || errors.Is(r.err, errors.ErrUnsupported) {
				cancel()
			}
		} else {
			inRow = 0
			waiting[r.n] = r.row
		}
		for {
			w, ok := waiting[turn]
			if !ok && !skipped[turn] {
				break
			}
			if ok {
				hand(w)
			}
			delete(waiting, turn)
			delete(skipped, turn)
			turn++
		}
	}
	for n := turn; len(waiting) > 0; n++ { // cut short: there are gaps
		if w, ok := waiting[n]; ok {
			hand(w)
			delete(waiting, n)
		}
	}
	return errors.Join(append(failed, refused)...)
}
