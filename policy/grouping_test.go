package policy

import (
	"reflect"
	"slices"
	"strings"
	"testbed/internal/rapidtest"
	"testing"

	"pgregory.net/rapid"
)

func TestRings(t *testing.T) {
	r := NewRegions(3, map[string][]ID{"us": {2, 5}, "eu": {0, 1, 7}})
	order := []ID{5, 0, 2, 7}
	for round, want := range map[int][]Ring{
		1: {{0, "eu", []ID{0, 7}}, {1, "us", []ID{5, 2}}},
		3: {{Workers: order}},
		4: {{0, "eu", []ID{0, 7}}, {1, "us", []ID{5, 2}}},
	} {
		if got := r.Rings(round, order); !reflect.DeepEqual(got, want) {
			t.Errorf("round %d: %+v, want %+v", round, got, want)
		}
	}
	if got := r.Rings(2, []ID{2}); len(got) != 1 || got[0].Region != "us" {
		t.Errorf("a region without participants has a ring: %+v", got)
	}
	var none *Grouping
	if got := none.Rings(1, order); len(got) != 1 || got[0].Region != "" || !none.Global(1) || none.Len() != 1 || none.Of(5) != 0 {
		t.Errorf("without regions: %+v", got)
	}
}

func TestRanks(t *testing.T) {
	r := NewReplicaGroups([]ID{7, 0, 3, 2}, 2) // groups 0 2 and 3 7
	want := []Ring{{0, "rank 0", []ID{3, 0}}, {1, "rank 1", []ID{7, 2}}}
	if got := r.Rings(4, []ID{7, 3, 2, 0}); !reflect.DeepEqual(got, want) || !r.Global(4) || r.Together(4) || RingKind(got[0].Region) != "rank" || RingKind("eu") != "region" {
		t.Errorf("%+v, want %+v", got, want)
	}
	var none *Grouping
	if got := r.Group(7); !slices.Equal(got, []ID{3, 7}) || none.Group(7) != nil {
		t.Errorf("the group of 7 is %v", got)
	}
}

// TestEverybodyIsInOneRing: whoever takes part is in one ring, which has workers of
// one region alone if the round is a regional one.
func TestEverybodyIsInOneRing(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		of := map[string][]ID{}
		var all []ID
		for id := range ID(rapid.IntRange(1, 12).Draw(t, "workers")) {
			name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "region")
			of[name] = append(of[name], id)
			if rapid.Bool().Draw(t, "takes part") {
				all = append(all, id)
			}
		}
		r := NewRegions(rapid.IntRange(1, 4).Draw(t, "every"), of)
		round := rapid.IntRange(1, 9).Draw(t, "round")
		var seen []ID
		for _, ring := range r.Rings(round, all) {
			for _, id := range ring.Workers {
				seen = append(seen, id)
				if !r.Global(round) && (r.Of(id) != ring.Number || !slices.Contains(of[ring.Region], id)) {
					t.Fatalf("worker %d reduces in the region %s", id, ring.Region)
				}
				if !slices.Equal(r.Ring(round, all, id), ring.Workers) {
					t.Fatalf("worker %d has two rings", id)
				}
			}
		}
		if slices.Sort(seen); !slices.Equal(seen, all) {
			t.Fatalf("in rings are %v of %v", seen, all)
		}
	})
}

func TestValidate(t *testing.T) {
	workers, groups := []ID{0, 1, 2, 3}, []string{"x", "x", "y", "y"}
	for _, c := range []struct {
		spec   RegionsSpec
		groups []string
		want   string // field and a part of the mend
	}{
		{RegionsSpec{Every: 2}, groups, ""},
		{RegionsSpec{Every: 4, Workers: map[string][]ID{"a": {0, 3}, "b": {1, 2}}}, make([]string, 4), ""},
		{RegionsSpec{Every: 2}, make([]string, 4), "regions.workers is missing"},
		{RegionsSpec{Every: 2}, []string{"x", "x", "", "y"}, "regions are the groups of real.links, but worker 2 is in no group"},
		{RegionsSpec{}, groups, "regions.every is 0"},
		{RegionsSpec{Every: -1}, groups, "regions.every is -1"},
		{RegionsSpec{Every: 3}, groups, "regions.every is 3, but target_outer_steps is 8"},
		{RegionsSpec{Every: 2, Workers: map[string][]ID{}}, groups, "regions.workers is empty"},
		{RegionsSpec{Every: 2, Workers: map[string][]ID{"a": {0, 1, 2, 3}, "b": {}}}, groups, "regions.workers.b has no workers"},
		{RegionsSpec{Every: 2, Workers: map[string][]ID{"a": {0, 1}, "b": {2, 3, 4}}}, groups, "regions.workers.b[2]: there is no worker 4"},
		{RegionsSpec{Every: 2, Workers: map[string][]ID{"a": {0, 1, 2}, "b": {2, 3}}}, groups, "regions.workers.b[0]: worker 2 is in the region a"},
		{RegionsSpec{Every: 2, Workers: map[string][]ID{"a": {0, 1}, "b": {3}}}, groups, "regions.workers has no region for worker 2"},
	} {
		err := c.spec.Validate(workers, c.groups, 8, 0)
		if (err == nil) != (c.want == "") || err != nil && !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.spec, err, c.want)
		}
	}
	if r := (&RegionsSpec{Every: 2}).Rule(workers, groups); r.Len() != 2 || r.Of(1) != 0 || r.Of(2) != 1 {
		t.Errorf("the groups of the links make %+v", r)
	}
}
