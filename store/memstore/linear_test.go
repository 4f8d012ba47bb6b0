package memstore_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/memstore"
)

// call is one operation of a history, on one bucket or on two at once.
type call struct {
	op   string // "take", "hold", "settle", "cancel", "reset" or "peek"
	id   string
	n    int64
	both bool // the take asks for n units of both buckets
	key  int
}

// reply is what it answered.
type reply struct {
	ok        bool  // allowed, or not gone
	remaining int64 // of the key's bucket; -1 if not told
}

// quota is the sequential model: two buckets of one limit of which nothing ages.
type quota struct {
	used [2]int64
	open [2]map[string]int64

	// slack is by how much what remains may seem less: of a bucket limit a unit, to a caller who
	// read the clock before another who took in between.
	slack int64
}

const quotaAmount = 12

// step says whether a reply is right, and what follows.
func (q quota) step(c call, r reply) (bool, quota) {
	next := quota{used: q.used, open: [2]map[string]int64{maps.Clone(q.open[0]), maps.Clone(q.open[1])}, slack: q.slack}
	keys := []int{c.key}
	if c.both {
		keys = []int{c.key, 1 - c.key}
	}
	want := true
	switch c.op {
	case "take", "hold":
		for _, k := range keys {
			want = want && q.used[k]+c.n <= quotaAmount
		}
		for _, k := range keys {
			if want {
				next.used[k] += c.n
			}
			if want && c.op == "hold" {
				next.open[k][c.id] = c.n
			}
		}
	case "settle", "cancel":
		want = false
		for _, k := range keys {
			n, ok := q.open[k][c.id]
			if want = want || ok; ok {
				delete(next.open[k], c.id)
				next.used[k] += c.n - n
			}
		}
	case "reset":
		next.used[c.key], next.open[c.key] = 0, map[string]int64{}
	}
	left := max(0, quotaAmount-next.used[c.key])
	return r.ok == want && (r.remaining < 0 || r.remaining <= left && r.remaining >= left-q.slack), next
}

func model(slack int64) porcupine.Model {
	m := steps
	m.Init = func() any { return quota{open: [2]map[string]int64{{}, {}}, slack: slack} }
	return m
}

var steps = porcupine.Model{
	Step: func(state, input, output any) (bool, any) {
		ok, next := state.(quota).step(input.(call), output.(reply))
		return ok, next
	},
	Equal: func(a, b any) bool {
		x, y := a.(quota), b.(quota)
		return x.used == y.used && maps.Equal(x.open[0], y.open[0]) && maps.Equal(x.open[1], y.open[1])
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v: %+v", input, output) },
}

// TestLinearizable records what concurrent callers saw, and checks that one order of the calls
// explains it all. req: A3, C12
func TestLinearizable(t *testing.T) {
	t.Parallel()
	for _, limit := range []drawgate.Limit{
		rollingLimit(quotaAmount, 1000*time.Hour),
		{Name: "bucket", Kind: drawgate.Bucket, Amount: 1, Window: 8000 * time.Hour, Burst: quotaAmount},
	} {
		slack := int64(0)
		if limit.Kind == drawgate.Bucket {
			slack = 1
		}
		for seed := range uint64(60) {
			history := record(t, limit, seed)
			if got := porcupine.CheckOperationsTimeout(model(slack), history, time.Minute); got != porcupine.Ok {
				for _, o := range history {
					t.Logf("%d: [%d, %d] %+v: %+v", o.ClientId, o.Call, o.Return, o.Input, o.Output)
				}
				t.Fatalf("%s, seed %d: %v", limit.Name, seed, got)
			}
		}
	}
}

func record(t *testing.T, limit drawgate.Limit, seed uint64) (history []porcupine.Operation) {
	t.Helper()
	const callers, each = 5, 16
	s := memstore.New(nil)
	defer s.Close()
	c := client{s, compile(t, "p", limit), t}
	start, ready := time.Now(), make(chan struct{})
	var mu sync.Mutex
	var wg sync.WaitGroup
	for g := range callers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(g)))
			var ids []call
			<-ready
			for i := range each {
				in := call{op: "take", n: 1 + r.Int64N(4), key: r.IntN(2), both: r.IntN(4) == 0}
				kind := r.IntN(8)
				if limit.Kind == drawgate.Bucket {
					kind = 5 + r.IntN(3) // what is given back depends on what has drained
				}
				switch kind {
				case 0, 1:
					in.op, in.id = "hold", fmt.Sprint(g, " ", i)
					ids = append(ids, in)
				case 2, 3, 4:
					if len(ids) > 0 { // of an earlier one, perhaps settled or refused
						in = ids[r.IntN(len(ids))]
						in.op, in.n = "settle", r.Int64N(6)
						if r.IntN(2) == 0 {
							in.op, in.n = "cancel", 0
						}
					}
				case 5:
					if r.IntN(4) == 0 {
						in.op, in.both = "reset", false
					} else {
						in.op, in.both = "peek", false
					}
				}
				if r.IntN(2) == 0 {
					runtime.Gosched()
				}
				from := time.Since(start)
				if r.IntN(2) == 0 {
					runtime.Gosched() // calls overlap although they are short
				}
				out := c.carry(in)
				if r.IntN(2) == 0 {
					runtime.Gosched()
				}
				o := porcupine.Operation{
					ClientId: g, Input: in, Output: out, Call: int64(from),
					Return: int64(time.Since(start)),
				}
				mu.Lock()
				history = append(history, o)
				mu.Unlock()
			}
		})
	}
	close(ready)
	wg.Wait()
	return history
}

// carry does one call.
func (c client) carry(in call) reply {
	name, other := fmt.Sprint(in.key), fmt.Sprint(1-in.key)
	costs := c.costs(name, in.n)
	if in.both {
		costs = append(costs, c.costs(other, in.n)...)
	}
	switch in.op {
	case "settle", "cancel":
		op := map[string]store.Op{"settle": store.OpSettle, "cancel": store.OpCancel}[in.op]
		out := make([]store.Outcome, 1)
		if err := c.store.Settle(c.t.Context(), []store.Settlement{{Op: op, ID: in.id, Buckets: costs}},
			out); err != nil {
			c.t.Error(err)
		}
		return reply{!out[0].Gone, -1}
	case "reset":
		if err := c.store.Reset(c.t.Context(), []store.Key{costs[0].Key}); err != nil {
			c.t.Error(err)
		}
		return reply{true, -1}
	case "peek":
		out := make([]store.State, 1)
		if err := c.store.Peek(c.t.Context(), costs, 0, out); err != nil {
			c.t.Error(err)
		}
		return reply{true, max(0, quotaAmount-out[0].States[0].Used)}
	}
	var d store.Verdict
	var err error
	switch {
	case in.op == "hold":
		d, err = c.take(store.Take{ID: in.id, Hold: time.Hour, Buckets: costs})
	case in.both:
		d, err = c.take(store.Take{Buckets: costs})
	default:
		d, err = c.local(name, in.n)
	}
	if err != nil {
		c.t.Error(err)
	}
	if in.both || d.Fail != nil {
		return reply{d.Allowed, -1}
	}
	return reply{d.Allowed, d.First.Limits[0].Remaining}
}
