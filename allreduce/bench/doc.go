// Package bench defines the benchmarks and their figures: the settings and the
// result of a benchmark of the all-reduce, the vectors that it reduces, the
// worker that does it, and the benchmark of the kernels. The package builds no
// network and starts no process. docs/bench.md is its reference.
package bench
