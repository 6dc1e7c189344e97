package lighthouse

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"testbed/torchft"
	"testbed/torchft/internal/wire"
)

// maxJournal is the size in bytes at which a journal is replaced by its last
// line: some hundred quorums of a thousand groups.
const maxJournal = 64 << 20

// entry is a line of the journal: a quorum with an id of its own. Quorums that
// repeat the last id are not kept, because they do not change the lighthouse's
// next decisions.
type entry struct {
	Issued       time.Time            `json:"issued"`
	Rule         torchft.Rule         `json:"rule"`
	QuorumID     int64                `json:"quorum_id"`
	Participants []*wire.QuorumMember `json:"participants"`
}

const entryBegins = `{"issued":`

func newEntry(issued time.Time, i *torchft.Issue) *entry {
	e := &entry{Issued: issued, Rule: i.Rule, QuorumID: i.Quorum.ID}
	for k := range i.Quorum.Participants {
		e.Participants = append(e.Participants, wire.NewMember(&i.Quorum.Participants[k]))
	}
	return e
}

func (e *entry) quorum() torchft.Quorum {
	return (&wire.Quorum{QuorumId: e.QuorumID, Participants: e.Participants}).Core()
}

// journal stores a lighthouse's last quorum: a file of JSON lines, of which the
// last counts. A nil journal stores nothing.
type journal struct {
	name string
	file *os.File
	size int64
	lock *os.File // held until the lighthouse ends; nil without a journal
}

// openJournal opens the journal of that name and returns it with its last
// entry, nil if there is none. An incomplete last line is dropped: the
// lighthouse died while writing it, before any answer.
func openJournal(name string) (*journal, *entry, error) {
	if name == "" {
		return nil, nil, nil
	}
	held, err := lock(name)
	if err != nil {
		return nil, nil, err
	}
	j, last, err := readJournal(name)
	if err != nil {
		held.Close()
		return nil, nil, err
	}
	j.lock = held
	return j, last, nil
}

// readJournal is openJournal without the lock.
func readJournal(name string) (*journal, *entry, error) {
	data, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("reading the journal: %w", err)
	}
	// A machine that stopped may have left zeros at the end of the file.
	line, last, err := lastEntry(bytes.TrimRight(data, "\x00"))
	if err != nil {
		return nil, nil, fmt.Errorf("reading the journal %s: %w", name, err)
	}
	j := &journal{name: name}
	if err := j.replace(line); err != nil {
		return nil, nil, err
	}
	return j, last, nil
}

// lastEntry returns the last whole line of a journal, and its content.
func lastEntry(data []byte) (line []byte, last *entry, err error) {
	for n := 1; len(data) > 0; n++ {
		length := bytes.IndexByte(data, '\n') + 1
		if length == 0 {
			if begin := min(len(data), len(entryBegins)); string(data[:begin]) != entryBegins[:begin] {
				return nil, nil, fmt.Errorf("line %d does not belong to a lighthouse's journal; name another file", n)
			}
			break
		}
		var e entry
		if err := json.Unmarshal(data[:length], &e); err != nil {
			return nil, nil, fmt.Errorf("line %d: %w; remove the line, or name another file", n, err)
		}
		if e.QuorumID < 1 || len(e.Participants) == 0 {
			return nil, nil, fmt.Errorf("line %d: quorum_id is %d and the number of participants is %d, but both must be at least 1; remove the line, or name another file", n, e.QuorumID, len(e.Participants))
		}
		line, last = data[:length], &e
		data = data[length:]
	}
	return line, last, nil
}

// add stores an entry. When it returns without an error, the entry survives a
// crash of the machine.
func (j *journal) add(e *entry) error {
	if j == nil {
		return nil
	}
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("writing the journal %s: %w", j.name, err)
	}
	line = append(line, '\n')
	if j.size+int64(len(line)) > maxJournal {
		return j.replace(line)
	}
	if _, err := j.file.Write(line); err != nil {
		return fmt.Errorf("writing the journal: %w", err)
	}
	if err := j.file.Sync(); err != nil {
		return fmt.Errorf("writing the journal: %w", err)
	}
	j.size += int64(len(line))
	return nil
}

// replace replaces the journal by a line. Whenever the machine stops, there is
// the old file or the new one.
func (j *journal) replace(line []byte) error {
	j.close()
	next := j.name + ".new"
	if err := writeFile(next, line); err != nil {
		return fmt.Errorf("writing the journal: %w", err)
	}
	if err := os.Rename(next, j.name); err != nil {
		return fmt.Errorf("writing the journal: %w", err)
	}
	if dir, err := os.Open(filepath.Dir(j.name)); err == nil {
		_ = dir.Sync() // not every system can
		_ = dir.Close()
	}
	file, err := os.OpenFile(j.name, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return fmt.Errorf("opening the journal: %w", err)
	}
	j.file, j.size = file, int64(len(line))
	return nil
}

func writeFile(name string, data []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

// end closes the journal for good.
func (j *journal) end() {
	if j != nil {
		j.close()
		_ = j.lock.Close() // there may be none
	}
}

func (j *journal) close() {
	if j != nil && j.file != nil {
		_ = j.file.Close()
		j.file = nil
	}
}
