package llm_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/llm"
)

// TestLikeOpenAIUsage: where each provider whose API is like OpenAI's tells what a stream used, and
// what it says of caches and reasoning in words of its own.
func TestLikeOpenAIUsage(t *testing.T) {
	t.Parallel()
	const text = `{"choices":[{"index":0,"delta":{"content":"Hello"}}]}`
	for name, c := range map[string]struct {
		last               string // chunk
		asks               bool   // stream_options have to ask for it
		input, read, whole int64
		output, reasoning  int64
	}{
		"xai": {
			`{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":4,"total_tokens":34,` +
				`"completion_tokens_details":{"reasoning_tokens":20},"num_sources_used":0}}`, true, 10, 0, 34, 24, 20,
		},
		"mistral": {
			`{"choices":[{"index":0,"delta":{"content":""},"finish_reason":"stop"}],` +
				`"usage":{"prompt_tokens":10,"completion_tokens":4,"total_tokens":14}}`, false, 10, 0, 14, 4, 0,
		},
		"deepseek": {
			`{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":44,"total_tokens":54,` +
				`"prompt_cache_hit_tokens":7,"prompt_cache_miss_tokens":3,"completion_tokens_details":{"reasoning_tokens":40}}}`,
			true, 10, 7, 54, 44, 40,
		},
		"groq": {
			`{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"x_groq":{"id":"req_1","usage":{"queue_time":0.1,` +
				`"prompt_tokens":10,"completion_tokens":4,"total_tokens":14,"prompt_tokens_details":{"cached_tokens":6}}}}`,
			false, 10, 6, 14, 4, 0,
		},
		"together": {
			`{"choices":[{"index":0,"delta":{"content":""},"finish_reason":"stop"}],` +
				`"usage":{"prompt_tokens":10,"completion_tokens":4,"total_tokens":14}}`, false, 10, 0, 14, 4, 0,
		},
		"vllm": {
			`{"choices":[],"usage":{"prompt_tokens":10,"total_tokens":14,"completion_tokens":4,"prompt_tokens_details":null}}`,
			true, 10, 0, 14, 4, 0,
		},
		"ollama": {
			`{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":4,"total_tokens":14}}`, true, 10, 0, 14, 4, 0,
		},
	} {
		p := profile(t, name)
		path := "/v1/chat/completions"
		if name == "groq" {
			path = "/openai" + path
		}
		call := parse(t, p, path, `{"model":"m","stream":true,"max_tokens":100,"messages":[{"role":"user","content":"Hi"}]}`)
		if !p.Documented(http.MethodPost, path) || call.NeedsUsage() != c.asks || call.Unknown > 0 {
			t.Errorf("%s: documented %v, needs usage %v, %d unknown", name, p.Documented(http.MethodPost, path),
				call.NeedsUsage(), call.Unknown)
		}
		s := read(p, call, ": keep-alive\n\ndata: "+text+"\n\ndata: "+c.last+"\n\ndata: [DONE]\n\n")
		u := s.Usage()
		if !u.Final || u.Input != c.input || u.CacheRead != c.read || u.Output != c.output ||
			u.Reasoning != c.reasoning {
			t.Errorf("%s: usage %+v", name, u)
		}
		costs := p.Settlement(call, p.Upper(call), u)
		if n := costs[1].N; n < c.whole || n > max(c.whole, 100) {
			t.Errorf("%s: settled with %v, want %d tokens or max_tokens", name, costs, c.whole)
		}
	}
}

// TestLikeOpenAIRefusals: what a refusal of each of these providers means, by their own words and
// headers.
func TestLikeOpenAIRefusals(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)
	month := time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)
	minute, credit := now.Add(time.Minute), now.Add(5*time.Minute)
	const groq = `{"error":{"message":"Rate limit reached for model ` + "`llama-3.1-8b-instant`" + ` in organization ` +
		"`org_01abcdef`" + ` service tier ` + "`on_demand`" + ` on tokens per %s (TP): Limit 6000, Used 5000, Requested 2000. ` +
		`Please try again in 7.06s.","type":"tokens","code":"rate_limit_exceeded"}}`
	const spent = `{"code":"Some resource has been exhausted","error":"Your team 16f2151a-40f4-4a80-8ad0-cae00c27e8dd has ` +
		`either used all available credits or reached its monthly spending limit."}`
	const limited = `{"object":"error","message":"Rate limit exceeded","type":"rate_limited","param":null,"code":"1300"}`
	for what, c := range map[string]struct {
		profile string
		status  int
		header  http.Header
		body    string
		meaning llm.Meaning
		unit    string
		until   time.Time
	}{
		"xai":             {"xai", 429, nil, `{"code":"x","error":"Too many requests"}`, llm.PerMinute, "", minute},
		"xai, credit":     {"xai", 429, nil, spent, llm.Credit, "", credit},
		"xai, wrong call": {"xai", 400, nil, `{"code":"Client specified an invalid argument","error":"x"}`, llm.NotQuota, "", time.Time{}},
		"mistral":         {"mistral", 429, nil, limited, llm.PerMinute, "", minute},
		"mistral, hint": {
			"mistral", 429,
			http.Header{"Retry-After": {"7"}},
			limited, llm.PerMinute, "",
			now.Add(7 * time.Second),
		},
		"mistral, not of the plan": {
			"mistral", 429,
			http.Header{"X-Ratelimit-Limit-Req-Minute": {"0"}},
			limited, llm.NotOffered, "",
			now.Add(24 * time.Hour),
		},
		"mistral, month": {
			"mistral", 429, http.Header{
				"X-Ratelimit-Limit-Tokens-Month": {"1000000"}, "X-Ratelimit-Remaining-Tokens-Month": {"0"},
			}, limited, llm.Spend, llm.UnitTokens, month,
		},
		"mistral, capacity": {
			"mistral", 429, nil, `{"object":"error","message":"Service tier capacity exceeded for this model.",` +
				`"type":"service_tier_capacity_exceeded","code":"3505"}`, llm.Overload, "", time.Time{},
		},
		"deepseek": {"deepseek", 429, nil, `{"error":{"message":"Too fast","type":"x"}}`, llm.PerMinute, "", minute},
		"deepseek, credit": {
			"deepseek", 402, nil, `{"error":{"message":"Insufficient Balance","type":"unknown_error"}}`, llm.Credit, "", credit,
		},
		"groq": {
			"groq", 429,
			http.Header{"Retry-After": {"8"}},
			strings.Replace(groq, "%s", "minute", 1), llm.PerMinute, llm.UnitTokens,
			now.Add(8 * time.Second),
		},
		"groq, day": {
			"groq", 429, nil, strings.Replace(groq, "%s", "day", 1), llm.PerDay, llm.UnitTokens,
			now.Add(7060 * time.Millisecond),
		},
		"groq, flex": {"groq", 498, nil, `{"error":{"message":"capacity"}}`, llm.Overload, "", time.Time{}},
		"together, requests": {
			"together", 429, nil, `{"error":{"message":"x","error_type":"dynamic_request_limited"}}`, llm.PerMinute,
			drawgate.UnitRequests, minute,
		},
		"together, tokens": {
			"together", 429, http.Header{
				"X-Tokenlimit-Limit": {"500"}, "X-Tokenlimit-Remaining": {"0"}, "X-Tokenlimit-Reset": {"2"},
			}, `{"error_type":"dynamic_token_limited","message":"x"}`, llm.PerMinute, llm.UnitTokens, now.Add(2 * time.Second),
		},
		"together, overload": {"together", 503, nil, `{"error":{"message":"x"}}`, llm.Overload, "", time.Time{}},
		"vllm, wrong call": {
			"vllm", 400, nil, `{"error":{"message":"x","type":"BadRequestError","param":null,"code":400}}`, llm.NotQuota, "",
			time.Time{},
		},
		"vllm, flat":   {"vllm", 404, nil, `{"object":"error","message":"x","type":"NotFoundError","code":404}`, llm.NotQuota, "", time.Time{}},
		"ollama, busy": {"ollama", 503, nil, `{"error":{"message":"server busy"}}`, llm.Overload, "", time.Time{}},
	} {
		r := profile(t, c.profile).Refusal(c.status, c.header, []byte(c.body), now)
		if r.Meaning != c.meaning || r.Unit != c.unit || !r.ReopenAt.Equal(c.until) {
			t.Errorf("%s: got %v of %q until %v, want %v of %q until %v", what, r.Meaning, r.Unit, r.ReopenAt, c.meaning,
				c.unit, c.until)
		}
		if c.profile == "groq" && r.Model != "" && r.Model != "llama-3.1-8b-instant" {
			t.Errorf("%s: of the model %q", what, r.Model)
		}
	}
	for _, body := range []string{spent, groq} {
		if got := string(llm.WithoutAccount([]byte(body), nil)); strings.Contains(got, "16f2151a") ||
			strings.Contains(got, "01abcdef") {
			t.Errorf("the account is in %s", got)
		}
	}
}

// TestLikeOpenAIHeaders: limits of a minute are learned; those of a day, a month or a second are
// known for what they are; and callers see none of them.
func TestLikeOpenAIHeaders(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		header map[string]string
		want   []llm.Observed
	}{
		"xai": {
			map[string]string{"x-ratelimit-limit-requests": "480", "x-ratelimit-remaining-requests": "479"},
			[]llm.Observed{{Unit: drawgate.UnitRequests, Limit: 480, Remaining: 479, Step: 1}},
		},
		"mistral": {
			map[string]string{
				"x-ratelimit-limit-tokens-minute": "5000000", "x-ratelimit-remaining-tokens-minute": "4999911",
				"x-ratelimit-limit-tokens-month": "10000000", "x-ratelimitbysize-limit": "7",
			},
			[]llm.Observed{
				{Unit: llm.UnitTokens, Limit: 5_000_000, Remaining: 4_999_911, Step: 1},
				{Unit: llm.UnitTokens, Scope: "month", Limit: 10_000_000, Remaining: -1, Step: 1},
			},
		},
		"groq": {
			map[string]string{
				"x-ratelimit-limit-requests": "14400", "x-ratelimit-remaining-requests": "14370",
				"x-ratelimit-reset-requests": "2m59.5s", "x-ratelimit-limit-tokens": "18000",
			},
			[]llm.Observed{
				{
					Unit: drawgate.UnitRequests, Scope: "day", Limit: 14_400, Remaining: 14_370, Step: 1,
					ResetAt: now.Add(179500 * time.Millisecond),
				},
				{Unit: llm.UnitTokens, Limit: 18_000, Remaining: -1, Step: 1},
			},
		},
		"together": {
			map[string]string{"x-ratelimit-limit": "10", "x-ratelimit-remaining": "9", "x-tokenlimit-limit": "3000"},
			[]llm.Observed{
				{Unit: drawgate.UnitRequests, Scope: "second", Limit: 10, Remaining: 9, Step: 1},
				{Unit: llm.UnitTokens, Scope: "second", Limit: 3000, Remaining: -1, Step: 1},
			},
		},
		"deepseek": {map[string]string{"x-ratelimit-limit-requests": "1"}, nil},
		"vllm":     {map[string]string{"x-ratelimit-limit-requests": "1"}, nil},
		"ollama":   {map[string]string{"x-ratelimit-limit-requests": "1"}, nil},
	} {
		p, h := profile(t, name), http.Header{}
		for k, v := range c.header {
			h.Set(k, v)
		}
		got := p.Observed(h, now)
		slices.SortFunc(got, func(a, b llm.Observed) int { return strings.Compare(a.Unit+a.Scope, b.Unit+b.Scope) })
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
		for k := range h {
			if !p.QuotaHeader(k) {
				t.Errorf("%s: callers see %s", name, k)
			}
		}
		var learned llm.Learned
		call := &llm.Call{Family: "m"}
		learned.NoteObserved(p, call, got, now)
		requests := drawgate.RollingLimit("rpm", 100_000, time.Minute)
		if n := learned.Of(call, &requests, now); n != 100_000 && name != "xai" {
			t.Errorf("%s: %d requests per minute were learned", name, n)
		}
	}
}

// TestOnlyMaxTokens: max_completion_tokens bounds an answer only where the provider knows it, and
// in chat completions.
func TestOnlyMaxTokens(t *testing.T) {
	t.Parallel()
	for _, p := range llm.Profiles() {
		if p.Name == "anthropic" || p.Name == "gemini" {
			continue
		}
		knows := slices.Contains([]string{"openai", "xai", "groq", "vllm"}, p.Name)
		call := parse(t, p, "/v1/chat/completions", `{"model":"m","max_completion_tokens":5,"messages":[]}`)
		if most := p.MaxOutput(call); (most == 5) != knows || (call.Unknown > 0) == knows {
			t.Errorf("%s: at most %d tokens, %d unknown", p.Name, most, call.Unknown)
		}
		if !p.Documented(http.MethodPost, "/v1/completions") {
			continue
		}
		call = parse(t, p, "/v1/completions", `{"model":"m","max_completion_tokens":5,"prompt":"x"}`)
		if most := p.MaxOutput(call); most < 100 {
			t.Errorf("%s: a completion with max_completion_tokens has at most %d tokens", p.Name, most)
		}
	}
}

// TestDeferredIsInTheBackground: xAI has two fields that ask for an answer which is fetched by
// another call; neither of them takes back what the other one asks for.
func TestDeferredIsInTheBackground(t *testing.T) {
	t.Parallel()
	p, _ := llm.ByName("xai")
	for _, fields := range []string{
		`"deferred":true`, `"deferred":true,"background":false`, `"background":false,"deferred":true`,
		`"deferred":false,"background":true`, `"background":true,"deferred":null`,
	} {
		if !parse(t, p, "/v1/chat/completions", `{"model":"grok-4","messages":[],`+fields+`}`).Background {
			t.Errorf("%s is not in the background", fields)
		}
	}
	if parse(t, p, "/v1/chat/completions", `{"model":"grok-4","messages":[],"deferred":false,"background":null}`).Background {
		t.Error("an answer that comes at once is in the background")
	}
}
