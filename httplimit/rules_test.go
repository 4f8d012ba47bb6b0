package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/engine/rules"
	"github.com/drawgate/drawgate/httplimit"
	"github.com/drawgate/drawgate/store/memstore"
)

// newEngine returns an engine over memory.
func newEngine(t *testing.T, c engine.Config) *engine.Engine {
	t.Helper()
	store := memstore.New(nil)
	t.Cleanup(func() { _ = store.Close() })
	e, err := engine.New(store, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// byRules returns a handler that the engine's rules limit.
func byRules(t *testing.T, c engine.Config, o *httplimit.RuleOptions, next http.HandlerFunc) http.Handler {
	t.Helper()
	m, err := httplimit.NewByRules(newEngine(t, c), o)
	if err != nil {
		t.Fatal(err)
	}
	return m.Handler(next)
}

func perHour(name string, amount int64) engine.Policy {
	return engine.Policy{Policy: drawgate.PerHour(name, amount)}
}

func applied(policies ...string) []rules.Rule {
	var r rules.Rule
	for _, p := range policies {
		r.Apply = append(r.Apply, rules.Apply{Policy: p, Key: "ip"})
	}
	return []rules.Rule{r}
}

func asks(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
	return w
}

func nothing(http.ResponseWriter, *http.Request) {}

// Unclear paths are refused, because the router may serve another path than the rules have matched.
func TestByRulesRefusesUnclearPaths(t *testing.T) {
	t.Parallel()
	list := append([]rules.Rule{{Match: rules.Match{Path: "/health/*"}, Exempt: true}}, applied("api")...)
	h := byRules(t, engine.Config{Policies: []engine.Policy{perHour("api", 1)}, Rules: list}, nil, nothing)
	for path, want := range map[string]int{
		"/v1/x/..%2F..%2F..%2Fhealth/x": http.StatusBadRequest, "/health/..;/v1": http.StatusBadRequest,
		"/health/x": http.StatusOK,
	} {
		w := asks(h, path)
		if w.Code != want || want == http.StatusBadRequest &&
			!strings.Contains(w.Body.String(), string(httplimit.CodePath)) {
			t.Errorf("%s: got %d %s, want %d", path, w.Code, w.Body, want)
		}
	}
}

// Shared buckets are hidden, and a refusal says that it is not the caller's own limit.
func TestByRulesHidesWhatAllShare(t *testing.T) {
	t.Parallel()
	c := engine.Config{Policies: []engine.Policy{perHour("own", 5), perHour("all", 1)}, Rules: applied("own", "all")}
	h := byRules(t, c, &httplimit.RuleOptions{Shared: []string{"all"}}, nothing)
	if got := asks(h, "/").Header().Get(httplimit.HeaderPolicy); got != `"own";q=5;w=3600` {
		t.Errorf("described %s, want own alone", got)
	}
	if w := asks(h, "/"); w.Code != http.StatusTooManyRequests || !strings.Contains(w.Body.String(), `"scope":"api"`) {
		t.Errorf("got %d %s, want a refusal by what all share", w.Code, w.Body)
	}
	h = byRules(t, c, &httplimit.RuleOptions{Options: httplimit.Options{Describe: "all"}, Shared: []string{"all"}},
		nothing)
	if got := asks(h, "/").Header().Get(httplimit.HeaderPolicy); got != `"all";q=1;w=3600` {
		t.Errorf("described %s, want all alone", got)
	}
}

// Slots are held while the handler runs, also those of policies in shadow.
func TestByRulesHoldsSlots(t *testing.T) {
	t.Parallel()
	for _, shadow := range []bool{false, true} {
		slots := engine.Policy{Policy: drawgate.Policy{
			Name:   "slots",
			Limits: []drawgate.Limit{{Name: "slots", Kind: drawgate.Concurrency, Amount: 1}},
		}, Shadow: shadow}
		e := newEngine(t, engine.Config{Policies: []engine.Policy{slots}, Rules: applied("slots")})
		m, err := httplimit.NewByRules(e, nil)
		if err != nil {
			t.Fatal(err)
		}
		var inside int
		h := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			inside = asks(m.Handler(http.HandlerFunc(nothing)), "/").Code
		}))
		want := http.StatusTooManyRequests
		if shadow {
			want = http.StatusOK
		}
		for i := range 3 {
			if w := asks(h, "/"); w.Code != http.StatusOK || inside != want {
				t.Errorf("shadow %v, time %d: got %d, and %d within, want 200 and %d", shadow, i+1, w.Code, inside,
					want)
			}
		}
		ask, err := e.Ask("slots", "", "192.0.2.1")
		if err != nil {
			t.Fatal(err)
		}
		st, err := ask.Status(t.Context(), 0)
		if err != nil || st.Open != 0 {
			t.Errorf("shadow %v: %d slots are held after the requests, %v", shadow, st.Open, err)
		}
	}
}

// A request that costs more than a limit gets an answer that says so, with what is left.
func TestByRulesNeverFits(t *testing.T) {
	t.Parallel()
	c := engine.Config{Policies: []engine.Policy{perHour("api", 5)}, Rules: applied("api")}
	c.Policies[0].Overrides = []engine.Override{{Key: "192.0.2.*", Amounts: map[string]int64{"hour": 3}}}
	c.Rules[0].Apply[0].Costs = map[string]int64{drawgate.UnitRequests: 4}
	w := asks(byRules(t, c, nil, nothing), "/")
	if left := w.Header().Get(httplimit.HeaderRemaining); w.Code != http.StatusRequestEntityTooLarge || left != "3" {
		t.Errorf("got %d with %s left, want 413 with 3", w.Code, left)
	}
}

// The headers of a request that can never pass describe the limit that can never grant it, by the
// costs of its rule, though more of another limit is used.
func TestByRulesNeverFitsSaysTheLimit(t *testing.T) {
	t.Parallel()
	items, kept := rolling(100, time.Hour), rolling(10, time.Hour)
	items.Name, items.Unit = "items", "items"
	kept.ReservedByPriority = map[int]drawgate.Share{9: drawgate.Percent(60)} // a request without priority gets 4
	costs := func(path, unit string, n int64) rules.Rule {
		return rules.Rule{Match: rules.Match{Path: path}, Apply: []rules.Apply{{
			Policy: "p", Key: "ip",
			Costs: map[string]int64{unit: n},
		}}}
	}
	list := []rules.Rule{costs("/items", "items", 50), costs("/many", drawgate.UnitRequests, 5)}
	h := byRules(t, engine.Config{Policies: []engine.Policy{{Policy: policy("p", items, kept)}}, Rules: list}, nil,
		nothing)
	if w := asks(h, "/items"); w.Code != http.StatusOK {
		t.Fatalf("the first request: got %d", w.Code)
	}
	if w := asks(h, "/many"); w.Code != http.StatusRequestEntityTooLarge ||
		w.Header().Get(httplimit.HeaderLimit) != "10" {
		t.Errorf("got %d, %v, want the limit of 10 requests", w.Code, w.Header())
	}
}

// NewByRules refuses what would limit nothing, or cannot work.
func TestNewByRulesRejectsMistakes(t *testing.T) {
	t.Parallel()
	policies := []engine.Policy{perHour("api", 1)}
	for name, c := range map[string]struct {
		engine *engine.Engine
		opts   *httplimit.RuleOptions
		want   string
	}{
		"no engine": {nil, nil, "no engine"},
		"no rules":  {newEngine(t, engine.Config{Policies: policies}), nil, "no rules"},
		"another describe": {
			newEngine(t, engine.Config{Policies: policies, Rules: applied("api")}),
			&httplimit.RuleOptions{Options: httplimit.Options{Describe: "x"}}, `"x"`,
		},
		"a negative wait": {
			newEngine(t, engine.Config{Policies: policies, Rules: applied("api")}),
			&httplimit.RuleOptions{Options: httplimit.Options{Wait: -time.Second}}, "negative",
		},
	} {
		if _, err := httplimit.NewByRules(c.engine, c.opts); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
