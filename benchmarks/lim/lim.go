// Package lim holds the small interfaces that every measured limiter is adapted to.
package lim

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/redis/go-redis/v9"
)

// Limiter is the one interface of all sections. Allow reports whether n units of key may pass now.
// It must not sleep unless the peer has no call that does not. A Limiter that is also an io.Closer
// is closed after its cells.
type Limiter interface {
	Allow(ctx context.Context, key string, n int) (bool, error)
}

// Func adapts a function.
type Func func(ctx context.Context, key string, n int) (bool, error)

// Allow calls f.
func (f Func) Allow(ctx context.Context, key string, n int) (bool, error) { return f(ctx, key, n) }

type closing struct {
	Func
	close func() error
}

func (c closing) Close() error { return c.close() }

// WithClose is f as a Limiter that is closed by stop.
func WithClose(f Func, stop func() error) Limiter { return closing{f, stop} }

// Close closes l if it can be closed.
func Close(l Limiter) error {
	if c, ok := l.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// Spec is one bucket limit: Rate units per Period with Burst.
type Spec struct {
	Rate   int
	Period time.Duration
	Burst  int
}

// PerSecond is the rate in units per second.
func (s Spec) PerSecond() float64 { return float64(s.Rate) / s.Period.Seconds() }

// Admits is the most that the bucket may admit in d.
func (s Spec) Admits(d time.Duration) float64 { return float64(s.Burst) + s.PerSecond()*d.Seconds() }

// Three is the policy of the three-limit cases: two rolling windows (one minute, one hour; default
// precision) and the calendar day in UTC, in units. One take passes all three or spends nothing. An
// adapter must read the result of each limit (what remains), so that a system cannot win by not
// computing it.
type Three struct{ Minute, Hour, Day int64 }

// Inproc is one in-process limiter (section A).
type Inproc struct {
	Name     string
	Alg      string // what it computes
	Keyed    bool   // false: one bucket, the key is ignored, not measured with many keys
	New      func(Spec) (Limiter, error)
	NewThree func(Three) (Limiter, error) // nil: not measured with three limits
}

// RedisEnv is what a Redis-backed limiter is built from.
type RedisEnv struct {
	Addr     string
	Prefix   string // of every key
	PoolSize int    // connections
}

// Client returns a go-redis client with the library's defaults but for the pool size.
func (e RedisEnv) Client() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: e.Addr, PoolSize: e.PoolSize})
}

// Redis is one Redis-backed limiter (sections B and E).
type Redis struct {
	Name     string
	Alg      string
	NoAcc    bool // decides nothing: left out of section E
	New      func(RedisEnv, Spec) (Limiter, error)
	NewThree func(RedisEnv, Three) (Limiter, error) // nil: not measured with three limits
}

// SQLite is one limiter that writes its decisions to a SQLite file (section D). New gets the path
// of a file that does not exist yet; it must use WAL, synchronous=FULL and SQLite's default
// checkpoints.
type SQLite struct {
	Name string
	Alg  string
	New  func(path string, s Spec) (Limiter, error)
}

// Keys returns n keys of the form user:00000001.
func Keys(n int) []string {
	ks := make([]string, n)
	for i := range ks {
		ks[i] = fmt.Sprintf("user:%08d", i)
	}
	return ks
}

// Rand is a xorshift generator: picking a key costs about a nanosecond. It must not be zero.
type Rand uint64

// Next returns the next number.
func (r *Rand) Next() uint64 {
	x := uint64(*r)
	x ^= x << 13
	x ^= x >> 7
	x ^= x << 17
	*r = Rand(x)
	return x
}

// N returns a number in [0, n).
func (r *Rand) N(n int) int { return int((r.Next() >> 11) % uint64(n)) }
