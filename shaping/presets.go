package shaping

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"testbed/internal/errs"
)

// AccessPreset names an access link with published measurements.
type AccessPreset string

// accessPresets are published profiles. A round-trip time between a node and
// a nearby server is that of one access link: each way takes half.
var accessPresets = map[AccessPreset]accessValues{
	// WebPageTest's connectivity profiles (connectivity.ini.sample, as given
	// in the README of bclary/wpt-controller): "FIOS (20/5 Mbps 4ms RTT)",
	// "Cable (5/1 Mbps 28ms RTT)", "DSL (1.5 Mbps/384 Kbps 50ms RTT)".
	"fibre": {up: 5e6, down: 20e6, rtt: 4 * time.Millisecond},
	"cable": {up: 1e6, down: 5e6, rtt: 28 * time.Millisecond},
	"dsl":   {up: 384e3, down: 1500e3, rtt: 50 * time.Millisecond},
	// ERRANT, "realistic emulation of radio access networks", profiles.csv
	// of github.com/marty90/errant: telenor, Norway, 4G, medium signal:
	// 23,928 and 3,955 kbit/s, 86.4 ms.
	"lte": {up: 3955e3, down: 23928e3, rtt: 86400 * time.Microsecond},
	// Ookla, "Above Maine, Starlink Twinkles", 18 December 2024: medians of
	// 1 October to 15 December 2024: 116.77 and 18.17 Mbit/s, 47 ms.
	"starlink": {up: 18170e3, down: 116770e3, rtt: 47 * time.Millisecond},
}

// AccessPresets are the names of the presets of access links, in order.
func AccessPresets() []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(accessPresets)) {
		names = append(names, string(name))
	}
	return names
}

type accessValues struct {
	up, down Rate
	rtt      time.Duration
}

// UnmarshalText reads the name of a preset.
func (p *AccessPreset) UnmarshalText(text []byte) error {
	*p = AccessPreset(text)
	if problem := p.problem(); problem != "" {
		return fmt.Errorf("%s", problem)
	}
	return nil
}

func (p AccessPreset) problem() string {
	if _, ok := accessPresets[p]; ok {
		return ""
	}
	return fmt.Sprintf("there is no access preset %q; choose one of %s", string(p), errs.List(AccessPresets()))
}

func (p AccessPreset) apply(n *NodePlan) {
	v := accessPresets[p]
	n.RateUp, n.RateDown, n.AccessOneWayDelay = v.up, v.down, Duration(v.rtt/2)
}

// PathPreset names a path with published measurements: "datacentre", "zones",
// or two regions of a cloud such as "dallas-tokyo".
type PathPreset string

// The path presets are monthly means of round-trip times in IBM's cloud,
// published by IBM (IBM Cloud Docs, Virtual Private Cloud, "Network latency",
// 27 July to 25 August 2024; _include-segments/network-latency.md of
// github.com/ibm-cloud-docs/vpc). One way takes half.
const (
	zoneRTT    = 90 * time.Microsecond   // within the zone Dallas 1
	betweenRTT = 2030 * time.Microsecond // between the zones Dallas 1 and Dallas 2
)

var regions = []string{"dallas", "toronto", "washington", "frankfurt", "london", "madrid", "osaka", "sydney", "tokyo", "saopaulo"}

// regionRTT is the round-trip time in milliseconds, from the row's region.
var regionRTT = [][]int{
	{0, 34, 31, 123, 113, 119, 150, 186, 143, 146},
	{34, 0, 19, 93, 82, 108, 168, 215, 162, 129},
	{31, 19, 0, 91, 75, 87, 172, 214, 164, 118},
	{123, 93, 91, 0, 13, 29, 232, 250, 233, 198},
	{113, 83, 75, 13, 0, 27, 244, 261, 243, 188},
	{122, 106, 88, 29, 27, 0, 257, 275, 258, 209},
	{150, 169, 172, 231, 243, 257, 0, 122, 9, 293},
	{186, 214, 214, 249, 261, 275, 122, 0, 115, 328},
	{143, 162, 166, 233, 244, 256, 9, 115, 0, 284},
	{144, 128, 119, 196, 187, 208, 291, 328, 283, 0},
}

// UnmarshalText reads the name of a preset.
func (p *PathPreset) UnmarshalText(text []byte) error {
	*p = PathPreset(text)
	_, err := p.oneWayDelay()
	return err
}

// oneWayDelay is half of the published round-trip time.
func (p PathPreset) oneWayDelay() (Duration, error) {
	switch p {
	case "datacentre":
		return Duration(zoneRTT / 2), nil
	case "zones":
		return Duration(betweenRTT / 2), nil
	}
	from, to, _ := strings.Cut(string(p), "-")
	i, j := slices.Index(regions, from), slices.Index(regions, to)
	if i < 0 || j < 0 || i == j {
		return 0, fmt.Errorf("there is no path preset %q; choose datacentre, zones, or two different regions of %s joined by a hyphen, for example dallas-tokyo", string(p), errs.List(regions))
	}
	return Duration(time.Duration(regionRTT[i][j]) * time.Millisecond / 2), nil
}
