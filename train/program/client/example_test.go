//go:build linux

package client_test

import (
	"log"

	"testbed/train/program/client"
)

// A trainer that learns a slope by normalised least mean squares. Testbed starts it beside
// every worker of a scenario that names it:
//
//	train: {task: program, program: [./trainer]}
func Example() {
	run, err := client.Join()
	if err != nil {
		log.Fatal(err)
	}
	slope := float32(1 + run.Worker) // of this worker's share of the data: y = slope × x
	loss := func(parameters []float32, x float32) (difference float32, squared float64) {
		difference = parameters[0]*x - slope*x
		return difference, float64(difference * difference)
	}
	run.Validate = func(parameters []float32) float64 {
		_, squared := loss(parameters, 1)
		return squared
	}
	run.Init([]float32{0}) // the same in every process

	const rate = 0.25
	parameters := make([]float32, 1)
	for round := range run.Rounds() { // until the run is over
		copy(parameters, round.Params)
		for step := range round.Steps() {
			x := float32(step)
			difference, squared := loss(parameters, x)
			parameters[0] -= rate * difference / x
			round.Done(squared) // the loss before the step
		}
		round.Params = parameters // is handed over
	}
	if err := run.Err(); err != nil {
		log.Fatal(err)
	}
}
