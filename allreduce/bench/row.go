package bench

import (
	"fmt"
	"slices"
	"strings"
)

// Row writes the result as a row of the table in docs/notes/bench.md:
//
//	links | workers × values | ring | × bound | gloo | ring ÷ gloo | iperf3 | ring ÷ iperf3 | processor: ring, router, gloo | memory | error
func (r *Ring) Row() string {
	dash := "–"
	links := r.Links.Rate.String()
	if r.Links.Scenario != "" {
		links = r.Links.Scenario
	}
	if r.Links.OneWayDelay > 0 {
		links += ", " + r.Links.OneWayDelay.String()
	}
	if r.Links.GroupDelay > 0 {
		links += fmt.Sprintf(", %v between %d groups", r.Links.GroupDelay, r.Groups)
	}
	if r.Links.Loss > 0 {
		links += ", loss " + r.Links.Loss.String()
	}
	cells := []string{links, fmt.Sprintf("%d × %s", r.Workers, count(r.Elements)), timeCell(r.SecondsMedian, r.Spread), dash}
	if r.RatioToBound != nil {
		cells[3] = fmt.Sprintf("%.2f", *r.RatioToBound)
	}
	glooCPU := dash
	for _, name := range []string{"gloo", "iperf3"} {
		i := slices.IndexFunc(r.Against, func(a Rival) bool { return a.Name == name && a.Problem == "" })
		if i < 0 {
			cells = append(cells, dash, dash)
			continue
		}
		a := r.Against[i]
		cells = append(cells, timeCell(a.SecondsMedian, a.Spread), fmt.Sprintf("%.2f", a.Ratio))
		if name == "gloo" {
			glooCPU = fmt.Sprintf("%.2g", a.CPUSeconds)
		}
	}
	memory := dash
	if r.MemoryBytes != nil {
		memory = fmt.Sprintf("%.2f", r.MemoryRatio)
	}
	cells = append(cells, fmt.Sprintf("%.2g, %.2g, %s", r.CPUSeconds, r.RouterCPUSeconds, glooCPU), memory, fmt.Sprintf("%.2f %%", 100*r.RelativeError))
	return "| " + strings.Join(cells, " | ") + " |"
}

func timeCell(seconds, spread float64) string {
	return fmt.Sprintf("%.3g s (%.0f %%)", seconds, 100*spread)
}

// count writes a round number of values in short form.
func count(n int) string {
	if n%1_000_000 == 0 {
		return fmt.Sprintf("%d M", n/1_000_000)
	}
	return fmt.Sprint(n)
}
