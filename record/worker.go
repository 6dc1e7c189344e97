package record

import (
	"encoding/json"

	"testbed/policy"
)

// Entries of a summary call a worker id. In JSON they also have its number as
// worker, the name used in the results of all commands.

func (m Membership) MarshalJSON() ([]byte, error) {
	type entry Membership
	return withWorker(entry(m), m.ID)
}

func (r Return) MarshalJSON() ([]byte, error) {
	type entry Return
	return withWorker(entry(r), r.ID)
}

func (u Undoing) MarshalJSON() ([]byte, error) {
	type entry Undoing
	return withWorker(entry(u), u.ID)
}

func (u Upload) MarshalJSON() ([]byte, error) {
	type entry Upload
	return withWorker(entry(u), u.ID)
}

func (d Detection) MarshalJSON() ([]byte, error) {
	type entry Detection
	return withWorker(entry(d), d.ID)
}

func (g PseudoGradient) MarshalJSON() ([]byte, error) {
	type entry PseudoGradient
	return withWorker(entry(g), g.ID)
}

// withWorker writes an entry, with the number of its worker at the end.
func withWorker(entry any, id policy.ID) ([]byte, error) {
	text, err := json.Marshal(entry)
	if err != nil {
		return nil, err
	}
	worker, err := json.Marshal(id)
	if err != nil {
		return nil, err
	}
	text = append(text[:len(text)-1], `,"worker":`...)
	return append(append(text, worker...), '}'), nil
}
