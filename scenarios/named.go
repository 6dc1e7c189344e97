package scenarios

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"

	"testbed/internal/errs"
)

// maxTraceBytes bounds the file of a trace.
const maxTraceBytes = 256 << 20

// named reads a file that a field of the scenario names, such as a trace, and
// keeps its text with the scenario.
func (p *parser) named(s *Scenario, field, what, name string) ([]byte, error) {
	if !fs.ValidPath(name) || name == "." {
		return nil, p.fail(field, fmt.Sprintf("%q is not in the scenario's folder or below; move the %s there, and write its path from that folder, with slashes", name, what))
	}
	if ext := path.Ext(name); slices.Contains([]string{".json", ".jsonl", ".yaml", ".yml", ".log"}, ext) {
		return nil, p.fail(field, fmt.Sprintf("the name of a %s must not end in %s, because other files of a run's record end so; rename it, for example to end in .%s", what, ext, what))
	}
	if text, ok := s.Traces[name]; ok {
		return text, nil
	}
	if p.dir == nil {
		return nil, p.fail(field, "a "+what+" can be read only if the scenario itself is read from a file")
	}
	var text []byte
	dir := p.dir
	info, err := fs.Stat(dir, name)
	if errors.Is(err, fs.ErrNotExist) { // every scenario may name the library's files
		if _, other := fs.Stat(files, "library/"+name); other == nil {
			if dir, err = fs.Sub(files, "library"); err == nil {
				info, err = fs.Stat(dir, name)
			}
		}
	}
	if err == nil && (!info.Mode().IsRegular() || info.Size() > maxTraceBytes) {
		return nil, p.fail(field, fmt.Sprintf("%s must be a regular file of at most %d MiB", name, maxTraceBytes>>20))
	}
	if err == nil {
		text, err = fs.ReadFile(dir, name)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, p.fail(field, fmt.Sprintf("there is no file %s in the scenario's folder; correct the path, or add the file", name))
	}
	if err != nil {
		return nil, p.fail(field, fmt.Sprintf("names %s, which cannot be read: %v", name, errs.Cause(err)))
	}
	if s.Traces == nil {
		s.Traces = make(map[string][]byte)
	}
	s.Traces[name] = text
	return text, nil
}

// inNamed returns an error about a line of a file that a field of the scenario
// names.
func (p *parser) inNamed(field, name string, line int, problem string) error {
	return &Error{spoils: field, File: path.Join(path.Dir(filepath.ToSlash(p.file)), name), Line: line, Problem: problem}
}
