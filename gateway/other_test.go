package gateway_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/gateway"
	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/llm/simulator"
	"github.com/drawgate/drawgate/outbound"
)

// The keys of two accounts of one provider.
const (
	firstKey = "sk-first-account-42"
	spareKey = "sk-spare-account-42"
)

// accounts configures two upstreams of one provider. The first one, whose name is openai, has one
// request a minute; models whose names have a slash are its own.
func accounts(s *setup) {
	onePerMinute(s)
	spare := generous()
	spare.Name, spare.Limits[0].Amount = "spare", 2
	s.policies = append(s.policies, spare)
	s.sim.Keys = []simulator.Key{{Secret: firstKey, Name: "first"}, {Secret: spareKey, Name: "spare"}}
	s.options.Wait = time.Second
	s.config.Upstreams = []gateway.Upstream{
		{Name: "openai", Profile: llm.OpenAI(), Key: firstKey, Models: []gateway.Model{
			{Name: "gpt-4o", Policy: "upstream", Fallbacks: []string{"spare/gpt-4o"}},
			{Name: "gpt-4.1", Policy: "upstream", Fallbacks: []string{
				"meta-llama/llama-4",
				"spare/meta-llama/llama-4",
			}},
			{Name: "meta-llama/*", Policy: "upstream"},
		}},
		{Name: "spare", Profile: llm.OpenAI(), Key: spareKey, Models: []gateway.Model{{Name: "*", Policy: "spare"}}},
	}
}

// TestFallbackToAnotherUpstream: while the quota of an account is exhausted, its calls are made
// with another account: with its key, and counted by its quota.
//
// req: C8
func TestFallbackToAnotherUpstream(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{false, true} {
		var answered []string
		inBubble(t, func(s *setup) {
			accounts(s)
			s.options.Answered = func(upstream, model, result string) {
				answered = append(answered,
					upstream+" "+model+" "+result)
			}
		}, func(t *testing.T, b *bench) {
			for i, want := range []struct{ step, key string }{
				{"200, sent as gpt-4o", "first"},
				{"200 spare/gpt-4o, sent as gpt-4o", "spare"},
				{"200 spare/gpt-4o, sent as gpt-4o", "spare"},
			} {
				if got := b.step("openai", stream, "Hello!"); got != want.step || b.last().Key != want.key {
					t.Errorf("call %d: %s, of the account %s; want %s, of %s", i, got, b.last().Key, want.step,
						want.key)
				}
			}
			if got := b.step("openai", stream, "Hello!"); got != "429" {
				t.Errorf("both are exhausted: %s", got)
			}
			if first, spare := b.used("upstream", "openai"), b.used("spare", "spare"); first["rpm"] != 1 ||
				spare["rpm"] != 2 {
				t.Errorf("used: %v and %v", first, spare)
			}
			want := []string{
				"openai gpt-4o answered", "openai gpt-4o other_model", "openai gpt-4o other_model",
				"openai gpt-4o refused",
			}
			if !slices.Equal(answered, want) {
				t.Errorf("reported %q, want %q", answered, want)
			}
		})
	}
}

// TestFallbacksWithASlash: the first segment names an upstream only if there is one of this name.
//
// req: C8
func TestFallbacksWithASlash(t *testing.T) {
	t.Parallel()
	inBubble(t, accounts, func(t *testing.T, b *bench) {
		gpt41 := func() string {
			r := b.raw(t.Context(), http.MethodPost, "/openai/v1/chat/completions",
				`{"model":"gpt-4.1","max_tokens":5,"messages":[{"role":"user","content":"Hi!"}]}`,
				"Authorization: Bearer "+alice)
			return b.do(r).header.Get(gateway.HeaderModel)
		}
		if got := gpt41(); got != "" {
			t.Errorf("the first call: %q", got)
		}
		// The first fallback is the account's own, which is exhausted as well.
		if got := gpt41(); got != "spare/meta-llama/llama-4" || b.last().Model != "meta-llama/llama-4" {
			t.Errorf("the second call: %q, sent as %s", got, b.last().Model)
		}
	})
}

// TestKeysAndOtherUpstreams: a key does not reach an upstream by a fallback that it may not use.
//
// req: C8
func TestKeysAndOtherUpstreams(t *testing.T) {
	t.Parallel()
	inBubble(t, func(s *setup) {
		accounts(s)
		s.config.Keys[0].Models = []string{"openai/*"}
	}, func(t *testing.T, b *bench) {
		for i, want := range []string{"200, sent as gpt-4o", "429"} {
			if got := b.step("openai", false, "Hello!"); got != want {
				t.Errorf("call %d: %s, want %s", i, got, want)
			}
		}
	})
}

// TestOtherUpstreamOfAnOpenCircuit: another upstream has a circuit of its own.
//
// req: C4 C8
func TestOtherUpstreamOfAnOpenCircuit(t *testing.T) {
	t.Parallel()
	inBubble(t, func(s *setup) {
		accounts(s)
		s.policies[0] = generous()
		s.config.Upstreams[0].Breaker = outbound.Breaker{Failures: 1, Open: time.Hour}
	}, func(t *testing.T, b *bench) {
		b.call("openai", false, "Hi!\nsimulate: fault=500")
		if got := b.step("openai", false, "Hello!"); got != "200 spare/gpt-4o, sent as gpt-4o" {
			t.Errorf("%s, want the answer of the other upstream", got)
		}
	})
}

// TestModelThatIsNotOffered: a fallback takes the place of a model that the provider's plan does
// not have; without one, the caller is told.
//
// req: C1 C8
func TestModelThatIsNotOffered(t *testing.T) {
	t.Parallel()
	inBubble(t, func(s *setup) {
		accounts(s)
		s.policies[0] = generous()
		s.config.Upstreams[0].Models[1].Fallbacks = nil
		s.config.Upstreams[0].Models = append(s.config.Upstreams[0].Models,
			gateway.Model{Name: "o1", Policy: "upstream", Fallbacks: []string{"gpt-4o"}})
		none := []simulator.Limit{{
			Name: "rpm", Dimension: simulator.Requests, Window: simulator.Rolling,
			Scope: simulator.Project,
		}}
		s.sim.Keys[0].Project = "first"
		s.sim.Quotas = []simulator.Quota{{
			Provider: "openai", Name: "none", Models: []string{"gpt-4.1", "o1"},
			Limits: none,
		}, {Provider: "openai", Name: "rest", Models: []string{"*"}}}
	}, func(t *testing.T, b *bench) {
		call := func(model string, headers ...string) reply {
			r := b.raw(t.Context(), http.MethodPost, "/openai/v1/chat/completions",
				`{"model":"`+model+`","max_tokens":5,"messages":[{"role":"user","content":"Hi!"}]}`,
				append(headers, "Authorization: Bearer "+alice)...)
			return b.do(r)
		}
		if got := call("gpt-4.1", "OpenAI-Organization: other"); got.status != http.StatusTooManyRequests {
			t.Fatalf("the first call: %d %s, want the provider's own answer", got.status, got.body)
		}
		if got := call("gpt-4.1"); got.status != http.StatusNotFound || got.header.Get("X-Should-Retry") != "false" ||
			len(b.sim.Calls()) != 1 {
			t.Errorf("the second call: %d %s, and the provider got %d calls", got.status, got.body, len(b.sim.Calls()))
		}
		if got := b.step("openai", false, "Hello!"); got != "200, sent as gpt-4o" {
			t.Errorf("another model: %s", got)
		}
		for range 2 {
			if got := call("o1"); got.status != http.StatusOK || got.header.Get(gateway.HeaderModel) != "gpt-4o" {
				t.Errorf("with a fallback: %d %s", got.status, got.body)
			}
		}
		if n := len(b.sim.Calls()); n != 1+1+1+2 {
			t.Errorf("the provider got %d calls, want one of each model that it does not have, and three of the other",
				n)
		}
	})
}

// TestGatewayObeysWhatTheProviderTells: amounts that headers tell count for all callers, whatever
// organisation they name.
//
// req: C9
func TestGatewayObeysWhatTheProviderTells(t *testing.T) {
	t.Parallel()
	inBubble(t, func(s *setup) {
		own := drawgate.RollingLimit("own", 8, time.Minute)
		large := generous()
		large.Limits[0].Margin = 2 * time.Second
		s.policies = []drawgate.Policy{large, {Name: "caller", Limits: []drawgate.Limit{own}}}
		s.rules = callerRule(`attr("key")`)
		s.options.Wait = time.Hour
		s.sim.Quotas = []simulator.Quota{{
			Provider: "openai", Name: "small", Models: []string{"*"},
			Limits: []simulator.Limit{{
				Name: "rpm", Dimension: simulator.Requests, Window: simulator.Rolling,
				Amount: 5,
			}},
		}}
	}, func(t *testing.T, b *bench) {
		for i := range 20 {
			if got := b.call("openai", i%2 == 0, "Hello!",
				"OpenAI-Organization: org-"+string(rune('a'+i))); got.status != http.StatusOK {
				t.Errorf("call %d: %d %s", i, got.status, got.body)
			}
		}
		if v := b.sim.Violations(); v.Total != 0 {
			t.Errorf("%d calls were refused by the provider", v.Total)
		}
		if used := b.used("caller", "alice"); used["own"] > 8 {
			t.Errorf("%v used of the caller's own limit, which is 8", used)
		}
	})
}
