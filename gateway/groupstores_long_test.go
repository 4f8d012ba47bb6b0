//go:build long

package gateway_test

import (
	"sync"
	"testing"
	"time"
)

// TestGroupOnRedisOverTime: so they do while quotas of ten seconds come back, with callers who wait
// in the queues of both gateways, though an account is dead for a third of the time. It takes real
// time, and is for a machine that has some.
//
// req: C1 C8 E1
func TestGroupOnRedisOverTime(t *testing.T) {
	const amount, window, margin, long = 40, 10 * time.Second, time.Second, 36 * time.Second
	gateways, f, _ := onRedis(t, func(s *setup) {
		group(amount, 1, 1, 1)(s)
		for i := range s.policies {
			s.policies[i].Limits[0].Window, s.policies[i].Limits[0].Margin = window, margin
		}
		s.sim.Quotas[0].Limits[0].Period = window
	})
	part := func(of ...string) {
		start := time.Now()
		var all sync.WaitGroup
		for _, g := range gateways {
			all.Go(func() {
				for _, got := range g.crowd(long) {
					t.Errorf("got %d %s", got.status, got.body)
				}
			})
		}
		all.Wait()
		calls := map[string]int{} // while all callers called
		for _, c := range gateways[0].sim.Calls() {
			if c.Arrived.After(start) && c.Arrived.Before(start.Add(long)) {
				calls[c.Key]++
			}
		}
		least := amount * int(long/(window+margin)) * 95 / 100
		for _, account := range of {
			if calls[account] < least {
				t.Errorf("%v calls of each account, want %d of %s", calls, least, account)
			}
		}
		t.Logf("%v calls in %v, at least %d of %v", calls, long, least, of)
	}
	part(members...)
	f.is("two", unreachable)
	part("one", "three")
	f.is("two", nil)
	part("one", "three") // two comes back when its circuit is tried again
	if v := gateways[0].sim.Violations(); v.Total != 0 {
		t.Errorf("%d calls exceeded an account's quota", v.Total)
	}
}
