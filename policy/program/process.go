package program

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"time"

	"testbed/internal/errs"
	"testbed/internal/lines"
	"testbed/policy"
)

// Limits of a program.
const (
	// defaultLimit is how long an answer may take, if the program gives no limit.
	defaultLimit = 10 * time.Second
	// firstLimit is how long the first answer may take: the program starts
	// meanwhile.
	firstLimit = 30 * time.Second
	// maxLine is the length of an answer, in bytes.
	maxLine = 64 << 10
	// endPatience is how long a program may take to end.
	endPatience = 2 * time.Second
	// statusPatience is how long the end of a process may come after the end of
	// its output, on a busy machine, too.
	statusPatience = 5 * time.Second
	// errorPatience is how long its children may hold its standard error.
	errorPatience = time.Second
)

// process is a process of a program. It has one user at a time.
type process struct {
	spec    spec
	hello   *hello
	said    []byte    // its hello, as it came
	command *exec.Cmd // nil: it is not our child, and reached by a socket
	in      input     // what it reads
	answers output    // what it writes
	lines   *bufio.Reader
	tail    *tail // of its standard error
	ended   chan struct{}
	status  error // how it ended, once ended is closed

	n       int    // number of the last question
	asked   string // its kind
	out     []byte
	shown   []policy.Member // as of the last question of the run, in order
	scratch []policy.Member
	gone    []policy.ID
	broken  bool // it must not be asked any more
}

type input interface {
	io.WriteCloser
	SetWriteDeadline(time.Time) error
}

type output interface {
	io.ReadCloser
	SetReadDeadline(time.Time) error
}

// start starts a process and greets it.
func start(s spec) (*process, error) {
	q := &process{spec: s, ended: make(chan struct{}), tail: &tail{}}
	if err := q.startable(); err != nil {
		return nil, q.named(err)
	}
	if info, err := os.Stat(s.File); err == nil && info.Mode()&fs.ModeSocket != 0 {
		if err := q.connect(); err != nil {
			return nil, q.named(fmt.Errorf("cannot be reached: %w; it has to listen on that socket until the command ends", err))
		}
	} else if err := q.launch(); err != nil {
		return nil, q.named(fmt.Errorf("cannot be started: %w", err))
	}
	h, err := q.greet()
	if err != nil {
		q.end()
		return nil, err
	}
	q.hello = h
	return q, nil
}

// startable reports what is wrong with the file, in clearer words than the
// kernel's.
func (q *process) startable() error {
	info, err := os.Stat(q.spec.File)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("cannot be found: there is no file %s; name an executable file, relative to the current directory", q.spec.File)
	case err != nil:
		return fmt.Errorf("cannot be found: %w", plain(err))
	case info.Mode()&fs.ModeSocket != 0:
	case !info.Mode().IsRegular():
		return errors.New("is not a regular file: name an executable file")
	case info.Mode()&0o111 == 0 && runtime.GOOS != "windows":
		return errors.New("is not executable: call chmod +x, and begin a script with a line such as #!/usr/bin/env python3")
	}
	return nil
}

// connect connects to a program that is already running. For it a connection
// takes the place of a process.
func (q *process) connect() error {
	conn, err := net.Dial("unix", q.spec.File)
	if err != nil {
		return plain(err)
	}
	q.in, q.answers, q.lines = conn, conn, bufio.NewReaderSize(conn, maxLine)
	return nil
}

// launch starts the process, in a goroutine of its own that waits for its end.
func (q *process) launch() error {
	theirIn, in, err := os.Pipe()
	if err != nil {
		return err
	}
	defer theirIn.Close()
	answers, theirOut, err := os.Pipe()
	if err != nil {
		in.Close()
		return err
	}
	defer theirOut.Close()
	q.in, q.answers, q.lines = in, answers, bufio.NewReaderSize(answers, maxLine)
	var log io.Writer = os.Stderr
	if q.spec.Log != "" {
		file, err := lines.AppendText(q.spec.Log)
		if err != nil {
			in.Close()
			answers.Close()
			return err
		}
		q.tail.file, log = file, file
	}
	q.tail.to = log
	c := exec.Command(q.spec.File)
	c.Dir, c.Stdin, c.Stdout, c.Stderr = q.spec.Dir, theirIn, theirOut, q.tail
	c.WaitDelay = errorPatience
	c.SysProcAttr = attributes()
	q.command = c
	started := make(chan error)
	go q.live(started)
	if err := <-started; err != nil {
		in.Close()
		answers.Close()
		q.tail.close()
		if errors.Is(err, fs.ErrNotExist) { // the file itself is there
			return errors.New("its interpreter does not exist; install the interpreter, or correct the first line of the program")
		}
		return plain(err)
	}
	return nil
}

// plain is an error about the program's file without the file's path, which the
// message already has.
func plain(err error) error {
	if e, ok := errors.AsType[*net.OpError](err); ok {
		return e.Err
	}
	return errs.Cause(err)
}

// live starts the process and waits for its end, on one thread: the process
// dies with that thread.
func (q *process) live(started chan<- error) {
	runtime.LockOSThread()
	err := q.command.Start()
	started <- err
	if err == nil {
		q.status = q.command.Wait()
		kill(q.command.Process) // its children
		q.tail.close()
		close(q.ended)
	}
}

// exchange asks the question that has been written, and reads its answer. After
// any error other than a refusal, the process is broken.
func (q *process) exchange(a answer, limit time.Duration) error {
	q.out = append(q.out, "}\n"...)
	due := time.Now().Add(limit)
	err := errors.Join(q.in.SetWriteDeadline(due), q.answers.SetReadDeadline(due))
	if err == nil {
		_, err = q.in.Write(q.out)
	}
	var line []byte
	if err == nil {
		line, err = q.lines.ReadSlice('\n')
	}
	switch {
	case err == nil:
	case errors.Is(err, os.ErrDeadlineExceeded):
		return q.problem(fmt.Errorf("has not answered the question %q within %v", q.asked, limit), q.slow())
	case errors.Is(err, bufio.ErrBufferFull):
		return q.problem(fmt.Errorf("answered the question %q with a line longer than %d bytes: %s", q.asked, maxLine, excerpt(line)), keep)
	default:
		return q.problem(q.death(), "")
	}
	if q.asked == "hello" {
		q.said = slices.Clone(line)
	}
	err = q.read(line, a)
	var no *refusal
	if errors.As(err, &no) {
		if q.asked == "reset" {
			return q.named(fmt.Errorf("refuses its parameters: %w", err))
		}
		q.broken = true
		return q.named(fmt.Errorf("cannot answer the question %q: %w", q.asked, err))
	}
	return err
}

// slow is the fix for an answer that takes too long. Only later answers than the
// first have a limit that the program sets.
func (q *process) slow() string {
	if q.hello == nil {
		return `the program hangs, or starts too slowly: make it answer the question "hello" at once`
	}
	return `the program hangs, or needs more time: give a time_limit_s in its answer to the question "hello"`
}

// death explains how a process that no longer answers ended.
func (q *process) death() error {
	if q.command == nil {
		return fmt.Errorf("closed its connection when it was asked the question %q; keep the connection open until testbed closes it", q.asked)
	}
	select {
	case <-q.ended:
		if q.status == nil {
			return fmt.Errorf("ended by itself when it was asked the question %q; keep it running until its standard input ends", q.asked)
		}
		return fmt.Errorf("died when it was asked the question %q: %w", q.asked, q.status)
	case <-time.After(statusPatience):
		return fmt.Errorf("closed its standard output when it was asked the question %q; keep standard output open until standard input ends", q.asked)
	}
}

// problem ends the process, and returns an error with the process's last output
// and what to do about it.
func (q *process) problem(err error, fix string) error {
	q.broken = true
	q.kill()
	if fix != "" {
		err = fmt.Errorf("%w; %s", err, fix)
	}
	if said := q.tail.last(); said != "" {
		err = fmt.Errorf("%w; its last line of output: %q", err, said)
	}
	if q.spec.Log != "" {
		err = fmt.Errorf("%w (its standard error is in %s)", err, q.spec.Log)
	}
	return q.named(err)
}

// named prefixes an error with the program's name.
func (q *process) named(err error) error {
	if q.hello != nil && q.hello.Name != "" {
		return fmt.Errorf("the policy's program %s (%s) %w", q.spec.Path, q.hello.Name, err)
	}
	return fmt.Errorf("the policy's program %s %w", q.spec.Path, err)
}

// end makes the process end, and waits for its end.
func (q *process) end() {
	q.in.Close()
	if q.command == nil {
		return
	}
	patience := time.NewTimer(endPatience)
	defer patience.Stop()
	select {
	case <-q.ended:
	case <-patience.C:
		q.kill()
	}
	q.answers.Close()
}

// kill ends the process at once.
func (q *process) kill() {
	if q.command == nil {
		q.in.Close()
		return
	}
	select {
	case <-q.ended: // its number may be another process's by now
	default:
		kill(q.command.Process)
		<-q.ended
	}
}

// tail passes on a program's standard error, and keeps the end of it.
type tail struct {
	to    io.Writer
	file  *os.File // destination, if it is to be closed
	mutex sync.Mutex
	text  []byte
}

// tailBytes is the number of bytes kept.
const tailBytes = 1 << 10

func (t *tail) Write(text []byte) (int, error) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.text = append(t.text, text...)
	t.text = t.text[max(0, len(t.text)-tailBytes):]
	_, _ = t.to.Write(text) // a full disk must not end the program
	return len(text), nil
}

// last is the last line that is not empty: for a Python program, its exception.
func (t *tail) last() string {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	text := bytes.TrimSpace(t.text)
	return string(text[bytes.LastIndexByte(text, '\n')+1:])
}

func (t *tail) close() {
	if t.file != nil {
		t.file.Close()
	}
}
