package experiment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"testbed/experiment/sweep"
	"testbed/record"
	"testbed/scenarios"
)

// flushEvery is how often the rows of simulated points are written to disk. A
// sweep that is killed loses at most this much.
const flushEvery = time.Second

// SweepOptions determine where and how to play the points of a sweep.
type SweepOptions struct {
	Dir    string // of the results
	Resume bool   // play only the points that Dir lacks
	// Real plays the points one after the other. If it is nil, Simulate plays them
	// on all processors.
	Real     Real
	Simulate Simulator
	// Progress is called with the numbers of finished and of all points: before
	// the first and after each.
	Progress func(done, points int)
}

// Sweep plays the points of a plan and writes their results. After an error
// other than *InvalidError, the finished points are on disk, and the summary
// covers them. Its Dir is empty if nothing could be played.
func Sweep(ctx context.Context, p *sweep.Plan, o SweepOptions) (s sweep.Summary, err error) {
	dir, err := o.directory(p)
	if err != nil {
		return s, err
	}
	keys := p.Keys()
	table, done, err := sweep.OpenTable(dir.Path(sweep.TableFile), p)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, table.Close()) }()
	played := 0
	for _, key := range keys {
		if _, ok := done[key]; ok {
			played++
		}
	}
	o.Progress(played, len(keys))
	// The simulator makes much garbage, though little compared with the memory of
	// any machine.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	var invalid error // the first
	workers, play := runtime.GOMAXPROCS(0), o.Simulate.player()
	if o.Real != nil {
		workers, play = 1, o.Real.player(dir, &invalid)
	}
	flushed := time.Now()
	failed := p.Play(ctx, workers, keys, done, play, func(r sweep.Row) error {
		done[r.Key] = r
		played++
		o.Progress(played, len(keys))
		if err := table.Add(r); err != nil {
			return err
		}
		if o.Real == nil && time.Since(flushed) < flushEvery {
			return nil
		}
		flushed = time.Now()
		return table.Flush()
	})
	s = p.Summarise(keys, done)
	s.Dir = string(dir)
	err = errors.Join(failed, ctx.Err(), table.Flush(), writeCSV(dir, p, keys, done), dir.WriteJSON(record.SummaryFile, s))
	if err == nil {
		err = invalid
	}
	return s, err
}

// directory makes the directory of results, or opens that of an interrupted
// sweep.
func (o *SweepOptions) directory(p *sweep.Plan) (record.Dir, error) {
	if o.Resume && sweep.Is(o.Dir) {
		abs, err := filepath.Abs(o.Dir)
		return record.Dir(abs), err
	}
	dir, err := record.CreateDir(o.Dir)
	if err != nil {
		return "", err
	}
	text, err := p.Scenario.Text()
	if err != nil {
		return "", err
	}
	return dir, dir.WriteScenario("scenario.json", text, p.Scenario.Traces)
}

func writeCSV(dir record.Dir, p *sweep.Plan, keys []string, done map[string]sweep.Row) error {
	file, err := os.Create(dir.Path(sweep.CSVFile))
	if err != nil {
		return fmt.Errorf("writing the table of results: %w", err)
	}
	return errors.Join(sweep.WriteCSV(file, p, keys, done), file.Close())
}

func (play Simulator) player() sweep.Player {
	return func(ctx context.Context, s *scenarios.Scenario, _ string, pt sweep.Point) (record.Summary, error) {
		if err := ctx.Err(); err != nil {
			return record.Summary{}, err
		}
		return play(s, pt.Policy, nil)
	}
}

// player plays points one after the other, each with a run directory in dir. It
// sets invalid to the reason of the first result that may not be used.
func (play Real) player(dir record.Dir, invalid *error) sweep.Player {
	return func(ctx context.Context, s *scenarios.Scenario, key string, pt sweep.Point) (record.Summary, error) {
		fail := func(err error) (record.Summary, error) { return record.Summary{}, err }
		if err := ctx.Err(); err != nil {
			return fail(err)
		}
		note := path.Join("points", key)
		r, err := (Run{
			Scenario: s, Policy: pt.Policy, Dir: dir.Path(note),
			Title: strings.TrimSpace(fmt.Sprintf("%s seed %d repeat %d", pt.Set, pt.Seed, pt.Repeat)),
		}).rewritten()
		if err != nil {
			return fail(err)
		}
		if err := os.RemoveAll(r.Dir); err != nil { // of a run that was cut short
			return fail(fmt.Errorf("removing an old record: %w", err))
		}
		sum, err := play(ctx, r)
		if err == nil && *invalid == nil {
			*invalid = Usable(sum)
		}
		sum.Dir = note
		return sum, err
	}
}
