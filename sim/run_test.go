package sim_test

import (
	"testbed/record"
	"testbed/scenarios"
	"testbed/sim"
)

// onChurn simulates a scenario under a policy on churn's network.
func onChurn(s *scenarios.Scenario, policyName string, told func(record.Event)) (record.Summary, error) {
	r, err := s.ResolveWithoutLinks(policyName)
	if err != nil {
		return record.Summary{}, err
	}
	return sim.Run(r, told)
}

// onLinks simulates it on the links of its plan.
func onLinks(s *scenarios.Scenario, policyName string, costs sim.Costs, told func(record.Event)) (record.Summary, error) {
	r, err := s.Resolve(policyName)
	if err != nil {
		return record.Summary{}, err
	}
	return sim.RunLinks(r, costs, told)
}

// newRecording reads the events of a run, for a replay under a policy.
func newRecording(s *scenarios.Scenario, policyName string, events []record.Event) (*sim.Recording, error) {
	r, err := s.ResolveWithoutLinks(policyName)
	if err != nil {
		return nil, err
	}
	return sim.NewRecording(r, events)
}
