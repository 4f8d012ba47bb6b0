package drawgate_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
)

// TestATakeThatNamesNoUnit is an error that names the units where no policy counts requests: it
// would pass for ever, and take nothing. It costs nothing.
//
// req: A2, B1
func TestATakeThatNamesNoUnit(t *testing.T) {
	t.Parallel()
	llm := policy(of("tokens", rolling(10, time.Hour)), of("usd_micros", rolling(10, time.Hour)))
	for name, l := range map[string]*drawgate.Limiter{
		"in memory": local(t, llm), "away": over(t, remote(t), llm),
		"bucket": local(t, policy(of("tokens", leaky(10, time.Hour, 10)))),
	} {
		ctx := t.Context()
		_, allow := l.Allow(ctx, "k")
		_, empty := l.Allow(ctx, "k", []drawgate.Cost{}...)
		_, wait := l.Wait(ctx, "k")
		_, _, take := l.Take(ctx, drawgate.Request{Buckets: []drawgate.Ask{{Key: "k"}, {Key: "l"}}})
		_, reserve := l.Reserve(ctx, "k", time.Minute)
		_, lease := takeHeld(ctx, l, drawgate.Request{
			Buckets: []drawgate.Ask{{Key: "k"}},
			Hold:    drawgate.Hold{For: time.Minute, Lease: true},
		})
		for i, err := range []error{allow, empty, wait, take, reserve, lease} {
			if !errors.Is(err, drawgate.ErrUnknownUnit) || !strings.Contains(err.Error(), "name a cost in tokens") ||
				strings.Contains(err.Error(), "tokens, tokens") {
				t.Errorf("%s, %d: %v, want an error that names the units", name, i, err)
			}
		}
		if l.Key("k").Allow() {
			t.Errorf("%s: a handle allows it", name)
		}
		if st, err := l.Status(ctx, "k"); err != nil || st.States[0].Used != 0 {
			t.Errorf("%s: a status needs no unit: %+v, %v", name, st.States, err)
		}
		if d, err := l.Allow(ctx, "k", drawgate.Cost{Unit: "tokens"}); err != nil || !d.Allowed {
			t.Errorf("%s: 0 tokens that are named: %+v, %v", name, d, err)
		}
		both := []drawgate.Ask{{Key: "k"}, with(t, l, drawgate.PerHour("calls", 5)).Ask("k")}
		if d, _, err := l.Take(ctx, drawgate.Request{Buckets: both}); err != nil || !d.Allowed {
			t.Errorf("%s: beside a policy that counts requests: %+v, %v", name, d, err)
		}
		one := []drawgate.Ask{{Key: "k"}, l.Ask("l", drawgate.Cost{Unit: "tokens", N: 1})}
		if d, _, err := l.Take(ctx, drawgate.Request{Buckets: one}); err != nil || !d.Allowed {
			t.Errorf("%s: beside a bucket whose unit is named: %+v, %v", name, d, err)
		}
	}
}
