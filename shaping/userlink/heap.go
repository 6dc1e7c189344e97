package userlink

// heap is a binary heap; container/heap would allocate for every packet.
type heap[E ordered[E]] []E

type ordered[E any] interface{ before(E) bool }

func (h *heap[E]) push(e E) {
	*h = append(*h, e)
	all := *h
	for i := len(all) - 1; i > 0; {
		parent := (i - 1) / 2
		if !all[i].before(all[parent]) {
			break
		}
		all[i], all[parent] = all[parent], all[i]
		i = parent
	}
}

// pop removes the first entry. There must be one.
func (h *heap[E]) pop() E {
	all, end := *h, len(*h)-1
	top := all[0]
	all[0] = all[end]
	clear(all[end:]) // releases its references
	all = all[:end]
	*h = all
	for i := 0; ; {
		least := i
		for _, child := range [2]int{2*i + 1, 2*i + 2} {
			if child < end && all[child].before(all[least]) {
				least = child
			}
		}
		if least == i {
			return top
		}
		all[i], all[least] = all[least], all[i]
		i = least
	}
}
