package stacks

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"testbed/internal/errs"
)

// stampFile is in a virtual environment when it is whole. It has the Stack's stamp.
const stampFile = "testbed-stack"

// stamp identifies what is installed: by the pins, and by what comes after them.
func (s *Stack) stamp() (string, error) {
	sum := sha256.New()
	for _, name := range []string{s.Install.Requirements, s.Install.After} {
		if name == "" {
			continue
		}
		text, err := fs.ReadFile(s.folder, name)
		if err != nil {
			return "", fmt.Errorf("reading the folder of the stack %s: %w", s.Name, err)
		}
		sum.Write(text)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// Set makes the stack's virtual environment, and installs its pinned packages, unless
// that was done from the same pins and the stack can run. Output of the tools goes to
// out. If something is missing on this machine, the error is an
// *errs.UnsupportedError.
func (s *Stack) Set(ctx context.Context, out io.Writer) error {
	if s.Install == nil {
		return errs.Usagef("testbed does not install the stack %s: %s", s.Name, s.Remedy)
	}
	stamp, err := s.stamp()
	if err != nil {
		return err
	}
	venv := s.Venv()
	if had, err := os.ReadFile(filepath.Join(venv, stampFile)); err == nil && string(had) == stamp {
		if _, err := s.Check(ctx); err == nil {
			return nil
		}
	}
	python, missing := s.maker(ctx)
	if missing != "" {
		return &errs.UnsupportedError{Missing: "the stack " + s.Name + " cannot be installed: " + missing, Fix: s.Install.Remedy}
	}
	// What is killed leaves everything in the environment, which the next installation
	// replaces.
	temporary := filepath.Join(venv, "tmp")
	if err = os.RemoveAll(venv); err == nil {
		err = os.MkdirAll(temporary, 0o755)
	}
	if err == nil {
		err = s.Extract(venv)
	}
	if err != nil {
		return fmt.Errorf("making the environment of the stack %s: %w", s.Name, err)
	}
	commands := [][]string{
		{python, "-m", "venv", "--system-site-packages", venv},
		{filepath.Join(venv, "bin", "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes", "-r", filepath.Join(venv, "adapter", s.Install.Requirements)},
	}
	pythons := len(commands) // the first commands are Python's
	if s.Install.After != "" {
		commands = append(commands, []string{"/bin/sh", filepath.Join(venv, "adapter", s.Install.After), venv})
	}
	for k, command := range commands {
		prepare := func() *exec.Cmd {
			cmd := exec.CommandContext(ctx, command[0], command[1:]...)
			cmd.Stdout, cmd.Stderr = out, out
			cmd.WaitDelay = time.Second
			if k < pythons {
				cmd.Env = append(os.Environ(), "TMPDIR="+temporary)
			}
			return cmd
		}
		run := contain
		if k >= pythons && os.Geteuid() != 0 { // mmdebstrap needs more than one user
			run = func(prepare func() *exec.Cmd) error { return tether(prepare()) }
		}
		if err := run(prepare); err != nil {
			_ = os.RemoveAll(venv) // half of it would be taken for the whole
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return &errs.UnsupportedError{
				Missing: fmt.Sprintf("the stack %s was not installed: %s: %v", s.Name, filepath.Base(command[0])+" "+command[1]+" "+command[2], err),
				Fix:     "see the output above; the packages come from PyPI; the installation needs: " + s.Install.Remedy,
			}
		}
	}
	if err := os.RemoveAll(temporary); err != nil {
		return fmt.Errorf("making the environment of the stack %s: %w", s.Name, err)
	}
	if _, err = s.Check(ctx); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(venv, stampFile), []byte(stamp), 0o644); err != nil {
		return fmt.Errorf("making the environment of the stack %s: %w", s.Name, err)
	}
	return nil
}

// maker is the interpreter to make the environment with, or what is missing in words.
func (s *Stack) maker(ctx context.Context) (python, missing string) {
	for _, candidate := range s.Install.Python {
		found, err := exec.LookPath(s.expand(candidate))
		if err != nil {
			missing = first(missing, noProgram(s.expand(candidate), err))
			continue
		}
		ctx, stop := context.WithTimeout(ctx, probeLimit)
		out := &tail{stop: stop}
		err = contain(func() *exec.Cmd {
			cmd := exec.CommandContext(ctx, found, "-c", "import ensurepip, venv, "+s.Install.Needs)
			cmd.Stdout, cmd.Stderr = out, out
			cmd.WaitDelay = time.Second
			return cmd
		})
		stop()
		if err == nil {
			return found, ""
		}
		missing = first(missing, found+": "+cmp.Or(out.last(), err.Error()))
	}
	return "", missing
}
