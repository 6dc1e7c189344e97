//go:build linux

package network

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"testbed/internal/errs"
	"testbed/shaping/userlink"
)

// TestJobByKind: the init of a sandbox does the job that it is told, and tells
// its failure with the mend.
func TestJobByKind(t *testing.T) {
	type spec struct{ N int }
	var did spec
	jobs := map[string]func(*Supervisor, json.RawMessage) error{
		"a": func(s *Supervisor, raw json.RawMessage) error {
			if s.Dir != "d" {
				t.Errorf("directory %q", s.Dir)
			}
			var c string
			if err := errors.Join(json.Unmarshal(raw, &did), s.NextCommand(&c)); err != nil || c != "more" {
				t.Errorf("spec and command: %q, %v", c, err)
			}
			return nil
		},
	}
	told := func(kind string) error {
		first, err := json.Marshal(JobSpec{Kind: kind, Dir: "d", Spec: spec{5}})
		if err != nil {
			t.Fatal(err)
		}
		return NewSupervisor(io.MultiReader(bytes.NewReader(first), strings.NewReader(`"more"`)), io.Discard).work(jobs)
	}
	if err := told("a"); err != nil || did.N != 5 {
		t.Errorf("%+v, %v", did, err)
	}
	if err := told("b"); err == nil || !strings.Contains(err.Error(), `"b"`) {
		t.Errorf("an unknown kind: %v", err)
	}
	plain, unsupported := errors.New("broken"), &errs.UnsupportedError{Missing: "netem: not available on this machine: none", Fix: "load it"}
	if n := Failure(plain); n.Error != "broken" || n.Fix != "" {
		t.Errorf("%+v", n)
	}
	if n := Failure(fmt.Errorf("building: %w", unsupported)); n.Error != "netem: not available on this machine: none" || n.Fix != "load it" {
		t.Errorf("%+v", n)
	}
}

// listening is a job whose notes are these.
func listening(ctx context.Context, notes ...Note) *Job {
	var text bytes.Buffer
	out := json.NewEncoder(&text)
	for _, n := range notes {
		_ = out.Encode(n)
	}
	j := &Job{ctx: ctx, in: make(chan Note), closed: make(chan struct{})}
	go j.read(&text)
	return j
}

// TestSilentInitIsKilled, and one that says that it is there is not, however long it has
// nothing else to say.
func TestSilentInitIsKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, silent := range []bool{false, true} {
			in, out := io.Pipe()
			j := &Job{ctx: t.Context(), in: make(chan Note, 1), closed: make(chan struct{})}
			go j.read(in)
			go j.watch(silence, func() { out.Close() })
			begin := time.Now()
			if !silent {
				go func() {
					notes := json.NewEncoder(out)
					for range 1000 {
						time.Sleep(alivePeriod)
						_ = notes.Encode(Note{Alive: true})
					}
					_ = notes.Encode(Note{Done: true})
				}()
			}
			n, err := j.Next()
			took := time.Since(begin)
			if silent != errors.Is(err, ErrSandboxSilent) || !silent && !n.Done {
				t.Errorf("silent %v: %+v, %v", silent, n, err)
			}
			if want := map[bool]time.Duration{true: silence, false: 1000 * alivePeriod}[silent]; took < want || took > want+5*time.Second {
				t.Errorf("silent %v: it took %v, want %v", silent, took, want)
			}
			close(j.closed)
			out.Close()
		}
	})
}

func TestResultOfAJob(t *testing.T) {
	var stages []string
	stage := func(s string) { stages = append(stages, s) }
	var result int
	if err := listening(t.Context(), Note{Stage: "one"}, Note{Stage: "two", Quiet: true}, Note{Data: []byte("7")}).Result(&result, stage); err != nil || result != 7 {
		t.Errorf("%d, %v", result, err)
	}
	if fmt.Sprint(stages) != "[one two]" {
		t.Errorf("stages %q", stages)
	}
	if err := listening(t.Context(), Note{Stage: "one"}).Result(&result, nil); !errors.Is(err, ErrSandboxEnded) {
		t.Errorf("a sandbox that dies: %v", err)
	}
	if err := listening(t.Context(), Note{Done: true}).Result(&result, nil); err == nil {
		t.Error("no result, and no error")
	}
	if err := listening(t.Context(), Note{Error: "broken"}).Result(&result, nil); err == nil || err.Error() != "broken" || errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("an error: %v", err)
	}
	if err := listening(t.Context(), Note{Error: "no netem", Fix: "load it"}).Result(&result, nil); !errors.Is(err, errors.ErrUnsupported) || err.Error() != "no netem; load it" {
		t.Errorf("what is not supported: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	if err := listening(ctx, Note{Done: true}).Result(&result, nil); err == nil || err.Error() != "enough" {
		t.Errorf("after the end of its context: %v", err)
	}
}

// TestAwaitInVain: the error of a wait tells what the router did meanwhile.
func TestAwaitInVain(t *testing.T) {
	for name, test := range map[string]struct {
		answers bool
		want    string
	}{
		"a router that answers": {true, "timed out after 2m0s waiting for the workers, while the router forwarded 5 packets, lost 1 as planned, dropped 3 because a buffer was full, and dropped 0 that it could not read; see standard error"},
		"one that does not":     {false, "timed out after 2m0s waiting for the workers, while the router did not answer; see standard error"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := NewSupervisor(strings.NewReader(""), io.Discard)
				asked, to := io.Pipe()
				n := &Network{s: s}
				n.router = &Child{Name: routerName, s: s, spec: ChildSpec{OnData: n.counted}, control: &pipes{out: json.NewEncoder(to)}}
				s.network = n
				go func() {
					var c Change
					if json.NewDecoder(asked).Decode(&c) == nil && test.answers {
						data, _ := json.Marshal(userlink.Stats{Packets: 5, Lost: 1, Overflow: 1, QueueFull: 2})
						s.Post(func() error { return n.router.Reported(Report{Data: data}) })
					}
				}()
				handled := 0
				s.Post(func() error { handled++; return nil })
				err := s.Await(StartupPatience, "the workers", func() bool { return false })
				if err == nil || err.Error() != test.want || handled != 1 {
					t.Errorf("%v; handled %d", err, handled)
				}
			})
		})
	}
}

// TestAwaitAllInVain: the error of a wait for several names those that are
// missing.
func TestAwaitAllInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSupervisor(strings.NewReader(""), io.Discard)
		missing := []string{"w0", "w1", "w2"}
		s.Post(func() error { missing = missing[1:]; return nil })
		const want = "timed out after 2m0s waiting for the workers to start (missing: w1 w2); see standard error"
		if err := s.AwaitAll(StartupPatience, "the workers to start", func() []string { return missing }); err == nil || err.Error() != want {
			t.Errorf("%v", err)
		}
	})
}

func TestHandleUntil(t *testing.T) {
	s := NewSupervisor(strings.NewReader(""), io.Discard)
	n, failed := 0, errors.New("broken")
	for range 3 {
		s.Post(func() error { n++; return nil })
	}
	if err := s.HandleUntil(func() bool { return n == 2 }); err != nil || n != 2 {
		t.Errorf("%d, %v", n, err)
	}
	s.Post(func() error { return failed })
	if err := s.HandleUntil(func() bool { return false }); !errors.Is(err, failed) || n != 3 {
		t.Errorf("%d, %v", n, err)
	}
	if err := s.Await(time.Hour, "nothing", func() bool { return true }); err != nil {
		t.Error(err)
	}
}

func TestRouterEnded(t *testing.T) {
	n := &Network{s: NewSupervisor(strings.NewReader(""), io.Discard)}
	if err := n.routerEnded(&Child{Name: routerName}, "signal: killed"); err == nil || err.Error() != "the router died: signal: killed; see standard error" {
		t.Errorf("unexpectedly: %v", err)
	}
	n.takeDown = true
	if err := n.routerEnded(&Child{Name: routerName}, "exit status 0"); err != nil {
		t.Errorf("when it is meant to: %v", err)
	}
	if err := n.routerEnded(&Child{Name: routerName, Failure: "no room", s: n.s}, "no room"); err == nil || err.Error() != "router: no room" {
		t.Errorf("with an error: %v", err)
	}
}
