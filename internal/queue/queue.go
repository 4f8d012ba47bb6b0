// Package queue orders the waiters for one bucket in one process, and determines how long the first
// one waits before it tries again.
//
// It is a state machine: no clock, no goroutine, no lock.
package queue

import (
	"container/heap"
	"iter"
	"slices"
	"time"
)

// Age is how long a waiter must have waited to come before a newcomer whose priority is higher by
// one. So nobody waits for ever.
const Age = 10 * time.Second

// Place is a position among all waiters of a process. No two are equal, so a caller that waits for
// several buckets has the same position in every line.
type Place struct {
	rank int64  // arrival in ns minus Age per priority: smaller is nearer to the front
	seq  uint64 // arrival, in order
}

// Before reports whether p is nearer to the front than o.
func (p Place) Before(o Place) bool {
	if p.rank != o.rank {
		return p.rank < o.rank
	}
	return p.seq < o.seq
}

// Places hands out places. The zero value is ready to use.
type Places struct{ last uint64 }

// Next returns the place of a caller with that priority that arrives at now (any monotonic ns).
func (p *Places) Next(priority int8, now int64) Place {
	p.last++
	return Place{rank: now - int64(priority)*int64(Age), seq: p.last}
}

// Waiter is a waiting caller, in one line at a time.
type Waiter struct {
	Turn  chan struct{} // receives one element when the waiter has come to the front, or should try at once; holds one
	Place Place
	Units []int64 // what it asks for of its line's bucket, per limit; it is only read
	Firm  bool    // it will pass, and once it has nobody gives its units back
	index int     // position in the heap
}

// NewWaiter returns a waiter that is in no line yet.
func NewWaiter(p Place) *Waiter { return &Waiter{Turn: make(chan struct{}, 1), Place: p} }

// Wake tells a waiter to try at once.
func (w *Waiter) Wake() {
	select {
	case w.Turn <- struct{}{}:
	default:
	}
}

// Line holds the waiters for one bucket. The zero value is an empty line.
type Line struct {
	h    waiters
	last Place // nobody in the line is after it
	all  sums  // of all waiters
}

// sums are units per limit.
type sums struct{ units, firm []int64 }

func (s *sums) add(w *Waiter, sign int64) {
	for len(s.units) < len(w.Units) {
		s.units, s.firm = append(s.units, 0), append(s.firm, 0)
	}
	for i, n := range w.Units {
		if s.units[i] += sign * n; w.Firm {
			s.firm[i] += sign * n
		}
	}
}

// Len returns the number of waiters.
func (l *Line) Len() int { return len(l.h) }

// Front returns the first waiter, or nil.
func (l *Line) Front() *Waiter {
	if len(l.h) == 0 {
		return nil
	}
	return l.h[0]
}

// Following yields those behind the front, in order.
func (l *Line) Following() iter.Seq[*Waiter] {
	return func(yield func(*Waiter) bool) {
		var edge []int // of the heap: the next one is among these, the last of them
		later := func(i, j int) int {
			if l.h.Less(i, j) {
				return 1
			}
			return -1
		}
		for i := 0; i < len(l.h); {
			for _, child := range [...]int{2*i + 1, 2*i + 2} {
				if child < len(l.h) {
					at, _ := slices.BinarySearchFunc(edge, child, later)
					edge = slices.Insert(edge, at, child)
				}
			}
			if len(edge) == 0 {
				return
			}
			i, edge = edge[len(edge)-1], edge[:len(edge)-1]
			if !yield(l.h[i]) {
				return
			}
		}
	}
}

// Leads reports whether nobody in the line is before p.
func (l *Line) Leads(p Place) bool { return len(l.h) == 0 || !l.h[0].Place.Before(p) }

// Before returns how many waiters are before p, how many units of a limit they ask for in all, and
// how many of these are firm.
func (l *Line) Before(p Place, limit int) (n int, units, firm int64) {
	if len(l.h) > 0 && l.last.Before(p) { // as for most newcomers, however long the line is
		return len(l.h), l.all.units[limit], l.all.firm[limit]
	}
	return l.h.before(0, p, limit)
}

// InOrder yields the waiters from the front on, each with the firm units of a limit that those
// before it ask for. One that is loosened meanwhile does not count for those after it.
func (l *Line) InOrder(limit int) iter.Seq2[*Waiter, int64] {
	return func(yield func(*Waiter, int64) bool) {
		order := slices.Clone(l.h)
		slices.SortFunc(order, func(a, b *Waiter) int {
			if a.Place.Before(b.Place) {
				return -1
			}
			return 1
		})
		firm := int64(0)
		for _, w := range order {
			if !yield(w, firm) {
				return
			}
			if w.Firm {
				firm += w.Units[limit]
			}
		}
	}
}

// Add adds a waiter. Its units must not change while it is in the line.
func (l *Line) Add(w *Waiter) {
	if len(l.h) == 0 || l.last.Before(w.Place) {
		l.last = w.Place
	}
	l.all.add(w, 1)
	heap.Push(&l.h, w)
}

// Remove removes a waiter. If another one comes to the front because of that, it gets its turn.
func (l *Line) Remove(w *Waiter) {
	was := l.Front()
	l.all.add(w, -1)
	heap.Remove(&l.h, w.index)
	if was == w {
		l.Wake()
	}
}

// Loosen says that a waiter will leave without having passed: it is not firm any more.
func (l *Line) Loosen(w *Waiter) {
	l.all.add(w, -1)
	w.Firm = false
	l.all.add(w, 1)
}

// Wake gives the first waiter its turn.
func (l *Line) Wake() {
	if f := l.Front(); f != nil {
		f.Wake()
	}
}

// waiters is a heap by place.
type waiters []*Waiter

func (h waiters) Len() int           { return len(h) }
func (h waiters) Less(i, j int) bool { return h[i].Place.Before(h[j].Place) }
func (h waiters) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// before is [Line.Before] for the part of the heap below element i, itself included.
func (h waiters) before(i int, p Place, limit int) (n int, units, firm int64) {
	if i >= len(h) || !h[i].Place.Before(p) {
		return 0, 0, 0 // nor are those below it
	}
	if n, units = 1, h[i].Units[limit]; h[i].Firm {
		firm = units
	}
	for _, child := range [...]int{2*i + 1, 2*i + 2} {
		m, more, sure := h.before(child, p, limit)
		n, units, firm = n+m, units+more, firm+sure
	}
	return n, units, firm
}

func (h *waiters) Push(x any) {
	w := x.(*Waiter)
	w.index = len(*h)
	*h = append(*h, w)
}

func (h *waiters) Pop() any {
	old := *h
	w := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return w
}

// Bounds of the waits while the missing units are held, and may come back at any time.
const (
	firstHeld = 250 * time.Millisecond
	lastHeld  = 5 * time.Second
)

// MaxJitter bounds every [Spread].
const MaxJitter = time.Second

// Refusal is what the first waiter knows about its last attempt.
type Refusal struct {
	Attempt       int           // 1 for the first; attempts caused by a hint are not counted
	RetryAfter    time.Duration // when it fits if nothing else happens
	EarliestRetry time.Duration // when it fits at the earliest: less than RetryAfter if held units block it
	Spread        time.Duration // largest jitter: see [Spread]
}

// Delay returns how long to wait before the next attempt. random is in [0, 1).
func (r Refusal) Delay(backoff []time.Duration, random float64) time.Duration {
	if len(backoff) > 0 {
		return backoff[min(r.Attempt, len(backoff))-1]
	}
	jitter := time.Duration(random * float64(r.Spread))
	if r.EarliestRetry < r.RetryAfter {
		step := lastHeld
		if shift := r.Attempt - 1; shift < 5 {
			step = min(lastHeld, firstHeld<<shift)
		}
		return later(min(r.RetryAfter, max(step, r.EarliestRetry)), jitter)
	}
	return later(r.RetryAfter, jitter)
}

// later returns d + jitter, or d if that overflows: a take that never fits is never tried.
func later(d, jitter time.Duration) time.Duration { return max(d, d+jitter) }

// Spread returns the largest jitter for a limit: a 100th of one unit's refill, a 2000th of the
// window, or a second, whichever is least. With jitter of a whole unit's refill, a bucket whose
// burst is one unit would lose half of its rate, because units that arrive while nobody asks are
// lost. A window of 0 (concurrency) has no jitter.
func Spread(window time.Duration, amount int64) time.Duration {
	return min(window/time.Duration(max(1, amount))/100, window/2000, MaxJitter)
}
