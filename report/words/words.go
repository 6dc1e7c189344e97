// Package words describes numbers, workers and decisions in words, the same in
// every report.
package words

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"testbed/policy"
	"testbed/scenarios"
	"testbed/stacks"
)

// Micros writes scenario time with separated thousands.
func Micros(t policy.Time) string { return Thousands(t) + " µs" }

// Thousands writes a number with separated thousands.
func Thousands[T ~int64](n T) string {
	digits := fmt.Sprint(int64(n))
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// MaxListed is the number of workers up to which each is named.
const MaxListed = 8

// Count is a number of things, such as 1 worker or 3 workers.
func Count(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// Workers lists workers by the names of their nodes, many of them as ranges:
// "w0–w11 w13–w63". The IDs have to be sorted.
func Workers(ids []policy.ID) string {
	if len(ids) == 0 {
		return "–"
	}
	var parts []string
	for i := 0; i < len(ids); i++ {
		first := i
		for len(ids) > MaxListed && i+1 < len(ids) && ids[i+1] == ids[i]+1 {
			i++
		}
		name := ids[first].Node()
		if i > first {
			name += "–" + ids[i].Node()
		}
		parts = append(parts, name)
	}
	return strings.Join(parts, " ")
}

// Named lists workers in a sentence.
func Named(ids []policy.ID) string { return strings.ReplaceAll(Workers(ids), " ", ", ") }

// Because describes the numbers of a decision in words.
func Because(r *policy.Reason) string {
	if r == nil {
		return "no reason recorded"
	}
	switch r.Rule {
	case policy.RuleLeave:
		return "it left in good order"
	case policy.RuleHeartbeat:
		return fmt.Sprintf("it was silent for %s and missed %s (limit: %d)", Micros(r.Silent), Count(r.Misses, "heartbeat"), r.Limit)
	case policy.RuleGaveUp:
		return fmt.Sprintf("it told the coordinator that it gives up, %s after its last heartbeat", Micros(r.Silent))
	case policy.RuleConnection:
		return fmt.Sprintf("its control connection ended, %s after its last heartbeat", Micros(r.Silent))
	case policy.RuleReplaced:
		return fmt.Sprintf("a new process of the worker asked to join, %s after the last heartbeat of the old process", Micros(r.Silent))
	case policy.RuleMembership:
		return "the stack went on without it"
	case policy.RuleLost:
		return fmt.Sprintf("%s, another rank of its replica group, is gone", (*r.Lost).Node())
	case policy.RuleRejoin:
		return fmt.Sprintf("outer steps since its eviction: %d, required: %d", r.Misses, r.Limit)
	case policy.RuleQuorumTimeout:
		if r.Misses > r.Limit {
			return fmt.Sprintf("it waited %s for a quorum, and no restart is left (policy.torchft.restarts: %d)", Micros(r.Stalled), r.Limit)
		}
		return fmt.Sprintf("it waited %s for a quorum, and restart %d of at most %d follows", Micros(r.Stalled), r.Misses, r.Limit)
	case policy.RuleFetchFailed:
		return fmt.Sprintf("its fetches of the outer state failed %s in a row", Count(r.Misses, "time"))
	case policy.RuleReduceFailed:
		return fmt.Sprintf("it took part in %s of the round", Count(r.Misses, "failed reduction"))
	case policy.RuleProgress:
		text := fmt.Sprintf("the reduction had stalled for %s", Micros(r.Stalled))
		if r.Lost != nil && r.Peer != nil && *r.Lost != *r.Peer {
			text += fmt.Sprintf(" (%s waited for %s)", (*r.Lost).Node(), (*r.Peer).Node())
		}
		if r.Limit == 0 {
			return text + fmt.Sprintf(", and the worker had been silent for %s", Micros(r.Silent))
		}
		return text + fmt.Sprintf(", and reductions with the worker had failed %s", Count(r.Misses, "time"))
	case policy.RuleTimeout:
		return fmt.Sprintf("the outer step had taken %s", Micros(r.Stalled))
	case policy.RuleLate, policy.RuleStraggler:
		return left(r)
	}
	return "the rule was " + string(r.Rule)
}

// left explains why a round went on without a worker. The numbers do not show
// whether the quorum came before the deadline.
func left(r *policy.Reason) string {
	text := gathered(r) + " when the round closed"
	if r.Deadline != nil {
		text += ", and the deadline was " + deadlineText(r)
	}
	if r.Misses == 0 { // its first round, which it spent on getting a state
		return text + ". This does not count as a miss"
	}
	text += fmt.Sprintf(". Consecutive misses: %d", r.Misses)
	if r.Limit > 0 || r.Rule == policy.RuleStraggler { // otherwise any number is tolerated
		text += fmt.Sprintf(" (tolerated: %d)", r.Limit)
	}
	return text
}

// gathered gives the number of arrivals when a round closed.
func gathered(r *policy.Reason) string {
	return fmt.Sprintf("%d of %d workers had arrived (%d needed)", r.Arrived, r.Members, r.Needed)
}

// deadlineText gives the deadline, and the numbers it was computed from. Under
// torchft it counts from the first request for a quorum, which need not follow
// an arrival.
func deadlineText(r *policy.Reason) string {
	d := r.Deadline
	text := Micros(d.Offset) + " after the first arrival"
	switch {
	case r.QuorumID > 0:
		text = Micros(d.Offset) + " after the first request"
	case d.Offset < 0:
		text = Micros(-d.Offset) + " before the first arrival"
	}
	if s := d.Spread; s != nil {
		text += fmt.Sprintf(" (median %s + %g × MAD %s, at least %s)", Micros(s.Median), s.K, Micros(s.MAD), Micros(s.MinSlack))
		if by := d.Offset - max(s.MinSlack, s.Median+policy.Time(s.K*float64(s.MAD))); by > 0 {
			text += fmt.Sprintf(", postponed by %s because the coordinator was down", Micros(by))
		}
	}
	var numbers []string
	for _, name := range slices.Sorted(maps.Keys(d.Numbers)) {
		numbers = append(numbers, name+"="+strconv.FormatFloat(math.Round(1000*d.Numbers[name])/1000, 'f', -1, 64))
	}
	if len(numbers) > 0 {
		text += " (" + strings.Join(numbers, ", ") + ")"
	}
	if d.Credit > 0 {
		text += fmt.Sprintf(" and %s of credit for catching up", Micros(d.Credit))
	}
	return text
}

// Closing explains why a round closed when it did.
func Closing(r *policy.Reason) string {
	switch {
	case r == nil:
		return "no reason recorded"
	case r.Rule == policy.RuleAllArrived && r.Deadline == nil:
		return fmt.Sprintf("all workers (%d) had arrived, and there was no deadline", r.Members)
	case r.Rule == policy.RuleAllArrived:
		return fmt.Sprintf("all workers (%d) had arrived, and the deadline was %s", r.Members, deadlineText(r))
	case r.Rule == policy.RuleQuorum && r.Deadline == nil:
		return fmt.Sprintf("%d of %d workers had arrived, which was enough (%d needed)", r.Arrived, r.Members, r.Needed)
	case r.Rule == policy.RuleDeadline && r.Deadline != nil && r.QuorumID == 0: // torchft may be late for its deadline
		return gathered(r) + " at the deadline, " + deadlineText(r)
	case r.Deadline != nil: // the quorum came after the deadline, or the policy has no deadline before it
		return gathered(r) + " when the round closed, and the deadline was " + deadlineText(r)
	}
	return gathered(r)
}

// Capital capitalises the beginning of a sentence.
func Capital(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// Policy names a policy in a sentence, with its given parameters.
func Policy(spec string) string {
	stack, is := stacks.Labelled(spec)
	switch {
	case is:
		return "the stack " + stack
	case spec == scenarios.Baseline:
		return "the baseline"
	case strings.Contains(spec, ":"):
		return "policy " + spec
	}
	return "the " + spec + " policy"
}

// Times writes a ratio.
func Times(ratio float64) string { return fmt.Sprintf("%.2f×", ratio) }

// List names nodes, or gives their number.
func List(names []string) string {
	n := len(names)
	if n > MaxListed {
		return fmt.Sprintf("%d workers", n)
	}
	if n > 1 {
		return strings.Join(names[:n-1], ", ") + " and " + names[n-1]
	}
	return strings.Join(names, "")
}

// Typed writes a command in a shell's syntax.
func Typed(command []string) string {
	words := make([]string, len(command))
	for k, word := range command {
		words[k] = Quote(word)
	}
	return strings.Join(words, " ")
}

// Quote writes a word in a shell's syntax.
func Quote(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:=,+@%", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
