package drawgate_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/model"
	"github.com/drawgate/drawgate/store"
)

// clockWorld returns a world whose store's clock is ahead of the processes' by so many µs.
func clockWorld(t *testing.T, near time.Duration, ahead *atomic.Int64) *lineWorld {
	t.Helper()
	w := &lineWorld{t: t, near: near}
	w.begin()
	w.records = model.NewRecords(func() int64 { return time.Now().UnixMicro() + ahead.Load() }, false).InLine()
	return w
}

// limiter returns a process of the world with one limit.
func (w *lineWorld) limiter(s store.Store, limit drawgate.Limit) *drawgate.Limiter {
	w.t.Helper()
	l, err := drawgate.New(s, policy(limit), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = l.Close() })
	return l
}

// ofKeys takes one unit of each key's bucket.
func ofKeys(keys ...string) drawgate.Request {
	r := drawgate.Request{Wait: true}
	for _, k := range keys {
		r.Buckets = append(r.Buckets, drawgate.Ask{Key: k, Costs: []drawgate.Cost{{N: 1}}})
	}
	return r
}

// TestOrderWhenClocksAreSet: the store's clock is set, or another server with another clock takes
// over. Who comes then is not before those who have waited for long, nor behind those who come
// later. (A take of several buckets keeps its arrival, and may be behind those that came within the
// time by which the clock was set back.)
//
// req: C5
func TestOrderWhenClocksAreSet(t *testing.T) {
	t.Parallel()
	for _, by := range []time.Duration{time.Minute, -time.Minute} {
		for _, waits := range []bool{false, true} { // the newcomer's process has others who wait
			for _, keys := range [][]string{{"k"}, {"k", "other"}} { // of the newcomer
				if by < 0 && len(keys) > 1 {
					continue
				}
				t.Run(fmt.Sprint(by, waits, keys), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) { clockIsSet(t, by, waits, keys) })
				})
			}
		}
	}
}

func clockIsSet(t *testing.T, by time.Duration, waits bool, keys []string) {
	t.Helper()
	var ahead atomic.Int64
	w := clockWorld(t, 2*time.Millisecond, &ahead)
	serial := drawgate.RollingLimit("l", 1, time.Second)
	p, q := w.limiter(w.process(), serial), w.limiter(w.process(), serial)
	for _, l := range []*drawgate.Limiter{p, q} { // both learn of the clock
		for range 2 {
			if _, err := l.Wait(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
		}
	}
	var wg sync.WaitGroup
	served := make(chan string, 100)
	wait := func(l *drawgate.Limiter, who string, keys ...string) {
		wg.Go(func() {
			if _, _, err := l.Take(t.Context(), ofKeys(keys...)); err != nil {
				t.Error(err)
			}
			served <- who
		})
		time.Sleep(20 * time.Millisecond)
	}
	for range 10 {
		wait(q, "early", "k")
		if waits {
			wait(p, "early", "k")
		}
	}
	ahead.Store(by.Microseconds())
	time.Sleep(3 * time.Second)
	wait(p, "newcomer", keys...)
	for range 10 {
		wait(q, "late", "k")
	}
	wg.Wait()
	close(served)
	var order []string
	for who := range served {
		if len(order) == 0 || order[len(order)-1] != who {
			order = append(order, who)
		}
	}
	if !slices.Equal(order, []string{"early", "newcomer", "late"}) {
		t.Errorf("served were %v", order)
	}
	time.Sleep(10 * time.Second) // messages under way
}

// TestNoPauseInALine: a slot that comes free is used at once, whatever a process has thought of the
// store's clock, and also where many came at once, whose requests took more or less time: no ticket
// of somebody further back is left before that of the one in front. It takes two messages to give a
// slot back and to take it.
func TestNoPauseInALine(t *testing.T) {
	t.Parallel()
	for _, by := range []time.Duration{0, 50 * time.Millisecond, time.Second} {
		for _, apart := range []time.Duration{0, 10 * time.Millisecond} {
			for _, keys := range [][]string{{"k"}, {"k", "other"}} {
				for i := range 2 {
					t.Run(fmt.Sprint(by, apart, keys, i), func(t *testing.T) {
						t.Parallel()
						synctest.Test(t, func(t *testing.T) { slotIsUsed(t, by, apart, keys) })
					})
				}
			}
		}
	}
}

// slotIsUsed checks for how long nobody uses a slot at most, for which some wait who came so much
// apart, while the clock is set by so much.
func slotIsUsed(t *testing.T, by, apart time.Duration, keys []string) {
	t.Helper()
	var ahead atomic.Int64
	w := clockWorld(t, 2*time.Millisecond, &ahead)
	l := w.limiter(w.process(), drawgate.ConcurrencyLimit("l", 1))
	r := ofKeys(keys...)
	r.Hold = drawgate.Hold{For: time.Minute}
	var wg sync.WaitGroup
	starts := make(chan time.Time, 100)
	for range cap(starts) {
		wg.Go(func() {
			_, h, err := l.Take(t.Context(), r)
			if err != nil {
				t.Error(err)
				return
			}
			starts <- time.Now()
			time.Sleep(20 * time.Millisecond)
			_ = h.Settle(t.Context())
		})
		time.Sleep(apart)
	}
	time.Sleep(time.Second)
	ahead.Store(by.Microseconds())
	wg.Wait()
	close(starts)
	last := time.Time{}
	for at := range starts {
		if gap := at.Sub(last); !last.IsZero() && gap > 60*time.Millisecond {
			t.Errorf("nobody started for %v", gap)
		}
		last = at
	}
	time.Sleep(10 * time.Second)
}

// tickets counts the questions that tell of another arrival than the store has said.
type tickets struct {
	*lineProcess

	mu     sync.Mutex
	said   map[uint64]int64 // guarded by mu: by the waiter's number
	others int              // guarded by mu
}

func (s *tickets) Take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	s.mu.Lock()
	k := batch[0].Ticket
	for _, n := range append(slices.Clone(k.Next), store.Next{Number: k.Number, Arrival: k.Arrival}) {
		if said := s.said[n.Number]; said != 0 && n.Arrival != said {
			s.others++
		}
	}
	s.mu.Unlock()
	err := s.lineProcess.Take(ctx, batch, out)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && out[0].Arrival != 0 {
		s.said[k.Number] = out[0].Arrival
	}
	return err
}

// TestOneArrivalInSeveralLines: a take of several buckets may stand in lines of several servers.
// All of them are told what the first one said of its arrival: otherwise two takes may each stand
// before the other. Where there is one line, a process says what it knows better.
func TestOneArrivalInSeveralLines(t *testing.T) {
	t.Parallel()
	for _, keys := range [][]string{{"k"}, {"k", "other"}} {
		synctest.Test(t, func(t *testing.T) {
			var ahead atomic.Int64
			w := clockWorld(t, 50*time.Millisecond, &ahead)
			s := &tickets{lineProcess: w.process(), said: map[uint64]int64{}}
			l := w.limiter(s, drawgate.RollingLimit("l", 1, time.Second))
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() { _, _, _ = l.Take(t.Context(), ofKeys(keys...)) })
				time.Sleep(100 * time.Millisecond)
			}
			wg.Wait()
			if (s.others > 0) != (len(keys) == 1) {
				t.Errorf("of %v, %d questions told of another arrival than the store", keys, s.others)
			}
			time.Sleep(10 * time.Second)
		})
	}
}
