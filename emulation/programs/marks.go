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

// Mark is a program's report that it has reached some point.
type Mark struct {
	Type string `json:"type"`
	Node string `json:"node"` // hub: in no node
	// Fields are all other fields of the mark.
	Fields map[string]any `json:"fields,omitempty"`
}

// Limits of marks.
const (
	LongestMark  = 64 << 10 // bytes of JSON
	markPatience = 10 * time.Second
)

// hub stands for programs in no node.
const hub = "the hub"

// markSocket is the socket for a node's marks. With an empty node it is the
// socket for all nodes without a socket of their own.
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
		return Mark{}, fmt.Errorf("a mark must be a JSON object on one line, such as {\"type\": \"step\", \"round\": 3}: %w", err)
	}
	m.Type, _ = m.Fields["type"].(string)
	if m.Type == "" {
		return Mark{}, errors.New("a mark needs a type, such as {\"type\": \"step\"}")
	}
	delete(m.Fields, "type")
	if len(m.Fields) == 0 {
		m.Fields = nil
	}
	return m, nil
}

// ServeMarks receives the marks of a node until this process ends. With an
// empty node it receives those of all nodes without a socket of their own.
// Calls of take do not overlap. The program goes on after take has returned.
func ServeMarks(node string, take func(Mark)) error {
	listener, err := net.Listen("unix", markSocket(node))
	if err != nil {
		return fmt.Errorf("opening the socket for the command \"testbed mark\": %w", err)
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
		return // the sender gets no answer
	}
	take(m)
	_, _ = conn.Write([]byte("\n")) // the sender may have gone
}

// SendMark sends a mark from the node of this process. It returns when the mark
// has been received.
func SendMark(kind string, fields map[string]any) error {
	node := os.Getenv(EnvNode)
	if os.Getenv(EnvNodes) == "" {
		return errs.Usagef("the command testbed mark needs a network of testbed launch or testbed net; call it from a program in a node")
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
		return errs.Usagef("the mark %s has %d bytes; at most %d bytes are allowed", kind, len(line), LongestMark-1)
	}
	conn, err := net.Dial("unix", markSocket(node))
	if errors.Is(err, fs.ErrNotExist) && node != "" {
		conn, err = net.Dial("unix", markSocket(""))
	}
	if err != nil {
		return fmt.Errorf("sending the mark %s: nothing receives marks on this host: %w; testbed net receives marks only on the host where it was started", kind, err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(markPatience))
	if _, err := conn.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("sending the mark %s: %w", kind, err)
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		return fmt.Errorf("sending the mark %s: the mark was not received: %w", kind, err)
	}
	return nil
}

// ParseFields reads NAME=VALUE as the fields of a mark. Values that are JSON
// are taken as JSON, all others as text.
func ParseFields(args []string) (map[string]any, error) {
	var fields map[string]any
	for _, arg := range args {
		name, text, found := strings.Cut(arg, "=")
		if name == "type" {
			return nil, errs.Usagef("%s: the mark's type is the first argument; leave this field out", arg)
		}
		if !found || name == "" {
			return nil, errs.Usagef("%s: write each field as NAME=VALUE, such as round=3; the mark's type is the first argument", arg)
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
