package lighthouse_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"testbed/internal/browser"
	"testbed/torchft/lighthouse"
	"testbed/torchft/port"
)

// TestInABrowser: the page shows what is new without being loaded again, and
// kills whom a person has confirmed, with the token that it asks for.
func TestInABrowser(t *testing.T) {
	chromium := browser.Find(t)
	var killed atomic.Value
	var views atomic.Int64
	d := lighthouse.Dashboard{
		View: func() lighthouse.View {
			v := view()
			v.QuorumID = 100 + views.Add(1)
			return v
		},
		Kill:  func(_ context.Context, id string) error { killed.Store(id); return nil },
		Right: port.KillRight{Token: "secret", Loopback: true},
	}
	handler := d.Handler()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			handler.ServeHTTP(w, r)
			return
		}
		// A person who confirms everything; the page's policy would not let them in.
		page := httptest.NewRecorder()
		handler.ServeHTTP(page, r)
		fmt.Fprint(w, strings.Replace(page.Body.String(), "</body>", `<script>
window.confirm = text => { document.title = text; return true; };
window.prompt = () => 'secret';
document.querySelector('[data-kill="b:2"]').click();
</script></body>`, 1))
	}))
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
		"--disable-background-networking", "--user-data-dir="+filepath.Join(t.TempDir(), "profile"), "--enable-logging=stderr",
		"--virtual-time-budget=5000", "--dump-dom", server.URL+"/")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	var dom, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &dom, &said
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, said.String())
	}
	if killed.Load() != "b:2" {
		t.Errorf("killed: %v", killed.Load())
	}
	for _, want := range []string{"<title>Kill b:2?", "Killed b:2."} {
		if !strings.Contains(dom.String(), want) {
			t.Errorf("the page has no %q:\n%.3000s", want, dom.String())
		}
	}
	if strings.Contains(dom.String(), "Quorum 101:") {
		t.Error("the page is as it was loaded")
	}
	for line := range strings.Lines(said.String()) {
		if strings.Contains(line, "CONSOLE") && !strings.Contains(line, "403") { // without the token
			t.Errorf("on the console: %s", line)
		}
	}
}
