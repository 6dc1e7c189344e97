package node

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"testbed/allreduce"
	"testbed/internal/memnet"
	"testbed/node/identity"
	"testbed/policy"
	"testbed/record"
	"testbed/scenarios"
)

// What the protocols are called; the end of a link's name may be anything.
const (
	ringALPN  = "testbed-ring/3/attacker/1"
	stateALPN = "testbed-state/2"
)

// attacker does what it can to a run in progress, from a socket of its own.
type attacker struct {
	*world
	ctx      context.Context
	conn     *memnet.Socket
	wg       sync.WaitGroup
	stranger *tls.Config // of another run, but trusting this one
	insider  *tls.Config // of this run, for a worker that the scenario lacks
	done     map[string]int
	mu       sync.Mutex
}

func (a *attacker) count(what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.done[what]++
}

// ports are where the run listens, by what they speak.
func (a *attacker) ports() map[netip.AddrPort]string {
	a.world.mu.Lock()
	defer a.world.mu.Unlock()
	ports := map[netip.AddrPort]string{}
	for addr, s := range a.net.Sockets() {
		if s == a.conn {
			continue
		}
		ports[addr] = controlALPN
		for _, n := range a.nodes {
			switch s {
			case n.sockets[1]:
				ports[addr] = ringALPN
			case n.sockets[2]:
				ports[addr] = stateALPN
			}
		}
	}
	return ports
}

// garbage sends noise, and packets of the run again: late, with bits flipped,
// cut short, and from another address.
func (a *attacker) garbage(seen <-chan memnet.Packet) {
	r := rand.New(rand.NewPCG(1, 1))
	for {
		select {
		case p := <-seen:
			a.count("replayed packets")
			time.Sleep(time.Millisecond)
			a.net.Inject(p)
			forged := append([]byte{}, p.Data[:1+r.IntN(len(p.Data))]...)
			forged[r.IntN(len(forged))] ^= 1 << r.IntN(8)
			a.net.Inject(memnet.Packet{From: p.From, To: p.To, Data: forged})
			a.conn.WriteTo(p.Data, net.UDPAddrFromAddrPort(p.To))
		case <-time.After(10 * time.Millisecond):
			for addr := range a.ports() {
				noise := make([]byte, 1+r.IntN(1400))
				for i := range noise {
					noise[i] = byte(r.Uint32())
				}
				noise[0] |= byte(r.IntN(2)) << 7 // also as the first packet of a connection
				a.conn.WriteTo(noise, net.UDPAddrFromAddrPort(addr))
				a.count("noise")
			}
		case <-a.ctx.Done():
			return
		}
	}
}

// dial connects to every port, again and again, and does something with the
// connection.
func (a *attacker) dial(transport *quic.Transport, config *tls.Config, do func(conn *quic.Conn, stream *quic.Stream, alpn string)) {
	for a.ctx.Err() == nil {
		var wg sync.WaitGroup
		for addr, alpn := range a.ports() {
			wg.Go(func() {
				config := identity.For(config, alpn, "")
				config.InsecureSkipVerify = true
				ctx, cancel := context.WithTimeout(a.ctx, 300*time.Millisecond)
				defer cancel()
				conn, err := transport.Dial(ctx, net.UDPAddrFromAddrPort(addr), config, &quic.Config{InitialPacketSize: initialPacket})
				if err != nil {
					return
				}
				defer conn.CloseWithError(0, "")
				if stream, err := conn.OpenStream(); err == nil {
					stream.SetDeadline(time.Now().Add(200 * time.Millisecond))
					do(conn, stream, alpn)
				}
			})
		}
		wg.Wait()
		select {
		case <-time.After(20 * time.Millisecond):
		case <-a.ctx.Done():
		}
	}
}

// words are what an attacker says that the TLS handshake has let in.
func words(alpn string, i int) string {
	long := strings.Repeat("x", 2*maxMessage)
	switch alpn {
	case controlALPN:
		return []string{
			"nonsense\n", long, `{"type":"hello","protocol":1,"id":9,"ring":"10.0.0.9:1","fetch":"10.0.0.9:2"}` + "\n",
			`{"type":"hello","protocol":1,"id":1,"ring":"10.0.0.9:1","fetch":"10.0.0.9:2"}` + "\n",
			`{"type":"reduced","round":1,"epoch":1}` + "\n", `{"type":"leave"}` + "\n", `{"type":"hello","protocol":`,
		}[i%7]
	case stateALPN:
		return []string{
			"nonsense\n", long, `{"outer_steps":1,"from":-1,"to":5}`, `{"hash":"feed","from":0,"to":3}`,
			`{"outer_steps":1000000}`, `{"outer_steps":0,"to":1000000}`, `{"outer_`,
		}[i%7]
	}
	// A frame of an epoch of the past, or of the future, as a worker of the
	// ring would send it; and one cut short.
	h := allreduce.Header{Phase: allreduce.ReduceScatter, Epoch: uint64(i % 8), Length: 1500, Round: uint32(i % 8), Ranks: 4, Count: 375, Format: allreduce.DefaultFormat}
	h.Payload = uint32(h.Format.EncodedLen(int(h.Count)))
	frame := string(allreduce.AppendHeader(nil, h)) + strings.Repeat("\x7f", int(h.Payload))
	return []string{frame, frame[:20], long}[i%3]
}

// TestHostilePeers: a run under attack from all sides does what it does in
// peace, in about the same time.
func TestHostilePeers(t *testing.T) {
	for _, name := range scenarios.PolicyNames {
		t.Run(name, func(t *testing.T) {
			run := func(attack bool) (sum record.Summary) {
				memnet.Bubble(t, func(t *testing.T) {
					s := worldScenario(t, 4)
					straggler(s).MinSlack = 200
					s.Workers[3].JoinAt = 2800 // there is a fetch to disturb
					s.Policy.Join = policy.JoinNext
					w := newWorld(t, s)
					stop := func() {}
					if attack {
						stop = w.attack(t)
					}
					var events []record.Event
					sum, events = w.play(name, time.Hour)
					stop()
					if err := checkLineage(s, events); err != nil || !sum.Complete || len(w.failed) > 0 {
						t.Errorf("complete %v, %q, %v", sum.Complete, w.failed, err)
					}
					if len(sum.Evicted)+len(sum.Sidelined) > 0 {
						t.Errorf("evicted %+v, sidelined %+v", sum.Evicted, sum.Sidelined)
					}
				})
				return sum
			}
			peace, war := run(false), run(true)
			if 10*war.WallClock > 11*peace.WallClock {
				t.Errorf("under attack the run took %d µs, else %d", war.WallClock, peace.WallClock)
			}
		})
	}
}

// attack begins all attacks and returns what ends them.
func (w *world) attack(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	a := &attacker{world: w, ctx: ctx, conn: w.net.Listen("w0"), done: map[string]int{}, insider: memnet.TLS(t, "w9")}
	theirs, err := identity.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	c, err := theirs.Issue("w1")
	if err != nil {
		t.Fatal(err)
	}
	if a.stranger, err = c.TLS(); err != nil {
		t.Fatal(err)
	}
	seen := make(chan memnet.Packet, 64)
	n := 0
	w.net.Tap = func(p memnet.Packet) {
		if n++; n%7 == 0 && p.From != a.conn.Addr {
			select {
			case seen <- p:
			default:
			}
		}
	}
	transport := &quic.Transport{Conn: a.conn}
	a.wg.Go(func() { a.garbage(seen) })
	a.wg.Go(func() {
		a.dial(transport, a.stranger, func(conn *quic.Conn, stream *quic.Stream, alpn string) {
			a.count("stranger's connections")
			stream.Write([]byte(words(alpn, 0)))
			b := make([]byte, 100)
			if n, _ := stream.Read(b); n > 0 {
				w.fail("a stranger got the answer %q", b[:n])
			}
		})
	})
	a.wg.Go(func() {
		i := 0
		a.dial(transport, a.insider, func(conn *quic.Conn, stream *quic.Stream, alpn string) {
			a.mu.Lock()
			i++
			say := words(alpn, i)
			a.mu.Unlock()
			a.count("insider's streams to " + alpn)
			stream.Write([]byte(say))
			io.Copy(io.Discard, stream)
		})
	})
	// Slow loris: connections that stay open and say a byte at a time.
	slow := &quic.Transport{Conn: w.net.Listen("w0")}
	for range 3 {
		a.wg.Go(func() {
			a.dial(slow, a.insider, func(conn *quic.Conn, stream *quic.Stream, alpn string) {
				a.count("slow streams to " + alpn)
				stream.SetDeadline(time.Time{})
				for _, b := range []byte(words(alpn, 6)) {
					if _, err := stream.Write([]byte{b}); err != nil {
						break
					}
					select {
					case <-time.After(30 * time.Millisecond):
					case <-a.ctx.Done():
						return
					}
				}
			})
		})
	}
	return func() {
		cancel()
		a.wg.Wait()
		transport.Close()
		slow.Close()
		for _, s := range []net.PacketConn{a.conn, slow.Conn} {
			s.Close()
		}
		for _, what := range []string{
			"noise", "replayed packets", "stranger's connections",
			"insider's streams to " + controlALPN, "insider's streams to " + stateALPN, "insider's streams to " + ringALPN,
			"slow streams to " + controlALPN, "slow streams to " + stateALPN, "slow streams to " + ringALPN,
		} {
			if a.done[what] == 0 {
				t.Errorf("the attack had no %s", what)
			}
		}
		t.Log(fmt.Sprint(a.done))
	}
}
