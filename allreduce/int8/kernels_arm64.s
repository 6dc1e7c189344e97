//go:build !purego

#include "textflag.h"

// The kernels handle 16 values a turn: four vectors of float32, one of codes.
// Registers keep their meaning throughout:
//
//	V0–V3    values, or codes in V0
//	V4–V7    decoded values
//	V26      what values are multiplied by before they are added up again
//	V27      scale, or inverse
//	V28–V29  running maxima of magnitudes, two that hide the latency of one
//	V31      the mask that takes signs away

// Instructions that Go's assembler does not have, with the operands in its
// order: sources first. (Arm Architecture Reference Manual, DDI 0487, C7.2.)
#define FADD(m, n, d)   WORD $(0x4e20d400 | (m)<<16 | (n)<<5 | (d)) // FADD   Vd.4S, Vn.4S, Vm.4S
#define FMUL(m, n, d)   WORD $(0x6e20dc00 | (m)<<16 | (n)<<5 | (d)) // FMUL   Vd.4S, Vn.4S, Vm.4S
#define FCVTNS(n, d)    WORD $(0x4e21a800 | (n)<<5 | (d))           // FCVTNS Vd.4S, Vn.4S: rounds half to even
#define SCVTF(n, d)     WORD $(0x4e21d800 | (n)<<5 | (d))           // SCVTF  Vd.4S, Vn.4S
#define SXTLB(n, d)     WORD $(0x0f08a400 | (n)<<5 | (d))           // SXTL   Vd.8H, Vn.8B
#define SXTLB2(n, d)    WORD $(0x4f08a400 | (n)<<5 | (d))           // SXTL2  Vd.8H, Vn.16B
#define SXTLH(n, d)     WORD $(0x0f10a400 | (n)<<5 | (d))           // SXTL   Vd.4S, Vn.4H
#define SXTLH2(n, d)    WORD $(0x4f10a400 | (n)<<5 | (d))           // SXTL2  Vd.4S, Vn.8H
#define SSHR4(n, d)     WORD $(0x4f0c0400 | (n)<<5 | (d))           // SSHR   Vd.16B, Vn.16B, #4
#define UMAXV(n, d)     WORD $(0x6eb0a800 | (n)<<5 | (d))           // UMAXV  Sd, Vn.4S

// DECODE makes the codes in V0 values, in V4–V7.
#define DECODE \
	SXTLB(0, 1); \
	SXTLB2(0, 2); \
	SXTLH(1, 4); \
	SXTLH2(1, 5); \
	SXTLH(2, 6); \
	SXTLH2(2, 7); \
	SCVTF(4, 4); \
	SCVTF(5, 5); \
	SCVTF(6, 6); \
	SCVTF(7, 7); \
	FMUL(27, 4, 4); \
	FMUL(27, 5, 5); \
	FMUL(27, 6, 6); \
	FMUL(27, 7, 7)

// ENCODE makes the values in V0–V3 codes, in V0: the low bytes of integers,
// which are those of each even half word of each even half.
#define ENCODE \
	FMUL(27, 0, 0); \
	FMUL(27, 1, 1); \
	FMUL(27, 2, 2); \
	FMUL(27, 3, 3); \
	FCVTNS(0, 0); \
	FCVTNS(1, 1); \
	FCVTNS(2, 2); \
	FCVTNS(3, 3); \
	VUZP1 V1.H8, V0.H8, V0.H8; \
	VUZP1 V3.H8, V2.H8, V2.H8; \
	VUZP1 V2.B16, V0.B16, V0.B16

// SPLIT makes codes of the halves of eight bytes in V0, the lower one first.
#define SPLIT \
	VSHL $4, V0.B16, V1.B16; \
	SSHR4(1, 1); \
	SSHR4(0, 0); \
	VZIP1 V0.B16, V1.B16, V0.B16

// JOIN makes the codes in V0 halves of eight bytes.
#define JOIN \
	VUZP2 V0.B16, V0.B16, V1.B16; \
	VUZP1 V0.B16, V0.B16, V0.B16; \
	VSLI $4, V1.B8, V0.B8

// SUM adds the values in V0–V3 to the decoded ones, rounds, multiplies them and
// rounds again, into V4–V7.
#define SUM \
	FADD(0, 4, 4); \
	FADD(1, 5, 5); \
	FADD(2, 6, 6); \
	FADD(3, 7, 7); \
	FMUL(26, 4, 4); \
	FMUL(26, 5, 5); \
	FMUL(26, 6, 6); \
	FMUL(26, 7, 7)

// NOMAXIMA begins with maxima of 0.
#define NOMAXIMA \
	MOVW $0x7fffffff, R9; \
	VDUP R9, V31.S4; \
	VEOR V28.B16, V28.B16, V28.B16; \
	VEOR V29.B16, V29.B16, V29.B16

// MAXIMA takes the magnitudes of the vectors into the maxima. As integers NaN
// are larger than all numbers, so none is passed over.
#define MAXIMA(a, b, c, d) \
	VAND V31.B16, a.B16, V16.B16; \
	VAND V31.B16, b.B16, V17.B16; \
	VAND V31.B16, c.B16, V18.B16; \
	VAND V31.B16, d.B16, V19.B16; \
	VUMAX V16.S4, V28.S4, V28.S4; \
	VUMAX V17.S4, V29.S4, V29.S4; \
	VUMAX V18.S4, V28.S4, V28.S4; \
	VUMAX V19.S4, V29.S4, V29.S4

// LARGEST leaves the larger maximum in R9.
#define LARGEST \
	VUMAX V28.S4, V29.S4, V28.S4; \
	UMAXV(28, 28); \
	VMOV V28.S[0], R9

// func absmaxNEON(src *float32, n int) uint32
TEXT ·absmaxNEON(SB), NOSPLIT, $0-20
	MOVD src+0(FP), R0
	MOVD n+8(FP), R1
	NOMAXIMA

turn:
	VLD1.P 64(R0), [V0.S4, V1.S4, V2.S4, V3.S4]
	MAXIMA(V0, V1, V2, V3)
	SUBS   $16, R1
	BNE    turn
	LARGEST
	MOVW   R9, ret+16(FP)
	RET

// func quantiseNEON(codes *byte, src *float32, n int, inverse float32)
TEXT ·quantiseNEON(SB), NOSPLIT, $0-28
	MOVD  codes+0(FP), R0
	MOVD  src+8(FP), R1
	MOVD  n+16(FP), R2
	MOVWU inverse+24(FP), R3
	VDUP  R3, V27.S4

turn:
	VLD1.P 64(R1), [V0.S4, V1.S4, V2.S4, V3.S4]
	ENCODE
	VST1.P [V0.B16], 16(R0)
	SUBS   $16, R2
	BNE    turn
	RET

// func quantise4NEON(codes *byte, src *float32, n int, inverse float32)
TEXT ·quantise4NEON(SB), NOSPLIT, $0-28
	MOVD  codes+0(FP), R0
	MOVD  src+8(FP), R1
	MOVD  n+16(FP), R2
	MOVWU inverse+24(FP), R3
	VDUP  R3, V27.S4

turn:
	VLD1.P 64(R1), [V0.S4, V1.S4, V2.S4, V3.S4]
	ENCODE
	JOIN
	VST1.P [V0.B8], 8(R0)
	SUBS   $16, R2
	BNE    turn
	RET

// func dequantiseNEON(dst *float32, codes *byte, n int, scale float32)
TEXT ·dequantiseNEON(SB), NOSPLIT, $0-28
	MOVD  dst+0(FP), R0
	MOVD  codes+8(FP), R1
	MOVD  n+16(FP), R2
	MOVWU scale+24(FP), R3
	VDUP  R3, V27.S4

turn:
	VLD1.P 16(R1), [V0.B16]
	DECODE
	VST1.P [V4.S4, V5.S4, V6.S4, V7.S4], 64(R0)
	SUBS   $16, R2
	BNE    turn
	RET

// func dequantise4NEON(dst *float32, codes *byte, n int, scale float32)
TEXT ·dequantise4NEON(SB), NOSPLIT, $0-28
	MOVD  dst+0(FP), R0
	MOVD  codes+8(FP), R1
	MOVD  n+16(FP), R2
	MOVWU scale+24(FP), R3
	VDUP  R3, V27.S4

turn:
	VLD1.P 8(R1), [V0.B8]
	SPLIT
	DECODE
	VST1.P [V4.S4, V5.S4, V6.S4, V7.S4], 64(R0)
	SUBS   $16, R2
	BNE    turn
	RET

// func addNEON(sums *float32, codes *byte, own *float32, n int, scale, mul float32) uint32
TEXT ·addNEON(SB), NOSPLIT, $0-44
	MOVD  sums+0(FP), R0
	MOVD  codes+8(FP), R1
	MOVD  own+16(FP), R2
	MOVD  n+24(FP), R3
	MOVWU scale+32(FP), R4
	MOVWU mul+36(FP), R5
	VDUP  R4, V27.S4
	VDUP  R5, V26.S4
	NOMAXIMA

turn:
	VLD1.P 16(R1), [V0.B16]
	DECODE
	VLD1.P 64(R2), [V0.S4, V1.S4, V2.S4, V3.S4]
	SUM
	VST1.P [V4.S4, V5.S4, V6.S4, V7.S4], 64(R0)
	MAXIMA(V4, V5, V6, V7)
	SUBS   $16, R3
	BNE    turn
	LARGEST
	MOVW   R9, ret+40(FP)
	RET

// func add4NEON(sums *float32, codes *byte, own *float32, n int, scale, mul float32) uint32
TEXT ·add4NEON(SB), NOSPLIT, $0-44
	MOVD  sums+0(FP), R0
	MOVD  codes+8(FP), R1
	MOVD  own+16(FP), R2
	MOVD  n+24(FP), R3
	MOVWU scale+32(FP), R4
	MOVWU mul+36(FP), R5
	VDUP  R4, V27.S4
	VDUP  R5, V26.S4
	NOMAXIMA

turn:
	VLD1.P 8(R1), [V0.B8]
	SPLIT
	DECODE
	VLD1.P 64(R2), [V0.S4, V1.S4, V2.S4, V3.S4]
	SUM
	VST1.P [V4.S4, V5.S4, V6.S4, V7.S4], 64(R0)
	MAXIMA(V4, V5, V6, V7)
	SUBS   $16, R3
	BNE    turn
	LARGEST
	MOVW   R9, ret+40(FP)
	RET
