package launch

import (
	"bytes"
	"fmt"
)

// longestLine is the length at which an unfinished line is cut.
const longestLine = 64 << 10

// splitter splits a program's output, which comes in pieces, into lines. A
// carriage return ends a line, too: progress bars have nothing else.
type splitter struct{ rest []byte }

// take returns the lines that a piece completes, without their ends.
func (s *splitter) take(piece []byte) (lines [][]byte) {
	s.rest = append(s.rest, piece...)
	for {
		k := bytes.IndexAny(s.rest, "\n\r")
		switch {
		case k >= 0 && s.rest[k] == '\r' && k+1 == len(s.rest):
			return lines // a line feed may follow
		case k >= 0:
			lines = append(lines, bytes.Clone(s.rest[:k]))
			if s.rest[k] == '\r' && s.rest[k+1] == '\n' {
				k++
			}
			s.rest = s.rest[k+1:]
		case len(s.rest) >= longestLine:
			lines = append(lines, bytes.Clone(s.rest[:longestLine]))
			s.rest = s.rest[longestLine:]
		default:
			return lines
		}
	}
}

// end returns the rest, which has no line end.
func (s *splitter) end() (lines [][]byte) {
	if rest := bytes.TrimRight(s.rest, "\r"); len(rest) > 0 {
		lines = append(lines, bytes.Clone(rest))
	}
	s.rest = nil
	return lines
}

// colours of the names of nodes, one after the other: ECMA-48, select graphic rendition.
var colours = []int{36, 33, 32, 35, 34, 31}

// prefix is the prefix of the lines of the k-th node.
func prefix(node string, k int, colour bool) string {
	if !colour {
		return node + ": "
	}
	return fmt.Sprintf("\x1b[%dm%s:\x1b[0m ", colours[k%len(colours)], node)
}
