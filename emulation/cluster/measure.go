//go:build linux

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"testbed/emulation/network"
)

// meterNote is an order of the leader to a host's meter, or the answer. Other
// notes are passed on.
type meterNote struct {
	network.Note
	Order  *MeterOrder  `json:"survey_order,omitempty"`
	Answer *MeterAnswer `json:"survey_answer,omitempty"`
}

// measured carries out an order of the leader if it is for the meter, and
// reports whether it is.
func measured(ctx context.Context, c *LeaderConn, m *Meter, v json.RawMessage) bool {
	var n meterNote
	if json.Unmarshal(v, &n) != nil || n.Order == nil {
		return false
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.Context(), cancel)() // meanwhile nothing else would notice the leader's end
	a := m.Do(ctx, *n.Order)
	_ = c.Send(meterNote{Answer: &a}) // the loss of a leader is noticed soon
	return true
}

// oneWayDelays measures the one-way delays of the network between hosts, from
// row to column. repeated discards earlier measurements.
func (c *Cluster) oneWayDelays(ctx context.Context, repeated bool) (delays Underlay, err error) {
	answers, err := c.measure(ctx, func(host int) MeterOrder {
		if repeated {
			return MeterOrder{Repeat: true}
		}
		t := c.measuring
		t.Self = host
		return MeterOrder{Open: &t}
	})
	for _, a := range answers {
		delays = append(delays, a.OneWay)
	}
	return delays, err
}

// burst makes all hosts send to each other at these rates simultaneously, in
// bit/s from row to column, and returns the arriving rates. oneWayDelays must
// have been called.
func (c *Cluster) burst(ctx context.Context, number int, rates [][]float64) (carried [][]float64, err error) {
	answers, err := c.measure(ctx, func(int) MeterOrder { return MeterOrder{Burst: &Burst{Number: number, Rates: rates}} })
	carried = make([][]float64, len(rates))
	for _, a := range answers {
		for from := range min(len(carried), len(a.Carried)) {
			carried[from] = append(carried[from], a.Carried[from])
		}
	}
	return carried, err
}

// endMeasuring ends the measurements.
func (c *Cluster) endMeasuring(ctx context.Context) error {
	_, err := c.measure(ctx, func(int) MeterOrder { return MeterOrder{End: true} })
	return err
}

// measure makes the meters of all hosts carry out an order, and returns their
// answers.
func (c *Cluster) measure(ctx context.Context, order func(host int) MeterOrder) ([]MeterAnswer, error) {
	for _, h := range c.others {
		o := order(h.Index)
		if err := h.Send(meterNote{Order: &o}); err != nil {
			return nil, lost(h, err)
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	answers := make([]MeterAnswer, len(c.others)+1)
	var all sync.WaitGroup
	for _, h := range c.others {
		all.Go(func() {
			a, err := answer(ctx, h)
			if err != nil {
				cancel(err) // do not wait for the others
				return
			}
			answers[h.Index] = *a
		})
	}
	answers[0] = c.meter.Do(ctx, order(0))
	all.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	for k, a := range answers {
		if a.Err != "" {
			return nil, fmt.Errorf("host %s: %s", c.measuring.Hosts[k].Name, a.Err)
		}
	}
	return answers, nil
}

// answer waits for the answer of a host. A host that cannot take part answers
// with its error.
func answer(ctx context.Context, h *HostConn) (*MeterAnswer, error) {
	for {
		var n meterNote
		if err := h.Next(ctx, &n); err != nil {
			return nil, lost(h, err)
		}
		if err := failed(n.Note, h.Name); err != nil {
			return nil, err
		}
		if n.Answer != nil {
			return n.Answer, nil
		}
	}
}

// lost is the error of a host that has gone.
func lost(h *HostConn, err error) error {
	if ended, ok := errors.AsType[*EndedError](err); ok {
		return &network.LostError{Host: h.Name, Why: ended.Error()}
	}
	return err
}
