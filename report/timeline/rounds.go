package timeline

import (
	"fmt"
	"strings"

	"testbed/policy"
	"testbed/record"
	"testbed/report/runs"
	"testbed/report/words"
	"testbed/shaping/fidelity"
)

// Round is a completed round in a report.
type Round struct {
	Round        int              `json:"round"`
	Start        policy.Time      `json:"start_us"`
	Close        policy.Time      `json:"close_us"`
	End          policy.Time      `json:"end_us"`
	Participants string           `json:"-"`
	Left         string           `json:"-"`
	Absent       []string         `json:"left_out"`
	Arrivals     []Arrival        `json:"arrivals"`
	Median       *policy.Time     `json:"median_us"` // of the offsets of the arrivals in time
	Deadline     *policy.Deadline `json:"deadline"`  // nil: there was none
	Why          string           `json:"why"`
	Decisions    []string         `json:"decisions"`
	Apart        string           `json:"apart,omitempty"` // group that reduced separately: a region, or rank
	BytesSent    int64            `json:"-"`
	Verdict      fidelity.Level   `json:"-"`
}

// Participants lists the participants of a round: by region if regions reduce
// separately.
func Participants(r record.Round) string {
	if len(r.Regions) == 0 {
		return words.Workers(r.Participants)
	}
	var parts []string
	for _, region := range r.Regions {
		parts = append(parts, region.Region+": "+words.Workers(region.Participants))
	}
	return strings.Join(parts, "; ")
}

// Collect is the time until the round closed, Reduce the rest.
func (r Round) Collect() policy.Time { return r.Close - r.Start }

// Reduce is the time from the close of the round to its outer step.
func (r Round) Reduce() policy.Time { return r.End - r.Close }

// reduction describes the part after the close of the round.
func (r Round) reduction() string {
	if r.Apart != "" {
		return "all-reduce in each " + r.Apart
	}
	return "all-reduce"
}

// Took is the duration of the round.
func (r Round) Took() policy.Time { return r.End - r.Start }

// Arrival is the time at which the coordinator learned that a worker's inner
// steps are done.
type Arrival struct {
	Node   string      `json:"node"`
	Offset policy.Time `json:"offset_us"` // from the first arrival of the round
	Late   bool        `json:"late"`
}

// Rounds collects the record's facts about each completed round.
func Rounds(run *runs.Run) []Round {
	list := []Round{}
	at := map[int]int{}
	type fetcher struct {
		round int
		node  string
	}
	fetched := map[fetcher]bool{}
	for _, r := range run.Summary.Rounds {
		at[r.Round] = len(list)
		list = append(list, Round{Round: r.Round, Start: r.Start, Close: r.Close, End: r.End, BytesSent: r.BytesSent, Apart: r.Apart(),
			Participants: Participants(r), Left: words.Workers(r.Late), Absent: names(r.Late), Arrivals: []Arrival{}, Decisions: []string{}})
	}
	for _, e := range run.Events {
		k, completed := at[e.Round]
		if !completed {
			continue
		}
		r := &list[k]
		switch e.Type {
		case record.Arrive:
			if e.Offset != nil {
				r.Arrivals = append(r.Arrivals, Arrival{e.Node, *e.Offset, e.Late})
			}
		case record.RoundClose: // a reopened round closes twice; the last close counts
			r.Why = words.Closing(e.Reason)
			if e.Reason != nil && e.Reason.Deadline != nil {
				r.Deadline = e.Reason.Deadline
			}
		case record.FetchDone:
			fetched[fetcher{e.Round, e.Node}] = true
		case record.Sideline, record.Evict, record.Rejoin, record.ReduceAbort:
			r.Decisions = append(r.Decisions, markText(e))
		}
	}
	for k := range list {
		r := &list[k]
		var offsets []policy.Time
		for _, a := range r.Arrivals {
			if a.Late {
				continue
			}
			offsets = append(offsets, a.Offset)
			// The credit of a worker that has arrived is not recorded.
			if r.Deadline != nil && a.Offset > r.Deadline.Offset+r.Deadline.Credit && fetched[fetcher{r.Round, a.Node}] {
				r.Why += fmt.Sprintf(". %s arrived after the deadline, with credit for catching up", a.Node)
			}
		}
		if len(offsets) > 0 {
			median := policy.Median(offsets)
			r.Median = &median
		}
	}
	for _, v := range run.Rounds {
		if k, ok := at[v.Round]; ok {
			list[k].Verdict = v.Verdict
		}
	}
	return list
}

func names(ids []policy.ID) []string {
	list := []string{}
	for _, id := range ids {
		list = append(list, id.Node())
	}
	return list
}

// Worker summarises one worker's activities in a run. Times are scenario time.
type Worker struct {
	Node  string `json:"node"`
	Steps int    `json:"steps"`
	// MeanStep is the mean duration of its completed inner steps.
	MeanStep  policy.Time          `json:"mean_step_us"`
	Time      map[Kind]policy.Time `json:"time_us"`
	Rounds    int                  `json:"rounds"` // in which it took part
	Sidelined int                  `json:"sidelined"`
	Evicted   string               `json:"evicted,omitempty"`
}

// Workers summarises each worker's activities, in order of t.Nodes.
func Workers(run *runs.Run, t Timeline) []Worker {
	list := make([]Worker, len(t.Nodes))
	at := map[string]int{}
	for k, name := range t.Nodes {
		at[name], list[k] = k, Worker{Node: name, Time: map[Kind]policy.Time{}}
	}
	for _, s := range t.Doing {
		w := &list[at[s.Node]]
		w.Time[s.Kind] += s.End - s.Start
		if s.Kind == InnerStep {
			w.Steps++
		}
	}
	each := func(id policy.ID, do func(*Worker)) {
		if k, ok := at[id.Node()]; ok {
			do(&list[k])
		}
	}
	for _, r := range run.Summary.Rounds {
		for _, id := range r.Participants {
			each(id, func(w *Worker) { w.Rounds++ })
		}
	}
	for _, m := range run.Sidelined {
		each(m.ID, func(w *Worker) { w.Sidelined++ })
	}
	for _, m := range run.Evicted {
		each(m.ID, func(w *Worker) { w.Evicted = string(m.Reason) })
	}
	for k := range list {
		if w := &list[k]; w.Steps > 0 {
			w.MeanStep = w.Time[InnerStep] / policy.Time(w.Steps)
		}
	}
	return list
}
