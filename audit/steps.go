package audit

// step is a change of what one limit counts, right after an instant.
type step struct {
	at    int64
	kind  stepKind
	least int64
	most  int64
	used  int64
}

// stepKind says what changes. Of steps at one instant the lowest comes first.
type stepKind uint8

const (
	stepEnd    stepKind = iota // a window has ended: nothing counts any more
	stepLess                   // units do not count any more
	stepMore                   // units count
	stepPour                   // units are in a bucket, and drain
	stepClosed                 // the upstream has said that nothing fits
	stepNamed                  // and that this is because of this limit
)

// steps is a heap: the first step comes first.
type steps []step

func (s step) before(t step) bool { return s.at < t.at || s.at == t.at && s.kind < t.kind }

func (h *steps) push(s step) {
	*h = append(*h, s)
	list := *h
	for i := len(list) - 1; i > 0; {
		up := (i - 1) / 2
		if !list[i].before(list[up]) {
			return
		}
		list[i], list[up] = list[up], list[i]
		i = up
	}
}

// pop removes the first step. There is one.
func (h *steps) pop() step {
	list := *h
	first, last := list[0], len(list)-1
	list[0] = list[last]
	list = list[:last]
	*h = list
	for i := 0; ; {
		next := 2*i + 1
		if next >= last {
			return first
		}
		if next+1 < last && list[next+1].before(list[next]) {
			next++
		}
		if !list[next].before(list[i]) {
			return first
		}
		list[i], list[next] = list[next], list[i]
		i = next
	}
}
