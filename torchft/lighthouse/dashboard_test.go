package lighthouse_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"testbed/torchft/lighthouse"
	"testbed/torchft/port"
)

func view() lighthouse.View {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	beat := lighthouse.Heartbeat{ReplicaID: "b:2", Age: 7 * time.Second, Old: true}
	return lighthouse.View{
		Next: "living replicas are awaited", QuorumID: 12, Age: 90 * time.Second, MaxStep: 41, Participants: 300,
		Members: []lighthouse.Member{
			{ReplicaID: "a:1", Step: 41, Address: "http://a:1", Heartbeat: lighthouse.Heartbeat{ReplicaID: "a:1", Age: 100 * time.Millisecond, Asking: true}},
			{Rank: 1, ReplicaID: "b:2", Step: 7, Healing: true, HealsFrom: "a:1", Heartbeat: beat},
			{Rank: 2, ReplicaID: `<script>alert("x")</script>`, Step: 41},
		},
		Known: 2, Heartbeats: []lighthouse.Heartbeat{{ReplicaID: "a:1", Asking: true}, beat},
		History: []lighthouse.Change{{
			QuorumID: 12, First: now, Last: now.Add(time.Minute), Quorums: 3, Participants: 300, Why: "all replicas of the last quorum ask for a quorum",
			Came: lighthouse.Names{First: []string{"a:1"}, More: 299}, Failed: lighthouse.Names{First: []string{"b:2"}},
		}},
	}
}

// request asks a dashboard, of which only this machine reaches what is on
// loopback, and returns what it says and who was killed.
func request(t *testing.T, right port.KillRight, method, path string, header ...string) (code int, body, killed string, h http.Header) {
	t.Helper()
	d := lighthouse.Dashboard{View: view, Right: right, Kill: func(_ context.Context, id string) error {
		if id == "gone" {
			return errors.New("replica gone is not in the last quorum")
		}
		killed = id
		return nil
	}}
	r := httptest.NewRequest(method, path, nil)
	r.Host = "127.0.0.1:29510"
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
		} else {
			r.Header.Set(header[i], header[i+1])
		}
	}
	w := httptest.NewRecorder()
	d.Handler().ServeHTTP(w, r)
	return w.Code, w.Body.String(), killed, w.Header()
}

func TestPage(t *testing.T) {
	for _, path := range []string{"/", "/status"} {
		code, body, _, h := request(t, port.KillRight{Loopback: true}, http.MethodGet, path)
		if code != http.StatusOK || !strings.HasPrefix(h.Get("Content-Type"), "text/html") {
			t.Errorf("%s: %d %s", path, code, h)
		}
		for _, want := range []string{
			"Quorum 12: 300 replicas at step 41, issued 90 s ago", "heals from rank 0", "7.0 s", "up to date, asks for a quorum", "forgotten", "and 297 more",
			"joined: <span class=\"id\">a:1 and 299 more</span>", "failed to commit: <span class=\"id\">b:2", "3 quorums, the last at 2026-01-02 03:05:05",
			"&lt;script&gt;alert", `data-kill="b:2"`,
		} {
			if !strings.Contains(body, want) {
				t.Errorf("%s has no %q", path, want)
			}
		}
		if strings.Contains(body, "<script>alert") {
			t.Errorf("%s: a replica's id is a script", path)
		}
		if path == "/" && (!strings.Contains(body, "setTimeout(update") || strings.Contains(body, "http://www") || strings.Contains(body, "https://")) {
			t.Errorf("the page has no script, or one from elsewhere")
		}
		if csp := h.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") || !strings.Contains(csp, "script-src 'sha256-") {
			t.Errorf("%s: policy %q", path, csp)
		}
	}
	if code, _, _, _ := request(t, port.KillRight{}, http.MethodGet, "/nothing"); code != http.StatusNotFound {
		t.Errorf("/nothing: %d", code)
	}
}

// TestKill: who may, from where, and what is said to the others.
func TestKill(t *testing.T) {
	here, token := port.KillRight{Loopback: true}, port.KillRight{Token: "x"}
	for _, c := range []struct {
		name   string
		right  port.KillRight
		path   string
		header []string
		code   int
		killed string
		words  string
	}{
		{"on loopback", here, "/replica/a:1/kill", nil, 200, "a:1", "killed"},
		{"an id with a slash", here, "/replica/a%2Fb%3A1/kill", nil, 200, "a/b:1", "killed"},
		{"unknown", here, "/replica/gone/kill", nil, 500, "", "not in the last quorum"},
		{"reached from elsewhere", port.KillRight{}, "/replica/a:1/kill", nil, 403, "", "--kill_token"},
		{"with the token", token, "/replica/a:1/kill", []string{"Authorization", "Bearer x"}, 200, "a:1", "killed"},
		{"with another", token, "/replica/a:1/kill", []string{"Authorization", "Bearer y"}, 403, "", "needs the token"},
		{"from another's page", here, "/replica/a:1/kill", []string{"Sec-Fetch-Site", "cross-site"}, 403, "", ""},
		{"from another's page, old browser", here, "/replica/a:1/kill", []string{"Origin", "http://evil.example"}, 403, "", ""},
		{"by another name for loopback", here, "/replica/a:1/kill", []string{"Host", "evil.example:29510"}, 421, "", "evil.example"},
		{"by the name of loopback", here, "/replica/a:1/kill", []string{"Host", "localhost:29510"}, 200, "a:1", ""},
		{"by an address of loopback", here, "/replica/a:1/kill", []string{"Host", "[::1]:29510"}, 200, "a:1", ""},
	} {
		code, body, killed, _ := request(t, c.right, http.MethodPost, c.path, c.header...)
		if code != c.code || killed != c.killed || !strings.Contains(body, c.words) {
			t.Errorf("%s: %d %q, killed %q; want %d %q, %q", c.name, code, body, killed, c.code, c.words, c.killed)
		}
	}
	if code, _, killed, _ := request(t, here, http.MethodGet, "/replica/a:1/kill"); code == http.StatusOK || killed != "" {
		t.Errorf("GET kills: %d", code)
	}
}
