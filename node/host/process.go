//go:build linux

package host

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"testbed/node/host/sandbox"
	"testbed/policy"
	"testbed/runlog"
)

// child is a process on the network: a node, or a service such as the router.
type child struct {
	name     string
	id       policy.ID // of a worker
	service  bool      // neither a worker nor the coordinator
	process  *sandbox.Process
	words    *json.Encoder
	wordsTo  *os.File
	ready    bool
	ended    bool
	member   bool // of the run, as a worker
	excused  bool // it is meant to end: crashed, left or evicted
	pausing  bool // it has been told of its pause
	paused   bool // it is stopped
	leaving  bool // it is to leave when it goes on
	lastErr  string
	memory   *os.File  // where a worker leaves a checkpoint
	captured *captured // what a capture saw, once it has ended
	probed   *probed   // what a prober found, once it is done
}

type childReport struct {
	child  *child
	report nodeReport
}

type childEnd struct {
	child  *child
	status sandbox.Status
}

// start starts a process in a namespace (-1 is the hub) and listens to it. It
// inherits files as descriptors from moreFD on.
func (i *inside) start(name string, ns int, s spec, env []string, files ...*os.File) (*child, error) {
	wrap := func(err error) error { return fmt.Errorf("starting %s: %w", name, err) }
	log := os.Stderr
	if i.Dir != "" {
		file, err := os.OpenFile(i.Dir.Log(name), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
		if err != nil {
			return nil, wrap(err)
		}
		defer file.Close()
		log = file
	}
	service := s.Worker == nil && s.Coordinator == nil
	if i.Run != nil && i.Run.Qlog && !service {
		dir, err := qlogDir(i.Dir, name)
		if err != nil {
			return nil, wrap(err)
		}
		defer dir.Close()
		s.Qlog = moreFD + len(files)
		files = append(slices.Clone(files), dir)
	}
	var theirs, ours [3]*os.File // spec, reports, words
	for k := range theirs {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, wrap(err)
		}
		theirs[k], ours[k] = r, w
		if k+specFD == reportsFD {
			theirs[k], ours[k] = w, r
		}
		defer theirs[k].Close()
	}
	c := &child{name: name, service: service, words: json.NewEncoder(ours[2]), wordsTo: ours[2]}
	i.nodes[name] = c
	var err error
	c.process, err = i.box.Start(sandbox.Command{
		Name: name, NetNS: ns, Args: []string{VerbNode}, Env: env, Files: append(theirs[:], files...), Stdout: log, Stderr: log,
	})
	if err != nil {
		ours[1].Close()
		return nil, wrap(err)
	}
	go func() {
		_ = json.NewEncoder(ours[0]).Encode(s) // a node that died is reported by its end
		ours[0].Close()
	}()
	go func() {
		in := json.NewDecoder(bufio.NewReader(ours[1]))
		for {
			var r nodeReport
			if err := in.Decode(&r); err != nil {
				break
			}
			i.inbox <- childReport{c, r}
		}
		ours[1].Close()
		i.inbox <- childEnd{c, c.process.Wait()}
	}()
	return c, nil
}

// log is where a process writes its log.
func (i *inside) log(name string) string {
	if i.Dir == "" {
		return "standard error"
	}
	return i.Dir.Log(name)
}

// logs is where all processes do.
func (i *inside) logs() string {
	if i.Dir == "" {
		return "standard error"
	}
	return "the logs in " + i.Dir.Path(runlog.LogsDir)
}

// failure is why a service ended without a result.
func (i *inside) failure(c *child) error {
	if c.lastErr != "" {
		return fmt.Errorf("%s: %s", c.name, c.lastErr)
	}
	return fmt.Errorf("%s died; see %s", c.name, i.log(c.name))
}
