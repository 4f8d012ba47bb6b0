package guard_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/redisstore"
)

// site is a real Redis behind a proxy.
type site struct {
	*redistest.Server
	*redistest.Proxy
	admin rueidis.Client
}

func newSite(t *testing.T, args ...string) *site {
	t.Helper()
	s := &site{Server: redistest.Start(t, args...)}
	s.Proxy = redistest.NewProxy(t, s.Server.Addr)
	s.connect(t)
	return s
}

// connect connects the administrator, directly and not through the proxy.
func (s *site) connect(t *testing.T) {
	t.Helper()
	c, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{s.Server.Addr}, ForceSingleClient: true,
		DisableCache: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	s.admin = c
}

func (s *site) do(t *testing.T, words ...string) {
	t.Helper()
	if err := s.admin.Do(context.WithoutCancel(t.Context()),
		s.admin.B().Arbitrary(words...).Build()).Error(); err != nil {
		t.Error(words, err)
	}
}

func (s *site) guard(t *testing.T, opts *guard.Options) *guard.Store {
	t.Helper()
	store, err := redisstore.Open("redis://"+s.Proxy.Addr, nil)
	if err != nil {
		t.Fatal(err)
	}
	return guarded(t, store, opts)
}

// faultPlans returns a limit with a share and a closed one. Nothing leaves their windows while a
// test runs.
func faultPlans(t *testing.T, amount int64) []*store.Plan {
	t.Helper()
	l := drawgate.Limit{Name: "h", Kind: drawgate.Rolling, Amount: amount, Window: time.Hour}
	return []*store.Plan{
		compile(t, drawgate.Policy{Name: "share", Limits: []drawgate.Limit{l}, Fallback: drawgate.FallbackShare}),
		compile(t, drawgate.Policy{Name: "closed", Limits: []drawgate.Limit{l}, Fallback: drawgate.FallbackClosed}),
	}
}

// outage is how long a fault lasts.
func outage() time.Duration {
	if long {
		return 3 * time.Second
	}
	return 600 * time.Millisecond
}

// TestRedisFaults: whatever a real Redis does, takes are answered in time, marked, according to
// their policy and never over the limit; and the store decides again soon after it accepts writes.
//
// req: A10, A11, A12, B11, C12, E7
func TestRedisFaults(t *testing.T) {
	t.Parallel()
	for _, f := range []struct {
		name   string
		args   []string
		begin  func(t *testing.T, s *site)
		end    func(t *testing.T, s *site)
		none   bool // callers notice nothing
		losses bool // the server forgets what it has acknowledged
	}{
		{
			name: "stands still", begin: func(_ *testing.T, s *site) { s.Stop() },
			end: func(_ *testing.T, s *site) { s.Continue() },
		},
		{
			name: "stands still, and its connections are cut", begin: func(_ *testing.T, s *site) {
				s.Stop()
				s.Cut()
			}, end: func(_ *testing.T, s *site) { s.Continue() },
		},
		{
			name: "killed, with every write on disk", args: []string{"--appendonly", "yes", "--appendfsync", "always"},
			begin: func(_ *testing.T, s *site) { s.Kill9() }, end: func(_ *testing.T, s *site) { s.Restart() },
		},
		{
			name: "killed, without persistence", begin: func(_ *testing.T, s *site) { s.Kill9() },
			end: func(_ *testing.T, s *site) { s.Restart() }, losses: true,
		},
		{
			name: "answers after half a second", begin: func(_ *testing.T,
				s *site,
			) {
				s.Delay.Store(int64(500 * time.Millisecond))
			},
			end: func(_ *testing.T, s *site) { s.Delay.Store(0) },
		},
		{
			name: "loses its answers", begin: func(_ *testing.T, s *site) { s.Mute.Store(true) },
			end: func(_ *testing.T, s *site) { s.Mute.Store(false) },
		},
		{
			name: "wants another password", begin: func(t *testing.T, s *site) {
				s.do(t, "CONFIG", "SET", "requirepass", "other")
				s.do(t, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
			}, end: func(t *testing.T, s *site) { s.do(t, "CONFIG", "SET", "requirepass", "") },
		},
		{
			name: "is full", begin: func(t *testing.T, s *site) { s.do(t, "CONFIG", "SET", "maxmemory", "1") },
			end: func(t *testing.T, s *site) { s.do(t, "CONFIG", "SET", "maxmemory", "0") },
		},
		{
			name: "is made a replica", begin: func(t *testing.T, s *site) { s.do(t, "REPLICAOF", "127.0.0.1", "1") },
			end: func(t *testing.T, s *site) { s.do(t, "REPLICAOF", "NO", "ONE") },
		},
		{
			name: "has to be told the script again", none: true, begin: func(t *testing.T, s *site) {
				for range 3 { // as often as a call is sent again, however late it comes to that
					s.do(t, "SCRIPT", "FLUSH")
					time.Sleep(20 * time.Millisecond)
				}
			}, end: func(*testing.T, *site) {},
		},
	} {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			const amount = 10
			s := newSite(t, f.args...)
			opts := &guard.Options{Instances: 1, Start: drawgate.StartFull}
			if f.none {
				opts.Timeout = patience // no take should need the guard; their duration is measured
			}
			g := s.guard(t, opts)
			plans := faultPlans(t, amount)
			l := drive(t, pace(t, 3*time.Millisecond, g), 5, plans, g)
			l.awaits()
			before := l.fallbacks()
			f.begin(t, s)
			if !f.none {
				l.turn() // takes that the server would refuse write nothing, and might not notice
				l.falls()
				l.turn()
			}
			time.Sleep(outage())
			if f.none {
				if n := l.fallbacks() - before; n > 0 {
					t.Errorf("%d takes were decided without the store", n)
				}
			} else {
				l.admits(plans[0], amount)
				l.presses(plans[0], 1)
				l.presses(plans[1], 1)
			}
			f.end(t, s)
			back := l.awaits()
			time.Sleep(300 * time.Millisecond)
			l.awaits() // it stays back
			l.stop()
			t.Logf("decided by the store %v after it was back", back)
			most := int64(amount)
			if f.losses {
				most *= 2 // the most that was lost
			}
			l.within(plans[0], most, amount)
			l.within(plans[1], most, amount)
		})
	}
}

// TestThreeGuardsOnRedis: three guards stay within the printed bound while their server hangs. They
// run in one process, but share nothing except the server, as if each had a process of its own.
//
// req: A10, E1, E7
func TestThreeGuardsOnRedis(t *testing.T) {
	t.Parallel()
	const (
		amount = 60
		share  = amount / 3
		first  = 55 // of which the first guard takes nearly all
	)
	s := newSite(t)
	plans := faultPlans(t, amount)
	lines, err := guard.Bound([]drawgate.Policy{policyOf(plans[0]), policyOf(plans[1])}, 3)
	if err != nil {
		t.Fatal(err)
	}
	var guards []*guard.Store
	opts := &guard.Options{Instances: 3, Start: drawgate.StartFull}
	if !long {
		// a take that is given up counts in the store without having been admitted: leave enough
		// for a busy machine
		opts.Timeout = time.Second
	}
	for range 3 {
		guards = append(guards, s.guard(t, opts))
	}
	l := newLoad(t, pace(t, time.Millisecond, guards...), 2, plans, guards...)
	for i, start := 0, time.Now(); l.least(plans[0], l.allowed) < first && time.Since(start) < patience; i++ {
		l.one(i, time.Now(), guards[0])
	}
	l.start()
	l.awaits()
	s.Stop()
	l.falls()
	l.admits(plans[0], first+2*share-(amount-first)) // the two others have that left
	l.presses(plans[0], 4*share)
	l.turn()
	time.Sleep(outage())
	l.admits(plans[0], 2*share+1) // by all three
	l.presses(plans[0], 2*share)
	l.presses(plans[1], amount)
	s.Continue()
	l.awaits()
	time.Sleep(time.Second)
	l.stop()
	l.within(plans[0], amount+lines[0].Extra, amount+lines[0].Extra)
	l.within(plans[1], amount, amount)
}

// TestRedisUnavailableAtTheStart: Redis is used once it is available.
//
// req: B11, E7
func TestRedisUnavailableAtTheStart(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.Kill9()
	g := s.guard(t, &guard.Options{Instances: 1, Start: drawgate.StartFull})
	plan := faultPlans(t, 10)[0]
	for range 5 {
		if d := take(t, g, plan, "k", 1); !d.Allowed || !d.Fallback {
			t.Errorf("allowed %v, fallback %v", d.Allowed, d.Fallback)
		}
	}
	s.Restart()
	wantBack(t, g, patience)
	for end := time.Now().Add(patience); ; {
		if d := take(t, g, plan, "k", 0); !d.Fallback {
			if d.First.Limits[0].Remaining > 5 {
				t.Errorf("%d left of 10 after 5 were admitted", d.First.Limits[0].Remaining)
			}
			return
		}
		if time.Now().After(end) {
			t.Fatal("it does not decide")
		}
	}
}
