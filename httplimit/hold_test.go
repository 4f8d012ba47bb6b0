package httplimit_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/httplimit"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/memstore"
)

// flaky is a store in memory that can fail.
type flaky struct {
	drawgate.Store
	down, marked atomic.Bool
	settles      atomic.Int64
}

var errDown = &drawgate.StoreError{Store: "flaky", Op: "take", Err: errors.New("a test")}

func (f *flaky) Take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	if f.down.Load() {
		return errDown
	}
	err := f.Store.Take(ctx, batch, out)
	for i := range out {
		out[i].Fallback = f.marked.Load()
	}
	return err
}

func (f *flaky) Settle(ctx context.Context, batch []store.Settlement, out []store.Outcome) error {
	if f.down.Load() {
		return errDown
	}
	if batch[0].Op != store.OpRenew {
		f.settles.Add(1)
	}
	return f.Store.Settle(ctx, batch, out)
}

func newFlaky(t *testing.T, p drawgate.Policy) (*flaky, *drawgate.Limiter) {
	t.Helper()
	mem := memstore.New(nil)
	f := &flaky{Store: mem}
	l, err := drawgate.New(f, p, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(); _ = mem.Close() })
	return f, l
}

// errorsOf collects what is reported.
type errorsOf struct {
	mu  sync.Mutex
	all []error
}

func (e *errorsOf) add(_ *http.Request, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, err)
}

func (e *errorsOf) len() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.all)
}

// A handler that runs for an hour keeps its slot, and nobody else gets it.
func TestHoldsAreRenewed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var errs errorsOf
		m := one(t, &httplimit.Options{OnError: errs.add}, policy("slots", slots(1)))
		_, first := ask(m)
		ctx := first.Context(t.Context())
		for range 360 {
			time.Sleep(10 * time.Second)
			if _, p := ask(m); p.Problem == nil {
				t.Fatal("the slot was given to another")
			}
		}
		first.End()
		if errs.len() != 0 || errors.Is(context.Cause(ctx), httplimit.ErrHoldLost) {
			t.Errorf("reported %v, cause %v", errs.all, context.Cause(ctx))
		}
		_, p := ask(m)
		if p.Problem != nil {
			t.Errorf("the slot is not free: %+v", p.Problem)
		}
		p.End()
	})
}

// The slot of a dead process becomes free, because only renewals keep it.
func TestTheSlotOfADeadProcessComesFree(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, l := newFlaky(t, policy("slots", slots(1)))
		dead := middleware(t, &httplimit.Options{Hold: 30 * time.Second},
			httplimit.Bucket{Limiter: l, Key: httplimit.Fixed("all")})
		_, p := ask(dead)
		f.down.Store(true) // for the dead one: nothing of it arrives any more
		other, err := drawgate.New(f.Store, policy("slots", slots(1)), nil)
		if err != nil {
			t.Fatal(err)
		}
		alive := middleware(t, nil, httplimit.Bucket{Limiter: other, Key: httplimit.Fixed("all")})
		time.Sleep(29 * time.Second)
		if _, q := ask(alive); q.Problem == nil {
			t.Fatal("the slot came free early")
		}
		time.Sleep(2 * time.Second)
		_, q := ask(alive)
		if q.Problem != nil {
			t.Errorf("the slot did not become free: %+v", q.Problem)
		}
		q.End()
		p.End()
		time.Sleep(time.Minute)
	})
}

// If the store is unavailable for longer than the hold, a handler stops before another request gets
// its slot. A shorter outage has no effect.
func TestHandlerStopsBeforeAnotherGetsItsSlot(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		outage   time.Duration
		failOpen bool
		lost     bool
	}{
		{"a short absence", 15 * time.Second, false, false},
		{"a long absence", 45 * time.Second, false, true},
		{"a long absence, failing open", 45 * time.Second, true, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			var errs errorsOf
			f, l := newFlaky(t, policy("slots", slots(1)))
			m := middleware(t, &httplimit.Options{Hold: 30 * time.Second, OnError: errs.add, FailOpen: c.failOpen},
				httplimit.Bucket{Limiter: l, Key: httplimit.Fixed("all")})
			start := time.Now()
			_, p := ask(m)
			ctx := p.Context(t.Context())
			f.down.Store(true)
			lostAfter := time.Duration(0)
			stop := context.AfterFunc(ctx, func() { lostAfter = time.Since(start) })
			defer stop()
			time.Sleep(c.outage)
			synctest.Wait()
			if lost := errors.Is(context.Cause(ctx), httplimit.ErrHoldLost); lost != c.lost ||
				lost && (lostAfter < 20*time.Second || lostAfter > 30*time.Second) {
				t.Errorf("%s: lost %v after %v, want %v", c.name, lost, lostAfter, c.lost)
			}
			if n := errs.len(); n == 0 || n > 100 || errors.Is(errs.all[n-1], httplimit.ErrHoldLost) != c.lost {
				t.Errorf("%s: %d errors reported: %v", c.name, n, errs.all)
			}
			f.down.Store(false)
			if !c.failOpen {
				time.Sleep(20 * time.Second)
			}
			p.End()
			time.Sleep(time.Minute)
			if !free(t, l)() {
				t.Errorf("%s: the slot is not free", c.name)
			}
		})
	}
}

// With the store unavailable the answer ends within a second, and the slot becomes free by itself.
func TestGivingBackDoesNotKeepTheClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var errs errorsOf
		f, l := newFlaky(t, policy("slots", slots(1)))
		m := middleware(t, &httplimit.Options{OnError: errs.add},
			httplimit.Bucket{Limiter: l, Key: httplimit.Fixed("all")})
		_, p := ask(m)
		f.down.Store(true)
		start := time.Now()
		p.End()
		if d := time.Since(start); d > time.Second || errs.len() != 1 ||
			!errors.Is(errs.all[0], drawgate.ErrStoreUnavailable) {
			t.Errorf("it took %v, reported %v", d, errs.all)
		}
		f.down.Store(false)
		time.Sleep(31 * time.Second)
		if !free(t, l)() {
			t.Error("the slot is not free")
		}
	})
}

// After a panic the hold is given back, and the panic goes on to the server.
func TestPanicsGoOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, l := newFlaky(t, policy("slots", slots(1)))
		m := middleware(t, nil, httplimit.Bucket{Limiter: l, Key: httplimit.Fixed("all")})
		h := m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
		func() {
			defer func() {
				if r := recover(); r != http.ErrAbortHandler { //nolint:errorlint // that very value
					t.Errorf("recovered %v", r)
				}
			}()
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", http.NoBody))
		}()
		if f.settles.Load() != 1 || !free(t, l)() {
			t.Errorf("settled %d times, free %v", f.settles.Load(), free(t, l)())
		}
	})
}

// With a slot and a rate in one take, the slot is given back, and the request stays counted.
func TestHeldUnitsCount(t *testing.T) {
	t.Parallel()
	m := one(t, nil, policy("p", slots(1), bucket(2, time.Hour, 2)))
	for i, want := range []bool{true, true, false} {
		_, p := ask(m)
		if (p.Problem == nil) != want {
			t.Errorf("request %d: %+v", i, p.Problem)
		}
		p.End()
	}
}

// A decision without the store is marked, so that a caller can tell it from a real one, also after
// a wait, with a hold and in a refusal.
func TestPeers20DegradedAnswersAreMarked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, p := range []drawgate.Policy{
			policy("p", rolling(1, time.Hour)),
			policy("p", rolling(1, time.Hour), slots(5)),
		} {
			f, l := newFlaky(t, p)
			b := httplimit.Bucket{Limiter: l, Key: httplimit.Fixed("all")}
			plain := middleware(t, nil, b)
			for i, want := range []string{"", "true"} {
				f.marked.Store(i == 1)
				for range 2 { // one passes, one is refused
					h, pass := ask(plain)
					wantHeaders(t, h, "X-RateLimit-Fallback", want)
					pass.End()
				}
				if err := f.Store.(store.Resetter).Reset(t.Context(),
					[]drawgate.Key{{Policy: "p", Name: "all"}}); err != nil {
					t.Fatal(err)
				}
			}
			f.down.Store(true)
			h, pass := ask(middleware(t, &httplimit.Options{FailOpen: true}, b))
			if pass.Problem != nil || pass.Held() {
				t.Errorf("problem %+v", pass.Problem)
			}
			wantHeaders(t, h, "X-RateLimit-Fallback", "true")
		}
	})
}
