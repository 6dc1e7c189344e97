//go:build linux

package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"testbed/emulation/network"
)

// TestAChildOnAnotherHost is heard, told and ended like one of this host, and what
// is in its memory comes along.
func TestAChildOnAnotherHost(t *testing.T) {
	s := network.NewSupervisor(strings.NewReader(""), io.Discard)
	ours, theirs := net.Pipe()
	defer theirs.Close()
	a := newRemoteHost(s, 1, "h1", ours)
	var said, end string
	c, err := a.start(network.ChildSpec{
		Name: "w1", Kind: "worker", Spec: "spec", FileNames: []string{"memory"},
		OnData: func(raw json.RawMessage) error { return json.Unmarshal(raw, &said) },
		OnEnd:  func(_ *network.Child, reason string) error { end = reason; return nil },
	}, "w1")
	if err != nil {
		t.Fatal(err)
	}
	in, out := json.NewDecoder(theirs), json.NewEncoder(theirs)
	expect := func(what string, so func(order) bool) {
		t.Helper()
		var o order
		if err := in.Decode(&o); err != nil || !so(o) {
			t.Errorf("%s: the host was ordered %+v, %v", what, o, err)
		}
	}
	tell := func(v hostReport) {
		t.Helper()
		raw, err := json.Marshal(v)
		if err == nil {
			err = out.Encode(network.Note{Data: raw})
		}
		if err != nil {
			t.Error(err)
		}
	}
	expect("start", func(o order) bool { return o.Start != nil && o.Start.Node == "w1" && string(o.Start.Spec) == `"spec"` })
	if err := c.Send("command"); err != nil {
		t.Error(err)
	}
	expect("command", func(o order) bool { return o.Child == "w1" && string(o.Command) == `"command"` })
	c.SignalGroup(syscall.SIGSTOP)
	expect("signal", func(o order) bool { return o.Signal == syscall.SIGSTOP && o.Group })
	c.Kill()
	expect("kill", func(o order) bool { return o.Signal == syscall.SIGKILL && !o.Group })
	c.CloseCommands()
	expect("close", func(o order) bool { return o.Close })

	memory, err := network.NewMemory("test")
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	fetched := false
	if err := c.Fetch("memory", memory, func(err error) error { fetched = true; return err }); err != nil {
		t.Error(err)
	}
	expect("fetch", func(o order) bool { return o.Child == "w1" && o.Fetch == "memory" })
	go func() {
		tell(hostReport{Child: "w1", Report: &network.Report{Ready: true, Data: json.RawMessage(`"data"`)}})
		tell(hostReport{Child: "w1", Chunk: &chunk{Data: []byte("in two ")}})
		tell(hostReport{Child: "w1", Chunk: &chunk{Data: []byte("pieces"), Last: true}})
		tell(hostReport{Child: "w1", Report: &network.Report{Error: "its reason"}})
		tell(hostReport{Child: "w1", Ended: "exit status 1"})
	}()
	if err := s.Await(time.Minute, "the end", func() bool { return c.Ended }); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(io.NewSectionReader(memory, 0, 100))
	if !c.Ready || said != "data" || end != "its reason" || !fetched || err != nil || string(text) != "in two pieces" {
		t.Errorf("ready %v, said %q, ended because of %q, memory %q, %v", c.Ready, said, end, text, err)
	}
	go func() { _ = out.Encode(network.Note{Error: "the host h1 has gone", Lost: "h1"}) }()
	var lost *network.LostError
	if err := s.Await(time.Minute, "nothing", func() bool { return false }); !errors.As(err, &lost) || lost.Host != "h1" {
		t.Errorf("a lost host is told as %v", err)
	}
	var note bytes.Buffer
	if err := json.NewEncoder(&note).Encode(network.Failure(lost)); err != nil || !strings.Contains(note.String(), `"lost":"h1"`) {
		t.Errorf("told as %s, %v", &note, err)
	}
}
