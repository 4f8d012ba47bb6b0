package simulator

import "net/http"

// XAI is the API of xAI. Its shapes are those of docs.x.ai; its 429 is as users quote it.
const XAI Provider = "xai"

var xaiDialect = likeOpenAI(XAI, func(d *dialect) {
	d.charging = usualCharging
	d.usage = func(x *exchange) object { // the answer's tokens are without the reasoning
		usage := openAIUsage(x)
		usage["completion_tokens"] = max(0, x.output-x.q.thoughts*x.q.choices)
		usage["num_sources_used"] = 0
		return usage
	}
	d.headers = func(x *exchange, h http.Header) {
		x.tell(h, toldLimit{
			dimension: Requests, limit: "x-ratelimit-limit-requests", remaining: "x-ratelimit-remaining-requests",
		}, toldLimit{
			dimension: Tokens, limit: "x-ratelimit-limit-tokens", remaining: "x-ratelimit-remaining-tokens",
		})
	}
	const team = "Your team 00000000-0000-4000-8000-000000000000 "
	d.refuse = wording{
		body: func(_ int, message, kind string, _ any) object { return object{"code": kind, "error": message} },
		quota: func(*exchange, Refusal, http.Header) (message, kind string) {
			return "Too many requests for " + team, "Some resource has been exhausted"
		},
		credit: func() (status int, message, kind string) {
			return http.StatusTooManyRequests, team + "has either used all available credits or reached its monthly " +
				"spending limit.", "Some resource has been exhausted"
		},
	}.refuse
})
