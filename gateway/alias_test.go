package gateway_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine/rules"
	"github.com/drawgate/drawgate/gateway"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/llm"
)

// fast is the alias of the tests, of the model of each API.
const fast = "fast"

// alias returns an alias of a model of an upstream.
func alias(name, upstream, model string) gateway.Alias {
	return gateway.Alias{Name: name, Models: []gateway.Target{{Upstream: upstream, Model: model}}}
}

// several returns an alias of models of upstreams, all of the same weight.
func several(weight int, models ...string) gateway.Alias {
	a := gateway.Alias{Name: fast}
	for _, m := range models {
		upstream, model, _ := strings.Cut(m, "/")
		a.Models = append(a.Models, gateway.Target{Upstream: upstream, Model: model, Weight: weight})
	}
	return a
}

// aliased makes fast stand for a model of one of the upstreams.
func aliased(upstream, model string) func(*setup) {
	return func(s *setup) {
		s.config.Aliases = []gateway.Alias{alias(fast, upstream, model)}
	}
}

// byAlias makes a call of an API that asks for the alias.
func (b *bench) byAlias(name string, stream bool, prompt string) reply {
	b.Helper()
	a := apis[name]
	path, more := a.path, ""
	if stream {
		path, more = a.stream, a.more
	}
	instead := strings.NewReplacer(a.model, fast)
	return b.do(b.raw(b.Context(), http.MethodPost, "/"+a.upstream+instead.Replace(path),
		instead.Replace(fmt.Sprintf(a.body, prompt, more)), a.key+alice))
}

// TestAliases: a call by an alias is one of the model, to the provider and to the quota. Its answer
// is the provider's, and says for which model the alias stands.
//
// req: C2 C9
func TestAliases(t *testing.T) {
	t.Parallel()
	for name, a := range apis {
		for _, stream := range []bool{false, true} {
			inBubble(t, aliased(a.upstream, a.model), func(t *testing.T, b *bench) {
				const prompt = "Hello!\nsimulate: output=20"
				byName := b.call(name, stream, prompt)
				once, sent := b.used("upstream", "account"), b.last()
				got := b.byAlias(name, stream, prompt)
				if got.status != http.StatusOK || !strings.Contains(got.body, a.model) ||
					got.header.Get(gateway.HeaderModel) != a.model {
					t.Fatalf("%s, stream %v: got %d %v %s", name, stream, got.status, got.header, got.body)
				}
				if byName.header.Get(gateway.HeaderModel) != "" || len(b.sim.Calls()) != 2 ||
					b.last().Model != a.model || b.last().Input != sent.Input {
					t.Errorf("%s: the provider saw %+v", name, b.sim.Calls())
				}
				for unit, n := range b.used("upstream", "account") {
					if n != 2*once[unit] {
						t.Errorf("%s, stream %v: %d %s used, want twice %d", name, stream, n, unit, once[unit])
					}
				}
			})
		}
	}
}

// TestAliasOfEachCall: an alias stands for its model wherever a call has the name: in the path, in
// the body, or in both, also where nothing counts the call.
func TestAliasOfEachCall(t *testing.T) {
	t.Parallel()
	seen := make(chan string, 1)
	b := newBench(t, func(s *setup) {
		s.upstream = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body := make([]byte, 4096)
			n, _ := r.Body.Read(body)
			seen <- r.URL.Path + " " + string(body[:n])
			fmt.Fprint(w, `{}`)
		})
		s.config.Aliases = []gateway.Alias{
			alias(fast, "openai", "gpt-4o"),
			alias("lite", "gemini", "gemini-2.5-flash-lite"),
			alias("claude", "anthropic", "claude-haiku-4-5"),
			alias("vectors", "gemini", "gemini-embedding-001"),
		}
	})
	for _, c := range []struct{ path, body, want string }{
		{"/openai/v1/responses", `{"model":"fast","input":"a"}`, `/v1/responses {"model":"gpt-4o","input":"a"}`},
		{"/openai/v1/embeddings", `{"input":"fast","model":"fast"}`, `/v1/embeddings {"input":"fast","model":"gpt-4o"}`},
		{"/openai/deployments/fast/chat/completions", `{"messages":[]}`, `/deployments/gpt-4o/chat/completions {"messages":[]}`},
		{
			"/openai/openai/deployments/fast/chat/completions", `{"model":"fast","messages":[]}`,
			`/openai/deployments/gpt-4o/chat/completions {"model":"gpt-4o","messages":[]}`,
		},
		{
			"/anthropic/v1/messages/count_tokens", `{"model":"claude","messages":[]}`,
			`/v1/messages/count_tokens {"model":"claude-haiku-4-5","messages":[]}`,
		},
		{
			"/gemini/v1beta/models/lite:countTokens", `{"generateContentRequest":{"model":"models/lite","contents":[]}}`,
			`/v1beta/models/gemini-2.5-flash-lite:countTokens ` +
				`{"generateContentRequest":{"model":"models/gemini-2.5-flash-lite","contents":[]}}`,
		},
		{
			"/gemini/v1beta/models/vectors:batchEmbedContents",
			`{"requests":[{"model":"models/vectors","content":{}},{"content":{},"model":"vectors"}]}`,
			`/v1beta/models/gemini-embedding-001:batchEmbedContents ` +
				`{"requests":[{"model":"models/gemini-embedding-001","content":{}},{"content":{},"model":"gemini-embedding-001"}]}`,
		},
	} {
		got := b.do(b.raw(t.Context(), http.MethodPost, c.path, c.body, "Authorization: Bearer "+alice))
		if got.status != http.StatusOK {
			t.Errorf("%s %s: got %d %s", c.path, c.body, got.status, got.body)
			continue
		}
		if sent := <-seen; sent != c.want {
			t.Errorf("%s %s: sent %s, want %s", c.path, c.body, sent, c.want)
		}
	}
}

// TestAliasOfAnotherUpstream: the alias says which upstream gets the call, and with which key,
// behind any upstream of the same profile, and behind no other one.
func TestAliasOfAnotherUpstream(t *testing.T) {
	t.Parallel()
	inBubble(t, func(s *setup) {
		accounts(s)
		aliased("spare", "gpt-4o")(s)
		s.config.Upstreams = append(s.config.Upstreams, gateway.Upstream{
			Name: "anthropic", Profile: llm.Anthropic(), Models: []gateway.Model{{Name: "*", Policy: "upstream"}},
		})
	}, func(t *testing.T, b *bench) {
		got := b.byAlias("openai", false, "Hello!")
		if got.status != http.StatusOK || got.header.Get(gateway.HeaderModel) != "spare/gpt-4o" ||
			b.last().Key != "spare" {
			t.Errorf("got %d %v %s by %s", got.status, got.header, got.body, b.last().Key)
		}
		first, spare := b.used("upstream", "openai"), b.used("spare", "spare")
		if first["rpm"] != 0 || spare["rpm"] != 1 {
			t.Errorf("used: %v and %v, want that of the alias's upstream", first, spare)
		}
		got = b.byAlias("anthropic", false, "Hello!")
		if got.status != http.StatusNotFound || !strings.Contains(got.body, "another API") ||
			!strings.Contains(got.body, "not_found_error") || len(b.sim.Calls()) != 1 {
			t.Errorf("behind an upstream with another API: got %d %s", got.status, got.body)
		}
	})
}

// TestAliasCostsWhatItsModelCosts: each call of the tables of estimates, and its malformed twins,
// reserves and is settled with the same by an alias as by the model's name, or is refused as well.
//
// req: B12 C1
func TestAliasCostsWhatItsModelCosts(t *testing.T) {
	needs.NoRace(t) // calls one after the other
	t.Parallel()
	for _, provider := range llm.Names() {
		t.Run(provider, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(s *setup) {
				quietly(counting(allModels()...))(s)
				for _, list := range models {
					for _, m := range list {
						for i := range s.config.Upstreams {
							if u := &s.config.Upstreams[i]; u.Profile.Knows(m) || slices.Contains(models[u.Name], m) {
								s.config.Aliases = append(s.config.Aliases,
									alias("alias."+m, u.Name, m))
							}
						}
					}
				}
			}, func(t *testing.T, b *bench) {
				ref := &referee{bench: b, money: true}
				compared := 0
				rows := table(t, provider)
				for _, r := range rows {
					for i, twin := range twins {
						model := models[r.API][i%2]
						path, body := written(t, r.API, model, true, "What does a gate do?\nsimulate: stored=20000", []row{r},
							twin.of)
						held, settled, by := ref.judged(path, body, -1, 0)
						path, body = written(t, r.API, "alias."+model, true, "What does a gate do?\nsimulate: stored=20000",
							[]row{r}, twin.of)
						held2, settled2, by2 := ref.judged(path, body, -1, 0)
						if held2 != held || settled2 != settled || by2.status != by.status {
							t.Errorf("%s %s (%s): by the alias %d, %s, %s; by the name %d, %s, %s", model, r.JSON, twin.name,
								by2.status, held2, settled2, by.status, held, settled)
						}
						if held != "refused" {
							compared++
						}
					}
				}
				if compared < min(60, len(rows)/2) {
					t.Errorf("%d calls were compared", compared)
				}
			})
		})
	}
}

// TestRulesOfAliases: the rules that count a call by the model's name count it by the alias as
// well, by its model, its upstream and its path.
func TestRulesOfAliases(t *testing.T) {
	t.Parallel()
	for name, a := range apis {
		inBubble(t, func(s *setup) {
			aliased(a.upstream, a.model)(s)
			s.policies = append(s.policies, drawgate.Policy{Name: "caller", Limits: []drawgate.Limit{
				drawgate.RollingLimit("rpm", 100, time.Hour),
			}})
			s.rules = []rules.Rule{{
				Name: "callers", Apply: []rules.Apply{{Policy: "caller", Key: `attr("model")`}},
				When: fmt.Sprintf(`path == %q && attr("upstream") == %q && attr("family") == %q`, "/"+a.upstream+a.path,
					a.upstream, a.profile().Family(a.model).Name),
			}}
		}, func(t *testing.T, b *bench) {
			b.call(name, false, "Hello!")
			b.byAlias(name, false, "Hello!")
			if used := b.used("caller", a.model); used["rpm"] != 2 {
				t.Errorf("%s: %v used, want both calls", name, used)
			}
		})
	}
}

// TestKeysAndAliases: a key whose models name an alias gets the alias's model by that name only; a
// key that may use the model may call it by the alias.
//
// req: C12
func TestKeysAndAliases(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		models          []string
		byName, byAlias int // statuses: by the model's name, and by the alias
	}{
		{[]string{fast}, http.StatusNotFound, http.StatusOK},
		{[]string{"openai/gpt-4o"}, http.StatusOK, http.StatusOK},
		{[]string{"openai/*"}, http.StatusOK, http.StatusOK},
		{[]string{"openai/gpt-4o-mini", "anthropic/*"}, http.StatusNotFound, http.StatusNotFound},
		{[]string{"openai/fast"}, http.StatusNotFound, http.StatusNotFound},
		{nil, http.StatusOK, http.StatusOK},
	} {
		inBubble(t, func(s *setup) {
			aliased("openai", "gpt-4o")(s)
			s.config.Keys[0].Models = c.models
		}, func(t *testing.T, b *bench) {
			byName, byAlias := b.call("openai", false, "Hello!"), b.byAlias("openai", false, "Hello!")
			if byName.status != c.byName || byAlias.status != c.byAlias ||
				byAlias.status == http.StatusNotFound && strings.Contains(byAlias.body, "gpt-4o") {
				t.Errorf("a key of %q: got %d by the name and %d %s by the alias, want %d and %d", c.models, byName.status,
					byAlias.status, byAlias.body, c.byName, c.byAlias)
			}
		})
	}
}

// TestKeysReachNoOtherModelByAnAlias: a key that may use an alias cannot choose another model by
// what its call has beside it.
//
// req: C12
func TestKeysReachNoOtherModelByAnAlias(t *testing.T) {
	t.Parallel()
	inBubble(t, func(s *setup) {
		aliased("openai", "gpt-4o")(s)
		s.config.Keys[0].Models = []string{fast}
	}, func(t *testing.T, b *bench) {
		for more, want := range map[string]int{
			"":                                   http.StatusOK,
			`,"models":["gpt-5-pro"]`:            http.StatusBadRequest,
			`,"models":["fast"]`:                 http.StatusBadRequest,
			`,"fallbacks":[{"model":"gpt-4.1"}]`: http.StatusBadRequest,
			`,"tools":[{"type":"image_generation","model":"gpt-image-1"}]`: http.StatusBadRequest,
		} {
			got := b.do(b.raw(t.Context(), http.MethodPost, "/openai/v1/chat/completions",
				`{"model":"fast","max_tokens":5,"messages":[{"role":"user","content":"x"}]`+more+`}`,
				"Authorization: Bearer "+alice))
			if got.status != want {
				t.Errorf("%s: got %d %s, want %d", more, got.status, got.body, want)
			}
		}
	})
}

// TestFallbacksOfAnAlias: what its model falls back to takes its place, if the key may use that by
// its own name.
//
// req: C8
func TestFallbacksOfAnAlias(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][]string{
		"":         {"gpt-4o", "gpt-4o-mini", "gpt-4o-mini", ""},
		fast:       {"gpt-4o", "", "", ""},
		"openai/*": {"gpt-4o", "gpt-4o-mini", "gpt-4o-mini", ""},
	} {
		var answered []string
		inBubble(t, func(s *setup) {
			ladder(s)
			aliased("openai", "gpt-4o")(s)
			if name != "" {
				s.config.Keys[0].Models = []string{name}
			}
			s.options.Answered = func(upstream, model, result string) {
				answered = append(answered, upstream+" "+model+" "+result)
			}
		}, func(t *testing.T, b *bench) {
			for i, model := range want {
				got := b.byAlias("openai", false, fmt.Sprint("Hello ", i))
				if m := got.header.Get(gateway.HeaderModel); m != model {
					t.Errorf("a key of %q, call %d: got %d by %q, want %q", name, i, got.status, m, model)
				}
			}
			if !slices.Contains(answered, "openai gpt-4o answered") {
				t.Errorf("reported %q", answered)
			}
		})
	}
}

// TestCachedAnswersOfAnAlias: an answer is kept for the model for which the alias stood, and with
// its name.
//
// req: C8
func TestCachedAnswersOfAnAlias(t *testing.T) {
	t.Parallel()
	inBubble(t, func(s *setup) {
		aliased("openai", "gpt-4o")(s)
		s.config.Upstreams[0].Models = []gateway.Model{
			{Name: "*", Policy: "upstream", Cache: gateway.Cache{TTL: time.Hour}},
		}
	}, func(t *testing.T, b *bench) {
		b.call("openai", true, "Hello!")
		if got := b.byAlias("openai", true, "Hello!"); got.header.Get(gateway.HeaderCache) != gateway.CacheHit ||
			got.header.Get(gateway.HeaderModel) != "gpt-4o" {
			t.Errorf("got %v, want the answer to the same call by the model's name", got.header)
		}
		s := newSetup(aliased("openai", "gpt-4o-mini"))
		for i := range s.config.Upstreams {
			u := &s.config.Upstreams[i]
			u.URL = &url.URL{Scheme: "http", Host: "provider.test", Path: "/" + u.Profile.Name}
		}
		s.config.Upstreams[0].Models[0].Cache.TTL = time.Hour
		if err := b.h.Use(s.config); err != nil {
			t.Fatal(err)
		}
		if got := b.byAlias("openai", true, "Hello!"); got.header.Get(gateway.HeaderCache) != "" ||
			b.last().Model != "gpt-4o-mini" {
			t.Errorf("got %v by %s, want the new model's own answer", got.header, b.last().Model)
		}
	})
}

// TestHostileAliases: a call that names its model in two ways is refused whichever of them is an
// alias, and what only resembles an alias is none.
func TestHostileAliases(t *testing.T) {
	t.Parallel()
	inBubble(t, aliased("openai", "gpt-4o"), func(t *testing.T, b *bench) {
		const chat, azure = "/openai/v1/chat/completions", "/openai/openai/deployments/%s/chat/completions"
		for _, c := range []struct {
			path, body string
			status     int
			sent       string // the model; "": nothing is sent
		}{
			{chat, `{"model":"fast","model":"gpt-4.1"}`, 400, ""},
			{chat, `{"model":"gpt-4.1","model":"fast"}`, 400, ""},
			{chat, `{"model":"fast","model":"fast"}`, 400, ""},
			{chat, `{"model":"fast","\u006dodel":"gpt-4.1"}`, 400, ""},
			{chat, `{"Model":"fast"}`, 400, ""},
			{chat, `{"model":"fast","Model":"gpt-4.1"}`, 400, ""},
			{chat, `{"model":["fast"]}`, 400, ""},
			{chat, `{"model":{"model":"fast"}}`, 400, ""},
			{chat, `{"model":"fast "}`, 400, ""},
			{chat, `{"model":"fa\u200bst"}`, 400, ""},
			{chat, `{"model":"fast"`, 400, ""},
			{chat, `{"model":"fast"}x`, 400, ""},
			{chat, `{"model":"fast"}{"model":"gpt-4.1"}`, 400, ""},
			{fmt.Sprintf(azure, "fast"), `{"model":"gpt-4.1"}`, 400, ""},
			{fmt.Sprintf(azure, "gpt-4.1"), `{"model":"fast"}`, 400, ""},
			{fmt.Sprintf(azure, "fast"), `{"model":"gpt-4o"}`, 400, ""},
			{fmt.Sprintf(azure, "fast%2f..%2fx"), `{}`, 400, ""},
			{"/openai/v1/engines/fast/completions", `{}`, 404, ""},
			{chat, `{"model":"f\u0061st","messages":[{"role":"user","content":"x"}],"user":"fast"}`, 200, "gpt-4o"},
			{chat, `{"messages":[{"role":"user","content":"\"model\":\"fast\""}],"model" : "fast"}`, 200, "gpt-4o"},
			{chat, `{"model":"models/fast","messages":[{"role":"user","content":"x"}]}`, 200, "models/fast"},
			{chat, `{"model":"openai/fast","messages":[{"role":"user","content":"x"}]}`, 200, "openai/fast"},
			{chat, `{"model":"FAST","messages":[{"role":"user","content":"x"}]}`, 200, "FAST"},
			{chat, `{"model":"faster","messages":[{"role":"user","content":"x"}]}`, 200, "faster"},
			{chat, `{"model":"ft:fast","messages":[{"role":"user","content":"x"}]}`, 200, "ft:fast"},
		} {
			before := len(b.sim.Calls())
			got := b.do(b.raw(t.Context(), http.MethodPost, c.path, c.body, "Authorization: Bearer "+alice))
			sent := ""
			if calls := b.sim.Calls(); len(calls) > before {
				sent = calls[len(calls)-1].Model
			}
			if got.status != c.status || sent != c.sent {
				t.Errorf("%s %s: got %d %s, sent as %q; want %d, %q", c.path, c.body, got.status, got.body, sent, c.status,
					c.sent)
			}
		}
	})
}

// TestOthersAndAliases: what nothing counts passes as it is, and a key that may use an alias may
// not name its model there, nor anything by the alias.
func TestOthersAndAliases(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(s *setup) {
		aliased("openai", "gpt-4o")(s)
		s.config.Upstreams[0].Others = []string{"/v1/videos"}
		s.config.Keys[0].Models = []string{fast}
		s.upstream = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body := make([]byte, 4096)
			n, _ := r.Body.Read(body)
			w.Write(body[:n])
		})
	})
	for body, want := range map[string]map[string]int{
		`{"model":"fast"}`:   {alice: 404, bob: 200},
		`{"model":"gpt-4o"}`: {alice: 404, bob: 200},
	} {
		for key, status := range want {
			got := b.do(b.raw(t.Context(), http.MethodPost, "/openai/v1/videos", body,
				"Authorization: Bearer "+key))
			if got.status != status || status == 200 && got.body != body {
				t.Errorf("%s by %s: got %d %s, want %d", body, key, got.status, got.body, status)
			}
		}
	}
	for _, path := range []string{"/openai/v1/models", "/openai/v1/models/fast"} {
		if got := b.do(b.raw(t.Context(), http.MethodGet, path, "", "Authorization: Bearer "+bob)); got.status != 200 {
			t.Errorf("%s: got %d, want the provider's own answer", path, got.status)
		}
	}
}

// TestMistakesOfAliases: each is an error that names the alias.
func TestMistakesOfAliases(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	for name, c := range map[string]struct {
		aliases []gateway.Alias
		change  func(*gateway.Config)
	}{
		"no name":              {aliases: []gateway.Alias{alias("", "openai", "x")}},
		"a slash":              {aliases: []gateway.Alias{alias("a/b", "openai", "x")}},
		"a colon":              {aliases: []gateway.Alias{alias("a:b", "openai", "x")}},
		"dots":                 {aliases: []gateway.Alias{alias("..", "openai", "x")}},
		"a long name":          {aliases: []gateway.Alias{alias(strings.Repeat("a", 129), "openai", "x")}},
		"twice":                {aliases: []gateway.Alias{alias(fast, "openai", "x"), alias(fast, "openai", "y")}},
		"twice, in capitals":   {aliases: []gateway.Alias{alias(fast, "openai", "x"), alias("Fast", "openai", "x")}},
		"no such upstream":     {aliases: []gateway.Alias{alias(fast, "opneai", "x")}},
		"no model":             {aliases: []gateway.Alias{alias(fast, "openai", "")}},
		"of an alias":          {aliases: []gateway.Alias{alias(fast, "openai", "x"), alias("quick", "openai", fast)}},
		"of itself":            {aliases: []gateway.Alias{alias(fast, "openai", "FAST")}},
		"no model's name":      {aliases: []gateway.Alias{alias(fast, "openai", `x","y":"`)}},
		"no path's name":       {aliases: []gateway.Alias{alias(fast, "gemini", "tunedModels/x")}},
		"no path's characters": {aliases: []gateway.Alias{alias(fast, "gemini", "x:generateContent")}},
		"a path":               {aliases: []gateway.Alias{alias(fast, "openai", "..")}},
		"no models":            {aliases: []gateway.Alias{{Name: fast}}},
		"the same one twice":   {aliases: []gateway.Alias{several(0, "openai/x", "openai/x")}},
		"two APIs":             {aliases: []gateway.Alias{several(0, "openai/x", "gemini/x")}},
		"a negative weight":    {aliases: []gateway.Alias{several(-1, "openai/x", "openai/y")}},
		"a large weight":       {aliases: []gateway.Alias{several(1001, "openai/x", "openai/y")}},
		"one of several":       {aliases: []gateway.Alias{several(1, "openai/x", "opneai/x")}},
		"a known model":        {aliases: []gateway.Alias{alias("gpt-4o", "openai", "x")}},
		"a version of one":     {aliases: []gateway.Alias{alias("GPT-4.1-turbo", "openai", "x")}},
		"nothing counts it": {
			aliases: []gateway.Alias{alias(fast, "openai", "x")},
			change:  func(c *gateway.Config) { c.Upstreams[0].Models[0].Name = "gpt-*" },
		},
		"a listed model": {
			aliases: []gateway.Alias{alias(fast, "openai", "x")},
			change: func(c *gateway.Config) {
				c.Upstreams[0].Models = append(c.Upstreams[0].Models, gateway.Model{Name: "Fast", Policy: "upstream"})
			},
		},
		"a pattern of another upstream": {
			aliases: []gateway.Alias{alias(fast, "openai", "x")},
			change: func(c *gateway.Config) {
				other := c.Upstreams[0]
				other.Name, other.Models = "other", []gateway.Model{{Name: "fa*", Policy: "upstream"}}
				c.Upstreams = append(c.Upstreams, other)
			},
		},
		"a fallback": {
			aliases: []gateway.Alias{alias(fast, "openai", "x")},
			change:  func(c *gateway.Config) { c.Upstreams[0].Models[0].Fallbacks = []string{fast} },
		},
		"a fallback, of an upstream": {
			aliases: []gateway.Alias{alias(fast, "openai", "x")},
			change:  func(c *gateway.Config) { c.Upstreams[0].Models[0].Fallbacks = []string{"openai/Fast"} },
		},
	} {
		s := newSetup(nil)
		for i := range s.config.Upstreams {
			s.config.Upstreams[i].URL = closedURL()
		}
		s.config.Aliases = c.aliases
		if c.change != nil {
			c.change(&s.config)
		}
		if err := b.h.Use(s.config); err == nil || !strings.HasPrefix(err.Error(), "gateway: ") ||
			!strings.Contains(err.Error(), "alias") {
			t.Errorf("%s: got %v, want an error", name, err)
		}
	}
	s := newSetup(nil)
	for i := range s.config.Upstreams {
		s.config.Upstreams[i].URL = closedURL()
	}
	// An upstream whose calls are written in another way may have a model of this name.
	s.config.Upstreams[1].Models = []gateway.Model{{Name: fast, Policy: "upstream"}}
	s.config.Aliases = []gateway.Alias{alias(fast, "openai", "meta-llama/llama-4:free"), alias("openai", "gemini", "x")}
	if err := b.h.Use(s.config); err != nil {
		t.Errorf("got %v, want no mistake", err)
	}
}
