package report_test

import (
	"encoding/json"
	"fmt"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"testbed/internal/browser"
	"testbed/record"
	"testbed/report/timeline"
)

// page writes the report of the recorded comparison, in which nothing is
// trusted: its description is made to reach out and to write on the console. One
// run was on two hosts.
func page(t *testing.T) string {
	t.Helper()
	rec := read(t, recorded)
	rec.Scenario.Description = `</script><script>console.error("let in")</script><img src="http://example.invalid/x.png">`
	for k, run := range rec.Runs {
		if filepath.Base(run.Dir) == "real-straggler" {
			rec.Runs[k].Hosts = []record.Host{{Name: "h0", Nodes: []string{"coordinator", "w2"}}, {Name: "of-a-very-long-name", Nodes: []string{"w0", "w1", "w3"}}}
		}
	}
	file := filepath.Join(t.TempDir(), "report.html")
	write(t, html(t, rec), file)
	return file
}

// TestInABrowser: the page draws its pictures without a word on the console
// and without reaching out.
func TestInABrowser(t *testing.T) {
	browser.Find(t)
	t.Parallel()
	t.Run("the checks see what they are for", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "bad.html")
		write(t, `<script>console.error("seen"); nowhere()</script><img src="http://example.invalid/x.png">`, file)
		v := browser.Open(t, file, "--dump-dom")
		if len(v.Console) != 2 || v.Console[0] != "seen" || !strings.Contains(v.Console[1], "nowhere is not defined") {
			t.Errorf("console %q", v.Console)
		}
		if len(v.Asked) == 0 || v.Asked[0] != "http://example.invalid/x.png" {
			t.Errorf("asked for %q", v.Asked)
		}
	})
	t.Run("wide and light", func(t *testing.T) {
		v := browser.Show(t, page(t), 1200, "--dump-dom")
		v.IsQuiet(t)
		var drawn, width int
		if _, err := fmt.Sscanf(v.Title(t), "%d %d", &drawn, &width); err != nil || drawn != 4 || width > 1200 {
			t.Errorf("%q: want 4 pictures, at most 1200 wide: %v", v.Title(t), err)
		}
		// All that the pictures are to show is in them.
		var shapes map[string]struct {
			Shapes int
			Text   string
		}
		_, rest, _ := strings.Cut(v.DOM, `<pre id="shapes">`)
		text, _, _ := strings.Cut(rest, "</pre>")
		if err := json.Unmarshal([]byte(text), &shapes); err != nil {
			t.Fatalf("%v\n%.2000s", err, v.DOM)
		}
		spans := 0
		rec := read(t, recorded)
		for _, run := range rec.Runs {
			if run.World == "real" {
				line := timeline.New(rec.Scenario, run.Events)
				spans += len(line.Doing) + len(line.Standing)
			}
		}
		if got := shapes["timeline"].Shapes; got < spans {
			t.Errorf("the timeline has %d shapes for %d spans", got, spans)
		}
		for id, words := range map[string][]string{
			"timeline": {"baseline, measured", "w3 sidelined in rounds 2, 3; evicted in round 4", "round 1", "90 ms", "h0: w2", "of-a-very-long-na…: w0"},
			"rounds":   {"baseline, measured", "straggler, measured", "20 ms"},
			"arrivals": {"w3", "100 µs", "round"},
			"links":    {"w0 → w1", "w2 → w0", "Mbit/s"},
		} {
			for _, word := range words {
				if !strings.Contains(shapes[id].Text, word) {
					t.Errorf("picture %s does not say %q: %s", id, word, shapes[id].Text)
				}
			}
		}
	})
	t.Run("a phone in the dark", func(t *testing.T) {
		shot := filepath.Join(t.TempDir(), "phone.png")
		v := browser.Show(t, page(t), 390, "--dump-dom", "--blink-settings=preferredColorScheme=0", "--force-dark-mode", "--screenshot="+shot)
		v.IsQuiet(t)
		var drawn, width int
		if _, err := fmt.Sscanf(v.Title(t), "%d %d", &drawn, &width); err != nil || drawn != 4 || width > 390 {
			t.Errorf("%q: want 4 pictures, at most 390 wide: %v", v.Title(t), err)
		}
		f, err := os.Open(shot)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		img, err := png.Decode(f)
		if err != nil {
			t.Fatal(err)
		}
		if c := color.GrayModel.Convert(img.At(2, 2)).(color.Gray); c.Y > 60 {
			t.Errorf("the page is not dark: its corner is %v", img.At(2, 2))
		}
	})
}
