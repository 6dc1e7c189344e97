package charlm

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"testbed/train"
)

// AdamW (Loshchilov and Hutter 2019) with the constants that are usual for
// language models, and the gradient clipped to a norm of 1.
const (
	beta1   = 0.9
	beta2   = 0.99
	epsilon = 1e-8
	clip    = 1
)

// moments are AdamW's state.
type moments struct {
	steps         uint64
	first, second []float32
}

func newMoments(parameters int) moments {
	return moments{first: make([]float32, parameters), second: make([]float32, parameters)}
}

func (m *moments) set(from *moments) {
	m.steps = from.steps
	copy(m.first, from.first)
	copy(m.second, from.second)
}

// trainer is a worker's inner optimiser.
type trainer struct {
	*task
	worker int
	rounds train.Rounds

	network            *network
	parameters         []float32
	gradient           []float32
	weights, gradients weights // views of them
	before, kept, now  moments // before and after the last kept round; in this round
	round, keptRound   int     // this round, and the last kept one
	tokens, targets    []byte
}

// none stands for no round.
const none = -1

func (t *task) Trainer(worker int) (train.Trainer, error) {
	if worker < 0 || worker >= len(t.shards) {
		return nil, fmt.Errorf("trainer of worker %d: the task is for workers 0 to %d", worker, len(t.shards)-1)
	}
	n := t.config.Parameters()
	r := &trainer{
		task: t, worker: worker, network: newNetwork(t.config, t.config.Batch, true),
		parameters: make([]float32, n), gradient: make([]float32, n), before: newMoments(n), kept: newMoments(n), now: newMoments(n), keptRound: none,
		tokens: make([]byte, t.TokensPerStep()), targets: make([]byte, t.TokensPerStep()),
	}
	r.weights, r.gradients = weightsOf(t.config, r.parameters), weightsOf(t.config, r.gradient)
	return r, nil
}

func (r *trainer) Begin(ctx context.Context, round int, outer []float32) error {
	if err := r.rounds.Begin(ctx, round, outer, len(r.parameters)); err != nil {
		return err
	}
	copy(r.parameters, outer)
	r.round = round
	if r.now.set(&r.kept); round == r.keptRound {
		r.now.set(&r.before)
	}
	return nil
}

// Step fails if the loss is not finite: then the training has diverged and
// cannot go on.
func (r *trainer) Step(ctx context.Context, n int) (loss float64, err error) {
	round, err := r.rounds.Step(ctx, n)
	if err != nil {
		return 0, err
	}
	r.windows(r.tokens, r.targets, r.stream(r.worker, round, n), r.shards[r.worker])
	r.network.forward(r.weights, r.tokens, r.config.Context)
	loss = r.network.loss(r.targets)
	if math.IsNaN(loss) || math.IsInf(loss, 0) {
		return 0, fmt.Errorf("the loss is %v: the training has diverged; lower train.inner.rate, now %v, or train.outer.rate", loss, r.config.Rate)
	}
	r.network.backward(r.gradients, r.weights, r.tokens, r.config.Context)
	r.update()
	return loss, nil
}

// update takes a step of AdamW.
func (r *trainer) update() {
	square := 0.0
	for _, g := range r.gradient {
		square += float64(float64(g) * float64(g))
	}
	shrink := float32(1)
	if square > clip*clip {
		shrink = float32(clip / math.Sqrt(square))
	}
	r.now.steps++
	rate := r.config.Rate
	if r.now.steps < uint64(r.config.Warmup) {
		rate *= float64(r.now.steps) / float64(r.config.Warmup)
	}
	// Both moments begin at 0, which this corrects.
	step := float32(rate / (1 - power(beta1, r.now.steps)))
	unbias := float32(1 / math.Sqrt(1-power(beta2, r.now.steps)))
	for _, l := range r.config.layers() {
		keep := float32(1)
		if len(l.Shape) > 1 {
			keep = float32(1 - float64(rate*r.config.Decay))
		}
		p, first, second := r.parameters[l.At:][:l.Len], r.now.first[l.At:][:l.Len], r.now.second[l.At:][:l.Len]
		for i, g := range r.gradient[l.At:][:l.Len] {
			g *= shrink
			first[i] = float32(beta1*first[i]) + float32((1-beta1)*g)
			second[i] = float32(beta2*second[i]) + float32((1-beta2)*float32(g*g))
			root := float32(float32(math.Sqrt(float64(second[i]))) * unbias)
			p[i] = float32(p[i]*keep) - float32(step*first[i])/(root+epsilon)
		}
	}
}

// power returns base^n by squaring: libraries differ.
func power(base float64, n uint64) float64 {
	result := 1.0
	for ; n > 0; n >>= 1 {
		if n&1 == 1 {
			result = float64(result * base)
		}
		base *= base
	}
	return result
}

// Adjust implements train.Adjuster.
func (r *trainer) Adjust(change func([]float32)) { change(r.parameters) }

func (r *trainer) Finish(local []float32) error {
	if err := r.rounds.Finish(local, len(r.parameters)); err != nil {
		return err
	}
	copy(local, r.parameters)
	return nil
}

func (r *trainer) Keep() {
	if r.round != r.keptRound { // otherwise the round was kept before, and has the same predecessor
		r.before, r.kept = r.kept, r.before
		r.keptRound = r.round
	}
	r.kept, r.now = r.now, r.kept
}

// stateVersion begins a state. After it come the number of steps taken and the
// number of parameters, 8 bytes each, and the first and the second moments as
// float32; all are little-endian.
const stateVersion = "charlm1\n"

const stateHeader = len(stateVersion) + 16

func (r *trainer) State() ([]byte, error) {
	state := []byte(stateVersion)
	state = binary.LittleEndian.AppendUint64(state, r.kept.steps)
	state = binary.LittleEndian.AppendUint64(state, uint64(len(r.parameters)))
	state, err := binary.Append(state, binary.LittleEndian, r.kept.first)
	if err != nil {
		return nil, err
	}
	return binary.Append(state, binary.LittleEndian, r.kept.second)
}

func (r *trainer) Restore(state []byte) error {
	r.rounds = train.Rounds{} // now holds nothing that counts between rounds
	n := len(r.parameters)
	if len(state) < stateHeader || string(state[:len(stateVersion)]) != stateVersion {
		return fmt.Errorf("restoring the inner optimiser: the state does not begin with %q, so another trainer wrote it", stateVersion)
	}
	if of := binary.LittleEndian.Uint64(state[len(stateVersion)+8:]); of != uint64(n) {
		return fmt.Errorf("restoring the inner optimiser: the state has the moments of %d parameters, but the model has %d", of, n)
	}
	if want := stateHeader + 8*n; len(state) != want {
		return fmt.Errorf("restoring the inner optimiser: the state has %d bytes instead of %d, so it is damaged", len(state), want)
	}
	m := &r.now
	m.steps = binary.LittleEndian.Uint64(state[len(stateVersion):])
	values := state[stateHeader:]
	for i := range n {
		m.first[i] = math.Float32frombits(binary.LittleEndian.Uint32(values[4*i:]))
		m.second[i] = math.Float32frombits(binary.LittleEndian.Uint32(values[4*(n+i):]))
		if !(math.Abs(float64(m.first[i])) <= math.MaxFloat32 && m.second[i] >= 0 && m.second[i] <= math.MaxFloat32) {
			return fmt.Errorf("restoring the inner optimiser: the moments of parameter %d are %v and %v, which training cannot produce", i, m.first[i], m.second[i])
		}
	}
	r.kept, r.now = r.now, r.kept
	r.keptRound = none
	return nil
}

func (r *trainer) Close() error { return nil }
