package quicring

import (
	"bufio"
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"testbed/allreduce"
	"testbed/allreduce/codec"
	"testbed/allreduce/entropy"
)

// sparse is vectors of few numbers beside zeros, all of them small whole ones in
// a power of two: exact on every machine, and easy to shorten.
func sparse(seed uint64, n, length int) [][]float32 {
	r := rand.New(rand.NewPCG(seed, 9))
	vectors := make([][]float32, n)
	for k := range vectors {
		vectors[k] = make([]float32, length)
		for i := range vectors[k] {
			if x := r.IntN(801) - 400; r.IntN(4) == 0 {
				vectors[k][i] = float32(x) / 64
			}
		}
	}
	return vectors
}

// sentFrames are the frames that rank 0 sends in a reduction, in the order in
// which its queues have them, each with the end of a stream behind the last.
func sentFrames(t *testing.T, a allreduce.Algorithm, cfg Config) (frames [][]byte) {
	const ranks, length = 3, 3*160 + 1
	inputs := sparse(1, ranks, length)
	peers := make([]Peer, ranks)
	for k := range peers {
		peers[k].Name = fmt.Sprintf("w%d", k)
	}
	runs := make([]*run, ranks)
	for k := range runs {
		op := Op{Epoch: 7, Round: 3, Rank: k, Peers: peers, Algorithm: a, Groups: []int{0, 0, 1}, Residual: make([]float32, length)}
		runs[k] = (&Endpoint{cfg: cfg}).newRun(op, inputs[k], make([]float32, length), time.Now())
	}
	var coder codec.Coder
	for moved := true; moved; {
		moved = false
		for k, r := range runs {
			for _, f := range r.flows {
				for j, more := next(f.jobs); more; j, more = next(f.jobs) {
					moved = true
					frame := r.algorithm.frame(nil, j, &coder)
					if k == 0 {
						frames = append(frames, frame)
					}
					receive(t, runs[f.to.rank(peers)], k, frame)
				}
			}
		}
	}
	for k, r := range runs {
		if n := r.due.Load(); n != 0 {
			t.Fatalf("rank %d still waits for %d frames", k, n)
		}
	}
	return append(frames, allreduce.AppendHeader(nil, runs[0].endHeader(1)))
}

// next takes a job if there is one.
func next(jobs chan job) (j job, ok bool) {
	select {
	case j, ok = <-jobs:
	default:
	}
	return j, ok
}

func (p Peer) rank(peers []Peer) int {
	for k := range peers {
		if peers[k] == p {
			return k
		}
	}
	return -1
}

// receive does with a frame what a reader of its stream does.
func receive(t *testing.T, r *run, from int, frame []byte) {
	t.Helper()
	h, err := allreduce.ParseHeader(frame)
	if err != nil {
		t.Fatal(err)
	}
	codes, err := r.claim(from, h)
	if err != nil {
		t.Fatal(err)
	}
	payload := frame[allreduce.HeaderLen:]
	if h.Coding == allreduce.Plain {
		copy(codes, payload)
	} else if err := r.codec.Restore(codes, payload, h, new(codec.Coder)); err != nil {
		t.Fatal(err)
	}
	r.algorithm.arrived(from, h, codes, payload)
	r.due.Add(-1)
}

// TestFramesStay compares the frames of reductions, byte for byte, with those
// that this version of the wire format has always had, and encodes again what
// each of them holds. Another format is another version, in the header and in the
// protocol's name.
func TestFramesStay(t *testing.T) {
	var got bytes.Buffer
	for _, c := range []struct {
		algorithm allreduce.Algorithm
		bits      int
		entropy   entropy.Mode
	}{
		{allreduce.Ring, 4, entropy.Off}, {allreduce.Ring, 4, entropy.On},
		{allreduce.Ring, 8, entropy.Off}, {allreduce.Ring, 8, entropy.On},
		{allreduce.Ring, 16, entropy.Off}, {allreduce.Ring, 32, entropy.Off},
		{allreduce.Direct, 8, entropy.On}, {allreduce.Hierarchical, 4, entropy.Off},
	} {
		cfg := Config{Format: allreduce.Format{Bits: c.bits, Block: 32}, PieceValues: 96, Entropy: c.entropy}
		short := 0
		for _, frame := range sentFrames(t, c.algorithm, cfg) {
			fmt.Fprintf(&got, "%v %d %s %x\n", c.algorithm, c.bits, c.entropy, frame)
			h, err := allreduce.ParseHeader(frame)
			if err != nil {
				t.Fatal(err)
			}
			if h.Coding != allreduce.Plain {
				short++
			}
			if again := encodedAgain(t, h, frame[allreduce.HeaderLen:]); !bytes.Equal(again, frame) {
				t.Errorf("%v, %d bits, entropy %s: %x encodes back to %x", c.algorithm, c.bits, c.entropy, frame, again)
			}
		}
		if (short > 0) != (c.entropy == entropy.On) {
			t.Errorf("%v, %d bits, entropy %s: %d shortened frames", c.algorithm, c.bits, c.entropy, short)
		}
	}
	file, err := os.Open("testdata/frames.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	want, have := bufio.NewScanner(file), bufio.NewScanner(&got)
	for n := 1; ; n++ {
		more, line := want.Scan(), have.Scan()
		if !more && !line {
			break
		}
		if want.Text() != have.Text() {
			t.Fatalf("frame %d is\n%s\nwant\n%s", n, have.Text(), want.Text())
		}
	}
}

// encodedAgain decodes a frame to its codes and encodes them.
func encodedAgain(t *testing.T, h allreduce.Header, payload []byte) []byte {
	t.Helper()
	if h.Phase == allreduce.End {
		return allreduce.AppendHeader(nil, h)
	}
	c := codec.Codec{Format: h.Format, Short: h.Coding != allreduce.Plain}
	codes := payload
	if c.Short {
		codes = make([]byte, c.EncodedLen(int(h.Count)))
		if err := c.Restore(codes, payload, h, new(codec.Coder)); err != nil {
			t.Fatal(err)
		}
	}
	h.Coding, h.Payload = allreduce.Plain, uint32(len(codes))
	return c.AppendFrame(nil, h, codes, new(codec.Coder))
}
