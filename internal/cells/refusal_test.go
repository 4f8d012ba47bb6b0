package cells

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate/internal/record"
)

// refusing returns a bucket of n units an hour, all used, of which it is known without its record
// that it refuses. It is to be called in a bubble.
func refusing(t *testing.T, s *Store, n int64) (*Buckets, *lockedRecord) {
	t.Helper()
	b := s.Space("t", "p").Bind(rolling(n)[1:])
	for range n {
		if !grants(t, b) {
			t.Fatal("refused too soon")
		}
	}
	for range 3 { // is met, is hot, is known
		time.Sleep(time.Duration(seldom-s.now()%seldom) * time.Microsecond)
		if grants(t, b) {
			t.Fatal("granted too much")
		}
	}
	lr := s.index.find(b.space, "k").owner.Load().locked
	if lr.refusal.Load() == nil {
		t.Fatal("it is not known that it refuses")
	}
	return b, lr
}

func grants(t *testing.T, b *Buckets) bool {
	t.Helper()
	var out [1]record.Result
	ok, _, _, after, earliest, err := b.Take("k", &record.Amounts{1}, 0, out[:])
	if err != nil || ok != (after == 0) || earliest != after || out[0].RetryAfter != after {
		t.Fatal(ok, after, earliest, err, out)
	}
	return ok
}

// TestRefusedWithoutLock: a take of a bucket that refuses does not wait for its lock.
func TestRefusedWithoutLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(10)
		defer s.Close()
		b, lr := refusing(t, s, 5)
		lr.mu.Lock()
		defer lr.mu.Unlock()
		for range 100 {
			if time.Sleep(time.Millisecond); grants(t, b) {
				t.Error("granted")
			}
		}
	})
}

// TestRefusalIsTakenBack by whatever may end it, at once.
func TestRefusalIsTakenBack(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]func(t *testing.T, s *Store, b *Buckets) *Buckets{
		"time": func(_ *testing.T, _ *Store, b *Buckets) *Buckets { time.Sleep(time.Hour); return b },
		"a settlement": func(_ *testing.T, s *Store, b *Buckets) *Buckets {
			s.Among([]Named{{Name{"t", "p", "k"}, b.specs}}, false, func(recs []*record.Record) {
				record.Refund([]record.Ask{{Rec: recs[0], Specs: b.specs, N: record.Amounts{1}}}, 0, s.Now())
			})
			return b
		},
		"a take with others": func(t *testing.T, s *Store, b *Buckets) *Buckets {
			time.Sleep(time.Hour)
			err := s.With([]Named{{Name{"t", "p", "k"}, b.specs}}, func(recs []*record.Record) {
				record.Decide([]record.Ask{{Rec: recs[0], Specs: b.specs, N: record.Amounts{4}}}, &record.Take{},
					s.Now())
			})
			if err != nil {
				t.Error(err)
			}
			return b
		},
		"a reset":         func(_ *testing.T, s *Store, b *Buckets) *Buckets { s.Reset(Name{"t", "p", "k"}); return b },
		"another version": func(_ *testing.T, _ *Store, b *Buckets) *Buckets { return b.space.Bind(rolling(6)[1:]) },
		"a sweep": func(_ *testing.T, s *Store, b *Buckets) *Buckets {
			s.index.sweep(func(c *cell) bool { return c.kill(s, s.now()+time.Hour.Microseconds()) })
			return b
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := New(10)
				defer s.Close()
				b, _ := refusing(t, s, 5)
				if b = f(t, s, b); !grants(t, b) {
					t.Error("still refused")
				}
				if name != "a reset" && name != "a sweep" && name != "time" && grants(t, b) {
					t.Error("granted once more")
				}
			})
		})
	}
}

// TestSmallTakesPassWhereLargeAreRefused, and it is told then what is left.
func TestSmallTakesPassWhereLargeAreRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(10)
		defer s.Close()
		b := s.Space("t", "p").Bind(rolling(10)[1:])
		grants(t, b)
		for left := int64(9); left >= 0; left-- {
			for range 5 {
				time.Sleep(time.Duration(seldom-s.now()%seldom) * time.Microsecond)
				var out [1]record.Result
				if ok, _, _, _, _, err := b.Take("k", &record.Amounts{10}, 0, out[:]); ok || err != nil ||
					out[0].Remaining != left {
					t.Fatal(ok, err, out, left)
				}
			}
			if grants(t, b) != (left > 0) {
				t.Fatalf("%d are left, and one is granted or not", left)
			}
		}
	})
}

// TestRefusalsRace: while many are refused, no window grants more than the limit, and each grants
// all of it.
// req: A1
func TestRefusalsRace(t *testing.T) {
	t.Parallel()
	const limit, workers, windows = 50, 4, 12
	window := (20 * time.Millisecond).Microseconds()
	specs := rolling(limit)[1:]
	specs[0].Window, specs[0].Join = window, 0
	s := New(10)
	defer s.Close()
	b := s.Space("t", "p").Bind(specs)
	until := s.Now() + windows*window
	granted := make([][]int64, workers)
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			var out [1]record.Result
			for s.Now() < until {
				ok, _, at, _, _, err := b.Take("k", &record.Amounts{1}, 0, out[:])
				if err != nil {
					t.Error(err)
				} else if ok {
					granted[i] = append(granted[i], at)
				}
			}
		})
	}
	wg.Wait()
	all := slices.Concat(granted...)
	slices.Sort(all)
	for i := limit; i < len(all); i++ {
		if d := all[i] - all[i-limit]; d < window {
			t.Fatalf("%d granted within %d µs", limit+1, d)
		}
	}
	if len(all) < limit {
		t.Errorf("%d granted", len(all))
	}
}
