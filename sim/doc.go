// Package sim plays a scenario in a deterministic discrete-event simulator.
//
// It drives the same policy machine as a real run, on a logical clock, with
// all randomness from seeded streams: the same scenario and seed give the same
// events on every machine. One engine plays on three networks. Run has churn's, where
// messages, reductions and state fetches have fixed prices. RunLinks has the links that
// a real run of the scenario would be given, and workers that decide as real ones do.
// Recording.Replay has the durations of a recorded run, and lets the policy decide
// anew.
package sim
