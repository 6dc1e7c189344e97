package scenarios

import (
	"time"

	"testbed/record"
	"testbed/scenarios/resolved"
)

// Resolve converts the scenario to plain values, for a run under a policy,
// which is named as in Policies.Named. Without a name no policy is chosen.
func (s *Scenario) Resolve(policyName string) (*resolved.Scenario, error) {
	plan, err := s.Plan()
	if err != nil {
		return nil, err
	}
	r, err := s.ResolveWithoutLinks(policyName)
	if err == nil {
		r.Plan, r.LinkGroups = plan, s.Groups(s.IDs())
		r.Patience = s.patience(plan)
		if s.Real.StallTimeout == 0 {
			r.StallAfter = max(r.StallAfter, s.ScenarioTime(r.Patience))
		}
	}
	return r, err
}

// ResolveWithoutLinks is Resolve for a run that needs no plan, on churn's
// network or from a record: planning the links of many workers takes time.
func (s *Scenario) ResolveWithoutLinks(policyName string) (r *resolved.Scenario, err error) {
	r = s.values()
	if r.Policy, r.PolicyName = s.configuration(), policyName; policyName != "" {
		r.Policy, err = s.Machine(policyName)
	}
	return r, err
}

// Setup is the information that summaries need about a run of the scenario.
func (s *Scenario) Setup() record.Setup { return s.values().Setup() }

// values are the scenario's plain values without the links and the policy.
func (s *Scenario) values() *resolved.Scenario {
	r := &resolved.Scenario{
		Name: s.Name, Seed: s.Seed, Scale: s.Scale(),
		InnerSteps: s.InnerSteps, TargetOuterSteps: s.TargetOuterSteps, Horizon: s.Horizon,
		StalenessWeight: s.Policy.StalenessWeight,
		MinSlack:        s.ScenarioTime(time.Duration(s.Real.MinSlack)), StallAfter: s.ScenarioTime(s.StallTimeout()),
		Injects: s.Injects, Faults: s.Faults(),
		Churn:           resolved.Churn{BaseLatency: s.BaseLatency, BandwidthBpus: s.BandwidthBpus, StateBytes: s.StateBytes},
		HeedUnreachable: s.Real.HeedUnreachable,
		Reduction:       s.Real.AllReduce, Grouping: s.Grouping(),
		Work: s.Work, Measured: s.Real.Measured(s.Train),
		Train: s.Train, Parameters: s.Real.Parameters, Exchange: s.Exchange(),
		CheckpointEvery: s.Real.CheckpointEvery, Upload: s.Real.Upload,
	}
	for _, w := range s.Workers {
		r.Workers = append(r.Workers, resolved.Worker{ID: w.ID, JoinAt: w.JoinAt, Mean: w.InnerStepMean, Jitter: w.InnerStepJitter, InitialStep: w.InitialStep})
	}
	return r
}
