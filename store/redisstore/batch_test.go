package redisstore_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/rueidis"
	"pgregory.net/rapid"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/redisstore"
)

// gathering is a store whose requests gather until the test lets them go.
type gathering struct {
	*redisstore.Store
	tb   testing.TB
	send func()
	wg   sync.WaitGroup
}

// gather makes requests gather. The store must be connected.
func gather(tb testing.TB, s *redisstore.Store) *gathering {
	tb.Helper()
	if err := s.Ping(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	return &gathering{Store: s, tb: tb, send: s.Gather()}
}

// add starts a call, and waits until it waits for its batch.
func (g *gathering) add(call func()) {
	g.tb.Helper()
	n := g.Gathered()
	g.wg.Go(call)
	g.until(n + 1)
}

// until waits until so many calls wait for their batch.
func (g *gathering) until(n int) {
	g.tb.Helper()
	for end := time.Now().Add(patience); g.Gathered() != n; runtime.Gosched() {
		if time.Now().After(end) {
			g.tb.Fatalf("%d calls have gathered, want %d", g.Gathered(), n)
		}
	}
}

// begin sends what has gathered to a server that stands still, and waits until all of it is in a
// batch. (What fits into one.)
func (g *gathering) begin() {
	g.tb.Helper()
	still := g.Gathering()
	g.send()
	for end := time.Now().Add(patience); still() > 0; runtime.Gosched() {
		if time.Now().After(end) {
			g.tb.Fatalf("%d calls are in no batch", still())
		}
	}
}

// done sends what has gathered, and waits until all calls are answered.
func (g *gathering) done() {
	g.send()
	g.wg.Wait()
}

// scriptCalls returns how many calls of scripts a server has had since the last time.
func scriptCalls(tb testing.TB, c rueidis.Client) int {
	tb.Helper()
	stats, err := c.Do(tb.Context(), c.B().Info().Section("commandstats").Build()).ToString()
	if err != nil {
		tb.Fatal(err)
	}
	if err := c.Do(tb.Context(), c.B().ConfigResetstat().Build()).Error(); err != nil {
		tb.Fatal(err)
	}
	m := regexp.MustCompile(`cmdstat_evalsha:calls=(\d+)`).FindStringSubmatch(stats)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1])
	return n
}

// everything returns the buckets that a server has under a prefix.
func everything(tb rapid.TB, c rueidis.Client, prefix string) map[string]map[string]string {
	tb.Helper()
	all := map[string]map[string]string{}
	keys, err := c.Do(context.Background(), c.B().Keys().Pattern(prefix+":*").Build()).AsStrSlice()
	if err != nil {
		tb.Fatal(err)
	}
	for _, k := range keys {
		h, err := c.Do(context.Background(), c.B().Hgetall().Key(k).Build()).AsStrMap()
		if err != nil {
			tb.Fatal(err)
		}
		if k != prefix+":%mark" {
			all[k[len(prefix):]] = h
		}
	}
	return all
}

// TestBatchIsAsOneByOne: the same requests get the same answers, and leave the same records, in one
// batch and as calls of their own.
//
// req: B1, C3, E10
func TestBatchIsAsOneByOne(t *testing.T) {
	needs.NoRace(t) // one caller
	t.Parallel()
	server := redistest.Start(t)
	conn := client(t, server)
	whole := 0
	defer func() {
		if whole == 0 {
			t.Error("no batch stayed whole: this shows nothing")
		}
	}()
	rapid.Check(t, func(rt *rapid.T) {
		clock := newClock()
		p, q := prefix(), prefix()
		together := redisstore.NewWithClock(conn, &redisstore.Options{Prefix: p}, clock.now)
		apart := redisstore.NewWithClock(conn, &redisstore.Options{Prefix: q}, clock.now)
		s := &script{T: rt, clock: clock, large: rapid.IntRange(0, 3).Draw(rt, "large") == 0}
		s.waits = rapid.Bool().Draw(rt, "waits")
		for _, name := range []string{"p", "q"} {
			var versions []*store.Plan
			for range rapid.IntRange(1, 2).Draw(rt, "versions") {
				plan, err := drawgate.Policy{Name: name, Limits: someLimits(rt, s.large)}.Compile()
				if err != nil {
					rt.Skip(err)
				}
				versions = append(versions, plan.Plan)
			}
			s.plans = append(s.plans, versions)
		}
		simple := compile(t, "one", drawgate.BucketLimit("b", 5, 10*time.Second, 0))
		known := map[store.Key][]store.Known{} // of each bucket
		var asked []*store.Take
		for range rapid.IntRange(1, 8).Draw(rt, "batches") {
			if gen := rapid.Uint64Range(0, 3).Draw(rt, "generation"); gen < 3 {
				together.SetGeneration(gen)
				apart.SetGeneration(gen)
			}
			together.Learn()
			apart.Learn()
			g := gather(t, together)
			var got, want []any
			asked = nil
			var last *store.Take
			for i := range rapid.IntRange(1, 12).Draw(rt, "requests") {
				got, want, asked = append(got, nil), append(want, nil), append(asked, nil)
				if rapid.IntRange(0, 2).Draw(rt, "kind") == 2 {
					st := s.settlement()
					if st.Check() != nil {
						continue // it is not sent
					}
					g.add(func() { got[i] = outcomeOf(rt, together, st) })
					want[i] = outcomeOf(rt, apart, st)
					continue
				}
				tk := s.someTake()
				if last != nil && rapid.Bool().Draw(rt, "the same again") {
					tk = *last
				} else if rapid.IntRange(0, 2).Draw(rt, "simple") == 0 {
					tk = takeOf(simple, "k", rapid.Int64Range(1, 2).Draw(rt, "n"))
					if s.waits {
						s.wantsToWait(&tk)
					}
				}
				if tk.Check() != nil {
					continue
				}
				if rapid.Bool().Draw(rt, "known") && tk.Known == nil {
					tk.Known = make([]store.Known, len(tk.Buckets))
					for i := range tk.Known {
						of := append([]store.Known{{}, {Mark: store.NoRecord}}, known[tk.Buckets[i].Key]...)
						tk.Known[i] = rapid.SampledFrom(of).Draw(rt, "as")
					}
				}
				last, asked[i] = &tk, &tk
				g.add(func() { got[i] = verdictOf(rt, together, tk) })
				want[i] = verdictOf(rt, apart, tk)
				s.done = append(s.done, fmt.Sprintf("%d %+v", clock.now(), tk)+waiter(&tk))
			}
			scriptCalls(t, conn)
			g.done()
			if scriptCalls(t, conn) > 1 {
				return // it was taken apart, for want of a calendar window, and had no order
			}
			whole++
			for k, a := range want {
				if a, ok := a.(answer); ok {
					s.arrived(asked[k], &store.Verdict{Arrival: a.Arrival})
					for i := range a.Histories {
						key := asked[k].Buckets[i].Key
						known[key] = append(known[key], a.Histories[i].Known)
					}
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				rt.Fatalf("answers (-one by one +together):\n%s\n%s", diff, join(s.done))
			}
			if diff := cmp.Diff(everything(rt, conn, q), everything(rt, conn, p)); diff != "" {
				rt.Fatalf("records (-one by one +together):\n%s\n%s", diff, join(s.done))
			}
			s.wait()
		}
	})
}

func verdictOf(t *rapid.T, s store.Store, tk store.Take) answer {
	var d [1]store.Verdict
	if err := s.Take(context.Background(), []store.Take{tk}, d[:]); err != nil {
		t.Error(err)
	}
	if f := d[0].Fail; f != nil && !errors.Is(f, store.ErrIDReused) && !errors.Is(f, store.ErrNeedsReserve) {
		t.Error(f)
	}
	return answerOf(&d[0])
}

func outcomeOf(t *rapid.T, s store.Store, st store.Settlement) store.Outcome {
	var o [1]store.Outcome
	if err := s.Settle(context.Background(), []store.Settlement{st}, o[:]); err != nil {
		t.Error(err)
	}
	if o[0].Err != nil {
		t.Error(o[0].Err)
	}
	return o[0]
}

// TestIdleCallerGoesStraightThrough: one who is alone makes a call of its own; those who come while
// a call is in flight share the next one, however many they are of one bucket.
//
// req: E2
func TestIdleCallerGoesStraightThrough(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var reported atomic.Int64
	s := open(t, server, &redisstore.Options{Batched: func(b redisstore.Batch) { reported.Add(int64(b.Requests)) }})
	c, plan := client(t, server), compile(t, "p", drawgate.BucketLimit("b", 5000, 30*24*time.Hour, 0))
	take(t, s, takeOf(plan, "k", 1))
	scriptCalls(t, c)
	for range 10 {
		take(t, s, takeOf(plan, "k", 1))
	}
	if n := scriptCalls(t, c); n != 10 {
		t.Errorf("10 takes, one after the other, were %d calls", n)
	}
	g := gather(t, s)
	scriptCalls(t, c)
	const callers = 2000
	var allowed atomic.Int64
	for range callers {
		g.wg.Go(func() {
			if take(t, s, takeOf(plan, "k", 1)).Allowed {
				allowed.Add(1)
			}
		})
	}
	g.until(callers)
	g.done()
	if n := scriptCalls(t, c); n != 1 {
		t.Errorf("%d takes that gathered were %d calls, want 1", callers, n)
	}
	if reported.Load() != callers {
		t.Errorf("batches of %d requests were reported, want %d", reported.Load(), callers)
	}
	if got := peek(t, s, takeOf(plan, "k").Buckets[0]).States[0].Used; allowed.Load() != callers || got < callers+10 {
		t.Errorf("%d of %d were allowed, and %d units are used", allowed.Load(), callers, got)
	}
}

// TestBatchesAreBounded: many requests that are different work become several calls, so that the
// server is not held for long by one.
//
// req: E7
func TestBatchesAreBounded(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s, c := open(t, server, nil), client(t, server)
	bucket := compile(t, "p", drawgate.BucketLimit("b", 5, time.Hour, 0))
	slots := compile(t, "q", drawgate.RollingLimit("r", 5, time.Hour), drawgate.ConcurrencyLimit("n", 5))
	for _, of := range []struct {
		what        string
		callers     int
		take        func(i int) store.Take
		least, most int
	}{
		{"plain takes of many buckets", 1000, func(i int) store.Take {
			return takeOf(bucket, strconv.Itoa(i), 1)
		}, 4, 8},
		{"reservations", 100, func(i int) store.Take {
			return held(takeOf(slots, strconv.Itoa(i), 1, 1), strconv.Itoa(i), time.Minute)
		}, 4, 10},
	} {
		g := gather(t, s)
		scriptCalls(t, c)
		for i := range of.callers {
			g.wg.Go(func() {
				if !take(t, s, of.take(i)).Allowed {
					t.Error("refused")
				}
			})
		}
		g.until(of.callers)
		g.done()
		if n := scriptCalls(t, c); n < of.least || n > of.most {
			t.Errorf("%s: %d are %d calls, want %d to %d", of.what, of.callers, n, of.least, of.most)
		}
		// A batch of one caller is as bounded, and in order.
		batch := make([]store.Take, of.callers)
		for i := range batch {
			batch[i] = of.take(i)
			batch[i].Grant = 1 // another reservation
		}
		out := make([]store.Verdict, len(batch))
		if err := s.Take(t.Context(), batch, out); err != nil {
			t.Fatal(err)
		}
		if n := scriptCalls(t, c); n < of.least || n > of.most {
			t.Errorf("%s: %d of one caller are %d calls, want %d to %d", of.what, of.callers, n, of.least, of.most)
		}
	}
}

// TestSecondCall: while more have gathered than fit into a batch, the next one follows at once, and
// no third one. What fits into one call is one call.
//
// req: E7
func TestSecondCall(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s, plan := open(t, server, nil), compile(t, "p", drawgate.BucketLimit("b", 5, time.Hour, 0))
	for _, of := range []struct{ callers, left, calls int }{{10, 0, 1}, {250, 0, 1}, {251, 0, 2}, {1000, 500, 2}} {
		g := gather(t, s)
		for i := range of.callers {
			g.wg.Go(func() {
				if !take(t, s, takeOf(plan, fmt.Sprint(of.callers, " ", i), 1)).Allowed {
					t.Error("refused")
				}
			})
		}
		g.until(of.callers)
		server.Stop()
		g.send()
		for end := time.Now().Add(patience); g.Gathered() != of.left || g.InFlight() != of.calls; runtime.Gosched() {
			if time.Now().After(end) {
				t.Fatalf("%d callers: %d calls are in flight and %d wait, want %d and %d", of.callers, g.InFlight(),
					g.Gathered(), of.calls, of.left)
			}
		}
		server.Continue()
		g.wg.Wait()
	}
}

// TestCallsThatHang: requests do not wait for a call that hangs, but another one follows, and so on
// up to a bound. Afterwards requests gather as before.
//
// req: A12, E7
func TestCallsThatHang(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s, c, plan := open(t, server, nil), client(t, server), day(t, 1000)
	take(t, s, takeOf(plan, "k", 1))
	for round := range 2 {
		var wg sync.WaitGroup
		one := func() { wg.Go(func() { take(t, s, takeOf(plan, "k", 1)) }) }
		server.Stop()
		for n := range redisstore.MostInFlight - 1 {
			one()
			until(t, "it is sent", func() bool { return s.InFlight() == n+1 && s.Gathered() == 0 })
		}
		for range 100 {
			one()
		}
		until(t, "the others gather", func() bool { return s.Gathered() == 100 })
		server.Continue()
		wg.Wait()
		until(t, "no call hangs any more", func() bool { return s.InFlight() == 0 })
		const each = 100 + redisstore.MostInFlight - 1
		if got := peek(t, s, takeOf(plan, "k").Buckets[0]).States[0].Used; int(got) != 1+(round+1)*each {
			t.Errorf("%d units are used, want those of %d takes", got, 1+(round+1)*each)
		}
	}
	g := gather(t, s)
	scriptCalls(t, c)
	for range 20 {
		g.add(func() { take(t, s, takeOf(plan, "k", 1)) })
	}
	g.done()
	if n := scriptCalls(t, c); n != 1 {
		t.Errorf("20 requests that gathered were %d calls, want 1", n)
	}
}

// TestHeldBucketIsBoundedInBatches: takes that would be quick, were nothing of their bucket held,
// do not keep the server busy together.
//
// req: E7
func TestHeldBucketIsBoundedInBatches(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s, c := open(t, server, nil), client(t, server)
	for _, plan := range []*store.Plan{
		compile(t, "b", drawgate.BucketLimit("b", 1000, 24*time.Hour, 1000)),
		compile(t, "r", drawgate.RollingLimit("r", 1000, 24*time.Hour)),
	} {
		take(t, s, held(takeOf(plan, "k", 1), "i", time.Hour))
		g := gather(t, s)
		scriptCalls(t, c)
		for range 150 {
			g.wg.Go(func() {
				if !take(t, s, takeOf(plan, "k", 1)).Allowed {
					t.Error("refused")
				}
			})
		}
		g.until(150)
		g.done()
		if n := scriptCalls(t, c); n < 1+4 {
			t.Errorf("%s: %d calls, want one of 100 takes, and several of the others", plan.Name(), n)
		}
		if st := peek(t, s, takeOf(plan, "k").Buckets[0]).States[0]; st.Used+st.Held != 151 {
			t.Errorf("%s: %d units are used and %d held, want 151", plan.Name(), st.Used, st.Held)
		}
	}
}

// TestRemovalIsBoundedInBatches: the takes of a batch together remove no more expired entries than
// one alone may.
//
// req: E7
func TestRemovalIsBoundedInBatches(t *testing.T) {
	t.Parallel()
	server, clock := redistest.Start(t), newClock()
	c := client(t, server)
	p := prefix()
	s := redisstore.NewWithClock(c, &redisstore.Options{Prefix: p}, clock.now).RemoveAtMost(10)
	plan := compile(t, "p", drawgate.Limit{
		Name: "r", Kind: drawgate.Rolling, Window: time.Hour, Amount: 1000, Precision: drawgate.Exact,
	})
	buckets := []string{"a", "b", "c"}
	for range 40 {
		clock.advance(time.Second)
		for _, name := range buckets {
			take(t, s, takeOf(plan, name, 1))
		}
	}
	clock.advance(time.Hour - 5*time.Second) // a few still count
	entries := func() (n int) {
		for _, h := range everything(t, c, p) {
			for f := range h {
				if f[0] == 'e' {
					n++
				}
			}
		}
		return n
	}
	before := entries()
	g := gather(t, s)
	for _, name := range buckets {
		g.add(func() {
			if d := take(t, s, takeOf(plan, name, 1)); !d.Allowed {
				t.Error("refused")
			}
		})
	}
	g.done()
	if removed := before + len(buckets) - entries(); removed < 1 || removed > 10 {
		t.Errorf("a batch removed %d expired entries, want at most 10", removed)
	}
}

// TestManyRoundsHoldNobodyUp: a take that needs several calls, since each removes some expired
// entries only, does not make others wait for the last one.
//
// req: E7
func TestManyRoundsHoldNobodyUp(t *testing.T) {
	t.Parallel()
	server, clock := redistest.Start(t), newClock()
	var s *redisstore.Store
	plan := compile(t, "p", drawgate.Limit{
		Name: "r", Kind: drawgate.Rolling, Window: time.Hour, Amount: 40, Precision: drawgate.Exact,
	})
	looks := -1 // at the clock, a few in each round of the take that needs several; -1: they do not count
	s = redisstore.NewWithClock(client(t, server), nil, func() int64 {
		if looks >= 0 {
			if looks++; looks == 20 {
				looks = -1
				take(t, s, takeOf(plan, "another", 1))
				looks = 20
			}
		}
		return clock.now()
	}).RemoveAtMost(1).Patiently()
	for range 40 {
		clock.advance(time.Second)
		take(t, s, takeOf(plan, "k", 1))
	}
	clock.advance(time.Hour - 5*time.Second) // a few still count
	looks = 0
	if d := take(t, s, takeOf(plan, "k", 30)); !d.Allowed {
		t.Error("refused")
	}
	if looks < 40 {
		t.Errorf("the take looked at the clock %d times: this shows nothing", looks)
	}
}

// TestLostReplyOfABatch: a reply that is lost leaves each request of its batch unknown, is one
// failure for whoever counts them, and nothing is carried out twice.
//
// req: A12, E7, E10
func TestLostReplyOfABatch(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := redistest.NewProxy(t, server.Addr)
	s, err := redisstore.Open("redis://"+p.Addr, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	direct, plan := open(t, server, nil), day(t, 1000)
	take(t, direct, held(takeOf(plan, "k", 10), "settled", time.Hour))
	take(t, direct, held(takeOf(plan, "k", 20), "cancelled", time.Hour))
	settlements := []store.Settlement{
		{Op: store.OpSettle, ID: "settled", Buckets: takeOf(plan, "k", 4).Buckets},
		{Op: store.OpCancel, ID: "cancelled", Buckets: takeOf(plan, "k", 0).Buckets},
	}
	end := func(st store.Settlement) (store.Outcome, error) {
		var o [1]store.Outcome
		if err := s.Settle(t.Context(), []store.Settlement{st}, o[:]); err != nil {
			return o[0], err
		}
		return o[0], o[0].Err
	}
	gd := guard.New(s, &guard.Options{Instances: 1, Timeout: time.Minute, Failures: 3})
	defer gd.Close()
	for range 20 { // until no connection is new: the mark is read first on those
		if err := s.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	lose := func(calls ...func() error) {
		t.Helper()
		g := gather(t, s)
		errs := make([]error, len(calls))
		for i, call := range calls {
			g.add(func() { errs[i] = call() })
		}
		p.Mute.Store(true)
		g.done()
		p.Mute.Store(false)
		for i, err := range errs {
			failed(t, fmt.Sprint("call ", i), err, store.ErrUnknownOutcome)
		}
		for s.Ping(t.Context()) != nil {
			if t.Context().Err() != nil {
				t.Fatal("the store does not come back")
			}
		}
	}
	one := func() error { return tryTake(t.Context(), s, takeOf(plan, "k", 1)) }
	lose(one, one, one,
		func() error { _, err := end(settlements[0]); return err },
		func() error { _, err := end(settlements[1]); return err })
	used := func() int64 { return peek(t, direct, takeOf(plan, "k").Buckets[0]).States[0].Used }
	if got := used(); got != 3+4 {
		t.Errorf("%d units are used, want 7: all of the batch once", got)
	}
	for _, st := range settlements {
		if o, err := end(st); err != nil || !o.Gone {
			t.Errorf("a settlement that was sent again: gone %v, %v", o.Gone, err)
		}
	}
	if got := used(); got != 7 {
		t.Errorf("%d units are used after the settlements came twice, want 7", got)
	}

	// The same behind a guard: ten callers are one failure, and three of those open its breaker.
	for i := range 3 {
		if gd.State().Unavailable {
			t.Fatalf("the breaker is open after %d lost replies, want 3", i)
		}
		g := gather(t, s)
		for range 10 {
			g.add(func() {
				var d [1]store.Verdict
				_ = gd.Take(t.Context(), []store.Take{takeOf(plan, "g", 1)}, d[:])
			})
		}
		p.Mute.Store(true)
		g.done()
		p.Mute.Store(false)
		if i == 2 {
			break
		}
		for s.Ping(t.Context()) != nil {
			if t.Context().Err() != nil {
				t.Fatal("the store does not come back")
			}
		}
	}
}

// TestCallerThatLeaves: one that leaves before its batch is sent takes its requests out; one that
// leaves afterwards does not know what became of them. The others stay.
//
// req: E7, E10
func TestCallerThatLeaves(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s, plan := open(t, server, nil), day(t, 100)
	take(t, s, takeOf(plan, "k", 1))
	g := gather(t, s)
	ctx, leave := context.WithCancel(t.Context())
	var early, late, stays error
	g.add(func() { early = tryTake(ctx, s, takeOf(plan, "k", 10)) })
	g.add(func() { stays = tryTake(t.Context(), s, takeOf(plan, "k", 2)) })
	leave()
	g.until(1)
	g.done()
	failed(t, "before it was sent", early, store.ErrNothingDone)
	failed(t, "before it was sent", early, context.Canceled)
	if stays != nil {
		t.Error(stays)
	}
	if got := peek(t, s, takeOf(plan, "k").Buckets[0]).States[0].Used; got != 3 {
		t.Errorf("%d units are used, want 3", got)
	}

	g = gather(t, s)
	ctx, leave = context.WithCancel(t.Context())
	left := make(chan struct{})
	g.add(func() { late = tryTake(ctx, s, takeOf(plan, "k", 10)); close(left) })
	g.add(func() { stays = tryTake(t.Context(), s, takeOf(plan, "k", 2)) })
	server.Stop()
	g.begin()
	leave()
	<-left
	server.Continue()
	g.wg.Wait()
	failed(t, "after it was sent", late, store.ErrUnknownOutcome)
	if stays != nil {
		t.Error(stays)
	}
	if got := peek(t, s, takeOf(plan, "k").Buckets[0]).States[0].Used; got != 15 {
		t.Errorf("%d units are used, want 15", got)
	}
}

// TestBatchThatNobodyWaitsFor ends, so that those who come later are not held up by it.
//
// req: E7
func TestBatchThatNobodyWaitsFor(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s, plan := open(t, server, nil), day(t, 100)
	take(t, s, takeOf(plan, "k", 1))
	g := gather(t, s)
	ctx, leave := context.WithCancel(t.Context())
	for range 3 {
		g.add(func() { _ = tryTake(ctx, s, takeOf(plan, "k", 1)) })
	}
	server.Stop()
	g.begin()
	leave()
	g.wg.Wait()
	g.wg.Go(func() {
		if err := tryTake(t.Context(), s, takeOf(plan, "k", 1)); err != nil {
			t.Error(err)
		}
	})
	for g.Gathered() > 0 { // it is sent although the server stands still
		runtime.Gosched()
	}
	server.Continue()
	g.wg.Wait()
}

// TestDamagedBucketFailsAlone: requests of other buckets in the same batch are carried out, and
// once it is known, requests of that bucket are in no batch for a while.
//
// req: E4, E7
func TestDamagedBucketFailsAlone(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c := client(t, server)
	for what, words := range map[string][]string{
		"another type":   {"SET", "", "x"},
		"a newer record": {"HSET", "", "h", "\x09\x00"},
		"a cut record":   {"HSET", "", "h", "\x02\x00abc"},
	} {
		prefix := prefix()
		words[1] = redisstore.KeyOf(prefix, store.Key{Policy: "day", Name: "bad"})
		s, plan := open(t, server, &redisstore.Options{Prefix: prefix}), day(t, 100)
		if err := c.Do(t.Context(), c.B().Arbitrary(words...).Build()).Error(); err != nil {
			t.Fatal(err)
		}
		for round, calls := range []int{1 + 5, 1 + 1} { // a batch, then each alone; a batch, and the one
			g := gather(t, s)
			scriptCalls(t, c)
			errs := make([]error, 5)
			for i, name := range []string{"a", "b", "bad", "a", "c"} {
				call := func() { errs[i] = tryTake(t.Context(), s, takeOf(plan, name, 1)) }
				if round == 1 && name == "bad" {
					call()
				} else {
					g.add(call)
				}
			}
			g.done()
			for i, err := range errs {
				if (err != nil) != (i == 2) {
					t.Errorf("%s, round %d, take %d: %v", what, round, i, err)
				}
			}
			var se *store.Error
			if !errors.As(errs[2], &se) || se.Fault != store.FaultBucket {
				t.Errorf("%s: %v, want a fault of the bucket", what, errs[2])
			}
			if n := scriptCalls(t, c); n != calls {
				t.Errorf("%s, round %d: %d calls, want %d", what, round, n, calls)
			}
		}
		if got := peek(t, s, takeOf(plan, "a").Buckets[0]).States[0].Used; got != 4 {
			t.Errorf("%s: %d units are used beside it, want 4", what, got)
		}
	}
}

// TestDamagedNumberFailsAlone: a record that the script counts with, but that has a number which no
// store writes, fails the requests of its bucket only.
//
// req: E4, E7
func TestDamagedNumberFailsAlone(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s, c := open(t, server, nil), client(t, server)
	plan := compile(t, "p", drawgate.BucketLimit("b", 100, time.Hour, 100))
	take(t, s, takeOf(plan, "bad", 1))
	key := redisstore.KeyOf("drawgate", store.Key{Policy: "p", Name: "bad"})
	h, err := c.Do(t.Context(), c.B().Hget().Key(key).Field("h").Build()).ToString()
	if err != nil || len(h) != 59 {
		t.Fatal(len(h), err)
	}
	// follows format, flags, two instants, identity and kind
	used := binary.LittleEndian.AppendUint64(nil, math.Float64bits(1e9+0.5))
	h = h[:27] + string(used) + h[35:]
	if err := c.Do(t.Context(), c.B().Hset().Key(key).FieldValue().FieldValue("h", h).Build()).Error(); err != nil {
		t.Fatal(err)
	}
	g := gather(t, s)
	errs := make([]error, 3)
	for i, name := range []string{"a", "bad", "b"} {
		g.add(func() { errs[i] = tryTake(t.Context(), s, takeOf(plan, name, 1)) })
	}
	g.done()
	for i, err := range errs {
		if (err != nil) != (i == 1) {
			t.Errorf("take %d: %v", i, err)
		}
	}
}

// TestScriptIsLoadedForABatch: a server that lost its scripts did nothing, and gets the batch
// again.
//
// req: E7
func TestScriptIsLoadedForABatch(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s, c, plan := open(t, server, nil), client(t, server), day(t, 100)
	g := gather(t, s)
	for range 5 {
		g.add(func() {
			if !take(t, s, takeOf(plan, "k", 1)).Allowed {
				t.Error("refused")
			}
		})
	}
	if err := c.Do(t.Context(), c.B().ScriptFlush().Build()).Error(); err != nil {
		t.Fatal(err)
	}
	g.done()
	if got := peek(t, s, takeOf(plan, "k").Buckets[0]).States[0].Used; got != 5 {
		t.Errorf("%d units are used, want 5", got)
	}
}

// TestFullServerWritesNothingOfABatch: nor does one that is not allowed to write at all. If it
// writes a part, nobody claims to know which.
//
// req: E7, E10
func TestFullServerWritesNothingOfABatch(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c := client(t, server)
	do := func(words ...string) {
		t.Helper()
		if err := c.Do(t.Context(), c.B().Arbitrary(words...).Build()).Error(); err != nil {
			t.Fatal(words, err)
		}
	}
	do("ACL", "SETUSER", "limited", "on", ">secret", "~*", "+@all")
	s, err := redisstore.Open("redis://limited:secret@"+server.Addr, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	plan := day(t, 100)
	try := func(before, after string) []error {
		t.Helper()
		g := gather(t, s)
		errs := make([]error, 3)
		for i, name := range []string{"a", "b", "a"} {
			g.add(func() { errs[i] = tryTake(t.Context(), s, takeOf(plan, name, 1)) })
		}
		do(strings.Fields(before)...)
		g.done()
		do(strings.Fields(after)...)
		return errs
	}
	for _, err := range try("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0") {
		if se := (*store.Error)(nil); !errors.As(err, &se) || se.Fault != store.FaultConfiguration ||
			errors.Is(err, store.ErrUnknownOutcome) {
			t.Errorf("a full server: %v, want a fault of the configuration", err)
		}
	}
	if n := len(everything(t, c, "drawgate")); n != 0 {
		t.Errorf("a full server has %d buckets, want none", n)
	}
	for _, err := range try("ACL SETUSER limited -pexpire", "ACL SETUSER limited +pexpire") {
		failed(t, "a right that is missing after the first write", err, store.ErrUnknownOutcome)
	}
	for _, err := range try("PING", "PING") {
		if err != nil {
			t.Error(err)
		}
	}
}

// TestBatchWithoutItsWindows: if a request needs a calendar window that it did not bring, nothing
// is done about its batch, and each request is sent alone.
//
// req: B1, D2
func TestBatchWithoutItsWindows(t *testing.T) {
	t.Parallel()
	server, clock := redistest.Start(t), newClock()
	c := client(t, server)
	s := redisstore.NewWithClock(c, &redisstore.Options{Prefix: prefix()}, clock.now)
	minute := compile(t, "p", drawgate.CalendarLimit("m", 10, drawgate.Minute, ""))
	other := compile(t, "q", drawgate.BucketLimit("b", 10, 24*365*time.Hour, 0))
	s.Learn()
	g := gather(t, s)
	for range 3 {
		g.add(func() { take(t, s, takeOf(minute, "k", 1)) })
		g.add(func() { take(t, s, takeOf(other, "k", 1)) })
	}
	clock.advance(24 * time.Hour) // since they gathered
	g.done()
	for _, plan := range []*store.Plan{minute, other} {
		if got := peek(t, s, takeOf(plan, "k").Buckets[0]).States[0].Used; got != 3 {
			t.Errorf("%s: %d units are used, want 3", plan.Name(), got)
		}
	}
}

// TestNeverOverTogether: many callers, on one bucket, on some that are asked for far more often
// than others, and on three at once, with settlements between them, are never granted more than
// there is: by brute force over their own log.
//
// req: A1, C1, C12, E2
func TestNeverOverTogether(t *testing.T) {
	t.Parallel()
	// A slow machine, too, asks for more than 100 units a second.
	const callers, each, window, amount = 64, 40, 200 * time.Millisecond, 20
	plan := compile(t, "p", drawgate.Limit{
		Name: "r", Kind: drawgate.Rolling, Window: window, Amount: amount, Precision: drawgate.Exact,
	})
	server := redistest.Start(t)
	type grant struct {
		at time.Time
		n  int64
	}
	for _, of := range []struct {
		what    string
		buckets func(r *rand.Rand) []string
	}{
		{"one bucket", func(*rand.Rand) []string { return []string{"hot"} }},
		{"skewed", func(r *rand.Rand) []string { return []string{fmt.Sprint("s", r.IntN(r.IntN(r.IntN(50)+1)+1))} }},
		{"three at once", func(r *rand.Rand) []string {
			a := r.IntN(6)
			return []string{fmt.Sprint("t", a), fmt.Sprint("t", (a+1)%6), fmt.Sprint("t", (a+2)%6)}
		}},
	} {
		s := open(t, server, &redisstore.Options{Prefix: prefix()})
		var mu sync.Mutex
		log, refused := map[string][]grant{}, 0
		var wg sync.WaitGroup
		for g := range callers {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(uint64(g), 1))
				for i := range each {
					names := of.buckets(r)
					slices.Sort(names)
					tk := store.Take{}
					for _, name := range slices.Compact(names) {
						tk.Buckets = append(tk.Buckets, takeOf(plan, name, 1).Buckets...)
					}
					id := ""
					if r.IntN(3) == 0 {
						id = fmt.Sprint(of.what, g, i)
						tk = held(tk, id, time.Hour)
					}
					d := take(t, s, tk)
					mu.Lock()
					if !d.Allowed {
						refused++
					}
					for _, b := range tk.Buckets {
						if d.Allowed {
							log[b.Key.Name] = append(log[b.Key.Name], grant{d.At(), 1})
						}
					}
					mu.Unlock()
					if d.Allowed && id != "" { // used as estimated
						settle(t, s, store.Settlement{Op: store.OpSettle, ID: id, Buckets: tk.Buckets})
					}
				}
			})
		}
		wg.Wait()
		for _, name := range slices.Sorted(maps.Keys(log)) {
			l := log[name]
			slices.SortFunc(l, func(a, b grant) int { return a.at.Compare(b.at) })
			from, sum := 0, int64(0)
			for _, e := range l {
				for sum += e.n; !l[from].at.Add(window).After(e.at); from++ {
					sum -= l[from].n
				}
				if sum > amount {
					t.Fatalf("%s: %d units of %s were granted within %v", of.what, sum, name, window)
				}
			}
		}
		if of.what == "one bucket" && refused == 0 {
			t.Errorf("%s: nothing was refused: this shows nothing", of.what)
		}
	}
}

// TestBatchesCanBeSwitchedOff: then each request is a call of its own.
//
// req: E2
func TestBatchesCanBeSwitchedOff(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s, c, plan := open(t, server, &redisstore.Options{NoBatches: true}), client(t, server), day(t, 100)
	take(t, s, takeOf(plan, "k", 1))
	send := s.Gather()
	scriptCalls(t, c)
	out := make([]store.Verdict, 3)
	if err := s.Take(t.Context(), slices.Repeat([]store.Take{takeOf(plan, "k", 1)}, 3), out); err != nil {
		t.Fatal(err)
	}
	if n := scriptCalls(t, c); n != 3 || !out[2].Allowed {
		t.Errorf("3 takes were %d calls, and the last one allowed: %v", n, out[2].Allowed)
	}
	send()
}
