// Command gen writes the assembly of package matrix. It is a module of its own,
// so that the package needs no generator. Run it with go generate in the
// package.
package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// panel is the number of columns of a tile, as in package matrix.
const panel = 16

// lanes is an instruction set's vector width in float32 values, with the few
// steps in which the sets differ otherwise.
type lanes struct {
	name   string
	values int
	vector func() reg.VecVirtual
	zero   func(v reg.VecVirtual)
	// multiplyAdd adds the value at a times each of the vectors b to the sums.
	// The product is rounded before it is added.
	multiplyAdd func(a Mem, b, sums []reg.VecVirtual)
}

var avx2 = lanes{
	name: "AVX2", values: 8, vector: YMM,
	zero: func(v reg.VecVirtual) { VXORPS(v, v, v) },
	multiplyAdd: func(a Mem, b, sums []reg.VecVirtual) {
		value := YMM()
		VBROADCASTSS(a, value)
		for j := range b {
			product := YMM()
			VMULPS(b[j], value, product)
			VADDPS(product, sums[j], sums[j])
		}
	},
}

var avx512 = lanes{
	name: "AVX512", values: 16, vector: ZMM,
	zero: func(v reg.VecVirtual) { VPXORD(v, v, v) },
	multiplyAdd: func(a Mem, b, sums []reg.VecVirtual) {
		for j := range b {
			product := ZMM()
			VMULPS_BCST(a, b[j], product)
			VADDPS(product, sums[j], sums[j])
		}
	},
}

func main() {
	ConstraintExpr("!purego")
	avx2.tile(1)
	avx2.tile(4)
	avx512.tile(8)
	Generate()
}

// pointer loads a parameter that is an address, stride one that counts values,
// which it converts to bytes.
func pointer(name string) reg.Register { return Load(Param(name), GP64()) }

func stride(name string) reg.GPVirtual {
	s := GP64()
	Load(Param(name), s)
	SHLQ(Imm(2), s)
	return s
}

// rows addresses the rows of a matrix from those of every fourth one: an address
// has room for one, two or four strides.
type rows struct {
	bases        []reg.GPVirtual
	down, triple reg.GPVirtual
}

func rowsOf(name, down string, n int) rows {
	r := rows{down: stride(down)}
	for i := 0; i < n; i += 4 {
		base := GP64()
		if i == 0 {
			Load(Param(name), base)
		} else {
			LEAQ(Mem{Base: r.bases[len(r.bases)-1], Index: r.down, Scale: 4}, base)
		}
		r.bases = append(r.bases, base)
	}
	if n > 3 {
		r.triple = GP64()
		LEAQ(Mem{Base: r.down, Index: r.down, Scale: 2}, r.triple)
	}
	return r
}

// at is the address so many bytes after the beginning of row i.
func (r rows) at(i, bytes int) Mem {
	m := Mem{Base: r.bases[i/4], Disp: bytes}
	switch i % 4 {
	case 1, 2:
		m.Index, m.Scale = r.down, uint8(i%4)
	case 3:
		m.Index, m.Scale = r.triple, 1
	}
	return m
}

// tile writes the kernel of a tile of n rows.
func (l lanes) tile(n int) {
	TEXT(fmt.Sprintf("tile%d%s", n, l.name), NOSPLIT, "func(c *float32, cDown int, a *float32, aDown, aAcross int, b *float32, inner int, add bool)")
	Doc(fmt.Sprintf("tile%d%s sets %d × 16 values of c to a·b, or adds a·b to them. b is contiguous. Each operation is rounded. inner is positive.", n, l.name, n))
	Pragma("noescape")
	c, a, across, b := rowsOf("c", "cDown", n), rowsOf("a", "aDown", n), stride("aAcross"), pointer("b")
	inner := Load(Param("inner"), GP64())
	add := Load(Param("add"), GP8())
	perRow := panel / l.values
	sums := make([][]reg.VecVirtual, n)
	for i := range sums {
		for range perRow {
			sums[i] = append(sums[i], l.vector())
		}
	}
	each := func(do func(m Mem, sum reg.VecVirtual)) {
		for i := range sums {
			for j, sum := range sums[i] {
				do(c.at(i, 4*l.values*j), sum)
			}
		}
	}
	TESTB(add, add)
	JZ(LabelRef("zero"))
	each(func(m Mem, sum reg.VecVirtual) { VMOVUPS(m, sum) })
	JMP(LabelRef("inner"))
	Label("zero")
	each(func(_ Mem, sum reg.VecVirtual) { l.zero(sum) })
	Label("inner")
	columns := make([]reg.VecVirtual, perRow)
	for j := range columns {
		columns[j] = l.vector()
		VMOVUPS(Mem{Base: b, Disp: 4 * l.values * j}, columns[j])
	}
	for i := range sums {
		l.multiplyAdd(a.at(i, 0), columns, sums[i])
	}
	for _, base := range a.bases {
		ADDQ(across, base)
	}
	ADDQ(Imm(4*panel), b)
	DECQ(inner)
	JNZ(LabelRef("inner"))
	each(func(m Mem, sum reg.VecVirtual) { VMOVUPS(sum, m) })
	VZEROUPPER()
	RET()
}
