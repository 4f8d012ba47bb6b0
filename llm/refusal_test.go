package llm_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"
	_ "time/tzdata" // the tests need no time zone database on the machine

	"pgregory.net/rapid"

	"github.com/drawgate/drawgate/llm"
)

// geminiError is a body of Gemini's, with violations and a hint.
func geminiError(message, hint string, violations ...string) string {
	details := ""
	if len(violations) > 0 {
		list := ""
		for i, v := range violations {
			if i > 0 {
				list += ","
			}
			list += v
		}
		details = `{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[` + list + `]},`
	}
	details += `{"@type":"type.googleapis.com/google.rpc.Help","links":[{"url":"https://ai.google.dev"}]}`
	if hint != "" {
		details += `,{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"` + hint + `"}`
	}
	return fmt.Sprintf(`{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":%q,"details":[%s]}}`, message,
		details)
}

func violation(metric, id, value string) string {
	if value != "" {
		value = `,"quotaValue":"` + value + `"`
	}
	return fmt.Sprintf(`{"quotaMetric":"generativelanguage.googleapis.com/%s","quotaId":%q,"quotaDimensions":{"location":"global","model":"gemini-2.5-flash"}%s}`, metric, id, value)
}

const (
	perDay    = "GenerateRequestsPerDayPerProjectPerModel-FreeTier"
	perMinute = "GenerateRequestsPerMinutePerProjectPerModel-FreeTier"
	freeTier  = "generate_content_free_tier_requests"
)

var headers = func(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

// TestMeaningOfRefusals: what each error of a provider means, and until when the quota is closed.
func TestMeaningOfRefusals(t *testing.T) {
	t.Parallel()
	noon := "2026-01-15T20:00:00Z" // noon in Los Angeles, in winter
	const tpm = `{"error":{"message":"Rate limit reached for gpt-4.1 in organization org-x on tokens per min (TPM): Limit 30000, Used 28039, Requested 3906. Please try again in 3.89s. Visit https://platform.openai.com/account/rate-limits to learn more.","type":"tokens","param":null,"code":"rate_limit_exceeded"}}`
	anthropic429 := func(message string) string {
		return fmt.Sprintf(`{"type":"error","error":{"type":"rate_limit_error","message":%q},"request_id":"req_1"}`,
			message)
	}
	for _, c := range []struct {
		name, profile string
		status        int
		header        http.Header
		body          string
		now           string
		meaning       llm.Meaning
		unit          string
		limit         int64
		reopen        string // "" for never by itself, or not a quota
	}{
		// OpenAI.
		{
			"tokens per minute", "openai", 429, nil, tpm, noon, llm.PerMinute, "tokens", 30_000,
			"2026-01-15T20:00:03.89Z",
		},
		{
			"tokens per minute, header longer", "openai", 429, headers("Retry-After", "10"), tpm, noon, llm.PerMinute,
			"tokens", 30_000, "2026-01-15T20:00:10Z",
		},
		{
			"header in milliseconds", "openai", 429, headers("Retry-After-Ms", "1500", "Retry-After", "99"),
			`{"error":{"type":"requests","code":"rate_limit_exceeded"}}`, noon, llm.PerMinute, "requests", -1,
			"2026-01-15T20:00:01.5Z",
		},
		{
			"header with a date", "openai", 429, headers("Retry-After", "Thu, 15 Jan 2026 20:00:30 GMT"),
			`{"error":{"type":"requests"}}`, noon, llm.PerMinute, "requests", -1, "2026-01-15T20:00:30Z",
		},
		{
			"requests per day", "openai", 429, nil,
			`{"error":{"message":"Rate limit reached for gpt-4o in organization org-x on requests per day (RPD): Limit 200, Used 200, Requested 1. Please try again in 7m12s.","type":"requests","code":"rate_limit_exceeded"}}`,
			noon, llm.PerDay, "requests", 200, "2026-01-15T20:07:12Z",
		},
		{
			"tokens per day without a hint", "openai", 429, nil,
			`{"error":{"message":"Rate limit reached for gpt-4o in organization org-x on tokens per day (TPD): Limit 90,000, Used 90,000, Requested 10.","type":"tokens","code":"rate_limit_exceeded"}}`,
			noon, llm.PerDay, "tokens", 90_000, "2026-01-16T20:00:00Z",
		},
		{
			"requests per minute", "openai", 429, nil,
			`{"error":{"message":"Rate limit reached for gpt-4.1 in organization org-x on requests per min (RPM): Limit 500, Used 500, Requested 1. Please try again in 120ms. Visit https://platform.openai.com/account/rate-limits to learn more.","type":"requests","param":null,"code":"rate_limit_exceeded"}}`,
			noon, llm.PerMinute, "requests", 500, "2026-01-15T20:00:00.12Z",
		},
		{
			"a project's tokens, by the headers", "openai", 429,
			headers("x-ratelimit-limit-project-tokens", "30000", "x-ratelimit-remaining-project-tokens", "0",
				"x-ratelimit-reset-project-tokens", "3s"), `{"error":{"type":"tokens","code":"rate_limit_exceeded"}}`,
			noon, llm.PerMinute, "tokens", -1, "2026-01-15T20:00:03Z",
		},
		{
			"images", "openai", 429, nil,
			`{"error":{"message":"Rate limit reached for gpt-image-1 in organization org-x on input-images per min: Limit 5, Used 5, Requested 1. Please try again in 12s.","type":"input-images","code":"rate_limit_exceeded"}}`,
			noon, llm.PerMinute, "images", 5, "2026-01-15T20:00:12Z",
		},
		{
			"without a hint, headers tell", "openai", 429, headers("x-ratelimit-limit-tokens", "150000",
				"x-ratelimit-remaining-tokens", "0", "x-ratelimit-reset-tokens", "6m0s"),
			`{"error":{"type":"tokens","code":"rate_limit_exceeded"}}`, noon, llm.PerMinute, "tokens", -1,
			"2026-01-15T20:06:00Z",
		},
		{
			"without anything", "openai", 429, nil, `{"error":{"type":"tokens","code":"rate_limit_exceeded"}}`, noon,
			llm.PerMinute, "tokens", -1, "2026-01-15T20:01:00Z",
		},
		{"no JSON", "openai", 429, nil, `<html>429</html>`, noon, llm.PerMinute, "", -1, "2026-01-15T20:01:00Z"},
		{
			"absurd header", "openai", 429, headers("Retry-After", "1e300"), ``, noon, llm.PerMinute, "", -1,
			"2026-01-15T20:01:00Z",
		},
		{
			"credit", "openai", 429, nil,
			`{"error":{"message":"You exceeded your current quota, please check your plan and billing details.","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`, noon, llm.Credit, "", -1, "2026-01-15T20:05:00Z",
		},
		{
			"hard limit", "openai", 400, nil,
			`{"error":{"message":"Billing hard limit has been reached","type":"invalid_request_error","code":"billing_hard_limit_reached"}}`, noon, llm.Credit, "", -1, "2026-01-15T20:05:00Z",
		},
		{"payment required", "openai", 402, nil, `{}`, noon, llm.Credit, "", -1, "2026-01-15T20:05:00Z"},
		{
			"overloaded with 429", "openai", 429, nil,
			`{"error":{"message":"The engine is currently overloaded, please try again later","type":"server_error"}}`,
			noon, llm.Overload, "", -1, "",
		},
		{"overloaded", "openai", 503, nil, `{"error":{"code":"slow_down"}}`, noon, llm.Overload, "", -1, ""},
		{
			"Azure", "openai", 429, nil,
			`{"error":{"code":"429","message":"Requests to the ChatCompletions_Create Operation under Azure OpenAI API have exceeded call rate limit of your current OpenAI S0 pricing tier. Please retry after 2 seconds."}}`, noon, llm.PerMinute, "requests", -1, "2026-01-15T20:00:02Z",
		},
		{
			"Azure's Responses API, which does not know", "openai", 429,
			headers("x-ratelimit-limit-requests", "-1", "x-ratelimit-remaining-requests", "-1",
				"x-ratelimit-limit-tokens", "0", "x-ratelimit-remaining-tokens", "0", "x-ratelimit-reset-tokens", "0"),
			`{"error":{"code":"too_many_requests","message":"Too Many Requests"}}`, noon, llm.PerMinute, "", -1,
			"2026-01-15T20:01:00Z",
		},
		{"internal", "openai", 500, nil, `{}`, noon, llm.Transient, "", -1, ""},
		{"time-out", "openai", 408, nil, ``, noon, llm.Transient, "", -1, ""},
		{
			"bad request", "openai", 400, nil,
			`{"error":{"message":"maximum context length","type":"invalid_request_error","code":"context_length_exceeded"}}`, noon, llm.NotQuota, "", -1, "",
		},
		{"wrong key", "openai", 401, nil, `{"error":{"code":"invalid_api_key"}}`, noon, llm.NotQuota, "", -1, ""},
		{
			"not offered", "openai", 429, nil,
			`{"error":{"message":"Rate limit reached for o1 in organization org-x on requests per min (RPM): Limit 0, Used 0, Requested 1.","type":"requests","code":"rate_limit_exceeded"}}`,
			noon, llm.NotOffered, "requests", 0, "2026-01-16T20:00:00Z",
		},

		// Anthropic.
		{
			"input tokens", "anthropic", 429, headers("retry-after", "13"),
			anthropic429("This request would exceed your organization's rate limit of 30,000 input tokens per minute (org: x, model: claude-sonnet-4-5)."), noon, llm.PerMinute, "input_tokens", 30_000, "2026-01-15T20:00:13Z",
		},
		{
			"output tokens", "anthropic", 429, headers("retry-after", "8"),
			anthropic429("This request would exceed your organization's rate limit of 8,000 output tokens per minute."),
			noon, llm.PerMinute, "output_tokens", 8000, "2026-01-15T20:00:08Z",
		},
		{"requests by header", "anthropic", 429, headers("anthropic-ratelimit-requests-limit", "50",
			"anthropic-ratelimit-requests-remaining", "0", "anthropic-ratelimit-requests-reset",
			"2026-01-15T20:00:42Z"), anthropic429("slow"), noon, llm.PerMinute, "requests", -1, "2026-01-15T20:00:42Z"},
		{
			"input tokens by header", "anthropic", 429, headers("anthropic-ratelimit-input-tokens-limit", "30000",
				"anthropic-ratelimit-input-tokens-remaining", "0", "anthropic-ratelimit-input-tokens-reset",
				"2026-01-15T20:00:51Z", "anthropic-ratelimit-tokens-limit", "38000",
				"anthropic-ratelimit-tokens-remaining",
				"0", "anthropic-ratelimit-tokens-reset", "2026-01-15T20:00:51Z"), anthropic429("slow"), noon,
			llm.PerMinute,
			"input_tokens", -1, "2026-01-15T20:00:51Z",
		},
		{
			"sharp growth", "anthropic", 429, headers("retry-after", "20"),
			anthropic429("This request would exceed your organization's acceleration limit."), noon, llm.PerMinute, "",
			-1, "2026-01-15T20:00:20Z",
		},
		{
			"nothing told", "anthropic", 429, nil, anthropic429("slow"), noon, llm.PerMinute, "", -1,
			"2026-01-15T20:01:00Z",
		},
		{
			"overloaded", "anthropic", 529, nil,
			`{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, noon, llm.Overload, "", -1,
			"",
		},
		{
			"overloaded with 429", "anthropic", 429, nil,
			`{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, noon, llm.Overload, "", -1,
			"",
		},
		{
			"spend cap", "anthropic", 429, nil,
			`{"type":"error","error":{"type":"rate_limit_error","message":"x","details":{"error_code":"enforced_spend_limit_reached"}}}`, noon, llm.Spend, "", -1, "2026-02-01T00:00:00Z",
		},
		{
			"spend cap in December", "anthropic", 429, nil,
			`{"type":"error","error":{"type":"rate_limit_error","message":"x","details":{"error_code":"enforced_spend_limit_reached"}}}`, "2026-12-31T23:59:59Z", llm.Spend, "", -1, "2027-01-01T00:00:00Z",
		},
		{
			"own cap", "anthropic", 400, nil,
			`{"type":"error","error":{"type":"invalid_request_error","message":"You have reached your specified API usage limits. You will regain access on 2026-02-01 at 00:00 UTC."}}`, noon, llm.Spend, "", -1, "2026-02-01T00:00:00Z",
		},
		{
			"own cap, absurd date", "anthropic", 400, nil,
			`{"type":"error","error":{"type":"invalid_request_error","message":"You have reached your specified API usage limits. You will regain access on 2999-02-01 at 00:00 UTC."}}`, noon, llm.Spend, "", -1, "2026-02-01T00:00:00Z",
		},
		{
			"a field of the caller's with the words of a cap", "anthropic", 400, nil,
			`{"type":"error","error":{"type":"invalid_request_error","message":"You have reached your specified API usage limits.: Extra inputs are not permitted"}}`, noon, llm.NotQuota, "", -1, "",
		},
		{
			"a field of the caller's with those of credit", "anthropic", 400, nil,
			`{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low: Extra inputs are not permitted"}}`, noon, llm.NotQuota, "", -1, "",
		},
		{
			"a model of the caller's with those of credit", "anthropic", 404, nil,
			`{"type":"error","error":{"type":"not_found_error","message":"model: claude-credit balance is too low"}}`,
			noon, llm.NotQuota, "", -1, "",
		},
		{
			"credit", "anthropic", 400, nil,
			`{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the Anthropic API."}}`, noon, llm.Credit, "", -1, "2026-01-15T20:05:00Z",
		},
		{
			"a day", "anthropic", 429, headers("retry-after", "3600"),
			anthropic429("You have reached your daily limit of 1,000 requests."), noon, llm.PerDay, "requests", 1000,
			"2026-01-15T21:00:00Z",
		},
		{
			"two units have nothing left", "anthropic", 429, headers("anthropic-ratelimit-requests-limit", "50",
				"anthropic-ratelimit-requests-remaining", "0", "anthropic-ratelimit-requests-reset",
				"2026-01-15T20:00:10Z",
				"anthropic-ratelimit-input-tokens-limit", "50", "anthropic-ratelimit-input-tokens-remaining", "0",
				"anthropic-ratelimit-input-tokens-reset", "2026-01-15T20:00:30Z"), anthropic429("slow"), noon,
			llm.PerMinute, "", -1, "2026-01-15T20:00:30Z",
		},
		{
			"bad request", "anthropic", 400, nil,
			`{"type":"error","error":{"type":"invalid_request_error","message":"max_tokens: field required"}}`, noon,
			llm.NotQuota, "", -1, "",
		},
		{
			"internal", "anthropic", 500, nil, `{"type":"error","error":{"type":"api_error","message":"x"}}`, noon,
			llm.Transient, "", -1, "",
		},

		// Gemini.
		{"day", "gemini", 429, nil, geminiError("You exceeded your current quota. Please retry in 22.07s.", "22s",
			violation(freeTier, perDay, "250")), noon, llm.PerDay, "requests", 250, "2026-01-16T08:00:00Z"},
		{
			"day in summer", "gemini", 429, nil, geminiError("x", "22s", violation(freeTier, perDay, "250")),
			"2026-07-15T20:00:00Z", llm.PerDay, "requests", 250, "2026-07-16T07:00:00Z",
		},
		{
			"day before the clocks go forward", "gemini", 429, nil,
			geminiError("x", "", violation(freeTier, perDay, "")),
			"2026-03-08T09:30:00Z", llm.PerDay, "requests", -1, "2026-03-09T07:00:00Z",
		},
		{
			"day before the clocks go back", "gemini", 429, nil, geminiError("x", "", violation(freeTier, perDay, "")),
			"2026-11-01T07:30:00Z", llm.PerDay, "requests", -1, "2026-11-02T08:00:00Z",
		},
		{
			"day, just before midnight", "gemini", 429, nil, geminiError("x", "", violation(freeTier, perDay, "")),
			"2026-01-15T07:59:59.999Z", llm.PerDay, "requests", -1, "2026-01-15T08:00:00Z",
		},
		{
			"day, at midnight", "gemini", 429, nil, geminiError("x", "", violation(freeTier, perDay, "")),
			"2026-01-15T08:00:00Z", llm.PerDay, "requests", -1, "2026-01-16T08:00:00Z",
		},
		{
			"day, paid", "gemini", 429, nil, geminiError("x", "22s",
				violation("generate_requests_per_model_per_day", "GenerateRequestsPerDayPerProjectPerModel", "10000")),
			noon, llm.PerDay, "requests", 10_000, "2026-01-16T08:00:00Z",
		},
		{
			"tokens per day", "gemini", 429, nil, geminiError("x", "22s",
				violation("generate_content_input_token_count", "GenerateContentInputTokensPerModelPerDay", "5000000")),
			noon, llm.PerDay, "input_tokens", 5_000_000, "2026-01-16T08:00:00Z",
		},
		{
			"called daily", "gemini", 429, nil, geminiError("x", "22s",
				violation("daily_requests", "DailyRequests", "50")), noon, llm.PerDay, "requests", 50,
			"2026-01-16T08:00:00Z",
		},
		{
			"day, the hint before the violation", "gemini", 429, nil,
			`{"error":{"code":429,"message":"x","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"22s"},{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[` + violation(freeTier, perDay, "250") + `]}]}}`,
			noon, llm.PerDay, "requests", 250, "2026-01-16T08:00:00Z",
		},
		{
			"minute, paid", "gemini", 429, nil, geminiError("x", "34.074824224s",
				violation("generate_requests_per_model", "GenerateRequestsPerMinutePerProjectPerModel", "1000")), noon,
			llm.PerMinute, "requests", 1000, "2026-01-15T20:00:34.074824224Z",
		},
		{
			"minute, without an amount", "gemini", 429, nil,
			geminiError("x", "34s", violation(freeTier, perMinute, "")),
			noon, llm.PerMinute, "requests", -1, "2026-01-15T20:00:34Z",
		},
		{
			"a hint alone", "gemini", 429, nil, geminiError("x", "34s"), noon, llm.PerMinute, "", -1,
			"2026-01-15T20:00:34Z",
		},
		{"minute", "gemini", 429, nil, geminiError("x Please retry in 34.074824224s.", "34s",
			violation(freeTier, perMinute, "10")), noon, llm.PerMinute, "requests", 10, "2026-01-15T20:00:34Z"},
		{"minute by the message", "gemini", 429, nil, geminiError("x Please retry in 34.5s.", "",
			violation(freeTier, perMinute, "10")), noon, llm.PerMinute, "requests", 10, "2026-01-15T20:00:34.5Z"},
		{
			"minute in milliseconds", "gemini", 429, nil, geminiError("x", "900ms",
				violation(freeTier, perMinute, "10")),
			noon, llm.PerMinute, "requests", 10, "2026-01-15T20:00:00.9Z",
		},
		{
			"minute without a hint", "gemini", 429, nil, geminiError("x", "", violation(freeTier, perMinute, "10")),
			noon,
			llm.PerMinute, "requests", 10, "2026-01-15T20:01:00Z",
		},
		{
			"input tokens", "gemini", 429, nil, geminiError("x", "5s",
				violation("generate_content_free_tier_input_token_count",
					"GenerateContentInputTokensPerModelPerMinute-FreeTier", "250000")), noon, llm.PerMinute,
			"input_tokens",
			250_000, "2026-01-15T20:00:05Z",
		},
		{
			"paid input tokens", "gemini", 429, nil, geminiError("x", "5s",
				violation("generate_content_paid_tier_input_token_count",
					"GenerateContentPaidTierInputTokensPerModelPerMinute", "1000000")), noon, llm.PerMinute,
			"input_tokens",
			1_000_000, "2026-01-15T20:00:05Z",
		},
		{"several, minute first", "gemini", 429, nil, geminiError("x", "22s", violation(freeTier, perMinute, "10"),
			violation(freeTier, perDay, "250")), noon, llm.PerDay, "requests", 250, "2026-01-16T08:00:00Z"},
		{"several, day first", "gemini", 429, nil, geminiError("x", "22s", violation(freeTier, perDay, "250"),
			violation(freeTier, perMinute, "10")), noon, llm.PerDay, "requests", 250, "2026-01-16T08:00:00Z"},
		{
			"no details", "gemini", 429, nil,
			`{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"Resource has been exhausted (e.g. check quota)."}}`, noon, llm.PerMinute, "", -1, "2026-01-15T20:01:00Z",
		},
		{
			"only a message", "gemini", 429, nil,
			`{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"You exceeded your current quota.\n* Quota exceeded for metric: generativelanguage.googleapis.com/generate_content_free_tier_requests, limit: 20, model: gemini-2.5-flash\nPlease retry in 34.07s."}}`, noon, llm.PerMinute, "requests", 20, "2026-01-15T20:00:34.07Z",
		},
		{
			"a long hint is a day", "gemini", 429, nil, geminiError("x", "40000s"), noon, llm.PerDay, "", -1,
			"2026-01-16T08:00:00Z",
		},
		{
			"not offered", "gemini", 429, nil, geminiError("x limit: 0", "22s", violation(freeTier, perDay, "0")), noon,
			llm.NotOffered, "requests", 0, "2026-01-16T20:00:00Z",
		},
		{
			"not offered, by the message", "gemini", 429, nil,
			`{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"* Quota exceeded for metric: generativelanguage.googleapis.com/generate_content_free_tier_requests, limit: 0, model: gemini-3-pro"}}`, noon, llm.NotOffered, "requests", 0, "2026-01-16T20:00:00Z",
		},
		{"spend limit", "gemini", 429, nil, geminiError("x", "",
			violation("spend_limit", "SpendLimitPerProject", "10")), noon, llm.Spend, "", 10, "2026-01-15T20:10:00Z"},
		{
			"monthly cap", "gemini", 429, nil,
			`{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"Your project has exceeded its monthly spending cap."}}`, noon, llm.Spend, "", -1, "2026-02-01T08:00:00Z",
		},
		{
			"credits", "gemini", 429, nil,
			`{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"Your prepayment credits are depleted."}}`,
			noon, llm.Credit, "", -1, "2026-01-15T20:05:00Z",
		},
		{
			"images", "gemini", 429, nil, geminiError("x", "3s",
				violation("generate_images", "GenerateImagesPerMinutePerProject", "2")), noon, llm.PerMinute, "images",
			2,
			"2026-01-15T20:00:03Z",
		},
		{
			"details that are no list", "gemini", 429, nil, `{"error":{"code":429,"details":{"a":1}}}`, noon,
			llm.PerMinute, "", -1, "2026-01-15T20:01:00Z",
		},
		{
			"overloaded", "gemini", 503, nil,
			`{"error":{"code":503,"status":"UNAVAILABLE","message":"The model is overloaded."}}`, noon, llm.Overload,
			"", -1, "",
		},
		{"internal", "gemini", 500, nil, `{"error":{"code":500,"status":"INTERNAL"}}`, noon, llm.Transient, "", -1, ""},
		{
			"wrong key", "gemini", 400, nil,
			`{"error":{"code":400,"status":"INVALID_ARGUMENT","message":"API key not valid."}}`, noon, llm.NotQuota, "",
			-1, "",
		},
		{
			"in an array", "gemini", 429, nil, "\n[" + geminiError("x", "22s", violation(freeTier, perDay, "250")) +
				"]",
			noon, llm.PerDay, "requests", 250, "2026-01-16T08:00:00Z",
		},
	} {
		now, err := time.Parse(time.RFC3339Nano, c.now)
		if err != nil {
			t.Fatal(err)
		}
		got := profile(t, c.profile).Refusal(c.status, c.header, []byte(c.body), now)
		reopen := ""
		if !got.ReopenAt.IsZero() {
			reopen = got.ReopenAt.UTC().Format(time.RFC3339Nano)
		}
		if got.Meaning != c.meaning || got.Unit != c.unit || got.Limit != c.limit || reopen != c.reopen {
			t.Errorf("%s, %s: %v of %q, limit %d, reopens %q; want %v of %q, limit %d, reopens %q",
				c.profile, c.name, got.Meaning, got.Unit, got.Limit, reopen, c.meaning, c.unit, c.limit, c.reopen)
		}
		if got.Meaning.Quota() != (c.reopen != "") {
			t.Errorf("%s, %s: %v is a quota: %v", c.profile, c.name, got.Meaning, got.Meaning.Quota())
		}
	}
}

// TestRefusalDetails: what else a refusal tells.
func TestRefusalDetails(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 15, 20, 0, 0, 0, time.UTC)
	r := profile(t, "openai").Refusal(429, nil,
		[]byte(`{"error":{"message":"Rate limit reached for gpt-4.1 in organization org-x on tokens per min (TPM): Limit 30000, Used 0, Requested 39060. Please try again in 18.1s.","type":"tokens"}}`), now)
	for afford, oversize := range map[string]bool{"3919": true, "0": false} {
		const text = `{"error":{"message":"This request requires more credits, or fewer max_tokens. You requested up to 65536 tokens, but can only afford %s. To increase, visit","code":402}}`
		if r := llm.OpenAI().Refusal(402, nil, fmt.Appendf(nil, text, afford), now); r.Meaning != llm.Credit ||
			r.Oversize != oversize {
			t.Errorf("credit for %s tokens: %+v", afford, r)
		}
	}
	if r.Model != "gpt-4.1" || !r.Oversize || r.RetryAfter != 18_100*time.Millisecond {
		t.Errorf("%+v: it asked for more than the limit, of gpt-4.1", r)
	}
	r = profile(t, "gemini").Refusal(429, nil, []byte(geminiError("x", "22s", violation(freeTier, perDay, "250"))), now)
	if r.Model != "gemini-2.5-flash" || r.QuotaID != perDay || r.RetryAfter != 22*time.Second {
		t.Errorf("%+v: the day of gemini-2.5-flash", r)
	}
	p := profile(t, "gemini")
	p.ResetZone = "Nowhere/AtAll" // then a day is one of UTC
	if r = p.Refusal(429, nil, []byte(geminiError("x", "", violation(freeTier, perDay, "250"))),
		now); !r.ReopenAt.Equal(time.Date(2026, 1, 16, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("%+v: an unknown zone", r)
	}
	p = profile(t, "openai")
	p.CreditPause = 0
	if r = p.Refusal(429, nil, []byte(`{"error":{"code":"insufficient_quota"}}`), now); r.Meaning != llm.Credit ||
		!r.ReopenAt.IsZero() {
		t.Errorf("%+v: without a pause, credit does not come back by itself", r)
	}
}

// TestMeaningNames: each meaning has a name of its own, for logs and metrics.
func TestMeaningNames(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for m := llm.NotQuota; m <= llm.NotOffered; m++ {
		if name := m.String(); name == "" || name == "unknown" || seen[name] {
			t.Errorf("meaning %d is called %q", m, name)
		}
		seen[m.String()] = true
	}
	if got := llm.Meaning(99).String(); got != "unknown" {
		t.Errorf("a meaning that there is not is called %q", got)
	}
}

// TestClosedQuotasReopenLater: whatever a refusal says, a quota that is closed reopens after now,
// and within two months.
func TestClosedQuotasReopenLater(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.SampledFrom(llm.Profiles()).Draw(t, "profile")
		now := time.Unix(rapid.Int64Range(1_700_000_000, 2_000_000_000).Draw(t, "now"), 0)
		message := rapid.SampledFrom([]string{
			"", "Limit 0", "on requests per day: Limit 5, Used 5",
			"Please try again in 1m30s", "retry in 0s", "limit of 5 input tokens", "usage limits",
			"monthly spending cap", "overloaded",
		}).Draw(t, "message")
		body, _ := json.Marshal(map[string]any{"error": map[string]any{
			"message": message,
			"type":    rapid.SampledFrom([]string{"", "tokens", "requests", "rate_limit_error"}).Draw(t, "type"),
			"details": []any{
				map[string]any{
					"@type": "google.rpc.QuotaFailure",
					"violations": []any{map[string]any{"quotaId": rapid.SampledFrom([]string{
						"", "PerDay",
						"PerMinute",
					}).Draw(t, "id"), "quotaValue": "5"}},
				},
				map[string]any{
					"@type":      "google.rpc.RetryInfo",
					"retryDelay": rapid.SampledFrom([]string{"", "0s", "-5s", "1e9s", "9999h", "3s"}).Draw(t, "delay"),
				},
			},
		}})
		h := http.Header{}
		if v := rapid.SampledFrom([]string{
			"", "0", "-1", "5", "NaN", "Inf", "99999999999",
			"Wed, 21 Oct 2015 07:28:00 GMT",
		}).Draw(t, "header"); v != "" {
			h.Set("Retry-After", v)
		}
		r := p.Refusal(429, h, body, now)
		if r.Meaning.Quota() && (!r.ReopenAt.After(now) || r.ReopenAt.After(now.Add(62*24*time.Hour))) {
			t.Fatalf("%s %v: reopens at %v, it is %v", body, h, r.ReopenAt, now)
		}
	})
}

// TestRefusalsOfOtherQuotas: a refusal that is surely another quota's does not concern the call's.
//
// req: C1
func TestRefusalsOfOtherQuotas(t *testing.T) {
	t.Parallel()
	limit := func(model string) string {
		return `{"error":{"message":"Rate limit reached for ` + model +
			` in organization org-x on tokens per min (TPM): Limit 30000, Used 1, Requested 2.","type":"tokens","code":"rate_limit_exceeded"}}`
	}
	const none, credit = `{"error":{"message":"Resource unavailable"}}`, `{"error":{"code":"insufficient_quota"}}`
	const chat, messages = "/v1/chat/completions", "/v1/messages"
	for _, c := range []struct {
		profile, path, body, answer string
		want                        bool
	}{
		{"openai", chat, `{"model":"gpt-4.1"}`, limit("gpt-4.1"), true},
		{"openai", chat, `{"model":"gpt-4.1-2025-04-14"}`, limit("gpt-4.1"), true},
		{"openai", chat, `{"model":"ft:gpt-4.1:acme::1"}`, limit("gpt-4.1"), true},
		{"openai", chat, `{"model":"gpt-4.1"}`, limit("gpt-4o"), false},
		{"openai", chat, `{"model":"newest"}`, limit("gpt-4o"), true}, // perhaps another name of it
		{"openai", chat, `{"model":"gpt-4.1"}`, limit("gpt-77"), true},
		{"openai", chat, `{"model":"gpt-4.1"}`, none, true},
		{"openai", chat, `{"model":"o3","service_tier":"flex"}`, none, false},
		{"openai", chat, `{"model":"o3","service_tier":"flex"}`, limit("o3"), true},
		{"openai", chat, `{"model":"o3","service_tier":"flex"}`, credit, true},
		{"anthropic", messages, `{"model":"claude-opus-4-8"}`, `{"error":{"type":"rate_limit_error"}}`, true},
		{
			"anthropic", messages, `{"model":"claude-opus-4-8","speed":"fast"}`,
			`{"error":{"type":"rate_limit_error"}}`,
			false,
		},
		{
			"anthropic", messages, `{"model":"claude-opus-4-8","speed":"standard"}`,
			`{"error":{"type":"rate_limit_error"}}`, true,
		},
		{
			"gemini", "/v1beta/models/gemini-flash-latest:generateContent", `{}`,
			geminiError("", "", violation("requests", "PerMinute", "5")), true,
		},
	} {
		p := profile(t, c.profile)
		r := p.Refusal(http.StatusTooManyRequests, nil, []byte(c.answer), time.Now())
		if got := p.Concerns(parse(t, p, c.path, c.body), &r); got != c.want {
			t.Errorf("%s, refused with %s: concerns it %v, want %v", c.body, c.answer, got, c.want)
		}
	}
}
