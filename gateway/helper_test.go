package gateway_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/audit/ledgerfile"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/engine/rules"
	"github.com/drawgate/drawgate/gateway"
	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/llm/simulator"
	"github.com/drawgate/drawgate/outbound"
	"github.com/drawgate/drawgate/spend"
	"github.com/drawgate/drawgate/store/memstore"
)

// api is how callers write calls to one provider.
type api struct {
	upstream string
	profile  func() *llm.Profile
	model    string
	other    string // a model that can take its place
	path     string // of a call, behind the upstream's name
	stream   string // of a stream
	body     string // %[1]q is the prompt, %[2]s what makes it a stream
	more     string
	key      string // the header of the SDK's key, and what precedes it
	word     string // a pattern of a word of its stream
	full     string // what the body of a refusal by a limit has
}

var apis = withLike(map[string]api{
	"openai": {
		"openai", llm.OpenAI, "gpt-4o", "gpt-4o-mini", "/v1/chat/completions", "/v1/chat/completions",
		`{"model":"gpt-4o","max_tokens":200,"messages":[{"role":"user","content":%[1]q}]%[2]s}`, `,"stream":true`,
		"Authorization: Bearer ", `"delta":\{"content":"[^"]`, `"type":"requests"`,
	},
	"responses": {
		"openai", llm.OpenAI, "gpt-4o", "gpt-4o-mini", "/v1/responses", "/v1/responses",
		`{"model":"gpt-4o","max_output_tokens":200,"input":%[1]q%[2]s}`, `,"stream":true`, "Authorization: Bearer ",
		`"delta":"[^"]`, `"code":"rate_limit_exceeded"`,
	},
	"anthropic": {
		"anthropic", llm.Anthropic, "claude-sonnet-4-5", "claude-haiku-4-5", "/v1/messages", "/v1/messages",
		`{"model":"claude-sonnet-4-5","max_tokens":200,"messages":[{"role":"user","content":%[1]q}]%[2]s}`,
		`,"stream":true`, "X-Api-Key: ", `"type":"text_delta"`, `{"error":{"message":`,
	},
	"gemini": {
		"gemini", llm.Gemini, "gemini-2.5-flash", "gemini-2.5-flash-lite",
		"/v1beta/models/gemini-2.5-flash:generateContent",
		"/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse",
		`{"contents":[{"role":"user","parts":[{"text":%[1]q}]}],"generationConfig":{"maxOutputTokens":200}%[2]s}`, ``,
		"X-Goog-Api-Key: ", `"text":"[^"]`, `"status":"RESOURCE_EXHAUSTED"`,
	},
})

// like are providers whose API is OpenAI's with differences.
var like = []string{"xai", "mistral", "deepseek", "groq", "together", "vllm", "ollama"}

// withLike adds them.
func withLike(apis map[string]api) map[string]api {
	for _, name := range like {
		a := apis["openai"]
		a.upstream = name
		a.profile = func() *llm.Profile {
			p, _ := llm.ByName(name)
			return p
		}
		if name == "groq" {
			a.path, a.stream = "/openai"+a.path, "/openai"+a.stream
		}
		apis[name] = a
	}
	return apis
}

// TestEachProvider: these tests have a call of each provider, and a table of estimates, and the
// simulator plays it.
func TestEachProvider(t *testing.T) {
	t.Parallel()
	for _, name := range llm.Names() {
		if apis[name].upstream != name {
			t.Errorf("there is no call of %s: add one to apis", name)
		}
		if _, err := os.Stat("testdata/estimates/" + name + ".jsonl"); err != nil {
			t.Errorf("there is no table of what calls of %s reserve: %v", name, err)
		}
		if _, err := simulator.New(&simulator.Options{Charging: map[simulator.Provider]simulator.Charging{
			simulator.Provider(name): simulator.DefaultCharging(simulator.Provider(name)),
		}}); err != nil {
			t.Errorf("the simulator does not play %s: %v", name, err)
		}
	}
}

// The keys of the tests.
const (
	alice       = "vk-alice-0123456789"
	bob         = "vk-bob-0123456789"
	upstreamKey = "sk-upstream-secret-42"
)

// generous is a policy that counts everything, and refuses little.
func generous() drawgate.Policy {
	p := drawgate.Policy{Name: "upstream", Limits: []drawgate.Limit{drawgate.RollingLimit("rpm", 1_000_000,
		time.Minute)}}
	for _, u := range []string{llm.UnitTokens, llm.UnitInputTokens, llm.UnitOutputTokens} {
		p.Limits = append(p.Limits, drawgate.RollingLimit(u, 1_000_000_000, time.Minute).Of(u))
	}
	return p
}

// hourly is generous with windows that are longer than a test takes on any machine.
func hourly() drawgate.Policy {
	p := generous()
	for i := range p.Limits {
		p.Limits[i].Window = time.Hour
	}
	return p
}

// setup is what a test may change before a bench is made.
type setup struct {
	policies []drawgate.Policy // beside "upstream", which is generous unless it is here
	rules    []rules.Rule
	config   gateway.Config
	options  gateway.Options
	sim      simulator.Options
	upstream http.Handler // in the place of the simulator
	store    drawgate.Store
	ledger   string // the folder of a ledger of all calls; "" is none
	unspent  bool   // nothing counts what calls spend

	storeTimeout time.Duration // of the engine; 0: the usual
}

// bench is a gateway in front of the simulator.
type bench struct {
	*testing.T
	h      *gateway.Handler
	conf   gateway.Config
	engine *engine.Engine
	sim    *simulator.Server
	ledger *ledgerfile.Writer
	store  drawgate.Store
	money  string           // unit of costs; "" if there are no prices
	server *httptest.Server // the gateway's; nil in a bubble
	behind *httptest.Server // the provider's; nil in a bubble

	inside atomic.Int64 // requests that the gateway is serving; not in a bubble

	mu     sync.Mutex
	events []outbound.Event // guarded by mu
}

// newBench returns a gateway in front of the simulator, both on the loopback interface.
func newBench(t *testing.T, change func(*setup)) *bench {
	t.Helper()
	s := newSetup(change)
	b := &bench{T: t}
	b.simulate(s)
	var provider http.Handler = b.sim
	if s.upstream != nil {
		provider = s.upstream
	}
	b.behind = httptest.NewServer(provider)
	t.Cleanup(b.behind.Close)
	b.build(s, b.behind.URL)
	b.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.inside.Add(1)
		defer b.inside.Add(-1)
		b.h.ServeHTTP(w, r)
	}))
	t.Cleanup(b.server.Close)
	return b
}

// inBubble runs a test of a gateway in front of the simulator without a network, in which time
// passes only while everybody waits.
func inBubble(t *testing.T, change func(*setup), test func(t *testing.T, b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(change)
		b := &bench{T: t}
		b.simulate(s)
		s.options.Base = b.sim.Transport()
		b.build(s, "http://provider.test")
		test(t, b)
	})
}

func newSetup(change func(*setup)) *setup {
	s := &setup{sim: simulator.Options{Keys: []simulator.Key{{Secret: upstreamKey, Name: "account"}}}}
	s.config.Keys = []gateway.Key{
		{
			Name: "alice", Sum: sha256.Sum256([]byte(alice)), Team: "red", User: "alice@example.com",
			Class:    "interactive",
			Priority: 7,
		},
		{Name: "bob", Sum: sha256.Sum256([]byte(bob)), Team: "blue"},
	}
	for _, name := range llm.Names() {
		a, ok := apis[name]
		if !ok {
			continue // TestEachProvider says so
		}
		s.config.Upstreams = append(s.config.Upstreams, gateway.Upstream{
			Name: a.upstream, Profile: a.profile(), Key: upstreamKey, Owner: "account",
			Models: []gateway.Model{{Name: "*", Policy: "upstream"}},
		})
	}
	if change != nil {
		change(s)
	}
	return s
}

// simulate makes the provider.
func (b *bench) simulate(s *setup) {
	b.Helper()
	var err error
	if b.sim, err = simulator.New(&s.sim); err != nil {
		b.Fatal(err)
	}
}

// build makes the gateway. at is where its upstreams are.
func (b *bench) build(s *setup, at string) {
	b.Helper()
	for i := range s.config.Upstreams {
		if u := &s.config.Upstreams[i]; u.URL == nil {
			u.URL, _ = url.Parse(at)
			if s.upstream == nil { // where the simulator has the provider, whose paths may be another's
				u.URL.Path = "/" + u.Profile.Name
			}
		}
	}
	if !slices.ContainsFunc(s.policies, func(p drawgate.Policy) bool { return p.Name == "upstream" }) {
		s.policies = append(s.policies, generous())
	}
	conf := engine.Config{Rules: s.rules}
	for _, p := range s.policies {
		conf.Policies = append(conf.Policies, engine.Policy{Policy: p})
	}
	if s.store == nil {
		s.store = memstore.New(nil)
	}
	b.money, b.store = "", s.store
	if s.config.Prices != nil {
		b.money = s.config.Prices.Unit()
	}
	conf.Policies = append(conf.Policies, engine.Policy{Policy: spend.Policy(b.money), Base: true},
		engine.Policy{Policy: gateway.OwnedPolicy(), Base: true})
	if !s.unspent {
		s.options.Spend = spend.NewBook(s.store, time.UTC, nil)
	}
	b.Cleanup(func() { s.store.Close() })
	var err error
	if b.engine, err = engine.New(s.store, conf, &engine.Options{StoreTimeout: s.storeTimeout}); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { b.engine.Close() })
	s.options.Observer = &outbound.Observer{Called: func(e *outbound.Event) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.events = append(b.events, *e)
	}}
	if s.ledger != "" {
		if b.ledger, err = ledgerfile.Open(s.ledger, nil); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { b.ledger.Close() })
		s.options.Observer = outbound.Join(b.ledger.Observer(), s.options.Observer)
	}
	if s.options.Logger == nil {
		s.options.Logger = slog.New(slog.NewTextHandler(b.Output(), nil))
	}
	b.conf = s.config
	if b.h, err = gateway.New(b.engine, s.config, &s.options); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { b.h.Close() })
}

// reply is an answer that was read to its end. err is why that end came early.
type reply struct {
	status int
	header http.Header
	body   string
	err    error
}

// request writes a call as the provider's SDK does. headers are such as "Name: value", and replace
// the SDK's own.
func (b *bench) request(ctx context.Context, name string, stream bool, prompt string, headers ...string) *http.Request {
	b.Helper()
	a, ok := apis[name]
	if !ok {
		b.Fatalf("there is no call of %s: add one to apis", name)
	}
	path, more := a.path, ""
	if stream {
		path, more = a.stream, a.more
	}
	return b.raw(ctx, http.MethodPost, "/"+a.upstream+path, fmt.Sprintf(a.body, prompt, more),
		append([]string{a.key + alice}, headers...)...)
}

// raw writes any request. A header that begins with a + is one more of its name.
func (b *bench) raw(ctx context.Context, method, path, body string, headers ...string) *http.Request {
	b.Helper()
	base := "http://gateway.test"
	if b.server != nil {
		base = b.server.URL
	}
	r, err := http.NewRequestWithContext(ctx, method, base+path, strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Anthropic-Version", "2023-06-01")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if more, ok := strings.CutPrefix(name, "+"); ok {
			r.Header.Add(more, value)
			continue
		}
		r.Header.Set(name, value)
	}
	return r
}

// do sends a request and reads the answer.
func (b *bench) do(r *http.Request) (got reply) {
	b.Helper()
	if b.server == nil {
		r.RemoteAddr = "192.0.2.1:1234"
		w := httptest.NewRecorder()
		err := b.serve(w, r)
		return reply{w.Code, w.Header(), w.Body.String(), err}
	}
	resp, err := b.server.Client().Do(r)
	if err != nil {
		return reply{err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(body), err}
}

// serve lets the gateway answer. The error is http.ErrAbortHandler if it breaks the answer off.
func (b *bench) serve(w http.ResponseWriter, r *http.Request) (err error) {
	defer func() {
		if v := recover(); v != nil {
			if err, _ = v.(error); !errors.Is(err, http.ErrAbortHandler) {
				panic(v)
			}
		}
	}()
	b.h.ServeHTTP(w, r)
	return nil
}

// call makes a call and reads the answer.
func (b *bench) call(name string, stream bool, prompt string, headers ...string) reply {
	b.Helper()
	return b.do(b.request(b.Context(), name, stream, prompt, headers...))
}

// settled waits until no call holds units any more, and all were observed.
func (b *bench) settled() {
	b.Helper()
	b.until("calls have ended", func() bool { return b.inside.Load() == 0 && b.h.UnderWay() == 0 })
}

// until waits for something that happens by itself.
func (b *bench) until(what string, done func() bool) {
	b.Helper()
	for end := time.Now().Add(5 * time.Minute); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			b.Fatalf("waited five minutes until %s", what)
		}
	}
}

// used returns what is used of a policy's limits for a key, by their names, with what is held.
func (b *bench) used(policy, key string) map[string]int64 {
	b.Helper()
	st := b.status(policy, key)
	info, _ := b.engine.Policy(policy)
	all := map[string]int64{}
	for i, s := range st.States {
		all[info.Policy.Limits[i].Name] = s.Used
	}
	return all
}

// status returns the state of a policy's bucket.
func (b *bench) status(policy, key string) drawgate.Status {
	b.Helper()
	info, ok := b.engine.Policy(policy)
	if !ok {
		b.Fatalf("there is no policy %q", policy)
	}
	ask, err := b.engine.Ask(policy, "", key, drawgate.Units(info.Policy.Limits[0].Unit, 0))
	if err != nil {
		b.Fatal(err)
	}
	st, err := ask.Status(b.Context(), 0)
	if err != nil {
		b.Fatal(err)
	}
	return st
}

// last returns the provider's record of the last call.
func (b *bench) last() simulator.Call {
	b.Helper()
	calls := b.sim.Calls()
	if len(calls) == 0 {
		b.Fatal("no call reached the provider")
	}
	return calls[len(calls)-1]
}

// closedURL returns the URL of an address at which nobody can listen: a port that was free a moment
// ago may be that of another test's server.
func closedURL() *url.URL { return &url.URL{Scheme: "http", Host: "127.0.0.1:0"} }

// callerRule applies the policy "caller" to every call, by a key.
func callerRule(key string) []rules.Rule {
	return []rules.Rule{{Name: "callers", When: key + ` != ""`, Apply: []rules.Apply{{Policy: "caller", Key: key}}}}
}
