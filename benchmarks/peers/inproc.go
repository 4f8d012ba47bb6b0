package peers

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/didip/tollbooth/v8"
	tlimiter "github.com/didip/tollbooth/v8/limiter"
	failsafe "github.com/failsafe-go/failsafe-go/ratelimiter"
	juju "github.com/juju/ratelimit"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	ulimiter "github.com/ulule/limiter/v3"
	umem "github.com/ulule/limiter/v3/drivers/store/memory"
	uber "go.uber.org/ratelimit"
	"golang.org/x/time/rate"

	"github.com/drawgate/drawgate/benchmarks/lim"
)

// errSkip means that a system cannot be measured in a case.
var errSkip = errors.New("not measured in this case")

func inprocLibraries() []lim.Inproc {
	return []lim.Inproc{
		{Name: "xtime-single", Alg: "token bucket", New: xtimeSingle},
		{
			Name: "xtime-mutexmap", Alg: "token bucket per key, map and mutex; with three limits still its one",
			Keyed: true, New: xtimeMutexMap, NewThree: func(t lim.Three) (lim.Limiter, error) {
				return xtimeMutexMap(lim.Spec{Rate: int(t.Minute), Period: time.Minute, Burst: int(t.Minute)})
			},
		},
		{
			Name: "xtime-mutexmap-x3", Alg: "three token buckets per key, looked at and taken under the map's mutex",
			Keyed: true, NewThree: xtimeThree,
		},
		{Name: "xtime-syncmap", Alg: "token bucket per key, sync.Map", Keyed: true, New: xtimeSyncMap},
		{Name: "uber-ratelimit", Alg: "leaky bucket pacer (sleeps)", New: uberPacer},
		{Name: "throttled-mem", Alg: "GCRA", Keyed: true, New: throttledMem},
		{Name: "sethvargo-mem", Alg: "fixed-interval bucket", Keyed: true, New: sethvargoMem},
		{Name: "ulule-mem", Alg: "fixed window", Keyed: true, New: ululeMem},
		{Name: "tollbooth", Alg: "x/time bucket in an expirable cache", Keyed: true, New: tollboothMem},
		{Name: "juju-single", Alg: "token bucket", New: jujuBucket},
		{Name: "failsafe-smooth", Alg: "smooth (leaky)", New: func(s lim.Spec) (lim.Limiter, error) {
			return failsafeLimiter(failsafe.NewSmooth[any](uint(s.Rate), s.Period)), nil
		}},
		{Name: "failsafe-bursty", Alg: "fixed window", New: func(s lim.Spec) (lim.Limiter, error) {
			return failsafeLimiter(failsafe.NewBursty[any](uint(s.Rate), s.Period)), nil
		}},
	}
}

func newXtime(s lim.Spec) *rate.Limiter { return rate.NewLimiter(rate.Limit(s.PerSecond()), s.Burst) }

func xtimeSingle(s lim.Spec) (lim.Limiter, error) {
	l := newXtime(s)
	return lim.Func(func(_ context.Context, _ string, n int) (bool, error) { return l.AllowN(time.Now(), n), nil }), nil
}

func xtimeMutexMap(s lim.Spec) (lim.Limiter, error) {
	var mu sync.Mutex
	m := map[string]*rate.Limiter{}
	return lim.Func(func(_ context.Context, k string, n int) (bool, error) {
		mu.Lock()
		l, ok := m[k]
		if !ok {
			l = newXtime(s)
			m[k] = l
		}
		mu.Unlock()
		return l.AllowN(time.Now(), n), nil
	}), nil
}

func xtimeSyncMap(s lim.Spec) (lim.Limiter, error) {
	var m sync.Map
	return lim.Func(func(_ context.Context, k string, n int) (bool, error) {
		v, ok := m.Load(k)
		if !ok {
			v, _ = m.LoadOrStore(k, newXtime(s))
		}
		return v.(*rate.Limiter).AllowN(time.Now(), n), nil
	}), nil
}

// xtimeThree is the cheapest atomic take over three x/time limiters: the mutex is held over the
// look and the take.
func xtimeThree(t lim.Three) (lim.Limiter, error) {
	bucket := func(n int64, d time.Duration) *rate.Limiter {
		return newXtime(lim.Spec{Rate: int(n), Period: d, Burst: int(n)})
	}
	var mu sync.Mutex
	m := map[string]*[3]*rate.Limiter{}
	return lim.Func(func(_ context.Context, k string, n int) (bool, error) {
		mu.Lock()
		defer mu.Unlock()
		ls, ok := m[k]
		if !ok {
			ls = &[3]*rate.Limiter{
				bucket(t.Minute, time.Minute), bucket(t.Hour, time.Hour),
				bucket(t.Day, 24*time.Hour),
			}
			m[k] = ls
		}
		now := time.Now()
		for _, l := range ls {
			if l.TokensAt(now) < float64(n) {
				return false, nil
			}
		}
		for _, l := range ls {
			l.AllowN(now, n)
		}
		return true, nil
	}), nil
}

// uberPacer is measured only at a rate that it never has to sleep for.
func uberPacer(s lim.Spec) (lim.Limiter, error) {
	if s.PerSecond() < 1e6 {
		return nil, errSkip
	}
	l := uber.New(s.Rate, uber.Per(s.Period))
	return lim.Func(func(context.Context, string, int) (bool, error) { l.Take(); return true, nil }), nil
}

func throttledMem(s lim.Spec) (lim.Limiter, error) {
	st, err := memstore.NewCtx(0)
	if err != nil {
		return nil, err
	}
	l, err := throttledLimiter(st, s)
	return l, err
}

// throttledLimiter serves sections A and B.
func throttledLimiter(st throttled.GCRAStoreCtx, s lim.Spec) (lim.Func, error) {
	l, err := throttled.NewGCRARateLimiterCtx(st, throttled.RateQuota{
		MaxRate:  throttled.PerDuration(s.Rate, s.Period),
		MaxBurst: s.Burst - 1,
	})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, k string, n int) (bool, error) {
		limited, _, err := l.RateLimitCtx(ctx, k, n)
		return err == nil && !limited, err
	}, nil
}

func sethvargoMem(s lim.Spec) (lim.Limiter, error) {
	st, err := memorystore.New(&memorystore.Config{Tokens: uint64(s.Rate), Interval: s.Period})
	if err != nil {
		return nil, err
	}
	return lim.Func(func(ctx context.Context, k string, _ int) (bool, error) {
		_, _, _, ok, err := st.Take(ctx, k)
		return ok, err
	}), nil
}

func ululeMem(s lim.Spec) (lim.Limiter, error) {
	st := umem.NewStoreWithOptions(ulimiter.StoreOptions{Prefix: "l", CleanUpInterval: time.Hour})
	return ululeLimiter(st, s), nil
}

// ululeLimiter serves sections A and B.
func ululeLimiter(st ulimiter.Store, s lim.Spec) lim.Func {
	l := ulimiter.New(st, ulimiter.Rate{Period: s.Period, Limit: int64(s.Rate)})
	return func(ctx context.Context, k string, n int) (bool, error) {
		c, err := l.Increment(ctx, k, int64(n))
		return err == nil && !c.Reached, err
	}
}

func tollboothMem(s lim.Spec) (lim.Limiter, error) {
	l := tollbooth.NewLimiter(s.PerSecond(), &tlimiter.ExpirableOptions{DefaultExpirationTTL: time.Hour})
	l.SetBurst(s.Burst)
	return lim.Func(func(_ context.Context, k string, _ int) (bool, error) { return !l.LimitReached(k), nil }), nil
}

// jujuBucket ticks at most once a microsecond: a finer tick overflows in that library.
func jujuBucket(s lim.Spec) (lim.Limiter, error) {
	tick := max(s.Period/time.Duration(s.Rate), time.Microsecond)
	quantum := max(int64(s.PerSecond()*tick.Seconds()), 1)
	b := juju.NewBucketWithQuantum(tick, int64(s.Burst), quantum)
	return lim.Func(func(_ context.Context, _ string, n int) (bool, error) {
		return b.TakeAvailable(int64(n)) == int64(n), nil
	}), nil
}

func failsafeLimiter(l failsafe.RateLimiter[any]) lim.Limiter {
	return lim.Func(func(_ context.Context, _ string, n int) (bool, error) { return l.TryAcquirePermits(uint(n)), nil })
}
