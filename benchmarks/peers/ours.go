package peers

import (
	"context"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/benchmarks/lim"
	"github.com/drawgate/drawgate/store/lease"
	"github.com/drawgate/drawgate/store/memstore"
	"github.com/drawgate/drawgate/store/redisstore"
	"github.com/drawgate/drawgate/store/sqlitestore"
)

// noTimeout leaves the deadline to the caller, as the peers do.
var noTimeout = &drawgate.Options{StoreTimeout: -1}

// oursRedis is Drawgate on Redis: takes that come during a call go together; as drawgate-single
// each take is a call of its own; and drawgate-leased decides with units that it took ahead.
func oursRedis() []lim.Redis {
	of := func(name, alg string, single bool) lim.Redis {
		open := func(e lim.RedisEnv, p drawgate.Policy) (lim.Limiter, error) {
			s, err := redisstore.Open("redis://"+e.Addr, &redisstore.Options{Prefix: e.Prefix, NoBatches: single})
			if err != nil {
				return nil, err
			}
			return allow(s, p, noTimeout)
		}
		return lim.Redis{
			Name: name, Alg: alg,
			New:      func(e lim.RedisEnv, s lim.Spec) (lim.Limiter, error) { return open(e, bucket(s)) },
			NewThree: func(e lim.RedisEnv, s lim.Three) (lim.Limiter, error) { return open(e, three(s)) },
		}
	}
	return []lim.Redis{
		of("drawgate", "bucket limit; three limits: one atomic take", false),
		of("drawgate-single", "the same without coalescing", true),
		{
			Name: "drawgate-leased", Alg: "leases of a bucket limit; three limits",
			New:      func(e lim.RedisEnv, s lim.Spec) (lim.Limiter, error) { return leased(e, bucket(s)) },
			NewThree: func(e lim.RedisEnv, s lim.Three) (lim.Limiter, error) { return leased(e, three(s)) },
		},
	}
}

// leased decides with leases. The amounts are a thousand times as large, so that they are not
// reached at that rate either.
func leased(e lim.RedisEnv, p drawgate.Policy) (lim.Limiter, error) {
	p.Leased = true
	for i := range p.Limits {
		p.Limits[i].Amount = min(1000*p.Limits[i].Amount, drawgate.MaxAmount)
		p.Limits[i].Burst *= 1000
	}
	s, err := redisstore.Open("redis://"+e.Addr, &redisstore.Options{Prefix: e.Prefix})
	if err != nil {
		return nil, err
	}
	return allow(lease.New(s, nil).Full(), p, noTimeout)
}

// oursSQLite is Drawgate on a SQLite file, with synchronous=FULL, which is its default.
func oursSQLite() []lim.SQLite {
	return []lim.SQLite{{
		Name: "drawgate", Alg: "bucket limit, group commit, state and history",
		New: func(path string, s lim.Spec) (lim.Limiter, error) {
			st, err := sqlitestore.Open(path, nil)
			if err != nil {
				return nil, err
			}
			return allow(st, bucket(s), noTimeout)
		},
	}}
}

// ours is Drawgate through Limiter.Allow, as a user calls it.
func ours() []lim.Inproc {
	return []lim.Inproc{{
		Name: "drawgate", Alg: "bucket limit; three limits: one atomic take", Keyed: true,
		New:      func(s lim.Spec) (lim.Limiter, error) { return allow(memstore.New(nil), bucket(s), nil) },
		NewThree: func(s lim.Three) (lim.Limiter, error) { return allow(memstore.New(nil), three(s), nil) },
	}}
}

func bucket(s lim.Spec) drawgate.Policy {
	return drawgate.Rate("rate", int64(s.Rate), s.Period, int64(s.Burst))
}

func three(s lim.Three) drawgate.Policy {
	return drawgate.Policy{Name: "three", Limits: []drawgate.Limit{
		{Name: "minute", Kind: drawgate.Rolling, Window: time.Minute, Amount: s.Minute},
		{Name: "hour", Kind: drawgate.Rolling, Window: time.Hour, Amount: s.Hour},
		{Name: "day", Kind: drawgate.Calendar, Every: drawgate.Day, Amount: s.Day},
	}}
}

// allow adapts a limiter. Where a policy has several limits it reads what is left of each.
func allow(store drawgate.Store, p drawgate.Policy, opts *drawgate.Options) (lim.Limiter, error) {
	l, err := drawgate.New(store, p, opts)
	if err != nil {
		return nil, err
	}
	if len(p.Limits) == 1 {
		return lim.WithClose(func(ctx context.Context, key string, _ int) (bool, error) {
			d, err := l.Allow(ctx, key)
			return d.Allowed, err
		}, store.Close), nil
	}
	return lim.WithClose(func(ctx context.Context, key string, _ int) (bool, error) {
		d, err := l.Allow(ctx, key)
		left := int64(0)
		for i := range p.Limits {
			left += d.Left(i)
		}
		return d.Allowed && left >= 0, err
	}, store.Close), nil
}
