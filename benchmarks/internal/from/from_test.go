package from_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/memstore"
	"github.com/drawgate/drawgate/store/redisstore"
)

// The functions up to TestPages are on the pages.

func oneProcess() *rate.Limiter {
	return rate.NewLimiter(rate.Every(time.Minute/100), 20)
}

func manyProcesses(store drawgate.Store) (drawgate.Handle, error) {
	limiter, err := drawgate.New(store, drawgate.Rate("api", 100, time.Minute, 20), nil)
	if err != nil {
		return drawgate.Handle{}, err
	}
	return limiter.Key("all"), nil
}

func allowBefore(ctx context.Context, limiter *redis_rate.Limiter, user string) (bool, time.Duration, error) {
	res, err := limiter.Allow(ctx, "user:"+user, redis_rate.PerMinute(10))
	if err != nil {
		return false, 0, err
	}
	return res.Allowed > 0, res.RetryAfter, nil
}

func newLimiter(url string, fallback *guard.Options) (*drawgate.Limiter, *guard.Store, error) {
	store, err := redisstore.Open(url, nil)
	if err != nil {
		return nil, nil, err
	}
	g := guard.New(store, fallback) // decides while Redis is unavailable
	limiter, err := drawgate.New(g.Full(), drawgate.Rate("user", 10, time.Minute, 10), nil)
	return limiter, g, err
}

func allow(ctx context.Context, limiter *drawgate.Limiter, user string) (bool, time.Duration, error) {
	d, err := limiter.Allow(ctx, user)
	return d.Allowed, d.RetryAfter, err
}

// Each block of Go on the pages is one or more functions of this file.
func TestPages(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("from_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range []string{"x-time.md", "redis_rate.md"} {
		text, err := os.ReadFile("../../../docs/from/" + page)
		if err != nil {
			t.Fatal(err)
		}
		blocks := strings.Split(string(text), "```go\n")[1:]
		if len(blocks) != 2 {
			t.Errorf("%s has %d blocks of Go, want one before and one after", page, len(blocks))
		}
		for _, b := range blocks {
			if b, _, _ = strings.Cut(b, "```"); !strings.Contains(string(source), "\n\n"+b+"\n") {
				t.Errorf("%s: this is not in from_test.go:\n%s", page, b)
			}
		}
	}
}

// limiter is what programs need of x/time's Limiter, and of a Handle.
type limiter interface {
	Allow() bool
	Wait(ctx context.Context) error
}

// Both admit twenty calls at once, and then one every 0.6 s.
func TestXTime(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func() (limiter, error){
		"before": func() (limiter, error) { return oneProcess(), nil },
		"after":  func() (limiter, error) { return manyProcesses(memstore.New(nil)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l, err := open()
				if err != nil {
					t.Fatal(err)
				}
				start, once := time.Now(), 0
				for l.Allow() {
					once++
				}
				calls := once
				for ; time.Since(start) < time.Minute; calls++ {
					if err := l.Wait(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				// Drawgate's waiter wakes up to a hundredth of a unit's refill late.
				if once != 20 || calls < 118 || calls > 121 {
					t.Errorf("%d calls at once and %d until a minute has passed, want 20 and 120", once, calls)
				}
			})
		})
	}
}

// Ten requests of a user at once, and the next one when one has come back: both say when.
func TestRedisRate(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t).Addr
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	before := redis_rate.NewLimiter(client)
	after, g, err := newLimiter("redis://"+addr+"/0", &guard.Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	ctx := t.Context()
	for name, allow := range map[string]func() (bool, time.Duration, error){
		"before": func() (bool, time.Duration, error) { return allowBefore(ctx, before, "ada") },
		"after":  func() (bool, time.Duration, error) { return allow(ctx, after, "ada") },
	} {
		allowed := 0
		start := time.Now()
		for {
			ok, retry, err := allow()
			if err != nil {
				t.Fatal(name, err)
			}
			if !ok {
				if retry <= 0 || retry > 6*time.Second {
					t.Errorf("%s: refused, and again in %v, want within 6 s", name, retry)
				}
				break
			}
			allowed++
		}
		if most := 10 + int(time.Since(start)/(6*time.Second)); allowed < 10 || allowed > most {
			t.Errorf("%s: %d allowed, want 10 to %d", name, allowed, most)
		}
	}
}
