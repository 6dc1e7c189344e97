package shaping

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Rate is a link rate in bits per second. Rates count whole Ethernet frames
// (14-byte header included, preamble and checksum not), as HTB does. Zero
// means unlimited.
type Rate int64

// Sending is the time that so many bytes take at the rate, none if it is
// unlimited.
func (r Rate) Sending(bytes int) time.Duration {
	if r <= 0 {
		return 0
	}
	return time.Duration(float64(bytes) * 8 / float64(r) * float64(time.Second))
}

// rateUnits are tc's suffixes (tc(8), "UNITS"), longest first so that
// "mbit" is not read as "bit".
var rateUnits = []struct {
	suffix string
	bits   float64
}{
	{"kibit", 1 << 10}, {"mibit", 1 << 20}, {"gibit", 1 << 30}, {"tibit", 1 << 40},
	{"kibps", 8 << 10}, {"mibps", 8 << 20}, {"gibps", 8 << 30}, {"tibps", 8 << 40},
	{"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}, {"tbit", 1e12},
	{"kbps", 8e3}, {"mbps", 8e6}, {"gbps", 8e9}, {"tbps", 8e12},
	{"bit", 1}, {"bps", 8},
}

// ParseRate reads a rate as tc(8) writes it: "100mbit", "1.5gbit", "20kbit",
// and, as in tc, "mbps" for megabytes per second. A bare number is refused,
// because tc and people disagree about its unit. "Mbps" is refused, too,
// because people mean megabits per second by it.
func ParseRate(s string) (Rate, error) {
	t := strings.ToLower(strings.TrimSpace(s))
	if err := ambiguousRate(s); err != nil {
		return 0, err
	}
	if t == "unlimited" {
		return 0, nil
	}
	for _, u := range rateUnits {
		number, found := strings.CutSuffix(t, u.suffix)
		if !found {
			continue
		}
		v, err := parseNumber(number)
		if err != nil {
			break
		}
		bits := math.Round(v * u.bits) // 1.001gbit is not exact in binary
		if bits < 1000 || bits > 1e12 {
			return 0, fmt.Errorf("rate %q is outside 1kbit to 1tbit", s)
		}
		return Rate(bits), nil
	}
	return 0, fmt.Errorf("rate %q is not a number with a unit: write it as tc does, for example 100mbit", s)
}

// perSecond matches every spelling of a rate per second: number, prefix, binary
// prefix.
var perSecond = regexp.MustCompile(`^(?i)([0-9.]+)([kmgt]?)(i?)(?:bps|b/s|bits?/s)$`)

// ambiguousRate refuses spellings that tc and people read differently, and offers
// both readings.
func ambiguousRate(s string) error {
	t := strings.TrimSpace(s)
	m := perSecond.FindStringSubmatch(t)
	if m == nil || t == strings.ToLower(t) && strings.HasSuffix(t, "bps") {
		return nil
	}
	number := strings.ToLower(m[1] + m[2] + m[3])
	return fmt.Errorf("rate %q can be read in two ways: write %sbit for bits per second, or %sbps for bytes per second, as tc does", s, number, number)
}

// parseNumber reads a plain decimal number. It refuses the other forms of
// strconv.ParseFloat (hexadecimal, underscores, Inf, NaN).
func parseNumber(s string) (float64, error) {
	if s == "" || strings.Trim(s, "0123456789.") != "" {
		return 0, strconv.ErrSyntax
	}
	return strconv.ParseFloat(s, 64)
}

// UnmarshalText makes a Rate readable from a scenario file.
func (r *Rate) UnmarshalText(text []byte) (err error) {
	*r, err = ParseRate(string(text))
	return err
}

// MarshalText writes the rate so that ParseRate reads the same value back.
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

func (r Rate) String() string {
	switch {
	case r == 0:
		return "unlimited"
	case r >= 1e9 && r%1e6 == 0:
		return strconv.FormatFloat(float64(r)/1e9, 'f', -1, 64) + "gbit"
	case r >= 1e6 && r%1e3 == 0:
		return strconv.FormatFloat(float64(r)/1e6, 'f', -1, 64) + "mbit"
	case r >= 1e3 && r%10 == 0:
		return strconv.FormatFloat(float64(r)/1e3, 'f', -1, 64) + "kbit"
	}
	return strconv.FormatInt(int64(r), 10) + "bit"
}

// Duration is a time on the real network, never scenario time.
type Duration time.Duration

// UnmarshalText reads "25ms", "1.5s", "100us"; a bare number is refused.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(strings.TrimSpace(string(text)))
	if err != nil {
		return fmt.Errorf("duration %q is not a number with a unit: write for example 25ms", text)
	}
	if v < 0 {
		return fmt.Errorf("duration %q is negative", text)
	}
	*d = Duration(v)
	return nil
}

// MarshalText writes the duration as UnmarshalText reads it.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

func (d Duration) String() string { return time.Duration(d).String() }

// Probability is a share of packets, 0 to 1.
type Probability float64

// UnmarshalText reads "0.1%" or a plain fraction such as "0.001".
func (p *Probability) UnmarshalText(text []byte) error {
	s := strings.TrimSpace(string(text))
	number, percent := strings.CutSuffix(s, "%")
	v, err := parseNumber(strings.TrimSpace(number))
	if err != nil {
		return fmt.Errorf("probability %q is not a percentage: write for example 0.1%%", s)
	}
	if percent {
		v /= 100
	}
	if v > 1 {
		return fmt.Errorf("probability %q is above 100%%", s)
	}
	*p = Probability(v)
	return nil
}

// MarshalText writes the probability as UnmarshalText reads it.
func (p Probability) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

func (p Probability) String() string {
	fraction := strconv.FormatFloat(float64(p), 'f', -1, 64)
	percent := strconv.FormatFloat(float64(p)*100, 'f', -1, 64) + "%"
	var back Probability
	if err := back.UnmarshalText([]byte(percent)); err != nil || back != p || len(percent) > len(fraction)+3 {
		return fraction // shorter, or the only one that reads back the same
	}
	return percent
}
