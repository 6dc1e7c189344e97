// Package testscenario has what tests of several rooms do with scenarios.
package testscenario

import (
	"testing"

	"testbed/scenarios"
	"testbed/scenarios/resolved"
)

// Resolve takes a scenario apart for a run under a policy; without a name none is
// chosen. It ends the test if that fails.
func Resolve(t testing.TB, s *scenarios.Scenario, policyName string) *resolved.Scenario {
	t.Helper()
	r, err := s.Resolve(policyName)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
