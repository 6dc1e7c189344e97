package allreduce_test

import (
	"fmt"

	"testbed/allreduce"
)

// A million values take a quarter of their size as int8 codes: one byte each, and
// four for the scale of a block.
func ExampleFormat() {
	for _, f := range []allreduce.Format{
		{Bits: 4, Block: allreduce.DefaultBlock},
		allreduce.DefaultFormat,
		{Bits: 16, Block: allreduce.DefaultBlock},
		{Bits: 32, Block: allreduce.DefaultBlock},
	} {
		fmt.Printf("%s: %d bytes\n", f.Name(), f.EncodedLen(1_000_000))
	}
	fmt.Println(allreduce.Format{Bits: 8, Block: 1000}.Check())
	// Output:
	// int4 in blocks of 1024: 503908 bytes
	// int8 in blocks of 1024: 1003908 bytes
	// bfloat16: 2000000 bytes
	// float32: 4000000 bytes
	// block is 1000: it must be a multiple of 16 from 16 to 4096
}

// What every rank of a ring ends with, to the bit. Each hop quantises the sum so
// far; the direct algorithm quantises twice, however many ranks there are.
func ExampleRingMean() {
	vectors := [][]float32{{1, 20, 8, 60, 0, -9}, {3, 40, 7, 20, 1, -5}, {5, 9, 30, 22, 8, 2}}
	f := allreduce.Format{Bits: 4, Block: allreduce.MinBlock}
	fmt.Printf("exact  %.1f\n", allreduce.Mean(vectors))
	fmt.Printf("ring   %.1f\n", allreduce.RingMean(vectors, f))
	fmt.Printf("direct %.1f\n", allreduce.DirectMean(vectors, f))
	// Output:
	// exact  [3.0 23.0 15.0 34.0 3.0 -4.0]
	// ring   [3.3 23.0 14.6 34.0 2.8 -4.0]
	// direct [3.3 23.0 14.5 33.8 2.9 -4.0]
}

// Who sends what in a ring of three: in every step of the reduce-scatter a rank
// passes on the chunk that it has just received and added to.
func ExampleSent() {
	const ranks = 3
	for step := range ranks - 1 {
		for rank := range ranks {
			lo, hi := allreduce.Chunk(10, ranks, allreduce.Sent(allreduce.ReduceScatter, rank, ranks, step))
			fmt.Printf("step %d: rank %d sends values %d to %d\n", step, rank, lo, hi-1)
		}
	}
	// Output:
	// step 0: rank 0 sends values 0 to 3
	// step 0: rank 1 sends values 4 to 6
	// step 0: rank 2 sends values 7 to 9
	// step 1: rank 0 sends values 7 to 9
	// step 1: rank 1 sends values 0 to 3
	// step 1: rank 2 sends values 4 to 6
}

// The order of a ring over two sites: one crossing each way is the least.
func ExampleOrderRing() {
	const near, far = 0.001, 0.05 // one-way delays in seconds
	site := []int{0, 1, 0, 1}     // of each rank
	delays := make([][]float64, len(site))
	for i := range site {
		for j := range site {
			delay := near
			if site[i] != site[j] {
				delay = far
			}
			delays[i] = append(delays[i], delay)
		}
	}
	tour, err := allreduce.OrderRing(delays, allreduce.Sum)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%v: %.3f s around, and %.3f s in the order of the ranks\n", tour.Order, tour.Cost, tour.Naive)
	// Output:
	// [0 2 3 1]: 0.102 s around, and 0.200 s in the order of the ranks
}
