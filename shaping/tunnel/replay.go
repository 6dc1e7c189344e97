package tunnel

// windowBits is the largest distance of a number behind the newest one. A whole
// receive buffer out of order fits.
const windowBits = 4096

// window records which numbers have arrived (RFC 6479). The zero window has
// none.
type window struct {
	bits [windowBits / 64]uint64
	next uint64 // the newest number and one
}

// isNew reports whether a number has not arrived yet, as far as is known.
func (w *window) isNew(n uint64) bool {
	switch {
	case n >= w.next:
		return true
	case w.next-n > windowBits-64: // its word may be in use for newer ones
		return false
	}
	return w.bits[n/64%uint64(len(w.bits))]&(1<<(n%64)) == 0
}

// take records a new number.
func (w *window) take(n uint64) {
	if n >= w.next {
		for k := min(n/64-w.word(), uint64(len(w.bits))); k > 0; k-- {
			w.bits[(n/64-k+1)%uint64(len(w.bits))] = 0
		}
		w.next = n + 1
	}
	w.bits[n/64%uint64(len(w.bits))] |= 1 << (n % 64)
}

// word is the word of the newest number.
func (w *window) word() uint64 {
	if w.next == 0 {
		return 0
	}
	return (w.next - 1) / 64
}
