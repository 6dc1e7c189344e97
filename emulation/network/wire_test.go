//go:build linux

package network

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"testbed/emulation/sandbox"
	"testbed/internal/testenv"
	"testbed/record"
)

// This test binary is also the init of its sandboxes, and the processes in them.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case VerbInside:
			exit(RunInit(map[string]func(*Supervisor, json.RawMessage) error{"wire": wireJob}))
		case VerbNode:
			exit(RunChild(map[string]func(*Self) error{"wire": wireProgram}))
		}
	}
	os.Exit(m.Run())
}

func exit(err error) {
	if err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

type wireSpec struct {
	Greeting string
	Fail     bool
}

// wireProgram says what it is told and finds, and then fails or not.
func wireProgram(self *Self) error {
	var s wireSpec
	if err := self.Spec(&s); err != nil {
		return err
	}
	file := self.File("second")
	text, err := io.ReadAll(file)
	if err != nil || self.File("none") != nil {
		return fmt.Errorf("files: %w", err)
	}
	self.Ready()
	var command string
	if err := self.Commands().Decode(&command); err != nil {
		return err
	}
	self.Tell(strings.Join([]string{s.Greeting, string(text), command}, " "))
	if s.Fail {
		return errors.New("as asked")
	}
	return nil
}

// wireJob runs wireProgram twice, and then hands out what it saw.
func wireJob(s *Supervisor, raw json.RawMessage) error {
	var spec wireSpec
	if err := json.Unmarshal(raw, &spec); err != nil {
		return err
	}
	var saw []string
	for _, fail := range []bool{false, true} {
		first, err := os.Open(os.DevNull)
		if err != nil {
			return err
		}
		defer first.Close()
		second, w, err := os.Pipe()
		if err != nil {
			return err
		}
		fmt.Fprint(w, "file")
		w.Close()
		c, err := s.StartChild(ChildSpec{
			Name: "child", NetNS: Hub, Kind: "wire", Spec: wireSpec{spec.Greeting, fail},
			Files: []*os.File{first, second}, FileNames: []string{"first", "second"},
			OnData: func(data json.RawMessage) error {
				var text string
				err := json.Unmarshal(data, &text)
				saw = append(saw, text)
				return err
			},
			OnEnd: func(c *Child, reason string) error {
				saw = append(saw, reason, c.Err().Error())
				return nil
			},
		})
		second.Close()
		if err != nil {
			return err
		}
		if err := s.Await(StartupPatience, "the child", func() bool { return c.Ready }); err != nil {
			return err
		}
		var command string
		if err := s.NextCommand(&command); err != nil {
			return err
		}
		if err := c.Send(command); err != nil {
			return err
		}
		if err := s.Await(StartupPatience, "its end", func() bool { return c.Ended }); err != nil {
			return err
		}
	}
	s.Tell("%d things seen", len(saw))
	return s.Hand(saw)
}

// TestWires takes specs, files, commands, data and ends through all three
// generations of processes.
func TestWires(t *testing.T) {
	testenv.Need(t, sandbox.Check())
	dir, err := record.CreateDir(t.TempDir() + "/run")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir.Path(record.LogsDir), 0o755); err != nil {
		t.Fatal(err)
	}
	job, err := Start(t.Context(), JobSpec{Kind: "wire", Dir: dir, Spec: wireSpec{Greeting: "spec"}}, sandbox.Config{Stderr: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	defer job.Close()
	job.Send("one")
	job.Send("two")
	var saw []string
	stage := ""
	if err := job.Result(&saw, func(s string) { stage = s }); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"spec file one", "exit status 0", "the process child ended without a result; see " + dir.Log("child"),
		"spec file two", "as asked", "child: as asked",
	}
	if fmt.Sprintf("%q", saw) != fmt.Sprintf("%q", want) || stage != "6 things seen" {
		t.Errorf("saw %q, want %q; %s", saw, want, stage)
	}
	if n, err := job.Next(); err != nil || !n.Done {
		t.Errorf("after the job: %+v, %v", n, err)
	}
	log, err := os.ReadFile(dir.Log("child"))
	if err != nil || !strings.Contains(string(log), `msg="this process gives up" process=child err="as asked"`) {
		t.Errorf("its log: %s, %v", log, err)
	}
}
