package drawgate_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/memstore"
)

const secret = "sk-secret-key"

// TestArguments: what is wrong with the question is an error at once, says what and by how much,
// and never shows a key. req: B11, C7
func TestArguments(t *testing.T) {
	t.Parallel()
	plain := local(t, drawgate.Policy{Name: "plain", Limits: []drawgate.Limit{
		rolling(10, time.Minute),
		of("tokens", leaky(1000, time.Minute, 500)),
	}})
	held := with(t, plain, drawgate.Policy{Name: "held", Limits: []drawgate.Limit{slots(2)}})
	kept := with(t, plain, drawgate.Policy{Name: "kept", Limits: []drawgate.Limit{
		{
			Name: "kept", Kind: drawgate.Rolling, Window: time.Minute, Amount: 10,
			ReservedByPriority: map[int]drawgate.Share{5: {Units: 10}},
		},
	}})
	foreign := local(t, policy(rolling(10, time.Minute)))
	ctx := t.Context()
	big := strings.Repeat(secret, drawgate.MaxKey)
	type request = drawgate.Request
	ask := func(l *drawgate.Limiter, costs ...drawgate.Cost) []drawgate.Ask {
		return []drawgate.Ask{l.Ask(secret, costs...)}
	}
	reserve := func(r request) error {
		if r.Hold.For == 0 {
			r.Hold.For = time.Minute
		}
		_, _, err := plain.Take(ctx, r)
		return err
	}
	takes := func(r request) error { _, _, err := plain.Take(ctx, r); return err }
	allow := func(l *drawgate.Limiter, key string, costs ...drawgate.Cost) error {
		_, err := l.Allow(ctx, key, costs...)
		return err
	}
	settled := func(used ...drawgate.Cost) error {
		res, err := plain.Reserve(ctx, secret, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Cancel(ctx) // the other error is the one that is tested
		return res.Settle(ctx, used...)
	}
	second := func(_ any, err error) error { return err }
	for _, c := range []struct {
		name string
		err  error
		want error
		text string
	}{
		{
			"a negative cost", allow(plain, secret, drawgate.Cost{N: -1}), drawgate.ErrInvalid,
			"n=-1 requests is not between 0 and 1000000000000",
		},
		{
			"a cost that would overflow", allow(plain, secret, drawgate.Cost{Unit: "tokens", N: math.MaxInt64}),
			drawgate.ErrInvalid, "n=9223372036854775807 tokens",
		},
		{
			"an unknown unit", allow(plain, secret, drawgate.Cost{Unit: "wishes", N: 1}), drawgate.ErrUnknownUnit,
			`"wishes" in policy "plain", whose units are requests, tokens`,
		},
		{
			"more than the amount", allow(plain, secret, drawgate.Cost{N: 11}), drawgate.ErrNeverFits,
			`11 requests can never fit limit "rolling" of policy "plain", which grants at most 10`,
		},
		{
			"more than the burst", allow(plain, secret, drawgate.Cost{Unit: "tokens", N: 501}), drawgate.ErrNeverFits,
			`501 tokens can never fit limit "tokens"`,
		},
		{
			"more than is ever left at this priority", allow(kept, secret), drawgate.ErrNeverFits,
			"at most 0 at this priority",
		},
		{
			"costs that add up", allow(plain, secret, drawgate.Cost{N: 6}, drawgate.Cost{N: 6}), drawgate.ErrNeverFits,
			"12 requests",
		},
		{"a key that is too long", allow(plain, big), drawgate.ErrInvalid, "bytes, more than 65536"},
		{"Allow of slots", allow(held, secret), drawgate.ErrNeedsReserve, `(policy "held")`},
		{"Wait of slots", second(held.Wait(ctx, secret)), drawgate.ErrNeedsReserve, "use Reserve"},
		{"no bucket", takes(request{}), drawgate.ErrInvalid, "the take has 0 buckets: give 1 to 64"},
		{
			"65 buckets", takes(request{Buckets: make([]drawgate.Ask, 65)}), drawgate.ErrInvalid,
			"the take has 65 buckets: give 1 to 64",
		},
		{
			"a bucket twice", takes(request{Buckets: []drawgate.Ask{plain.Ask(secret), plain.Ask(secret)}}),
			drawgate.ErrInvalid, `a bucket of policy "plain" is named twice`,
		},
		{
			"a low priority", takes(request{Buckets: ask(plain), Priority: -1}), drawgate.ErrInvalid,
			"priority -1 is not between 0 and 9",
		},
		{
			"a high priority", takes(request{Buckets: ask(plain), Priority: 10}), drawgate.ErrInvalid,
			"priority 10 is not between 0 and 9",
		},
		{
			"another limiter's bucket", takes(request{Buckets: ask(foreign)}), drawgate.ErrInvalid,
			"made from one another, with With",
		},
		{
			"no hold", second(plain.Reserve(ctx, secret, 0)), drawgate.ErrInvalid,
			"hold 0s is not between 1ms and 744h0m0s",
		},
		{
			"an id without a hold", takes(request{Buckets: ask(plain), Hold: drawgate.Hold{ID: "id"}}),
			drawgate.ErrInvalid, "hold 0s",
		},
		{
			"a lease without a hold", takes(request{Buckets: ask(plain), Hold: drawgate.Hold{Lease: true}}),
			drawgate.ErrInvalid, "hold 0s",
		},
		{
			"a grant without an id", reserve(request{Buckets: ask(plain), Hold: drawgate.Hold{Grant: 1}}),
			drawgate.ErrInvalid, "a grant needs an id",
		},
		{
			"a short hold", reserve(request{Buckets: ask(plain), Hold: drawgate.Hold{For: time.Microsecond}}),
			drawgate.ErrInvalid, "hold 1µs is not between 1ms and 744h0m0s",
		},
		{
			"a negative hold", reserve(request{Buckets: ask(plain), Hold: drawgate.Hold{For: -1}}), drawgate.ErrInvalid,
			"hold -1ns",
		},
		{
			"a long hold", reserve(request{Buckets: ask(plain), Hold: drawgate.Hold{For: drawgate.MaxHold + 1}}),
			drawgate.ErrInvalid, "hold 744h0m0.000000001s",
		},
		{
			"a long id", reserve(request{Buckets: ask(plain), Hold: drawgate.Hold{ID: strings.Repeat("x", 129)}}),
			drawgate.ErrInvalid, "the id has 129 bytes, more than 128",
		},
		{
			"a reservation that never fits", reserve(request{Buckets: ask(plain, drawgate.Cost{N: 11})}),
			drawgate.ErrNeverFits, "11 requests",
		},
		{
			"a lease that never fits", reserve(request{Buckets: ask(kept), Hold: drawgate.Hold{Lease: true}}),
			drawgate.ErrNeverFits, "at most 0",
		},
		{
			"Resume without id", second(plain.Resume("", 1, time.Now(), plain.Ask(secret))), drawgate.ErrInvalid,
			"1 to 128 bytes",
		},
		{
			"Resume with a long id", second(plain.Resume(strings.Repeat("x", 129), 1, time.Now(), plain.Ask(secret))),
			drawgate.ErrInvalid, "1 to 128 bytes",
		},
		{"Resume without buckets", second(plain.Resume("id", 1, time.Now())), drawgate.ErrInvalid, "0 buckets"},
		{
			"Status of an unknown unit", second(plain.Status(ctx, secret, drawgate.Cost{Unit: "wishes"})),
			drawgate.ErrUnknownUnit, "wishes",
		},
		{"Status of a long key", second(plain.Status(ctx, big)), drawgate.ErrInvalid, "more than 65536"},
		{"Status at a high priority", second(plain.Ask(secret).Status(ctx, 10)), drawgate.ErrInvalid, "priority 10"},
		{
			"an Ask without a limiter", second(drawgate.Ask{Key: secret}.Status(ctx, 0)), drawgate.ErrInvalid,
			"names no Limiter",
		},
		{
			"a settlement of an unknown unit", settled(drawgate.Cost{Unit: "wishes", N: 1}), drawgate.ErrUnknownUnit,
			`"wishes"`,
		},
		{"a negative settlement", settled(drawgate.Cost{N: -1}), drawgate.ErrInvalid, "n=-1"},
		{
			"Reset where the store cannot", over(t, remote(t), policy(rolling(1, time.Minute))).Reset(ctx, secret),
			drawgate.ErrInvalid, "cannot reset",
		},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, c.err, c.want)
		} else if !strings.Contains(c.err.Error(), c.text) || !strings.HasPrefix(c.err.Error(), "drawgate: ") ||
			strings.Contains(c.err.Error(), secret) {
			t.Errorf("%s: %q does not say %q, or shows the key", c.name, c.err, c.text)
		}
	}
	wantUsed(t, plain, secret, 0, 0)
	if e, ok := errors.AsType[*drawgate.NeverFitsError](allow(plain, secret,
		drawgate.Cost{Unit: "tokens", N: 501})); !ok || e.N != 501 || e.Max != 500 || e.Unit != "tokens" ||
		e.Amount != plain.Plan().Policy().Limits[1].Amount || e.Limit != plain.Plan().Policy().Limits[1].Name {
		t.Errorf("%+v", e)
	}
	if _, err := drawgate.New(memory(t), policy(rolling(1, time.Minute)),
		&drawgate.Options{Tenant: big}); !errors.Is(err, drawgate.ErrInvalid) || strings.Contains(err.Error(), secret) {
		t.Errorf("a long tenant: %v", err)
	}
	if _, err := drawgate.New(memory(t), drawgate.Policy{}, nil); err == nil {
		t.Error("a policy without limits")
	}
	if _, err := plain.With(drawgate.PerMinute("minute", -1)); err == nil ||
		!strings.Contains(err.Error(), `"minute"`) {
		t.Errorf("a limit of -1: %v", err)
	}
}

// TestAllow grants what there is, refuses the rest at no cost, and says when it fits.
// req: A2, B1, B3
func TestAllow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, l := range []*drawgate.Limiter{
			local(t, drawgate.PerMinute("minute", 10)),
			over(t, remote(t), drawgate.PerMinute("minute", 10)),
		} {
			for i := range int64(10) {
				d, err := l.Allow(t.Context(), "k")
				if err != nil || !d.Allowed || d.Remaining() != 9-i || d.Err() != nil || d.Reason != store.Passed {
					t.Fatalf("take %d: %v, %v, %d remaining", i, err, d.Err(), d.Remaining())
				}
			}
			time.Sleep(20 * time.Second)
			for range 100 { // a refusal costs nothing
				d, err := l.Allow(t.Context(), "k")
				if err != nil || d.Allowed || d.RetryAfter != 40*time.Second || d.EarliestRetry != d.RetryAfter ||
					d.Reason != drawgate.Limited {
					t.Fatalf("%v, allowed %v after %v, %v", err, d.Allowed, d.RetryAfter, d.Reason)
				}
			}
			time.Sleep(40*time.Second - time.Microsecond)
			if d, _ := l.Allow(t.Context(), "k"); d.Allowed {
				t.Error("allowed too early")
			}
			time.Sleep(time.Microsecond)
			take(t, l, "k", 10)
			take(t, l, "other", 10)
		}
	})
}

// TestRefusalText: the error of a refusal names policy, limit and reset, and not the key.
// req: A6, C7, D1
func TestRefusalText(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := local(t, drawgate.Policy{Name: "gemini", Limits: []drawgate.Limit{
			{Name: "rpm", Kind: drawgate.Rolling, Window: time.Minute, Amount: 1000},
			{
				Name: "rpd", Kind: drawgate.Calendar, Every: drawgate.Day, Amount: 25,
				Headroom: drawgate.Share{Units: 1},
				Zone:     "America/Los_Angeles",
			},
		}})
		take(t, l, secret, 24)
		d, err := l.Allow(t.Context(), secret)
		if err != nil || d.Allowed {
			t.Fatal("request 25 of 25 with one of headroom:", err)
		}
		e, ok := errors.AsType[*drawgate.LimitedError](d.Err())
		// The bubble's clock starts on 2000-01-01 at midnight UTC, which is eight hours before that
		// of Los Angeles.
		if !ok || !errors.Is(d.Err(), drawgate.ErrLimited) || e.Policy != "gemini" || e.Limit != "rpd" ||
			e.RetryAfter != 8*time.Hour || e.Queued {
			t.Fatalf("%+v", e)
		}
		const want = `drawgate: rate limit exceeded: limit "rpd" of policy "gemini"; retry after 8h0m0s, resets at 2000-01-01T08:00:00Z`
		if got := d.Err().Error(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		time.Sleep(8 * time.Hour)
		take(t, l, secret, 24) // zero after midnight of its zone
	})
}

// TestCtxEnded asks nothing of the store.
func TestCtxEnded(t *testing.T) {
	t.Parallel()
	s := remote(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the user's own cause"))
	for _, l := range []*drawgate.Limiter{
		local(t, drawgate.PerMinute("minute", 10)),
		over(t, s, drawgate.PerMinute("minute", 10)),
	} {
		_, err := l.Allow(ctx, "k")
		wantErr(t, err, context.Canceled)
		_, err = l.Allow(ctx, "k", drawgate.Cost{N: 1})
		wantErr(t, err, context.Canceled)
		_, err = l.Wait(ctx, "k")
		wantErr(t, err, context.Canceled)
		_, err = l.Reserve(ctx, "k", time.Second)
		wantErr(t, err, context.Canceled)
		wantUsed(t, l, "k", 0)
	}
	if n := s.takes.Load(); n != 0 {
		t.Errorf("%d takes", n)
	}
}

// TestSeveralLimits: all pass or none is charged, and the refusal names the one that refuses
// longest. req: D1, D5
func TestSeveralLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := local(t, policy(
			of("requests", rolling(3, time.Minute)), of("tokens", leaky(1000, time.Hour, 1000)),
			drawgate.Limit{Name: "day", Kind: drawgate.Calendar, Every: drawgate.Day, Amount: 5},
			drawgate.Limit{Name: "week", Kind: drawgate.Calendar, Every: drawgate.Week, Amount: 6},
			drawgate.Limit{Name: "month", Kind: drawgate.Calendar, Every: drawgate.Month, Amount: 7},
		))
		ctx := t.Context()
		tokens := func(n int64) drawgate.Cost { return drawgate.Cost{Unit: "tokens", N: n} }
		if d, err := l.Allow(ctx, "k", tokens(900)); err != nil || !d.Allowed {
			t.Fatal(d.Err(), err)
		}
		d, err := l.Allow(ctx, "k", tokens(200))
		if r, ok := d.Refusing(); err != nil || !ok || r.Limit.Name != "tokens" || d.RetryAfter != 6*time.Minute {
			t.Errorf("%v, %v", d.Err(), err)
		}
		wantUsed(t, l, "k", 1, 900, 1, 1, 1)
		for range 2 {
			take(t, l, "k", 1)
		}
		d, _ = l.Allow(ctx, "k", drawgate.Cost{N: 3}, tokens(200))
		var refusing []string
		for r := range d.Limits() {
			if r.Refused() {
				refusing = append(refusing, r.Limit.Name)
			}
		}
		// 5 less 3 of the day: it refuses 3, and longest.
		if r, _ := d.Refusing(); strings.Join(refusing, " ") != "requests tokens day" || r.Limit.Name != "day" ||
			d.RetryAfter != 24*time.Hour {
			t.Errorf("%v refuse, longest %s for %v", refusing, r.Limit.Name, d.RetryAfter)
		}
		wantUsed(t, l, "k", 3, 900, 3, 3, 3)
		time.Sleep(time.Minute)
		wantUsed(t, l, "k", 0, 884, 3, 3, 3)
	})
}

// TestSeveralBuckets: all or nothing, over limiters made from each other. req: B4, D5
func TestSeveralBuckets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ip := local(t, drawgate.Policy{Name: "ip", Limits: []drawgate.Limit{leaky(10, time.Minute, 5)}})
		api := with(t, ip, drawgate.Policy{Name: "api", Limits: []drawgate.Limit{leaky(100, time.Minute, 8)}})
		request := func(who string) drawgate.Request {
			return drawgate.Request{Buckets: []drawgate.Ask{{Key: who}, api.Ask("all")}}
		}
		for range 5 {
			if d, _, err := ip.Take(t.Context(), request("a")); err != nil || !d.Allowed || d.Buckets() != 2 {
				t.Fatal(d.Err(), err)
			}
		}
		d, _, err := ip.Take(t.Context(), request("a"))
		r, _ := d.Refusing()
		if err != nil || d.Allowed || r.Bucket != 0 || r.Policy != "ip" || d.RetryAfter != 6*time.Second {
			t.Errorf("the caller's own limit: %v, %v, %+v", err, d.Err(), r)
		}
		for range 3 {
			if d, _, err := ip.Take(t.Context(), request("b")); err != nil || !d.Allowed {
				t.Fatal(d.Err(), err)
			}
		}
		d, _, _ = ip.Take(t.Context(), request("b"))
		r, _ = d.Refusing()
		if d.Allowed || r.Bucket != 1 || r.Policy != "api" || d.RetryAfter != 600*time.Millisecond {
			t.Errorf("everybody's limit: %v, %+v", d.Err(), r)
		}
		if tight, ok := d.Tightest(); !ok || tight.Policy != "api" || tight.Remaining != 0 || d.Remaining() != 0 {
			t.Errorf("tightest %+v", tight)
		}
		if !strings.Contains(d.Err().Error(), `policy "api"`) {
			t.Error(d.Err())
		}
		wantUsed(t, ip, "b", 3)
		wantUsed(t, api, "all", 8)
	})
}

// TestTenants share nothing, whatever their names are made of. req: E4
func TestTenants(t *testing.T) {
	t.Parallel()
	s := memory(t)
	var all []*drawgate.Limiter
	for _, tenant := range []string{"", "a", "a:p", "a:p:k"} {
		for _, name := range []string{"p", "p:k", "k"} {
			p := policy(rolling(1, time.Hour))
			p.Name = name
			l, err := drawgate.New(s, p, &drawgate.Options{Tenant: tenant})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, l)
		}
	}
	for _, l := range all {
		for _, key := range []string{"", "k", ":k", "p:k"} {
			take(t, l, key, 1)
		}
	}
	for _, l := range all {
		if d, _ := l.Allow(t.Context(), "k"); d.Allowed {
			t.Error("allowed twice")
		}
	}
}

// TestPriorityShare: a take below priority 7 sees a tenth less. req: B6
func TestPriorityShare(t *testing.T) {
	t.Parallel()
	l := local(t, policy(drawgate.Limit{
		Name: "rpm", Kind: drawgate.Rolling, Window: time.Minute, Amount: 11, Headroom: drawgate.Share{Units: 1},
		ReservedByPriority: map[int]drawgate.Share{7: {Percent: 10}},
	}))
	at := func(priority int) drawgate.Decision {
		d, _, err := l.Take(t.Context(), drawgate.Request{Buckets: []drawgate.Ask{l.Ask("k")}, Priority: priority})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	take(t, l, "k", 9)
	if d := at(6); d.Allowed || d.Remaining() != 0 {
		t.Error("priority 6 took what is kept for 7")
	}
	if st, _ := l.Ask("k").Status(t.Context(), 7); !st.Allowed || st.Remaining() != 1 || st.States[0].Max != 10 {
		t.Errorf("%+v", st)
	}
	if d := at(7); !d.Allowed {
		t.Error("priority 7 was refused what is kept for it")
	}
	if d := at(9); d.Allowed {
		t.Error("nobody takes the headroom")
	}
}

// TestStatusAndReset. req: B3, C9, D5
func TestStatusAndReset(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := local(t, policy(leaky(60, time.Minute, 30), of("tokens", rolling(100, time.Minute))))
		ctx := t.Context()
		st, err := l.Status(ctx, "k")
		if err != nil || !st.Allowed || st.States[0].Used != 0 || st.States[0].Max != 30 || st.Open != 0 {
			t.Fatalf("%+v, %v", st, err)
		}
		take(t, l, "k", 30)
		res, err := l.Reserve(ctx, "k", time.Minute, drawgate.Cost{N: 0}, drawgate.Cost{Unit: "tokens", N: 40})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond)
		for range 50 { // spends nothing
			st, err = l.Status(ctx, "k", drawgate.Cost{N: 2}, drawgate.Cost{Unit: "tokens", N: 70})
			if err != nil || st.Allowed || st.States[0].Used != 30 || st.States[1].Used != 40 || st.Open != 1 {
				t.Fatalf("%+v, %v", st, err)
			}
		}
		if st.RetryAfter != 59500*time.Millisecond || !st.At().Equal(time.Now()) {
			t.Errorf("retry after %v at %v", st.RetryAfter, st.At())
		}
		i, reset := 0, [...]time.Duration{29500 * time.Millisecond, 59500 * time.Millisecond}
		for r := range st.Limits() { // a bucket is refilled all the time, up to the instant of the answer
			if got := r.ResetAt().Sub(st.At()); got != reset[i] {
				t.Errorf("limit %d is unused after %v, want %v", i, got, reset[i])
			}
			i++
		}
		if st, err := l.Status(ctx, "k", drawgate.Cost{N: 31}); err != nil || st.RetryAfter != drawgate.Never {
			t.Errorf("never fits: %v, %v", st.RetryAfter, err)
		}
		if err := l.Reset(ctx, "k", "unknown"); err != nil {
			t.Fatal(err)
		}
		wantUsed(t, l, "k", 0, 0)
		wantErr(t, res.Settle(ctx), drawgate.ErrGone)
		wantUsed(t, l, "k", 0, 0)
	})
}

// TestHandle stands in for another limiter of one key.
func TestHandle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := local(t, drawgate.Rate("rate", 1, time.Second, 2)).Key("k")
		if got := [...]bool{h.Allow(), h.Allow(), h.Allow()}; got != [...]bool{true, true, false} {
			t.Errorf("the burst is 2: %v", got)
		}
		start := time.Now()
		if err := h.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		wantTook(t, start, time.Second, 10*time.Millisecond)
		s := remote(t)
		s.script(0, fails)
		if over(t, s, drawgate.PerMinute("minute", 1)).Key("k").Allow() {
			t.Error("allowed although nobody decided")
		}
	})
}

// TestAllowSaysWhatStatusSays: a take that is decided in the caller's process, even one whose
// bucket is a single word, is described as the store describes it.
func TestAllowSaysWhatStatusSays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(nil)
		day := drawgate.Limit{Name: "hour", Unit: "days", Kind: drawgate.Calendar, Amount: 30, Every: drawgate.Hour}
		for i, limits := range [][]drawgate.Limit{
			{leaky(10, time.Minute, 7)},
			{rolling(10, time.Minute)},
			{leaky(10, time.Minute, 7), day},
		} {
			lim, err := drawgate.New(s, drawgate.Policy{Name: fmt.Sprint("p", i), Limits: limits}, nil)
			if err != nil {
				t.Fatal(err)
			}
			for step := range 60 {
				costs := []drawgate.Cost{drawgate.Requests(int64(step*5%4 + 1))}
				if len(limits) > 1 {
					costs = append(costs, drawgate.Units("days", 1))
				}
				st, err := lim.Status(t.Context(), "k", costs...)
				if err != nil {
					t.Fatal(err)
				}
				d, err := lim.Allow(t.Context(), "k", costs...)
				if err != nil {
					t.Fatal(err)
				}
				if d.Allowed != st.Allowed || d.RetryAfter != st.RetryAfter || d.Reason != st.Reason ||
					!d.At().Equal(st.At()) {
					t.Fatalf("policy %d, step %d: the status says %+v, the take %+v", i, step, st.Decision, d)
				}
				was, is := slices.Collect(st.Limits()), slices.Collect(d.Limits())
				if !d.Allowed && fmt.Sprint(was) != fmt.Sprint(is) {
					t.Fatalf("policy %d, step %d: the status says %+v, the take %+v", i, step, was, is)
				}
				time.Sleep(4 * time.Second)
			}
		}
	})
}
