// Package matrix multiplies matrices of float32, to the same bits on every
// machine and every route: each value of a product is the sum, begun at zero or
// at the existing value, of the products in the order of the inner index. Every
// multiplication and every addition is rounded to float32. So vectors run over
// columns of the result, never over the inner index, and nothing is fused.
package matrix

import "fmt"

// Matrix is a view of values: the value in row i and column j is
// Values[i*Down+j*Across].
type Matrix struct {
	Values        []float32
	Rows, Columns int
	Down, Across  int
}

// Of views values as rows of so many columns.
func Of(values []float32, columns int) Matrix {
	return Matrix{Values: values, Rows: len(values) / columns, Columns: columns, Down: columns, Across: 1}
}

// Transposed views the rows as columns.
func (m Matrix) Transposed() Matrix {
	return Matrix{Values: m.Values, Rows: m.Columns, Columns: m.Rows, Down: m.Across, Across: m.Down}
}

// Part views rows × columns values, the first of which is in the given row and
// column.
func (m Matrix) Part(row, column, rows, columns int) Matrix {
	if rows > m.Rows-row || columns > m.Columns-column {
		panic(fmt.Sprintf("matrix: %d × %d from (%d, %d) of %d × %d", rows, columns, row, column, m.Rows, m.Columns))
	}
	m.Values, m.Rows, m.Columns = m.Values[row*m.Down+column*m.Across:], rows, columns
	return m
}

// panel is the number of columns of a product that are computed together,
// tileRows the most rows.
const (
	panel    = 16
	tileRows = 8
)

// Multiplier multiplies, and reuses its memory. It has one user at a time.
type Multiplier struct {
	packed []float32                 // a panel of b, row by row
	edge   [tileRows * panel]float32 // a tile that extends beyond the result
}

// Multiply sets c = a·b. c must overlap neither, and its rows must be
// contiguous.
func (m *Multiplier) Multiply(c, a, b Matrix) { m.multiply(c, a, b, false) }

// MultiplyAdd adds a·b to c.
func (m *Multiplier) MultiplyAdd(c, a, b Matrix) { m.multiply(c, a, b, true) }

func (m *Multiplier) multiply(c, a, b Matrix, add bool) {
	if a.Rows != c.Rows || b.Columns != c.Columns || a.Columns != b.Rows || c.Across != 1 || a.Columns == 0 {
		panic(fmt.Sprintf("matrix: %d × %d · %d × %d to %d × %d", a.Rows, a.Columns, b.Rows, b.Columns, c.Rows, c.Columns))
	}
	for column := 0; column < c.Columns; column += panel {
		m.pack(b, column)
		width := min(panel, c.Columns-column)
		for row := 0; row < c.Rows; {
			rows := tile(c.Rows - row)
			from, to := a.Values[row*a.Down:], c.Values[row*c.Down+column:]
			if width == panel {
				multiplyTile(to, c.Down, from, a, m.packed, rows, add)
			} else {
				m.multiplyEdge(to, c.Down, from, a, rows, width, add)
			}
			row += rows
		}
	}
}

// multiplyEdge computes a tile of fewer columns than a panel.
func (m *Multiplier) multiplyEdge(to []float32, down int, from []float32, a Matrix, rows, width int, add bool) {
	for i := range rows {
		copy(m.edge[i*panel:][:width], to[i*down:])
	}
	multiplyTile(m.edge[:], panel, from, a, m.packed, rows, add)
	for i := range rows {
		copy(to[i*down:][:width], m.edge[i*panel:])
	}
}

// pack copies a panel of b to contiguous rows, with zeros beyond the last
// column.
func (m *Multiplier) pack(b Matrix, column int) {
	if need := b.Rows * panel; cap(m.packed) < need {
		m.packed = make([]float32, need)
	} else {
		m.packed = m.packed[:need]
	}
	width := min(panel, b.Columns-column)
	if b.Across == 1 && width == panel {
		for k := range b.Rows {
			*(*[panel]float32)(m.packed[k*panel:]) = [panel]float32(b.Values[k*b.Down+column:])
		}
		return
	}
	if width < panel {
		clear(m.packed)
	}
	for j := range width {
		from := b.Values[(column+j)*b.Across:]
		for k := range b.Rows {
			m.packed[k*panel+j] = from[k*b.Down]
		}
	}
}

// tilePortable computes a tile of a product. The conversions keep the compiler
// from fusing operations, which would give other bits on other machines.
func tilePortable(to []float32, down int, from []float32, a Matrix, b []float32, rows int, add bool) {
	for i := range rows {
		for j := 0; j < panel; j += 8 {
			sums := (*[8]float32)(to[i*down+j:])
			var s0, s1, s2, s3, s4, s5, s6, s7 float32
			if add {
				s0, s1, s2, s3, s4, s5, s6, s7 = sums[0], sums[1], sums[2], sums[3], sums[4], sums[5], sums[6], sums[7]
			}
			at := i * a.Down
			for k := j; k < len(b); k += panel {
				v, w := from[at], (*[8]float32)(b[k:])
				s0 += float32(v * w[0])
				s1 += float32(v * w[1])
				s2 += float32(v * w[2])
				s3 += float32(v * w[3])
				s4 += float32(v * w[4])
				s5 += float32(v * w[5])
				s6 += float32(v * w[6])
				s7 += float32(v * w[7])
				at += a.Across
			}
			*sums = [8]float32{s0, s1, s2, s3, s4, s5, s6, s7}
		}
	}
}
