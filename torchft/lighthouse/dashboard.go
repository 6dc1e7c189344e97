package lighthouse

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"net"
	"net/http"
	"strings"
	"time"

	"testbed/torchft/port"
)

// MaxShown is the largest number of replicas in a list of the page: a browser
// redraws it every second.
const MaxShown = 200

// View is the content of the page. Ages are as of the making of the view.
type View struct {
	Next string // what would decide on a quorum now

	QuorumID     int64 // 0: there has been none
	Age          time.Duration
	MaxStep      int64
	Participants int
	Members      []Member // MaxShown of them at most

	Known      int         // replica ids that are remembered
	Heartbeats []Heartbeat // MaxShown of them at most

	History []Change // the latest first
}

// Member is a participant of the last quorum.
type Member struct {
	Rank          int // among the participants
	ReplicaID     string
	Address       string // of its manager
	StoreAddress  string
	Step          int64
	WorldSize     uint64
	Healing       bool   // it is behind
	HealsFrom     string // a replica id; that of group rank 0
	HealsFromRank int
	Heartbeat     Heartbeat
}

// Heartbeat is a replica's last sign of life.
type Heartbeat struct {
	ReplicaID string
	Age       time.Duration
	Old       bool // older than the heartbeat time-out, or forgotten
	Asking    bool // it waits for a quorum
}

// Change is a quorum id: its changes, and the number of quorums with it.
type Change struct {
	QuorumID     int64
	First, Last  time.Time
	Quorums      int
	Participants int
	Why          string
	Came, Gone   Names
	Failed       Names // to commit: the reason for the new id
}

// Names are replica ids, a few of which are kept.
type Names struct {
	First []string
	More  int // number of ids not in First
}

// Dashboard serves the page.
type Dashboard struct {
	View func() View
	// Kill ends a participant of the last quorum.
	Kill  func(ctx context.Context, replicaID string) error
	Right port.KillRight // who may
}

//go:embed page.css
var style string

//go:embed page.js
var script string

//go:embed page.html
var pageText string

//go:embed status.html
var statusText string

var page = template.Must(template.New("page").Parse(pageText))

var fragment = template.Must(template.New("status").Funcs(template.FuncMap{
	"age":   age,
	"names": names,
	"clock": func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") },
	"more":  func(all, shown int) int { return all - shown },
}).Parse(statusText))

// policy allows a browser to run the page's own script and style, and to call
// this server.
var contentPolicy = "default-src 'none'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'" +
	"; script-src '" + digest(script) + "'; style-src '" + digest(style) + "'"

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// Handler answers / (the page), /status (its changing part, as HTML) and POST
// /replica/{id}/kill, at the paths of torchft's dashboard.
func (d *Dashboard) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		d.write(w, page, struct {
			Style  template.CSS
			Script template.JS
			Status template.HTML
		}{template.CSS(style), template.JS(script), template.HTML(d.status())})
	})
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { d.write(w, fragment, d.View()) })
	mux.HandleFunc("POST /replica/{id}/kill", d.kill)
	return http.NewCrossOriginProtection().Handler(d.ownHost(mux))
}

func (d *Dashboard) status() string {
	var b bytes.Buffer
	_ = fragment.Execute(&b, d.View())
	return b.String()
}

func (d *Dashboard) write(w http.ResponseWriter, t *template.Template, data any) {
	var b bytes.Buffer
	if err := t.Execute(&b, data); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(b.Bytes())
}

// ownHost makes a server on loopback answer to names of this machine only. A
// foreign page whose name has been made to resolve to 127.0.0.1 is refused.
func (d *Dashboard) ownHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		ip := net.ParseIP(strings.Trim(host, "[]"))
		if d.Right.Loopback && host != "localhost" && !ip.IsLoopback() {
			http.Error(w, fmt.Sprintf("this lighthouse listens on loopback only, and %q is not one of its names: use localhost", host), http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (d *Dashboard) kill(w http.ResponseWriter, r *http.Request) {
	if err := d.Right.Check(r.Header.Get("Authorization")); err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	if err := d.Kill(r.Context(), r.PathValue("id")); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError) // as torchft's does
		return
	}
	_, _ = fmt.Fprintln(w, "killed")
}

// age writes a duration for a person.
func age(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", max(d, 0).Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0f min", d.Minutes())
	}
	return fmt.Sprintf("%.0f h", d.Hours())
}

func names(n Names) string {
	s := strings.Join(n.First, ", ")
	if n.More > 0 {
		s += fmt.Sprintf(" and %d more", n.More)
	}
	return s
}
