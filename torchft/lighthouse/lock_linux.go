package lighthouse

import (
	"errors"
	"fmt"
	"os"

	"testbed/internal/filelock"
)

// lock makes sure that no other lighthouse has a journal, until the file is closed. Where
// the file system knows no locks it does without.
func lock(name string) (*os.File, error) {
	file, err := os.OpenFile(name+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the journal: %w", err)
	}
	if err := filelock.Try(file); errors.Is(err, filelock.ErrHeld) {
		file.Close()
		return nil, fmt.Errorf("another lighthouse has the journal %s; end it, or name another file", name)
	}
	return file, nil
}
