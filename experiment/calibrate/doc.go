// Package calibrate fits the simulator's times to those of real runs.
//
// Experiments are scenarios made for it: each varies one thing about the links,
// the payload or the workers. From the records of their runs, Observe takes the
// times that the simulator predicts (steps, messages, reductions, joins,
// fetches, detections). Fit explains the part that the links do not explain.
// The package only computes: it starts no runs.
package calibrate
