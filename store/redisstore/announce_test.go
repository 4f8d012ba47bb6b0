package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/redisstore"
)

// TestFirstInLineIsTold when units come free early, and nobody else is.
//
// req: C5
func TestFirstInLineIsTold(t *testing.T) {
	t.Parallel()
	for _, of := range topologies {
		t.Run(of.name, func(t *testing.T) {
			t.Parallel()
			url := of.start(t)
			holder, first, second := openURL(t, url, nil), openURL(t, url, nil), openURL(t, url, nil)
			plan := compile(t, "p", drawgate.ConcurrencyLimit("s", 1))
			for _, op := range []store.Op{store.OpCancel, store.OpSettle} {
				name := op.String() // of a bucket of its own: what is told of others may come late
				one, two := make(chan store.Key, 100), make(chan store.Key, 100)
				defer first.Watch(one)()
				defer second.Watch(two)()
				waits := func(id string, number uint64) store.Take {
					tk := held(takeOf(plan, name, 1), id, time.Minute)
					tk.Ticket = &store.Ticket{Number: number}
					return tk
				}
				take(t, holder, held(takeOf(plan, name, 1), "a", time.Minute))
				until(t, "the first one is told", func() bool { // it may not have subscribed yet
					if d := take(t, first, waits("b", 1)); d.Allowed || d.Arrival == 0 {
						t.Fatalf("allowed %v, arrived at %d", d.Allowed, d.Arrival)
					}
					take(t, second, waits("c", 2))
					settle(t, holder, store.Settlement{Op: op, ID: "a", Buckets: takeOf(plan, name, 0).Buckets})
					select {
					case <-one:
						return true
					case <-time.After(100 * time.Millisecond):
						again := held(takeOf(plan, name, 1), "a", time.Minute)
						again.Barge = true
						take(t, holder, again)
						return false
					}
				})
				if n := len(two); n > 0 {
					t.Errorf("%v: who is not first was told %d times", op, n)
				}
			}
		})
	}
}

// TestAllWhoFitAreTold when units for several waiters come free at once: each in its own process.
//
// req: C5
func TestAllWhoFitAreTold(t *testing.T) {
	t.Parallel()
	for _, of := range topologies {
		t.Run(of.name, func(t *testing.T) {
			t.Parallel()
			url := of.start(t)
			plan := compile(t, "p", drawgate.ConcurrencyLimit("s", 2))
			var procs [3]*redisstore.Store
			var reported [3]chan store.Key
			for i := range procs {
				procs[i], reported[i] = openURL(t, url, nil), make(chan store.Key, 1000)
				defer procs[i].Watch(reported[i])()
			}
			round := 0
			until(t, "two are told", func() bool { // they may not have subscribed yet
				round++
				name := fmt.Sprint("k", round)
				take(t, procs[0], held(takeOf(plan, name, 2), "a", time.Minute))
				for i, p := range procs {
					tk := held(takeOf(plan, name, 1), fmt.Sprint("b", i), time.Minute)
					tk.Ticket = &store.Ticket{Number: uint64(i + 1)}
					if take(t, p, tk).Allowed {
						t.Fatal("it need not wait")
					}
				}
				settle(t, procs[0], store.Settlement{
					Op: store.OpCancel, ID: "a",
					Buckets: takeOf(plan, name, 0).Buckets,
				})
				return hears(reported[0], name) && hears(reported[1], name)
			})
			if n := len(reported[2]); n > 0 {
				t.Errorf("who does not fit was told %d times", n)
			}
		})
	}
}

// hears reports whether a bucket is announced soon.
func hears(reported <-chan store.Key, name string) bool {
	for end := time.After(100 * time.Millisecond); ; {
		select {
		case k := <-reported:
			if k.Name == name {
				return true
			}
		case <-end:
			return false
		}
	}
}

// TestFirstOfSpreadTakesIsTold when slots in several slots of a cluster come free.
//
// req: C5
func TestFirstOfSpreadTakesIsTold(t *testing.T) {
	t.Parallel()
	url := redistest.StartCluster(t, false).URL()
	holder, first := openURL(t, url, nil), openURL(t, url, nil)
	plan := compile(t, "p", drawgate.ConcurrencyLimit("s", 1))
	reported := make(chan store.Key, 100)
	defer first.Watch(reported)()
	waits := held(waiting(across(plan, 1, 0, 1), 1), "b", time.Minute)
	until(t, "the first one is told", func() bool { // it may not have subscribed yet
		a := held(across(plan, 1, 0, 1), "a", time.Minute)
		a.Grant, a.Barge = store.NewGrant(), true
		take(t, holder, a)
		if d := take(t, first, waits); d.Allowed {
			t.Fatalf("%+v", d)
		}
		settle(t, holder, store.Settlement{Op: store.OpCancel, ID: a.ID, Grant: a.Grant, Buckets: a.Buckets})
		select {
		case <-reported:
			return true
		case <-time.After(100 * time.Millisecond):
			return false
		}
	})
}

// TestNoRightToPublish costs announcements, and nothing else.
func TestNoRightToPublish(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Do("ACL", "SETUSER", "drawgate", "on", ">secret", "~drawgate:*", "resetchannels", "+@connection", "+info",
		"+script|load", "+evalsha", "+time", "+hset", "+hget", "+hmget", "+hdel", "+pexpire", "+unlink", "+scan")
	s := openURL(t, "redis://drawgate:secret@"+server.Addr, nil)
	defer s.Watch(make(chan store.Key))()
	plan := compile(t, "p", drawgate.ConcurrencyLimit("s", 1))
	for range 3 {
		take(t, s, held(takeOf(plan, "k", 1), "a", time.Minute))
		tk := held(takeOf(plan, "k", 1), "b", time.Minute)
		tk.Ticket = &store.Ticket{Number: 1}
		if d := take(t, s, tk); d.Allowed || d.Arrival == 0 {
			t.Errorf("allowed %v, arrived at %d", d.Allowed, d.Arrival)
		}
		settle(t, s, store.Settlement{Op: store.OpCancel, ID: "a", Buckets: takeOf(plan, "k", 0).Buckets})
		if d := take(t, s, tk); !d.Allowed {
			t.Error("refused")
		}
		settle(t, s, store.Settlement{Op: store.OpCancel, ID: "b", Buckets: takeOf(plan, "k", 0).Buckets})
	}
}
