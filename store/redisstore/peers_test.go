package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/redisstore"
)

// The tests of this file, and those with such names in fault_test.go and ttl_test.go, are lines of
// PEERS.md, section 1, by their numbers.

// TestPeers06CallsAtOnceDoNotOvershoot: what a call costs is known only after its answer, and many
// are under way at the same time. What they may cost is reserved first.
//
// req: PEERS 6, C1, E1
func TestPeers06CallsAtOnceDoNotOvershoot(t *testing.T) {
	t.Parallel()
	const amount, estimate, used = 100, 10, 6
	server, plan := redistest.Start(t), day(t, amount)
	var granted, spent atomic.Int64
	call := func(s *redisstore.Store, id string) (allowed bool) {
		ask := held(takeOf(plan, "k", estimate), id, time.Hour)
		ask.Grant = store.NewGrant()
		if !take(t, s, ask).Allowed {
			return false
		}
		granted.Add(1)
		settle(t, s, store.Settlement{
			Op: store.OpSettle, ID: id, Grant: ask.Grant, Buckets: takeOf(plan, "k", used).Buckets,
		})
		spent.Add(used)
		return true
	}
	stores := []*redisstore.Store{open(t, server, nil), open(t, server, nil), open(t, server, nil)}
	for round := range 3 {
		var all sync.WaitGroup
		for i := range 40 {
			all.Go(func() { call(stores[i%len(stores)], fmt.Sprint(round, " ", i)) })
		}
		all.Wait()
	}
	for i := 0; call(stores[0], fmt.Sprint("last ", i)); i++ { // what calls at once have left
	}
	got := peek(t, stores[0], takeOf(plan, "k").Buckets[0]).States[0].Used
	if got != spent.Load() || got > amount || got <= amount-estimate {
		t.Errorf("%d calls cost %d of %d, and %d are used", granted.Load(), spent.Load(), amount, got)
	}
}

// TestPeers09InstancesWithSkewedClocksShareOneWindow: two processes, one of which believes that it
// is the year 2000, count in the same window of every kind of limit, that of the server's clock.
//
// req: PEERS 9, E1
func TestPeers09InstancesWithSkewedClocksShareOneWindow(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	every := drawgate.Month
	if tomorrow := time.Now().UTC().AddDate(0, 0, 1); tomorrow.Day() == 1 && tomorrow.Weekday() != time.Monday {
		every = drawgate.Week // which does not end tonight
	}
	for _, limit := range []drawgate.Limit{
		{Name: "l", Kind: drawgate.Calendar, Every: every, Amount: 20},
		{Name: "l", Kind: drawgate.Rolling, Window: 24 * time.Hour, Amount: 20},
		{Name: "l", Kind: drawgate.Bucket, Window: 1000 * time.Hour, Amount: 20, Burst: 20},
	} {
		plan := compile(t, fmt.Sprint(limit.Kind), limit)
		ask := func(n int) (passed int) {
			s, err := redisstore.Open(server.URL(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			for range n {
				if take(t, s, takeOf(plan, "k", 1)).Allowed {
					passed++
				}
			}
			return passed
		}
		first, second := ask(12), 0
		synctest.Test(t, func(t *testing.T) { // here it is the year 2000
			if year := time.Now().Year(); year != 2000 {
				t.Errorf("the clock is not skewed: it is %d", year)
			}
			second = ask(12)
		})
		if third := ask(1); first != 12 || second != 8 || third != 0 {
			t.Errorf("%v: %d, %d and %d passed, want 12, the other 8 and none", limit.Kind, first, second, third)
		}
	}
}

// TestPeers18WaitersDoNotPoll: a thousand callers wait for a bucket that gives them their units one
// by one. Each asks the server a few times in all, however long it waits.
//
// req: PEERS 18, B7, E2
func TestPeers18WaitersDoNotPoll(t *testing.T) {
	t.Parallel()
	const waiters = 1000
	server := redistest.Start(t)
	s, c := open(t, server, nil), client(t, server)
	lim, err := drawgate.New(s, drawgate.Policy{Name: "paced", Limits: []drawgate.Limit{{
		Name: "b", Kind: drawgate.Bucket, Window: time.Second, Amount: 400, Burst: 1,
	}}}, &drawgate.Options{StoreTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer lim.Close()
	scriptCalls(t, c)
	var all sync.WaitGroup
	for range waiters {
		all.Go(func() {
			d, err := lim.Wait(t.Context(), "hot")
			for errors.Is(err, context.DeadlineExceeded) { // the machine is so busy that a call takes seconds
				d, err = lim.Wait(t.Context(), "hot")
			}
			if err != nil || !d.Allowed {
				t.Errorf("%+v, %v", d, err)
			}
		})
	}
	all.Wait()
	if n := scriptCalls(t, c); n > 10*waiters {
		t.Errorf("%d waiters were %d calls of the server, want a few of each at most", waiters, n)
	} else {
		t.Logf("%d waiters were %d calls of the server", waiters, n)
	}
}

// TestPeers19OutageOfRedisIsAnswered: while the server hangs, refuses connections or was killed, no
// caller gets an error, no process admits a whole limit or everything, and each comes back.
//
// req: PEERS 19, A10, E7
func TestPeers19OutageOfRedisIsAnswered(t *testing.T) {
	t.Parallel()
	const amount, processes = 30, 3
	for what, outage := range map[string]struct{ begin, end func(*redistest.Server) }{
		"hangs":     {(*redistest.Server).Stop, (*redistest.Server).Continue},
		"is killed": {(*redistest.Server).Kill9, (*redistest.Server).Restart},
	} {
		server := redistest.Start(t)
		plan, admitted := day(t, amount), 0
		var guards []*guard.Store
		for range processes {
			g := guard.New(open(t, server, nil), &guard.Options{Instances: processes, Start: drawgate.StartFull})
			t.Cleanup(func() { _ = g.Close() })
			guards = append(guards, g)
		}
		outage.begin(server)
		for _, g := range guards {
			for range amount + 5 {
				var d [1]store.Verdict
				err := errors.Join(g.Take(t.Context(), []store.Take{takeOf(plan, "k", 1)}, d[:]), d[0].Fail)
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				if d[0].Allowed {
					admitted++
				}
			}
		}
		if admitted != amount {
			t.Errorf("%s: %d processes admitted %d, want their shares of %d", what, processes, admitted, amount)
		}
		outage.end(server)
		for _, g := range guards {
			until(t, "the store decides again", func() bool {
				st := g.State()
				return !st.Unavailable && st.Pending == 0
			})
		}
		if d := take(t, guards[0], takeOf(plan, "k", 1)); d.Allowed {
			t.Errorf("%s: the store does not know what was admitted meanwhile", what)
		}
	}
}

// TestPeers20FallbackIsMarked: an answer that was given without the server can be told from one of
// the server's, and why nothing was admitted.
//
// req: PEERS 20, E8
func TestPeers20FallbackIsMarked(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	g := guard.New(open(t, server, nil), &guard.Options{Instances: 1, Start: drawgate.StartFull, Timeout: time.Minute})
	defer g.Close()
	share := day(t, 1)
	ask := func(what string, tk store.Take, allowed, fallback bool, why store.Reason) {
		t.Helper()
		var d [1]store.Verdict
		err := g.Take(context.WithoutCancel(t.Context()), []store.Take{tk}, d[:])
		if err != nil || d[0].Allowed != allowed || d[0].Fallback != fallback || d[0].Reason != why {
			t.Errorf("%s: %v; allowed %v, fallback %v, %v", what, err, d[0].Allowed, d[0].Fallback, d[0].Reason)
		}
	}
	ask("the server's", takeOf(share, "a", 1), true, false, store.Passed)
	ask("the server's", takeOf(share, "a", 1), false, false, store.Limited)
	server.Kill9()
	ask("a share that is used", takeOf(share, "a", 1), false, true, store.Limited)
	ask("a share", takeOf(share, "b", 1), true, true, store.Passed)
}
