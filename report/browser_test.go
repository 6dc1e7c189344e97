package report_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image/color"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"testbed/report"
)

// browser finds Chromium. Without it a test is skipped with the reason, but
// fails in CI: there a skip would be a test that nobody runs.
func browser(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	err := errors.New("no Chromium is installed (apt-get install chromium)")
	if os.Getenv("CI") == "true" {
		t.Fatalf("in CI this test may not be skipped: %v", err)
	}
	t.Skip(err)
	return ""
}

// visit is what came of a page in the browser.
type visit struct {
	dom     string   // after its scripts have run
	console []string // what they wrote, errors included
	asked   []string // addresses that the page tried to reach
}

var (
	consoleLine = regexp.MustCompile(`INFO:CONSOLE[^"]*"(.*)", source: `)
	request     = regexp.MustCompile(`"initiator":"([^"]*)".*"url":"([^"]*)"`)
)

// open shows a file to a browser that reaches no network, with an empty
// profile. What the browser asks for of its own accord is no matter of the
// page's: its requests name no page as their initiator.
func open(t *testing.T, file string, flags ...string) visit {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	dir := t.TempDir()
	netLog := filepath.Join(dir, "net.json")
	args := append([]string{
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage",
		"--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
		"--user-data-dir=" + filepath.Join(dir, "profile"), "--host-resolver-rules=MAP * ~NOTFOUND",
		"--enable-logging=stderr", "--log-net-log=" + netLog, "--hide-scrollbars", "--virtual-time-budget=5000",
		"--allow-file-access-from-files",
	}, append(flags, "file://"+file)...)
	cmd := exec.CommandContext(ctx, browser(t), args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it ends its own processes
	cmd.WaitDelay = 5 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, stderr.String())
	}
	v := visit{dom: stdout.String()}
	for _, m := range consoleLine.FindAllStringSubmatch(stderr.String(), -1) {
		v.console = append(v.console, m[1])
	}
	log, err := os.ReadFile(netLog)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(log)) { // one event a line
		m := request.FindStringSubmatch(line)
		if m != nil && m[1] != "not an origin" && !strings.HasPrefix(m[2], "file:") && !strings.HasPrefix(m[2], "data:") {
			v.asked = append(v.asked, m[2])
		}
	}
	return v
}

// page writes the report of the recorded comparison, in which nothing is
// trusted: its description is made to reach out and to write on the console.
func page(t *testing.T) string {
	t.Helper()
	rec := read(t, recorded)
	rec.Scenario.Description = `</script><script>console.error("let in")</script><img src="http://example.invalid/x.png">`
	file := filepath.Join(t.TempDir(), "report.html")
	write(t, html(t, rec), file)
	return file
}

// TestInABrowser: the page draws its pictures without a word on the console
// and without reaching out.
func TestInABrowser(t *testing.T) {
	browser(t)
	t.Run("the checks see what they are for", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "bad.html")
		write(t, `<script>console.error("seen"); nowhere()</script><img src="http://example.invalid/x.png">`, file)
		v := open(t, file, "--dump-dom")
		if len(v.console) != 2 || v.console[0] != "seen" || !strings.Contains(v.console[1], "nowhere is not defined") {
			t.Errorf("console %q", v.console)
		}
		if len(v.asked) == 0 || v.asked[0] != "http://example.invalid/x.png" {
			t.Errorf("asked for %q", v.asked)
		}
	})
	t.Run("wide and light", func(t *testing.T) {
		v := show(t, page(t), 1200, "--dump-dom")
		v.isQuiet(t)
		var drawn, width int
		if _, err := fmt.Sscanf(v.title(t), "%d %d", &drawn, &width); err != nil || drawn != 4 || width > 1200 {
			t.Errorf("%q: want 4 pictures, at most 1200 wide: %v", v.title(t), err)
		}
		// All that the pictures are to show is in them.
		var shapes map[string]struct {
			Shapes int
			Text   string
		}
		_, rest, _ := strings.Cut(v.dom, `<pre id="shapes">`)
		text, _, _ := strings.Cut(rest, "</pre>")
		if err := json.Unmarshal([]byte(text), &shapes); err != nil {
			t.Fatalf("%v\n%.2000s", err, v.dom)
		}
		spans := 0
		rec := read(t, recorded)
		for _, run := range rec.Runs {
			if run.World == "real" {
				line := report.NewTimeline(rec.Scenario, run.Events)
				spans += len(line.Doing) + len(line.Standing)
			}
		}
		if got := shapes["timeline"].Shapes; got < spans {
			t.Errorf("the timeline has %d shapes for %d spans", got, spans)
		}
		for id, words := range map[string][]string{
			"timeline": {"baseline, measured", "w3 sidelined in rounds 2, 3; evicted in round 4", "round 1", "90 ms"},
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
		v := show(t, page(t), 390, "--dump-dom", "--blink-settings=preferredColorScheme=0", "--force-dark-mode", "--screenshot="+shot)
		v.isQuiet(t)
		var drawn, width int
		if _, err := fmt.Sscanf(v.title(t), "%d %d", &drawn, &width); err != nil || drawn != 4 || width > 390 {
			t.Errorf("%q: want 4 pictures, at most 390 wide: %v", v.title(t), err)
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

func (v visit) isQuiet(t *testing.T) {
	t.Helper()
	if len(v.console) > 0 {
		t.Errorf("on the console: %q", v.console)
	}
	if len(v.asked) > 0 {
		t.Errorf("the page asked for %q", v.asked)
	}
}

var titleText = regexp.MustCompile(`<title>(.*)</title>`)

func (v visit) title(t *testing.T) string {
	t.Helper()
	m := titleText.FindStringSubmatch(v.dom)
	if m == nil {
		t.Fatalf("no title in\n%.2000s", v.dom)
	}
	return m[1]
}

// show shows the page in a frame of a width: a browser's window cannot be as
// narrow as a phone. The frame's page is looked at from outside, because its
// own security policy lets no other script run.
func show(t *testing.T, file string, width int, flags ...string) visit {
	t.Helper()
	frame := filepath.Join(filepath.Dir(file), "frame.html")
	write(t, `<!DOCTYPE html><title>not loaded</title><meta name="color-scheme" content="light dark"><style>body { margin: 0 } iframe { border: 0; display: block }</style>
<iframe src="`+filepath.Base(file)+`" width="`+strconv.Itoa(width)+`" height="4000"></iframe><pre id="shapes"></pre>
<script>
addEventListener('load', () => {
  const inner = document.querySelector('iframe').contentDocument;
  document.title = inner.body.dataset.drawn + ' ' + inner.documentElement.scrollWidth;
  const shapes = {};
  for (const chart of inner.querySelectorAll('.chart')) {
    shapes[chart.id] = {
      shapes: chart.querySelectorAll('path, rect').length,
      text: [...chart.querySelectorAll('text')].map(t => t.textContent).join(' | '),
    };
  }
  // Every figure of a sweep is drawn once; the last one chosen is the second.
  const select = () => inner.querySelector('#controls select');
  if (select()) {
    const names = [...select().options].map(o => o.text);
    const drawn = names.map((name, k) => {
      select().value = k;
      select().dispatchEvent(new Event('change'));
      return inner.getElementById('caption').textContent.startsWith(name) && inner.querySelector('#sweep path') ? name : 'not ' + name;
    });
    select().value = 1;
    select().dispatchEvent(new Event('change'));
    shapes.figures = drawn.join(' ');
  }
  document.getElementById('shapes').textContent = JSON.stringify(shapes);
});
</script>`, frame)
	return open(t, frame, append(flags, fmt.Sprintf("--window-size=%d,4000", max(width, 500)))...)
}
