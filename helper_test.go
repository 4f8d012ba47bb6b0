package drawgate_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/memstore"
)

// long makes some tests run for longer, and be strict about how long things take on a real clock.
var long = needs.Long()

// Limits of the tests. None joins entries, so that every instant is exact.

func rolling(n int64, window time.Duration) drawgate.Limit {
	return drawgate.Limit{Name: "rolling", Kind: drawgate.Rolling, Amount: n, Window: window, Precision: drawgate.Exact}
}

func leaky(n int64, window time.Duration, burst int64) drawgate.Limit {
	return drawgate.Limit{Name: "bucket", Kind: drawgate.Bucket, Amount: n, Window: window, Burst: burst}
}

func slots(n int64) drawgate.Limit {
	return drawgate.Limit{Name: "slots", Unit: "slots", Kind: drawgate.Concurrency, Amount: n}
}

func of(unit string, l drawgate.Limit) drawgate.Limit {
	l.Unit, l.Name = unit, unit
	return l
}

func policy(limits ...drawgate.Limit) drawgate.Policy {
	return drawgate.Policy{Name: "p", Limits: limits}
}

// local returns a limiter over a store in memory, which is closed at the end.
func local(t *testing.T, p drawgate.Policy) *drawgate.Limiter {
	t.Helper()
	return over(t, memory(t), p)
}

func memory(t *testing.T) *memstore.Store {
	t.Helper()
	s := memstore.New(nil)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func over(t *testing.T, s drawgate.Store, p drawgate.Policy) *drawgate.Limiter {
	t.Helper()
	l, err := drawgate.New(s, p, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// untimed is a store that carries out a take however late it comes to it.
type untimed struct{ drawgate.Store }

func (u untimed) Take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	return u.Store.Take(context.WithoutCancel(ctx), batch, out)
}

// untimedLimiter returns a limiter without a store timeout, for tests on a real clock: a busy
// machine may take its time.
func untimedLimiter(t *testing.T, s *faulty, p drawgate.Policy) *drawgate.Limiter {
	t.Helper()
	s.Store = untimed{s.Store}
	l, err := drawgate.New(s, p, &drawgate.Options{StoreTimeout: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func with(t *testing.T, l *drawgate.Limiter, p drawgate.Policy) *drawgate.Limiter {
	t.Helper()
	o, err := l.With(p)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// take takes n requests, which must fit.
// takeHeld takes r, which holds, and returns a refusal as its error.
func takeHeld(ctx context.Context, l *drawgate.Limiter, r drawgate.Request) (*drawgate.Reservation, error) {
	d, res, err := l.Take(ctx, r)
	if err == nil {
		err = d.Err()
	}
	return res, err
}

func take(t *testing.T, l *drawgate.Limiter, key string, n int64) {
	t.Helper()
	if d, err := l.Allow(t.Context(), key, drawgate.Cost{N: n}); err != nil || !d.Allowed {
		t.Fatalf("take of %d: %v, %v", n, d.Err(), err)
	}
}

// wantUsed checks what the limits of a bucket have used.
func wantUsed(t *testing.T, l *drawgate.Limiter, key string, want ...int64) {
	t.Helper()
	st, err := l.Status(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	for i, w := range want {
		if st.States[i].Used != w {
			t.Errorf("limit %d has used %d, want %d", i, st.States[i].Used, w)
		}
	}
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
}

// wantTook checks how long it took since start, with at most so much more.
func wantTook(t *testing.T, start time.Time, want, more time.Duration) {
	t.Helper()
	if got := time.Since(start); got < want || got > want+more {
		t.Errorf("took %v, want %v and at most %v more", got, want, more)
	}
}

// fault is what happens to one call of a store.
type fault int

const (
	works  fault = iota
	fails        // at once, and nothing is done
	stalls       // until the caller gives up, and nothing is done
	loses        // it is done, and the reply is lost: the caller waits until it gives up
	drops        // it is done, and the connection breaks
	quits        // it waits until the caller gives up, says so, and nothing is done
	half         // of a batch the first half is done
)

var errBroken = errors.New("broken pipe")

// faulty is a store whose calls meet faults: the next call the first of next, and so on; when there
// are no more, it works. It counts its calls. It is not an Opener, so that every decision is a
// call, and gives hints only if it is made with them.
type faulty struct {
	drawgate.Store
	mu      sync.Mutex
	next    []fault       // guarded by mu
	slow    time.Duration // guarded by mu: every call takes so long, after it was done
	passed  []string      // guarded by mu: the first labels of the takes that were allowed
	takes   atomic.Int64
	settles atomic.Int64
}

func (s *faulty) script(slow time.Duration, faults ...fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next, s.slow = faults, slow
}

func (s *faulty) call(ctx context.Context, op string, do func() error) error {
	s.mu.Lock()
	slow, f := s.slow, works
	if len(s.next) > 0 {
		f, s.next = s.next[0], s.next[1:]
	}
	s.mu.Unlock()
	gone := func(err error) error { return &drawgate.StoreError{Store: "faulty", Op: op, Err: err} }
	if f == fails {
		return gone(errBroken)
	}
	if f == quits {
		<-ctx.Done()
		return ctx.Err()
	}
	if f != stalls {
		if err := do(); err != nil {
			return err
		}
	}
	switch f {
	case drops:
		return gone(errBroken)
	case stalls, loses:
		<-ctx.Done()
		return gone(ctx.Err())
	}
	if slow > 0 {
		select {
		case <-time.After(slow):
		case <-ctx.Done():
			return gone(ctx.Err())
		}
	}
	return nil
}

func (s *faulty) Take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	s.takes.Add(1)
	return s.call(ctx, "take", func() error {
		err := s.Store.Take(ctx, batch, out)
		for i := range batch {
			if err == nil && out[i].Allowed && len(batch[i].Labels) > 0 {
				s.mu.Lock()
				s.passed = append(s.passed, batch[i].Labels[0].Value)
				s.mu.Unlock()
			}
		}
		return err
	})
}

// inOrder checks that the takes labelled from 0 to n-1 were allowed in that order.
func (s *faulty) inOrder(t *testing.T, n int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, got := range s.passed {
		if got != strconv.Itoa(i) {
			t.Fatalf("number %s passed as %d", got, i)
		}
	}
	if len(s.passed) != n {
		t.Errorf("%d passed, want %d", len(s.passed), n)
	}
}

// number is the label for [faulty.inOrder].
func number(i int) []drawgate.Label { return []drawgate.Label{{Name: "n", Value: strconv.Itoa(i)}} }

func (s *faulty) Settle(ctx context.Context, batch []store.Settlement, out []store.Outcome) error {
	s.settles.Add(1)
	return s.call(ctx, "settle", func() error { return s.Store.Settle(ctx, batch, out) })
}

func (s *faulty) Peek(ctx context.Context, buckets []store.BucketCost, priority int8, out []store.State) error {
	return s.call(ctx, "peek", func() error { return s.Store.Peek(ctx, buckets, priority, out) })
}

// remote returns a store in memory that is reached by calls, without hints and without direct
// access to its buckets.
func remote(t *testing.T) *faulty {
	t.Helper()
	return &faulty{Store: struct{ drawgate.Store }{memory(t)}}
}
