// Package testscenario has helpers for tests with scenarios in several rooms.
package testscenario

import (
	"testing"

	"testbed/scenarios"
	"testbed/scenarios/resolved"
)

// Resolve resolves a scenario for a run under a policy; without a name no
// policy is chosen. It ends the test if that fails.
func Resolve(t testing.TB, s *scenarios.Scenario, policyName string) *resolved.Scenario {
	t.Helper()
	r, err := s.Resolve(policyName)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
