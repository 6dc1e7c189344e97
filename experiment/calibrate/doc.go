// Package calibrate fits what the simulator takes to what real runs took.
//
// Experiments are scenarios made for it: each varies one thing about the links,
// the payload or the workers. From the records of their runs, Observe takes the
// times that the simulator predicts (steps, messages, reductions, joins,
// fetches, detections), and Fit explains what the links do not. The package
// computes only: it starts no runs.
package calibrate
