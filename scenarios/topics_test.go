package scenarios

import (
	"slices"
	"testing"
)

// TestTopics: each scenario of the library has one topic, and its description is
// a sentence.
func TestTopics(t *testing.T) {
	all, err := Library()
	if err != nil {
		t.Fatal(err)
	}
	var names, grouped []string
	for _, s := range all {
		names = append(names, s.Name)
		if d := s.Description; d == "" || d[len(d)-1] != '.' && d[len(d)-1] != '?' {
			t.Errorf("%s: the description %q is no sentence", s.Name, d)
		}
	}
	for _, topic := range Topics() {
		grouped = append(grouped, topic.Scenarios...)
	}
	slices.Sort(names)
	slices.Sort(grouped)
	if !slices.Equal(names, grouped) {
		t.Errorf("the topics have %v,\nthe library %v", grouped, names)
	}
}
