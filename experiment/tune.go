package experiment

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"

	"testbed/experiment/tune"
	"testbed/record"
	"testbed/report"
	"testbed/report/learning"
)

// Files of a tuning in its directory.
const (
	TuningFile = "tuning.json" // the result
	PointsFile = "points.csv"  // every point that was tried
)

// Tuning determines what to search for and how to check the result.
type Tuning struct {
	Run      Run // its Policy is not used, its Dir is for all
	Policies []string
	// Points is the number of points to simulate, over all policies.
	Points int
	// Seeds is the number of seeds of each point, beginning with the scenario's.
	// The best points are simulated again with HeldOut further seeds: a point that
	// was best by chance will not be best again.
	Seeds, HeldOut int
	// Best is the number of points to choose. They are played with the first
	// policy, and with the chosen policies under the scenario's parameters, with
	// Repeat of the held-out seeds.
	Best, Repeat int
	// Simulate plays points. Real, unless it is nil, plays the chosen ones on a
	// real network.
	Simulate Simulator
	Real     Real
	// Progress is called with the numbers of finished and of all simulations, and
	// at the end of the search with both equal.
	Progress func(done, all int)
}

// Tuned is the result of a Tuning.
type Tuned struct {
	Scenario string   `json:"scenario"`
	Policies []string `json:"policies"`
	Seeds    []uint64 `json:"seeds"`
	HeldOut  []uint64 `json:"held_out"`
	// Points is the number of simulated points.
	Points int `json:"points"`
	// Front are the points that no other point beats. Defaults are the policies
	// with the scenario's parameters. Both are over the held-out seeds.
	Front    []tune.Point `json:"front"`
	Defaults []tune.Point `json:"defaults"`
	// Chosen are the points of the front that are worth a closer look.
	Chosen []string `json:"chosen"`
	// Comparison compares the chosen points with the defaults, over the held-out
	// seeds, simulated and, if requested, on a real network.
	Comparison *report.Comparison `json:"comparison"`
	Dir        string             `json:"dir"`
}

// Tune searches the parameters of policies in the simulator, and plays the best
// on a real network. With an error other than *InvalidError, the result is nil,
// or has only the Dir of the partial record.
func Tune(ctx context.Context, o Tuning) (*Tuned, error) {
	if err := CheckPolicies(o.Run.Scenario, o.Policies); err != nil {
		return nil, err
	}
	spaces := make([]tune.Space, len(o.Policies))
	for i, name := range o.Policies {
		var err error
		if spaces[i], err = tune.NewSpace(o.Run.Scenario, name); err != nil {
			return nil, err
		}
	}
	dir, err := record.CreateDir(o.Run.Dir)
	if err != nil {
		return nil, err
	}
	result := &Tuned{Scenario: o.Run.Scenario.Name, Policies: o.Policies, Dir: string(dir)}
	for k := range uint64(o.Seeds + o.HeldOut) {
		seed := o.Run.Scenario.Seed + k
		if k < uint64(o.Seeds) {
			result.Seeds = append(result.Seeds, seed)
		} else {
			result.HeldOut = append(result.HeldOut, seed)
		}
	}
	search := &search{Tuning: &o, ctx: ctx, of: o.Points * o.Seeds}
	// The simulator makes much garbage, though little compared with the memory of
	// any machine.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	o.Progress(0, search.of)
	tried, err := search.all(spaces, result.Seeds)
	if err != nil {
		return result, err
	}
	result.Points = len(tried)
	if err := result.check(search, tried); err != nil {
		return result, err
	}
	if err := errors.Join(writePoints(dir, tried), dir.WriteJSON(TuningFile, result)); err != nil {
		return result, err
	}
	return result, result.play(ctx, &o, dir)
}

// check simulates the front again with the held-out seeds, and chooses.
func (t *Tuned) check(s *search, tried []tune.Point) error {
	front := tune.Front(tried)
	s.of += (len(front) + len(t.Policies)) * len(t.HeldOut)
	again, err := s.points(specs(front), t.HeldOut)
	if err != nil {
		return err
	}
	if t.Defaults, err = s.points(t.Policies, t.HeldOut); err != nil {
		return err
	}
	s.Progress(s.of, s.of) // points that came up twice were simulated once
	t.Front = tune.Front(slices.Concat(t.Defaults, again))
	t.Chosen = specs(tune.Choose(t.Front, s.Best))
	if len(t.Chosen) == 0 {
		return fmt.Errorf("tuning %s: at every point that was simulated with the held-out seeds, at least one run ended before its last outer step; raise horizon", t.Scenario)
	}
	return nil
}

// play compares the chosen points with the first policy, and with the chosen
// policies under the scenario's parameters.
func (t *Tuned) play(ctx context.Context, o *Tuning, dir record.Dir) error {
	list := append([]string{t.Policies[0]}, t.Chosen...)
	for _, name := range t.Policies {
		if slices.ContainsFunc(t.Chosen, func(c string) bool { return tune.PolicyOf(c) == tune.PolicyOf(name) }) {
			list = append(list, name)
		}
	}
	run, err := reseeded(o.Run, t.HeldOut[0])
	if err != nil {
		return err
	}
	run.Dir = dir.Path("chosen")
	var failed error
	t.Comparison, failed = Compare(ctx, Comparison{Run: run, Policies: unique(list), Repeat: o.Repeat, Real: o.Real, Links: o.Simulate})
	if failed != nil && (t.Comparison == nil || !isInvalid(failed)) {
		return failed
	}
	return errors.Join(failed, dir.WriteJSON(TuningFile, t))
}

// unique removes duplicates from a list.
func unique(list []string) (once []string) {
	seen := map[string]bool{}
	for _, name := range list {
		if !seen[name] {
			seen[name] = true
			once = append(once, name)
		}
	}
	return once
}

func isInvalid(err error) bool {
	_, is := errors.AsType[*InvalidError](err)
	return is
}

func specs(points []tune.Point) []string {
	var all []string
	for _, p := range points {
		all = append(all, p.Policy)
	}
	return all
}

// search simulates points on all processors.
type search struct {
	*Tuning
	ctx      context.Context
	done, of int // simulations
}

// all tries the points of each space: the policy as it is, half of the other
// points spread over the space, and half near the best of these. Spaces share
// the points in proportion to their numbers of parameters.
func (s *search) all(spaces []tune.Space, seeds []uint64) ([]tune.Point, error) {
	axes := 0
	for _, space := range spaces {
		axes += len(space.Axes)
	}
	var tried []tune.Point
	for _, space := range spaces {
		list := []string{space.Policy}
		n := 0
		if len(space.Axes) > 0 {
			n = max(0, (s.Points-len(spaces))*len(space.Axes)/axes)
		}
		rng := rand.New(rand.NewPCG(s.Run.Scenario.Seed, 1))
		places := space.Spread((n+1)/2, rng)
		at := map[string][]float64{}
		for _, place := range places {
			at[space.Spec(place)] = place
			list = append(list, space.Spec(place))
		}
		points, err := s.points(list, seeds)
		if err != nil {
			return nil, err
		}
		tried = append(tried, points...)
		var best [][]float64
		for _, p := range tune.Front(points) {
			if place, ok := at[p.Policy]; ok {
				best = append(best, place)
			}
		}
		if len(best) == 0 {
			continue
		}
		list = nil
		for _, place := range space.Near(best, n/2, rng) {
			list = append(list, space.Spec(place))
		}
		if points, err = s.points(list, seeds); err != nil {
			return nil, err
		}
		tried = append(tried, points...)
	}
	return tried, nil
}

// points simulates policies with each of the seeds. Duplicates in the list are
// simulated once.
func (s *search) points(list []string, seeds []uint64) ([]tune.Point, error) {
	list = unique(list)
	sums := make([]record.Summary, len(list)*len(seeds))
	next := make(chan int)
	var group sync.WaitGroup
	var mutex sync.Mutex
	var failed error
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for i := range next {
				scenario := *s.Run.Scenario
				scenario.Seed = seeds[i%len(seeds)]
				sum, err := s.Simulate(&scenario, list[i/len(seeds)], nil)
				mutex.Lock()
				sums[i], failed = sum, errors.Join(failed, err)
				s.done++
				s.Progress(s.done, max(s.done, s.of))
				mutex.Unlock()
			}
		})
	}
	for i := range sums {
		if s.ctx.Err() != nil {
			break
		}
		next <- i
	}
	close(next)
	group.Wait()
	if err := errors.Join(s.ctx.Err(), failed); err != nil {
		return nil, err
	}
	points := make([]tune.Point, len(list))
	for k, name := range list {
		points[k] = mean(name, sums[k*len(seeds):(k+1)*len(seeds)])
	}
	return points, nil
}

// mean averages the results of a policy over several runs.
func mean(name string, sums []record.Summary) tune.Point {
	p := tune.Point{Policy: name, Complete: true}
	for _, sum := range sums {
		p.Complete = p.Complete && sum.Complete
		p.WallClock += float64(sum.WallClock) / float64(len(sums))
		p.Lost += sum.Work.Lost / float64(len(sums))
		if c := learning.NewCurve(sum); len(c.Points) > 0 {
			p.Loss += c.Final() / float64(len(sums))
		}
	}
	return p
}

func writePoints(dir record.Dir, points []tune.Point) error {
	file, err := os.Create(dir.Path(PointsFile))
	if err != nil {
		return fmt.Errorf("writing the points: %w", err)
	}
	rows := [][]string{{"policy", "complete", "wall_clock_us", "lost"}}
	learnt := slices.ContainsFunc(points, func(p tune.Point) bool { return p.Loss > 0 })
	if learnt {
		rows[0] = append(rows[0], "loss")
	}
	for _, p := range points {
		row := []string{p.Policy, strconv.FormatBool(p.Complete), strconv.FormatFloat(p.WallClock, 'f', 1, 64), strconv.FormatFloat(p.Lost, 'f', 6, 64)}
		if learnt {
			row = append(row, strconv.FormatFloat(p.Loss, 'f', 6, 64))
		}
		rows = append(rows, row)
	}
	return errors.Join(csv.NewWriter(file).WriteAll(rows), file.Close())
}
