//go:build linux

package bench

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"testbed/allreduce/bench"
	"testbed/allreduce/rivals"
	"testbed/emulation/sandbox"
	"testbed/internal/errs"
	"testbed/shaping"
	"testbed/shaping/kernel"
)

// rival is another program, to be measured on the links of a benchmark.
type rival interface {
	// fits reports settings that the rival cannot reduce with.
	fits(*bench.Settings) error
	// memory is how many bytes the rival's programs need for a worker, beyond the
	// shared vectors, under one congestion control.
	memory(*bench.Settings) int64
	// find returns the program's version. If the program is missing, the error
	// says what to install.
	find(b *benchmark) (version string, err error)
	// players returns the rival's players under a congestion control.
	players(b *benchmark, tcp string) []player
}

// player are processes of a rival, under one congestion control.
type player interface {
	// start starts the processes. Connections that stay open are made until
	// await returns.
	start(b *benchmark) error
	await(b *benchmark) error
	// ways are the ways in which the player is measured.
	ways() []way
	// once measures one way once. It returns the seconds, and the CPU seconds of
	// all processes.
	once(b *benchmark, w way) (seconds, cpu float64, err error)
	// stop ends the processes of start, even after an error.
	stop()
}

// way is one way in which a player is measured.
type way struct {
	result bench.Rival // with what distinguishes the way
	// reduces: the result can be checked. divisor makes it the mean.
	reduces bool
	divisor float64
	codec   *rivals.Codec // of the values; nil: float32
	slices  int           // into which the vector is cut
}

// contest is a way to measure a player, with its measurements.
type contest struct {
	player
	way
	seconds, cpu []float64
	allowed      float64 // relative error
}

// RivalNames lists the rivals of a benchmark.
var RivalNames = []string{"iperf3", "gloo", "pccl"}

// newRival reads a rival as users name it: NAME[:option=value]….
func newRival(text string) (rival, error) {
	name, options, _ := strings.Cut(text, ":")
	if name == "pccl" {
		return newPCCL(text, options)
	}
	if options != "" && slices.Contains(RivalNames, name) {
		return nil, errs.Fieldf("against", "%s: %s has no options", text, name)
	}
	switch name {
	case "iperf3":
		return &iperf3{}, nil
	case "gloo":
		return &gloo{}, nil
	}
	return nil, errs.Fieldf("against", "%s: choose from %s", text, strings.Join(RivalNames, ", "))
}

// lossProof is a congestion control that does not mistake a loss for a full
// queue (BBR; Cardwell et al. 2016).
const lossProof = "bbr"

// usualTCP are the congestion controls under which rivals are measured unless
// the user or the scenario names others.
var usualTCP = []string{shaping.DefaultTCP, lossProof}

// chooseTCP chooses the rivals' congestion controls: the named ones, the
// scenario's, or those of usualTCP that the kernel allows in nodes. The network
// is up.
func (b *benchmark) chooseTCP() error {
	if b.tcp = b.spec.TCP; len(b.tcp) > 0 {
		for _, name := range b.tcp {
			if err := kernel.TCPAllowed(name); err != nil {
				return err
			}
		}
		return nil
	}
	if own := b.spec.Plan.TCP; own != "" {
		b.tcp = []string{own}
		return nil
	}
	for _, name := range usualTCP {
		if err := kernel.TCPAllowed(name); err != nil {
			b.note(fmt.Sprintf("rivals were not measured with %s: %v", name, err))
			continue
		}
		b.tcp = append(b.tcp, name)
	}
	if len(b.tcp) > 0 {
		return nil
	}
	have, err := b.network.Kernel.TCP()
	b.tcp = []string{have}
	return err
}

// note adds a note to the result, and reports it at once.
func (b *benchmark) note(text string) {
	b.notes = append(b.notes, text)
	b.s.Tell("%s", text)
}

// startRivals starts the available rivals. A missing one gets a problem, and
// the others go on.
func (b *benchmark) startRivals() error {
	if len(b.spec.Against) == 0 {
		return nil
	}
	if err := b.chooseTCP(); err != nil {
		return err
	}
	var all []found
	missing := map[string]bool{}
	for _, text := range b.spec.Against {
		r, err := newRival(text)
		if err != nil {
			return err // Run has checked the names
		}
		name := rivalName(text)
		if missing[name] {
			continue // its problem is known
		}
		version, err := r.find(b)
		if err != nil {
			missing[name] = true
			c := &contest{way: way{result: bench.Rival{Name: name}}}
			c.fail(b, err)
			b.rivals = append(b.rivals, c)
			continue
		}
		all = append(all, found{r, version})
	}
	for _, tcp := range b.tcp {
		now, err := b.network.Kernel.TCP()
		if err == nil && now != tcp {
			err = b.network.Kernel.SetTCP(tcp)
		}
		if err != nil {
			return err
		}
		if err := b.startUnder(tcp, all); err != nil {
			return err
		}
	}
	// Each rival's contests stand together.
	slices.SortStableFunc(b.rivals, func(x, y *contest) int { return b.place(x) - b.place(y) })
	return nil
}

// found is a rival that is installed.
type found struct {
	rival
	version string
}

// place is a contest's place by its rival.
func (b *benchmark) place(c *contest) int {
	return slices.IndexFunc(b.spec.Against, func(text string) bool { return rivalName(text) == c.result.Name })
}

func rivalName(text string) string {
	name, _, _ := strings.Cut(text, ":")
	return name
}

// startUnder starts the players of a congestion control, which the nodes have
// now, all at once.
func (b *benchmark) startUnder(tcp string, all []found) error {
	var started []*contest
	for _, r := range all {
		for _, p := range r.players(b, tcp) {
			err := p.start(b)
			for _, w := range p.ways() {
				c := &contest{player: p, way: w}
				c.result.Version, c.result.TCP = r.version, tcp
				if w.reduces {
					if err := b.shareVectors(); err != nil {
						return err
					}
					c.allowed = b.vectors.allowed(w.codec, w.slices)
				}
				if err != nil {
					c.fail(b, err)
				}
				started = append(started, c)
			}
		}
	}
	for _, c := range started {
		if c.result.Problem != "" {
			continue
		}
		if err := c.await(b); err != nil {
			c.fail(b, err)
		}
	}
	b.rivals = append(b.rivals, started...)
	return nil
}

// shareVectors makes the vectors for programs of rivals, once.
func (b *benchmark) shareVectors() (err error) {
	if b.vectors == nil {
		b.vectors, err = newVectors(&b.spec.Settings)
	}
	return err
}

// turn measures a contest once, and checks the result. ok is false if it failed.
func (c *contest) turn(b *benchmark, warm bool) (seconds float64, ok bool) {
	if c.reduces {
		b.vectors.spoil()
	}
	seconds, cpu, err := c.once(b, c.way)
	if err == nil && c.reduces {
		err = c.judge(b.vectors.check(c.divisor))
	}
	if err != nil {
		c.fail(b, err)
		return 0, false
	}
	if !warm {
		c.seconds, c.cpu = append(c.seconds, seconds), append(c.cpu, cpu)
	}
	return seconds, true
}

// judge records the outcome of a reduction. The worst one counts.
func (c *contest) judge(o outcome) error {
	if !(o.relative <= c.allowed) { // NaN is wrong
		return fmt.Errorf("the result is wrong: its relative error is %.3g %%, but rounding and quantisation explain at most %.3g %%", 100*o.relative, 100*c.allowed)
	}
	if c.result.RelativeError == nil {
		c.result.RelativeError, c.result.BitIdentical = new(float64), new(true)
	}
	*c.result.RelativeError = max(*c.result.RelativeError, o.relative)
	*c.result.BitIdentical = *c.result.BitIdentical && o.identical
	return nil
}

// fail ends a contest.
func (c *contest) fail(b *benchmark, err error) {
	c.result.Problem = err.Error()
	c.result.RelativeError, c.result.BitIdentical = nil, nil
	b.s.Tell("%s: %s", c.result.Label(), c.result.Problem)
}

// stopRivals ends all processes of rivals.
func (b *benchmark) stopRivals() {
	for _, c := range b.rivals {
		if c.player != nil {
			c.stop()
		}
	}
	b.vectors.close()
	b.vectors = nil
}

// port returns a port that no other rival uses.
func (b *benchmark) port() string {
	const first = 7101
	b.ports++
	return fmt.Sprint(first + b.ports - 1)
}

// tool is another project's program that runs in a node, or in the hub.
type tool struct {
	name    string
	process *sandbox.Process
	in, out *os.File // ends of its standard input and output
}

// startTool starts a program in a namespace, or the hub. Its standard error is
// discarded: tools report on their output.
func (b *benchmark) startTool(ns int, env []string, name string, args ...string) (*tool, error) {
	return b.launch(sandbox.Command{Name: name, NetNS: ns, Args: args, Env: env}, false)
}

// launch is startTool with a command that has no path and no streams yet. With
// both, standard error goes where the output goes.
func (b *benchmark) launch(c sandbox.Command, both bool) (*tool, error) {
	path, err := exec.LookPath(c.Name)
	if err != nil {
		return nil, err
	}
	stdin, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer stdin.Close()
	out, stdout, err := os.Pipe()
	if err != nil {
		in.Close()
		return nil, err
	}
	defer stdout.Close()
	t := &tool{name: c.Name, in: in, out: out}
	c.Path, c.Stdin, c.Stdout = path, stdin, stdout
	if both {
		c.Stderr = stdout
	}
	if t.process, err = b.s.Box.Start(c); err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

// finish reads the program's whole output, and waits for its end.
func (t *tool) finish(patience time.Duration) ([]byte, error) {
	defer t.close()
	if err := t.out.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(t.out)
	if err != nil {
		t.process.Kill()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, fmt.Errorf("%s did not end within %v", t.name, patience)
		}
		return nil, fmt.Errorf("reading the output of %s: %w", t.name, err)
	}
	if status := t.process.Wait(); !status.Success() {
		return data, fmt.Errorf("%s failed: %v", t.name, status)
	}
	return data, nil
}

func (t *tool) close() {
	t.in.Close()
	t.out.Close()
}

// end ends the program at once.
func (t *tool) end() {
	t.process.Kill()
	t.process.Wait()
	t.close()
}
