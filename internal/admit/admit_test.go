package admit_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/engine/rules"
	"github.com/drawgate/drawgate/internal/admit"
	"github.com/drawgate/drawgate/store/memstore"
)

// rolling returns a limit of n requests a minute.
func rolling(n int64) drawgate.Limit {
	return drawgate.Limit{
		Name: "rpm", Kind: drawgate.Rolling, Window: time.Minute, Amount: n,
		Precision: drawgate.Exact,
	}
}

// slots returns a limit of n requests at once.
func slots(n int64) drawgate.Limit {
	return drawgate.Limit{Name: "slots", Kind: drawgate.Concurrency, Amount: n}
}

// byRules decides by a policy "real" and, in shadow, a policy "shadow". It reports each divergence.
func byRules(t *testing.T, wait time.Duration, enforced, shadow drawgate.Limit) (decide func() admit.Answer,
	e *engine.Engine, diverged *[]string,
) {
	t.Helper()
	policy := func(name string, l drawgate.Limit) engine.Policy {
		return engine.Policy{Policy: drawgate.Policy{Name: name, Limits: []drawgate.Limit{l}}, Shadow: name == "shadow"}
	}
	c := engine.Config{
		Policies: []engine.Policy{policy("real", enforced), policy("shadow", shadow)},
		Rules:    []rules.Rule{{Apply: []rules.Apply{{Policy: "real", Key: `"k"`}, {Policy: "shadow", Key: `"k"`}}}},
	}
	store, ways := memstore.New(nil), []string{}
	e, err := engine.New(store, c, &engine.Options{Diverged: func(d *engine.Divergence) { ways = append(ways, d.Way) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = e.Close()
		_ = store.Close()
	})
	l, err := admit.New(admit.Options{Package: "test", Wait: wait})
	if err != nil {
		t.Fatal(err)
	}
	decide = func() admit.Answer {
		return l.Decide(t.Context(), &admit.Take{Engine: e, Attributes: &rules.Attributes{}})
	}
	return decide, e, &ways
}

// wantShadow checks what the shadow counted, and how it differed.
func wantShadow(t *testing.T, e *engine.Engine, used int64, diverged *[]string, want ...string) {
	t.Helper()
	a, err := e.Ask("shadow", "", "k")
	if err != nil {
		t.Fatal(err)
	}
	st, err := a.Status(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := st.States[0].Used; got != used {
		t.Errorf("the shadow counted %d, want %d", got, used)
	}
	if len(*diverged) != len(want) || len(want) > 0 && (*diverged)[0] != want[0] {
		t.Errorf("diverged %q, want %q", *diverged, want)
	}
}

// TestShadowsOfWaits: a request that waits is one request for its shadows, which are compared with
// the answer that it gets in the end.
func TestShadowsOfWaits(t *testing.T) {
	t.Parallel()
	t.Run("admitted", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			decide, e, diverged := byRules(t, 2*time.Minute, rolling(1),
				drawgate.Limit{
					Name: "rph", Kind: drawgate.Rolling, Window: time.Hour, Amount: 9,
					Precision: drawgate.Exact,
				})
			start := time.Now()
			for range 2 {
				if a := decide(); a.Err != nil || !a.Decision.Allowed || a.Held != nil {
					t.Errorf("got %v, %v", a.Err, a.Decision.Err())
				}
			}
			if time.Since(start) < time.Minute {
				t.Errorf("nothing waited: %v", time.Since(start))
			}
			wantShadow(t, e, 2, diverged)
		})
	})
	t.Run("refused by the shadow", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			decide, e, diverged := byRules(t, 2*time.Minute, rolling(1),
				drawgate.Limit{
					Name: "rph", Kind: drawgate.Rolling, Window: time.Hour, Amount: 1,
					Precision: drawgate.Exact,
				})
			decide()
			decide()
			wantShadow(t, e, 1, diverged, engine.WouldRefuse)
		})
	})
	t.Run("in vain", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			decide, e, diverged := byRules(t, 10*time.Second, slots(1), slots(9))
			if a := decide(); a.Err != nil || a.Held == nil { // it is held while the others ask
				t.Fatalf("got %v, %v", a.Err, a.Decision.Err())
			}
			start := time.Now()
			if a := decide(); a.Err != nil || a.Decision.Allowed || a.Held != nil {
				t.Errorf("got %v, %v", a.Err, a.Decision.Err())
			}
			if time.Since(start) < 10*time.Second {
				t.Errorf("it did not wait: %v", time.Since(start))
			}
			wantShadow(t, e, 1, diverged, engine.WouldAllow) // the slot of a refused request is given back
		})
	})
	t.Run("at once", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			decide, e, diverged := byRules(t, 0, rolling(1), rolling(9))
			decide()
			decide()
			wantShadow(t, e, 2, diverged, engine.WouldAllow)
		})
	})
}
