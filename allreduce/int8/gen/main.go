// Command gen writes the assembly of package int8. It is a module of its own,
// so that the package needs no generator. Run it with go generate in the
// package.
package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// lanes is an instruction set's vector width in float32 values, with the few
// steps in which the sets differ otherwise.
type lanes struct {
	name   string
	values int
	vector func() reg.VecVirtual
	and    func(a, b, and Op)
	zero   func(v reg.VecVirtual)
	load   func(src, v Op)
	// absmax takes the magnitudes of src, a vector or memory, into the running
	// maximum top. A set with a single instruction for it ignores NaN: it takes
	// the other operand.
	absmax func(mask, src, spare, top Op)
	blind  bool
	// narrow writes the integers in vs, 16 values in all, to the low 16 bytes
	// of the first, saturated.
	narrow func(vs []reg.VecVirtual)
	// halves returns the code that converts the codes in the halves of so many
	// bytes to float32 values, multiplied by scale, and the code for a change of
	// scale.
	halves func(scale reg.VecVirtual) (decode func(src Mem, v reg.VecVirtual), scaled func())
	// pair packs the 16-bit integers from 0 to 255 in vs into the bytes of one
	// vector, which it returns, in order.
	pair func(vs []reg.VecVirtual) reg.Register
	// stream is a store past the caches.
	stream func(v, dst Op)
	// perByte is how many codes a byte holds.
	perByte int
}

var avx2 = lanes{
	name: "AVX2", values: 8, perByte: 1, vector: YMM, and: VPAND,
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
	halves: func(scale reg.VecVirtual) (func(Mem, reg.VecVirtual), func()) {
		return func(src Mem, v reg.VecVirtual) {
			VPBROADCASTD(src, v) // all eight halves to every value
			VPSLLVD(constant("upwards"), v, v)
			VPSRAD(Imm(28), v, v)
			VCVTDQ2PS(v, v)
			VMULPS(scale, v, v)
		}, func() {}
	},
	pair: func(vs []reg.VecVirtual) reg.Register {
		VPACKUSWB(vs[1], vs[0], vs[0])
		VPERMQ(Imm(0b11_01_10_00), vs[0], vs[0])
		return vs[0]
	},
	stream: func(v, dst Op) { VMOVNTDQ(v, dst) },
}

var avx512 = lanes{
	name: "AVX512", values: 16, perByte: 1, vector: ZMM, and: func(a, b, and Op) { VPANDD(a, b, and) },
	zero: func(v reg.VecVirtual) { VPXORD(v, v, v) },
	load: func(src, v Op) { VMOVDQU32(src, v) },
	// On vectors in the cache, the kernels are limited by the number of vector
	// operations that a processor begins per cycle. One operation less gains 7 %
	// in a step of the ring (Zen 4).
	absmax: func(_, src, _, top Op) { VRANGEPS(Imm(0b10_11), src, top, top) },
	blind:  true,
	narrow: func(vs []reg.VecVirtual) { VPMOVSDB(vs[0], vs[0].AsX()) },
	halves: func(scale reg.VecVirtual) (func(Mem, reg.VecVirtual), func()) {
		// There are 16 codes, and as many values in a vector: one permutation
		// looks them up, by the lowest four bits of each double word.
		table, downwards, upper, mask := ZMM(), ZMM(), K(), GP32()
		VMOVDQU32(constant("downwards"), downwards)
		MOVL(U32(0xff00), mask)
		KMOVW(mask, upper)
		return func(src Mem, v reg.VecVirtual) {
				VPBROADCASTD(src, v)
				src.Disp += 4
				VPBROADCASTD(src, upper, v)
				VPSRLVD(downwards, v, v)
				VPERMPS(table, v, v)
			}, func() {
				VMULPS(constant("halves"), scale, table)
			}
	},
	pair: func(vs []reg.VecVirtual) reg.Register {
		VPMOVWB(vs[0], vs[0].AsY())
		return vs[0].AsY()
	},
	stream: func(v, dst Op) { VMOVNTDQ(v, dst) },
}

const (
	// perStep is the number of values in the smallest step of a loop: blocks are
	// multiples of it.
	perStep = 16
	// perTurn is the number of values in an iteration of a loop's main part: their
	// codes fill a cache line.
	perTurn = 64
	// lineValues is the number of float32 values in a cache line.
	lineValues = 16
)

// Bit patterns, as in package int8.
const (
	signless     = 0x7fffffff
	infinity     = 0x7f800000
	minScaled    = 0x06000000
	largestCode  = 0x42fe0000 // 127
	maxScale     = 0x7c010203
	largestCode4 = 0x40e00000 // 7
	maxScale4    = 0x7e124924
)

// Distance in bytes at which the caller's stream is prefetched, ahead of the
// present values. One line of each page is touched well before the others are
// fetched: at the beginning of a page, the processor's own prefetching stops
// and addresses must be looked up first.
const (
	fetchAhead = 8 << 10
	touchAhead = 12 << 10
)

func main() {
	ConstraintExpr("!purego")
	halfConstants()
	for _, l := range []lanes{avx2, avx512} {
		l.order()
		l.findAbsmax()
		for _, l.perByte = range []int{1, 2} {
			l.quantise(false)
			l.dequantise(false)
			l.dequantise(true)
			for _, multiply := range []bool{false, true} {
				l.add(multiply, false)
				l.addQuantise(multiply, false)
			}
		}
	}
	l := avx512
	for _, l.perByte = range []int{1, 2} {
		l.quantise(true)
		l.add(false, true)
		l.addQuantise(false, true)
		l.addQuantise(true, true)
	}
	fence()
	flush()
	canFlush()
	Generate()
}

func (l lanes) several(n int) []reg.VecVirtual {
	vs := make([]reg.VecVirtual, n)
	for i := range vs {
		vs[i] = l.vector()
	}
	return vs
}

// Indices and lengths count bytes of codes.

// value is the address of float32 value k after index.
func (l lanes) value(base, index reg.Register, k int) Mem {
	return Mem{Base: base, Index: index, Scale: uint8(4 * l.perByte), Disp: 4 * k}
}

// code is the address of the code of value k after index.
func (l lanes) code(base, index reg.Register, k int) Mem {
	return Mem{Base: base, Index: index, Scale: 1, Disp: k / l.perByte}
}

// length loads the parameter n, a number of values.
func (l lanes) length() reg.Register {
	n := Load(Param("n"), GP64())
	if l.perByte == 2 {
		SHRQ(Imm(1), n)
	}
	return n
}

// constant is the address of one of halfConstants.
func constant(name string) Mem { return NewDataAddr(Symbol{Name: name, Static: true}, 0) }

// halfConstants are the constants for codes of 4 bits.
func halfConstants() {
	table := func(name string, n int, word func(i int) uint32) {
		GLOBL(name, RODATA|NOPTR)
		for i := range n {
			DATA(4*i, U32(word(i)))
		}
	}
	table("halves", 16, func(i int) uint32 { return math.Float32bits(float32(int8(i<<4) >> 4)) })
	table("downwards", 16, func(i int) uint32 { return uint32(4 * (i % 8)) })
	table("upwards", 8, func(i int) uint32 { return uint32(28 - 4*i) })
	table("lowHalves", 16, func(int) uint32 { return 0x0f0f0f0f })
	table("joined", 16, func(int) uint32 { return 0x10011001 }) // alternately × 1 and × 16
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
	v := l.vector()
	l.broadcastTo(v, name)
	return v
}

func (l lanes) broadcastTo(v reg.VecVirtual, name string) {
	p, err := Param(name).Resolve()
	if err != nil {
		panic(err) // the signature above has no such parameter
	}
	VBROADCASTSS(p.Addr, v)
}

// loop runs body for the values from 0, 64, … and then in steps of 16 up to n,
// which is positive. body gets the number of values to handle, and is called
// twice.
func (l lanes) loop(n reg.Register, body func(i reg.GPVirtual, values int)) {
	i, most := GP64(), GP64()
	XORQ(i, i)
	MOVQ(n, most)
	ANDQ(I32(int32(-perTurn/l.perByte)), most)
	JZ(LabelRef("steps"))
	l.turns(i, most, func() { body(i, perTurn) })
	CMPQ(i, n)
	JGE(LabelRef("done"))
	Label("steps")
	body(i, perStep)
	ADDQ(Imm(uint64(perStep/l.perByte)), i)
	CMPQ(i, n)
	JL(LabelRef("steps"))
	Label("done")
}

// turns runs body for the 64 values from i, the next 64, … up to n.
func (l lanes) turns(i, n reg.Register, body func()) {
	Label("turns")
	body()
	ADDQ(Imm(uint64(perTurn/l.perByte)), i)
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

// take includes vector k of a step, in a register or in memory.
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

// order is the order, in double words, of bytes after packing four vectors of
// integers to one of bytes: packing works within 128-bit lanes.
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
	if l.perByte == 2 && l.values < 16 {
		e.vs = l.several(5) // of 64 values one vector waits for the other
	}
	l.load(NewDataAddr(Symbol{Name: "order" + l.name, Static: true}, 0), e.order)
	l.zero(e.least)
	return e
}

// codes makes integers of the first vectors after i.
func (e encoder) codes(src, i reg.Register, first, vectors int) []reg.VecVirtual {
	vs := e.vs[:vectors]
	for k, v := range vs {
		VMULPS(e.value(src, i, (first+k)*e.lanes.values), e.inverse, v)
		VCVTPS2DQ(v, v) // rounds half to even, MXCSR's default
	}
	return vs
}

// encode writes the codes of so many values after i. The integer of a NaN, as
// of all values out of range, is the least one. Narrowing saturates, so the
// code is -128, which has no other cause.
func (e encoder) encode(codes, src, i reg.Register, values int, store func(v, dst Op)) {
	if values < 4*e.lanes.values {
		vs := e.codes(src, i, 0, values/e.lanes.values)
		e.narrow(vs)
		VPMINSB(vs[0], e.least, e.least) // above 16 bytes there are zeros
		if e.perByte == 2 {
			join(VPAND, vs[0].AsX())
			VPACKUSWB(vs[0].AsX(), vs[0].AsX(), vs[0].AsX())
			VMOVQ(vs[0].AsX(), e.code(codes, i, 0))
			return
		}
		VMOVDQU(vs[0].AsX(), e.code(codes, i, 0))
		return
	}
	var joined []reg.VecVirtual // pairs of codes, for a vector of bytes or all values
	for k := 0; k < values/e.lanes.values; k += 4 {
		vs := e.codes(src, i, k, 4)
		VPACKSSDW(vs[1], vs[0], vs[0])
		VPACKSSDW(vs[3], vs[2], vs[2])
		VPACKSSWB(vs[2], vs[0], vs[0])
		VPERMD(vs[0], e.order, vs[0])
		VPMINSB(vs[0], e.least, e.least)
		if e.perByte == 1 {
			store(vs[0], e.code(codes, i, k*e.lanes.values))
			continue
		}
		join(e.and, vs[0])
		joined = append(joined, vs[0])
		e.vs = e.vs[1:]
	}
	if e.perByte == 2 {
		store(e.pair(joined), e.code(codes, i, 0))
	}
}

// join puts the lower halves of each two bytes together, in 16 bits.
func join(and func(a, b, and Op), v reg.Register) {
	and(constant("lowHalves"), v, v)
	VPMADDUBSW(constant("joined"), v, v)
}

// result returns whether there was a code of -128; if so it is not 0. Only the
// magnitude of -128 has the highest bit set.
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

// blindness is the remark about a maximum that may miss a NaN.
func (l lanes) blindness() string {
	if l.blind {
		return " It does not see NaN."
	}
	return ""
}

func (l lanes) findAbsmax() {
	l.function("absmax", "func(src *float32, n int) uint32",
		"returns the largest bit pattern of n values without their signs."+l.blindness(), perStep)
	src, n := Load(Param("src"), GP64()), l.length()
	m := l.maximum(4)
	m.begin()
	l.loop(n, func(i reg.GPVirtual, values int) {
		for k := range values / l.values {
			m.take(k, l.value(src, i, k*l.values))
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
	name, doc, store := l.sink(stream, "quantise", "Codes", l.load)
	l.function(l.named(name), signature,
		"writes the codes of n values, round-half-even(value × inverse), and fetches the n values at next into the cache. Where a value is NaN it returns other than 0."+doc, perStep)
	codes, src := Load(Param("codes"), GP64()), Load(Param("src"), GP64())
	next, n := Load(Param("next"), GP64()), l.length()
	e := l.encoder()
	PREFETCHT1(l.value(next, n, 0))
	l.loop(n, func(i reg.GPVirtual, values int) {
		for k := 0; k < values; k += lineValues {
			PREFETCHT0(l.value(next, i, k))
		}
		e.encode(codes, src, i, values, store)
	})
	Store(e.result(), ReturnIndex(0))
	VZEROUPPER()
	RET()
}

// sink is the destination of a kernel's output: the usual store, or past the
// caches, with the remark about it.
func (l lanes) sink(stream bool, name, output string, usual func(v, dst Op)) (fullName, doc string, store func(v, dst Op)) {
	if stream {
		return name + "Stream", " " + output + " begin on a cache line, and go past the caches.", l.stream
	}
	return name, "", usual
}

// floats is the usual store of values.
func floats(v, dst Op) { VMOVUPS(v, dst) }

func (l lanes) dequantise(stream bool) {
	name, doc, store := l.sink(stream, "dequantise", "Values", floats)
	l.function(l.named(name), "func(dst *float32, codes *byte, n int, scale float32)",
		"writes float32(code) × scale for n codes."+doc, perStep)
	dst, codes := Load(Param("dst"), GP64()), Load(Param("codes"), GP64())
	n := l.length()
	scale, v := l.broadcastParam("scale"), l.vector()
	decode, scaled := l.decoder(scale)
	scaled()
	l.loop(n, func(i reg.GPVirtual, values int) {
		for k := 0; k < values; k += l.values {
			decode(l.code(codes, i, k), v)
			store(v, l.value(dst, i, k))
		}
	})
	VZEROUPPER()
	RET()
}

// decoder returns the functions of halves, for codes of either width.
func (l lanes) decoder(scale reg.VecVirtual) (decode func(src Mem, v reg.VecVirtual), scaled func()) {
	if l.perByte == 2 {
		return l.halves(scale)
	}
	return func(src Mem, v reg.VecVirtual) {
		VPMOVSXBD(src, v)
		VCVTDQ2PS(v, v)
		VMULPS(scale, v, v)
	}, func() {}
}

// adder adds decoded values and the caller's own.
type adder struct {
	lanes
	sums, codes, own   reg.Register
	scale, multiple, v reg.VecVirtual
	decode             func(src Mem, v reg.VecVirtual)
	scaled             func()
	top                maximum
	store              func(v, dst Op)
}

func (l lanes) adder(multiply bool) adder {
	a := adder{
		lanes: l, sums: Load(Param("sums"), GP64()), codes: Load(Param("codes"), GP64()), own: Load(Param("own"), GP64()),
		scale: l.vector(), v: l.vector(), top: l.maximum(2),
		store: floats,
	}
	a.decode, a.scaled = l.decoder(a.scale)
	if multiply {
		a.multiple = l.broadcastParam("mul")
	}
	return a
}

func (a adder) add(i reg.Register, values int) {
	for k := 0; k < values; k += a.values {
		a.decode(a.code(a.codes, i, k), a.v)
		VADDPS(a.value(a.own, i, k), a.v, a.v)
		if a.multiple != nil {
			VMULPS(a.multiple, a.v, a.v)
		}
		a.store(a.v, a.value(a.sums, i, k))
		a.top.take(k/a.values, a.v)
	}
}

// named names a kernel by the width of its codes: those of 8 bits have no
// suffix.
func (l lanes) named(name string) string {
	if l.perByte == 2 {
		return name + "4"
	}
	return name
}

// sum names the functions of add and its kin. There are two of each: the usual
// one, and one with a multiplication more for the last step of the ring.
func sum(name string, multiply bool) (fullName, parameter, formula string) {
	if multiply {
		return name + "Mul", ", mul float32", "(float32(code) × scale + own) × mul"
	}
	return name, "", "float32(code) × scale + own"
}

func (l lanes) add(multiply, stream bool) {
	name, doc, store := l.sink(stream, "add", "Sums", floats)
	name, mul, formula := sum(l.named(name), multiply)
	l.function(name, "func(sums *float32, codes *byte, own *float32, n int, scale float32"+mul+") uint32",
		"writes "+formula+" to sums, each operation rounded, and returns the largest bit pattern of the sums without their signs."+doc+l.blindness(), perStep)
	n := l.length()
	a := l.adder(multiply)
	a.store = store
	l.broadcastTo(a.scale, "scale")
	a.scaled()
	a.top.begin()
	if stream {
		PREFETCHT1(Mem{Base: a.own, Disp: touchAhead})
	}
	l.loop(n, func(i reg.GPVirtual, values int) {
		for k := 0; stream && k < values; k += lineValues {
			PREFETCHT0(l.value(a.own, i, fetchAhead/4+k))
		}
		a.add(i, values)
	})
	_, absmax := a.top.result()
	Store(absmax, ReturnIndex(0))
	VZEROUPPER()
	RET()
}

// addQuantise adds up one block and writes the codes of the block before it, in
// turn, block after block. Encoding begins with a maximum and two divisions,
// which take long; adding fills the time. It leaves special cases to its
// caller. A scale that is not finite is no special case: it makes all sums
// non-finite.
func (l lanes) addQuantise(multiply, stream bool) {
	name, doc, store := l.sink(stream, "addQuantise", "Codes", l.load)
	name, mul, formula := sum(l.named(name), multiply)
	l.function(name, "func(sums, late *float32, inScales, codes *byte, own *float32, scales, lateCodes *byte, n, blocks int, inverse float32"+mul+") (done int, absmax, nan uint32)",
		"does with the first of so many blocks of n values what add does with "+formula+
			", and with late, the sums of the block before, what quantise does. If late has no NaN and the first block's absmax leads to codes, it writes the scale of the first to scales and goes on with the next, late and sums in each other's place. It returns the number of blocks added up, and absmax and nan of the last one."+doc+l.blindness(), perTurn)
	n, blocks, done := l.length(), Load(Param("blocks"), GP64()), GP64()
	late, lateCodes := Load(Param("late"), GP64()), Load(Param("lateCodes"), GP64())
	inScales, scales := Load(Param("inScales"), GP64()), Load(Param("scales"), GP64())
	a := l.adder(multiply)
	e := l.encoder()
	largestBits, maxScaleBits := uint32(largestCode), uint32(maxScale)
	if l.perByte == 2 {
		largestBits, maxScaleBits = largestCode4, maxScale4
	}
	largest := l.broadcastBits(largestBits).AsX()
	XORQ(done, done)

	Label("block")
	VBROADCASTSS(Mem{Base: inScales, Index: done, Scale: 4}, a.scale)
	a.scaled()
	a.top.begin()
	PREFETCHT1(Mem{Base: a.own, Disp: touchAhead})
	i := GP64()
	XORQ(i, i)
	l.turns(i, n, func() {
		for k := 0; k < perTurn; k += lineValues {
			if stream {
				PREFETCHT0(l.value(a.own, i, fetchAhead/4+k))
			} else {
				PREFETCHT1(l.value(a.own, i, fetchAhead/4+k))
			}
		}
		a.add(i, perTurn)
		e.encode(lateCodes, late, i, perTurn, store)
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
	MOVL(U32(maxScaleBits), most)
	CMPL(bits, most)
	CMOVLHI(most, bits)
	MOVL(bits, Mem{Base: scales, Index: done, Scale: 4, Disp: -4})
	VDIVSS(top, largest, x)
	VBROADCASTSS(x, e.inverse)
	XCHGQ(late, a.sums)
	ADDQ(n, a.codes)
	ADDQ(n, lateCodes)
	LEAQ(l.value(a.own, n, 0), a.own)
	JMP(LabelRef("block"))

	Label("end")
	Store(done, ReturnIndex(0))
	Store(absmax, ReturnIndex(1))
	Store(nan, ReturnIndex(2))
	VZEROUPPER()
	RET()
}

// fence makes writes past the caches visible in order.
func fence() {
	TEXT("fence", NOSPLIT, "func()")
	Doc("fence orders what quantiseStream has written before all that is written later.")
	SFENCE()
	RET()
}

// flush removes memory from the caches, for measuring.
func flush() {
	TEXT("flush", NOSPLIT, "func(p *byte, n int)")
	Pragma("noescape")
	Doc("flush writes the lines of the n bytes at p back to memory, and puts them out of all caches. n is positive.")
	p, end := Load(Param("p"), GP64()), Load(Param("n"), GP64())
	ADDQ(p, end)
	ANDQ(I8(-4*lineValues), p)
	Label("line")
	CLFLUSHOPT(Mem{Base: p})
	ADDQ(Imm(4*lineValues), p)
	CMPQ(p, end)
	JL(LabelRef("line"))
	MFENCE()
	RET()
}

// canFlush reports whether the processor has flush's instruction, which is
// younger than AVX2.
func canFlush() {
	TEXT("canFlush", NOSPLIT, "func() bool")
	Doc("canFlush reports whether the processor has the instruction that flush needs. It must have AVX2.")
	MOVL(U32(7), reg.EAX)
	XORL(reg.ECX, reg.ECX)
	CPUID()
	SHRL(Imm(23), reg.EBX)
	ANDL(Imm(1), reg.EBX)
	Store(reg.BL, ReturnIndex(0))
	RET()
}
