package policy_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"testbed/internal/transcript"
	"testbed/policy"
)

// events are of every kind that transcripts have.
var events = []any{
	policy.Join{}, policy.Leave{}, policy.Heartbeat{}, policy.Arrival{}, policy.Reduced{}, policy.ReduceFailed{}, policy.Progress{}, policy.Lost{},
	policy.Unreachable{}, policy.StateFetched{}, policy.FetchFailed{}, policy.Timer{}, policy.Recovered{}, policy.Restarted{},
}

// TestTranscripts plays runs: at which time what happens, and what the machine decides,
// but for arrivals, wake-ups and heartbeat misses. A timer has to have been asked for.
// First may stand what differs from the baseline of the other tests:
//
//	config join=next                  fields of a Config
//	policy straggler k=5              a policy, and its fields that are not the default
//	regions every=2 east=0,1 west=2   who reduces with whom
//
// Two more lines ask: "why RULE" for the reason of the last decision by that rule, and
// "state" for the state of the machine.
func TestTranscripts(t *testing.T) {
	transcript.Run(t, "testdata/*.txt", func(t *testing.T) func(string) ([]string, error) {
		s := &scripted{t: t, cfg: baseline()}
		return s.do
	})
}

// scripted is a run of a transcript.
type scripted struct {
	t   *testing.T
	cfg policy.Config
	*play
}

func (s *scripted) do(line string) (seen []string, err error) {
	first, rest, _ := strings.Cut(line, " ")
	if configure, is := map[string]func(string) error{"config": s.config, "policy": s.policy, "regions": s.regions}[first]; is {
		if s.play != nil {
			return nil, errors.New("the run has begun")
		}
		return nil, configure(rest)
	}
	if s.play == nil {
		s.play = newPlay(s.t, s.cfg)
	}
	switch first {
	case "why":
		why, err := json.Marshal(s.why(policy.Rule(rest)))
		return []string{string(why)}, err
	case "state":
		return []string{fmt.Sprintf("%d outer steps, %d members", s.m.OuterSteps(), s.m.Members())}, nil
	}
	now, err := strconv.Atoi(first)
	if err != nil {
		return nil, errors.New("a line begins with a time, or with config, policy, regions, why or state")
	}
	read, err := transcript.Read(rest, events...)
	for _, e := range read {
		if _, timer := e.(policy.Timer); timer && s.wake != policy.Time(now) {
			return nil, fmt.Errorf("the machine has asked for a timer at %d", s.wake)
		}
		s.quietly(policy.Time(now), e.(policy.Event))
		seen = append(seen, s.decided()...)
	}
	return seen, err
}

// decided says what the last actions are.
func (s *scripted) decided() (lines []string) {
	for _, a := range s.last {
		line := format(a)
		switch a := a.(type) {
		case *policy.Reduce:
			if len(a.Zero) > 0 {
				line += fmt.Sprintf(", zeros of %v", a.Zero)
			}
		case *policy.Close:
			if a.Held > 0 {
				line += fmt.Sprintf(", held for %d", a.Held)
			}
			if a.Overslept > 0 {
				line += fmt.Sprintf(", overslept for %d", a.Overslept)
			}
		}
		if line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

func (s *scripted) config(fields string) error {
	read, err := transcript.Read("config "+fields, s.cfg)
	if err == nil {
		s.cfg = read[0].(policy.Config)
	}
	return err
}

func (s *scripted) policy(line string) error {
	var kinds []any
	for _, name := range policy.Names() {
		p, _ := policy.Named(name)
		kinds = append(kinds, reflect.ValueOf(p).Elem().Interface())
	}
	read, err := transcript.Read(line, kinds...)
	if err != nil {
		return err
	}
	p := reflect.New(reflect.TypeOf(read[0]))
	p.Elem().Set(reflect.ValueOf(read[0]))
	s.cfg.Policy = p.Interface().(policy.Policy)
	return nil
}

func (s *scripted) regions(line string) error {
	every, of := 0, map[string][]policy.ID{}
	for word := range strings.FieldsSeq(line) {
		name, value, _ := strings.Cut(word, "=")
		for part := range strings.SplitSeq(value, ",") {
			n, err := strconv.Atoi(part)
			if err != nil {
				return err
			}
			if name == "every" {
				every = n
			} else {
				of[name] = append(of[name], policy.ID(n))
			}
		}
	}
	s.cfg.Grouping = policy.NewRegions(every, of)
	return nil
}
