package cells

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate/internal/record"
)

// rolling returns a rolling limit of n units an hour and a bucket of as many.
func rolling(n int64) []record.Spec {
	specs := append(leaky(n, time.Hour), leaky(n, time.Hour)...)
	specs[1].ID, specs[1].Kind, specs[1].Join = 2, record.Rolling, (10 * time.Minute).Microseconds()
	return specs
}

// TestRunsCount: who comes to a bucket in the middle of a run sees all that was counted in it.
func TestRunsCount(t *testing.T) {
	t.Parallel()
	const takes = 100
	used := func(rec *record.Record) int64 {
		if len(rec.Limits) == 0 {
			return 0
		}
		return rec.Limits[1].Used
	}
	for name, see := range map[string]func(s *Store, c *cell, at Named) int64{
		"with": func(s *Store, _ *cell, at Named) (u int64) {
			if err := s.With([]Named{at}, func(recs []*record.Record) { u = used(recs[0]) }); err != nil {
				t.Error(err)
			}
			return u
		},
		"among": func(s *Store, _ *cell, at Named) (u int64) {
			s.Among([]Named{at}, false, func(recs []*record.Record) { u = used(recs[0]) })
			return u
		},
		"a look": func(s *Store, _ *cell, at Named) (u int64) {
			s.Among([]Named{at}, true, func(recs []*record.Record) { u = used(recs[0]) })
			return u
		},
		"a sweep": func(s *Store, c *cell, at Named) int64 {
			if c.kill(s, s.now()+(time.Hour-2*time.Second).Microseconds()) || s.idle(c) {
				t.Error("swept while it limits")
			}
			return used(&c.owner.Load().locked.rec)
		},
		"idle": func(s *Store, c *cell, at Named) int64 {
			time.Sleep(time.Hour - 2*time.Second) // the bucket is empty, and the first take of the run is over
			if s.idle(c) {
				t.Error("idle while it limits")
			}
			return used(&c.owner.Load().locked.rec)
		},
		"a reset": func(s *Store, c *cell, at Named) int64 {
			s.Reset(at.Name)
			return takes + used(c.owner.Load().locked.whole())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := New(10)
				defer s.Close()
				b := s.Space("t", "p").Bind(rolling(1000))
				var out [2]record.Result
				for i := range takes {
					ok, _, _, _, _, err := b.Take("k", &record.Amounts{1, 1}, 0, out[:])
					if !ok || err != nil || out[1].Remaining != int64(999-i) {
						t.Fatal(ok, err, out)
					}
					time.Sleep(time.Second)
				}
				c := s.index.find(b.space, "k")
				if used(&c.owner.Load().locked.rec) == takes {
					t.Fatal("there is no run")
				}
				if u := see(s, c, Named{Name{"t", "p", "k"}, b.specs}); u != takes {
					t.Errorf("%d used, want %d", u, takes)
				}
			})
		})
	}
}

// TestRunsEndForOtherLimits: a version of the policy with one limit more sees what was counted in a
// run, and that a bucket is not refused any more.
func TestRunsEndForOtherLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(10)
		defer s.Close()
		more := append(rolling(100), rolling(100)[1])
		more[2].ID = 3
		b, other := s.Space("t", "p").Bind(rolling(100)), s.Space("t", "p").Bind(more)
		var out [3]record.Result
		for range 50 {
			if ok, _, _, _, _, err := b.Take("k", &record.Amounts{1, 1}, 0, out[:]); !ok || err != nil {
				t.Fatal(ok, err)
			}
			time.Sleep(time.Second)
		}
		if ok, _, _, _, _, err := other.Take("k", &record.Amounts{1, 1, 1}, 0, out[:]); !ok || err != nil ||
			out[1].Remaining != 49 {
			t.Error(ok, err, out)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := New(10)
		defer s.Close()
		b, lr := refusing(t, s, 5)
		more := []record.Spec{rolling(7)[1], rolling(7)[1]}
		more[1].ID = 3
		var out [2]record.Result
		if ok, _, _, _, _, err := b.space.Bind(more).Take("k", &record.Amounts{1, 1}, 0, out[:]); !ok || err != nil ||
			out[0].Remaining != 1 {
			t.Error(ok, err, out)
		}
		if lr.refusal.Load() != nil {
			t.Error("what was refused before is still known")
		}
	})
}

// TestRunsRace: takes of two versions of a policy, looks and plain takes at once grant the limit to
// the last unit.
// req: A1, D5
func TestRunsRace(t *testing.T) {
	t.Parallel()
	const limit, workers = 20_000, 8
	s := New(10)
	defer s.Close()
	sp := s.Space("t", "p")
	var granted atomic.Int64
	var wg sync.WaitGroup
	binds := []*Buckets{sp.Bind(rolling(limit)[1:]), sp.Bind(rolling(limit)[1:])} // without the bucket, which drains
	for i := range workers {
		b := binds[max(0, i-workers+2)] // one of them has its own
		wg.Go(func() {
			var out [1]record.Result
			for n := 0; ; n++ {
				ok, _, _, _, _, err := b.Take("k", &record.Amounts{1}, 0, out[:])
				if err != nil {
					t.Error(err)
				}
				if !ok {
					return
				}
				granted.Add(1)
				if n%1000 == i {
					s.Among([]Named{{Name{"t", "p", "k"}, b.specs}}, true, func(recs []*record.Record) {
						if u := recs[0].Limits[0].Used; u > limit || u < int64(n) {
							t.Error(fmt.Sprint(u, " used of ", limit, ", and ", n, " by one alone"))
						}
					})
				}
			}
		})
	}
	wg.Wait()
	if granted.Load() != limit {
		t.Errorf("%d granted, want %d", granted.Load(), limit)
	}
}
