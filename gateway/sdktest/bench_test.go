package sdktest_test

import (
	"cmp"
	"context"
	"crypto/sha256"
	"flag"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/gateway"
	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/llm/simulator"
	"github.com/drawgate/drawgate/store/memstore"
)

// The keys of the tests: the caller's, and the one that the provider knows.
const (
	virtualKey  = "vk-sdktest-0123456789"
	upstreamKey = "sk-upstream-0123456789"
)

// alias is a name for the model of each api.
const alias = "fast"

// api is one operation of a provider.
type api struct {
	upstream string // the first segment of the callers' path
	profile  func() *llm.Profile
	model    string
}

var apis = map[string]api{
	chat:      {"openai", llm.OpenAI, "gpt-4.1"},
	responses: {"openai", llm.OpenAI, "gpt-4.1"},
	messages:  {"anthropic", llm.Anthropic, "claude-sonnet-4-6"},
	generate:  {"gemini", llm.Gemini, "gemini-2.5-flash"},
}

// Prices by which a call's cost in millionths tells its tokens: one for each token of the input, a
// thousand for each of the output.
const (
	perInput  = 1
	perOutput = 1000
	unitMoney = "usd_micros"
)

// TestMain lets all tests run at once: most of their time they wait.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "64"); err != nil {
		panic(err)
	}
	m.Run()
}

// bench is a gateway in front of an upstream, both on the loopback interface.
type bench struct {
	*testing.T
	api    api
	h      *gateway.Handler
	engine *engine.Engine
	sim    *simulator.Server // the upstream, unless it is another one
	server *httptest.Server

	mu       sync.Mutex
	requests int // that SDKs have sent, guarded by mu
}

// setup is what a test changes of a bench.
type setup struct {
	requests *drawgate.Limit // of requests; nil: as good as none
	wait     time.Duration   // longest wait in the queue; 0: a minute
	arrived  func(n int)     // called when an SDK's nth request arrives at the gateway, before that looks at it
	upstream *url.URL        // in place of the simulator
}

// newBench starts a gateway with one upstream, whose quota is the policy "quota".
func newBench(t *testing.T, a api, s setup) *bench {
	t.Helper()
	b := &bench{T: t, api: a}
	var err error
	if b.sim, err = simulator.New(&simulator.Options{Keys: []simulator.Key{{
		Secret: upstreamKey,
		Name:   "account",
	}}}); err != nil {
		t.Fatal(err)
	}
	if s.upstream == nil {
		behind := httptest.NewServer(b.sim)
		t.Cleanup(behind.Close)
		s.upstream, _ = url.Parse(behind.URL + "/" + a.upstream) // where the simulator has the provider
	}
	p := a.profile()
	policy := drawgate.Policy{Name: "quota", Limits: []drawgate.Limit{drawgate.RollingLimit(drawgate.UnitRequests,
		1_000_000, time.Hour)}}
	if s.requests != nil {
		policy.Limits[0] = *s.requests
	}
	for _, unit := range append(p.Units, unitMoney) {
		if unit != drawgate.UnitRequests {
			policy.Limits = append(policy.Limits, drawgate.RollingLimit(unit, 1_000_000_000_000, time.Hour).Of(unit))
		}
	}
	store := memstore.New(nil)
	t.Cleanup(func() { store.Close() })
	if b.engine, err = engine.New(store, engine.Config{Policies: []engine.Policy{{Policy: policy}}}, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.engine.Close() })
	const million = 1_000_000
	b.h, err = gateway.New(b.engine, gateway.Config{
		Upstreams: []gateway.Upstream{{
			Name: a.upstream, Profile: p, URL: s.upstream, Key: upstreamKey, Owner: "account",
			Models: []gateway.Model{{Name: "*", Policy: "quota"}},
		}},
		Keys:    []gateway.Key{{Name: "caller", Sum: sha256.Sum256([]byte(virtualKey))}},
		Aliases: []gateway.Alias{{Name: alias, Models: []gateway.Target{{Upstream: a.upstream, Model: a.model}}}},
		Prices: &llm.Prices{Currency: "usd", Models: map[string]llm.Price{a.model: {
			Input:  perInput * million,
			Output: perOutput * million,
		}}},
	}, &gateway.Options{
		Wait: s.wait, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.h.Close() })
	b.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := b.arrive()
		if s.arrived != nil {
			s.arrived(n)
		}
		b.h.ServeHTTP(w, r)
	}))
	t.Cleanup(b.server.Close)
	return b
}

// arrive counts a request of an SDK.
func (b *bench) arrive() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.requests++
	return b.requests
}

// sent returns how many requests SDKs have sent.
func (b *bench) sent() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.requests
}

// call makes a call with an SDK. What j does not say is the same for all.
func (b *bench) call(c client, j job) *result {
	b.Helper()
	if j.Key == "" {
		j.Key = virtualKey
	}
	if j.Max == 0 {
		j.Max = 30
	}
	j.URL, j.Model = b.server.URL+"/"+b.api.upstream, cmp.Or(j.Model, b.api.model)
	r, err := c.call(b.Context(), &j)
	if err != nil {
		b.Fatalf("the SDK's program has ended: %v", err)
	}
	b.Logf("%d pieces, %d and %d tokens, error %+v", r.Pieces, r.Input, r.Output, r.Error)
	return r
}

// settled waits until no call holds units any more.
func (b *bench) settled() {
	b.Helper()
	b.until("all calls are settled", func() bool { return b.h.UnderWay() == 0 })
}

// until waits for something that happens by itself, as long as the tests may take.
func (b *bench) until(what string, done func() bool) {
	b.Helper()
	end, bounded := b.Deadline()
	for ; !done(); time.Sleep(time.Millisecond) {
		if bounded && time.Until(end) < time.Minute {
			b.Fatalf("the tests' time is nearly over, and still not so: %s", what)
		}
	}
}

// used returns what is used of each unit of the quota, with what is held. Its limits have the names
// of their units.
func (b *bench) used() map[string]int64 {
	b.Helper()
	info, _ := b.engine.Policy("quota")
	ask, err := b.engine.Ask("quota", "", "account", drawgate.Units(drawgate.UnitRequests, 0))
	if err != nil {
		b.Fatal(err)
	}
	st, err := ask.Status(b.Context(), 0)
	if err != nil {
		b.Fatal(err)
	}
	all := map[string]int64{}
	for i := range st.States {
		all[info.Policy.Limits[i].Name] = st.States[i].Used
	}
	return all
}

// spend uses a request of the quota, as another process would.
func (b *bench) spend(ctx context.Context) {
	r, err := b.engine.Take(ctx, &engine.Request{Asks: []engine.Ask{{Policy: "quota", Key: "account"}}})
	if err != nil || !r.Decision.Allowed {
		b.Errorf("spending a request of the quota: %+v, %v", r.Decision, err)
	}
}

// last returns the simulator's record of the last call, once it has ended there: a caller may see
// the end before the simulator has noted it.
func (b *bench) last() (call simulator.Call) {
	b.Helper()
	b.until("the provider has noted the end of the call", func() bool {
		calls := b.sim.Calls()
		if len(calls) == 0 {
			b.Fatal("no call has reached the upstream")
		}
		call = calls[len(calls)-1]
		return call.Outcome != simulator.Running
	})
	return call
}
