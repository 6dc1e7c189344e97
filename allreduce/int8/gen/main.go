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
	load   func(src, v Op)
	// absmax takes the magnitudes of src, a vector or memory, into the running
	// maximum top. A set that has one instruction for it is blind to NaN: it
	// takes the other operand.
	absmax func(mask, src, spare, top Op)
	blind  bool
	// narrow writes the integers in vs, 16 values in all, to the low 16 bytes
	// of the first, saturated.
	narrow func(vs []reg.VecVirtual)
	// stream is a store past the caches.
	stream func(v, dst Op)
}

var avx2 = lanes{
	name: "AVX2", values: 8, vector: YMM,
	zero: func(v reg.VecVirtual) { VPXOR(v, v, v) },
	load: func(src, v Op) { VMOVDQU(src, v) },
	absmax: func(mask, src, spare, top Op) {
		VPAND(src, mask, spare)
		VPMAXUD(spare, top, top)
	},
	narrow: func(vs []reg.VecVirtual) {
		// Packing works within 128-bit lanes; the permutation puts the words
		// back in order.
		VPACKSSDW(vs[1], vs[0], vs[0])
		VPERMQ(Imm(0b11_01_10_00), vs[0], vs[0])
		VEXTRACTI128(Imm(1), vs[0], vs[1].AsX())
		VPACKSSWB(vs[1].AsX(), vs[0].AsX(), vs[0].AsX())
	},
	stream: func(v, dst Op) { VMOVNTDQ(v, dst) },
}

var avx512 = lanes{
	name: "AVX512", values: 16, vector: ZMM,
	zero: func(v reg.VecVirtual) { VPXORD(v, v, v) },
	load: func(src, v Op) { VMOVDQU32(src, v) },
	// The limit of the kernels on vectors in the cache is how many vector
	// operations a processor begins in a cycle, so one less shows: 7 % in a
	// step of the ring (Zen 4).
	absmax: func(_, src, _, top Op) { VRANGEPS(Imm(0b10_11), src, top, top) },
	blind:  true,
	narrow: func(vs []reg.VecVirtual) { VPMOVSDB(vs[0], vs[0].AsX()) },
	stream: func(v, dst Op) { VMOVNTDQ(v, dst) },
}

const (
	// perStep is how many values the smallest step of a loop handles: blocks
	// are multiples of it.
	perStep = 16
	// perTurn is how many an iteration of the main part of a loop handles:
	// those whose codes fill a cache line.
	perTurn = 64
	// lineValues is how many float32 values fill a cache line.
	lineValues = 16
)

// Bit patterns, as in package int8.
const (
	signless    = 0x7fffffff
	infinity    = 0x7f800000
	minScaled   = 0x06000000
	maxScale    = 0x7c010203
	largestCode = 0x42fe0000 // 127
)

// How far ahead of the values in work the caller's stream is fetched, in bytes.
// One line of each page is touched well before the others are fetched: where a
// page begins, the processor's own prefetching stops and addresses must be
// looked up first.
const (
	fetchAhead = 8 << 10
	touchAhead = 12 << 10
)

func main() {
	ConstraintExpr("!purego")
	for _, l := range []lanes{avx2, avx512} {
		l.order()
		l.findAbsmax()
		l.quantise(false)
		l.quantise(true)
		l.dequantise()
		for _, multiply := range []bool{false, true} {
			l.add(multiply)
			l.addQuantise(multiply)
		}
	}
	fence()
	Generate()
}

func (l lanes) several(n int) []reg.VecVirtual {
	vs := make([]reg.VecVirtual, n)
	for i := range vs {
		vs[i] = l.vector()
	}
	return vs
}

// at addresses vector k behind index, elements of the given size in bytes.
func (l lanes) at(base, index reg.Register, size uint8, k int) Mem {
	return Mem{Base: base, Index: index, Scale: size, Disp: k * l.values * int(size)}
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

// loop runs body for i = 0, 64, … and then in steps of 16 up to n, which is
// positive. body is told how many values it is to handle, and runs twice.
func loop(n reg.Register, body func(i reg.GPVirtual, values int)) {
	i, most := GP64(), GP64()
	XORQ(i, i)
	MOVQ(n, most)
	ANDQ(I32(-perTurn), most)
	JZ(LabelRef("steps"))
	turns(i, most, func() { body(i, perTurn) })
	CMPQ(i, n)
	JGE(LabelRef("done"))
	Label("steps")
	body(i, perStep)
	ADDQ(Imm(perStep), i)
	CMPQ(i, n)
	JL(LabelRef("steps"))
	Label("done")
}

// turns runs body for i, i+64, … up to n.
func turns(i, n reg.Register, body func()) {
	Label("turns")
	body()
	ADDQ(Imm(perTurn), i)
	CMPQ(i, n)
	JL(LabelRef("turns"))
}

// fold folds a vector with op down to its lowest 16 bytes.
func (l lanes) fold(v reg.VecVirtual, op func(ops ...Op)) reg.Register {
	high := YMM()
	if l.values == 16 {
		VEXTRACTI64X4(Imm(1), v, high)
		op(high, v.AsY(), v.AsY())
	}
	VEXTRACTI128(Imm(1), v.AsY(), high.AsX())
	op(high.AsX(), v.AsX(), v.AsX())
	return v.AsX()
}

// maximum is a running maximum of magnitudes. It is kept in several vectors,
// which hides the latency of one.
type maximum struct {
	lanes
	mask, spare reg.VecVirtual
	tops        []reg.VecVirtual
}

func (l lanes) maximum(vectors int) maximum {
	m := maximum{lanes: l, tops: l.several(vectors)}
	if !l.blind {
		m.mask, m.spare = l.broadcastBits(signless), l.vector()
	}
	return m
}

func (m maximum) begin() {
	for _, t := range m.tops {
		m.zero(t)
	}
}

// take takes in vector k of a step, in a register or in memory.
func (m maximum) take(k int, src Op) { m.absmax(m.mask, src, m.spare, m.tops[k%len(m.tops)]) }

// result returns the maximum, in both kinds of registers.
func (m maximum) result() (x reg.Register, r reg.GPVirtual) {
	for _, t := range m.tops[1:] {
		VPMAXUD(t, m.tops[0], m.tops[0])
	}
	x, r = m.fold(m.tops[0], VPMAXUD), GP32()
	high := XMM()
	for _, shuffle := range []uint8{0b01_00_11_10, 0b10_11_00_01} {
		VPSHUFD(Imm(uint64(shuffle)), x, high)
		VPMAXUD(high, x, x)
	}
	VMOVD(x, r)
	return x, r
}

// order is the order in which packing four vectors of integers to one of bytes
// leaves them, in double words: packing works within 128-bit lanes.
func (l lanes) order() {
	GLOBL("order"+l.name, RODATA|NOPTR)
	across := l.values / 4 // lanes of 128 bits in a vector
	for i := range 4 * across {
		vector, lane := i/across, i%across
		DATA(4*i, U32(4*lane+vector))
	}
}

// encoder writes codes.
type encoder struct {
	lanes
	inverse, order, least reg.VecVirtual
	vs                    []reg.VecVirtual
}

func (l lanes) encoder() encoder {
	e := encoder{lanes: l, inverse: l.broadcastParam("inverse"), order: l.vector(), least: l.vector(), vs: l.several(4)}
	l.load(NewDataAddr(Symbol{Name: "order" + l.name, Static: true}, 0), e.order)
	l.zero(e.least)
	return e
}

// codes makes integers of the first vectors behind i.
func (e encoder) codes(src, i reg.Register, first, vectors int) []reg.VecVirtual {
	vs := e.vs[:vectors]
	for k, v := range vs {
		VMULPS(e.at(src, i, 4, first+k), e.inverse, v)
		VCVTPS2DQ(v, v) // rounds half to even, as MXCSR says by default
	}
	return vs
}

// encode writes the codes of so many values behind i. The integer of a NaN, as
// of all that is out of range, is the least one; narrowing saturates, so the
// code is -128, which nothing else leads to.
func (e encoder) encode(codes, src, i reg.Register, values int, store func(v, dst Op)) {
	if values < 4*e.lanes.values {
		vs := e.codes(src, i, 0, values/e.lanes.values)
		e.narrow(vs)
		VMOVDQU(vs[0].AsX(), Mem{Base: codes, Index: i, Scale: 1})
		VPMINSB(vs[0], e.least, e.least) // above 16 bytes there are zeros
		return
	}
	for k := 0; k < values/e.lanes.values; k += 4 {
		vs := e.codes(src, i, k, 4)
		VPACKSSDW(vs[1], vs[0], vs[0])
		VPACKSSDW(vs[3], vs[2], vs[2])
		VPACKSSWB(vs[2], vs[0], vs[0])
		VPERMD(vs[0], e.order, vs[0])
		VPMINSB(vs[0], e.least, e.least)
		store(vs[0], e.at(codes, i, 1, k))
	}
}

// result returns whether there was a code of -128, other than 0 if so: its
// magnitude is the only one with the highest bit set.
func (e encoder) result() reg.GPVirtual {
	x, r := e.fold(e.least, VPMINSB), GP32()
	VPABSB(x, x)
	VPMOVMSKB(x, r)
	return r
}

func (l lanes) function(name, signature, doc string, multiple int) {
	TEXT(name+l.name, NOSPLIT, signature)
	Pragma("noescape")
	Doc(fmt.Sprintf("%s%s %s n is a positive multiple of %d.", name, l.name, doc, multiple))
}

// blindness is what to say of a maximum.
func (l lanes) blindness() string {
	if l.blind {
		return " It does not see NaN."
	}
	return ""
}

func (l lanes) findAbsmax() {
	l.function("absmax", "func(src *float32, n int) uint32",
		"returns the largest bit pattern of n values without their signs."+l.blindness(), perStep)
	src, n := Load(Param("src"), GP64()), Load(Param("n"), GP64())
	m := l.maximum(4)
	m.begin()
	loop(n, func(i reg.GPVirtual, values int) {
		for k := range values / l.values {
			m.take(k, l.at(src, i, 4, k))
		}
	})
	_, absmax := m.result()
	Store(absmax, ReturnIndex(0))
	VZEROUPPER()
	RET()
}

// quantise writes two functions: the usual one, and the one for vectors far
// larger than the caches, whose codes go past them to memory.
func (l lanes) quantise(stream bool) {
	const signature = "func(codes *byte, src, next *float32, n int, inverse float32) (nan uint32)"
	name, doc := "quantise", ""
	store := func(v, dst Op) { l.load(v, dst) }
	if stream {
		name, store = "quantiseStream", l.stream
		doc = " Codes begin on a cache line, and go past the caches."
	}
	l.function(name, signature,
		"writes the codes of n values, round-half-even(value × inverse), and fetches the n values at next into the cache. Where a value is NaN it returns other than 0."+doc, perStep)
	codes, src := Load(Param("codes"), GP64()), Load(Param("src"), GP64())
	next, n := Load(Param("next"), GP64()), Load(Param("n"), GP64())
	e := l.encoder()
	PREFETCHT1(Mem{Base: next, Index: n, Scale: 4})
	loop(n, func(i reg.GPVirtual, values int) {
		// What comes is read twice at once, and then not for long.
		for k := 0; k < values; k += lineValues {
			PREFETCHNTA(Mem{Base: next, Index: i, Scale: 4, Disp: 4 * k})
		}
		e.encode(codes, src, i, values, store)
	})
	Store(e.result(), ReturnIndex(0))
	VZEROUPPER()
	RET()
}

func (l lanes) dequantise() {
	l.function("dequantise", "func(dst *float32, codes *byte, n int, scale float32)",
		"writes float32(code) × scale for n codes.", perStep)
	dst, codes := Load(Param("dst"), GP64()), Load(Param("codes"), GP64())
	n := Load(Param("n"), GP64())
	scale, v := l.broadcastParam("scale"), l.vector()
	loop(n, func(i reg.GPVirtual, values int) {
		for k := range values / l.values {
			l.decode(codes, i, k, scale, v)
			VMOVUPS(v, l.at(dst, i, 4, k))
		}
	})
	VZEROUPPER()
	RET()
}

// decode writes float32(code) × scale of vector k behind i to v.
func (l lanes) decode(codes, i reg.Register, k int, scale, v reg.VecVirtual) {
	VPMOVSXBD(l.at(codes, i, 1, k), v)
	VCVTDQ2PS(v, v)
	VMULPS(scale, v, v)
}

// adder adds decoded values and the caller's own.
type adder struct {
	lanes
	sums, codes, own   reg.Register
	scale, multiple, v reg.VecVirtual
	top                maximum
}

func (l lanes) adder(multiply bool) adder {
	a := adder{
		lanes: l, sums: Load(Param("sums"), GP64()), codes: Load(Param("codes"), GP64()), own: Load(Param("own"), GP64()),
		scale: l.vector(), v: l.vector(), top: l.maximum(2),
	}
	if multiply {
		a.multiple = l.broadcastParam("mul")
	}
	return a
}

func (a adder) add(i reg.Register, values int) {
	for k := range values / a.values {
		a.decode(a.codes, i, k, a.scale, a.v)
		VADDPS(a.at(a.own, i, 4, k), a.v, a.v)
		if a.multiple != nil {
			VMULPS(a.multiple, a.v, a.v)
		}
		VMOVUPS(a.v, a.at(a.sums, i, 4, k))
		a.top.take(k, a.v)
	}
}

// sum names what add and its kin compute: there are two of each, the usual one
// and the one for the last step of the ring, which has a multiplication more.
func sum(name string, multiply bool) (fullName, parameter, formula string) {
	if multiply {
		return name + "Mul", ", mul float32", "(float32(code) × scale + own) × mul"
	}
	return name, "", "float32(code) × scale + own"
}

func (l lanes) add(multiply bool) {
	name, mul, formula := sum("add", multiply)
	l.function(name, "func(sums *float32, codes *byte, own *float32, n int, scale float32"+mul+") uint32",
		"writes "+formula+" to sums, each operation rounded, and returns the largest bit pattern of the sums without their signs."+l.blindness(), perStep)
	n := Load(Param("n"), GP64())
	a := l.adder(multiply)
	a.scale = l.broadcastParam("scale")
	a.top.begin()
	loop(n, func(i reg.GPVirtual, values int) { a.add(i, values) })
	_, absmax := a.top.result()
	Store(absmax, ReturnIndex(0))
	VZEROUPPER()
	RET()
}

// addQuantise adds up one block and writes the codes of the block before it, by
// turns, block after block: encoding begins with a maximum and two divisions
// that take long to come by, and adding fills the time. What is out of the
// ordinary it leaves to its caller. A scale that is no finite number needs no
// care: it makes no sum finite.
func (l lanes) addQuantise(multiply bool) {
	name, mul, formula := sum("addQuantise", multiply)
	l.function(name, "func(sums, late *float32, inScales, codes *byte, own *float32, scales, lateCodes *byte, n, blocks int, inverse float32"+mul+") (done int, absmax, nan uint32)",
		"does with the first of so many blocks of n values what add does with "+formula+
			", and with late, the sums of the block before, what quantise does. If late has no NaN and the first block's absmax leads to codes, it writes the scale of the first to scales and goes on with the next, late and sums in each other's place. It returns the number of blocks added up, and absmax and nan of the last one."+l.blindness(), perTurn)
	n, blocks, done := Load(Param("n"), GP64()), Load(Param("blocks"), GP64()), GP64()
	late, lateCodes := Load(Param("late"), GP64()), Load(Param("lateCodes"), GP64())
	inScales, scales := Load(Param("inScales"), GP64()), Load(Param("scales"), GP64())
	a := l.adder(multiply)
	e := l.encoder()
	largest := l.broadcastBits(largestCode).AsX()
	XORQ(done, done)

	Label("block")
	VBROADCASTSS(Mem{Base: inScales, Index: done, Scale: 4}, a.scale)
	a.top.begin()
	PREFETCHT1(Mem{Base: a.own, Disp: touchAhead})
	i := GP64()
	XORQ(i, i)
	turns(i, n, func() {
		for k := 0; k < perTurn; k += lineValues {
			PREFETCHT1(Mem{Base: a.own, Index: i, Scale: 4, Disp: fetchAhead + 4*k})
		}
		a.add(i, perTurn)
		e.encode(lateCodes, late, i, perTurn, func(v, dst Op) { l.load(v, dst) })
	})
	INCQ(done)
	top, absmax := a.top.result()
	nan := e.result()
	CMPQ(done, blocks)
	JGE(LabelRef("end"))
	TESTL(nan, nan)
	JNZ(LabelRef("end"))
	bits := GP32()
	LEAL(Mem{Base: absmax.As64(), Disp: -minScaled}, bits)
	CMPL(bits, U32(infinity-minScaled))
	JAE(LabelRef("end"))

	x, most := XMM(), GP32()
	VDIVSS(largest, top, x)
	VMOVD(x, bits)
	MOVL(U32(maxScale), most)
	CMPL(bits, most)
	CMOVLHI(most, bits)
	MOVL(bits, Mem{Base: scales, Index: done, Scale: 4, Disp: -4})
	VDIVSS(top, largest, x)
	VBROADCASTSS(x, e.inverse)
	XCHGQ(late, a.sums)
	ADDQ(n, a.codes)
	ADDQ(n, lateCodes)
	LEAQ(Mem{Base: a.own, Index: n, Scale: 4}, a.own)
	JMP(LabelRef("block"))

	Label("end")
	Store(done, ReturnIndex(0))
	Store(absmax, ReturnIndex(1))
	Store(nan, ReturnIndex(2))
	VZEROUPPER()
	RET()
}

// fence makes what has gone past the caches visible in order.
func fence() {
	TEXT("fence", NOSPLIT, "func()")
	Doc("fence orders what quantiseStream has written before all that is written later.")
	SFENCE()
	RET()
}
