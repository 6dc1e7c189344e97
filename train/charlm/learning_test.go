package charlm

import (
	"flag"
	"sync"
	"testing"

	"testbed/allreduce"
	"testbed/train"
)

var full = flag.Bool("full", false, "TestLearning trains the default model, with three seeds, and int4 too (a quarter of an hour)")

// learning is an experiment with outer steps and without a network: rounds of
// inner steps, the mean pseudo-gradient, and Nesterov momentum (DiLoCo, Douillard
// et al. 2023).
type learning struct {
	workers        int
	rate, momentum float32 // outer
	late           int     // rounds that an outer step comes too late
	mean           func(pseudoGradients [][]float32) []float32
}

const (
	learningRounds = 40
	learningSteps  = 20
)

// run returns the validation loss after the last round.
func (l learning) run(t *testing.T, task train.Task) float64 {
	outer := task.Start()
	momentum := make([]float32, len(outer))
	var trainers []train.Trainer
	for w := range l.workers {
		trainers = append(trainers, newTrainer(t, task, w))
	}
	var means [][]float32
	for number := range learningRounds {
		gradients := make([][]float32, l.workers)
		var all sync.WaitGroup
		for w, tr := range trainers {
			all.Go(func() {
				gradients[w], _ = round(t, tr, number, learningSteps, outer)
				for i, o := range outer {
					gradients[w][i] = o - gradients[w][i]
				}
			})
		}
		if all.Wait(); t.Failed() {
			t.FailNow()
		}
		means = append(means, l.mean(gradients))
		if len(means) <= l.late {
			continue
		}
		for i, g := range means[len(means)-1-l.late] {
			momentum[i] = l.momentum*momentum[i] + g
			outer[i] -= l.rate * (g + l.momentum*momentum[i])
		}
	}
	return validation(task, outer)
}

// exact is the mean in float32.
func exact(vectors [][]float32) []float32 {
	mean := make([]float32, len(vectors[0]))
	for _, v := range vectors {
		for i, x := range v {
			mean[i] += x / float32(len(vectors))
		}
	}
	return mean
}

// half is the mean of the first half of the vectors, or, as a mistake, what they
// come to if it counts those that it leaves out.
func half(mistaken bool) func([][]float32) []float32 {
	return func(vectors [][]float32) []float32 {
		mean := exact(vectors[:len(vectors)/2])
		for i := range mean {
			if mistaken {
				mean[i] /= 2
			}
		}
		return mean
	}
}

func quantised(bits int) func([][]float32) []float32 {
	return func(vectors [][]float32) []float32 {
		return allreduce.RingMean(vectors, allreduce.Format{Bits: bits, Block: 1024})
	}
}

// TestLearning: with as many inner steps, four workers learn more than one; int8
// costs next to nothing; and what harms, outer steps that come a round late and a
// mean that counts who was left out, is seen to.
func TestLearning(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: ten thousand inner steps take half a minute")
	}
	c, seeds := Defaults(), uint64(3)
	if !*full {
		c.Width, c.Heads, c.Context, c.Batch, seeds = 16, 2, 32, 3, 1
	}
	for seed := uint64(1); seed <= seeds; seed++ {
		task := newTask(t, c, seed, 4)
		// play holds the loss against another's; the change is a share of it.
		play := func(what string, l learning, other, least, most float64) float64 {
			loss := l.run(t, task)
			change := loss/other - 1
			t.Logf("seed %d: %s: %.4f nats a byte, %+.2f %%", seed, what, loss, 100*change)
			if !(change >= least && change <= most) {
				t.Errorf("seed %d: %s changes the loss by %+.2f %%, want from %+.1f to %+.1f %%", seed, what, 100*change, 100*least, 100*most)
			}
			return loss
		}
		untrained := validation(task, task.Start())
		one := play("one worker", learning{workers: 1, rate: 1, mean: exact}, untrained, -1, -0.5)
		diloco := learning{workers: 4, rate: 0.7, momentum: 0.5, mean: exact}
		four := play("four workers", diloco, one, -1, -0.05)
		diloco.mean = quantised(8)
		play("int8", diloco, four, -0.002, 0.002)
		if *full {
			diloco.mean = quantised(4)
			play("int4", diloco, four, -0.01, 0.01)
		}
		diloco.mean = half(false)
		two := play("two of four left out", diloco, four, 0, 0.1)
		diloco.mean = half(true)
		play("the same, divided by members instead of participants", diloco, two, 0.01, 10)
		diloco.mean, diloco.late = exact, 1
		play("an outer step a round late", diloco, four, 0.1, 10)
	}
}
