//go:build !amd64 || purego

package matrix

func routes() []route { return []route{portable} }

var active = portable

func tile(left int) int { return min(left, tileRows) }

func multiplyTile(to []float32, down int, from []float32, a Matrix, b []float32, rows int, add bool) {
	tilePortable(to, down, from, a, b, rows, add)
}
