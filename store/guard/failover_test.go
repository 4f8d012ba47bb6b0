package guard_test

import (
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/redisstore"
)

// TestFailOver: a Redis server with a replica dies, and the replica is promoted and takes its
// address. What it had received still counts, what the guard admitted meanwhile is charged, and no
// limit is exceeded.
//
// req: A10, A11
func TestFailOver(t *testing.T) {
	t.Parallel()
	const amount = 10
	s := newSite(t, "--repl-diskless-sync-delay", "0")
	host, port, _ := strings.Cut(s.Server.Addr, ":")
	replica := &site{Server: redistest.Start(t, "--replicaof", host, port)}
	replica.connect(t)
	s.inSync(t, replica)
	s.do(t, "CONFIG", "SET", "min-replicas-to-write", "1")
	g := s.guard(t, &guard.Options{Instances: 1, Start: drawgate.StartFull})
	plans := faultPlans(t, amount)
	l := drive(t, pace(t, 3*time.Millisecond, g), 5, plans, g)
	l.awaits()
	stored := redisstore.New(s.admin, nil) // a guard might answer in its place
	for _, plan := range plans {
		for end := time.Now().Add(patience); used(t, stored, plan,
			l.name(0, 0))[0] < amount; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: the first bucket is not used up", plan.Name())
			}
		}
	}
	s.inSync(t, replica) // later takes of these buckets are refused, and write nothing
	s.Kill9()
	l.turn() // takes that the server would refuse write nothing, and might not notice
	l.falls()
	l.turn()
	l.admits(plans[0], amount)
	l.presses(plans[0], 1)
	l.presses(plans[1], 1)
	s.Switch(replica.Server.Addr) // as long as it is a replica it accepts no write
	time.Sleep(outage())
	if !g.State().Unavailable {
		t.Error("a replica was used")
	}
	replica.do(t, "REPLICAOF", "NO", "ONE")
	t.Logf("decided by the store %v after the promotion", l.awaits())
	wantBack(t, g, patience)
	time.Sleep(outage())
	l.stop()
	for _, plan := range plans {
		l.within(plan, amount, amount)
	}
	promoted := redisstore.New(replica.admin, nil)
	for _, plan := range plans { // a take that the server answered too late may count once more
		if n := used(t, promoted, plan, l.name(0, 0))[0]; n < amount {
			t.Errorf("%s: %d units of the first bucket are known after the fail-over, want the %d that the replica had received", plan.Name(), n, amount)
		}
	}
}

// inSync waits until the replica has received all that was written. WAIT would not do: the client
// sends it on a connection of its own, on which nothing was written.
func (s *site) inSync(t *testing.T, replica *site) {
	t.Helper()
	last := rand.Text()
	s.do(t, "SET", "written", last)
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		got, err := replica.admin.Do(t.Context(), replica.admin.B().Get().Key("written").Build()).ToString()
		if got == last {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the replica does not receive what is written: %q, %v", got, err)
		}
	}
}

// TestReplaceUnderLoad: a store is replaced by another connection to the same server, again and
// again, and the old one is closed at once. No caller gets an error, and no limit is exceeded.
//
// req: A10, A11
func TestReplaceUnderLoad(t *testing.T) {
	t.Parallel()
	const amount = 10
	s := newSite(t)
	g := s.guard(t, &guard.Options{Instances: 1, Start: drawgate.StartFull})
	plans := faultPlans(t, amount)
	l := drive(t, pace(t, time.Millisecond, g), 5, plans, g)
	rounds := 30
	if long {
		rounds = 1000
	}
	for range rounds {
		l.awaits()
		l.turn()
		next, err := redisstore.Open("redis://"+s.Proxy.Addr, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Replace(next).Close(); err != nil {
			t.Error(err)
		}
	}
	l.awaits()
	l.stop()
	for _, plan := range plans {
		l.within(plan, amount, amount)
	}
}
