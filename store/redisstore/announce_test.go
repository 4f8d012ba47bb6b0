package redisstore_test

import (
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store"
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
			one, two := make(chan store.Key, 100), make(chan store.Key, 100)
			defer first.Watch(one)()
			defer second.Watch(two)()
			waits := func(id string, number uint64) store.Take {
				tk := held(takeOf(plan, "k", 1), id, time.Minute)
				tk.Ticket = &store.Ticket{Number: number}
				return tk
			}
			none := takeOf(plan, "k", 0).Buckets
			for round, end := range []func(){
				func() {
					settle(t, holder, store.Settlement{Op: store.OpCancel, ID: "a", Buckets: none})
				},
				func() {
					settle(t, holder, store.Settlement{Op: store.OpSettle, ID: "a", Buckets: none})
				},
			} {
				take(t, holder, held(takeOf(plan, "k", 1), "a", time.Minute))
				one, two := one, two
				until(t, "the first one is told", func() bool { // it may not have subscribed yet
					if d := take(t, first, waits("b", 1)); d.Allowed || d.Arrival == 0 {
						t.Fatalf("allowed %v, arrived at %d", d.Allowed, d.Arrival)
					}
					take(t, second, waits("c", 2))
					if len(one) > 0 {
						return true
					}
					end()
					select {
					case <-one:
						return true
					case <-time.After(100 * time.Millisecond):
						take(t, holder, held(takeOf(plan, "k", 1), "a", time.Minute))
						return false
					}
				})
				if n := len(two); n > 0 {
					t.Errorf("round %d: who is not first was told %d times", round, n)
				}
				for _, s := range []store.Liner{first, second} {
					for n := range uint64(2) {
						if err := s.Withdraw(t.Context(), n+1, []store.Key{{Policy: "p", Name: "k"}}); err != nil {
							t.Fatal(err)
						}
					}
				}
				for len(one) > 0 {
					<-one
				}
				for len(two) > 0 { // after the first one had left
					<-two
				}
			}
		})
	}
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
