//go:build linux

package bench

import (
	"bufio"
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"testbed/allreduce/bench"
	"testbed/emulation/network"
	"testbed/emulation/sandbox"
)

// reducerScript is what programs of rivals share.
//
//go:embed reducer.py
var reducerScript string

// program is a Python program of a rival, which follows reducer.py.
type program struct {
	who    string // names the program in errors
	ns     int
	script string // follows reducerScript
	args   []string
	// rank is the worker whose vector it reduces; -1: none.
	rank int
}

// reducers are the programs of a player, one per rank, and others.
type reducers struct {
	python   string
	env      []string
	programs []program
	measured []way

	running []*reducer
	awaited bool
	failed  error // the first failure, after which all have ended
}

// reducer is a running program.
type reducer struct {
	program
	*tool
	answers *os.File
	lines   *bufio.Reader
	output  chan string // the last line of its output, when the output has ended
}

// reducerOrder is a line to a program. Without Start it asks for the result and
// the processor time.
type reducerOrder struct {
	Start int64  `json:"start_ns,omitempty"` // on CLOCK_MONOTONIC
	Way   string `json:"way,omitempty"`
}

// reducerAnswer is a line of a program. Times are in seconds.
type reducerAnswer struct {
	Took  float64 `json:"took"` // from the common start
	CPU   float64 `json:"cpu"`
	Error string  `json:"error"`
}

func (p *reducers) ways() []way { return p.measured }

// start starts the programs. One without a vector comes first: ranks need it.
func (p *reducers) start(b *benchmark) error {
	if err := b.shareVectors(); err != nil {
		return err
	}
	for _, x := range p.programs {
		r, err := p.launch(b, x)
		if err != nil {
			p.fail(err)
			return err
		}
		p.running = append(p.running, r)
		if x.rank < 0 {
			if _, err := p.collect([]*reducer{r}, network.StartupPatience); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *reducers) launch(b *benchmark, x program) (*reducer, error) {
	answers, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer out.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		answers.Close()
		return nil, err
	}
	defer null.Close()
	files := []*os.File{null, null, out}
	if x.rank >= 0 {
		files[0], files[1] = b.vectors.inputs[x.rank].file, b.vectors.outputs[x.rank].file
	}
	t, err := b.launch(sandbox.Command{
		Name: p.python, NetNS: x.ns, Env: p.env, Files: files, Args: append([]string{"-c", reducerScript + "\n" + x.script}, x.args...),
	}, true)
	if err != nil {
		answers.Close()
		return nil, err
	}
	r := &reducer{program: x, tool: t, answers: answers, lines: bufio.NewReader(answers), output: make(chan string, 1)}
	go func() { r.output <- lastOf(t.out) }()
	return r, nil
}

// lastOf reads to the end, so that the writer never waits, and returns the
// beginning of the last line that is not empty.
func lastOf(r io.Reader) string {
	const most = 300
	var last string
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadSlice('\n')
		if text := string(bytes.TrimSpace(line[:min(len(line), most)])); text != "" {
			last = text
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return last
		}
	}
}

// await waits until the ranks are connected.
func (p *reducers) await(b *benchmark) error {
	if p.awaited || p.failed != nil {
		return p.failed
	}
	p.awaited = true
	_, err := p.collect(p.ranks(), network.StartupPatience+b.preparation())
	return err
}

func (p *reducers) ranks() (all []*reducer) {
	for _, r := range p.running {
		if r.rank >= 0 {
			all = append(all, r)
		}
	}
	return all
}

func (p *reducers) once(b *benchmark, w way) (seconds, cpu float64, err error) {
	if p.failed != nil {
		return 0, 0, p.failed
	}
	start := (bench.Monotonic() + leadTime).Nanoseconds()
	took, err := p.ask(p.ranks(), reducerOrder{Start: start, Way: w.result.Quantisation}, leadTime+b.spec.Timeout)
	if err != nil {
		return 0, 0, err
	}
	used, err := p.ask(p.running, reducerOrder{}, network.StartupPatience+b.preparation())
	for _, a := range took {
		seconds = max(seconds, a.Took)
	}
	for _, a := range used {
		cpu += a.CPU
	}
	return seconds, cpu, err
}

// ask sends an order and collects the answers.
func (p *reducers) ask(from []*reducer, o reducerOrder, patience time.Duration) ([]reducerAnswer, error) {
	line, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	for _, r := range from {
		// A program that has ended is reported by what it left.
		_, _ = r.in.Write(append(line, '\n'))
	}
	return p.collect(from, patience)
}

// collect waits for an answer of each program. The first failure ends all
// programs: the others would wait for the failed one.
func (p *reducers) collect(from []*reducer, patience time.Duration) ([]reducerAnswer, error) {
	type result struct {
		from   *reducer
		answer reducerAnswer
		err    error
	}
	results := make(chan result, len(from))
	until := time.Now().Add(patience)
	for _, r := range from {
		go func() {
			a, err := r.answer(until, patience)
			results <- result{r, a, err}
		}()
	}
	var all []reducerAnswer
	for range from {
		x := <-results
		if x.err != nil && p.failed == nil {
			if errors.Is(x.err, io.EOF) {
				x.err = x.from.ended()
			}
			p.fail(x.err) // readers of other programs return at once
		}
		all = append(all, x.answer)
	}
	return all, p.failed
}

func (r *reducer) answer(until time.Time, patience time.Duration) (a reducerAnswer, err error) {
	if err := r.answers.SetReadDeadline(until); err != nil {
		return a, err
	}
	line, err := r.lines.ReadBytes('\n')
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return a, fmt.Errorf("%s did not answer within %v", r.who, patience)
	case err != nil:
		return a, fmt.Errorf("reading the answer of %s: %w", r.who, err) // io.EOF: it has ended
	}
	if err := json.Unmarshal(line, &a); err != nil {
		return a, fmt.Errorf("parsing the answer of %s: %w", r.who, err)
	}
	if a.Error != "" {
		return a, fmt.Errorf("%s failed: %s", r.who, a.Error)
	}
	return a, nil
}

// ended says how a program ended that gives no answers any more.
func (r *reducer) ended() error {
	const grace = time.Second
	select {
	case <-r.process.Done():
	case <-time.After(grace):
		return fmt.Errorf("%s stopped answering", r.who)
	}
	text := fmt.Sprintf("%s ended (%v)", r.who, r.process.Wait())
	select {
	case last := <-r.output:
		r.output <- last
		if last != "" {
			text += "; its last line: " + last
		}
	case <-time.After(grace): // a child has the output
	}
	return errors.New(text)
}

// fail ends all programs.
func (p *reducers) fail(err error) {
	p.failed = err
	p.stop()
}

func (p *reducers) stop() {
	for _, r := range p.running {
		r.end()
		r.answers.Close()
	}
	p.running = nil
}
