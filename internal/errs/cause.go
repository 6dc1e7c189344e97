package errs

import (
	"errors"
	"io/fs"
)

// Cause is the cause in an error of a file, without the operation and the path, for
// messages that name the file themselves. Other errors are returned as they are.
func Cause(err error) error {
	if p, is := errors.AsType[*fs.PathError](err); is {
		return p.Err
	}
	return err
}
