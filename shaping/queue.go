package shaping

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Queue is the amount that may wait for the rate of an access link before
// packets are dropped: a time at that rate, or a number of bytes. The other
// field is zero.
type Queue struct {
	Time  Duration
	Bytes int // of Ethernet frames
}

// queueUnits are tc's suffixes of sizes (tc(8), "UNITS"): powers of 1024. tc's
// one-letter forms are excluded, because "m" also means minute.
var queueUnits = []struct {
	suffix string
	bytes  int
}{{"gb", 1 << 30}, {"mb", 1 << 20}, {"kb", 1 << 10}, {"b", 1}}

// UnmarshalText reads a time such as "20ms" or a size such as "256kb".
func (q *Queue) UnmarshalText(text []byte) error {
	s := strings.ToLower(strings.TrimSpace(string(text)))
	for _, u := range queueUnits {
		number, found := strings.CutSuffix(s, u.suffix)
		if !found {
			continue
		}
		v, err := parseNumber(number)
		if err != nil {
			break
		}
		bytes := math.Round(v * float64(u.bytes))
		if bytes > maxQueueBytes {
			return fmt.Errorf("queue %q is above the limit of 1gb", text)
		}
		*q = Queue{Bytes: int(bytes)}
		if q.Bytes < MinQueueBytes {
			return fmt.Errorf("queue %q is below %v, the size of one batch of a sender: a smaller queue would drop every batch", text, Queue{Bytes: MinQueueBytes})
		}
		return nil
	}
	var t Duration
	if err := t.UnmarshalText(text); err != nil {
		return fmt.Errorf("queue %q is neither a time nor a size: write for example 20ms or 256kb", text)
	}
	*q = Queue{Time: t}
	return nil
}

// MarshalText writes the queue as UnmarshalText reads it.
func (q Queue) MarshalText() ([]byte, error) { return []byte(q.String()), nil }

func (q Queue) String() string {
	if q.Bytes == 0 {
		return q.Time.String()
	}
	for _, u := range queueUnits {
		if q.Bytes%u.bytes == 0 {
			return strconv.Itoa(q.Bytes/u.bytes) + u.suffix
		}
	}
	return "" // never: the last unit is one byte
}

// problem says what is wrong with the queue, if anything.
func (q Queue) problem() string {
	switch {
	case q.Bytes != 0 && q.Time != 0:
		return fmt.Sprintf("is given as a time (%v) and as a size (%d bytes): give one of the two", q.Time, q.Bytes)
	case q.Bytes < 0 || q.Bytes > maxQueueBytes || q.Bytes > 0 && q.Bytes < MinQueueBytes:
		return fmt.Sprintf("is a size of %d bytes, outside %v to %v", q.Bytes, Queue{Bytes: MinQueueBytes}, Queue{Bytes: maxQueueBytes})
	}
	return q.Time.problem()
}

// problem says why the time cannot be part of a link, if so.
func (d Duration) problem() string {
	switch {
	case d < 0:
		return fmt.Sprintf("%v is negative", d)
	case d > maxTime:
		return fmt.Sprintf("%v is above the limit of %v", d, maxTime)
	}
	return ""
}

// QueueBytes is the limit, in bytes, of the queue for the given rate of the
// node: rate × Queue.Time, but at least MinQueueBytes, or Queue.Bytes. It does
// not apply to an unlimited rate, which has no queue.
func (n NodePlan) QueueBytes(r Rate) int {
	if n.Queue.Bytes != 0 {
		return n.Queue.Bytes
	}
	bytes := float64(r) / 8 * time.Duration(n.Queue.Time).Seconds()
	return int(min(max(bytes, MinQueueBytes), maxQueueBytes))
}

// burstTime is the lateness with which the kernel may serve a class of HTB
// without losing rate. Its price: after a pause that many bytes pass at once.
const burstTime = time.Millisecond

// BucketBytes is the number of bytes that HTB may save up at a rate, and pass
// at once after a pause: at least two frames.
func BucketBytes(rate Rate) int {
	return int(max(2*FrameSize, float64(rate)/8*burstTime.Seconds()))
}
