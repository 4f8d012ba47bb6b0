package gateway_test

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/gateway"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/llm/simulator"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/redisstore"
)

// counted is a provider that counts how many calls of each account are on their way at once.
type counted struct {
	http.RoundTripper

	mu   sync.Mutex
	open map[string]int // guarded by mu: by account
	most map[string]int // guarded by mu
	done atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (c *counted) RoundTrip(r *http.Request) (*http.Response, error) {
	account := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer sk-account-")
	c.mu.Lock()
	c.open[account]++
	c.most[account] = max(c.most[account], c.open[account])
	c.mu.Unlock()
	resp, err := c.RoundTripper.RoundTrip(r)
	c.mu.Lock()
	c.open[account]--
	c.mu.Unlock()
	c.done.Add(1)
	return resp, err
}

// onRedis returns two gateways, as processes of their own would be, on one Redis server, before one
// provider, and that provider.
func onRedis(t *testing.T, change func(*setup)) (gateways []*bench, f *faulty, c *counted) {
	t.Helper()
	server := redistest.Start(t)
	b := &bench{T: t}
	b.simulate(newSetup(change))
	c = &counted{RoundTripper: b.sim.Transport(), open: map[string]int{}, most: map[string]int{}}
	f = &faulty{RoundTripper: c, called: map[string]int{}, how: map[string]*fault{}}
	for range 2 {
		st, err := redisstore.Open(server.URL(), nil)
		if err != nil {
			t.Fatal(err)
		}
		s := newSetup(change)
		s.store = guard.New(st, &guard.Options{Instances: 2, Timeout: time.Minute}).Full()
		s.options.Base = f
		g := &bench{T: t, sim: b.sim}
		g.build(s, "http://provider.test")
		gateways = append(gateways, g)
	}
	return gateways, f, c
}

// crowds lets callers of both gateways call at once, so many times each, until they are refused,
// and returns the answers that are no 200.
func crowds(gateways []*bench, callers, calls int, headers ...string) (bad []reply) {
	var all sync.WaitGroup
	var mu sync.Mutex
	for _, g := range gateways {
		for i := range callers {
			all.Go(func() {
				for range calls {
					got := g.toGroup(g.Context(), []string{alice, bob}[i%2], "", headers...)
					if got.status == http.StatusOK {
						continue
					}
					mu.Lock()
					bad = append(bad, got)
					mu.Unlock()
					return
				}
			})
		}
	}
	all.Wait()
	return bad
}

// TestGroupOnRedisUsesEachQuota: two gateways that share a Redis server grant all that the accounts
// of a group grant, whoever asks which of them, and of no account more. The quota is of a day, so
// that nothing of it comes back meanwhile.
//
// req: C1 E1
func TestGroupOnRedisUsesEachQuota(t *testing.T) {
	t.Parallel()
	const amount = 60
	gateways, _, _ := onRedis(t, func(s *setup) {
		group(amount, 1, 3, 1)(s)
		for i := range s.policies {
			s.policies[i].Limits[0].Window = 24 * time.Hour
		}
		s.sim.Quotas[0].Limits[0].Period = 24 * time.Hour
	})
	bad := crowds(gateways, 10, 3*amount, gateway.HeaderTimeout+": 0")
	for _, got := range bad {
		if got.status != http.StatusTooManyRequests {
			t.Errorf("got %d %s", got.status, got.body)
		}
	}
	if v := gateways[0].sim.Violations(); v.Total != 0 {
		t.Errorf("%d calls exceeded an account's quota", v.Total)
	}
	calls := gateways[0].each(time.Time{})
	for _, account := range members {
		if calls[account] != amount {
			t.Errorf("%v calls of each account before the first refusal of both gateways, want %d", calls, amount)
		}
	}
	by := map[int]int{}
	for i, g := range gateways {
		g.settled()
		by[i] = len(g.events)
	}
	if by[0] == 0 || by[1] == 0 {
		t.Errorf("%v calls of each gateway: this shows nothing", by)
	}
}

// TestRefusedAccountOfAGroupOnRedis: what one account refuses another one makes at once, and the
// gateway that was not refused knows as well: it does not ask that account.
//
// req: C8 E1
func TestRefusedAccountOfAGroupOnRedis(t *testing.T) {
	t.Parallel()
	gateways, f, _ := onRedis(t, group(1000, 1, 1, 1))
	first := gateways[0].toGroup(t.Context(), alice, "")
	bad := first.account()
	f.is(bad, &fault{status: http.StatusTooManyRequests, after: "3000"})
	began := time.Now()
	for i := range 20 {
		got := gateways[i%2].toGroup(t.Context(), alice, "")
		if got.status != http.StatusOK || got.account() == bad {
			t.Errorf("call %d: got %d %s of %s", i, got.status, got.body, got.account())
		}
		if i == 0 {
			t.Logf("another account has answered %v after the first call was made", time.Since(began))
		}
	}
	if n := f.calls(bad); n != 1 {
		t.Errorf("the account that refused got %d calls, want one by both gateways", n)
	}
	if v := gateways[0].sim.Violations(); v.Total != 0 {
		t.Errorf("%d calls exceeded an account's quota", v.Total)
	}
}

// TestDyingAccountOfAGroupOnRedis: while calls wait in the queues of both gateways, for slots that
// they share, an account dies. All calls that had not begun are made by the others, which never
// have more on their way than they may.
//
// req: C1 C8 E1
func TestDyingAccountOfAGroupOnRedis(t *testing.T) {
	t.Parallel()
	const slots, callers, each = 2, 10, 6
	gateways, f, c := onRedis(t, func(s *setup) {
		group(0, 1, 1, 1)(s)
		s.sim.Quotas, s.sim.Delay = nil, 2*time.Millisecond
		for i := range s.policies {
			s.policies[i].Limits = []drawgate.Limit{drawgate.ConcurrencyLimit("slots", slots)}
		}
	})
	dies := make(chan struct{})
	go func() { // in the middle of the calls
		defer close(dies)
		gateways[0].until("some calls are made", func() bool { return c.done.Load() > callers })
		f.is("two", unreachable)
	}()
	for _, got := range crowds(gateways, callers, each) {
		t.Errorf("got %d %s", got.status, got.body)
	}
	<-dies
	answered := gateways[0].each(time.Time{})
	total := 0
	for _, n := range answered {
		total += n
	}
	if total != 2*callers*each || answered["one"] == 0 || answered["three"] == 0 || f.calls("two") == 0 {
		t.Errorf("%v calls were answered, want %d, and %d were sent to the account that died", answered, 2*callers*each,
			f.calls("two"))
	}
	if slices.ContainsFunc(gateways[0].sim.Calls(),
		func(c simulator.Call) bool { return c.Outcome != simulator.Answered }) {
		t.Error("a call was lost")
	}
	for account, most := range c.most {
		if most > slots {
			t.Errorf("%d calls of %s were on their way at once, want at most %d", most, account, slots)
		}
	}
	for _, g := range gateways {
		g.settled()
		for _, account := range members {
			// What a call was granted while it left a queue is given back a little later.
			g.until("no hold of "+account+" is open", func() bool { return g.status(account, account).Open == 0 })
		}
	}
}
