package present_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/engine/rules"
	"github.com/drawgate/drawgate/internal/present"
	"github.com/drawgate/drawgate/store/memstore"
)

// TestQueuedRefusalsDescribeTheRules: a take that cannot wait long enough behind others is answered
// with the amounts and costs of the rule that counts it, and with when it fits after the others.
func TestQueuedRefusalsDescribeTheRules(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		costs   int64 // of the rule
		left    int64 // when the second one asks
		refuses bool  // the limit refuses it as well
	}{"costs 1": {1, 1, false}, "costs 2": {2, 0, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				rule := rules.Rule{Apply: []rules.Apply{apply(`"k"`, 2)}}
				rule.Apply[0].Costs = map[string]int64{"requests": c.costs}
				e := newEngine(t, engine.Config{Policies: []engine.Policy{perDay("p", 10)}, Rules: []rules.Rule{rule}})
				request := func(costs ...drawgate.Cost) *engine.Request {
					return &engine.Request{Attributes: &rules.Attributes{}, Costs: costs, Wait: true}
				}
				if _, err := e.Take(t.Context(), request(drawgate.Requests(2-c.left))); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go func() { _, _ = e.Take(ctx, request(drawgate.Requests(2))) }() // cancelled at the end
				synctest.Wait()
				short, stop := context.WithTimeoutCause(t.Context(), time.Hour, drawgate.ErrDeadline)
				defer stop()
				r := request()
				res, err := e.Take(short, r)
				a, err := present.Result(short, r, &res, err)
				if err != nil {
					t.Fatal(err)
				}
				if l := a.Limits[0]; l.Amount != 2 || l.Remaining != c.left || l.Refused != c.refuses ||
					a.Remaining != c.left {
					t.Errorf("got %+v, want an amount of 2, and %d left", l, c.left)
				}
				if got := a.RetryAfterMS.Duration(); a.Allowed || a.Reason != api.ReasonQueued ||
					got < 48*time.Hour-time.Minute || got > 48*time.Hour+time.Minute {
					t.Errorf("got %v, %q after %v, want a refusal for two days: one for those in front, one for itself",
						a.Allowed, a.Message, got)
				}
			})
		})
	}
}

// TestRefusalsOfThoseThatWaitedInVain say so, and when those in front try again.
func TestRefusalsOfThoseThatWaitedInVain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, engine.Config{Policies: []engine.Policy{perDay("p", 2)}})
		asks := []engine.Ask{{Policy: "p", Key: "k"}}
		for range 2 { // what is held may come back at any time
			if _, err := e.Take(t.Context(), &engine.Request{Asks: asks, Hold: 24 * time.Hour}); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _, _ = e.Take(ctx, &engine.Request{Asks: asks, Wait: true}) }() // cancelled at the end
		synctest.Wait()
		short, stop := context.WithTimeoutCause(t.Context(), 10*time.Second, drawgate.ErrDeadline)
		defer stop()
		r := &engine.Request{Asks: asks, Wait: true}
		start := time.Now()
		res, err := e.Take(short, r)
		limited, ok := errors.AsType[*drawgate.LimitedError](err)
		if !ok || !limited.Queued || limited.RetryAfter < time.Millisecond || time.Since(start) != 10*time.Second {
			t.Errorf("after %v: %v does not say that others are in front", time.Since(start), err)
		}
		a, err := present.Result(short, r, &res, err)
		if err != nil || a.Reason != api.ReasonQueued || len(a.Limits) != 1 {
			t.Errorf("%v: %+v", err, a)
		}
	})
}

// TestPrepaidThatOthersHold: a take that a prepaid budget refuses never fits if that is used up;
// and may fit soon if others hold it, who may use less.
func TestPrepaidThatOthersHold(t *testing.T) {
	t.Parallel()
	l, err := drawgate.New(memstore.New(nil), drawgate.Policy{Name: "p", Limits: []drawgate.Limit{
		{Name: "credit", Kind: drawgate.Calendar, Every: drawgate.Total, Amount: 10},
	}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ask := func() api.Answer {
		d, err := l.Allow(t.Context(), "k", drawgate.Requests(8))
		if err != nil || d.Allowed {
			t.Fatalf("%+v, %v", d, err)
		}
		return present.Answer(&d)
	}
	d, r, err := l.Take(t.Context(), drawgate.Request{
		Buckets: []drawgate.Ask{{Limiter: l, Key: "k", Costs: []drawgate.Cost{drawgate.Requests(7)}}},
		Hold:    drawgate.Hold{For: time.Hour},
	})
	if err != nil || !d.Allowed {
		t.Fatal(d, err)
	}
	const more = `limit "credit" of policy "p" has 3 requests left, and gets more only if `
	if a := ask(); a.NeverFits || a.RetryAfterMS != 1000 ||
		a.Message != more+"open reservations use less than they hold, or that is credited" {
		t.Errorf("while it is held: %+v", a)
	}
	if err := r.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a := ask(); !a.NeverFits || a.RetryAfterMS != api.Never || a.Message != more+"that is credited" {
		t.Errorf("when it is used: %+v", a)
	}
}
