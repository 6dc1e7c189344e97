//go:build amd64 && !purego

package matrix

import "golang.org/x/sys/cpu"

// routes are the routes of this machine, the fastest last.
func routes() []route {
	all := []route{portable}
	if cpu.X86.HasAVX2 {
		all = append(all, avx2)
	}
	if cpu.X86.HasAVX2 && cpu.X86.HasAVX512F {
		all = append(all, avx512)
	}
	return all
}

// active is the route in use.
var active = routes()[len(routes())-1]

// tile returns the number of rows of the next tile, of the rows that are left.
func tile(left int) int {
	switch {
	case active == avx512 && left >= 8:
		return 8
	case active != portable && left >= 4:
		return 4
	}
	return 1
}

// multiplyTile computes a tile of a product. to and from begin at the tile's
// beginning.
func multiplyTile(to []float32, down int, from []float32, a Matrix, b []float32, rows int, add bool) {
	inner := len(b) / panel
	// The kernels do not check lengths.
	_, _ = to[(rows-1)*down+panel-1], from[(rows-1)*a.Down+(inner-1)*a.Across]
	switch {
	case active == portable:
		tilePortable(to, down, from, a, b, rows, add)
	case rows == 8:
		tile8AVX512(&to[0], down, &from[0], a.Down, a.Across, &b[0], inner, add)
	case rows == 4:
		tile4AVX2(&to[0], down, &from[0], a.Down, a.Across, &b[0], inner, add)
	default:
		tile1AVX2(&to[0], down, &from[0], a.Down, a.Across, &b[0], inner, add)
	}
}
