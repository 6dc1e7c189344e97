// Package torchft is torchft's protocol as a policy: a lighthouse decides which
// groups take part in each outer step (package testbed/torchft). A step counts
// if all of them end its reduction. No worker is excluded for good. Importing
// the package registers the policy.
package torchft

import (
	"testbed/internal/errs"
	"testbed/policy"
)

func init() {
	policy.Register("torchft", "torchft's protocol: a quorum for every outer step, which counts if all members of the quorum succeed", &Policy{MinReplicas: 1})
}

// Policy has the parameters of the lighthouse and of the managers. Times are in
// microseconds. A time of 0 has torchft's ratio to the heartbeat timeout.
type Policy struct {
	// The least number of workers, or replica groups, in a quorum and in an outer step.
	// Only a majority guarantees a single quorum at a time.
	MinReplicas int `yaml:"min_replicas" json:"min_replicas"`
	// The time to wait for other live workers, from the first request for a quorum. 0
	// means 2 × `heartbeat_timeout`, as in torchft's README.
	JoinTimeout policy.Time `yaml:"join_timeout" json:"join_timeout" tune:"0.01 4 log of round"`
	// The silence that counts as death, at least 2 × `heartbeat_period`. 0 means
	// `heartbeat_period` × `heartbeat_miss_threshold`.
	HeartbeatTimeout policy.Time `yaml:"heartbeat_timeout" json:"heartbeat_timeout"`
	// The time that a worker waits for a quorum before it dies. 0 means 12 ×
	// `heartbeat_timeout`.
	QuorumTimeout policy.Time `yaml:"quorum_timeout" json:"quorum_timeout"`
	// The time from a quorum until its outer step fails. 0 means 12 ×
	// `heartbeat_timeout`.
	Timeout policy.Time `yaml:"timeout" json:"timeout"`
	// How often a worker repeats a request that the lighthouse has forgotten. Then the
	// worker waits for `quorum_timeout`, and dies.
	QuorumRetries int `yaml:"quorum_retries" json:"quorum_retries"`
	// The number of failed commits in a row that a group survives. One more kills the
	// group (`reduce_failed`). 0 means any number, which is torchft's default. torchft's
	// own 0 (none) is not available.
	MaxRetries int `yaml:"max_retries" json:"max_retries"`
	// How often a group that died of `quorum_timeout` or `max_retries` restarts.
	Restarts int `yaml:"restarts" json:"restarts"`
	// The number of outer steps for which contributors ask with `shrink_only`, which
	// admits only members of the last quorum.
	ShrinkUntil int `yaml:"shrink_until" json:"shrink_until"`
	// A group that heals takes part with its donor's contribution, as in torchft with
	// `use_async_quorum=False`, which DiLoCo requires. Otherwise it contributes zeros.
	Sync bool `yaml:"sync" json:"sync,omitempty"`
	// At step 0, all groups take the first group's state, as torchft does by default.
	InitSync bool `yaml:"init_sync" json:"init_sync,omitempty"`
}

// torchft's times as multiples of its heartbeat timeout of 5 s: 10 s of join
// timeout in the command of its README, and 60 s each of quorum timeout and
// timeout, the manager's defaults (torchft/manager.py).
const (
	joinTimeouts   = 2
	quorumTimeouts = 12
	timeouts       = 12
)

// longest bounds the parameters that are times.
const longest policy.Time = 1e15

// Validate reports a parameter out of range.
func (p *Policy) Validate() error {
	var bad errs.Problems
	bad.If(p.MinReplicas < 1, "min_replicas", "is %d: it must be at least 1", p.MinReplicas)
	for _, t := range []struct {
		field string
		value policy.Time
	}{{"join_timeout", p.JoinTimeout}, {"heartbeat_timeout", p.HeartbeatTimeout}, {"quorum_timeout", p.QuorumTimeout}, {"timeout", p.Timeout}} {
		bad.If(t.value < 0 || t.value > longest, t.field, "is %d µs: it must lie between 0 and %g µs", t.value, float64(longest))
	}
	for _, n := range []struct {
		field string
		value int
	}{{"quorum_retries", p.QuorumRetries}, {"max_retries", p.MaxRetries}, {"restarts", p.Restarts}, {"shrink_until", p.ShrinkUntil}} {
		bad.If(n.value < 0, n.field, "is %d: it must not be negative", n.value)
	}
	return bad.Err()
}

// Coordinator returns the machine that follows the protocol.
func (p *Policy) Coordinator(cfg policy.Config) (policy.Coordinator, error) { return New(cfg, *p) }

// Resolved returns the parameters with all their times.
func (p Policy) Resolved(cfg policy.Config) Policy {
	or := func(t *policy.Time, otherwise policy.Time) {
		if *t == 0 {
			*t = min(otherwise, longest)
		}
	}
	or(&p.HeartbeatTimeout, cfg.HeartbeatPeriod*policy.Time(cfg.HeartbeatMissThreshold))
	p.HeartbeatTimeout = max(p.HeartbeatTimeout, 2*cfg.HeartbeatPeriod) // heartbeats are heard at checks, once in a period
	or(&p.JoinTimeout, joinTimeouts*p.HeartbeatTimeout)
	or(&p.QuorumTimeout, quorumTimeouts*p.HeartbeatTimeout)
	or(&p.Timeout, timeouts*p.HeartbeatTimeout)
	return p
}

// The policy's machine decides everything, and calls none of these.

func (*Policy) Deadline(*policy.Round) *policy.Deadline                   { return nil }
func (*Policy) Enough(*policy.Round) (needed int, enough bool)            { return 0, false }
func (*Policy) Late(*policy.Round, policy.Member) (limit int, evict bool) { return 0, false }
func (*Policy) Closed(*policy.Round)                                      {}
