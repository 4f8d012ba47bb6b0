package guard_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/memstore"
)

// bubble runs a test in a synctest bubble with a guard over a store that fails on demand.
func bubble(t *testing.T, opts *guard.Options, f func(t *testing.T, g *guard.Store, store *faulty)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Helper()
		store := &faulty{Store: memstore.New(nil)}
		f(t, guarded(t, store, opts), store)
	})
}

func share(n int) *guard.Options { return &guard.Options{Instances: n} }

// TestTheFirstFailureIsAnsweredHere: no caller sees an error, nor waits longer than the deadline,
// and each decision says who made it. After three failures the store is no longer asked.
//
// req: A10, E7, C12
func TestTheFirstFailureIsAnsweredHere(t *testing.T) {
	t.Parallel()
	for _, m := range []mood{refuses, stalls, mute, slow} {
		t.Run(fmt.Sprint(m), func(t *testing.T) {
			t.Parallel()
			bubble(t, share(1), func(t *testing.T, g *guard.Store, inner *faulty) {
				plan := policy(t, 0, rolling(10, time.Minute))
				if d := take(t, g, plan, "k", 1); !d.Allowed || d.Fallback {
					t.Fatalf("while the store is there: allowed %v, fallback %v", d.Allowed, d.Fallback)
				}
				inner.set(m)
				asked := inner.count()
				for i := range 9 {
					start := time.Now()
					d := take(t, g, plan, "k", 1)
					if took := time.Since(start); took > 40*time.Millisecond || i >= 4 && took > 0 {
						t.Errorf("take %d took %v", i, took)
					}
					if !d.Allowed || !d.Fallback || d.First.Limits[0].Remaining != int64(8-i) {
						t.Errorf("take %d: allowed %v, fallback %v, %d left", i, d.Allowed, d.Fallback,
							d.First.Limits[0].Remaining)
					}
				}
				if d := take(t, g, plan, "k", 1); d.Allowed || !d.Fallback || d.Reason != store.Limited ||
					d.RetryAfter <= 0 {
					t.Errorf("beyond the limit: allowed %v, fallback %v, reason %v, retry-after %v", d.Allowed,
						d.Fallback, d.Reason, d.RetryAfter)
				}
				if n := inner.count() - asked; n > 3 {
					t.Errorf("callers asked %d times, want 3", n)
				}
				inner.set(well)
				wantBack(t, g, 2*time.Second)
				if d := take(t, g, plan, "k", 1); d.Allowed || d.Fallback {
					t.Errorf("the store is back, and knows: allowed %v, fallback %v", d.Allowed, d.Fallback)
				}
			})
		})
	}
}

// TestCallerMistakesAreNoOutage: mistakes of callers, and callers that leave, say nothing about the
// store.
func TestCallerMistakesAreNoOutage(t *testing.T) {
	t.Parallel()
	bubble(t, share(1), func(t *testing.T, g *guard.Store, inner *faulty) {
		plan := policy(t, 0, rolling(10, time.Minute))
		var out [1]store.Verdict
		for _, err := range []error{store.ErrInvalid, store.ErrClosed, store.ErrIDReused} {
			inner.fail(fmt.Errorf("no: %w", err))
			for range 5 {
				if got := g.Take(t.Context(), []store.Take{{Buckets: []store.BucketCost{cost(plan, "k", 1)}}},
					out[:]); !errors.Is(got, err) {
					t.Errorf("got %v, want %v", got, err)
				}
			}
		}
		inner.set(stalls)
		for range 5 {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(10*time.Millisecond, cancel)
			if got := g.Take(ctx, []store.Take{{Buckets: []store.BucketCost{cost(plan, "k", 1)}}},
				out[:]); !errors.Is(got, context.Canceled) {
				t.Errorf("a caller that leaves: %v", got)
			}
		}
		inner.set(well)
		if d := take(t, g, plan, "k", 1); d.Fallback || g.State().Unavailable || d.First.Limits[0].Remaining != 9 {
			t.Errorf("fallback %v, %+v, %d left", d.Fallback, g.State(), d.First.Limits[0].Remaining)
		}
	})
}

// TestAHurriedCaller: it is answered before its own deadline, and its timeout does not count
// against the store.
func TestAHurriedCaller(t *testing.T) {
	t.Parallel()
	bubble(t, &guard.Options{Instances: 1, Start: drawgate.StartFull},
		func(t *testing.T, g *guard.Store, inner *faulty) {
			plan := policy(t, 0, rolling(100, time.Minute))
			inner.set(stalls)
			n := 0
			hurry := func(d time.Duration) {
				t.Helper()
				n++
				// another bucket each time: what was admitted here must be delivered before the
				// store is asked about the same bucket again
				key := fmt.Sprint("k", n)
				ctx, cancel := context.WithTimeout(t.Context(), d)
				defer cancel()
				var out [1]store.Verdict
				err := g.Take(ctx, []store.Take{{Buckets: []store.BucketCost{cost(plan, key, 1)}}}, out[:])
				if err != nil || !out[0].Allowed || !out[0].Fallback || ctx.Err() != nil {
					t.Errorf("with %v: %v, allowed %v, its deadline: %v", d, err, out[0].Allowed, ctx.Err())
				}
			}
			for range 5 {
				hurry(6 * time.Millisecond)
			}
			if g.State().Unavailable {
				t.Error("callers in a hurry were believed")
			}
			for range 3 {
				hurry(25 * time.Millisecond)
			}
			if !g.State().Unavailable {
				t.Error("a store that does not answer in 20 ms is taken to be there")
			}
		})
}

// TestModes: what each fallback admits, alone and combined in one policy (document D: the day limit
// is open, the minute limit stays).
//
// req: D10, E8
func TestModes(t *testing.T) {
	t.Parallel()
	mode := func(l drawgate.Limit, f drawgate.Fallback) drawgate.Limit { l.Fallback = f; return l }
	for _, c := range []struct {
		name      string
		instances int
		policy    drawgate.Fallback
		limits    []drawgate.Limit
		want      int64
		reason    store.Reason
	}{
		{"by default a share of one", 1, 0, []drawgate.Limit{rolling(10, time.Minute)}, 10, store.Limited},
		{"by default a share of three", 3, 0, []drawgate.Limit{rolling(10, time.Minute)}, 3, store.Limited},
		{
			"by default nothing where nobody knows of how many", 0, 0,
			[]drawgate.Limit{rolling(10, time.Minute)},
			0,
			store.Unavailable,
		},
		{
			"a share where nobody knows of how many", 0, drawgate.FallbackShare,
			[]drawgate.Limit{rolling(10, time.Minute)},
			0, store.Unavailable,
		},
		{"closed", 3, drawgate.FallbackClosed, []drawgate.Limit{rolling(10, time.Minute)}, 0, store.Unavailable},
		{"open", 3, drawgate.FallbackOpen, []drawgate.Limit{rolling(10, time.Minute)}, 10_000, store.Passed},
		{
			"a share of less than a unit", 11, drawgate.FallbackShare,
			[]drawgate.Limit{rolling(10, time.Minute)},
			0,
			store.Unavailable,
		},
		{"a bucket's share", 3, drawgate.FallbackShare, []drawgate.Limit{leaky(10, time.Minute, 20)}, 6, store.Limited},
		{"a day's share", 3, drawgate.FallbackShare, []drawgate.Limit{daily(10)}, 3, store.Limited},
		{
			"the day steps aside, the minute stays", 2, drawgate.FallbackShare,
			[]drawgate.Limit{rolling(20, time.Minute), rolling(100, time.Hour), mode(daily(3), drawgate.FallbackOpen)},
			10, store.Limited,
		},
		{
			"one closed limit is enough", 2, drawgate.FallbackOpen,
			[]drawgate.Limit{rolling(20, time.Minute), mode(daily(3), drawgate.FallbackClosed)},
			0, store.Unavailable,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, &guard.Options{Instances: c.instances, Start: drawgate.StartFull},
				func(t *testing.T, g *guard.Store, inner *faulty) {
					plan := policy(t, c.policy, c.limits...)
					inner.set(refuses)
					n := int64(0)
					var d store.Verdict
					for n < 10_000 {
						if d = take(t, g, plan, "k", 1, 1, 1); !d.Allowed {
							break
						}
						n++
					}
					if n != c.want || d.Reason != c.reason || !d.Fallback {
						t.Errorf("%d admitted, want %d; then %v, want %v", n, c.want, d.Reason, c.reason)
					}
					if !d.Allowed {
						if d.Fail != nil || d.RetryAfter <= 0 || d.EarliestRetry > d.RetryAfter ||
							d.EarliestRetry > 100*time.Millisecond {
							t.Errorf("refused: %v, retry-after %v, earliest %v", d.Fail, d.RetryAfter, d.EarliestRetry)
						}
					}
				})
		})
	}
}

// TestWhatIsTooLargeForAShare: it never fits locally, but would fit if the store were back. So
// RetryAfter must not say "never".
func TestWhatIsTooLargeForAShare(t *testing.T) {
	t.Parallel()
	bubble(t, &guard.Options{Instances: 3, Start: drawgate.StartFull},
		func(t *testing.T, g *guard.Store, inner *faulty) {
			plan := policy(t, 0, rolling(30, time.Minute))
			inner.set(refuses)
			if d := take(t, g, plan, "k", 11); d.Allowed || d.RetryAfter != time.Second ||
				d.Reason != store.Unavailable {
				t.Errorf("allowed %v, retry-after %v, reason %v", d.Allowed, d.RetryAfter, d.Reason)
			}
			lim, err := drawgate.New(g.Full(), policyOf(plan), nil)
			if err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(10*time.Second, func() { inner.set(well) })
			start := time.Now()
			d, err := lim.Wait(t.Context(), "k", store.Cost{N: 11})
			if took := time.Since(start); err != nil || !d.Allowed || d.Fallback || took > 12*time.Second {
				t.Errorf("waiting for the store: %v after %v, fallback %v", err, took, d.Fallback)
			}
		})
}

// TestShareCountsWhatWasUsedBefore: the share does not start fresh when an outage begins, for any
// kind of limit.
func TestShareCountsWhatWasUsedBefore(t *testing.T) {
	t.Parallel()
	for _, l := range []drawgate.Limit{rolling(9, time.Hour), leaky(9, 100*time.Hour, 0), daily(9)} {
		t.Run(l.Kind.String(), func(t *testing.T) {
			t.Parallel()
			for _, c := range []struct {
				instances  int
				used, more int64
			}{{1, 4, 5}, {1, 9, 0}, {3, 1, 2}, {3, 3, 0}, {3, 7, 0}} {
				bubble(t, share(c.instances), func(t *testing.T, g *guard.Store, store *faulty) {
					plan := policy(t, 0, l)
					take(t, g, plan, "k", c.used)
					store.set(refuses)
					if n := drain(t, g, plan, "k"); n != c.more {
						t.Errorf("%d of %d used with the store: %d more without it, want %d", c.used, c.instances, n,
							c.more)
					}
				})
			}
		})
	}
}

// TestAProcessThatUsedMoreThanItsShareRefillsFromEmpty: what the store granted beyond the share is
// not debt.
func TestAProcessThatUsedMoreThanItsShareRefillsFromEmpty(t *testing.T) {
	t.Parallel()
	bubble(t, share(3), func(t *testing.T, g *guard.Store, store *faulty) {
		plan := policy(t, 0, leaky(60, time.Minute, 30))
		for range 30 {
			take(t, g, plan, "k", 1)
		}
		store.set(refuses)
		if n := drain(t, g, plan, "k"); n != 0 {
			t.Errorf("%d at once, want none", n)
		}
		time.Sleep(15 * time.Second) // 20 a minute
		if n := drain(t, g, plan, "k"); n != 5 {
			t.Errorf("%d after 15 s at 20 a minute, want 5", n)
		}
		time.Sleep(time.Hour)
		if n := drain(t, g, plan, "k"); n != 10 {
			t.Errorf("%d after a long rest, want the share's burst of 10", n)
		}
	})
}

// TestPriorUseIsAssumed: what an earlier process was admitted is unknown to the next one, and
// counts as used when that one starts.
func TestPriorUseIsAssumed(t *testing.T) {
	needs.NoRace(t) // a guard alone looks for its store for hours
	t.Parallel()
	for _, l := range needs.Cases(1, rolling(9, time.Hour), leaky(9, time.Hour, 0), daily(9)) {
		t.Run(l.Kind.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := &faulty{Store: memstore.New(nil)}
				plan := policy(t, 0, l)
				for range 6 { // the earlier process
					take(t, store, plan, "half", 1)
				}
				g := guarded(t, store, share(1))
				take(t, g, plan, "half", 1) // the store says that 7 are used
				take(t, g, plan, "new", 1)
				store.set(refuses)
				for name, want := range map[string]int64{"half": 2, "new": 8, "unseen": 0} {
					if n := drain(t, g, plan, name); n != want {
						t.Errorf("%s: %d admitted, want %d", name, n, want)
					}
				}
				time.Sleep(24 * time.Hour)
				if n := drain(t, g, plan, "unseen"); n != 9 {
					t.Errorf("a window after the start: %d admitted, want 9", n)
				}
			})
			bubble(t, &guard.Options{Instances: 1, Start: drawgate.StartFull},
				func(t *testing.T, g *guard.Store, store *faulty) {
					store.set(refuses)
					if n := drain(t, g, policy(t, 0, l), "unseen"); n != 9 {
						t.Errorf("if it is trusted that there was none: %d admitted, want 9", n)
					}
				})
		})
	}
}

// TestSeveralBucketsAllOrNothing: as in the store.
func TestSeveralBucketsAllOrNothing(t *testing.T) {
	t.Parallel()
	bubble(t, &guard.Options{Instances: 1, Start: drawgate.StartFull},
		func(t *testing.T, g *guard.Store, inner *faulty) {
			plan := policy(t, 0, rolling(5, time.Hour), leaky(100, time.Hour, 0))
			small := compile(t, drawgate.Policy{
				Name: "small",
				Limits: []drawgate.Limit{{
					Name: "r", Kind: drawgate.Rolling,
					Window: time.Hour, Amount: 2,
				}},
			})
			inner.set(refuses)
			both := store.Take{Buckets: []store.BucketCost{cost(plan, "k", 1, 1), cost(small, "k", 1)}}
			for i, want := range []bool{true, true, false, false} {
				d := send(t, g, both)
				if d.Allowed != want || d.Buckets() != 2 || !d.Fallback {
					t.Errorf("take %d: allowed %v over %d buckets, want %v", i, d.Allowed, d.Buckets(), want)
				}
				if !want && d.Reason == store.Passed {
					t.Error("no reason")
				}
			}
			if got := used(t, g, plan, "k"); !slices.Equal(got, []int64{2, 2}) {
				t.Errorf("used %v by takes of which two were refused, want 2", got)
			}
			inner.set(well)
			wantBack(t, g, 2*time.Second)
			if got := used(t, inner, plan, "k"); !slices.Equal(got, []int64{2, 2}) {
				t.Errorf("charged %v, want 2", got)
			}
			if got := used(t, inner, small, "k"); !slices.Equal(got, []int64{2}) {
				t.Errorf("charged %v, want 2", got)
			}
		})
}

// TestOneBucketThatCannotBeRead: the guard decides about a key of the wrong type, and still sends
// all others to the store.
//
// req: A11, E7
func TestOneBucketThatCannotBeRead(t *testing.T) {
	t.Parallel()
	var decided uint64
	observer := &guard.Observer{Closed: func(c *guard.Closed) { decided = c.Decided }}
	bubble(t, &guard.Options{Instances: 1, Start: drawgate.StartFull, Observer: observer},
		func(t *testing.T, g *guard.Store, inner *faulty) {
			plan := policy(t, 0, rolling(5, time.Hour))
			inner.blocked = func(b store.BucketCost) error {
				if b.Key.Name == "bad" {
					return &store.Error{
						Store: "faulty", Op: "take", Err: errors.New("WRONGTYPE"),
						Fault: store.FaultBucket,
					}
				}
				return nil
			}
			for i := range 7 {
				if d := take(t, g, plan, "bad", 1); !d.Fallback || d.Allowed != (i < 5) {
					t.Errorf("take %d of the bad one: allowed %v, fallback %v", i, d.Allowed, d.Fallback)
				}
				if d := take(t, g, plan, "good", 0); d.Fallback {
					t.Error("another one is decided here as well")
				}
			}
			if g.State().Unavailable {
				t.Error("the store is taken to be away")
			}
			inner.mu.Lock()
			inner.blocked = nil
			inner.mu.Unlock()
			wantBack(t, g, 3*time.Second)
			if d := take(t, g, plan, "bad", 1); d.Fallback || d.Allowed {
				t.Errorf("repaired: fallback %v, allowed %v", d.Fallback, d.Allowed)
			}
			inner.set(refuses)
			for range 4 {
				take(t, g, plan, "good", 1)
			}
			back(t, g, inner)
			if decided != 4 {
				t.Errorf("%d takes are told to have been decided while the store was away, want 4", decided)
			}
		})
}
