// Command gen writes the assembly of package int8. It is a module of its own,
// so that the package needs no generator. Run it with go generate in the
// package.
package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// lanes is an instruction set's vector width in float32 values, and how to
// write the few steps in which the sets differ by more than that.
type lanes struct {
	name   string
	values int
	vector func() reg.VecVirtual
	zero   func(v reg.VecVirtual)
	abs    func(mask, src, dst Op) // dst = src without its sign
	// store writes the low bytes of the integers in vs, 16 values in all, to
	// dst. It may use vs for its own ends.
	store func(vs []reg.VecVirtual, dst Mem)
}

var avx2 = lanes{
	name: "AVX2", values: 8, vector: YMM,
	zero: func(v reg.VecVirtual) { VPXOR(v, v, v) },
	abs:  func(mask, src, dst Op) { VPAND(src, mask, dst) },
	store: func(vs []reg.VecVirtual, dst Mem) {
		// Packing works within 128-bit lanes; the permutation puts the words
		// back in order. Codes lie within ±127: nothing saturates.
		VPACKSSDW(vs[1], vs[0], vs[0])
		VPERMQ(Imm(0b11_01_10_00), vs[0], vs[0])
		VEXTRACTI128(Imm(1), vs[0], vs[1].AsX())
		VPACKSSWB(vs[1].AsX(), vs[0].AsX(), vs[0].AsX())
		VMOVDQU(vs[0].AsX(), dst)
	},
}

var avx512 = lanes{
	name: "AVX512", values: 16, vector: ZMM,
	zero:  func(v reg.VecVirtual) { VPXORD(v, v, v) },
	abs:   func(mask, src, dst Op) { VPANDD(src, mask, dst) },
	store: func(vs []reg.VecVirtual, dst Mem) { VPMOVDB(vs[0], dst) },
}

// perStep is how many values an iteration of a loop handles: blocks are
// multiples of it.
const perStep = 16

func main() {
	ConstraintExpr("!purego")
	for _, l := range []lanes{avx2, avx512} {
		l.absmax()
		l.quantise()
		l.dequantise()
		l.add(false)
		l.add(true)
	}
	Generate()
}

// vectors is the number of vectors in a step.
func (l lanes) vectors() int { return perStep / l.values }

func (l lanes) several() []reg.VecVirtual {
	vs := make([]reg.VecVirtual, l.vectors())
	for i := range vs {
		vs[i] = l.vector()
	}
	return vs
}

// at addresses vector i of the step that begins at index, elements of the
// given size in bytes.
func (l lanes) at(base, index reg.Register, size uint8, i int) Mem {
	return Mem{Base: base, Index: index, Scale: size, Disp: i * l.values * int(size)}
}

// broadcastBits fills a vector with a 32-bit pattern.
func (l lanes) broadcastBits(bits uint32) reg.VecVirtual {
	r, x, v := GP32(), XMM(), l.vector()
	MOVL(U32(bits), r)
	VMOVD(r, x)
	VPBROADCASTD(x, v)
	return v
}

// broadcastParam fills a vector with a float32 parameter. It loads it without
// a legacy SSE instruction: those cost hundreds of cycles while the upper
// halves of registers are in use.
func (l lanes) broadcastParam(name string) reg.VecVirtual {
	p, err := Param(name).Resolve()
	if err != nil {
		panic(err) // the signature above has no such parameter
	}
	v := l.vector()
	VBROADCASTSS(p.Addr, v)
	return v
}

// unrolled is how many steps an iteration of the main part of a loop has.
const unrolled = 4

// loop runs body for i = 0, 16, … below n, which is positive: four steps at a
// time as long as there are as many, then single ones.
func loop(n reg.Register, body func(i reg.GPVirtual)) {
	i, most := GP64(), GP64()
	XORQ(i, i)
	MOVQ(n, most)
	ANDQ(I32(-unrolled*perStep), most)
	JZ(LabelRef("single"))
	Label("several")
	for range unrolled {
		body(i)
		ADDQ(Imm(perStep), i)
	}
	CMPQ(i, most)
	JL(LabelRef("several"))
	CMPQ(i, n)
	JGE(LabelRef("done"))
	Label("single")
	body(i)
	ADDQ(Imm(perStep), i)
	CMPQ(i, n)
	JL(LabelRef("single"))
	Label("done")
}

// reduceMax stores the largest of the unsigned integers in vs as the result.
func (l lanes) reduceMax(vs []reg.VecVirtual) {
	for _, v := range vs[1:] {
		VPMAXUD(v, vs[0], vs[0])
	}
	top, high := vs[0], YMM()
	if l.values == 16 {
		VEXTRACTI64X4(Imm(1), top, high)
		VPMAXUD(high, top.AsY(), top.AsY())
	}
	VEXTRACTI128(Imm(1), top.AsY(), high.AsX())
	x := top.AsX()
	VPMAXUD(high.AsX(), x, x)
	for _, shuffle := range []uint8{0b01_00_11_10, 0b10_11_00_01} {
		VPSHUFD(Imm(uint64(shuffle)), x, high.AsX())
		VPMAXUD(high.AsX(), x, x)
	}
	r := GP32()
	VMOVD(x, r)
	Store(r, ReturnIndex(0))
}

func (l lanes) function(name, signature, doc string) {
	TEXT(name+l.name, NOSPLIT, signature)
	Pragma("noescape")
	Doc(fmt.Sprintf("%s%s %s n is a positive multiple of %d.", name, l.name, doc, perStep))
}

func (l lanes) absmax() {
	l.function("absmax", "func(src *float32, n int) uint32",
		"returns the largest bit pattern of n values without their signs.")
	src, n := Load(Param("src"), GP64()), Load(Param("n"), GP64())
	mask := l.broadcastBits(0x7fffffff)
	tops := l.several()
	for _, t := range tops {
		l.zero(t)
	}
	vs := l.several()
	loop(n, func(i reg.GPVirtual) {
		for k, v := range vs {
			l.abs(mask, l.at(src, i, 4, k), v)
			VPMAXUD(v, tops[k], tops[k])
		}
	})
	l.reduceMax(tops)
	VZEROUPPER()
	RET()
}

func (l lanes) quantise() {
	l.function("quantise", "func(codes *byte, src, input *float32, n int, inverse float32)",
		"writes the codes of n values, round-half-even(value × inverse), and fetches the n values behind the first n of input into the cache.")
	codes, src := Load(Param("codes"), GP64()), Load(Param("src"), GP64())
	next, n := Load(Param("input"), GP64()), Load(Param("n"), GP64())
	inverse := l.broadcastParam("inverse")
	LEAQ(Mem{Base: next, Index: n, Scale: 4}, next)
	vs := l.several()
	loop(n, func(i reg.GPVirtual) {
		PREFETCHT1(Mem{Base: next, Index: i, Scale: 4})
		for k, v := range vs {
			VMULPS(l.at(src, i, 4, k), inverse, v)
			VCVTPS2DQ(v, v) // rounds half to even, as MXCSR says by default
		}
		l.store(vs, Mem{Base: codes, Index: i, Scale: 1})
	})
	VZEROUPPER()
	RET()
}

func (l lanes) dequantise() {
	l.function("dequantise", "func(dst *float32, codes *byte, n int, scale float32)",
		"writes float32(code) × scale for n codes.")
	dst, codes := Load(Param("dst"), GP64()), Load(Param("codes"), GP64())
	n := Load(Param("n"), GP64())
	scale := l.broadcastParam("scale")
	vs := l.several()
	loop(n, func(i reg.GPVirtual) {
		for k, v := range vs {
			l.decode(codes, i, k, scale, v)
			VMOVUPS(v, l.at(dst, i, 4, k))
		}
	})
	VZEROUPPER()
	RET()
}

// decode writes float32(code) × scale of vector k of a step to v.
func (l lanes) decode(codes, i reg.Register, k int, scale, v reg.VecVirtual) {
	VPMOVSXBD(l.at(codes, i, 1, k), v)
	VCVTDQ2PS(v, v)
	VMULPS(scale, v, v)
}

// add writes two functions: the usual one, and the one for the last step of the
// ring, which has a multiplication more. The limit of both is how many vector
// operations a processor begins in a cycle, so one less shows.
func (l lanes) add(multiply bool) {
	if multiply {
		l.function("addMul", "func(sums *float32, codes *byte, own *float32, n int, scale, mul float32) uint32",
			"writes (float32(code) × scale + own) × mul to sums, each operation rounded, returns the largest bit pattern of the sums without their signs.")
	} else {
		l.function("add", "func(sums *float32, codes *byte, own *float32, n int, scale float32) uint32",
			"writes float32(code) × scale + own to sums, each operation rounded, returns the largest bit pattern of the sums without their signs.")
	}
	sums, codes := Load(Param("sums"), GP64()), Load(Param("codes"), GP64())
	own, n := Load(Param("own"), GP64()), Load(Param("n"), GP64())
	scale := l.broadcastParam("scale")
	var mul reg.VecVirtual
	if multiply {
		mul = l.broadcastParam("mul")
	}
	mask := l.broadcastBits(0x7fffffff)
	tops := l.several()
	for _, t := range tops {
		l.zero(t)
	}
	next := GP64()
	LEAQ(Mem{Base: own, Index: n, Scale: 4}, next)
	vs := l.several()
	loop(n, func(i reg.GPVirtual) {
		PREFETCHT0(Mem{Base: next, Index: i, Scale: 4})
		for k, v := range vs {
			l.decode(codes, i, k, scale, v)
			VADDPS(l.at(own, i, 4, k), v, v)
			if multiply {
				VMULPS(mul, v, v)
			}
			VMOVUPS(v, l.at(sums, i, 4, k))
			l.abs(mask, v, v)
			VPMAXUD(v, tops[k], tops[k])
		}
	})
	l.reduceMax(tops)
	VZEROUPPER()
	RET()
}
