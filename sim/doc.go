// Package sim plays a scenario in a deterministic discrete-event simulator.
//
// It drives the same policy machine as a real run, on a logical clock, with all
// randomness from seeded streams: the same scenario and seed give the same
// events on every machine. One engine plays on three networks. Run uses churn's
// network, where messages, reductions and state fetches have fixed durations.
// RunLinks uses the links of a real run of the scenario, and workers that
// decide as real ones do. Recording.Replay uses the durations of a recorded
// run, and the policy decides again.
package sim
