package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/gateway"
	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/llm/simulator"
)

// TestRetries: a call that failed, or was refused for the quota, is made again as often as the
// upstream says, and each attempt counts.
//
// req: C5
func TestRetries(t *testing.T) {
	t.Parallel()
	inBubble(t, func(s *setup) {
		s.config.Upstreams[0].Retries = 2
		s.options.Wait = time.Hour
	}, func(t *testing.T, b *bench) {
		for _, kind := range []simulator.FaultKind{
			simulator.FaultInternal, simulator.FaultMinute,
			simulator.FaultClose,
		} {
			before, calls := b.used("upstream", "account")["rpm"], len(b.sim.Calls())
			if err := b.sim.Inject(simulator.Fault{Kind: kind}); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			if got := b.call("openai", true, "Hello!"); got.status != http.StatusOK {
				t.Errorf("%s: got %d %s, want the answer of the second attempt", kind, got.status, got.body)
			}
			if n := len(b.sim.Calls()) - calls; n != 2 {
				t.Errorf("%s: %d calls, want 2", kind, n)
			}
			if n := b.used("upstream", "account")["rpm"] - before; kind != simulator.FaultMinute && n != 2 {
				t.Errorf("%s: %d requests are charged, want 2", kind, n)
			}
			if waited := time.Since(began); kind == simulator.FaultMinute && waited < 10*time.Second {
				t.Errorf("%s: the second attempt came after %v, before the pause was over", kind, waited)
			}
		}
		if err := b.sim.Inject(simulator.Fault{Kind: simulator.FaultInternal, Times: 5}); err != nil {
			t.Fatal(err)
		}
		if got := b.call("openai", true, "Hello!"); got.status != http.StatusInternalServerError {
			t.Errorf("after three attempts: got %d, want the provider's own 500", got.status)
		}
	})
}

// TestLikelyEstimates: such an upstream reserves little more than prompts have, and learns from
// their answers.
func TestLikelyEstimates(t *testing.T) {
	t.Parallel()
	prompt := strings.Repeat("The gate lets some water pass, and then it closes again. ", 50)
	held := map[bool]int64{}
	for _, likely := range []bool{false, true} {
		inBubble(t, func(s *setup) { s.config.Upstreams[2].Likely = likely }, func(t *testing.T, b *bench) {
			for range 30 {
				b.call("gemini", false, prompt)
			}
			e := b.events[len(b.events)-1]
			for _, u := range e.Estimate {
				if u.Unit == llm.UnitInputTokens {
					held[likely] = u.N
				}
			}
			if n := b.last().Input; held[likely] < n || likely && held[likely] > 2*n {
				t.Errorf("likely %v: %d tokens are held for %d", likely, held[likely], n)
			}
		})
	}
	if held[true] >= held[false]/2 {
		t.Errorf("%d tokens are held at most, and %d likely", held[false], held[true])
	}
}

// TestKeyHeader: an upstream may want its key in another header, such as Azure.
func TestKeyHeader(t *testing.T) {
	t.Parallel()
	var seen http.Header
	var path string
	b := newBench(t, func(s *setup) {
		s.config.Upstreams[0].KeyHeader = "api-key"
		s.upstream = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			seen, path = r.Header.Clone(), r.URL.RequestURI()
			io.Copy(io.Discard, r.Body)
		})
	})
	b.do(b.raw(t.Context(), http.MethodPost, "/openai/openai/deployments/gpt-4o/chat/completions?api-version=1",
		`{"messages":[]}`, "Api-Key: "+alice))
	if seen.Get("Api-Key") != upstreamKey || seen.Get("Authorization") != "" ||
		path != "/openai/deployments/gpt-4o/chat/completions?api-version=1" {
		t.Errorf("the provider sees %s with %v", path, seen)
	}
	if used := b.used("upstream", "account"); used["rpm"] != 1 {
		t.Errorf("%v used, want one request", used)
	}
}

// TestVersionsOfAModel: a dated version, or a fine-tuned one, is counted by the entry of its model,
// though only a later pattern fits its name; so is one in other capitals. What no pattern fits is
// refused as before, and so is a name with blanks.
//
// req: C1
func TestVersionsOfAModel(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(s *setup) {
		s.policies = append(s.policies, hourly(), drawgate.Policy{
			Name:   "mini",
			Limits: []drawgate.Limit{drawgate.RollingLimit("rpm", 100, time.Hour)},
		})
		s.config.Upstreams[0].Models = []gateway.Model{
			{Name: "gpt-4.1-mini", Policy: "mini"},
			{Name: "gpt-4*", Policy: "upstream"},
			{Name: "*", Policy: "upstream"},
		}
		s.config.Upstreams[1].Models = []gateway.Model{{Name: "claude-sonnet-4-5", Policy: "mini"}}
	})
	call := func(model string) int {
		return b.do(b.raw(t.Context(), http.MethodPost, "/openai/v1/chat/completions",
			fmt.Sprintf(`{"model":%q,"max_tokens":5,"messages":[]}`, model), "Authorization: Bearer "+alice)).status
	}
	for i, c := range []struct {
		model string
		mini  int64
	}{
		{"gpt-4.1-mini", 1},
		{"gpt-4.1-mini-2025-04-14", 2},
		{"ft:gpt-4.1-mini-2025-04-14:acme::1", 3},
		{"gpt-4.1", 3},
		{"gpt-4o-mini", 3},
		{"GPT-4.1-Mini", 4},
	} {
		call(c.model)
		b.settled()
		if mini, all := b.used("mini", "account")["rpm"], b.used("upstream", "account")["rpm"]; mini != c.mini ||
			mini+all != int64(i)+1 {
			t.Errorf("after %s: %d and %d requests", c.model, mini, all)
		}
	}
	for _, model := range []string{
		" gpt-4.1-mini", "gpt-4.1-mini\t", "gpt-4.1-mini\u200b", "gpt-4.1 mini",
		"\u00a0gpt-4.1",
	} {
		if got := call(model); got != http.StatusBadRequest {
			t.Errorf("%q: got %d, want 400", model, got)
		}
	}
	if got := b.do(b.raw(t.Context(), http.MethodPost, "/anthropic/v1/messages",
		`{"model":"claude-sonnet-4-5-20250929","max_tokens":5,"messages":[]}`,
		"X-Api-Key: "+alice)).status; got != http.StatusNotFound {
		t.Errorf("a version that no entry fits: got %d, want 404", got)
	}
}

// TestOwnEntryOfAModel: a model is counted by its own entry, wherever that stands and whatever
// comes before it: asked for by its name, by an alias, by an alias of several accounts, or as a
// fallback. Its price is its own, and so is what events and the meters of what is spent say of it.
//
// req: C1
func TestOwnEntryOfAModel(t *testing.T) {
	t.Parallel()
	const small, large = "text-embedding-3-small", "text-embedding-3-large"
	b := newBench(t, func(s *setup) {
		for _, name := range []string{"small", "large", "rest"} {
			p := hourly()
			p.Name = name
			s.policies = append(s.policies, p)
		}
		s.policies = append(s.policies, drawgate.Policy{
			Name: "tight", Limits: []drawgate.Limit{drawgate.RollingLimit("rpm", 1, time.Hour)},
		})
		openai := &s.config.Upstreams[0]
		openai.Models = []gateway.Model{
			{Name: small, Policy: "small"},
			{Name: "text-*", Policy: "rest"},
			{Name: large, Policy: "large"},
			{Name: "gpt-4o-mini", Policy: "tight", Fallbacks: []string{large}},
		}
		second := *openai
		second.Name = "second"
		s.config.Upstreams = append(s.config.Upstreams, second)
		s.config.Aliases = []gateway.Alias{
			{Name: "embed", Models: []gateway.Target{{Upstream: "openai", Model: large}}},
			{Name: "embeds", Models: []gateway.Target{
				{Upstream: "openai", Model: large}, {Upstream: "second", Model: large},
			}},
		}
		s.config.Prices = &llm.Prices{Currency: "eur", Models: map[string]llm.Price{
			small: {Input: 20_000}, large: {Input: 130_000}, "gpt-4o-mini": {Input: 1},
		}}
	})
	call := func(model string) reply {
		return b.do(b.raw(t.Context(), http.MethodPost, "/openai/v1/embeddings",
			fmt.Sprintf(`{"model":%q,"input":"Hello!"}`, model), "Authorization: Bearer "+alice))
	}
	calls := []string{large, "embed", "embeds", "gpt-4o-mini", "gpt-4o-mini", small}
	for i, model := range calls {
		if got := call(model); got.status != http.StatusOK {
			t.Errorf("call %d, %s: %d %s", i, model, got.status, got.body)
		}
	}
	b.settled()
	for policy, want := range map[string]int64{"small": 1, "large": 4, "rest": 0, "tight": 1} {
		if got := b.used(policy, "account")["rpm"]; got != want {
			t.Errorf("policy %s counted %d calls, want %d", policy, got, want)
		}
	}
	for _, e := range b.events {
		if strings.HasPrefix(e.Model, "text-") && e.Series != e.Model {
			t.Errorf("%s counted by the entry %s", e.Model, e.Series)
		}
	}
	ofLarge := b.spent()[b.meter("alice", "red", "openai", large)]
	ofSecond := b.spent()[b.meter("alice", "red", "second", large)]
	if n := ofLarge.Requests + ofSecond.Requests; n != 4 {
		t.Errorf("%d calls of %s are spent, want 4", n, large)
	}
	if tokens, cost := ofLarge.PromptTokens+ofSecond.PromptTokens,
		ofLarge.Micros+ofSecond.Micros; cost < tokens*13/100 {
		t.Errorf("%d tokens of %s cost %d millionths: that is not its price", tokens, large, cost)
	}
}

// TestModelThatIsNotOfferedClosesNothing: a caller who asks for a model that the provider does not
// offer to the account closes nothing for the others.
func TestModelThatIsNotOfferedClosesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(s *setup) {
		s.upstream = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			if strings.Contains(r.URL.Path, "gemini-2.5-pro") {
				w.WriteHeader(http.StatusTooManyRequests)
				io.WriteString(w,
					`{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.QuotaFailure",`+
						`"violations":[{"quotaId":"GenerateRequestsPerDayPerProjectPerModel-FreeTier","quotaValue":"0"}]}]}}`)
			}
		})
	})
	for _, c := range []struct {
		model string
		want  int
	}{
		{"gemini-2.5-pro", http.StatusTooManyRequests},
		{"gemini-2.5-flash", http.StatusOK},
		{"gemini-2.5-pro", http.StatusNotFound},
	} {
		got := b.do(b.raw(t.Context(), http.MethodPost, "/gemini/v1beta/models/"+c.model+":generateContent",
			`{"contents":[]}`, "X-Goog-Api-Key: "+alice, gateway.HeaderTimeout+": 0"))
		if got.status != c.want {
			t.Errorf("%s: got %d %s, want %d", c.model, got.status, got.body, c.want)
		}
		b.settled()
	}
	if n := b.used("upstream", "account")["rpm"]; n != 2 {
		t.Errorf("%d requests counted, want 2", n)
	}
}

// TestOtherCalls: an upstream passes on the calls that are listed, though nothing counts them, if
// the key may use them and the models that they name.
func TestOtherCalls(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(s *setup) {
		s.config.Upstreams[0].Others = []string{
			"/v1/files", "/v1/files/*", "/v1/videos", "/v1/audio/*",
			"/v1/*",
		}
		s.config.Keys[0].Models = []string{"openai/gpt-image-*"}
		s.config.Keys[1].Others = []string{"openai/v1/files/*"}
		s.upstream = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			io.WriteString(w, r.Method+" "+r.URL.Path+" "+r.Header.Get("Content-Type")+" "+string(body))
		})
	})
	asAlice, asBob := "Authorization: Bearer "+alice, "Authorization: Bearer "+bob
	got := b.do(b.raw(t.Context(), http.MethodPut, "/openai/v1/files/x", "contents", asBob, "Content-Type: text/plain"))
	if got.status != http.StatusOK || got.body != "PUT /v1/files/x text/plain contents" {
		t.Errorf("got %d %s", got.status, got.body)
	}
	form := func(text string) string { return strings.ReplaceAll(text, "\n", "\r\n") }
	const multipart = "Content-Type: multipart/form-data; boundary=b"
	for _, c := range []struct {
		path, body, as, kind string
		want                 int
	}{
		{"/v1/videos", `{"model":"gpt-image-1"}`, asAlice, "", 200},
		{"/v1/videos", `{"prompt":"x"}`, asAlice, "", 200},
		{"/v1/videos", `{"model":"dall-e-3"}`, asAlice, "", 404},
		{"/v1/videos", `{"model":"gpt-image-1","\u006dodel":"dall-e-3"}`, asAlice, "", 404},
		{"/v1/videos", `{"Model":"dall-e-3"}`, asAlice, "", 404},
		{"/v1/videos", `{"requests":[{"params":{"x":"model","model":"dall-e-3"}}]}`, asAlice, "", 404},
		{"/v1/videos", `{"models":["gpt-image-1","dall-e-3"]}`, asAlice, "", 404},
		{"/v1/videos", `model=dall-e-3`, asAlice, "Content-Type: application/x-www-form-urlencoded", 400},
		{"/v1/videos", `{"model":`, asAlice, "", 400},
		{"/v1/videos?model=dall-e-3", `{}`, asAlice, "", 404},
		{"/v1/engines/dall-e-3/edits", `{}`, asAlice, "", 404},
		{
			"/v1/audio/speech", form("--b\nContent-Disposition: form-data; name=\"model\"\n\nwhisper-1\n--b--\n"),
			asAlice, multipart, 404,
		},
		{
			"/v1/audio/speech", form("--b\nContent-Disposition: form-data; name=\"model\"\n\ngpt-image-1\n--b--\n"),
			asAlice, multipart, 200,
		},
		{"/v1/audio/speech", form("--b\nContent-Disposition: form-data; name=\"file\"; " +
			"filename=\"x\"\n\n{\n{\"body\":{\"model\":\"o3\"}}\n--b--\n"), asAlice, multipart, 404},
		{"/v1/audio/speech", "--b\nx", asAlice, multipart, 400},
		{"/v1/audio/speech", `{"model":"x"}`, asBob, "", 404}, // not one of the key's
		{"/v1/files", ``, asBob, "", 404},
		// What contains a known call is never another one.
		{"/v1/chat/completions/x", `{}`, asAlice, "", 404},
		{"/v1/responses/compact", `{}`, asAlice, "", 404},
		{"/v1/messages/batches", `{}`, asAlice, "", 404},
		{"/v1/x/Embeddings", `{}`, asAlice, "", 404},
		{"/v1/chat/completions;x", `{}`, asAlice, "", 400},
		{"/v1/chat/completions%20", `{}`, asAlice, "", 400},
		{"/files", `{}`, asAlice, "", 404},
	} {
		headers := []string{c.as}
		if c.kind != "" {
			headers = append(headers, c.kind)
		}
		if got := b.do(b.raw(t.Context(), http.MethodPost, "/openai"+c.path, c.body,
			headers...)); got.status != c.want {
			t.Errorf("%s %q: got %d %s, want %d", c.path, c.body, got.status, got.body, c.want)
		}
	}
	if used := b.used("upstream", "account"); used["rpm"] != 0 {
		t.Errorf("%v used, want nothing", used)
	}
}

// TestMistakesInAConfiguration: each is an error that says what is wrong, and shows no secret.
func TestMistakesInAConfiguration(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	for name, change := range map[string]func(c *gateway.Config){
		"a name":            func(c *gateway.Config) { c.Upstreams[0].Name = "open/ai" },
		"a name of our own": func(c *gateway.Config) { c.Upstreams[0].Name = "v1" },
		"no profile":        func(c *gateway.Config) { c.Upstreams[0].Profile = nil },
		"no URL":            func(c *gateway.Config) { c.Upstreams[0].URL = nil },
		"no models":         func(c *gateway.Config) { c.Upstreams[0].Models = nil },
		"no policy":         func(c *gateway.Config) { c.Upstreams[0].Models[0].Policy = "" },
		"a fallback": func(c *gateway.Config) {
			c.Upstreams[0].Models[0] = gateway.Model{Name: "a", Policy: "p", Fallbacks: []string{"b"}}
		},
		"a fallback of another profile": func(c *gateway.Config) {
			c.Upstreams[0].Models[0].Fallbacks = []string{"anthropic/claude-sonnet-4-5"}
		},
		"a fallback without a model": func(c *gateway.Config) {
			c.Upstreams[0].Models[0].Fallbacks = []string{"openai/"}
		},
		"others, no path":      func(c *gateway.Config) { c.Upstreams[0].Others = []string{"files"} },
		"others, odd":          func(c *gateway.Config) { c.Upstreams[0].Others = []string{"/v1/*/x"} },
		"others, a call":       func(c *gateway.Config) { c.Upstreams[0].Others = []string{"/v1/responses/*"} },
		"others, called twice": func(c *gateway.Config) { c.Upstreams[0].Others = []string{"/v1/models"} },
		"many retries":         func(c *gateway.Config) { c.Upstreams[0].Retries = 11 },
		"two upstreams":        func(c *gateway.Config) { c.Upstreams = append(c.Upstreams, c.Upstreams[0]) },
		"no key's name":        func(c *gateway.Config) { c.Keys[0].Name = "" },
		"no key's sum":         func(c *gateway.Config) { c.Keys[0].Sum = [32]byte{} },
		"the same key":         func(c *gateway.Config) { c.Keys[1].Sum = c.Keys[0].Sum },
		"the same name":        func(c *gateway.Config) { c.Keys[1].Name = c.Keys[0].Name },
		"the same secret twice": func(c *gateway.Config) {
			c.Keys[0].Secrets = []gateway.KeySecret{{Sum: c.Keys[0].Sum}, {Sum: c.Keys[0].Sum, Until: time.Now()}}
			c.Keys[0].Sum = [32]byte{}
		},
		"another key's secret": func(c *gateway.Config) {
			c.Keys[0].Secrets = []gateway.KeySecret{{Sum: c.Keys[0].Sum}, {Sum: c.Keys[1].Sum}}
			c.Keys[0].Sum = [32]byte{}
		},
		"a secret without a sum": func(c *gateway.Config) {
			c.Keys[0].Secrets = []gateway.KeySecret{{Sum: c.Keys[0].Sum}, {Until: time.Now()}}
			c.Keys[0].Sum = [32]byte{}
		},
		"a sum and secrets": func(c *gateway.Config) {
			c.Keys[0].Secrets = []gateway.KeySecret{secretUntil(newSecret, time.Time{})}
		},
		"an address":   func(c *gateway.Config) { c.Keys[0].Addresses = make([]netip.Prefix, 1) },
		"a key's rank": func(c *gateway.Config) { c.Keys[0].Priority = drawgate.MaxPriority + 1 },
		"a secret URL": func(c *gateway.Config) {
			u := *c.Upstreams[0].URL
			u.RawQuery = "key=" + upstreamKey
			c.Upstreams[0].URL = &u
		},
		"another scheme": func(c *gateway.Config) {
			u := *c.Upstreams[0].URL
			u.Scheme = "ftp"
			c.Upstreams[0].URL = &u
		},
	} {
		s := newSetup(nil)
		for i := range s.config.Upstreams {
			s.config.Upstreams[i].URL = closedURL()
		}
		change(&s.config)
		err := b.h.Use(s.config)
		if err == nil || !strings.HasPrefix(err.Error(), "gateway: ") || strings.Contains(err.Error(), upstreamKey) {
			t.Errorf("%s: got %v", name, err)
		}
		if h, err := gateway.New(b.engine, s.config, nil); err == nil || h != nil {
			t.Errorf("%s: New has made a gateway", name)
		}
	}
	if got := b.call("openai", false, "Hello!"); got.status != http.StatusOK {
		t.Errorf("after all the mistakes: got %d %s, want that the old one is in force", got.status, got.body)
	}
}
