// Package tunnel carries frames between the routers of several hosts, which
// together make one emulated network: UDP datagrams on the hosts' own network,
// encrypted and authenticated. A frame carries the time at which it is due,
// which the source decides. The tunnel converts it to the destination's clock,
// and compares the clocks all the time.
//
//	datagram  kind 1 │ 0 1 │ source 2 │ number 8 │ sealed … │ tag 16
//	sealed    due 8 │ from 2 │ to 2 │ length 2 │ frame …        (kindWhole)
//
// The first twelve bytes are the nonce, so that nobody can change them. If a
// whole frame does not fit into a datagram of the underlay, all frames are sent
// in two halves of the same size, so that trains of them can still be sent in
// one call.
package tunnel

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"
)

// Kinds of datagrams.
const (
	kindWhole  = 1 + iota // a frame
	kindFirst             // the first half of a frame
	kindSecond            // the second half, with the next number
	kindAsk               // what is your clock?
	kindAnswer
)

// Sizes in bytes.
const (
	headerSize = 12
	tagSize    = 16
	frameSize  = 14 // of the fields before a frame
	clockSize  = 24 // of an ask or an answer
	// MaxFrame is the longest frame.
	MaxFrame = 1536
	// alwaysFits is the size of a frame that every underlay carries whole, even
	// with the least MTU of IPv6, 1,280.
	alwaysFits = 1200
	// SecretSize is the size of the secret that all hosts of a run share.
	SecretSize = 32
)

// header is the unsealed beginning of a datagram.
type header struct {
	kind   byte
	source uint16
	number uint64
}

func (h header) put(to []byte) {
	to[0], to[1] = h.kind, 0
	binary.BigEndian.PutUint16(to[2:], h.source)
	binary.BigEndian.PutUint64(to[4:], h.number)
}

func readHeader(from []byte) (h header, ok bool) {
	if len(from) < headerSize+tagSize || from[1] != 0 {
		return h, false
	}
	return header{from[0], binary.BigEndian.Uint16(from[2:]), binary.BigEndian.Uint64(from[4:])}, true
}

// Frame is a frame on its way between two nodes, by their places in the plan.
// Due is when it must leave the path, and At when it arrived here.
type Frame struct {
	Due, At  time.Duration
	From, To int
	Data     []byte
}

func (f *Frame) put(to []byte) {
	binary.BigEndian.PutUint64(to, uint64(f.Due))
	binary.BigEndian.PutUint16(to[8:], uint16(f.From))
	binary.BigEndian.PutUint16(to[10:], uint16(f.To))
	binary.BigEndian.PutUint16(to[12:], uint16(len(f.Data)))
}

// readFrame reads a frame. Its data is part of from.
func readFrame(from []byte) (f Frame, ok bool) {
	if len(from) < frameSize {
		return f, false
	}
	length := int(binary.BigEndian.Uint16(from[12:]))
	if length > MaxFrame || frameSize+length > len(from) {
		return f, false
	}
	return Frame{
		Due:  time.Duration(binary.BigEndian.Uint64(from)),
		From: int(binary.BigEndian.Uint16(from[8:])), To: int(binary.BigEndian.Uint16(from[10:])),
		Data: from[frameSize : frameSize+length],
	}, true
}

// newSeal is the key of one direction between two hosts.
func newSeal(secret []byte, source, destination int) (cipher.AEAD, error) {
	if len(secret) != SecretSize {
		return nil, fmt.Errorf("the secret is %d bytes long, but must be %d bytes long", len(secret), SecretSize)
	}
	key, err := hkdf.Expand(sha256.New, secret, fmt.Sprintf("testbed tunnel %d %d", source, destination), 16)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}
