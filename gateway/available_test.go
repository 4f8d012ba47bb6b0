package gateway_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/llm/simulator"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/memstore"
)

// moody is a store that refuses to work, does not answer, or loses its answers, in turn: for some
// calls in a row, so that it is away for longer, too.
type moody struct {
	drawgate.Store

	calls, failures atomic.Int64
}

// call makes a call, or not.
func (m *moody) call(ctx context.Context, f func() error) error {
	n := m.calls.Add(1)
	mood := n / 7 % 5
	if n < 7 || mood == 0 || mood == 3 {
		return f()
	}
	m.failures.Add(1)
	switch mood {
	case 1: // it does not answer
		<-ctx.Done()
	case 2: // its answer is lost
		if err := f(); err != nil {
			return err
		}
	}
	return &drawgate.StoreError{Store: "test", Op: "call", Err: errors.New("connection reset")}
}

func (m *moody) Take(ctx context.Context, takes []store.Take, out []store.Verdict) error {
	return m.call(ctx, func() error { return m.Store.Take(ctx, takes, out) })
}

func (m *moody) Settle(ctx context.Context, all []store.Settlement, out []store.Outcome) error {
	return m.call(ctx, func() error { return m.Store.Settle(ctx, all, out) })
}

// TestCallsAreAnsweredWhileTheStoreFails: each of them, and soon, however the store fails: granted
// or refused by the quota, of which this process has all. The provider never sees more than that.
//
// req: C1 C12
func TestCallsAreAnsweredWhileTheStoreFails(t *testing.T) {
	t.Parallel()
	const callers, each, rpm, soon = 10, 200, 100, 200 * time.Millisecond
	store := &moody{Store: memstore.New(nil)}
	var answers, granted, fallback atomic.Int64
	inBubble(t, func(s *setup) {
		limit := drawgate.RollingLimit("rpm", rpm, time.Minute)
		limit.Margin = 2 * time.Second
		s.policies = append(s.policies, drawgate.Policy{
			Name: "upstream", Fallback: drawgate.FallbackShare,
			Limits: []drawgate.Limit{limit},
		})
		s.store = guard.New(store, &guard.Options{Instances: 1}).Full()
		s.sim.Quotas = []simulator.Quota{{
			Provider: simulator.OpenAI, Name: "gpt", Models: []string{"gpt-4o"},
			Limits: []simulator.Limit{{
				Name: "rpm", Dimension: simulator.Requests, Amount: rpm,
				Window: simulator.Rolling,
			}},
		}}
	}, func(t *testing.T, b *bench) {
		var group sync.WaitGroup
		for i := range callers {
			group.Go(func() {
				time.Sleep(time.Duration(i) * 37 * time.Millisecond)
				for range each {
					began := time.Now()
					got := b.call("openai", false, "Hello!", atOnce)
					switch took := time.Since(began); {
					case got.status != http.StatusOK && got.status != http.StatusTooManyRequests || got.err != nil:
						t.Errorf("got %d %s %v", got.status, got.body, got.err)
					case took > soon:
						t.Errorf("answered with %d after %v", got.status, took)
					case got.status == http.StatusOK:
						granted.Add(1)
					}
					if got.header.Get("X-RateLimit-Fallback") == "true" {
						fallback.Add(1)
					}
					answers.Add(1)
					time.Sleep(time.Second)
				}
			})
		}
		group.Wait()
		if v := b.sim.Violations(); v.Total != 0 || answers.Load() != callers*each {
			t.Errorf("%d answers, %d violations: %v", answers.Load(), v.Total, v.ByDimension)
		}
	})
	t.Logf("%d calls granted, %d of them by the fallback; the store failed %d of %d times", granted.Load(),
		fallback.Load(), store.failures.Load(), store.calls.Load())
	if granted.Load() < 2*rpm || fallback.Load() < 10 || store.failures.Load() < 100 {
		t.Error("want calls of each kind")
	}
}
