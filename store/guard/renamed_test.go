package guard_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/redisstore"
)

// crossing is a store with two connections: one from before its server was renamed, by which takes
// with an ID go, and one from afterwards. A take with an ID waits on its way.
type crossing struct {
	*redisstore.Store // from afterwards

	before *redisstore.Store
	onWay  chan struct{} // closed when a take with an ID is on its way
	passes chan struct{} // closed when it may arrive
	calls  atomic.Int64
	down   atomic.Bool // nothing arrives
}

var errAway = &store.Error{Store: "crossing", Err: errRefused}

func (c *crossing) Take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	c.calls.Add(1)
	if c.down.Load() {
		return errAway
	}
	if batch[0].ID == "" || batch[0].Recovery != nil {
		return c.Store.Take(ctx, batch, out)
	}
	close(c.onWay)
	<-c.passes
	return c.before.Take(ctx, batch, out)
}

func (c *crossing) Settle(ctx context.Context, batch []store.Settlement, out []store.Outcome) error {
	c.calls.Add(1)
	if c.down.Load() {
		return errAway
	}
	return c.Store.Settle(ctx, batch, out)
}

func (c *crossing) Peek(ctx context.Context, b []store.BucketCost, priority int8, out []store.State) error {
	if c.down.Load() {
		return errAway
	}
	return c.Store.Peek(ctx, b, priority, out)
}

func (c *crossing) PeekKnown(ctx context.Context, b []store.BucketCost, priority int8, known []store.Known,
	out []store.State,
) error {
	if c.down.Load() {
		return errAway
	}
	return c.Store.PeekKnown(ctx, b, priority, known, out)
}

// renamed returns a guard that has reserved one unit of 10, by a connection from before its server
// drew another master_replid, and heard of that in between.
func renamed(t *testing.T, plan *store.Plan, hold time.Duration) (*guard.Store, *crossing) {
	t.Helper()
	server := redistest.Start(t)
	open := func() *redisstore.Store {
		s, err := redisstore.Open(server.URL(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	c := &crossing{before: open(), onWay: make(chan struct{}), passes: make(chan struct{})}
	t.Cleanup(func() { _ = c.before.Close() })
	c.Store = c.before
	g := guarded(t, c, &guard.Options{Timeout: 10 * time.Second, Instances: 1})
	take(t, g, plan, "k", 1) // makes the connection
	done := make(chan store.Verdict)
	go func() {
		tk := store.Take{
			ID: "id", Grant: grant("id"), Hold: hold, Buckets: []store.BucketCost{cost(plan, "k", 1, 1)},
		}
		done <- send(t, g, tk)
	}()
	<-c.onWay
	server.Do("REPLICAOF", "127.0.0.1", "1")
	server.Do("REPLICAOF", "NO", "ONE")
	c.Store = open()
	if take(t, g, plan, "k", 10).Allowed { // the answer tells of the new name
		t.Fatal("it is allowed")
	}
	close(c.passes)
	if d := <-done; !d.Allowed || d.Fallback {
		t.Fatalf("%+v", d)
	}
	return g, c
}

// TestServerRenamed: a server that draws another master_replid, and keeps its data, has lost
// nothing: also not what a connection from before wrote after the guard heard of that.
func TestServerRenamed(t *testing.T) {
	t.Parallel()
	plan := policy(t, drawgate.FallbackClosed, rolling(10, time.Hour), slots(1))
	g, c := renamed(t, plan, time.Hour)
	calls := c.calls.Load()
	if d := take(t, g, plan, "k", 1); !d.Allowed || d.Fallback {
		t.Errorf("%+v", d)
	}
	if n := c.calls.Load() - calls; n > 1 {
		t.Errorf("%d calls for one take", n)
	}
	if n := used(t, g, plan, "k")[0]; n != 3 {
		t.Errorf("%d are used, want 3", n)
	}
}

// TestServerRenamedAndAway: a reservation that such a server has is not renewed without it: it
// would give the slot to others.
func TestServerRenamedAndAway(t *testing.T) {
	t.Parallel()
	plan := policy(t, drawgate.FallbackClosed, rolling(10, time.Hour), slots(1))
	g, c := renamed(t, plan, 2*time.Second)
	for until := time.Now().Add(500 * time.Millisecond); g.State().Pending > 0 && time.Now().Before(until); {
		time.Sleep(time.Millisecond) // it looks whether the reservation is there
	}
	c.down.Store(true)
	o := end(t, g, store.OpRenew, "id", plan, "k", 0, 0)
	other := store.Take{
		ID: "other", Grant: grant("other"), Hold: time.Hour, Buckets: []store.BucketCost{cost(plan, "k", 1, 1)},
	}
	for d := send(t, c.before, other); !d.Allowed; d = send(t, c.before, other) {
		time.Sleep(10 * time.Millisecond)
	}
	if o.Err == nil {
		t.Errorf("two have the only slot: one until %v", o.End)
	}
}
