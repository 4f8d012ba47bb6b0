package memstore_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/localtest"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/memstore"
	"github.com/drawgate/drawgate/store/storetest"
)

func compile(t testing.TB, name string, limits ...drawgate.Limit) *store.Plan {
	t.Helper()
	plan, err := drawgate.Policy{Name: name, Limits: limits}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	return plan.Plan
}

func bucketLimit(n int64, window time.Duration) drawgate.Limit {
	return drawgate.Limit{Name: "bucket", Kind: drawgate.Bucket, Amount: n, Window: window}
}

func rollingLimit(n int64, window time.Duration) drawgate.Limit {
	return drawgate.Limit{Name: "rolling", Kind: drawgate.Rolling, Amount: n, Window: window}
}

// policyOf returns the policy of a plan.
func policyOf(plan *store.Plan) drawgate.Policy {
	p := drawgate.Policy{Name: plan.Name()}
	for _, l := range plan.Policy().Limits {
		p.Limits = append(p.Limits, drawgate.Limit(l))
	}
	return p
}

// client asks a store for units of one policy.
type client struct {
	store *memstore.Store
	plan  *store.Plan
	t     testing.TB
}

func (c client) costs(name string, n int64) []store.BucketCost {
	b := store.BucketCost{Key: store.Key{Tenant: "t", Policy: c.plan.Name(), Name: name}, Plan: c.plan}
	for i := range c.plan.Policy().Limits {
		b.N[i] = n
	}
	return []store.BucketCost{b}
}

// local takes as a limiter does, which may find the bucket to be a word.
func (c client) local(name string, n int64) (store.Verdict, error) {
	return localtest.Take(c.store, &store.Take{Buckets: c.costs(name, n)})
}

func (c client) take(t store.Take) (store.Verdict, error) {
	out := make([]store.Verdict, 1)
	if err := c.store.Take(context.Background(), []store.Take{t}, out); err != nil {
		return out[0], err
	}
	return out[0], out[0].Fail
}

func (c client) hold(id, name string, n int64) (store.Verdict, error) {
	return c.take(store.Take{ID: id, Hold: time.Hour, Buckets: c.costs(name, n)})
}

func (c client) settle(op store.Op, id, name string, n int64) bool {
	out := make([]store.Outcome, 1)
	if err := c.store.Settle(context.Background(), []store.Settlement{{Op: op, ID: id, Buckets: c.costs(name, n)}},
		out); err != nil || out[0].Err != nil {
		c.t.Errorf("%v %s: %v, %v", op, id, err, out[0].Err)
	}
	return !out[0].Gone
}

func (c client) mustAllow(name string, want bool) {
	c.t.Helper()
	if d, err := c.local(name, 1); err != nil || d.Allowed != want {
		c.t.Errorf("%q: allowed %v, error %v; want %v", name, d.Allowed, err, want)
	}
}

func (c client) list() (n int) {
	c.t.Helper()
	if err := c.store.List(context.Background(), "t", c.plan.Name(),
		func(store.Key) bool { n++; return true }); err != nil {
		c.t.Error(err)
	}
	return n
}

// TestPeers11LimitingBucketsSurvive floods a full store with short-lived buckets: no bucket that
// still limits is given up for them, which would hand out a fresh quota.
// req: PEERS 11
func TestPeers11LimitingBucketsSurvive(t *testing.T) {
	needs.NoRace(t) // one caller; TestRacesWithUpgradesAndSweeps has many
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(&memstore.Options{MaxBuckets: 6000})
		defer s.Close()
		flood := client{s, compile(t, "flood", bucketLimit(1, time.Millisecond)), t}
		floodRecords := client{s, compile(t, "flood records", rollingLimit(1, time.Millisecond)), t}
		words, records := client{s, compile(t, "words", bucketLimit(1, 10*time.Hour)), t},
			client{s, compile(t, "records", rollingLimit(1, 10*time.Hour)), t}
		slots := client{s, compile(t, "slots", drawgate.Limit{Name: "slots", Kind: drawgate.Concurrency, Amount: 1}), t}
		time.Sleep(30 * 24 * time.Hour) // no bucket looks young by accident
		for i := range 100 {
			name := fmt.Sprint(i)
			words.mustAllow(name, true)
			records.mustAllow(name, true)
			if d, err := slots.hold(name, name, 1); err != nil || !d.Allowed {
				t.Fatalf("hold: %v, %v", d.Fail, err)
			}
		}
		full := 0
		for i := range 60_000 {
			c := flood
			if i%3 == 0 {
				c = floodRecords
			}
			if d, err := c.local(fmt.Sprint("flood ", i), 1); errors.Is(err, memstore.ErrFull) {
				full++
			} else if err != nil || !d.Allowed {
				t.Fatalf("key %d: allowed %v, error %v", i, d.Allowed, err)
			}
			if i%500 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		if full > 0 {
			t.Errorf("%d takes found no room, although few buckets were in use at a time", full)
		}
		for i := range 100 {
			name := fmt.Sprint(i)
			words.mustAllow(name, false)
			records.mustAllow(name, false)
			if d, err := slots.hold("other", name, 1); err != nil || d.Allowed {
				t.Errorf("slot %s: allowed %v, error %v", name, d.Allowed, err)
			}
			if !slots.settle(store.OpCancel, name, name, 0) {
				t.Errorf("reservation %s is gone", name)
			}
		}
		time.Sleep(10 * time.Hour)
		words.mustAllow("0", true)
		records.mustAllow("0", true)
	})
}

// TestMemoryIsBounded takes from 150,000 distinct keys, of which few are in use at a time.
func TestMemoryIsBounded(t *testing.T) {
	needs.NoRace(t) // as above
	const keys, most = 150_000, 20_000
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(&memstore.Options{MaxBuckets: most})
		defer s.Close()
		words, records := client{s, compile(t, "words", bucketLimit(1, 100*time.Millisecond)), t},
			client{s, compile(t, "records", rollingLimit(1, 100*time.Millisecond)), t}
		before := heap()
		for i := range keys {
			c := words
			if i%10 == 0 {
				c = records
			}
			if d, err := c.local(fmt.Sprint("key ", i), 1); err != nil || !d.Allowed {
				t.Fatalf("key %d: allowed %v, error %v", i, d.Allowed, err)
			}
			if i%50 == 0 {
				time.Sleep(time.Millisecond) // 5,000 keys in use
			}
		}
		if n := words.list() + records.list(); n > 6000 {
			t.Errorf("%d buckets in use, want about 5,000", n)
		}
		if used := heap() - before; used > most*500 {
			t.Errorf("%d bytes after %d keys, more than 500 for each of %d", used, keys, most)
		}
	})
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestFull fills a store: what is in use goes on, what is new is an error, and room comes back by
// itself.
func TestFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(&memstore.Options{MaxBuckets: 10})
		defer s.Close()
		words, records := client{s, compile(t, "words", bucketLimit(2, time.Minute)), t},
			client{s, compile(t, "records", rollingLimit(2, time.Hour)), t}
		for i := range 5 {
			words.mustAllow(fmt.Sprint(i), true)
			records.mustAllow(fmt.Sprint(i), true)
		}
		for _, c := range []client{words, records} {
			for what, f := range map[string]func() error{
				"local": func() error { _, err := c.local("new", 1); return err },
				"take":  func() error { _, err := c.take(store.Take{Buckets: c.costs("new", 1)}); return err },
				"hold":  func() error { _, err := c.hold("id", "new", 1); return err },
			} {
				var st *store.Error
				if err := f(); !errors.Is(err, memstore.ErrFull) || !errors.Is(err, store.ErrStoreUnavailable) ||
					!errors.As(err, &st) {
					t.Errorf("%s of a new bucket: %v, want a StoreError with %v", what, err, memstore.ErrFull)
				}
			}
			out := make([]store.State, 1)
			if err := s.Peek(t.Context(), c.costs("new", 1), 0, out); err != nil || out[0].Fail != nil ||
				!out[0].Allowed {
				t.Errorf("peek at a new bucket: %v, %v", err, out[0].Fail)
			}
			if c.settle(store.OpCancel, "id", "new", 0) {
				t.Error("a reservation that was not made is open")
			}
			c.mustAllow("3", true)
			c.mustAllow("3", false)
		}
		time.Sleep(time.Minute) // the words are unused again
		for i := range 5 {
			records.mustAllow(fmt.Sprint("new ", i), true)
		}
		if _, err := words.local("new", 1); !errors.Is(err, memstore.ErrFull) {
			t.Errorf("full again: %v", err)
		}
	})
}

// TestRacesWithUpgradesAndSweeps lets takes of words, reservations and sweeps meet. Each of the
// keys grants its amount, whatever becomes of its cell.
func TestRacesWithUpgradesAndSweeps(t *testing.T) {
	t.Parallel()
	const keys, amount, callers = 300, 40, 8
	s := memstore.New(&memstore.Options{MaxBuckets: keys + 400})
	defer s.Close()
	hot := client{s, compile(t, "hot", bucketLimit(amount, 1000*time.Hour)), t}
	short := client{s, compile(t, "short", bucketLimit(1_000_000, time.Millisecond)), t}
	var granted [keys]atomic.Int64
	var wg sync.WaitGroup
	for g := range callers {
		wg.Go(func() {
			for i := range keys * 2 * amount / callers * 5 / 4 {
				k := (i/4*7 + g*13) % keys
				name := fmt.Sprint(k)
				switch {
				case i%50 == 49: // a reservation makes the cell a record
					id := fmt.Sprint(g, " ", i)
					d, err := hot.hold(id, name, 1)
					switch {
					case err != nil && !errors.Is(err, memstore.ErrFull):
						t.Error(err)
					case d.Allowed && i%100 == 99:
						if !hot.settle(store.OpCancel, id, name, 0) {
							t.Errorf("reservation %s of key %s is gone", id, name)
						}
					case d.Allowed:
						granted[k].Add(1)
						if !hot.settle(store.OpSettle, id, name, 1) {
							t.Errorf("reservation %s of key %s is gone", id, name)
						}
					}
				case i%3 == 0: // a bucket that is soon unused, for the sweeps
					_, err := short.local(fmt.Sprint(g, " ", i%1000), 1)
					if err != nil && !errors.Is(err, memstore.ErrFull) {
						t.Error(err)
					}
				default:
					d, err := hot.local(name, 1)
					if err != nil && !errors.Is(err, memstore.ErrFull) {
						t.Error(err)
					}
					if d.Allowed {
						granted[k].Add(1)
					}
				}
			}
		})
	}
	wg.Wait()
	for k := range keys {
		for {
			d, err := hot.local(fmt.Sprint(k), 1)
			if errors.Is(err, memstore.ErrFull) {
				continue // it sweeps a tenth of the time
			} else if err != nil || !d.Allowed {
				break
			}
			granted[k].Add(1)
		}
		if n := granted[k].Load(); n != amount {
			t.Errorf("key %d granted %d, want %d", k, n, amount)
		}
	}
}

// TestCloseWhileSweeping closes a store while it grows: Close waits for the sweep, and no later one
// starts.
func TestCloseWhileSweeping(t *testing.T) {
	t.Parallel()
	for range 5 {
		s := memstore.New(nil)
		c := client{s, compile(t, "p", bucketLimit(1, time.Hour)), t}
		var wg sync.WaitGroup
		for g := range 4 {
			wg.Go(func() {
				for i := range 3000 {
					if _, err := c.local(fmt.Sprint(g, " ", i), 1); err != nil {
						if !errors.Is(err, store.ErrClosed) {
							t.Error(err)
						}
						return
					}
				}
			})
		}
		for c.list() < 4000 {
			runtime.Gosched()
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
	}
}

// TestExtremeRates goes to the bounds of what a word can count, and beyond.
func TestExtremeRates(t *testing.T) {
	const year = 366 * 24 * time.Hour
	for _, c := range []struct {
		amount, burst int64
		window        time.Duration
	}{
		{store.MaxAmount, 0, time.Millisecond},
		{store.MaxAmount, 0, time.Second},
		{1_457_000, 0, time.Millisecond},
		{1_459_000, 0, time.Millisecond},
		{1, 0, year},
		{1, 0, time.Millisecond},
		{3, 30, year},
		{1_000_003, 100, time.Second},
		{1_000_000_000_000, 1, year},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := memstore.New(nil)
			defer s.Close()
			l := bucketLimit(c.amount, c.window)
			l.Burst = c.burst
			b := client{s, compile(t, "p", l), t}
			burst := c.burst
			if burst == 0 {
				burst = c.amount
			}
			// The time for one unit, rounded up to the microsecond.
			us := c.window.Microseconds()
			one := time.Duration((us+c.amount-1)/c.amount) * time.Microsecond
			for _, age := range []time.Duration{0, time.Microsecond, 10 * year, 80 * year} {
				time.Sleep(age)
				if age == time.Microsecond {
					time.Sleep(year)
				}
				time.Sleep(time.Duration(burst/c.amount+1) * c.window)
				if d, err := b.local("k", burst); err != nil || !d.Allowed || d.First.Limits[0].Remaining != 0 {
					t.Fatalf("%+v after %v: %v, %v, %d remaining", c, age, err, d.Fail, d.First.Limits[0].Remaining)
				}
				if d, err := b.local("k", 1); err != nil || d.Allowed || d.RetryAfter != one {
					t.Fatalf("%+v after %v: %v, allowed %v, retry-after %v, want %v", c, age, err, d.Allowed,
						d.RetryAfter, one)
				}
				time.Sleep(one)
				if d, err := b.local("k", 1); err != nil || !d.Allowed {
					t.Fatalf("%+v after %v: %v, %v", c, age, err, d.Fail)
				}
			}
		})
	}
}

// TestWatch gets a hint for what comes free early, and for nothing else.
func TestWatch(t *testing.T) {
	t.Parallel()
	s := memstore.New(nil)
	defer s.Close()
	c := client{s, compile(t, "p", rollingLimit(10, time.Hour)), t}
	key := func(name string) store.Key { return store.Key{Tenant: "t", Policy: "p", Name: name} }
	hints, other := make(chan store.Key, 10), make(chan store.Key, 1)
	stop := s.Watch(hints)
	defer s.Watch(other)()
	want := func(what string, keys ...store.Key) {
		t.Helper()
		for _, k := range keys {
			select {
			case got := <-hints:
				if got != k {
					t.Errorf("%s: hint %v, want %v", what, got, k)
				}
			default:
				t.Errorf("%s: no hint of %v", what, k)
			}
		}
		if len(hints) > 0 {
			t.Errorf("%s: %d hints too many, %v", what, len(hints), <-hints)
		}
	}
	for _, id := range []string{"a", "b"} {
		if _, err := c.hold(id, "k", 3); err != nil {
			t.Fatal(err)
		}
	}
	want("take")
	c.settle(store.OpSettle, "a", "k", 1)
	want("settle", key("k"))
	c.settle(store.OpRenew, "b", "k", 0)
	want("renew")
	c.settle(store.OpCancel, "b", "k", 0)
	want("cancel", key("k"))
	if err := s.Reset(t.Context(), []store.Key{key("k"), key("x")}); err != nil {
		t.Fatal(err)
	}
	want("reset", key("k"), key("x"))
	stop()
	c.settle(store.OpCancel, "b", "k", 0)
	want("stopped")
	if got := <-other; got != key("k") {
		t.Errorf("a watcher that is behind has %v first", got)
	}
}

// TestTakeDoesNotAllocate is a budget. req: E2
func TestTakeDoesNotAllocate(t *testing.T) { // not parallel: AllocsPerRun counts for the whole process
	s := memstore.New(nil)
	defer s.Close()
	day := drawgate.Limit{Name: "day", Kind: drawgate.Calendar, Amount: 1_000_000_000, Every: drawgate.Day}
	full := rollingLimit(1, time.Hour)
	for _, c := range []client{
		{s, compile(t, "one bucket", bucketLimit(1_000_000_000, time.Hour)), t},
		{s, compile(t, "one rolling", rollingLimit(1_000_000_000, time.Hour)), t},
		{s, compile(t, "three", bucketLimit(1_000_000_000, time.Hour), rollingLimit(1_000_000_000, time.Hour), day), t},
		{s, compile(t, "refused", full), t},
		{s, compile(t, "three, refused", bucketLimit(1_000_000_000, time.Hour), full, day), t},
	} {
		lim, err := drawgate.New(s, policyOf(c.plan), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := testing.AllocsPerRun(1000, func() {
			if _, err := lim.Allow(t.Context(), "k"); err != nil {
				t.Error(err)
			}
		}); got != 0 {
			t.Errorf("%s: %v allocations per take, want 0", c.plan.Name(), got)
		}
	}
}

func BenchmarkStore(b *testing.B) {
	storetest.Bench(b, func(b *testing.B) store.Store {
		s := memstore.New(nil)
		b.Cleanup(func() { _ = s.Close() })
		return s
	})
}
