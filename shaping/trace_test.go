package shaping_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"testbed/internal/rapidtest"
	"testbed/shaping"
)

// frame is the rate of one opportunity each 100 ms.
const frame = shaping.Rate(shaping.FrameSize * 8 * 10)

func TestParseTrace(t *testing.T) {
	seconds := func(perSecond ...int) string {
		var b strings.Builder
		for s, n := range perSecond {
			for k := range n {
				fmt.Fprintln(&b, 1000*s+(k+1)*1000/n)
			}
		}
		return b.String()
	}
	for _, c := range []struct {
		name, text string
		period     time.Duration
		rates      []shaping.Rate
	}{
		{"one each millisecond", "1\n", 100 * time.Millisecond, []shaping.Rate{100 * frame}},
		{"shorter than a window", "30\n", 120 * time.Millisecond, []shaping.Rate{4 * frame * 100 / 120}},
		{"what comes at the end belongs to the window", "0\n100\r\n101\n200", 200 * time.Millisecond, []shaping.Rate{2 * frame, 2 * frame}},
		{"the rest makes windows longer", "150\n", 150 * time.Millisecond, []shaping.Rate{frame * 100 / 150}},
		{"an outage has one frame a window, paid back afterwards", "100\n400\n400\n400\n400\n400\n", 400 * time.Millisecond, []shaping.Rate{frame, frame, frame, 3 * frame}},
		{"what the end borrows the beginning pays", "100\n100\n100\n100\n100\n300\n", 300 * time.Millisecond, []shaping.Rate{4 * frame, frame, frame}},
		{"two seconds", seconds(100, 20), 2 * time.Second, slices.Concat(slices.Repeat([]shaping.Rate{10 * frame}, 10), slices.Repeat([]shaping.Rate{2 * frame}, 10))},
	} {
		p, err := shaping.ParseTrace([]byte(c.text))
		if err != nil || time.Duration(p.Period) != c.period || len(p.Rates) != len(c.rates) {
			t.Errorf("%s: %+v, %v", c.name, p, err)
			continue
		}
		for i, want := range c.rates {
			if math.Abs(float64(p.Rates[i]-want)) > 50 { // rounded by 1 bit/s for each frame
				t.Errorf("%s: rates %v, want %v", c.name, p.Rates, c.rates)
				break
			}
		}
	}
}

func TestParseTraceNamesTheLine(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "line 0: is empty: each line is a time in milliseconds at which one full packet can be delivered"},
		{"0\n0\n", "line 2: every time is 0, so the trace has no length; write its length in milliseconds in the last line"},
		{"1\n3\n2\n", "line 3: 2 ms comes after 3 ms; sort the lines"},
		{"1\n-2\n", `line 2: "-2" is not a whole number of milliseconds from 0; write for example 25`},
		{"1.5\n", `line 1: "1.5" is not a whole number of milliseconds from 0; write for example 25`},
		{"1\n\n2\n", "line 2: the line is empty; remove it"},
		{"12 Mbit/s\n", `line 1: "12 Mbit/s" is not a whole number of milliseconds from 0; write for example 25`},
		{"3600001\n", "line 1: 3600001 ms is beyond 1h0m0s, the limit for the length of a trace; cut the trace"},
		{"50000\n", "line 0: the mean rate of the trace, 242bit, is below the least rate of a link, 1kbit (lines: 1, length: 50s); use a trace of a faster link, or cut the end of the trace"},
		{"0.5 12.5\n", `line 1: "0.5 12.5" has two columns, perhaps a time and a rate; a trace in Mahimahi's format has one, the time in milliseconds of each full packet: convert it, so that a rate of R bit/s gives R × seconds ÷ 12112 lines`},
		{strings.Repeat("1\n", 1<<17), "line 0: the highest rate of 1587544.064mbit is above 1tbit; write times in milliseconds"},
	} {
		_, err := shaping.ParseTrace([]byte(c.text))
		var bad *shaping.TraceError
		if !errors.As(err, &bad) || err.Error() != c.want {
			t.Errorf("%.20q gives\n%v, want\n%s", c.text, err, c.want)
		}
	}
}

// TestLongGigabitTrace: a minute at a gigabit a second is five million lines.
func TestLongGigabitTrace(t *testing.T) {
	const each, seconds = 83, 60
	var text bytes.Buffer
	for ms := 1; ms <= 1000*seconds; ms++ {
		text.Write(bytes.Repeat(fmt.Appendf(nil, "%d\n", ms), each))
	}
	p, err := shaping.ParseTrace(text.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if want := shaping.Rate(each * 1000 * shaping.FrameSize * 8); time.Duration(p.Period) != seconds*time.Second || p.Mean() != want || p.Peak() != want {
		t.Errorf("a period of %v at %v, at most %v, want %v", p.Period, p.Mean(), p.Peak(), want)
	}
}

// TestPaceCarriesWhatTheTraceOffers: in a whole period exactly as much, in no
// window less than one frame, and Next finds every change of the rate.
func TestPaceCarriesWhatTheTraceOffers(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		gaps := rapid.SliceOfN(rapid.IntRange(0, 60), 2, 400).Draw(t, "gaps")
		if rapid.Bool().Draw(t, "outage") {
			gaps[len(gaps)/2] = rapid.IntRange(100, 2000).Draw(t, "length")
		}
		var text bytes.Buffer
		at := 0
		for _, g := range append(gaps, 1) {
			at += g
			fmt.Fprintln(&text, at)
		}
		p, err := shaping.ParseTrace(text.Bytes())
		if err != nil {
			if (len(gaps)+1)*12000 >= at {
				t.Fatalf("%d opportunities in %d ms are refused: %v", len(gaps)+1, at, err)
			}
			return
		}
		period := time.Duration(p.Period)
		if period%(time.Duration(at)*time.Millisecond) != 0 {
			t.Fatalf("a period of %v for a trace of %d ms", period, at)
		}
		window := period / time.Duration(len(p.Rates))
		sparse := float64(len(gaps)+1)*100 < float64(at)+200 // windows are as long as a packet takes
		if window < 100*time.Millisecond || window >= 200*time.Millisecond && !sparse {
			t.Fatalf("windows of %v", window)
		}
		offered := float64(len(gaps)+1) * float64(period.Milliseconds()) / float64(at)
		carried := 0.0
		for _, r := range p.Rates {
			frames := float64(r) * window.Seconds() / 8 / shaping.FrameSize
			if frames < 0.999 {
				t.Fatalf("a window of %v frames", frames)
			}
			carried += frames
		}
		if math.Abs(carried-offered) > 0.001*offered {
			t.Fatalf("%v frames are carried of %v", carried, offered)
		}
		start := time.Duration(rapid.Int64Range(0, int64(2*period)).Draw(t, "start"))
		next := p.Next(start)
		if next <= start || next > start+window+1 || p.At(next-1) != p.At(start) {
			t.Fatalf("after %v comes %v", start, next)
		}
		if k := int(start % period * time.Duration(len(p.Rates)) / period); p.At(next) != p.Rates[(k+1)%len(p.Rates)] {
			t.Fatalf("at %v the rate is %v, the next after %v of %v", next, p.At(next), p.At(start), p.Rates)
		}
	})
}

func FuzzParseTrace(f *testing.F) {
	f.Add([]byte("1\n"))
	f.Add([]byte("0\n0\n33\n100\r\n250"))
	f.Add([]byte("\n-1\n18446744073709551616\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := shaping.ParseTrace(text)
		if err != nil {
			var bad *shaping.TraceError
			if !errors.As(err, &bad) || bad.Problem == "" || bad.Line < 0 || bad.Line > bytes.Count(text, []byte("\n"))+1 {
				t.Fatalf("error %#v", err)
			}
			return
		}
		if p.Peak() < p.Mean() || slices.Min(p.Rates) <= 0 || p.Next(0) <= 0 || p.Next(0) > time.Duration(p.Period) {
			t.Fatalf("%+v", p)
		}
	})
}

// TestSlowTracesPlay: a packet every 130 ms is a rate of 93 kbit/s, for every window.
func TestSlowTracesPlay(t *testing.T) {
	var text bytes.Buffer
	for k := 1; k <= 50; k++ {
		fmt.Fprintln(&text, 130*k)
	}
	p, err := shaping.ParseTrace(text.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Rates) != 50 || p.Peak() != p.Mean() || p.Mean() < 93_000 || p.Mean() > 93_300 {
		t.Errorf("%d windows, %v on average, %v at most", len(p.Rates), p.Mean(), p.Peak())
	}
}
