//go:build linux

// Table plays a campaign: scenarios of the library with stacks and with policies of
// Testbed, several times each, and writes a table of what was measured:
//
//	go run ./stacks/table -out runs/referee
//	go run ./stacks/table -out runs/referee -runs 1 -only 'homogeneous (gloo|baseline)'
//
// One run is played at a time. A campaign that was killed goes on with the same command:
// a run with a complete record is not played again. Runs of a stack that is not
// installed here are left out. -runs 0 plays nothing, and writes the table anew.
//
// The table is table.md in the folder; measures.json has the measures of each run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

func main() {
	o := options{}
	flag.StringVar(&o.out, "out", "", "folder of the campaign; an existing one goes on")
	flag.IntVar(&o.runs, "runs", 3, "runs of each player in each scenario; 0 writes the table only")
	only := flag.String("only", "", "play only runs whose \"SCENARIO PLAYER RUN\" matches this regular expression, as in \"crash_mid_round gloo:tuned 1\"")
	stackList := flag.String("stacks", strings.Join(defaultStacks(), ","), "the stacks, with options as for --stack")
	flag.Float64Var(&o.settings.TimeScale, "time-scale", 1000, "real time divided by scenario time; at 1000 the inner steps of a round take 2 s")
	flag.StringVar(&o.settings.TCP, "tcp", "", "congestion control of TCP in the nodes, such as reno or bbr (default: the machine's)")
	flag.DurationVar(&o.limit, "limit", 10*time.Minute, "a run that takes longer is ended, and counts as incomplete")
	program := flag.String("testbed", "", "the program testbed (default: built from this source)")
	flag.Parse()
	err := run(o, *only, *stackList, *program)
	if err != nil {
		fmt.Fprintln(os.Stderr, "table:", err)
		os.Exit(1)
	}
}

func run(o options, only, stackList, program string) error {
	if o.out == "" || flag.NArg() > 0 {
		return errors.New("give the folder with -out, and nothing besides flags")
	}
	var err error
	if o.only, err = regexp.Compile(only); err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	if o.players, err = players(strings.Split(stackList, ",")); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "table")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	t := &testbed{program: program, scratch: dir, settings: o.settings, limit: o.limit, patience: 30 * time.Second}
	if program == "" {
		t.program = filepath.Join(dir, "testbed")
		if out, err := exec.Command("go", "build", "-o", t.program, "./cmd/testbed").CombinedOutput(); err != nil {
			return fmt.Errorf("building the command: %w\n%s", err, out)
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	c, err := open(o)
	if err != nil {
		return err
	}
	defer c.close()
	played := c.play(ctx, t.play, os.Stdout)
	if ctx.Err() != nil {
		return errors.Join(played, errors.New("interrupted; the same command goes on"))
	}
	return errors.Join(played, c.write(ctx, t.simulate))
}
