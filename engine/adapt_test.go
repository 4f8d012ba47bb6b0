package engine_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
)

// TestAdaptedAsks: a take by name obeys the amounts that its caller knows, those of a take that
// waits as they are at each attempt, and rules do not.
func TestAdaptedAsks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := engine.Config{Policies: policies(perDay("p", 10))}
		e := newEngine(t, c, nil)
		var amount atomic.Int64
		adapt := func(l *drawgate.Limiter) *drawgate.Limiter {
			p := l.Plan().Policy()
			p.Limits = []drawgate.Limit{p.Limits[0]}
			p.Limits[0].Amount = min(p.Limits[0].Amount, amount.Load())
			low, err := l.With(p)
			if err != nil {
				t.Error(err)
				return l
			}
			return low
		}
		r := &engine.Request{Asks: []engine.Ask{{Policy: "p", Key: "k", Adapt: adapt}}}
		amount.Store(4)
		if got := admitted(t, e, r, 20); got != 4 {
			t.Errorf("%d of 20 takes, want 4", got)
		}
		first, second := waiting(t.Context(), e, r), waiting(t.Context(), e, r)
		amount.Store(5)
		if err := e.Replace(c); err != nil { // wakes the one in front
			t.Fatal(err)
		}
		began := time.Now()
		if err := <-first; err != nil || time.Since(began) > time.Minute {
			t.Errorf("the first one waited %v for the amount that was raised: %v", time.Since(began), err)
		}
		amount.Store(1)
		if err := <-second; err != nil {
			t.Error(err)
		}
		plain := &engine.Request{Asks: []engine.Ask{{Policy: "p", Key: "k"}}}
		if got := admitted(t, e, plain, 20); got != 9 {
			t.Errorf("%d of 20 takes that know nothing, want the other 9", got)
		}
	})
}
