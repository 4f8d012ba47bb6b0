package peers

import (
	"context"
	"strconv"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/drawgate/drawgate/benchmarks/lim"
)

func redisFloors() []lim.Redis {
	return []lim.Redis{
		{Name: "floor-goredis-incr", Alg: "one INCRBY", NoAcc: true, New: goredisIncr},
		{Name: "floor-rueidis-incr", Alg: "one INCRBY, auto-pipelined", NoAcc: true, New: rueidisIncr},
		{Name: "floor-goredis-evalsha", Alg: "GCRA script, server clock", New: goredisScript},
		{Name: "floor-rueidis-evalsha", Alg: "GCRA script, server clock, auto-pipelined", New: rueidisScript},
		{Name: "floor-rueidis-batch", Alg: "GCRA script for all that gathered, server clock; reads and writes each key once", New: rueidisBatch},
	}
}

// gcraScript is the cheapest script that is still a correct token bucket on the server's clock:
// TIME, GET and SET. ARGV: step and tolerance in microseconds, units.
const gcraScript = `
local c=redis.call('TIME')
local now=tonumber(c[1])*1000000+tonumber(c[2])
local t=tonumber(redis.call('GET',KEYS[1]) or 0)
local step,tol,n=tonumber(ARGV[1]),tonumber(ARGV[2]),tonumber(ARGV[3])
if t<now then t=now end
t=t+step*n
if t-now>tol then return 0 end
redis.call('SET',KEYS[1],string.format('%.0f',t),'PX',math.floor((t-now)/1000)+1)
return 1`

func scriptArgs(s lim.Spec) (step, tolerance string) {
	us := float64(s.Period.Microseconds()) / float64(s.Rate)
	return strconv.FormatFloat(us, 'f', -1, 64), strconv.FormatFloat(us*float64(s.Burst), 'f', -1, 64)
}

func goredisIncr(e lim.RedisEnv, _ lim.Spec) (lim.Limiter, error) {
	c := e.Client()
	return lim.WithClose(func(ctx context.Context, k string, n int) (bool, error) {
		err := c.IncrBy(ctx, e.Prefix+k, int64(n)).Err()
		return err == nil, err
	}, c.Close), nil
}

func goredisScript(e lim.RedisEnv, s lim.Spec) (lim.Limiter, error) {
	c := e.Client()
	step, tolerance := scriptArgs(s)
	sc := redis.NewScript(gcraScript)
	return lim.WithClose(func(ctx context.Context, k string, n int) (bool, error) {
		v, err := sc.Run(ctx, c, []string{e.Prefix + k}, step, tolerance, n).Int64()
		return v == 1, err
	}, c.Close), nil
}

func newRueidis(addr string) (rueidis.Client, func() error, error) {
	c, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{addr}, DisableCache: true,
		ForceSingleClient: true,
	})
	return c, func() error { c.Close(); return nil }, err
}

func rueidisIncr(e lim.RedisEnv, _ lim.Spec) (lim.Limiter, error) {
	c, stop, err := newRueidis(e.Addr)
	if err != nil {
		return nil, err
	}
	return lim.WithClose(func(ctx context.Context, k string, n int) (bool, error) {
		err := c.Do(ctx, c.B().Incrby().Key(e.Prefix+k).Increment(int64(n)).Build()).Error()
		return err == nil, err
	}, stop), nil
}

func rueidisScript(e lim.RedisEnv, s lim.Spec) (lim.Limiter, error) {
	c, stop, err := newRueidis(e.Addr)
	if err != nil {
		return nil, err
	}
	step, tolerance := scriptArgs(s)
	sc := rueidis.NewLuaScript(gcraScript)
	return lim.WithClose(func(ctx context.Context, k string, n int) (bool, error) {
		v, err := sc.Exec(ctx, c, []string{e.Prefix + k}, []string{step, tolerance, strconv.Itoa(n)}).AsInt64()
		return v == 1, err
	}, stop), nil
}
