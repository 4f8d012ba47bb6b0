package redisstore_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/model"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/redisstore"
)

// What the linearizability test does: an operation, and what it answered.
type (
	input struct {
		take   *store.Take
		settle *store.Settlement
	}
	output struct {
		allowed, replayed, reused, gone bool
		at                              int64 // of a decision; 0 for a settlement
		granted                         int64
	}
)

// history is the sequential model: the engine, at the instant that the server answered.
type history struct {
	m   *model.Records
	now int64
}

func (h history) step(t *testing.T, in input, out output) (bool, history) {
	t.Helper()
	if in.take != nil && out.at < h.now {
		return false, h
	}
	next := history{now: max(h.now, out.at)}
	next.m = h.m.Fork(func() int64 { return next.now })
	if in.take != nil {
		d := take(t, next.m, *in.take)
		got := output{allowed: d.Allowed, replayed: d.Replayed, reused: d.Fail != nil, at: d.At().UnixMicro()}
		if d.Allowed && in.take.ID != "" {
			got.granted = d.Granted(0)[0]
		}
		return got == out, next
	}
	return settle(t, next.m, *in.settle).Gone == out.gone, next
}

// TestLinearizable records what many callers of several clients saw on each kind of servers, and
// looks for one order that explains it. DRAWGATE_LONG makes it 2,000 histories of each kind.
//
// req: B1, C12, E10
func TestLinearizable(t *testing.T) { //nolint:tparallel // each keeps the machine busy
	t.Parallel()
	linearizable(t, func(s *redisstore.Store) *redisstore.Store { return s }, &redisstore.Options{NoBatches: true})
}

// TestLinearizableInBatches is the same with each request in a batch.
//
// req: B1, C12, E10
func TestLinearizableInBatches(t *testing.T) { //nolint:tparallel // each keeps the machine busy
	t.Parallel()
	linearizable(t, (*redisstore.Store).AlwaysInBatches, nil)
}

func linearizable(t *testing.T, set func(*redisstore.Store) *redisstore.Store, opts *redisstore.Options) {
	t.Helper()
	histories, each := needs.Rounds(1, 1, 2000), 16
	if long {
		each = 6 // by each of nine callers: 54 operations
	}
	for _, on := range topologies {
		if on.name != "standalone" && !long {
			continue
		}
		t.Run(on.name, func(t *testing.T) {
			url := on.start(t)
			var clients []*redisstore.Store
			for range 3 {
				clients = append(clients, set(openURL(t, url, opts)))
			}
			var sum tally
			for i := range histories {
				h := newHistory(t, fmt.Sprint("k", i))
				h.record(clients, each)
				sum.add(h.ops)
				h.explain()
			}
			t.Logf("%d histories of %d operations have an order: %s", histories, 9*each, &sum)
		})
	}
}

// tally counts what the operations of histories did.
type tally struct{ takes, allowed, replayed, ends, gone int }

func (c *tally) add(ops []porcupine.Operation) {
	count := func(n *int, is bool) {
		if is {
			*n++
		}
	}
	for _, op := range ops {
		in, out := op.Input.(input), op.Output.(output)
		count(&c.takes, in.take != nil)
		count(&c.allowed, out.allowed)
		count(&c.replayed, out.replayed)
		count(&c.ends, in.settle != nil)
		count(&c.gone, out.gone)
	}
}

func (c *tally) String() string {
	return fmt.Sprintf("%d takes, %d of them allowed and %d replayed; %d settled or cancelled, %d of them gone",
		c.takes, c.allowed, c.replayed, c.ends, c.gone)
}

// recording is what callers of one bucket saw.
type recording struct {
	t     *testing.T
	key   string
	plan  *store.Plan
	start time.Time
	ids   atomic.Int64

	mu  sync.Mutex
	ops []porcupine.Operation // guarded by mu
}

func newHistory(t *testing.T, key string) *recording {
	t.Helper()
	return &recording{t: t, key: key, start: time.Now(), plan: compile(t, "p",
		drawgate.Limit{Name: "r", Kind: drawgate.Rolling, Window: time.Hour, Amount: 30},
		drawgate.Limit{Name: "n", Unit: "slots", Kind: drawgate.Concurrency, Amount: 8})}
}

// record lets three callers of each client make so many operations.
func (h *recording) record(clients []*redisstore.Store, each int) {
	h.t.Helper()
	var wg sync.WaitGroup
	for c, s := range clients {
		for g := range 3 {
			wg.Go(func() {
				mine := &caller{h: h, n: c*3 + g}
				for i := range each {
					mine.one(s, i)
				}
			})
		}
	}
	wg.Wait()
}

// caller makes operations one after the other.
type caller struct {
	h    *recording
	n    int
	mine []store.Take // what it was granted and has not given back for good
}

// next chooses operation i.
func (c *caller) next(i int) (in input) {
	key, plan := c.h.key, c.h.plan
	switch {
	case i%3 == 2 && len(c.mine) > 0: // give back, or settle with less or with more, sometimes twice
		tk := c.mine[0]
		if i%2 == 0 {
			c.mine = c.mine[1:]
		}
		in.settle = &store.Settlement{Op: store.OpCancel, ID: tk.ID, Buckets: tk.Buckets}
		if used := [...]int64{0, 1, 3}[(i/3+c.n)%3]; used > 0 {
			in.settle.Op, in.settle.Buckets = store.OpSettle, takeOf(plan, key, used, 1).Buckets
		}
	case i%4 == 3:
		tk := takeOf(plan, key, 1, 0)
		in.take = &tk
	default: // ids that others use as well, with the same content
		tk := held(takeOf(plan, key, 2, 1), fmt.Sprint("id", c.h.ids.Add(1)/2), time.Hour)
		in.take = &tk
	}
	return in
}

// one makes operation i, and records it.
func (c *caller) one(s *redisstore.Store, i int) {
	h, in := c.h, c.next(i)
	op := porcupine.Operation{ClientId: c.n, Input: in, Call: int64(time.Since(h.start))}
	var out output
	if in.take != nil {
		d := take(h.t, s, *in.take)
		out = output{allowed: d.Allowed, replayed: d.Replayed, reused: d.Fail != nil, at: d.At().UnixMicro()}
		if d.Allowed && in.take.ID != "" {
			out.granted = d.Granted(0)[0]
			c.mine = append(c.mine, *in.take)
		}
	} else {
		out.gone = settle(h.t, s, *in.settle).Gone
	}
	op.Output, op.Return = out, int64(time.Since(h.start))
	h.mu.Lock()
	h.ops = append(h.ops, op)
	h.mu.Unlock()
}

// explain looks for an order of the operations in which the model answers as the store did.
func (h *recording) explain() {
	h.t.Helper()
	sequential := porcupine.Model{
		Init: func() any { return history{m: model.NewRecords(nil, false)} },
		Step: func(state, in, out any) (bool, any) { return state.(history).step(h.t, in.(input), out.(output)) },
		Equal: func(a, b any) bool {
			x, y := a.(history), b.(history)
			return x.now == y.now && x.m.Equal(y.m)
		},
	}
	if res := porcupine.CheckOperationsTimeout(sequential, h.ops, 5*time.Minute); res != porcupine.Ok {
		for _, op := range h.ops {
			in := op.Input.(input)
			h.t.Logf("client %d, %d-%d: %+v %+v -> %+v", op.ClientId, op.Call, op.Return, in.take, in.settle, op.Output)
		}
		h.t.Fatalf("%s: no order explains the history: %v", h.key, res)
	}
}
