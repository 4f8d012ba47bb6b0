package drawgate_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
)

// TestBadLimits: a mistake is reported when a policy is compiled, with the limit, what is wrong and
// what would be right. req: B11
func TestBadLimits(t *testing.T) {
	t.Parallel()
	rolling := drawgate.Limit{Name: "l", Kind: drawgate.Rolling, Window: time.Minute, Amount: 10}
	bucket := drawgate.Limit{Name: "l", Kind: drawgate.Bucket, Window: time.Minute, Amount: 10}
	calendar := drawgate.Limit{Name: "l", Kind: drawgate.Calendar, Every: drawgate.Month, Amount: 10}
	held := drawgate.Limit{Name: "l", Kind: drawgate.Concurrency, Amount: 10}
	for _, c := range []struct {
		limit  drawgate.Limit
		change func(l *drawgate.Limit)
		text   string
	}{
		{rolling, func(l *drawgate.Limit) { l.Name = "" }, `name "" is not 1 to 64 letters`},
		{rolling, func(l *drawgate.Limit) { l.Name = strings.Repeat("x", 65) }, "is not 1 to 64 letters"},
		{
			rolling, func(l *drawgate.Limit) { l.Name = "a b" },
			`name "a b" is not 1 to 64 letters, digits, '.', '-' or '_'`,
		},
		{rolling, func(l *drawgate.Limit) { l.Unit = "€" }, `unit "€" is not`},
		{rolling, func(l *drawgate.Limit) { l.Kind = 0 }, "the kind is missing"},
		{rolling, func(l *drawgate.Limit) { l.Kind = 9 }, "the kind is missing"},
		{rolling, func(l *drawgate.Limit) { l.Window = 0 }, "window 0s is not between 1ms and 8784h0m0s"},
		{rolling, func(l *drawgate.Limit) { l.Window = time.Millisecond + 1 }, "in whole microseconds"},
		{rolling, func(l *drawgate.Limit) { l.Window = store.MaxWindow + time.Second }, "is not between"},
		{rolling, func(l *drawgate.Limit) { l.Amount = -1 }, "amount -1 is not between 0 and 1000000000000"},
		{rolling, func(l *drawgate.Limit) { l.Amount = drawgate.MaxAmount + 1 }, "amount 1000000000001 is not"},
		{rolling, func(l *drawgate.Limit) { l.Burst = 1 }, "only a bucket limit has one"},
		{
			rolling, func(l *drawgate.Limit) { l.Every = drawgate.Day },
			"every, zone and anchor are for calendar limits, not for a rolling limit",
		},
		{
			rolling, func(l *drawgate.Limit) { l.Precision = 99 },
			"precision 99 is invalid: use exact, or a number between 100 and 10000",
		},
		{rolling, func(l *drawgate.Limit) { l.Precision = -2 }, "precision -2"},
		{rolling, func(l *drawgate.Limit) { l.Margin = -1 }, "margin -1ns is not between 0 and 30s"},
		{rolling, func(l *drawgate.Limit) { l.Margin = 31 * time.Second }, "margin 31s is not between 0 and 30s"},
		{rolling, func(l *drawgate.Limit) { l.Headroom.Units = 10 }, "amount 10 minus headroom 10 leaves less than 1"},
		{rolling, func(l *drawgate.Limit) { l.Headroom.Units = -1 }, "headroom: -1 is not between 0 and 100%"},
		{rolling, func(l *drawgate.Limit) { l.Headroom.Percent = 100 }, "headroom: 100% is not between 0 and 100%"},
		{rolling, func(l *drawgate.Limit) { l.Headroom.Percent = math.NaN() }, "headroom: NaN% is not between"},
		{
			rolling, func(l *drawgate.Limit) { l.Headroom.Percent, l.Headroom.Units = 5, 5 },
			"both 5 units and 5% are given",
		},
		{
			rolling, func(l *drawgate.Limit) { l.Headroom.Percent = 99 },
			"amount 10 minus headroom 99% leaves less than 1",
		},
		{
			rolling, func(l *drawgate.Limit) { l.ReservedByPriority = map[int]drawgate.Share{0: {Units: 1}} },
			"keep: priority 0 is not between 1 and 9",
		},
		{
			rolling, func(l *drawgate.Limit) { l.ReservedByPriority = map[int]drawgate.Share{10: {Units: 1}} },
			"keep: priority 10",
		},
		{
			rolling, func(l *drawgate.Limit) { l.ReservedByPriority = map[int]drawgate.Share{5: {Units: -1}} },
			"keep: -1 is not",
		},
		{bucket, func(l *drawgate.Limit) { l.Burst = -1 }, "burst -1 is invalid: it must be between 0 and"},
		{bucket, func(l *drawgate.Limit) { l.Precision = 128 }, "precision is for rolling limits"},
		{
			bucket, func(l *drawgate.Limit) { l.Burst, l.Margin = 2, 12*time.Second },
			"burst 2 minus headroom 0 and 2 units for the margin 12s leaves less than 1",
		},
		{
			bucket, func(l *drawgate.Limit) { l.Amount, l.Window, l.Burst = 999_983, 366*24*time.Hour, 1_000_000 },
			"is too fine to be counted exactly: choose a window that 999983 divides",
		},
		{calendar, func(l *drawgate.Limit) { l.Every = 0 }, ""},
		{calendar, func(l *drawgate.Limit) { l.Zone = "Mars/Olympus" }, "Mars/Olympus"},
		{calendar, func(l *drawgate.Limit) { l.Anchor = 32 }, "32"},
		{calendar, func(l *drawgate.Limit) { l.Window = time.Hour }, "a calendar limit has no window of its own"},
		{held, func(l *drawgate.Limit) { l.Window = time.Hour }, "a concurrency limit has no window of its own"},
	} {
		good := policy(c.limit)
		if _, err := good.Compile(); err != nil {
			t.Fatal(err)
		}
		l := c.limit
		c.change(&l)
		_, err := policy(l).Compile()
		e, ok := errors.AsType[*drawgate.LimitError](err)
		if !ok || !strings.Contains(err.Error(), c.text) || !strings.HasPrefix(err.Error(),
			`drawgate: policy "p", limit 1 (`) || e.Index != 0 || e.Limit != l.Name {
			t.Errorf("%v does not say %q", err, c.text)
		}
	}
}

// TestBadPolicies: all mistakes are reported together.
func TestBadPolicies(t *testing.T) {
	t.Parallel()
	l := rolling(1, time.Minute)
	for _, c := range []struct {
		policy drawgate.Policy
		text   string
	}{
		{drawgate.Policy{Limits: []drawgate.Limit{l}}, "a policy needs a name of at most 128 bytes"},
		{drawgate.Policy{Name: strings.Repeat("x", 129), Limits: []drawgate.Limit{l}}, "a policy needs a name"},
		{policy(), `policy "p" has 0 limits, not 1 to 6`},
		{policy(l, l, l, l, l, l, l), "has 7 limits, not 1 to 6"},
		{policy(l, l), `limit 2 ("rolling"): the name is used twice in this policy`},
		{
			drawgate.Policy{Name: "p", Limits: []drawgate.Limit{l}, Wait: drawgate.Wait{MaxWait: -1}},
			"must not be negative",
		},
		{
			drawgate.Policy{Name: "p", Limits: []drawgate.Limit{l}, Wait: drawgate.Wait{Queue: -1}},
			"must not be negative",
		},
		{drawgate.Policy{
			Name: "p", Limits: []drawgate.Limit{l},
			Wait: drawgate.Wait{Backoff: make([]time.Duration, 33)},
		}, "at most 32 steps"},
		{
			drawgate.Policy{Name: "p", Limits: []drawgate.Limit{l}, Wait: drawgate.Wait{Backoff: []time.Duration{0}}},
			"backoff 0s is not between 1ms and 24h",
		},
	} {
		if _, err := c.policy.Compile(); err == nil || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%v does not say %q", err, c.text)
		}
	}
	_, err := drawgate.Policy{Limits: []drawgate.Limit{{Name: "a"}, l, {Name: "b"}}}.Compile()
	for _, text := range []string{"a policy needs a name", `limit 1 ("a")`, `limit 3 ("b")`} {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v does not say %q", err, text)
		}
	}
}

// TestMargins of safety: what remains of the documents' limits. req: A6, C2
func TestMargins(t *testing.T) {
	t.Parallel()
	fifth := drawgate.Share{Percent: 20}
	for _, c := range []struct {
		amount int64
		head   drawgate.Share
		want   int64
	}{
		// rounded up
		{10, fifth, 8},
		{250, fifth, 200},
		{5, fifth, 4},
		{100, fifth, 80},
		{25, drawgate.Share{Units: 1}, 24},
		{7, fifth, 5},
		{250_000, drawgate.Share{Percent: 5}, 237_500},
		{
			drawgate.MaxAmount,
			drawgate.Share{Percent: 0.0001},
			999_999_000_000,
		},
	} {
		l := local(t, policy(drawgate.Limit{
			Name: "l", Kind: drawgate.Rolling, Window: time.Minute, Amount: c.amount,
			Headroom: c.head,
		}))
		st, err := l.Status(t.Context(), "k")
		if err != nil || st.States[0].Max != c.want || st.Remaining() != c.want {
			t.Errorf("%d less %v: %d, %v, want %d", c.amount, c.head, st.States[0].Max, err, c.want)
		}
	}
	if got := fmt.Sprint(fifth, drawgate.Share{Units: 3}, drawgate.Share{Percent: 12.5}); got != "20% 3 12.5%" {
		t.Error(got)
	}
}

// TestUnits: requests cost 1 where they are not named, everything else 0; what is known only
// afterwards is charged at the end.
func TestUnits(t *testing.T) {
	t.Parallel()
	plan, err := policy(rolling(10, time.Minute), of("tokens", rolling(10, time.Minute)),
		of("output_tokens", rolling(10, time.Minute))).Compile()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		costs []drawgate.Cost
		want  store.Amounts
	}{
		{nil, store.Amounts{1}},
		{[]drawgate.Cost{tokens(5)}, store.Amounts{1, 5}},
		{[]drawgate.Cost{{N: 0}, tokens(5), tokens(6)}, store.Amounts{0, 11}},
		{[]drawgate.Cost{{Unit: drawgate.UnitRequests, N: 3}, {N: 4}}, store.Amounts{7}},
	} {
		if got, err := plan.Amounts(c.costs); err != nil || got != c.want {
			t.Errorf("%v: %v, %v, want %v", c.costs, got, err, c.want)
		}
	}
	if got, err := plan.Actual([]drawgate.Cost{tokens(0)}); err != nil ||
		got != (store.Amounts{store.KeepEstimate, 0, store.KeepEstimate}) {
		t.Errorf("%v, %v; units that are not named keep their estimate", got, err)
	}
	if plan.NeedsHold() || plan.Name() != "p" || len(plan.Policy().Limits) != 3 {
		t.Errorf("%+v", plan.Policy())
	}
	for unit, end := range map[string]bool{
		"": false, "tokens": false, "input_tokens": false, "output_tokens": true,
		"usd_micros": true, "eur": true, "usdc": false,
	} {
		l := rolling(10, time.Minute)
		l.Unit = unit
		if s, err := specOf(l); err != nil || s.ChargeEnd != end {
			t.Errorf("%q is charged at the end: %v, %v", unit, s.ChargeEnd, err)
		}
	}
}

// specOf returns a limit as the arithmetic has it.
func specOf(l drawgate.Limit) (record.Spec, error) {
	plan, err := policy(l).Compile()
	if err != nil {
		return record.Spec{}, err
	}
	return store.Internal.Specs(plan.Plan, false)[0], nil
}

// TestIdentity: what may change keeps the state, what makes another limit does not.
func TestIdentity(t *testing.T) {
	t.Parallel()
	base := drawgate.Limit{Name: "l", Kind: drawgate.Calendar, Every: drawgate.Month, Amount: 10}
	id := func(change func(l *drawgate.Limit)) uint64 {
		l := base
		change(&l)
		s, err := specOf(l)
		if err != nil {
			t.Fatal(err)
		}
		return s.ID
	}
	same := id(func(*drawgate.Limit) {})
	for i, change := range []func(l *drawgate.Limit){
		func(l *drawgate.Limit) { l.Amount = 20 }, func(l *drawgate.Limit) { l.Headroom.Units = 1 },
		func(l *drawgate.Limit) { l.Charge = drawgate.ChargeEnd },
		func(l *drawgate.Limit) { l.Margin = time.Second },
		func(l *drawgate.Limit) { l.ReservedByPriority = map[int]drawgate.Share{5: {Units: 1}} },
		func(l *drawgate.Limit) { l.Zone = "UTC" }, func(l *drawgate.Limit) { l.Anchor = 1 },
		func(l *drawgate.Limit) { l.Unit = drawgate.UnitRequests },
	} {
		if id(change) != same {
			t.Errorf("change %d makes another limit", i)
		}
	}
	for i, change := range []func(l *drawgate.Limit){
		func(l *drawgate.Limit) { l.Name = "m" }, func(l *drawgate.Limit) { l.Unit = "tokens" },
		func(l *drawgate.Limit) { l.Every = drawgate.Day },
		func(l *drawgate.Limit) { l.Zone = "Europe/Berlin" }, func(l *drawgate.Limit) { l.Anchor = 2 },
		func(l *drawgate.Limit) { l.Kind, l.Every, l.Window = drawgate.Rolling, 0, time.Hour },
		func(l *drawgate.Limit) { l.Kind, l.Every = drawgate.Concurrency, 0 },
	} {
		if id(change) == same {
			t.Errorf("change %d is no other limit", i)
		}
	}
}

// TestPresetsOfTwoNamesShareNothing on one store, whatever their windows; those of one name share a
// bucket, even if their amounts differ.
func TestPresetsOfTwoNamesShareNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memory(t)
		for name, preset := range map[string]func(name string, n int64) drawgate.Policy{
			"second": drawgate.PerSecond, "minute": drawgate.PerMinute, "hour": drawgate.PerHour,
			"day":  drawgate.PerDay,
			"rate": func(name string, n int64) drawgate.Policy { return drawgate.Rate(name, n, time.Hour, n) },
		} {
			if _, err := drawgate.New(s, preset("", 5), nil); err == nil ||
				!strings.Contains(err.Error(), "needs a name") {
				t.Errorf("%s without a name: %v", name, err)
			}
			login, search, more := over(t, s, preset("login-"+name, 5)), over(t, s, preset("search-"+name, 100)),
				over(t, s, preset("login-"+name, 9))
			if d, err := login.Allow(t.Context(), "ann", drawgate.Cost{N: 5}); err != nil || !d.Allowed {
				t.Fatalf("%s: %+v, %v", name, d, err)
			}
			wantUsed(t, login, "ann", 5)
			wantUsed(t, search, "ann", 0)
			wantUsed(t, more, "ann", 5)
		}
	})
}

// TestAmountOfZero lets nothing pass that asks for a unit of it, and says so at once.
func TestAmountOfZero(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, none := range []drawgate.Limit{
			drawgate.RollingLimit("none", 0, time.Minute), drawgate.BucketLimit("none", 0, time.Minute, 5),
			drawgate.CalendarLimit("none", 0, drawgate.Day, ""),
			drawgate.RollingLimit("none", 0, time.Minute).WithHeadroom(drawgate.Percent(20)),
			drawgate.ConcurrencyLimit("none", 0),
		} {
			none = none.Of("tokens")
			l := local(t, policy(rolling(10, time.Hour), none))
			start := time.Now()
			hold := drawgate.Hold{For: time.Minute}
			for _, wait := range []bool{false, true} {
				_, _, err := l.Take(t.Context(), drawgate.Request{
					Buckets: []drawgate.Ask{l.Ask("k", tokens(1))},
					Wait:    wait, Hold: hold,
				})
				wantErr(t, err, drawgate.ErrNeverFits)
			}
			wantTook(t, start, 0, 0)
			if _, _, err := l.Take(t.Context(), drawgate.Request{
				Buckets: []drawgate.Ask{l.Ask("k")},
				Hold:    hold,
			}); err != nil {
				t.Errorf("%s: got %v for a take of no token, want it to pass", none.Kind, err)
			}
			st, err := l.Status(t.Context(), "k", tokens(1))
			if err != nil || st.Allowed || st.RetryAfter != drawgate.Never {
				t.Errorf("%s: got %v, %v after %v, want a refusal for ever", none.Kind, err, st.Allowed, st.RetryAfter)
			}
			if r, ok := st.Tightest(); !ok || r.Limit.Name != "none" || r.Max != 0 || r.Part() != 0 {
				t.Errorf("%s: got %+v as the tightest limit", none.Kind, r)
			}
		}
	})
}

// TestMaxOfALimit is what takes of the decision's priority may use; Quota is what callers are told.
func TestMaxOfALimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		share := drawgate.RollingLimit("rolling", 100, time.Hour).WithHeadroom(drawgate.Percent(10))
		share.ReservedByPriority = map[int]drawgate.Share{5: {Units: 20}}
		many := policy(share, drawgate.BucketLimit("bucket", 60, time.Hour, 7),
			drawgate.CalendarLimit("day", 50, drawgate.Day, ""), drawgate.RollingLimit("last", 40, time.Hour))
		for name, l := range map[string]*drawgate.Limiter{
			"in memory": local(t, many),
			"away":      over(t, remote(t), many),
		} {
			for priority, first := range map[int]int64{0: 70, 4: 70, 5: 90, 9: 90} {
				d, _, err := l.Take(t.Context(), drawgate.Request{
					Buckets:  []drawgate.Ask{l.Ask("k")},
					Priority: priority,
				})
				if err != nil {
					t.Fatal(err)
				}
				st, err := l.Ask("k").Status(t.Context(), priority)
				if err != nil {
					t.Fatal(err)
				}
				for what, d := range map[string]*drawgate.Decision{"take": &d, "status": &st.Decision} {
					want := []int64{first, 7, 50, 40}
					for r := range d.Limits() {
						if r.Max != want[0] {
							t.Errorf("%s, %s at priority %d: got at most %d of %s, want %d", name, what, priority,
								r.Max, r.Limit.Name, want[0])
						}
						want = want[1:]
					}
				}
				want := [][2]int64{{90, 90}, {60, 7}, {50, 50}, {40, 40}}
				for r := range d.Limits() {
					if per, once := r.Quota(); per != want[0][0] || once != want[0][1] {
						t.Errorf("%s: got a quota of %d and %d of %s, want %v", name, per, once, r.Limit.Name, want[0])
					}
					want = want[1:]
				}
			}
		}
		one := local(t, policy(func() drawgate.Limit {
			l := leaky(60, time.Hour, 10)
			l.ReservedByPriority = map[int]drawgate.Share{5: {Units: 4}}
			return l
		}()))
		d, _, err := one.Take(t.Context(), drawgate.Request{Buckets: []drawgate.Ask{one.Ask("k")}, Priority: 7})
		if r, _ := d.Tightest(); err != nil || r.Max != 10 {
			t.Errorf("got at most %d of a single bucket at priority 7, %v, want 10", r.Max, err)
		}
		if d, err = one.Allow(t.Context(), "k"); err != nil || d.Buckets() != 1 {
			t.Fatal(err)
		}
		if r, _ := d.Tightest(); r.Max != 6 {
			t.Errorf("got at most %d of a single bucket, want 6", r.Max)
		}
	})
}
