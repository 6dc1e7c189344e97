// Package lines opens files that grow by lines, such that an incomplete line of
// a killed process does no harm, and reads them.
package lines

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// Append opens a file of JSON lines for appending, or creates it. An incomplete
// last line, which a killed process may leave, is removed, so that the next one
// is on a line of its own. Every growing file of a record is opened by Append
// or AppendText.
func Append(path string) (*os.File, error) {
	file, size, whole, err := reopen(path)
	if err == nil && whole < size {
		err = file.Truncate(whole)
	}
	return opened(file, err)
}

// AppendText opens a log for appending, or creates it. An incomplete last line
// is completed.
func AppendText(path string) (*os.File, error) {
	file, size, whole, err := reopen(path)
	if err == nil && whole < size {
		_, err = file.WriteString("\n")
	}
	return opened(file, err)
}

func opened(file *os.File, err error) (*os.File, error) {
	if err == nil {
		return file, nil
	}
	if file != nil {
		err = errors.Join(err, file.Close())
	}
	return nil, fmt.Errorf("opening a file for appending: %w", err)
}

// reopen opens a file for appending, and returns its size and that of its whole
// lines. It may return a file together with an error; the caller closes it.
func reopen(path string) (file *os.File, size, whole int64, err error) {
	if file, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644); err != nil {
		return nil, 0, 0, err
	}
	about, err := file.Stat()
	if err != nil {
		return file, 0, 0, err
	}
	size = about.Size()
	if !about.Mode().IsRegular() { // a terminal or a pipe keeps nothing
		return file, 0, 0, nil
	}
	const look = 64 << 10
	for end := size; end > 0; {
		block := make([]byte, min(look, end))
		if _, err := file.ReadAt(block, end-int64(len(block))); err != nil && !errors.Is(err, io.EOF) {
			return file, size, 0, err
		}
		begin := end - int64(len(block))
		if at := bytes.LastIndexByte(block, '\n'); at >= 0 {
			return file, size, begin + int64(at) + 1, nil
		}
		end = begin
	}
	return file, size, 0, nil
}

// Read decodes JSON lines into values of a type and calls take with each, with
// its text and its number from 1. An incomplete last line, which a killed run
// may leave, is skipped. An error names the line.
func Read[T any](r io.Reader, what string, take func(line int, text []byte, v *T) error) error {
	in := bufio.NewReader(r)
	for line := 1; ; line++ {
		text, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading %s in line %d: %w", what, line, err)
		}
		v := new(T)
		if err := json.Unmarshal(text, v); err != nil {
			return fmt.Errorf("%s in line %d: %w", what, line, err)
		}
		if err := take(line, text, v); err != nil {
			return fmt.Errorf("%s in line %d: %w", what, line, err)
		}
	}
}
