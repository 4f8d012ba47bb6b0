package simulator_test

import (
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate/llm/simulator"
)

// calls has one call of each provider.
var calls = map[simulator.Provider]struct{ path, body string }{
	simulator.OpenAI:    {chatPath, chat("x")},
	simulator.Anthropic: {messagePath, message("x")},
	simulator.Gemini:    {geminiPath, contents("x")},
	simulator.Generic:   {genericPath, `{"prompt":"x"}`},
	simulator.XAI:       {"/xai/v1/chat/completions", chat("x")},
	simulator.Mistral:   {"/mistral/v1/chat/completions", chat("x")},
	simulator.DeepSeek:  {"/deepseek/chat/completions", chat("x")},
	simulator.Groq:      {"/groq/openai/v1/chat/completions", chat("x")},
	simulator.Together:  {"/together/v1/chat/completions", chat("x")},
	simulator.VLLM:      {"/vllm/v1/chat/completions", chat("x")},
	simulator.Ollama:    {"/ollama/v1/chat/completions", chat("x")},
}

// TestEachProvider: these tests have a call of each provider, which is answered behind its name
// too.
func TestEachProvider(t *testing.T) {
	t.Parallel()
	for _, p := range simulator.Providers {
		c, ok := calls[p]
		if !ok {
			t.Errorf("there is no call of %s: add one to calls", p)
			continue
		}
		s := newServer(t, nil)
		behind := "/" + string(p)
		for _, path := range []string{c.path, behind + strings.TrimPrefix(c.path, behind)} {
			if got := post(t, s, path, c.body); got.status != 200 || last(t, s).Provider != p {
				t.Errorf("%s: got %d %s, by %q", path, got.status, got.body, last(t, s).Provider)
			}
		}
	}
}

// TestRefusalsByQuota: each provider's body and headers for a limit that is full, 2 seconds after
// the call that filled it.
func TestRefusalsByQuota(t *testing.T) {
	t.Parallel()
	day := simulator.Limit{
		Name: "rpd", Dimension: simulator.Requests, Amount: 1, Window: simulator.Day,
		Zone: simulator.Pacific,
	}
	for name, c := range map[string]struct {
		provider simulator.Provider
		limit    simulator.Limit
		want     map[string]any
		header   map[string]string
	}{
		"OpenAI, requests": {simulator.OpenAI, perMinute(simulator.Requests, 1), map[string]any{
			"error.message": "Rate limit reached for gpt-4.1 in organization default on requests per min (RPM): Limit 1, Used 1, Requested 1. Please try again in 1m0s.",
			"error.type":    "requests", "error.code": "rate_limit_exceeded",
		}, map[string]string{
			"X-Ratelimit-Limit-Requests": "1", "X-Ratelimit-Remaining-Requests": "0",
			"X-Ratelimit-Reset-Requests": "1m0s", "Retry-After": "",
			"X-Ratelimit-Limit-Tokens": "",
		}},
		"OpenAI, tokens": {simulator.OpenAI, perMinute(simulator.Tokens, 50), map[string]any{
			"error.message": "Rate limit reached for gpt-4.1 in organization default on tokens per min (TPM): Limit 50, Used 40, Requested 20. Please try again in 58s.",
			"error.type":    "tokens",
		}, map[string]string{
			"X-Ratelimit-Limit-Tokens": "50", "X-Ratelimit-Remaining-Tokens": "10",
			"X-Ratelimit-Reset-Tokens": "58s",
		}},
		"OpenAI, never": {simulator.OpenAI, perMinute(simulator.Tokens, 19), map[string]any{
			"error.message": "Request too large for gpt-4.1 in organization default on tokens per min (TPM): Limit 19, Requested 20. The input or output tokens must be reduced in order to run successfully.",
		}, nil},
		"OpenAI, day": {simulator.OpenAI, day, map[string]any{
			"error.message": "Rate limit reached for gpt-4.1 in organization default on requests per day (RPD): Limit 1, Used 1, Requested 1. Please try again in 7h59m58s.",
		}, nil},
		"Anthropic, input": {simulator.Anthropic, perMinute(simulator.InputTokens, 2000), map[string]any{
			"type": "error", "error.type": "rate_limit_error", "request_id": "req_000000000000000000000002",
			"error.message": "This request would exceed your organization's rate limit of 2,000 input tokens per minute (org: default, model: claude-sonnet-4-5).",
		}, map[string]string{
			"Retry-After": "58", "Anthropic-Ratelimit-Input-Tokens-Limit": "2000",
			"Anthropic-Ratelimit-Input-Tokens-Remaining": "2000",
			"Anthropic-Ratelimit-Input-Tokens-Reset":     "2000-01-01T00:01:00Z",
			"Anthropic-Ratelimit-Tokens-Remaining":       "2000",
			"Anthropic-Ratelimit-Output-Tokens-Limit":    "", "Request-Id": "req_000000000000000000000002",
		}},
		"Anthropic, requests": {simulator.Anthropic, simulator.Limit{
			Name: "rpm", Dimension: simulator.Requests,
			Amount: 60, Burst: 1, Window: simulator.Bucket, Period: 300 * time.Second,
		}, nil, map[string]string{
			"Retry-After": "3", "Anthropic-Ratelimit-Requests-Limit": "60",
			"Anthropic-Ratelimit-Requests-Remaining": "0",
			"Anthropic-Ratelimit-Requests-Reset":     "2000-01-01T00:00:05Z",
		}},
		"Gemini, minute": {simulator.Gemini, perMinute(simulator.Requests, 1), map[string]any{
			"error.code": 429.0, "error.status": "RESOURCE_EXHAUSTED",
			"error.details.0.@type":                                    "type.googleapis.com/google.rpc.QuotaFailure",
			"error.details.0.violations.0.quotaMetric":                 "generativelanguage.googleapis.com/generate_requests_per_model",
			"error.details.0.violations.0.quotaId":                     "GenerateRequestsPerMinutePerProjectPerModel",
			"error.details.0.violations.0.quotaValue":                  "1",
			"error.details.0.violations.0.quotaDimensions.model":       "gemini-2.5-flash",
			"error.details.1.@type":                                    "type.googleapis.com/google.rpc.Help",
			"error.details.2.@type":                                    "type.googleapis.com/google.rpc.RetryInfo",
			"error.details.2.retryDelay":                               "59s",
			"error.details.0.violations.0.quotaDimensions.location":    "global",
			"error.details.0.violations.0.quotaDimensions.nonexistent": nil,
		}, map[string]string{"Retry-After": ""}},
		"Gemini, input": {simulator.Gemini, perMinute(simulator.InputTokens, 1), map[string]any{
			"error.details.0.violations.0.quotaId": "GenerateContentPaidTierInputTokensPerModelPerMinute",
		}, nil},
		"Gemini, day, with a delay of seconds that is wrong": {simulator.Gemini, day, map[string]any{
			"error.details.0.violations.0.quotaId": "GenerateRequestsPerDayPerProjectPerModel",
			"error.details.2.retryDelay":           "59s",
		}, nil},
		"generic": {simulator.Generic, perMinute(simulator.Requests, 1), map[string]any{
			"error.code": "rate_limited", "error.limit.limit": "per minute", "error.limit.used": 1.0,
		}, map[string]string{"Retry-After": "58"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				if c.limit.Window == simulator.Day {
					time.Sleep(24 * time.Hour) // in this zone the bubble begins at 16:00
				}
				s := newServer(t, &simulator.Options{Quotas: quota(c.provider, c.limit)})
				first, second := calls[c.provider], calls[c.provider]
				switch c.limit.Dimension {
				case simulator.Tokens:
					first.body, second.body = chat("x", `"max_tokens":40`), chat("x", `"max_tokens":20`)
				case simulator.InputTokens:
					first.body = message(strings.Repeat("one ", 392))
				}
				post(t, s, first.path, first.body)
				time.Sleep(2 * time.Second)
				if c.limit.Dimension == simulator.InputTokens && c.provider == simulator.Anthropic {
					second.body = message(strings.Repeat("one ", 1700))
				}
				got := post(t, s, second.path, second.body)
				if got.status != 429 {
					t.Fatalf("got %d %s", got.status, got.body)
				}
				for path, want := range c.want {
					if v := at(t, got.body, path); v != want {
						t.Errorf("%s is %v, want %v, in %s", path, v, want, got.body)
					}
				}
				for name, want := range c.header {
					if v := got.header.Get(name); v != want {
						t.Errorf("%s is %q, want %q", name, v, want)
					}
				}
			})
		})
	}
}

// TestFreeTier: Gemini's refusals name every limit that is full, by the names of the free tier.
func TestFreeTier(t *testing.T) {
	t.Parallel()
	quotas, err := simulator.Preset("gemini-free")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []string{"rpm", "tpm", "rpd"} {
		if err := simulator.Override(quotas, "gemini-2.5-flash/"+l, 0); err != nil {
			t.Fatal(err)
		}
	}
	s := newServer(t, &simulator.Options{Quotas: quotas})
	got := post(t, s, geminiPath, contents("x"))
	for i, want := range []string{
		"GenerateRequestsPerMinutePerProjectPerModel-FreeTier",
		"GenerateContentInputTokensPerModelPerMinute-FreeTier",
		"GenerateRequestsPerDayPerProjectPerModel-FreeTier",
	} {
		if v := at(t, got.body, "error.details.0.violations."+string(rune('0'+i))+".quotaId"); v != want {
			t.Errorf("violation %d is %v, want %s", i, v, want)
		}
	}
	if v := at(t, got.body, "error.message"); !strings.Contains(v.(string), "limit: 0") {
		t.Errorf("the message is %v", v)
	}
	v := s.Violations()
	if v.Total != 1 || v.ByDimension[simulator.Requests] != 1 || v.ByDimension[simulator.InputTokens] != 1 {
		t.Errorf("violations: %+v", v)
	}
}

// TestRefusalsByFault: each provider's answer to each fault that refuses a call. None is a
// violation.
func TestRefusalsByFault(t *testing.T) {
	t.Parallel()
	type answer struct {
		status int
		want   string // a pattern of the body
	}
	const html = `^<html>`
	table := map[simulator.Provider]map[simulator.FaultKind]answer{
		simulator.OpenAI: {
			simulator.FaultMinute: {
				429,
				`on requests per min \(RPM\): Limit 60, Used 60, Requested 1\. Please try again in 20s\.`,
			},
			simulator.FaultDay:         {429, `on requests per day \(RPD\)`},
			simulator.FaultCredit:      {429, `"code":"insufficient_quota",.*"type":"insufficient_quota"`},
			simulator.FaultSpendCap:    {429, `insufficient_quota`},
			simulator.FaultTransient:   {429, `"code":null`},
			simulator.FaultOverload:    {503, `"type":"server_error"`},
			simulator.FaultInternal:    {500, `"type":"server_error"`},
			simulator.FaultUnavailable: {503, `overloaded`},
			simulator.FaultOverloaded:  {529, `overloaded`},
			simulator.FaultBadGateway:  {502, html},
		},
		simulator.Anthropic: {
			simulator.FaultMinute:      {429, `"type":"rate_limit_error"`},
			simulator.FaultDay:         {429, `60 requests per day`},
			simulator.FaultCredit:      {400, `"type":"invalid_request_error"`},
			simulator.FaultSpendCap:    {429, `"details":{"error_code":"enforced_spend_limit_reached"}`},
			simulator.FaultTransient:   {429, `"type":"rate_limit_error"`},
			simulator.FaultOverload:    {529, `"type":"overloaded_error"`},
			simulator.FaultInternal:    {500, `"type":"api_error"`},
			simulator.FaultUnavailable: {503, `"type":"api_error"`},
			simulator.FaultOverloaded:  {529, `"type":"overloaded_error"`},
			simulator.FaultBadGateway:  {502, html},
		},
		simulator.Gemini: {
			simulator.FaultMinute:   {429, `PerMinutePerProject.*"retryDelay":"21s"`},
			simulator.FaultDay:      {429, `PerDayPerProject.*"retryDelay":"\d+s"`},
			simulator.FaultCredit:   {429, `RESOURCE_EXHAUSTED`},
			simulator.FaultSpendCap: {429, `spending cap`},
			simulator.FaultTransient: {
				429,
				`^{"error":{"code":429,"message":"[^"]*","status":"RESOURCE_EXHAUSTED"}}$`,
			},
			simulator.FaultOverload:    {503, `"status":"UNAVAILABLE"`},
			simulator.FaultInternal:    {500, `"status":"INTERNAL"`},
			simulator.FaultUnavailable: {503, `"status":"UNAVAILABLE"`},
			simulator.FaultOverloaded:  {529, `"status":"UNAVAILABLE"`},
			simulator.FaultBadGateway:  {502, html},
		},
		simulator.Generic: {
			simulator.FaultMinute:      {429, `rate_limited`},
			simulator.FaultDay:         {429, `rate_limited`},
			simulator.FaultCredit:      {429, `credit`},
			simulator.FaultSpendCap:    {429, `spend_cap`},
			simulator.FaultTransient:   {429, `transient`},
			simulator.FaultOverload:    {503, `overloaded`},
			simulator.FaultInternal:    {500, `internal`},
			simulator.FaultUnavailable: {503, `overloaded`},
			simulator.FaultOverloaded:  {529, `overloaded`},
			simulator.FaultBadGateway:  {502, html},
		},
	}
	quota := answer{429, `"insufficient_quota"`}
	for p, c := range map[simulator.Provider]struct {
		full   string
		credit answer
	}{
		simulator.XAI: {
			`^{"code":"Some resource has been exhausted","error":"Too many requests`,
			answer{429, `"error":"Your team .* has either used all available credits`},
		},
		simulator.Mistral:  {`^{"code":.*"message":"Rate limit exceeded",.*"type":"rate_limited"}$`, quota},
		simulator.DeepSeek: {`^{"error":{.*"type":"rate_limit_reached_error"`, answer{402, `"Insufficient Balance"`}},
		simulator.Groq:     {"model `gpt-4.1` in organization `org_.*on requests per (minute|day) \\(RP[MD]\\): Limit", quota},
		simulator.Together: {`"error_type":"dynamic_request_limited"`, answer{402, `"credit_limit"`}},
		simulator.VLLM:     {`"code":429,"message":"Too many requests"`, quota},
		simulator.Ollama:   {`"message":"too many requests","param":null,"type":"api_error"`, answer{429, `exceeded your current quota`}},
	} {
		if p == simulator.VLLM {
			c.credit.want = `exceeded your current quota.*"type":"insufficient_quota"`
		}
		table[p] = map[simulator.FaultKind]answer{
			simulator.FaultMinute: {429, c.full}, simulator.FaultDay: {429, c.full},
			simulator.FaultCredit: c.credit, simulator.FaultSpendCap: c.credit,
			simulator.FaultTransient: {429, `Too Many Requests`}, simulator.FaultOverload: {503, `overloaded`},
			simulator.FaultInternal: {500, `had an error`}, simulator.FaultUnavailable: {503, `overloaded`},
			simulator.FaultOverloaded: {529, `overloaded`}, simulator.FaultBadGateway: {502, html},
		}
	}
	for _, p := range simulator.Providers {
		if table[p] == nil {
			t.Errorf("no answers of %s are here", p)
		}
	}
	for p, faults := range table {
		for kind, want := range faults {
			t.Run(string(p)+" "+string(kind), func(t *testing.T) {
				t.Parallel()
				s := newServer(t, nil)
				if err := s.Inject(simulator.Fault{Kind: kind}); err != nil {
					t.Fatal(err)
				}
				got := post(t, s, calls[p].path, calls[p].body)
				if got.status != want.status || !regexp.MustCompile(want.want).MatchString(got.body) {
					t.Errorf("got %d %s, want %d %s", got.status, got.body, want.status, want.want)
				}
				if retry := got.header.Get("Retry-After"); (retry != "") != (got.status == 429 &&
					(kind == simulator.FaultMinute || kind == simulator.FaultDay) &&
					(p == simulator.Anthropic || p == simulator.Generic || p == simulator.Groq)) {
					t.Errorf("retry-after is %q", retry)
				}
				c := last(t, s)
				if c.Outcome != simulator.Failed || c.Fault != kind || c.Status != want.status || !c.Admitted ||
					s.Violations().Total != 0 {
					t.Errorf("the ledger has %+v", c)
				}
				if got := post(t, s, calls[p].path, calls[p].body); got.status != 200 {
					t.Errorf("the next call: got %d %s", got.status, got.body)
				}
			})
		}
	}
}

// TestRejections: each provider's answer to requests that are wrong.
func TestRejections(t *testing.T) {
	t.Parallel()
	o := &simulator.Options{
		Keys:    []simulator.Key{{Secret: "sk-secret", Name: "ci", Organization: "acme", Project: "search"}},
		Quotas:  quota(simulator.OpenAI, perMinute(simulator.Requests, 5)),
		MaxBody: 500,
	}
	o.Quotas[0].Models = []string{"gpt-*"}
	const bearer, api, google = "Authorization: Bearer sk-secret", "X-Api-Key: sk-secret", "X-Goog-Api-Key: sk-secret"
	for name, c := range map[string]struct {
		path, body, key string
		status          int
		want            string
	}{
		"OpenAI, unknown key": {
			chatPath, chat("x"), "Authorization: Bearer sk-wrong", 401,
			`"code":"invalid_api_key"`,
		},
		"OpenAI, no JSON":     {chatPath, `{`, bearer, 400, `"type":"invalid_request_error"`},
		"OpenAI, no model":    {chatPath, `{"messages":[]}`, bearer, 400, `"param":"model"`},
		"OpenAI, no messages": {chatPath, `{"model":"gpt-4.1","messages":[]}`, bearer, 400, `"param":"messages"`},
		"OpenAI, role": {
			chatPath, `{"model":"gpt-4.1","messages":[{"role":"robot","content":"x"}]}`,
			bearer, 400, `"param":"messages\[0\].role"`,
		},
		"OpenAI, content": {
			chatPath, `{"model":"gpt-4.1","messages":[{"role":"user"}]}`, bearer, 400,
			`"param":"messages\[0\].content"`,
		},
		"OpenAI, max_tokens": {chatPath, chat("x", `"max_tokens":0`), bearer, 400, `"param":"max_tokens"`},
		"OpenAI, n":          {chatPath, chat("x", `"n":1000`), bearer, 400, `"param":"n"`},
		"OpenAI, two bounds": {
			chatPath, chat("x", `"max_tokens":1,"max_completion_tokens":1`), bearer, 400,
			`"param":"max_tokens"`,
		},
		"OpenAI, stream_options": {
			chatPath, chat("x", `"stream_options":{}`), bearer, 400,
			`"param":"stream_options"`,
		},
		"OpenAI, directive": {
			chatPath, chat("simulate: outptu=3"), bearer, 400,
			`outptu=3: there is no such word \(have: output,`,
		},
		"OpenAI, model": {
			chatPath, strings.Replace(chat("x"), "gpt-4.1", "claude", 1), bearer, 404,
			`"code":"model_not_found"`,
		},
		"OpenAI, path":             {"/v1/images", chat("x"), bearer, 404, `"error"`},
		"OpenAI, size":             {chatPath, chat(strings.Repeat("x", 600)), bearer, 413, `too large`},
		"OpenAI, no input":         {responsePath, `{"model":"gpt-4.1"}`, bearer, 400, `"param":"input"`},
		"OpenAI, nothing to embed": {embedPath, `{"model":"gpt-4.1","input":[]}`, bearer, 400, `"param":"input"`},
		"OpenAI, format": {
			embedPath, `{"model":"gpt-4.1","input":"x","encoding_format":"hex"}`, bearer, 400,
			`"param":"encoding_format"`,
		},
		"Anthropic, unknown key": {
			messagePath, message("x"), "X-Api-Key: sk-wrong", 401,
			`"type":"authentication_error"`,
		},
		"Anthropic, no max_tokens": {
			messagePath, message("x", `"stream":false`), api, 400,
			`max_tokens: Field required`,
		},
		"Anthropic, role": {
			messagePath, strings.Replace(message("x"), "user", "robot", 1), api, 400,
			`messages.0.role`,
		},
		"Anthropic, no messages": {countPath, `{"model":"m","messages":[]}`, api, 400, `messages: at least one`},
		"Anthropic, size": {
			messagePath, message(strings.Repeat("x", 600)), api, 413,
			`"type":"request_too_large"`,
		},
		"Anthropic, path": {"/v1/messages/batches", message("x"), api, 404, `"type":"not_found_error"`},
		"Gemini, unknown key": {
			geminiPath, contents("x"), "X-Goog-Api-Key: sk-wrong", 400,
			`"status":"INVALID_ARGUMENT".*|"reason":"API_KEY_INVALID"`,
		},
		"Gemini, no contents": {geminiPath, `{}`, google, 400, `contents is not specified`},
		"Gemini, role": {
			geminiPath, strings.Replace(contents("x"), "user", "robot", 1), google, 400,
			`valid role`,
		},
		"Gemini, no parts": {geminiPath, `{"contents":[{"role":"user"}]}`, google, 400, `must not be empty`},
		"Gemini, operation": {
			"/v1beta/models/gemini-2.5-flash:sing", contents("x"), google, 404,
			`"status":"NOT_FOUND"`,
		},
		"generic, unknown key":      {genericPath, `{}`, api + "x", 401, `"unauthorized"`},
		"generic, no object":        {genericPath, `[]`, api, 400, `must be a JSON object`},
		"nobody's path":             {"/nowhere", `{}`, api, 404, `nothing at /nowhere`},
		"Gemini, key in the query":  {geminiPath + "?key=sk-secret", contents("x"), "X-Nothing: ", 200, `"candidates"`},
		"Anthropic, key as a token": {messagePath, message("x"), bearer, 200, `"end_turn"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, o)
			got := post(t, s, c.path, c.body, c.key)
			if got.status != c.status || !regexp.MustCompile(c.want).MatchString(got.body) {
				t.Errorf("got %d %s, want %d %s", got.status, got.body, c.status, c.want)
			}
			if strings.Contains(got.body, "sk-") {
				t.Errorf("the answer has the key: %s", got.body)
			}
			call := last(t, s)
			if c.status != 200 && call.Outcome != simulator.Rejected {
				t.Errorf("the ledger has %+v", call)
			}
			if c.status == 200 && (call.Key != "ci" || call.Organization != "acme" || call.Project != "search") {
				t.Errorf("the ledger has %+v", call)
			}
		})
	}
}

// TestWrongMethodAndModel: each provider's answer to another method, and to a model that none of
// its quotas names.
func TestWrongMethodAndModel(t *testing.T) {
	t.Parallel()
	for p, want := range map[simulator.Provider]string{
		simulator.OpenAI: `"code":"model_not_found"`, simulator.Anthropic: `"type":"not_found_error"`,
		simulator.Gemini: `"status":"NOT_FOUND"`, simulator.Generic: `"code":"not_found"`,
	} {
		quotas := quota(p, perMinute(simulator.Requests, 1))
		quotas[0].Models = []string{"another-*"}
		s := newServer(t, &simulator.Options{Quotas: quotas})
		r := newRequest(t.Context(), t, calls[p].path, "")
		r.Method = "GET"
		if got := do(s, r); got.status != 405 || at(t, got.body, "error") == nil {
			t.Errorf("%s: GET: got %d %s", p, got.status, got.body)
		}
		got := post(t, s, calls[p].path, calls[p].body)
		if got.status != 404 || !strings.Contains(got.body, want) {
			t.Errorf("%s: got %d %s", p, got.status, got.body)
		}
		if c := last(t, s); c.Outcome != simulator.Rejected || c.Admitted || c.Quota != "" ||
			c.Charged != (simulator.Amounts{}) {
			t.Errorf("%s: the ledger has %+v", p, c)
		}
		if got := post(t, s, calls[p].path, `{`); got.status != 400 {
			t.Errorf("%s: no JSON: got %d %s", p, got.status, got.body)
		}
	}
}

// TestHeadersOfSmallTimes: a reset is in whole milliseconds, rounded up.
func TestHeadersOfSmallTimes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := simulator.Limit{
			Name: "rps", Dimension: simulator.Requests, Amount: 700, Burst: 700,
			Window: simulator.Bucket, Period: time.Second,
		}
		s := newServer(t, &simulator.Options{Quotas: quota(simulator.OpenAI, l)})
		got := post(t, s, chatPath, chat("x"))
		if v := got.header.Get("X-Ratelimit-Reset-Requests"); v != "2ms" {
			t.Errorf("the reset of 1.43 ms is %q", v)
		}
	})
}
