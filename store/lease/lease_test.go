package lease_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/lease"
	"github.com/drawgate/drawgate/store/memstore"
)

// plan returns a leased policy of one limit of 60,000 per minute.
func plan(t testing.TB, name string, change ...func(*store.Policy)) *store.Plan {
	t.Helper()
	p := store.Policy{
		Name: name, Leased: true,
		Limits: []store.Limit{{Name: "minute", Kind: store.Rolling, Amount: 60_000, Window: time.Minute}},
	}
	for _, f := range change {
		f(&p)
	}
	pl, err := p.Compile()
	if err != nil {
		t.Fatal(err)
	}
	return pl
}

// of returns the bucket of a key.
func of(p *store.Plan, name string) store.BucketCost {
	return store.BucketCost{Key: store.Key{Policy: p.Name(), Name: name}, Plan: p, N: store.Amounts{1, 1}}
}

// take takes one unit of each bucket.
func take(t testing.TB, s store.Store, buckets ...store.BucketCost) store.Verdict {
	t.Helper()
	var out [1]store.Verdict
	if err := s.Take(t.Context(), []store.Take{{Buckets: buckets}}, out[:]); err != nil {
		t.Error(err)
	}
	if out[0].Fail != nil {
		t.Error(out[0].Fail)
	}
	return out[0]
}

// used returns what the store says is used of a bucket.
func used(t testing.TB, s store.Store, b store.BucketCost) (used, held int64, open int) {
	t.Helper()
	var out [1]store.State
	if err := s.Peek(t.Context(), []store.BucketCost{b}, 0, out[:]); err != nil || out[0].Fail != nil {
		t.Fatal(err, out[0].Fail)
	}
	return out[0].States[0].Used, out[0].States[0].Held, out[0].Open
}

// remote is a store over a network.
type remote struct {
	store.Store
	store.Resetter
	delay func() time.Duration
	lose  func() bool // answers
	takes atomic.Int64
	rest  atomic.Int64
}

func over(m *memstore.Store, delay time.Duration) *remote {
	return &remote{
		Store: m, Resetter: m,
		delay: func() time.Duration { return delay }, lose: func() bool { return false },
	}
}

func (r *remote) way(ctx context.Context) error {
	select {
	case <-time.After(r.delay()):
		return nil
	case <-ctx.Done():
		return &store.Error{Store: "remote", Op: "wait", Err: ctx.Err()}
	}
}

func (r *remote) call(ctx context.Context, f func(context.Context) error) error {
	if err := r.way(ctx); err != nil {
		return err
	}
	if err := f(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	if r.lose() {
		<-ctx.Done()
		return &store.Error{Store: "remote", Op: "wait", Err: ctx.Err()}
	}
	return r.way(ctx)
}

func (r *remote) Take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	r.takes.Add(1)
	mine := make([]store.Verdict, len(out))
	err := r.call(ctx, func(ctx context.Context) error { return r.Store.Take(ctx, batch, mine) })
	copy(out, mine)
	return err
}

func (r *remote) Settle(ctx context.Context, batch []store.Settlement, out []store.Outcome) error {
	r.rest.Add(1)
	mine := make([]store.Outcome, len(out))
	err := r.call(ctx, func(ctx context.Context) error { return r.Store.Settle(ctx, batch, mine) })
	copy(out, mine)
	return err
}

// A bucket that is asked for often is decided here: with few calls, and all that is said to be used
// was spent.
// req: E2
func TestHotBucket(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New(nil)
		way := over(mem, time.Millisecond)
		l := leasing(t, way)
		b := of(plan(t, "hot"), "key")
		const takes = 5000
		for i := range takes {
			if v := take(t, l, b); !v.Allowed || v.First.Limits[0].Remaining > 60_000-int64(i) {
				t.Fatalf("take %d: %+v", i, v)
			}
			time.Sleep(time.Millisecond)
		}
		if calls := way.takes.Load() + way.rest.Load(); calls > takes/50 {
			t.Errorf("%d takes cost %d calls", takes, calls)
		}
		if s := l.State(); s.Keys != 1 || s.Local < takes*9/10 || s.Local+s.Through != takes {
			t.Errorf("state %+v", s)
		}
		time.Sleep(5 * time.Second)
		if got, held, open := used(t, mem, b); got != takes || held != 0 || open != 0 {
			t.Errorf("%d used, %d held by %d leases; want %d used", got, held, open, takes)
		}
		if s := l.State(); s.Keys != 0 {
			t.Errorf("%d buckets are kept that nobody asks for", s.Keys)
		}
	})
}

// Once the limit is used up, takes are refused here, at once, with few calls; and pass again when
// units come back.
func TestUsedUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		way := over(memstore.New(nil), time.Millisecond)
		l := leasing(t, way)
		b := of(plan(t, "hot"), "key")
		start, allowed := time.Now(), 0
		var refused, slow int
		for time.Since(start) < 119*time.Second {
			asked := time.Now()
			v := take(t, l, b)
			switch {
			case v.Allowed:
				allowed++
			case v.Reason != store.Limited || v.RetryAfter <= 0 || v.First.Limits[0].RetryAfter <= 0:
				t.Fatalf("a refusal: %+v", v)
			default:
				refused++
				if time.Since(asked) > 0 {
					slow++
				}
			}
			time.Sleep(500 * time.Microsecond) // twice what there is
		}
		if allowed < 119_000 || allowed > 120_000 {
			t.Errorf("%d were allowed in almost two minutes of 60,000", allowed)
		}
		if calls := way.takes.Load() + way.rest.Load(); calls > int64(allowed+refused)/100 {
			t.Errorf("%d decisions cost %d calls", allowed+refused, calls)
		}
		if slow > refused/100 {
			t.Errorf("%d of %d refusals waited for the store", slow, refused)
		}
	})
}

// What has no lease goes straight to the store, and mixes with what has.
func TestStraightThrough(t *testing.T) {
	t.Parallel()
	hot, exact := plan(t, "hot"), plan(t, "exact", func(p *store.Policy) { p.Leased = false })
	many := of(hot, "key")
	many.N = store.Amounts{30_000}
	small := plan(t, "small", func(p *store.Policy) { p.Limits[0].Amount = 1000 })
	for name, tk := range map[string]store.Take{
		"exact":                   {Buckets: []store.BucketCost{of(exact, "key")}},
		"a limit that is small":   {Buckets: []store.BucketCost{of(small, "key")}},
		"a hold":                  {ID: "id", Grant: 1, Hold: time.Hour, Buckets: []store.BucketCost{of(hot, "key")}},
		"granted ahead":           {Ahead: time.Millisecond, Buckets: []store.BucketCost{of(hot, "key")}},
		"given":                   {Given: true, Buckets: []store.BucketCost{of(hot, "key")}},
		"one bucket is exact":     {Buckets: []store.BucketCost{of(hot, "key"), of(exact, "key")}},
		"more than a lease holds": {Buckets: []store.BucketCost{many}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				way := over(memstore.New(nil), 0)
				l := leasing(t, way)
				for range 100 { // there is a lease, of the same bucket
					take(t, l, of(hot, "key"))
					time.Sleep(time.Millisecond)
				}
				before := way.takes.Load()
				var out [1]store.Verdict
				if err := l.Take(t.Context(), []store.Take{tk}, out[:]); err != nil || !out[0].Allowed {
					t.Fatal(err, out[0])
				}
				if way.takes.Load() != before+1 {
					t.Error("it did not go to the store")
				}
			})
		})
	}
}

// A take of several leased buckets takes units of all of them, or of none.
func TestSeveralBuckets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New(nil)
		way := over(mem, time.Millisecond)
		l := leasing(t, way)
		large, few := of(plan(t, "large"), "key"), of(plan(t, "few", func(p *store.Policy) {
			p.Limits[0].Amount = 6000
		}), "key")
		allowed := int64(0)
		for range 20_000 {
			if v := take(t, l, large, few); v.Allowed {
				allowed++
			} else if v.Buckets() != 2 || v.Rest[0].Limits[0].RetryAfter == 0 || v.First.Limits[0].RetryAfter != 0 {
				t.Fatalf("refused by the wrong bucket: %+v", v)
			}
			time.Sleep(time.Millisecond)
		}
		if allowed < 5_900 || allowed > 6_000 {
			t.Errorf("%d of 6,000 were allowed", allowed)
		}
		time.Sleep(time.Second)
		for _, b := range []store.BucketCost{large, few} {
			if got, held, _ := used(t, mem, b); got != allowed || held != 0 {
				t.Errorf("%s: %d used, %d held; want %d used", b.Plan.Name(), got, held, allowed)
			}
		}
		if s := l.State(); s.Calls > 20_000/20 {
			t.Errorf("%d calls", s.Calls)
		}
	})
}

// Once a pause, or a reset, is answered, this process spends nothing that it took before.
func TestPauseAndReset(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"pause", "reset"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				mem := memstore.New(nil)
				l := leasing(t, over(mem, 20*time.Millisecond)).Full()
				b := of(plan(t, "hot"), "key")
				var done atomic.Bool
				var after atomic.Int64
				var callers sync.WaitGroup
				for range 8 {
					callers.Go(func() {
						for !done.Load() {
							began := time.Now()
							v := take(t, l, b)
							if v.Allowed && after.Load() != 0 && began.UnixNano() > after.Load() && what == "pause" {
								t.Errorf("allowed %v after the pause was answered", time.Duration(time.Now().UnixNano()-after.Load()))
							}
							time.Sleep(time.Millisecond)
						}
					})
				}
				time.Sleep(777 * time.Millisecond)
				if what == "pause" {
					s := []store.Settlement{{Op: store.OpPause, Hold: time.Hour, Buckets: []store.BucketCost{b}}}
					var out [1]store.Outcome
					if err := l.Settle(t.Context(), s, out[:]); err != nil || out[0].Err != nil {
						t.Fatal(err, out[0].Err)
					}
				} else if err := l.(store.Resetter).Reset(t.Context(), []store.Key{b.Key}); err != nil {
					t.Fatal(err)
				}
				after.Store(time.Now().UnixNano())
				if what == "reset" {
					done.Store(true)
				}
				time.Sleep(time.Second)
				done.Store(true)
				callers.Wait()
				time.Sleep(time.Second)
				if _, held, open := used(t, mem, b); held != 0 || open != 0 {
					t.Errorf("%d units are held by %d leases", held, open)
				}
			})
		})
	}
}

// Close gives back what is held.
func TestClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New(nil)
		defer mem.Close()
		l := lease.New(struct{ store.Store }{shut{mem}}, nil)
		b := of(plan(t, "hot"), "key")
		for range 500 {
			take(t, l, b)
			time.Sleep(time.Millisecond)
		}
		if _, held, _ := used(t, mem, b); held == 0 {
			t.Error("nothing was held")
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if got, held, _ := used(t, mem, b); got != 500 || held != 0 {
			t.Errorf("%d used, %d held; want 500 used", got, held)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// shut is a store that stays open.
type shut struct{ store.Store }

func (shut) Close() error { return nil }

// A bucket that is asked for seldom leaves nothing here.
func TestColdBuckets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := leasing(t, over(memstore.New(nil), 0))
		p := plan(t, "cold")
		for range 3 {
			for i := range 5000 {
				take(t, l, of(p, fmt.Sprint(i)))
			}
			time.Sleep(time.Second)
		}
		if s := l.State(); s.Keys != 0 || s.Local != 0 || s.Through != 15_000 {
			t.Errorf("state %+v", s)
		}
	})
}

// A caller that gives up while a lease is asked for ends at once, and nothing is taken for it.
func TestCallerGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New(nil)
		way := over(mem, 0)
		var delay atomic.Int64
		way.delay = func() time.Duration { return time.Duration(delay.Load()) }
		l := leasing(t, way)
		b := of(plan(t, "hot"), "key")
		for range 10 {
			take(t, l, b)
		}
		time.Sleep(time.Second) // its lease is over
		delay.Store(int64(100 * time.Millisecond))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Millisecond, cancel)
		start := time.Now()
		for range 20 {
			var out [1]store.Verdict
			err := l.Take(ctx, []store.Take{{Buckets: []store.BucketCost{b}}}, out[:])
			canceled := errors.Is(err, context.Canceled) || err != nil && strings.Contains(err.Error(), "canceled")
			if err != nil && !canceled || out[0].Allowed {
				t.Errorf("the error is %v, allowed %t", err, out[0].Allowed)
			}
		}
		if took := time.Since(start); took > 20*time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}

// While the store is away, the guard decides, and none of what it grants is a lease.
func TestOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New(nil)
		way := over(mem, time.Millisecond)
		var down atomic.Bool
		way.lose = down.Load
		g := guard.New(way, &guard.Options{Instances: 1, Start: store.StartFull, Owner: func() bool { return true }})
		l := leasing(t, g.Full())
		b := of(plan(t, "hot"), "key")
		allowed := int64(0)
		ask := func(d time.Duration) (fallback int) {
			for start := time.Now(); time.Since(start) < d; time.Sleep(time.Millisecond) {
				if v := take(t, l, b); v.Allowed {
					allowed++
					if v.Fallback {
						fallback++
					}
				}
			}
			return fallback
		}
		if n := ask(2 * time.Second); n != 0 {
			t.Errorf("%d fallbacks while the store works", n)
		}
		down.Store(true)
		if n := ask(5 * time.Second); n < 1000 {
			t.Errorf("%d fallbacks while the store is away", n)
		}
		down.Store(false)
		ask(5 * time.Second)
		before := l.State().Local
		if ask(time.Second); l.State().Local < before+500 {
			t.Error("no leases after the store is back")
		}
		time.Sleep(3 * time.Second)
		if got, held, _ := used(t, mem, b); got < allowed || held != 0 {
			t.Errorf("%d used, %d held; %d were allowed", got, held, allowed)
		}
	})
}

// Several processes, each with many callers, over a network that delays and loses: never over.
// req: E1
func TestManyCallers(t *testing.T) {
	t.Parallel()
	for seed := range uint64(needs.Rounds(2, 6, 100)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { manyCallers(t, seed) })
		})
	}
}

func manyCallers(t *testing.T, seed uint64) {
	t.Helper()
	mem := memstore.New(nil)
	defer mem.Close()
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(seed, 0))
	random := func(n int64) int64 {
		mu.Lock()
		defer mu.Unlock()
		return rng.Int64N(n)
	}
	const amount, window = 10_000, 2 * time.Second
	p := plan(t, "many", func(p *store.Policy) { p.Limits[0].Amount, p.Limits[0].Window = amount, window })
	b := of(p, "key")
	var admitted []time.Time // the end of each call that was allowed: between it and its start it counts
	var procs sync.WaitGroup
	for range 3 {
		way := over(mem, 0)
		way.delay = func() time.Duration { return time.Duration(random(int64(4 * time.Millisecond))) }
		way.lose = func() bool { return random(200) == 0 }
		l := lease.New(shut{way}, nil)
		procs.Go(func() {
			var callers sync.WaitGroup
			for range 16 {
				callers.Go(func() {
					for start := time.Now(); time.Since(start) < 5*time.Second; {
						var out [1]store.Verdict
						ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
						_ = l.Take(ctx, []store.Take{{Buckets: []store.BucketCost{b}}}, out[:])
						cancel()
						if out[0].Allowed {
							now := time.UnixMicro(out[0].Now) // about when it counts
							mu.Lock()
							admitted = append(admitted, now)
							mu.Unlock()
						}
						time.Sleep(time.Duration(random(int64(10 * time.Millisecond))))
					}
				})
			}
			callers.Wait()
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	procs.Wait()
	slices.SortFunc(admitted, time.Time.Compare)
	first, most := 0, 0
	for i, at := range admitted {
		// Now of a local take is estimated, to within the time that a message takes.
		for !admitted[first].Add(window - 5*time.Millisecond).After(at) {
			first++
		}
		most = max(most, i-first+1)
	}
	if most > amount {
		t.Errorf("seed %d: %d in %v, more than %d", seed, most, window, amount)
	}
	if len(admitted) < amount {
		t.Errorf("seed %d: only %d were admitted", seed, len(admitted))
	}
}

// unheard is a store that loses what it is told.
type unheard struct{ *remote }

func (unheard) Settle(ctx context.Context, _ []store.Settlement, _ []store.Outcome) error {
	<-ctx.Done()
	return &store.Error{Store: "remote", Op: "settle", Err: ctx.Err()}
}

// Close waits for a second for a store that does not answer. Nothing goes on after that: whoever is
// left in a bubble fails it.
func TestCloseEndsWhatIsGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New(nil)
		defer mem.Close()
		l, b := lease.New(unheard{over(mem, time.Millisecond)}, nil), of(plan(t, "hot"), "key")
		busy := func(takes int) {
			for range takes {
				take(t, l, b)
				time.Sleep(time.Millisecond)
			}
		}
		busy(500)
		time.Sleep(300 * time.Millisecond) // what is not used is being given back
		busy(1100)
		start := time.Now()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// A second Close does not cut off what the first one is giving back.
func TestCloseTwiceAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New(nil)
		defer mem.Close()
		way, slow := over(mem, 0), atomic.Bool{}
		way.delay = func() time.Duration {
			if slow.Load() {
				return 50 * time.Millisecond
			}
			return time.Millisecond
		}
		l, b := lease.New(shut{way}, nil), of(plan(t, "hot"), "key")
		for range 500 {
			take(t, l, b)
			time.Sleep(time.Millisecond)
		}
		slow.Store(true)
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				if err := l.Close(); err != nil {
					t.Error(err)
				}
				if used, held, open := used(t, mem, b); used != 500 || held != 0 || open != 0 {
					t.Errorf("%d used, %d held by %d, want 500 and none", used, held, open)
				}
			})
			time.Sleep(time.Millisecond)
		}
		both.Wait()
	})
}

// What is decided here allocates nothing, refused or not.
func TestNoAllocations(t *testing.T) { //nolint:paralleltest // it counts allocations of the whole process
	needs.NoRace(t)
	for name, amount := range map[string]int64{"allowed": 1_000_000_000, "refused": 60_000} {
		t.Run(name, func(t *testing.T) {
			l := leasing(t, over(memstore.New(nil), 0))
			p := plan(t, "hot", func(p *store.Policy) { p.Limits[0].Amount = amount })
			batch, out := []store.Take{{Buckets: []store.BucketCost{of(p, "key")}}}, make([]store.Verdict, 1)
			one := func() {
				if err := l.Take(t.Context(), batch, out); err != nil {
					t.Error(err)
				}
			}
			for out[0].Allowed || out[0].Reason == store.Passed || amount > 60_000 && l.State().Local < 100_000 {
				if one(); amount > 60_000 && l.State().Local >= 100_000 {
					break
				}
			}
			if n := testing.AllocsPerRun(100_000, one); n >= 1 {
				t.Errorf("%v allocations per take", n)
			}
		})
	}
}
