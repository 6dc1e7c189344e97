package program

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"

	"testbed/policy"
)

// base has the fields of every answer.
type base struct {
	N     *int    `json:"n"`
	Error *string `json:"error"`
}

func (b *base) common() *base { return b }

// answer is an answer of a program to any question.
type answer interface{ common() *base }

// furthest is the largest distance of a deadline, so that sums of times stay
// inside 64 bits.
const furthest policy.Time = 1e15

// refusal is an answer that explains why there is none.
type refusal struct{ text string }

func (r *refusal) Error() string { return r.text }

// The questions. The code writes them without a JSON encoder, because a
// simulation asks thousands in a second.

func (q *process) greet() (*hello, error) {
	q.begin("hello")
	q.field("version", version)
	h := &hello{}
	if err := q.exchange(h, firstLimit); err != nil {
		return nil, err
	}
	if err := h.check(); err != nil {
		return nil, q.problem(err, "")
	}
	return h, nil
}

// reset begins a run. After a refusal the process can still be used.
func (q *process) reset(given map[string]Value, seed uint64, minSlack policy.Time) error {
	values, err := q.hello.values(given)
	if err != nil {
		return q.named(err)
	}
	q.shown = q.shown[:0]
	q.begin("reset")
	q.out = append(q.out, `,"seed":`...)
	q.out = strconv.AppendUint(q.out, seed, 10)
	q.field("min_slack_us", int64(minSlack))
	q.out = append(q.out, `,"parameters":{`...)
	for i, p := range q.hello.Parameters {
		if i > 0 {
			q.out = append(q.out, ',')
		}
		q.out = append(strconv.AppendQuote(q.out, p.Name), ':')
		q.out = appendValue(q.out, values[i])
	}
	q.out = append(q.out, '}')
	return q.exchange(&base{}, q.hello.limit())
}

func (q *process) deadline(r *policy.Round) (*policy.Deadline, error) {
	q.begin(asksDeadline)
	q.round(r)
	var a struct {
		base
		Deadline *struct {
			At      *policy.Time       `json:"at_us"`
			Numbers map[string]float64 `json:"numbers"`
		} `json:"deadline"`
	}
	if err := q.exchange(&a, q.hello.limit()); err != nil || a.Deadline == nil {
		return nil, err
	}
	switch at := a.Deadline.At; {
	case at == nil:
		return nil, q.problem(errors.New(`answered with a deadline without the field "at_us"`), keep)
	case *at < r.Now:
		return nil, q.problem(fmt.Errorf("answered with a deadline at %d µs in round %d, but the time was already %d µs", *at, r.Number, r.Now), "make the program answer with the present time or a later one")
	case *at > r.Now+furthest:
		return nil, q.problem(fmt.Errorf("answered with a deadline at %d µs in round %d, but a deadline may be at most %d µs ahead", *at, r.Number, furthest), `to set no deadline, leave out the field "deadline"`)
	}
	return &policy.Deadline{At: *a.Deadline.At, Numbers: a.Deadline.Numbers}, nil
}

func (q *process) enough(r *policy.Round) (needed int, enough bool, err error) {
	q.begin(asksEnough)
	q.round(r)
	var a struct {
		base
		Enough *bool `json:"enough"`
		Needed int   `json:"needed"`
	}
	if err := q.exchange(&a, q.hello.limit()); err != nil {
		return 0, false, err
	}
	if a.Enough == nil {
		return 0, false, q.lacks("enough")
	}
	return a.Needed, *a.Enough, nil
}

func (q *process) late(r *policy.Round, w policy.Member) (limit int, evict bool, err error) {
	q.begin(asksLate)
	q.round(r)
	q.out = append(q.out, `,"member":`...)
	q.out = appendMember(q.out, known(w))
	var a struct {
		base
		Evict *bool `json:"evict"`
		Limit int   `json:"limit"`
	}
	if err := q.exchange(&a, q.hello.limit()); err != nil {
		return 0, false, err
	}
	if a.Evict == nil {
		return 0, false, q.lacks("evict")
	}
	return a.Limit, *a.Evict, nil
}

func (q *process) closed(r *policy.Round) error {
	q.begin(asksClosed)
	q.round(r)
	return q.exchange(&base{}, q.hello.limit())
}

func (q *process) finishes() (bool, error) {
	q.begin(asksFinishes)
	var a struct {
		base
		Finishes *bool `json:"finishes_steps"`
	}
	if err := q.exchange(&a, q.hello.limit()); err != nil {
		return false, err
	}
	if a.Finishes == nil {
		return false, q.lacks("finishes_steps")
	}
	return *a.Finishes, nil
}

// begin writes the beginning of the next question.
func (q *process) begin(kind string) {
	q.n++
	q.asked = kind
	q.out = append(q.out[:0], `{"n":`...)
	q.out = strconv.AppendInt(q.out, int64(q.n), 10)
	q.out = append(q.out, `,"ask":"`...)
	q.out = append(q.out, kind...)
	q.out = append(q.out, '"')
}

func (q *process) field(name string, v int64) { q.out = appendField(q.out, name, v) }

// appendField writes a field that is not the first one of its object.
func appendField(out []byte, name string, v int64) []byte {
	out = append(out, `,"`...)
	out = append(out, name...)
	out = append(out, `":`...)
	return strconv.AppendInt(out, v, 10)
}

// appendValue writes the value of a parameter. A float has a point or an exponent, so
// that a reader can tell it from an int.
func appendValue(out []byte, v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // an int64, a finite float64, a bool or a string
	}
	out = append(out, text...)
	if _, is := v.(float64); is && !bytes.ContainsAny(text, ".e") {
		out = append(out, ".0"...)
	}
	return out
}

// round writes the running round, and the changes of its members.
func (q *process) round(r *policy.Round) {
	q.out = append(q.out, `,"round":{"number":`...)
	q.out = strconv.AppendInt(q.out, int64(r.Number), 10)
	q.field("now_us", int64(r.Now))
	q.field("start_us", int64(r.Start))
	q.field("members", int64(r.Members))
	q.field("arrived", int64(r.Arrived))
	if r.Arrived > 0 {
		q.field("first_us", int64(r.First))
	}
	if d := r.Deadline; d != nil {
		q.out = append(q.out, `,"deadline":{"at_us":`...)
		q.out = strconv.AppendInt(q.out, int64(d.At), 10)
		q.field("offset_us", int64(d.Offset))
		q.out = append(q.out, `,"numbers":{`...)
		for i, name := range slices.Sorted(maps.Keys(d.Numbers)) {
			if i > 0 {
				q.out = append(q.out, ',')
			}
			q.out = append(appendValue(q.out, name), ':')
			q.out = appendValue(q.out, d.Numbers[name])
		}
		q.out = append(q.out, "}}"...)
	}
	q.out = append(q.out, `,"overdue":`...)
	q.out = append(strconv.AppendBool(q.out, r.Overdue), '}')
	q.members(r)
}

// members writes the members that are new, changed or gone since the last
// question. Both lists are in order of the IDs.
func (q *process) members(r *policy.Round) {
	was, is := q.shown, q.scratch[:0]
	open := false
	q.gone = q.gone[:0]
	for w := range r.All {
		w = known(w)
		for len(was) > 0 && was[0].ID < w.ID {
			q.gone = append(q.gone, was[0].ID)
			was = was[1:]
		}
		same := false
		if len(was) > 0 && was[0].ID == w.ID {
			same = was[0] == w
			was = was[1:]
		}
		if is = append(is, w); same {
			continue
		}
		if open {
			q.out = append(q.out, ',')
		} else {
			q.out = append(q.out, `,"members":[`...)
			open = true
		}
		q.out = appendMember(q.out, w)
	}
	if open {
		q.out = append(q.out, ']')
	}
	for _, w := range was {
		q.gone = append(q.gone, w.ID)
	}
	for i, id := range q.gone {
		if i == 0 {
			q.out = append(q.out, `,"gone":[`...)
		} else {
			q.out = append(q.out, ',')
		}
		q.out = strconv.AppendInt(q.out, int64(id), 10)
	}
	if len(q.gone) > 0 {
		q.out = append(q.out, ']')
	}
	q.shown, q.scratch = is, q.shown
}

// known returns a member without its meaningless fields.
func known(w policy.Member) policy.Member {
	if !w.Arrived {
		w.At = 0
	}
	if !w.Begun {
		w.Began = 0
	}
	return w
}

func appendMember(out []byte, w policy.Member) []byte {
	out = append(out, `{"id":`...)
	out = strconv.AppendInt(out, int64(w.ID), 10)
	if w.Arrived {
		out = appendField(out, "arrived_us", int64(w.At))
	}
	if w.Begun {
		out = appendField(out, "began_us", int64(w.Began))
	}
	if w.Lag != 0 {
		out = appendField(out, "lag_us", int64(w.Lag))
	}
	if w.Misses != 0 {
		out = appendField(out, "misses", int64(w.Misses))
	}
	return append(out, '}')
}

// keep is the fix for a program that does not keep to the protocol.
const keep = "make it follow the protocol of docs/policies.md, and write only answers to its standard output"

// read reads an answer to the last question.
func (q *process) read(line []byte, a answer) error {
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(a); err != nil {
		var other base // perhaps it has the fields of another question's answer
		if json.Unmarshal(line, &other) == nil && other.N != nil && *other.N != q.n {
			return q.astray(*other.N)
		}
		return q.problem(fmt.Errorf("answered the question %q with %s: %w", q.asked, excerpt(line), err), keep)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return q.problem(fmt.Errorf("answered the question %q with more than one value on a line: %s", q.asked, excerpt(line)), keep)
	}
	switch b := a.common(); {
	case b.N == nil:
		return q.problem(fmt.Errorf("answered the question %q without the field %q: %s", q.asked, "n", excerpt(line)), keep)
	case *b.N != q.n:
		return q.astray(*b.N)
	case b.Error != nil:
		return &refusal{*b.Error}
	}
	return nil
}

// lacks is the error of an answer without a field that it must have.
func (q *process) lacks(field string) error {
	return q.problem(fmt.Errorf("answered the question %q without the field %q", q.asked, field), keep)
}

func (q *process) astray(n int) error {
	return q.problem(fmt.Errorf("answered question %d, but the open question is %d (%q)", n, q.n, q.asked), keep)
}

// excerpt quotes the beginning of a line.
func excerpt(line []byte) string {
	const most = 200
	line = bytes.TrimSpace(line)
	if len(line) > most {
		return fmt.Sprintf("%q…", line[:most])
	}
	return fmt.Sprintf("%q", line)
}
