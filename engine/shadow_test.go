package engine_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/engine/rules"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/memstore"
)

// inShadow is a rule of the same sort in shadow.
func inShadow(r rules.Rule) rules.Rule {
	r.Shadow = true
	return r
}

// counter counts divergences by policy and way.
type counter struct {
	mu   sync.Mutex
	seen map[string]int // guarded by mu
}

func (c *counter) diverged(d *engine.Divergence) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == nil {
		c.seen = map[string]int{}
	}
	c.seen[d.Policy+" "+d.RuleName+" "+d.Way]++
}

func (c *counter) of(policy, rule, way string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen[policy+" "+rule+" "+way]
}

// TestShadowsAreReportedBothWays and never enforced; what is enforced later goes on with what the
// shadow counted.
// req: E9.
func TestShadowsAreReportedBothWays(t *testing.T) {
	t.Parallel()
	var c counter
	strict := perDay("strict", 2)
	strict.Shadow = true
	config := engine.Config{
		Policies: policies(perDay("real", 4), strict),
		Rules:    []rules.Rule{by("both", "real", "user", "strict", "user")},
	}
	e := newEngine(t, config, &engine.Options{Diverged: c.diverged})
	for i, want := range []struct {
		allowed bool
		shadow  bool
		way     string
	}{
		{true, true, ""},
		{true, true, ""},
		{true, false, engine.WouldRefuse},
		{true, false, engine.WouldRefuse},
		{false, false, ""},
	} {
		res := take(t, e, from("u"))
		s := res.Shadow[0]
		if res.Decision.Allowed != want.allowed || res.Decision.Buckets() != 1 || s.Allowed != want.shadow ||
			s.Divergence != want.way || s.Policy != "strict" || s.RuleName != "both" {
			t.Errorf("take %d: allowed %v, shadow %+v", i, res.Decision.Allowed, s)
		}
		if !res.Applied[1].Shadow || res.Applied[1].Bucket != -1 || res.Applied[0].Shadow {
			t.Errorf("applied %+v", res.Applied)
		}
	}
	if got := c.of("strict", "both", engine.WouldRefuse); got != 2 {
		t.Errorf("%d divergences, want 2", got)
	}

	config.Policies[0].Limits[0].Amount, config.Policies[1].Limits[0].Amount = 1, 6
	if err := e.Replace(config); err != nil {
		t.Fatal(err)
	}
	if res := take(t, e, from("u")); res.Decision.Allowed || !res.Shadow[0].Allowed ||
		res.Shadow[0].Divergence != engine.WouldAllow {
		t.Errorf("the shadow would allow: %+v", res.Shadow[0])
	}
	if got := c.of("strict", "both", engine.WouldAllow); got != 1 {
		t.Errorf("%d divergences, want 1", got)
	}

	config.Policies = policies(config.Policies[1])
	config.Policies[0].Shadow = false
	config.Rules = []rules.Rule{by("both", "strict", "user")}
	if err := e.Replace(config); err != nil {
		t.Fatal(err)
	}
	if got := admitted(t, e, from("u"), 9); got != 3 {
		t.Errorf("enforced, it admits %d of 6 more, want 3: the shadow counted 3", got)
	}
}

// TestRulesInShadowHaveBucketsOfTheirOwn: the policy is enforced by one rule and tried by another.
// req: E9.
func TestRulesInShadowHaveBucketsOfTheirOwn(t *testing.T) {
	t.Parallel()
	trial := inShadow(by("trial", "p", `"global"`))
	trial.Apply[0].Amounts = map[string]int64{"day": 3}
	p := perDay("p", 2)
	p.Overrides = []engine.Override{{Key: "vip", Amounts: map[string]int64{"day": 5}}}
	e := newEngine(t, engine.Config{Policies: policies(p), Rules: []rules.Rule{trial, by("real", "p", "user")}}, nil)
	for _, user := range []string{"a", "b", "vip"} {
		if got := admitted(t, e, from(user), 2); got != 2 {
			t.Errorf("%s: %d admitted, want 2", user, got)
		}
	}
	res := take(t, e, from("vip"))
	if s := res.Shadow[0]; !res.Decision.Allowed || s.Allowed || s.Divergence != engine.WouldRefuse ||
		s.RuleName != "trial" {
		t.Errorf("the trial has seen 3 of 3: %+v", s)
	}
	if got := left(t, e, "p", "global"); got != 2 {
		t.Errorf("the policy's own bucket of that key has %d left, want 2", got)
	}
}

// TestPeers1RefusalsAndShadowsSpendNothing: what one policy refuses spends nothing of the others,
// for many callers at once; and a shadow over its limit takes nothing away from what is enforced.
func TestPeers1RefusalsAndShadowsSpendNothing(t *testing.T) {
	t.Parallel()
	try := perDay("try", 1)
	try.Shadow = true
	e := newEngine(t, engine.Config{
		Policies: policies(perDay("own", 10), perDay("shared", 100), try),
		Rules:    []rules.Rule{by("r", "try", `"global"`, "own", "user", "shared", `"global"`)},
	}, nil)
	var allowed, refusing, wouldRefuse atomic.Int64
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 100 {
				res, err := e.Take(t.Context(), from(string(rune('a'+i/2))))
				if err != nil {
					t.Error(err)
					return
				}
				if res.Decision.Allowed {
					allowed.Add(1)
				} else if r, _ := res.Decision.Refusing(); r.Policy == "own" {
					refusing.Add(1)
				}
				if res.Shadow[0].Divergence == engine.WouldRefuse {
					wouldRefuse.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if allowed.Load() != 40 || refusing.Load() != 760 {
		t.Errorf("%d allowed, want 4 users' 10; %d refused by their own limit, want 760", allowed.Load(),
			refusing.Load())
	}
	if got := left(t, e, "shared", "global"); got != 60 {
		t.Errorf("the shared bucket has %d left, want 60: 760 refusals are free", got)
	}
	if got := wouldRefuse.Load(); got < 39 || got > 40 {
		t.Errorf("the shadow would have refused %d of the 40", got)
	}
}

// TestObserversSeeWhatIsEnforced: a shadow's refusal is no refusal. Store calls are told all the
// same.
func TestObserversSeeWhatIsEnforced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var taken, refused, settled, called atomic.Int64
		e := overIO(t, &faulty{}, shadowed(), &engine.Options{Observer: &drawgate.Observer{
			Taken: func(x *drawgate.Taken) {
				taken.Add(1)
				if !x.Decision.Allowed {
					refused.Add(1)
				}
			},
			Settled: func(*drawgate.Settled) { settled.Add(1) },
			Called:  func(*drawgate.StoreCall) { called.Add(1) },
		}})
		defer e.Close()
		take(t, e, from("u"))
		if res := take(t, e, from("u")); res.Shadow[0].Divergence != engine.WouldRefuse {
			t.Errorf("%+v", res.Shadow)
		}
		if taken.Load() != 2 || refused.Load() != 0 || settled.Load() != 0 || called.Load() != 4 {
			t.Errorf("%d takes, %d of them refused, %d settled, %d store calls; want 2, 0, 0, 4", taken.Load(),
				refused.Load(), settled.Load(), called.Load())
		}
	})
}

// TestShadowsThatCannotBeAsked change nothing: a cost that never fits would be refused, slots
// without a hold are not known.
func TestShadowsThatCannotBeAsked(t *testing.T) {
	t.Parallel()
	small, s, other := perDay("small", 2), slots("slots", 1), perDay("other", 9)
	small.Shadow, s.Shadow, other.Shadow = true, true, true
	e := newEngine(t, engine.Config{
		Policies: policies(perDay("p", 100), small, s, other),
		Rules:    []rules.Rule{by("r", "p", "user", "small", "user", "slots", "user", "other", "user")},
	}, nil)
	r := from("u")
	r.Costs = []drawgate.Cost{{N: 5}}
	res := take(t, e, r)
	if !res.Decision.Allowed || res.Shadow[0].Allowed || res.Shadow[0].Divergence != engine.WouldRefuse ||
		res.Shadow[0].Err != nil {
		t.Errorf("never fits: %+v", res.Shadow[0])
	}
	if !errors.Is(res.Shadow[1].Err, drawgate.ErrNeedsReserve) || res.Shadow[1].Divergence != engine.Same {
		t.Errorf("slots: %+v", res.Shadow[1])
	}
	if !res.Shadow[2].Allowed || res.Shadow[2].Divergence != engine.Same {
		t.Errorf("beside: %+v", res.Shadow[2])
	}
}

// TestShadowsOfHolds are held and settled with what is enforced.
func TestShadowsOfHolds(t *testing.T) {
	t.Parallel()
	s := slots("slots", 1)
	s.Shadow = true
	tokens := engine.Policy{Shadow: true, Policy: drawgate.Policy{Name: "tokens", Limits: []drawgate.Limit{
		{Name: "tpd", Unit: "tokens", Kind: drawgate.Rolling, Window: 24 * time.Hour, Amount: 100},
	}}}
	e := newEngine(t, engine.Config{
		Policies: policies(perDay("p", 100), s, tokens),
		Rules:    []rules.Rule{by("r", "p", "user", "slots", "user", "tokens", "user")},
	}, nil)
	r := from("u")
	r.Hold, r.Costs = time.Minute, []drawgate.Cost{{Unit: "tokens", N: 60}}
	a := take(t, e, r)
	if b := take(t, e, r); !b.Decision.Allowed || b.Shadow[0].Allowed || b.Shadow[1].Allowed ||
		b.Shadow[0].Divergence != engine.WouldRefuse || b.Cancel(t.Context()) != nil {
		t.Errorf("the slot and the tokens are held: %+v", b.Shadow)
	}
	if err := a.Renew(t.Context(), 2*time.Minute); err != nil {
		t.Error(err)
	}
	if err := a.Settle(t.Context(), drawgate.Cost{Unit: "tokens", N: 30}); err != nil {
		t.Errorf("settled with what only a shadow counts: %v", err)
	}
	c := take(t, e, r)
	if !c.Shadow[0].Allowed || !c.Shadow[1].Allowed {
		t.Errorf("settled: %+v", c.Shadow)
	}
	if err := c.Settle(t.Context(), drawgate.Cost{Unit: "tokenz"}); !errors.Is(err, drawgate.ErrUnknownUnit) {
		t.Errorf("a unit of nobody: %v", err)
	}
}

// faulty is a store that does I/O, and fails or stalls where a shadow is taken.
type faulty struct {
	drawgate.Store
	fail  error         // for shadows
	stall chan struct{} // not nil: shadows wait for it, or for their context
}

func (f *faulty) Take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	if strings.Contains(batch[0].Buckets[0].Key.Policy, "shadow") {
		if f.stall != nil {
			select {
			case <-f.stall:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if f.fail != nil {
			return f.fail
		}
	}
	return f.Store.Take(ctx, batch, out)
}

// overIO returns an engine over a store that is not asked directly.
func overIO(t *testing.T, f *faulty, c engine.Config, opts *engine.Options) *engine.Engine {
	t.Helper()
	f.Store = memstore.New(nil)
	e, err := engine.New(f, c, opts)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func shadowed() engine.Config {
	try := perDay("shadow", 1)
	try.Shadow = true
	return engine.Config{
		Policies: policies(perDay("p", 2), try),
		Rules:    []rules.Rule{by("r", "p", "user", "shadow", "user")},
	}
}

// TestShadowsOverIO are asked beside what is enforced.
func TestShadowsOverIO(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := overIO(t, &faulty{}, shadowed(), nil)
		defer e.Close()
		for i, want := range []string{engine.Same, engine.WouldRefuse, engine.Same} {
			res := take(t, e, from("u"))
			if res.Decision.Allowed != (i < 2) || res.Shadow[0].Divergence != want || res.Shadow[0].Err != nil {
				t.Errorf("%d: allowed %v, shadow %+v", i, res.Decision.Allowed, res.Shadow[0])
			}
		}
	})
}

// TestFailingShadowsDisturbNothing: the answer is the same, and at most a few milliseconds later.
func TestFailingShadowsDisturbNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{fail: errors.New("broken")}
		e := overIO(t, f, shadowed(), nil)
		defer e.Close()
		if res := take(t, e, from("u")); !res.Decision.Allowed ||
			!errors.Is(res.Shadow[0].Err, drawgate.ErrStoreUnavailable) || res.Shadow[0].Divergence != engine.Same {
			t.Errorf("failing: %+v", res)
		}
		f.fail, f.stall = nil, make(chan struct{})
		start := time.Now()
		res := take(t, e, from("u"))
		if took := time.Since(start); !res.Decision.Allowed || res.Shadow[0].Err == nil || took > 5*time.Millisecond {
			t.Errorf("stalled: %+v after %v", res.Shadow[0], took)
		}
		for range 1000 { // no more are stuck than may be
			res = take(t, e, from("u"))
		}
		if res.Decision.Allowed || res.Shadow[0].Err == nil {
			t.Errorf("many: %+v", res)
		}
	})
}

// TestAnswersWaitForTheirShadows for as long as was said.
func TestAnswersWaitForTheirShadows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{stall: make(chan struct{})}
		e := overIO(t, f, shadowed(), &engine.Options{StoreTimeout: time.Second, ShadowGrace: time.Second})
		defer e.Close()
		time.AfterFunc(500*time.Millisecond, func() { close(f.stall) })
		if res := take(t, e, from("u")); !res.Decision.Allowed || res.Shadow[0].Err != nil || !res.Shadow[0].Allowed {
			t.Errorf("%+v", res.Shadow[0])
		}
	})
}

// TestClosedEnginesHaveNoShadows: Close waits for those under way.
func TestClosedEnginesHaveNoShadows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{stall: make(chan struct{})}
		e := overIO(t, f, shadowed(), nil)
		take(t, e, from("u"))
		start := time.Now()
		e.Close()
		if took := time.Since(start); took > 50*time.Millisecond {
			t.Errorf("closed after %v", took)
		}
		res, err := e.Take(t.Context(), from("u"))
		if !errors.Is(err, drawgate.ErrClosed) || res.Decision.Allowed {
			t.Errorf("%+v, %v", res, err)
		}
	})
}

// strict checks that takes of the policy "strict" ask what their key says.
type strict struct {
	drawgate.Store
	t *testing.T
}

func (s *strict) Take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	if b := &batch[0].Buckets[0]; b.Key.Policy == "strict" && strconv.FormatInt(b.N[0], 10) != b.Key.Name {
		s.t.Errorf("the shadow of %s was asked for %d", b.Key.Name, b.N[0])
	}
	return s.Store.Take(ctx, batch, out)
}

// TestLateShadows ask for what was asked, though the answer is out by then and the next take uses
// the same memory.
func TestLateShadows(t *testing.T) {
	t.Parallel()
	shadow := perDay("strict", 1e9)
	shadow.Shadow = true
	store := memstore.New(nil)
	defer store.Close()
	c := engine.Config{
		Policies: policies(perDay("real", 1e9), shadow),
		Rules:    []rules.Rule{by("both", "real", "user", "strict", "user")},
	}
	e, err := engine.New(&strict{store, t}, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			r := from(strconv.Itoa(g + 1))
			r.Costs = []drawgate.Cost{{N: int64(g + 1)}}
			for range 200 {
				if _, err := e.Take(t.Context(), r); err != nil && !errors.Is(err, drawgate.ErrStoreUnavailable) &&
					!errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}
