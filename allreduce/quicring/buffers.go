package quicring

// bufferPool keeps the frame buffers of a reduction, and between reductions of
// the same shape, so that none are allocated in the steady state.
type bufferPool struct {
	size int // bytes of each
	free chan []byte
}

// poolFor returns the endpoint's pool if it fits, else a new one.
func (e *Endpoint) poolFor(size, count int) *bufferPool {
	if e.buffers == nil || e.buffers.size != size || cap(e.buffers.free) != count {
		e.buffers = &bufferPool{size: size, free: make(chan []byte, count)}
	}
	return e.buffers
}

func (p *bufferPool) get() []byte {
	select {
	case b := <-p.free:
		return b[:p.size]
	default:
		return make([]byte, p.size)
	}
}

func (p *bufferPool) put(b []byte) {
	select {
	case p.free <- b:
	default:
	}
}
