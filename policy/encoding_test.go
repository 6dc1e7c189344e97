package policy_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"testbed/policy"
)

// TestConfigTravels: a configuration is the same after it was encoded and decoded,
// under every policy.
func TestConfigTravels(t *testing.T) {
	for _, name := range policy.Names() {
		p, _ := policy.Named(name)
		for _, grouping := range []*policy.Grouping{nil, policy.NewRegions(2, map[string][]policy.ID{"eu": {0, 3}, "us": {1}}), policy.NewReplicaGroups([]policy.ID{4, 5, 6, 7}, 2)} {
			c := straggler(nil)
			c.Policy, c.Grouping, c.Asks = p, grouping, map[policy.ID][]int{1: {0, 1}}
			text, err := json.Marshal(c)
			if err != nil {
				t.Fatal(err)
			}
			var got policy.Config
			if err := json.Unmarshal(text, &got); err != nil || !reflect.DeepEqual(got, c) {
				t.Errorf("%s: %+v, %v, want %+v", name, got, err, c)
			}
		}
	}
	type unknown struct{ policy.Policy }
	if _, err := json.Marshal(policy.Config{Policy: unknown{}}); err == nil {
		t.Error("a policy that is not registered is encoded")
	}
}
