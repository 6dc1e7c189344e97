package lighthouse

import (
	"errors"
	"fmt"
	"os"

	"testbed/internal/filelock"
)

// lock prevents any other lighthouse from opening a journal, until the file is
// closed. On file systems without locks it does nothing.
func lock(name string) (*os.File, error) {
	file, err := os.OpenFile(name+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the journal: %w", err)
	}
	if err := filelock.Try(file); errors.Is(err, filelock.ErrHeld) {
		file.Close()
		return nil, fmt.Errorf("another lighthouse uses the journal %s; end that lighthouse, or name another file", name)
	}
	return file, nil
}
