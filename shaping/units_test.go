package shaping_test

import (
	"encoding"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"testbed/internal/rapidtest"
	"testbed/shaping"
)

func TestParseRate(t *testing.T) {
	for _, c := range []struct {
		in   string
		want shaping.Rate
	}{
		{"100mbit", 100e6}, {"1.5gbit", 1500e6}, {"20kbit", 20e3}, {" 10 MBit", 0},
		{"12mbps", 96e6}, {"1mibit", 1 << 20}, {"1.001gbit", 1001e6}, {"9600bit", 9600},
		{"unlimited", 0},
	} {
		got, err := shaping.ParseRate(c.in)
		if c.in == " 10 MBit" { // a blank between number and unit is not tc's form
			if err == nil {
				t.Errorf("ParseRate(%q) = %v, want an error", c.in, got)
			}
			continue
		}
		if err != nil || got != c.want {
			t.Errorf("ParseRate(%q) = %v, %v; want %v", c.in, got, err, c.want)
		}
	}
	for _, in := range []string{"", "100", "mbit", "-1mbit", "1e3mbit", "0x10mbit", "NaNmbit", "Infgbit", "1.2.3mbit", "2tbit", "1bit", "10mbits"} {
		if got, err := shaping.ParseRate(in); err == nil {
			t.Errorf("ParseRate(%q) = %v, want an error", in, got)
		}
	}
}

// TestRatesOfTC: all of tc's units (tc(8), "RATES") are read, in bits or bytes, by
// powers of 1000 or 1024.
func TestRatesOfTC(t *testing.T) {
	for prefix, factor := range map[string]float64{
		"k": 1e3, "m": 1e6, "g": 1e9, "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "t": 1e12, "ti": 1 << 40,
	} {
		number := 4.0
		if factor >= 1e12 {
			number = 0.0625
		}
		for unit, bits := range map[string]float64{"bit": 1, "bps": 8} {
			text := strconv.FormatFloat(number, 'f', -1, 64) + prefix + unit
			if got, err := shaping.ParseRate(text); err != nil || float64(got) != number*factor*bits {
				t.Errorf("ParseRate(%q) = %d, %v; want %.0f", text, got, err, number*factor*bits)
			}
		}
	}
	for text, want := range map[string]shaping.Rate{"2000bit": 2000, "1000bps": 8000, "100MBIT": 100e6, "100Mbit": 100e6} {
		if got, err := shaping.ParseRate(text); err != nil || got != want {
			t.Errorf("ParseRate(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
}

// TestAmbiguousRatesAreRefused: what people take for bits and tc for bytes is refused,
// with both spellings.
func TestAmbiguousRatesAreRefused(t *testing.T) {
	for text, offers := range map[string][2]string{
		"100Mbps": {"100mbit", "100mbps"}, "1.5Gbps": {"1.5gbit", "1.5gbps"}, "64Kbps": {"64kbit", "64kbps"},
		"100MBps": {"100mbit", "100mbps"}, "100MBPS": {"100mbit", "100mbps"}, "1Tbps": {"1tbit", "1tbps"}, "9600Bps": {"9600bit", "9600bps"},
		"100Mb/s": {"100mbit", "100mbps"}, "100Mbit/s": {"100mbit", "100mbps"}, "100MiBps": {"100mibit", "100mibps"}, "10mBps": {"10mbit", "10mbps"},
	} {
		_, err := shaping.ParseRate(text)
		if err == nil || !strings.Contains(err.Error(), offers[0]+" for bits") || !strings.Contains(err.Error(), offers[1]+" for bytes") {
			t.Errorf("ParseRate(%q): %v, want both of %v", text, err, offers)
		}
		if _, err := shaping.ParseRate(offers[0]); err != nil {
			t.Error(err)
		}
	}
}

// text is what every unit offers to a scenario file.
type text[T any] interface {
	*T
	encoding.TextUnmarshaler
}

func readsBack[T interface {
	comparable
	encoding.TextMarshaler
}, P text[T]](t interface{ Fatalf(string, ...any) }, v T) {
	written, err := v.MarshalText()
	if err != nil {
		t.Fatalf("%v: %v", v, err)
	}
	var got T
	if err := P(&got).UnmarshalText(written); err != nil || got != v {
		t.Fatalf("%v is written %q and read back as %v, %v", v, written, got, err)
	}
}

func TestUnitsReadBackWhatTheyWrite(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		readsBack(t, shaping.Rate(rapid.Int64Range(1000, 1e12).Draw(t, "bits")))
		readsBack(t, shaping.Rate(rapid.Int64Range(1, 1e6).Draw(t, "mbit")*1e6))
		readsBack(t, shaping.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "ns")))
		readsBack(t, shaping.Probability(rapid.Float64Range(0, 1).Draw(t, "p")))
		readsBack(t, shaping.Probability(float64(rapid.IntRange(0, 10000).Draw(t, "basis points"))/10000))
		readsBack(t, shaping.Queue{Time: shaping.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "queue ns"))})
		readsBack(t, shaping.Queue{Bytes: rapid.IntRange(shaping.MinQueueBytes, 1<<30).Draw(t, "queue bytes")})
		readsBack(t, shaping.JitterDistribution(rapid.IntRange(0, 2).Draw(t, "distribution")))
		readsBack(t, shaping.MAC(rapid.SliceOfN(rapid.Byte(), 6, 6).Draw(t, "mac")))
	})
}

func TestProbabilityIsWrittenForPeople(t *testing.T) {
	for p, want := range map[shaping.Probability]string{0: "0%", 0.001: "0.1%", 0.07: "0.07", 1: "100%", 0.5: "50%"} {
		if got := p.String(); got != want {
			t.Errorf("Probability(%v) = %q, want %q", float64(p), got, want)
		}
	}
	for _, in := range []string{"", "%", "101%", "1.5", "-1%", "NaN", "1e-3"} {
		var p shaping.Probability
		if err := p.UnmarshalText([]byte(in)); err == nil {
			t.Errorf("probability %q was read as %v, want an error", in, p)
		}
	}
}

// FuzzUnits: whatever a file holds, a value that is accepted is written in a
// form that reads back as the same value.
func FuzzUnits(f *testing.F) {
	for _, s := range []string{"100mbit", "1.5gbit", "0.30000000000000004%", "25ms", "1e9", "unlimited", "256kb", "02:54:42:00:00:01"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if v, err := shaping.ParseRate(s); err == nil {
			readsBack(t, v)
		}
		var d shaping.Duration
		if d.UnmarshalText([]byte(s)) == nil {
			readsBack(t, d)
		}
		var q shaping.Queue
		if q.UnmarshalText([]byte(s)) == nil {
			readsBack(t, q)
		}
		var p shaping.Probability
		if p.UnmarshalText([]byte(s)) == nil {
			readsBack(t, p)
		}
		var m shaping.MAC
		if m.UnmarshalText([]byte(s)) == nil {
			readsBack(t, m)
		}
	})
}
