package allreduce

// Phase is one of the two halves of the ring all-reduce. Its values are the
// ones on the wire.
type Phase uint8

const (
	// ReduceScatter sums: after it every rank owns one finished chunk.
	ReduceScatter Phase = 1
	// AllGather distributes the finished chunks unchanged.
	AllGather Phase = 2
	// End is not a phase: a frame of End closes every stream. It has no payload.
	End Phase = 3
)

// String returns the phase's name as it appears in errors.
func (p Phase) String() string {
	switch p {
	case ReduceScatter:
		return "reduce-scatter"
	case AllGather:
		return "all-gather"
	case End:
		return "end"
	}
	return "unknown phase"
}

// Algorithm is a way to all-reduce. Its values are the ones on the wire.
type Algorithm uint8

const (
	// Ring sends partial sums around: fewest connections, 2(ranks-1) hops, an
	// error that grows with the root of the ranks.
	Ring Algorithm = 0
	// Direct sends every rank's chunk c straight to rank c, and the finished
	// chunk from there to all: the same bytes as the ring in two hops, and an
	// error that does not grow with the ranks, over ranks-1 connections each
	// way.
	Direct Algorithm = 1
	// Hierarchical sums inside groups of ranks first and then between them, as
	// Groups describes. If the groups are equal, every rank sends as many bytes as
	// in the other algorithms, but the fewest go between groups. It takes four
	// hops, two of them between groups.
	Hierarchical Algorithm = 2
)

// Algorithms are all the algorithms.
var Algorithms = []Algorithm{Ring, Direct, Hierarchical}

// ParseAlgorithm reads an algorithm's name.
func ParseAlgorithm(name string) (a Algorithm, ok bool) {
	for _, a := range Algorithms {
		if a.String() == name {
			return a, true
		}
	}
	return 0, false
}

// AlgorithmNames lists the names of all algorithms, the ring's first.
func AlgorithmNames() (names []string) {
	for _, a := range Algorithms {
		names = append(names, a.String())
	}
	return names
}

// Hops is the number of consecutive paths of a reduction. In a ring,
// reduce-scatter and all-gather each go almost around. Otherwise there is one
// path to each owner, or two by way of a leader, and as many back.
func (a Algorithm) Hops(ranks int) int {
	around := 2 * max(ranks-1, 0)
	switch a {
	case Direct:
		return min(2, around)
	case Hierarchical:
		return min(4, around)
	}
	return around
}

// lastStep is the highest step of a phase.
func (a Algorithm) lastStep(ranks uint16) uint16 {
	switch a {
	case Direct:
		return Inside
	case Hierarchical:
		return Between
	}
	return ranks - 2
}

// String returns the algorithm's name as users write it.
func (a Algorithm) String() string {
	switch a {
	case Ring:
		return "ring"
	case Direct:
		return "direct"
	case Hierarchical:
		return "hierarchical"
	}
	return "unknown algorithm"
}

// Chunk returns the half-open range [lo, hi) of values of chunk index, in a
// vector of length values that is cut for that many ranks. Sizes differ by at
// most one; the first length mod ranks chunks are the larger ones. It needs
// length ≥ 0, ranks ≥ 1 and 0 ≤ index < ranks.
func Chunk(length, ranks, index int) (lo, hi int) {
	size, larger := length/ranks, length%ranks
	lo = index*size + min(index, larger)
	hi = lo + size
	if index < larger {
		hi++
	}
	return lo, hi
}

// Owned returns the chunk that rank owns after the reduce-scatter.
func Owned(rank, ranks int) int { return mod(rank+1, ranks) }

// Sent returns the chunk that rank sends to its successor in the given step
// (0 … ranks-2) of a phase.
func Sent(p Phase, rank, ranks, step int) int {
	if p == AllGather {
		return mod(rank+1-step, ranks)
	}
	return mod(rank-step, ranks)
}

// Received returns the chunk that rank receives from its predecessor in the
// given step (0 … ranks-2) of a phase. The predecessor sends it.
func Received(p Phase, rank, ranks, step int) int {
	return Sent(p, rank-1, ranks, step)
}

// Pieces returns the number of pieces of a chunk, each of at most pieceValues
// values. Even an empty chunk has one piece, an empty one: a chunk is always
// announced by a frame, so that a disagreement about the length shows.
func Pieces(chunkValues, pieceValues int) int {
	return max(1, (chunkValues+pieceValues-1)/pieceValues)
}

// Piece returns the half-open range [lo, hi) of piece index within a chunk.
// All pieces hold pieceValues values except the last, so that blocks, counted
// from the start of the chunk, do not depend on the size of a piece when that
// is a multiple of the block.
func Piece(chunkValues, pieceValues, index int) (lo, hi int) {
	lo = min(index*pieceValues, chunkValues)
	return lo, min(lo+pieceValues, chunkValues)
}

// Bounds of DefaultPieceValues, in values, and the number of pieces that it
// aims at in a chunk. Below 4 Ki values the cost per frame outweighs what finer
// pipelining wins; 128 Ki are the most that entropy coding codes at once, and
// 32 Ki keep the overhead of frame headers below 0.2 %.
const (
	minDefaultPiece = 4 << 10
	maxLongPiece    = 32 << 10
	maxShortPiece   = 128 << 10

	longPieces  = 16
	shortPieces = 4
)

// DefaultPieceValues returns the piece size, in values, for a vector of length
// values, rounded up to a multiple of block. If all paths are short (see
// ShortRTT) and lossless, a chunk makes about 4 pieces, within 4 Ki to 128 Ki
// values: each costs processor time. Else it makes about 16, within 4 Ki to 32
// Ki values: they travel over several connections, and a lost packet detains
// only its own. A step of the ring cannot start before its first piece has
// arrived whole, so a chunk of one piece leaves the link idle for a piece's
// transmission time in every step.
func DefaultPieceValues(length, ranks, block int, shortPaths bool) int {
	pieces, longest := longPieces, maxLongPiece
	if shortPaths {
		pieces, longest = shortPieces, maxShortPiece
	}
	chunk := (length + ranks - 1) / ranks
	piece := min(max(chunk/pieces, minDefaultPiece), longest)
	return (piece + block - 1) / block * block
}

// mod is the mathematical remainder: never negative for n > 0.
func mod(a, n int) int { return ((a % n) + n) % n }
