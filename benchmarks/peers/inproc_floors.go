package peers

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drawgate/drawgate/benchmarks/lim"
)

func inprocFloors() []lim.Inproc {
	return []lim.Inproc{
		{Name: "floor-timenow", Alg: "only time.Now", New: func(lim.Spec) (lim.Limiter, error) {
			return lim.Func(func(context.Context, string, int) (bool, error) { return time.Now().Unix() != 0, nil }),
				nil
		}},
		{Name: "floor-gcra-atomic", Alg: "GCRA, one CAS and the clock", New: func(s lim.Spec) (lim.Limiter, error) {
			g := &gcraWord{gcra: newGCRA(s)}
			return lim.Func(func(_ context.Context, _ string, n int) (bool, error) { return g.allow(n), nil }), nil
		}},
		{
			Name: "floor-gcra-sharded-map", Alg: "GCRA, 256 locked Go maps of values", Keyed: true,
			New: func(s lim.Spec) (lim.Limiter, error) {
				return newShardedGCRA(s), nil
			},
		},
	}
}

// epoch makes the floors' clock the monotonic one, which is the cheaper half of time.Now.
var epoch = time.Now()

// gcra is the arithmetic of the floors, in nanoseconds.
type gcra struct{ step, tolerance int64 }

func newGCRA(s lim.Spec) gcra {
	step := int64(s.Period) / int64(s.Rate)
	return gcra{step: step, tolerance: step * int64(s.Burst)}
}

// next is the theoretical arrival time after n units at now, and whether they pass.
func (g gcra) next(tat, now int64, n int) (int64, bool) {
	t := max(tat, now) + g.step*int64(n)
	return t, t-now <= g.tolerance
}

type gcraWord struct {
	gcra
	tat atomic.Int64
}

func (g *gcraWord) allow(n int) bool {
	now := int64(time.Since(epoch))
	for {
		old := g.tat.Load()
		t, ok := g.next(old, now, n)
		if !ok {
			return false
		}
		if g.tat.CompareAndSwap(old, t) {
			return true
		}
	}
}

type shardedGCRA struct {
	gcra
	shards [256]struct {
		mu  sync.Mutex
		tat map[string]int64 // guarded by mu
		_   [48]byte         // a cache line each
	}
}

func newShardedGCRA(s lim.Spec) *shardedGCRA {
	g := &shardedGCRA{gcra: newGCRA(s)}
	for i := range g.shards {
		g.shards[i].tat = map[string]int64{}
	}
	return g
}

// Allow finds the shard by FNV-1a.
func (g *shardedGCRA) Allow(_ context.Context, key string, n int) (bool, error) {
	h := uint32(2166136261)
	for i := range len(key) {
		h = (h ^ uint32(key[i])) * 16777619
	}
	s := &g.shards[(h^h>>16)&255]
	now := int64(time.Since(epoch))
	s.mu.Lock()
	t, ok := g.next(s.tat[key], now, n)
	if ok {
		s.tat[key] = t
	}
	s.mu.Unlock()
	return ok, nil
}
