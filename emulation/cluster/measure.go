//go:build linux

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"testbed/emulation/network"
)

// surveyNote is what the leader has a host measure, and what that answers. Others
// are passed on.
type surveyNote struct {
	network.Note
	Order  *SurveyOrder  `json:"survey_order,omitempty"`
	Answer *SurveyAnswer `json:"survey_answer,omitempty"`
}

// surveyed carries an order of the leader's out, if it is one to measure.
func surveyed(ctx context.Context, c *Connection, s *Surveyor, v json.RawMessage) bool {
	var n surveyNote
	if json.Unmarshal(v, &n) != nil || n.Order == nil {
		return false
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.Context(), cancel)() // nobody reads of the leader's end meanwhile
	a := s.Do(ctx, *n.Order)
	_ = c.Send(surveyNote{Answer: &a}) // a leader that has gone is noticed soon
	return true
}

// OneWay measures how long the hosts' network takes, one way, from row to column.
// again: once more.
func (h *Hosts) OneWay(ctx context.Context, again bool) (ways [][]time.Duration, err error) {
	answers, err := h.measure(ctx, func(host int) SurveyOrder {
		if again {
			return SurveyOrder{Again: true}
		}
		c := h.meeting
		c.Self = host
		return SurveyOrder{Meet: &c}
	})
	for _, a := range answers {
		ways = append(ways, a.OneWay)
	}
	return ways, err
}

// Burst has all hosts send to each other at these rates at the same time, in bit/s
// from row to column, and returns what came. OneWay has been called before.
func (h *Hosts) Burst(ctx context.Context, turn int, rates [][]float64) (carried [][]float64, err error) {
	answers, err := h.measure(ctx, func(int) SurveyOrder { return SurveyOrder{Burst: &Burst{Turn: turn, Rates: rates}} })
	carried = make([][]float64, len(rates))
	for _, a := range answers {
		for from := range min(len(carried), len(a.Carried)) {
			carried[from] = append(carried[from], a.Carried[from])
		}
	}
	return carried, err
}

// Measured ends the measurements.
func (h *Hosts) Measured(ctx context.Context) error {
	_, err := h.measure(ctx, func(int) SurveyOrder { return SurveyOrder{End: true} })
	return err
}

// measure has all hosts do something, this one too, and waits for what comes of it.
func (h *Hosts) measure(ctx context.Context, order func(host int) SurveyOrder) ([]SurveyAnswer, error) {
	for _, m := range h.members {
		o := order(m.Index)
		if err := m.Send(surveyNote{Order: &o}); err != nil {
			return nil, lost(m, err)
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	answers := make([]SurveyAnswer, len(h.members)+1)
	var all sync.WaitGroup
	for _, m := range h.members {
		all.Go(func() {
			a, err := answer(ctx, m)
			if err != nil {
				cancel(err) // nobody waits for the others
				return
			}
			answers[m.Index] = *a
		})
	}
	answers[0] = h.surveyor.Do(ctx, order(0))
	all.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	for _, a := range answers {
		if a.Err != "" {
			return nil, errors.New(a.Err)
		}
	}
	return answers, nil
}

// answer waits for a host's. One that cannot take part says so instead.
func answer(ctx context.Context, m *RemoteHost) (*SurveyAnswer, error) {
	for {
		var n surveyNote
		if err := m.Next(ctx, &n); err != nil {
			return nil, lost(m, err)
		}
		if err := n.Failed(m.Name); err != nil {
			return nil, err
		}
		if n.Answer != nil {
			return n.Answer, nil
		}
	}
}

// lost is the error of a host that has gone.
func lost(m *RemoteHost, err error) error {
	if ended, ok := errors.AsType[*EndedError](err); ok {
		return &network.LostError{Host: m.Name, Why: ended.Error()}
	}
	return err
}
