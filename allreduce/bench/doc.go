// Package bench says what the benchmarks measure and what their figures mean:
// the settings and the result of a benchmark of the all-reduce, the vectors
// that it reduces, the worker that does it, and the benchmark of the kernels.
// It builds no network and starts no process. docs/bench.md is its reference.
package bench
