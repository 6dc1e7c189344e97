//go:build linux

package bench

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"testbed/allreduce/bench"
	"testbed/emulation/network"
)

// iperf3 lets every node send its successor over TCP as much as a ring
// all-reduce with 8 bit per value does, all at once.
type iperf3 struct {
	tcp, port string
	servers   []*tool
}

const (
	iperf3Missing = "iperf3 is not installed; install it with apt-get install iperf3"
)

// iperf3Report has the relevant part of the client's report.
type iperf3Report struct {
	Error string `json:"error"`
	End   struct {
		Received struct {
			Rate float64 `json:"bits_per_second"`
		} `json:"sum_received"`
		CPU struct {
			Host   float64 `json:"host_total"` // percent
			Remote float64 `json:"remote_total"`
		} `json:"cpu_utilization_percent"`
	} `json:"end"`
}

func (*iperf3) fits(*bench.Settings) error { return nil }

func (*iperf3) memory(*bench.Settings) int64 { return 10 << 20 }

func (p *iperf3) find(b *benchmark) (string, error) {
	t, err := b.startTool(network.Hub, nil, "iperf3", "--version")
	if errors.Is(err, exec.ErrNotFound) {
		return "", errors.New(iperf3Missing)
	}
	if err != nil {
		return "", fmt.Errorf("iperf3 cannot be started: %w", err)
	}
	version, err := t.finish(network.StartupPatience)
	if err != nil {
		return "", err
	}
	name, _, _ := strings.Cut(string(version), " (")
	return name, nil
}

func (*iperf3) players(b *benchmark, tcp string) []player {
	return []player{&iperf3{tcp: tcp, port: b.port()}}
}

func (*iperf3) ways() []way { return []way{{result: bench.Rival{Name: "iperf3"}}} }

func (p *iperf3) start(b *benchmark) error {
	for _, name := range b.spec.Nodes {
		server, err := b.startTool(b.network.NS(name), nil, "iperf3", "--server", "--port", p.port, "--forceflush")
		if err != nil {
			return err
		}
		p.servers = append(p.servers, server)
	}
	return nil
}

func (p *iperf3) await(*benchmark) error {
	for _, server := range p.servers {
		if err := server.awaitText("listening"); err != nil {
			return err
		}
	}
	return nil
}

// awaitText waits until the program has printed the text, and keeps reading, so
// that the program never has to wait.
func (t *tool) awaitText(text string) error {
	if err := t.out.SetReadDeadline(time.Now().Add(network.StartupPatience)); err != nil {
		return err
	}
	var seen []byte
	buf := make([]byte, 4096)
	for !strings.Contains(string(seen), text) {
		n, err := t.out.Read(buf)
		if err != nil {
			return fmt.Errorf("waiting for %s to print %q: %w", t.name, text, err)
		}
		seen = append(seen, buf[:n]...)
	}
	if err := t.out.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	go func() { _, _ = io.Copy(io.Discard, t.out) }() // ends when out is closed
	return nil
}

var (
	// errNothing is an occasional report of iperf3 for a transfer of a few
	// milliseconds. On a busy machine it may come several times in a row.
	errNothing = errors.New("an iperf3 server received no data")
	// errBetween is the error of a client whose server has not tidied up after the
	// client before: meanwhile it does not listen.
	errBetween = errors.New("an iperf3 server is not ready for the next transfer")
)

func (p *iperf3) once(b *benchmark, _ way) (seconds, cpu float64, err error) {
	begin := time.Now()
	for {
		seconds, cpu, err = p.transfer(b)
		again := errors.Is(err, errNothing) || errors.Is(err, errBetween)
		if !again || time.Since(begin) > network.StartupPatience {
			return seconds, cpu, err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (p *iperf3) transfer(b *benchmark) (seconds, cpu float64, err error) {
	n := len(b.workers)
	bytes := max(2*(n-1)*b.spec.Settings.Elements/n, 1)
	var clients []*tool
	defer func() {
		for _, c := range clients {
			c.end()
		}
	}()
	for rank, name := range b.spec.Nodes {
		c, err := b.startTool(b.network.NS(name), nil, "iperf3", "--client", b.network.Addr(b.spec.Nodes[(rank+1)%n]).String(),
			"--port", p.port, "--congestion", p.tcp, "--bytes", strconv.Itoa(bytes), "--json")
		if err != nil {
			return 0, 0, err
		}
		clients = append(clients, c)
	}
	for len(clients) > 0 {
		c := clients[0]
		clients = clients[1:]
		data, failed := c.finish(b.spec.Timeout)
		var r iperf3Report
		if err := json.Unmarshal(data, &r); err != nil {
			return 0, 0, cmp.Or(failed, fmt.Errorf("parsing the report of %s: %w", c.name, err))
		}
		if strings.Contains(r.Error, "refused") || strings.Contains(r.Error, "busy") {
			return 0, 0, fmt.Errorf("%w: %s", errBetween, r.Error)
		}
		if r.Error != "" {
			return 0, 0, errors.New(r.Error)
		}
		if failed != nil {
			return 0, 0, fmt.Errorf("%w: %w", errNothing, failed)
		}
		if r.End.Received.Rate == 0 {
			return 0, 0, errNothing
		}
		// Not its seconds: it stops when the last byte is passed to the kernel, and
		// fewer bytes may have been received by then.
		took := float64(bytes) * 8 / r.End.Received.Rate
		seconds = max(seconds, took)
		cpu += took * (r.End.CPU.Host + r.End.CPU.Remote) / 100
	}
	return seconds, cpu, nil
}

func (p *iperf3) stop() {
	for _, s := range p.servers {
		s.end()
	}
	p.servers = nil
}
