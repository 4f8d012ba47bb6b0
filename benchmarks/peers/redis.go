package peers

import (
	"context"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/gomodule/redigo/redis"
	"github.com/sethvargo/go-redisstore"
	tredis "github.com/throttled/throttled/v2/store/goredisstore.v9"
	ulimiter "github.com/ulule/limiter/v3"
	uredis "github.com/ulule/limiter/v3/drivers/store/redis"

	"github.com/drawgate/drawgate/benchmarks/lim"
)

func redisLibraries() []lim.Redis {
	return []lim.Redis{
		{Name: "redis_rate", Alg: "GCRA script, server clock", New: redisRate},
		{Name: "throttled-redis", Alg: "GCRA, GET and TIME, then a compare-and-set script", New: throttledRedis},
		{Name: "sethvargo-redis", Alg: "fixed-interval bucket script, caller's clock", New: sethvargoRedis},
		{Name: "ulule-redis", Alg: "fixed window script", New: ululeRedis},
	}
}

func redisRate(e lim.RedisEnv, s lim.Spec) (lim.Limiter, error) {
	c := e.Client()
	l := redis_rate.NewLimiter(c)
	q := redis_rate.Limit{Rate: s.Rate, Burst: s.Burst, Period: s.Period}
	return lim.WithClose(func(ctx context.Context, k string, n int) (bool, error) {
		r, err := l.AllowN(ctx, e.Prefix+k, q, n)
		return err == nil && r.Allowed > 0, err
	}, c.Close), nil
}

func throttledRedis(e lim.RedisEnv, s lim.Spec) (lim.Limiter, error) {
	c := e.Client()
	st, err := tredis.NewCtx(c, e.Prefix)
	if err != nil {
		return nil, err
	}
	l, err := throttledLimiter(st, s)
	return lim.WithClose(l, c.Close), err
}

// sethvargoRedis gets a pool of the same size as the go-redis based peers; the library's own keeps
// no idle connections.
func sethvargoRedis(e lim.RedisEnv, s lim.Spec) (lim.Limiter, error) {
	dial := func() (redis.Conn, error) { return redis.Dial("tcp", e.Addr) }
	pool := &redis.Pool{
		MaxActive: e.PoolSize, MaxIdle: e.PoolSize, Wait: true, Dial: dial,
		IdleTimeout: 5 * time.Minute,
	}
	st, err := redisstore.NewWithPool(&redisstore.Config{Tokens: uint64(s.Rate), Interval: s.Period}, pool)
	if err != nil {
		return nil, err
	}
	return lim.WithClose(func(ctx context.Context, k string, _ int) (bool, error) {
		_, _, _, ok, err := st.Take(ctx, e.Prefix+k)
		return ok, err
	}, func() error { return st.Close(context.Background()) }), nil
}

func ululeRedis(e lim.RedisEnv, s lim.Spec) (lim.Limiter, error) {
	c := e.Client()
	st, err := uredis.NewStoreWithOptions(c, ulimiter.StoreOptions{Prefix: e.Prefix})
	if err != nil {
		return nil, err
	}
	return lim.WithClose(ululeLimiter(st, s), c.Close), nil
}
