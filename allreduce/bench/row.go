package bench

import (
	"fmt"
	"strings"
)

// best is the rival's fastest entry of a name; ok is false if there is none.
func (r *Ring) best(name string) (best Rival, ok bool) {
	for _, a := range r.Against {
		if a.Name == name && a.Problem == "" && (!ok || a.SecondsMedian < best.SecondsMedian) {
			best, ok = a, true
		}
	}
	return best, ok
}

// Row writes the result as a row of the table in docs/notes/bench.md:
//
// Of a rival that was measured under several congestion controls, the fastest
// counts, and its cell names the congestion control.
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
		a, ok := r.best(name)
		if !ok {
			cells = append(cells, dash, dash)
			continue
		}
		taken := timeCell(a.SecondsMedian, a.Spread)
		if a.TCP != "" {
			taken += ", " + a.TCP
		}
		cells = append(cells, taken, fmt.Sprintf("%.2f", a.Ratio))
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
