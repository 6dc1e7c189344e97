//go:build linux

package programs

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"testbed/internal/errs"
)

// MarkStart is the type of the mark that starts the clock of the scenario.
const MarkStart = "start"

// Mark is what a program says of itself: that it has come so far.
type Mark struct {
	Type string `json:"type"`
	Node string `json:"node"` // hub: in none
	// Fields are all others that the program has given.
	Fields map[string]any `json:"fields,omitempty"`
}

// Limits of marks.
const (
	LongestMark  = 64 << 10 // bytes of JSON
	markPatience = 10 * time.Second
)

// hub is where a program is that is in no node.
const hub = "the hub"

// markSocket is where marks of a node are heard, or of all nodes that have no socket of
// their own if node is empty.
func markSocket(node string) string {
	if node == "" {
		return filepath.Join(OwnBin, "mark")
	}
	return filepath.Join(OwnBin, "mark-"+node)
}

// ParseMark reads a mark in the form that programs write: an object with a type and
// further fields.
func ParseMark(line []byte, node string) (Mark, error) {
	m := Mark{Node: node, Fields: map[string]any{}}
	if err := json.Unmarshal(line, &m.Fields); err != nil {
		return Mark{}, fmt.Errorf("a mark is an object of JSON on a line, as {\"type\": \"step\", \"round\": 3}: %w", err)
	}
	m.Type, _ = m.Fields["type"].(string)
	if m.Type == "" {
		return Mark{}, errors.New("a mark has a type, as {\"type\": \"step\"}")
	}
	delete(m.Fields, "type")
	if len(m.Fields) == 0 {
		m.Fields = nil
	}
	return m, nil
}

// ServeMarks hears the marks of a node, or of all that have no socket of their own if node
// is empty, until this process ends. take is called by one goroutine after another; the
// program goes on when it has returned.
func ServeMarks(node string, take func(Mark)) error {
	listener, err := net.Listen("unix", markSocket(node))
	if err != nil {
		return fmt.Errorf("listening for testbed mark: %w", err)
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			hear(conn, take)
		}
	}()
	return nil
}

func hear(conn net.Conn, take func(Mark)) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(markPatience))
	var m Mark
	in := bufio.NewReaderSize(conn, LongestMark)
	line, err := in.ReadSlice('\n')
	if err != nil || json.Unmarshal(line, &m) != nil || m.Type == "" {
		return // whoever that was hears nothing
	}
	take(m)
	_, _ = conn.Write([]byte("\n")) // whoever marked may have gone
}

// SendMark marks something, in whatever node this process is. It returns when the mark
// has been heard.
func SendMark(kind string, fields map[string]any) error {
	node := os.Getenv(EnvNode)
	if os.Getenv(EnvNodes) == "" {
		return errs.Usagef("testbed mark works only inside of testbed launch and testbed net")
	}
	m := Mark{Type: kind, Node: node, Fields: fields}
	if node == "" {
		m.Node = hub
	}
	line, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(line)+1 > LongestMark {
		return errs.Usagef("the mark %s has %d bytes; at most %d are kept", kind, len(line), LongestMark)
	}
	conn, err := net.Dial("unix", markSocket(node))
	if errors.Is(err, fs.ErrNotExist) && node != "" {
		conn, err = net.Dial("unix", markSocket(""))
	}
	if err != nil {
		return fmt.Errorf("marking %s: nobody listens here; testbed net hears marks on its own host only: %w", kind, err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(markPatience))
	if _, err := conn.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("marking %s: %w", kind, err)
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		return fmt.Errorf("marking %s: it was not heard: %w", kind, err)
	}
	return nil
}

// ParseFields reads NAME=VALUE as the fields of a mark. What is JSON is taken as that,
// anything else as text.
func ParseFields(args []string) (map[string]any, error) {
	var fields map[string]any
	for _, arg := range args {
		name, text, found := strings.Cut(arg, "=")
		if !found || name == "" || name == "type" {
			return nil, errs.Usagef("%s: write NAME=VALUE, as round=3; the type comes first", arg)
		}
		var value any
		if json.Unmarshal([]byte(text), &value) != nil {
			value = text
		}
		if fields == nil {
			fields = map[string]any{}
		}
		fields[name] = value
	}
	return fields, nil
}
