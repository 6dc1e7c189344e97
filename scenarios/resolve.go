package scenarios

import (
	"time"

	"testbed/scenarios/resolved"
)

// Resolve takes the scenario apart, for a run under a policy, which is named as in
// Policies.Named; without a name none is chosen.
func (s *Scenario) Resolve(policyName string) (*resolved.Scenario, error) {
	plan, err := s.Plan()
	if err != nil {
		return nil, err
	}
	r := &resolved.Scenario{
		Name: s.Name, Seed: s.Seed, Scale: s.Scale(),
		InnerSteps: s.InnerSteps, TargetOuterSteps: s.TargetOuterSteps, Horizon: s.Horizon,
		PolicyName: policyName, StalenessWeight: s.Policy.StalenessWeight,
		MinSlack: s.ScenarioTime(time.Duration(s.Real.MinSlack)), StallAfter: s.ScenarioTime(s.StallTimeout()),
		Injects: s.Injects, Faults: s.Faults(),
		Churn: resolved.Churn{BaseLatency: s.BaseLatency, BandwidthBpus: s.BandwidthBpus, StateBytes: s.StateBytes},
		Plan:  plan, LinkGroups: s.Groups(s.IDs()), HeedUnreachable: s.Real.HeedUnreachable,
		Reduction: s.Real.AllReduce, Grouping: s.Grouping(),
		Work: s.Work, Measured: s.Real.Measured(s.Train),
		Train: s.Train, Parameters: s.Real.Parameters, Exchange: s.Exchange(),
		CheckpointEvery: s.Real.CheckpointEvery, Upload: s.Real.Upload,
	}
	for _, w := range s.Workers {
		r.Workers = append(r.Workers, resolved.Worker{ID: w.ID, JoinAt: w.JoinAt, Mean: w.InnerStepMean, Jitter: w.InnerStepJitter, InitialStep: w.InitialStep})
	}
	if r.Policy = s.configuration(); policyName != "" {
		r.Policy, err = s.Machine(policyName)
	}
	return r, err
}
