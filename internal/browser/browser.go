// Package browser opens pages in Chromium, for tests of what they draw and of
// the requests that they make.
package browser

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"testbed/internal/testenv"
)

// Find finds Chromium, which the test needs.
func Find(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	testenv.Need(t, errors.New("no Chromium is installed (apt-get install chromium)"))
	return ""
}

// Visit is the result of opening a page in the browser.
type Visit struct {
	DOM     string   // after its scripts have run
	Console []string // its console output, including errors
	Asked   []string // addresses that the page tried to reach
}

var (
	consoleLine = regexp.MustCompile(`INFO:CONSOLE[^"]*"(.*)", source: `)
	request     = regexp.MustCompile(`"initiator":"([^"]*)".*"url":"([^"]*)"`)
)

// Open shows a file to a browser that reaches no network, with an empty
// profile. Requests that the browser makes by itself are not the page's: they
// name no page as their initiator.
func Open(t *testing.T, file string, flags ...string) Visit {
	t.Helper()
	return open(t, file, append(flags, "--virtual-time-budget=5000"))
}

func open(t *testing.T, file string, flags []string) Visit {
	t.Helper()
	// So long that only a hanging browser exceeds it, even on a busy machine.
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	dir := t.TempDir()
	netLog := filepath.Join(dir, "net.json")
	args := append([]string{
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage",
		"--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
		"--user-data-dir=" + filepath.Join(dir, "profile"), "--host-resolver-rules=MAP * ~NOTFOUND",
		"--enable-logging=stderr", "--log-net-log=" + netLog, "--hide-scrollbars",
		"--allow-file-access-from-files",
	}, append(flags, "file://"+file)...)
	cmd := exec.CommandContext(ctx, Find(t), args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it ends its own processes
	cmd.WaitDelay = time.Minute
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, stderr.String())
	}
	v := Visit{DOM: stdout.String()}
	for _, m := range consoleLine.FindAllStringSubmatch(stderr.String(), -1) {
		v.Console = append(v.Console, m[1])
	}
	log, err := os.ReadFile(netLog)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(log)) { // one event a line
		m := request.FindStringSubmatch(line)
		if m != nil && m[1] != "not an origin" && !strings.HasPrefix(m[2], "file:") && !strings.HasPrefix(m[2], "data:") {
			v.Asked = append(v.Asked, m[2])
		}
	}
	return v
}

// IsQuiet checks that the page has written nothing and made no requests.
func (v Visit) IsQuiet(t *testing.T) {
	t.Helper()
	if len(v.Console) > 0 {
		t.Errorf("the page wrote on the console: %q", v.Console)
	}
	if len(v.Asked) > 0 {
		t.Errorf("the page requested %q", v.Asked)
	}
}

var titleText = regexp.MustCompile(`<title>(.*)</title>`)

// Title returns the title of the page.
func (v Visit) Title(t *testing.T) string {
	t.Helper()
	m := titleText.FindStringSubmatch(v.DOM)
	if m == nil {
		t.Fatalf("no title in\n%.2000s", v.DOM)
	}
	return m[1]
}

// Show shows the page in a frame of a width: a browser's window cannot be as
// narrow as a phone. The frame's page is inspected from outside, because its
// own security policy allows no other script.
func Show(t *testing.T, file string, width int, flags ...string) Visit {
	t.Helper()
	frame := filepath.Join(filepath.Dir(file), "frame.html")
	page := `<!DOCTYPE html><title>not loaded</title><meta name="color-scheme" content="light dark"><style>body { margin: 0 } iframe { border: 0; display: block }</style>
<iframe src="` + filepath.Base(file) + `" width="` + strconv.Itoa(width) + `" height="4000"></iframe><pre id="shapes"></pre>
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
</script>`
	if err := os.WriteFile(frame, []byte(page), 0o644); err != nil {
		t.Fatal(err)
	}
	return Open(t, frame, append(flags, fmt.Sprintf("--window-size=%d,4000", max(width, 500)))...)
}

var answer = regexp.MustCompile(`(?s)<pre id="answer">(.*)</pre>`)

// Drive shows the page in a frame of a width and runs a script on it. The
// script is the body of an async function; inner is the page's document, and
// until waits for a function's condition. Its result is stored in v. Time is
// real here, because virtual time does not cover background compilation in a
// browser.
func Drive(t *testing.T, file string, width int, script string, v any, flags ...string) Visit {
	t.Helper()
	frame := filepath.Join(filepath.Dir(file), "frame.html")
	// A browser considers a loaded page finished; a frame that is being written to
	// delays that.
	page := `<!DOCTYPE html><title>driven</title><meta name="color-scheme" content="light dark"><style>body { margin: 0 } iframe { border: 0; display: block }</style>
<pre id="answer"></pre><iframe id="page" width="` + strconv.Itoa(width) + `" height="4000"></iframe><iframe id="holding" height="1"></iframe>
<script>
const holding = document.getElementById('holding').contentDocument, page = document.getElementById('page');
holding.open();
holding.write('busy');
const until = holds => new Promise(done => {
  const look = () => { if (holds()) done(); else setTimeout(look, 10); };
  look();
});
page.addEventListener('load', async () => {
  let answer;
  try {
    const inner = page.contentDocument;
    answer = await (async () => {` + script + `})();
  } catch (e) {
    console.error(String(e));
  }
  document.getElementById('answer').textContent = JSON.stringify(answer);
  holding.close();
});
page.src = ` + strconv.Quote(filepath.Base(file)) + `;
</script>`
	if err := os.WriteFile(frame, []byte(page), 0o644); err != nil {
		t.Fatal(err)
	}
	visit := open(t, frame, append(flags, "--dump-dom", fmt.Sprintf("--window-size=%d,4000", max(width, 500))))
	m := answer.FindStringSubmatch(visit.DOM)
	if m == nil {
		t.Fatalf("the script gave no answer; console %q\n%.2000s", visit.Console, visit.DOM)
	}
	if err := json.Unmarshal([]byte(html.UnescapeString(m[1])), v); err != nil {
		t.Fatalf("the script's answer %.200q: %v; console %q", m[1], err, visit.Console)
	}
	return visit
}
