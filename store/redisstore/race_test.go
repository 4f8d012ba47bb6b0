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
	"github.com/drawgate/drawgate/internal/redistest"
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

// TestLinearizable records what many callers of several clients saw, and looks for one order that
// explains it.
//
// req: B1, C12, E10
func TestLinearizable(t *testing.T) {
	t.Parallel()
	linearizable(t, func(s *redisstore.Store) *redisstore.Store { return s })
}

// TestLinearizableInBatches is the same with each request in a batch.
//
// req: B1, C12, E10
func TestLinearizableInBatches(t *testing.T) {
	t.Parallel()
	linearizable(t, (*redisstore.Store).AlwaysInBatches)
}

func linearizable(t *testing.T, set func(*redisstore.Store) *redisstore.Store) {
	t.Helper()
	server := redistest.Start(t)
	plan := compile(t, "p",
		drawgate.Limit{Name: "r", Kind: drawgate.Rolling, Window: time.Hour, Amount: 30},
		drawgate.Limit{Name: "n", Unit: "slots", Kind: drawgate.Concurrency, Amount: 8},
	)
	var ops []porcupine.Operation
	var mu sync.Mutex
	var ids atomic.Int64
	start := time.Now()
	var wg sync.WaitGroup
	for c := range 3 {
		s := set(open(t, server, nil))
		for g := range 3 {
			wg.Go(func() {
				mine := []store.Take{}
				for i := range 16 {
					var in input
					switch {
					case i%3 == 2 && len(mine) > 0: // give back, or settle with less or with more, sometimes twice
						tk := mine[0]
						if i%2 == 0 {
							mine = mine[1:]
						}
						in.settle = &store.Settlement{Op: store.OpCancel, ID: tk.ID, Buckets: tk.Buckets}
						if used := [...]int64{0, 1, 3}[(i/3+g)%3]; used > 0 {
							in.settle.Op, in.settle.Buckets = store.OpSettle, takeOf(plan, "k", used, 1).Buckets
						}
					case i%4 == 3:
						tk := takeOf(plan, "k", 1, 0)
						in.take = &tk
					default: // ids that others use as well, with the same content
						tk := held(takeOf(plan, "k", 2, 1), fmt.Sprint("id", ids.Add(1)/2), time.Hour)
						in.take = &tk
					}
					op := porcupine.Operation{ClientId: c*3 + g, Input: in, Call: int64(time.Since(start))}
					var out output
					if in.take != nil {
						d := take(t, s, *in.take)
						out = output{
							allowed: d.Allowed, replayed: d.Replayed, reused: d.Fail != nil,
							at: d.At().UnixMicro(),
						}
						if d.Allowed && in.take.ID != "" {
							out.granted = d.Granted(0)[0]
							mine = append(mine, *in.take)
						}
					} else {
						out.gone = settle(t, s, *in.settle).Gone
					}
					op.Output, op.Return = out, int64(time.Since(start))
					mu.Lock()
					ops = append(ops, op)
					mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
	sequential := porcupine.Model{
		Init: func() any { return history{m: model.NewRecords(nil, false)} },
		Step: func(state, in, out any) (bool, any) { return state.(history).step(t, in.(input), out.(output)) },
		Equal: func(a, b any) bool {
			x, y := a.(history), b.(history)
			return x.now == y.now && x.m.Equal(y.m)
		},
	}
	if res := porcupine.CheckOperationsTimeout(sequential, ops, 5*time.Minute); res != porcupine.Ok {
		for _, op := range ops {
			in := op.Input.(input)
			t.Logf("client %d, %d-%d: %+v %+v -> %+v", op.ClientId, op.Call, op.Return, in.take, in.settle, op.Output)
		}
		t.Fatalf("no order explains the history: %v", res)
	}
}
