package tunnel

// windowBits is how far a number may be behind the newest one. A burst of the
// whole receive buffer that comes out of order fits.
const windowBits = 4096

// window knows which numbers have come (RFC 6479). The zero window knows none.
type window struct {
	bits [windowBits / 64]uint64
	next uint64 // the newest number and one
}

// isNew says whether a number has not come yet, as far as is known.
func (w *window) isNew(n uint64) bool {
	switch {
	case n >= w.next:
		return true
	case w.next-n > windowBits-64: // its word may be in use for newer ones
		return false
	}
	return w.bits[n/64%uint64(len(w.bits))]&(1<<(n%64)) == 0
}

// take notes a number that is new.
func (w *window) take(n uint64) {
	if n >= w.next {
		for k := min(n/64-w.word(), uint64(len(w.bits))); k > 0; k-- {
			w.bits[(n/64-k+1)%uint64(len(w.bits))] = 0
		}
		w.next = n + 1
	}
	w.bits[n/64%uint64(len(w.bits))] |= 1 << (n % 64)
}

// word is that of the newest number.
func (w *window) word() uint64 {
	if w.next == 0 {
		return 0
	}
	return (w.next - 1) / 64
}
