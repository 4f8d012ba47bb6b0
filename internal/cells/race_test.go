package cells

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/drawgate/drawgate/internal/record"
)

// leaky is a bucket limit of n per window.
func leaky(n int64, window time.Duration) []record.Spec {
	s := record.Spec{ID: 1, Kind: record.Bucket, Window: window.Microseconds(), Rate: n}
	s.Scale, s.Drain = record.BucketScale(n, s.Window)
	for i := range s.Effective {
		s.Effective[i] = n
	}
	return []record.Spec{s}
}

// take is what a limiter does: the word if that is enough.
func take(b *Buckets, name string, n int64) (allowed bool, left int64, err error) {
	if left, _, over, _, ok := b.TakeGCRA(name, n, 0); ok {
		return over == 0, max(0, left) / b.spec.Scale, nil
	}
	var out [1]record.Result
	allowed, _, _, _, _, err = b.Take(name, &record.Amounts{n}, 0, out[:])
	return allowed, out[0].Remaining, err
}

// indexed counts the cells of the index one by one.
func (s *Store) indexed() (n int64) {
	s.index.each(func(*cell) bool { n++; return true })
	return n
}

// move moves the cell of a name, and all that share its page.
func (s *Store) move(sp *Space, name string) {
	p := s.index.lock(s.index.hash(sp, name))
	s.index.replace(p, 0)
	p.mu.Unlock()
}

// TestUpgradeIsLinearizable: takes of a bucket that becomes a record, is moved, swept, forgotten
// and made again have the answers of one after the other.
// req: A3, A8
func TestUpgradeIsLinearizable(t *testing.T) {
	t.Parallel()
	const most, workers, rounds = 6, 3, 60
	type in struct {
		reset bool
		n     int64
	}
	type out struct {
		allowed bool
		left    int64
	}
	// one less where the clock was read before who took last read his: see docs/semantics.md,
	// Answers
	right := func(left, want int64) bool {
		return left == want || left == max(0, want-1)
	}
	model := porcupine.Model{
		Init: func() any { return int64(0) },
		Step: func(state, input, output any) (bool, any) {
			used, i, o := state.(int64), input.(in), output.(out)
			switch {
			case i.reset:
				return true, int64(0)
			case used+i.n <= most:
				return o.allowed && right(o.left, most-used-i.n), used + i.n
			}
			return !o.allowed && right(o.left, most-used), used
		},
	}
	s := New(1000)
	defer s.Close()
	sp := s.Space("t", "p")
	b := sp.Bind(leaky(most, 300*24*time.Hour)) // nothing comes back meanwhile
	start := time.Now()
	for round := range rounds {
		name := fmt.Sprint("k", round)
		var mu sync.Mutex
		var ops []porcupine.Operation
		var wg sync.WaitGroup
		for w := range workers {
			wg.Go(func() {
				for k := range 8 {
					i, o := in{n: int64(1 + (w+k)%2)}, out{}
					call := time.Since(start).Nanoseconds()
					switch {
					case w == 0 && k == 3: // a record is asked for
						_ = s.With([]Named{{Name{"t", "p", name}, b.specs}}, func([]*record.Record) {})
						continue
					case w == 1 && k == 2: // it is moved
						s.move(sp, name)
						continue
					case w == 1 && k == 5:
						i = in{reset: true}
						s.Reset(Name{"t", "p", name})
					case w == 2:
						if s.busy.CompareAndSwap(false, true) {
							s.sweep(0)
						}
						fallthrough
					default:
						var err error
						if o.allowed, o.left, err = take(b, name, i.n); err != nil {
							t.Error(err)
						}
					}
					done := time.Since(start).Nanoseconds()
					mu.Lock()
					ops = append(ops, porcupine.Operation{ClientId: w, Input: i, Call: call, Output: o, Return: done})
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		if res := porcupine.CheckOperationsTimeout(model, ops, time.Minute); res != porcupine.Ok {
			t.Fatalf("round %d: %v: %v", round, res, ops)
		}
	}
}

// neverMints takes from buckets, by their numbers, in several goroutines while another one calls
// disturb again and again. None may grant more than burst in each window, and one more.
func neverMints(t *testing.T, buckets, rounds, burst int, window time.Duration, take func(name string) (bool, error),
	disturb func(i int),
) {
	t.Helper()
	granted := make([]atomic.Int64, buckets)
	var done atomic.Bool
	var takers, other sync.WaitGroup
	start := time.Now()
	for w := range 3 {
		takers.Go(func() {
			for i := range rounds {
				k := (i + w) % buckets
				if ok, err := take(fmt.Sprint(k)); err != nil {
					t.Error(err)
				} else if ok {
					granted[k].Add(1)
				}
			}
		})
	}
	other.Go(func() {
		for i := 0; !done.Load(); i++ {
			disturb(i)
		}
	})
	takers.Wait()
	most := int64(burst) + int64(time.Since(start)*time.Duration(burst)/window) + 1
	done.Store(true)
	other.Wait()
	for k := range granted {
		if g := granted[k].Load(); g > most || g == 0 {
			t.Errorf("bucket %d granted %d, at most %d", k, g, most)
		}
	}
}

// TestSweepNeverMints: buckets that are empty again and again are swept while they are taken from,
// and never grant more than time allows.
func TestSweepNeverMints(t *testing.T) {
	t.Parallel()
	const names, burst = 8, 4
	const window = 2 * time.Millisecond
	s := New(1000)
	defer s.Close()
	b := s.Space("t", "p").Bind(leaky(burst, window))
	one := func(name string) (bool, error) {
		ok, _, err := take(b, name, 1)
		return ok, err
	}
	neverMints(t, names, 20_000, burst, window, one, func(i int) {
		if s.busy.CompareAndSwap(false, true) {
			s.sweep(0)
		}
		if i%3 == 0 {
			s.move(b.space, fmt.Sprint(i%names))
		}
		if i%5 == 0 {
			n := []Named{{Name{"t", "p", fmt.Sprint(i % names)}, b.specs}}
			if i%2 == 0 {
				_ = s.With(n, func([]*record.Record) {})
			} else {
				s.Among(n, i%4 == 1, func([]*record.Record) {})
			}
		}
	})
	if s.Len() != s.indexed() {
		t.Errorf("%d buckets counted, %d there", s.Len(), s.indexed())
	}
	time.Sleep(2 * window) // all are empty now
	s.busy.Store(true)
	s.sweep(0)
	if s.Len() != 0 || s.indexed() != 0 {
		t.Errorf("%d buckets counted, %d there, none of them used", s.Len(), s.indexed())
	}
}

// TestCountIsExact: however buckets come and go, the bound is kept, and what limits stays.
func TestCountIsExact(t *testing.T) {
	t.Parallel()
	const most, workers = 200, 3
	s := New(most)
	defer s.Close()
	hourly := s.Space("t", "lasting").Bind(leaky(1, time.Hour))
	brief := s.Space("t", "brief").Bind(leaky(1, time.Millisecond))
	for i := range most / 2 {
		if ok, _, err := take(hourly, fmt.Sprint(i), 1); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range 3000 {
				if _, _, err := take(brief, fmt.Sprint(w, i), 1); err != nil && !errors.Is(err, ErrFull) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := s.Len(); n != s.indexed() || n > most+workers {
		t.Errorf("%d counted, %d there, at most %d", n, s.indexed(), most+workers)
	}
	for i := range most / 2 {
		if ok, _, err := take(hourly, fmt.Sprint(i), 1); ok || err != nil {
			t.Fatalf("bucket %d was given up while it limits: %v %v", i, ok, err)
		}
	}
}

// TestDeadIsDead: who still holds a bucket that was swept is told to look it up again, however it
// wants to use it.
func TestDeadIsDead(t *testing.T) {
	t.Parallel()
	s := New(10)
	defer s.Close()
	sp := s.Space("t", "p")
	b := sp.Bind(leaky(1, time.Hour))
	for _, record := range []bool{false, true} {
		if _, _, err := take(b, "k", 1); err != nil {
			t.Fatal(err)
		}
		c := s.index.find(sp, "k")
		drained := c.tat.Load() / b.spec.Drain
		if record {
			lr := c.lock(nil)
			drained = lr.whole().Until() - s.base
			lr.mu.Unlock()
		}
		if c.kill(s, drained-1) || !c.kill(s, drained) || c.kill(s, drained) || s.Len() != 0 {
			t.Fatal("killed before nothing is used, or not then, or twice")
		}
		if lr := c.owner.Load().locked; record && (!lr.gone || lr.whole().Limits != nil) {
			t.Error("a dead record keeps what it was")
		}
		for range 2 {
			if c.lock(nil) != nil || !s.idle(c) {
				t.Error("a dead bucket was locked")
			}
		}
		if ok, left, err := take(b, "k", 1); !ok || left != 0 || err != nil || s.index.find(sp, "k") == c ||
			s.Len() != 1 {
			t.Errorf("looked up again: %v, %d left, %v, %d buckets", ok, left, err, s.Len())
		}
	}
}

// TestAWordHasOneWayToCount: whoever counts otherwise makes a record of it, and what is used stays
// used.
func TestAWordHasOneWayToCount(t *testing.T) {
	t.Parallel()
	s := New(10)
	defer s.Close()
	sp := s.Space("t", "p")
	slow, fast := sp.Bind(leaky(6, 300*24*time.Hour)), sp.Bind(leaky(12, 300*24*time.Hour))
	if ok, left, err := take(slow, "k", 4); !ok || left != 2 || err != nil {
		t.Fatal(ok, left, err)
	}
	if ok, left, err := take(fast, "k", 1); !ok || left < 6 || left > 7 || err != nil { // rounded up, if at all
		t.Errorf("%v, %d left, %v", ok, left, err)
	}
	if c := s.index.find(sp, "k"); c.tat.Load() != isRecord {
		t.Error("it is a word still")
	}
}

// TestClosed answers nothing any more.
func TestClosed(t *testing.T) {
	t.Parallel()
	s := New(10)
	b := s.Space("t", "p").Bind(leaky(1, time.Hour))
	s.Close()
	if _, _, err := take(b, "k", 1); !errors.Is(err, ErrClosed) || !s.Closed() {
		t.Errorf("%v", err)
	}
}

// TestHotIsFoundAgain: the cell that is kept as the one asked for last is given up when it is
// swept, and not taken for another.
func TestHotIsFoundAgain(t *testing.T) {
	t.Parallel()
	s := New(10)
	defer s.Close()
	b := s.Space("t", "p").Bind(leaky(1, time.Hour))
	for _, record := range []bool{false, true} {
		if ok, _, err := take(b, "k", 1); !ok || err != nil {
			t.Fatal(ok, err)
		}
		c := s.index.find(b.space, "k")
		b.hot.Store(&hot{cell: c, name: "k"})
		if ok, left, err := take(b, "other", 1); !ok || left != 0 || err != nil {
			t.Errorf("another bucket: %v, %d left, %v", ok, left, err)
		}
		s.Reset(Name{"t", "p", "other"})
		drained := c.tat.Load() / b.spec.Drain
		if record {
			lr := c.lock(nil)
			drained = lr.whole().Until() - s.base
			lr.mu.Unlock()
		}
		if !c.kill(s, drained) {
			t.Fatal("not killed")
		}
		if ok, _, err := take(b, "k", 1); !ok || err != nil || b.hot.Load() != nil {
			t.Errorf("after it was swept: %v %v", ok, err)
		}
		s.Reset(Name{"t", "p", "k"})
	}
}
