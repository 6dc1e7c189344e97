//go:build linux

package launch

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"testbed/record"
)

// printer writes the output of programs, in a goroutine of its own: its reader
// may be slow.
type printer struct {
	in      chan piece
	done    chan struct{}
	streams [2]io.Writer
	nodes   map[string]*printed
	most    int // bytes of a node that are written; 0: all
}

// piece is output of a node, or the end of its program.
type piece struct {
	node   string
	stream int // 1 or 2
	data   []byte
	ended  bool
}

// printed is the output of a node.
type printed struct {
	prefix [2]string
	parts  [2]splitter
	log    *os.File // nil: not kept
	last   [2]string
	cause  string // the last line as of the end of the program
	size   int    // of all output
}

// newPrinter returns a printer for the nodes. It keeps their output in the logs
// of a directory, if that is not empty. It writes at most that many bytes of each node,
// if most is not 0. It calls taken when a piece of a node
// has been written, and broken with the first error.
func newPrinter(nodes []string, dir string, most int, colours [2]bool, out, err io.Writer, taken func(node string), broken func(error)) (*printer, error) {
	p := &printer{
		in: make(chan piece, len(nodes)*(outputWindow+1)), done: make(chan struct{}),
		streams: [2]io.Writer{out, err}, nodes: map[string]*printed{}, most: most,
	}
	if dir != "" {
		if err := os.MkdirAll(record.Dir(dir).Path(record.LogsDir), 0o755); err != nil {
			return nil, err
		}
	}
	for k, name := range nodes {
		n := &printed{}
		for s := range n.prefix {
			n.prefix[s] = prefix(name, k, colours[s])
		}
		if dir != "" {
			var err error
			if n.log, err = os.Create(logOf(dir, name)); err != nil {
				return nil, err
			}
		}
		p.nodes[name] = n
	}
	go p.print(taken, broken)
	return p, nil
}

// logOf is the log file of a node's program.
func logOf(dir, node string) string {
	return strings.TrimSuffix(record.Dir(dir).Log(node), ".log") + ".out"
}

func (p *printer) print(taken func(string), broken func(error)) {
	defer close(p.done)
	failed := false
	check := func(err error) {
		if err != nil && !failed {
			failed = true
			broken(err)
		}
	}
	for piece := range p.in {
		n := p.nodes[piece.node]
		if piece.ended {
			for s := range n.parts {
				check(p.write(n, s, n.parts[s].end()))
			}
			n.cause = n.last[1]
			if n.cause == "" {
				n.cause = n.last[0]
			}
			continue
		}
		before := n.size
		n.size += len(piece.data)
		if p.full(n) && (before <= p.most) {
			end := fmt.Appendf(nil, "\ntestbed: further output of %s is not kept: there are more than %d MiB\n", piece.node, p.most>>20)
			if n.log != nil {
				_, err := n.log.Write(end)
				check(err)
			}
			_, err := p.streams[1].Write(end[1:])
			check(err)
		}
		if n.log != nil && !p.full(n) {
			_, err := n.log.Write(piece.data)
			check(err)
		}
		s := piece.stream - 1
		check(p.write(n, s, n.parts[s].take(piece.data)))
		taken(piece.node)
	}
	for _, n := range p.nodes {
		for s := range n.parts { // of the program's descendants
			check(p.write(n, s, n.parts[s].end()))
		}
		if n.log != nil {
			check(n.log.Close())
		}
	}
}

// full reports whether no more output of a node is written.
func (p *printer) full(n *printed) bool { return p.most > 0 && n.size > p.most }

func (p *printer) write(n *printed, stream int, all [][]byte) error {
	var text bytes.Buffer
	for _, line := range all {
		text.WriteString(n.prefix[stream])
		text.Write(line)
		text.WriteByte('\n')
		if words := strings.TrimSpace(string(line)); words != "" {
			n.last[stream] = words
		}
	}
	if text.Len() == 0 || p.full(n) {
		return nil
	}
	_, err := p.streams[stream].Write(text.Bytes())
	return err
}

// close waits until everything has been written. No output may come after it.
func (p *printer) close() {
	close(p.in)
	<-p.done
}
