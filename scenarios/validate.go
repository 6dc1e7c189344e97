package scenarios

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"testbed/allreduce"
	"testbed/internal/errs"
	"testbed/policy"
	"testbed/scenarios/faults"
)

// Limits keep every sum and product of a run inside 64 bits and every list in
// memory.
const (
	maxTime        = policy.Time(1e12) // µs, eleven days
	maxCount       = 1_000_000
	maxDilation    = 1000.0
	maxWorkers     = 100_000
	maxFactor      = 1e6
	maxLighthouses = 2 // two can split a run; more would show nothing else
	maxParameters  = 1 << 36
	// MaxRealParameters is the limit of a real run: all its workers hold the
	// vector in the memory of one machine.
	MaxRealParameters = 1 << 30
)

// MaxBandwidthBpus is the largest bandwidth_bpus.
const MaxBandwidthBpus = 1e9

// tcpName matches the names of congestion controls in the kernel
// (TCP_CA_NAME_MAX).
var tcpName = regexp.MustCompile(`^[a-z0-9_]{1,15}$`)

// validate notes wrong values. It skips checks that depend on fields with known
// problems, because those may be the cause.
func (p *parser) validate(s *Scenario) error {
	p.validateRun(s)
	p.workers = make(map[policy.ID]int, len(s.Workers))
	for i, w := range s.Workers {
		p.validateWorker(s, i, w)
	}
	if p.sound("workers", "horizon") {
		if first := s.FirstJoin(); s.Horizon <= first {
			p.note(p.fail("horizon", fmt.Sprintf("is %d, but the first worker joins at %d: the horizon must lie after it", s.Horizon, first)))
		}
	}
	for i, in := range s.Injects {
		if path := fmt.Sprintf("injects[%d]", i); p.sound(path) {
			p.note(p.validateInject(s, path, in))
		}
	}
	p.validateHorizon(s)
	if p.sound("workers", "injects") {
		p.note(p.validatePauses(s))
		p.note(p.validateRestarts(s))
	}
	p.validateWork(s)
	p.validateTrain(s)
	p.validateSections(s)
	if !p.linksValid {
		p.validateLinks(s)
	}
	if p.sound("workers", "real.links", "train", "real.parameters", "real.upload", "target_outer_steps") {
		p.note(p.validateRegions(s))
	}
	return p.problem()
}

// validateHorizon refuses joins and injects after the horizon.
func (p *parser) validateHorizon(s *Scenario) {
	if !p.sound("horizon") {
		return
	}
	beyond := func(field string, at policy.Time) {
		if at > s.Horizon {
			p.note(p.fail(field, fmt.Sprintf("is %d, but the horizon is %d, and a run ends at its horizon: give an earlier time, raise the horizon, or remove the entry", at, s.Horizon)))
		}
	}
	for i, w := range s.Workers {
		beyond(fmt.Sprintf("workers[%d].join_at", i), w.JoinAt)
	}
	for i, in := range s.Injects {
		beyond(fmt.Sprintf("injects[%d].at", i), in.At)
	}
	for i, in := range s.Real.Injects {
		beyond(fmt.Sprintf("real.injects[%d].at", i), in.At)
	}
}

// validateRestarts checks every Restart against the one before it: a worker has
// one process at a time.
func (p *parser) validateRestarts(s *Scenario) error {
	back := map[policy.ID]policy.Time{}
	for _, i := range faults.InTime(s.Injects) {
		in := s.Injects[i]
		if in.Op != faults.Restart {
			continue
		}
		if at, restarts := back[*in.ID]; restarts && in.At <= at {
			return p.fail(fmt.Sprintf("injects[%d].at", i), fmt.Sprintf("is %d, but the new process of worker %d begins at %d: restart the worker after that time, or remove one Restart", in.At, *in.ID, at))
		}
		back[*in.ID] = in.At + in.After
	}
	return nil
}

// validatePauses checks every Pause against the injects before it. A stalled
// worker can only be resumed, and only a stalled worker can. A new process of
// it does not stall.
func (p *parser) validatePauses(s *Scenario) error {
	since := map[policy.ID]policy.Time{}
	for _, i := range faults.InTime(s.Injects) {
		in := s.Injects[i]
		if in.Op == faults.Restart {
			delete(since, *in.ID)
		}
		if in.Op != faults.Pause && in.Op != faults.Resume {
			continue
		}
		at, paused := since[*in.ID]
		switch field := fmt.Sprintf("injects[%d].at", i); {
		case in.Op == faults.Pause && paused:
			return p.fail(field, fmt.Sprintf("is %d, but worker %d has been paused since %d: resume the worker before, or remove one Pause", in.At, *in.ID, at))
		case in.Op == faults.Resume && !paused:
			return p.fail(field, fmt.Sprintf("is %d, but worker %d is not paused then: pause the worker before, or remove the Resume", in.At, *in.ID))
		case in.Op == faults.Pause:
			since[*in.ID] = in.At
		default:
			delete(since, *in.ID)
		}
	}
	return nil
}

func (p *parser) validateRun(s *Scenario) {
	for _, c := range []struct {
		field      string
		value      int64
		least, max int64
	}{
		{"inner_steps", int64(s.InnerSteps), 1, maxCount},
		{"target_outer_steps", int64(s.TargetOuterSteps), 1, maxCount},
		{"horizon", int64(s.Horizon), 1, int64(maxTime)},
		{"heartbeat_period", int64(s.HeartbeatPeriod), 1, int64(maxTime)},
		{"heartbeat_miss_threshold", int64(s.HeartbeatMissThreshold), 1, maxCount},
		{"base_latency", int64(s.BaseLatency), 0, int64(maxTime)},
		{"bandwidth_bpus", s.BandwidthBpus, 1, MaxBandwidthBpus},
		{"state_bytes", s.StateBytes, 0, 1e15},
	} {
		p.note(p.between(c.field, c.value, c.least, c.max))
	}
	if strings.Contains(s.Name, "/") {
		p.note(p.fail("name", fmt.Sprintf("%q has a slash, but files are named after the scenario; write a name without slashes", s.Name)))
	}
	switch n := len(s.Workers); {
	case n == 0:
		p.note(p.fail("workers", "is empty: a run needs at least one worker"))
	case n > maxWorkers:
		p.note(p.fail("workers", fmt.Sprintf("has %d entries: at most %d are supported", n, maxWorkers)))
	}
}

func (p *parser) between(field string, value, least, most int64) error {
	if value < 0 && least >= 0 {
		return p.fail(field, fmt.Sprintf("is %d: it must not be negative", value))
	}
	if value < least || value > most {
		return p.fail(field, fmt.Sprintf("is %d: it must lie between %d and %d", value, least, most))
	}
	return nil
}

func (p *parser) validateWorker(s *Scenario, i int, w Worker) {
	at := func(field string) string { return fmt.Sprintf("workers[%d].%s", i, field) }
	if w.IDs != "" {
		p.note(p.fail(at("ids"), "is allowed only in scenario files: give the id of each worker"))
	}
	steps := int64(s.TargetOuterSteps)
	if steps < 1 { // which is an error of its own
		steps = maxCount
	}
	for _, c := range []struct {
		field            string
		value, low, high int64
	}{
		{"id", int64(w.ID), 0, maxCount},
		{"join_at", int64(w.JoinAt), 0, int64(maxTime)},
		{"inner_step_mean", int64(w.InnerStepMean), 1, int64(maxTime)},
		{"inner_step_jitter", int64(w.InnerStepJitter), 0, int64(maxTime)},
		{"lighthouse", int64(w.Lighthouse), 0, maxLighthouses - 1},
		{"initial_step", int64(w.InitialStep), 0, steps - 1},
	} {
		if c.value < c.low || c.value > c.high { // calling at costs time with many workers
			p.note(p.between(at(c.field), c.value, c.low, c.high))
		}
	}
	if w.InnerStepJitter > w.InnerStepMean && p.sound(at("inner_step_mean")) {
		p.note(p.fail(at("inner_step_jitter"), fmt.Sprintf("is %d, more than the mean of %d: a step cannot take a negative time", w.InnerStepJitter, w.InnerStepMean)))
	}
	if len(p.problems) > 0 && !p.sound(at("id"), at("ids")) {
		return // it has none
	}
	if j, dup := p.workers[w.ID]; dup {
		p.note(p.fail(at("id"), fmt.Sprintf("worker %d is already workers[%d]; give each worker an id of its own", w.ID, j)))
		return
	}
	p.workers[w.ID] = i
}

func (p *parser) validateInject(s *Scenario, path string, in faults.Inject) error {
	if !slices.Contains(faults.Ops, in.Op) {
		return p.fail(path+".op", fmt.Sprintf("%q is not an inject; choose one of %s", in.Op, errs.List(faults.Ops)))
	}
	if err := p.between(path+".at", int64(in.At), 0, int64(maxTime)); err != nil {
		return err
	}
	group := in.Op == faults.Partition || in.Op == faults.ClearPartition
	alone := in.Op == faults.CoordinatorCrash
	for _, of := range []struct {
		op    faults.Op
		field string
		value policy.Time
	}{{faults.CoordinatorCrash, "down", in.Down}, {faults.Restart, "after", in.After}, {faults.Preempt, "notice", in.Notice}} {
		if err := p.between(path+"."+of.field, int64(of.value), 0, int64(maxTime)); err != nil {
			return err
		}
		if in.Op != of.op && of.value != 0 {
			return p.fail(path+"."+of.field, fmt.Sprintf("%s takes no %s; remove it", in.Op, of.field))
		}
	}
	for _, of := range []struct {
		op    faults.Op
		field string
		given bool
	}{{faults.FailReduce, "alone", in.Alone}, {faults.Pause, "heartbeats", in.Heartbeats}, {faults.CoordinatorCrash, "forgets", in.Forgets}, {faults.Restart, "lighthouse", in.Lighthouse != nil}} {
		if of.given && in.Op != of.op {
			return p.fail(path+"."+of.field, fmt.Sprintf("%s takes no %s; remove it", in.Op, of.field))
		}
	}
	switch {
	case alone && in.ID != nil:
		return p.fail(path+".id", fmt.Sprintf("%s takes no worker; remove it", in.Op))
	case alone && in.IDs != nil:
		return p.fail(path+".ids", fmt.Sprintf("%s takes no worker; remove it", in.Op))
	case group && in.ID != nil:
		return p.fail(path+".id", fmt.Sprintf("%s takes a list: write ids: [%d]", in.Op, *in.ID))
	case !group && in.IDs != nil:
		return p.fail(path+".ids", fmt.Sprintf("%s takes one worker; write id instead of ids", in.Op))
	case !group && !alone && in.ID == nil:
		return p.fail(path+".id", fmt.Sprintf("is missing: %s needs the id of a worker", in.Op))
	case in.Op == faults.Partition && in.IDs == nil:
		return p.fail(path+".ids", "is missing: Partition needs the ids of the workers to cut off")
	case group && in.IDs != nil && len(in.IDs) == 0:
		return p.fail(path+".ids", fmt.Sprintf("is empty: name the workers to which %s applies", in.Op))
	case in.Lighthouse != nil && (*in.Lighthouse < 0 || *in.Lighthouse >= maxLighthouses):
		return p.fail(path+".lighthouse", fmt.Sprintf("is %d: it must lie between 0 and %d", *in.Lighthouse, maxLighthouses-1))
	case in.Op == faults.Slow && in.Factor == nil:
		return p.fail(path+".factor", "is missing: Slow needs a factor such as 10")
	case in.Op != faults.Slow && in.Factor != nil:
		return p.fail(path+".factor", fmt.Sprintf("%s takes no factor; remove it", in.Op))
	case in.Factor != nil && !(*in.Factor > 0 && *in.Factor <= maxFactor):
		return p.fail(path+".factor", fmt.Sprintf("is %v: it must lie in (0, %d]", *in.Factor, int(maxFactor)))
	}
	if in.ID != nil {
		if err := p.worker(s, path+".id", *in.ID); err != nil {
			return err
		}
		k, known := p.workers[*in.ID]
		if !known {
			return nil // the workers are not known
		}
		join := s.Workers[k].JoinAt
		if in.Op != faults.Slow && in.Op != faults.Restore && in.Op != faults.Resume && in.At < join {
			return p.fail(path+".at", fmt.Sprintf("is %d, but worker %d joins at %d: a %s before that has no effect", in.At, *in.ID, join, in.Op))
		}
	}
	named := make(map[policy.ID]bool, len(in.IDs))
	for i, id := range in.IDs {
		field := fmt.Sprintf("%s.ids[%d]", path, i)
		if err := p.worker(s, field, id); err != nil {
			return err
		}
		if named[id] {
			return p.fail(field, fmt.Sprintf("worker %d is named twice; keep one", id))
		}
		named[id] = true
	}
	return nil
}

func (p *parser) worker(s *Scenario, field string, id policy.ID) error {
	if _, ok := p.workers[id]; ok || !p.sound("workers") {
		return nil
	}
	ids := make([]string, 0, 8)
	for _, w := range s.Workers[:min(len(s.Workers), 8)] {
		ids = append(ids, fmt.Sprint(w.ID))
	}
	if len(s.Workers) > 8 {
		ids = append(ids, "…")
	}
	return p.fail(field, fmt.Sprintf("there is no worker %d; the workers are %s", id, strings.Join(ids, ", ")))
}

func (p *parser) validateSections(s *Scenario) {
	p.validatePolicies(s.Policy)
	if s.Real.StallTimeout < 0 {
		p.note(p.fail("real.stall_timeout", fmt.Sprintf("is %v: it must not be negative", s.Real.StallTimeout)))
	}
	if r := s.Real; !(r.TimeScale > 0 && r.TimeScale <= 1e6) || math.IsNaN(r.TimeScale) {
		p.note(p.fail("real.time_scale", fmt.Sprintf("is %v: it must lie in (0, 1000000]", r.TimeScale)))
	}
	if x := s.Real.Dilation; !(x >= 1 && x <= maxDilation) {
		p.note(p.fail("real.dilation", fmt.Sprintf("is %v: it must lie in [1, %v]: a run takes longer by this factor on the machine's clock", x, maxDilation)))
	}
	if t := s.Real.TCP; t != "" && !tcpName.MatchString(t) {
		p.note(p.fail("real.tcp", fmt.Sprintf("is %q: name a congestion control of the kernel, such as reno, cubic or bbr", t)))
	}
	p.note(p.between("real.checkpoint_every", int64(s.Real.CheckpointEvery), 0, maxCount))
	p.note(p.between("real.upload.every", int64(s.Real.Upload.Every), 0, maxCount))
	if u := s.Real.Upload; u.Yields && u.Every == 0 {
		p.note(p.fail("real.upload.yields", "has no effect without uploads: give real.upload.every, or remove real.upload.yields"))
	}
	if !s.Unasked() && s.Real.Parameters != notGiven {
		p.note(p.between("real.parameters", int64(s.Real.Parameters), 1, maxParameters))
	}
	if workers := len(s.Workers); s.Real.AllReduce.Rates == nil || p.sound("workers") {
		p.noteFields("real.all_reduce.", s.Real.AllReduce.Validate(workers))
	}
}

// maxPlanned is the largest network whose links are checked by planning them. A
// plan has a path for every pair of nodes, too many for a file that only the
// simulator will play. `testbed plan` and `testbed run` plan, and so check, a
// network of any size.
const maxPlanned = 500

func (p *parser) validateLinks(s *Scenario) {
	if !p.sound("workers", "base_latency", "real.time_scale", "real.dilation") {
		return
	}
	delay := s.RealDuration(s.BaseLatency)
	if s.Real.Links.Default.OneWayDelay == nil && delay > time.Minute {
		p.note(p.fail("real.time_scale", fmt.Sprintf("makes the base_latency of %d µs last %v on the real network, above the limit of 1m0s: lower real.time_scale or give real.links.default.one_way_delay", s.BaseLatency, delay)))
		return
	}
	p.validateLinkInjects(s)
	if len(s.Workers) > maxPlanned || !p.sound("real.links", "real.upload") {
		return
	}
	plan, err := s.Plan()
	if err != nil {
		if len(errs.Fields(err)) == 0 {
			p.note(p.fail("real.links", err.Error()))
		}
		p.noteFields("", err)
		return
	}
	if s.Real.AllReduce.Algorithm == allreduce.Hierarchical.String() {
		if k := slices.Index(s.Groups(s.IDs()), -1); k >= 0 {
			p.note(p.fail("real.all_reduce.algorithm", fmt.Sprintf("is hierarchical, but %s is in no group: put every worker into one of real.links.groups", s.Workers[k].ID.Node())))
		}
	}
	if _, err := plan.Dilated(s.Slowdown()); err != nil {
		p.note(p.fail("real.dilation", fmt.Sprintf("is %v: %v; lower the dilation", s.Real.Dilation, err)))
	}
	// An inject may bring the rate or the jitter that another field needs.
	if len(s.Real.Injects) == 0 {
		if err := s.Real.Links.Idle(plan); err != nil {
			p.noteFields("", err)
		}
	}
	if p.sound("real.injects") {
		p.note(p.validateLinkFaults(s, plan))
	}
}
