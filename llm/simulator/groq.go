package simulator

import (
	"fmt"
	"net/http"
)

// Groq is the API of Groq. Its shapes are those of console.groq.com/docs and of its client for
// Python. It counts what was read from a cache, which Groq does not.
const Groq Provider = "groq"

var groqDialect = likeOpenAI(Groq, func(d *dialect) {
	d.apis = map[string]*api{}
	for path, a := range openAIDialect.apis {
		d.apis["/openai"+path] = a
	}
	d.last = func(chunk, usage object) { chunk["x_groq"] = object{"id": chunk["id"], "usage": usage} }
	d.headers = func(x *exchange, h http.Header) {
		x.tell(h, toldLimit{
			dimension: Requests, day: true, limit: "x-ratelimit-limit-requests",
			remaining: "x-ratelimit-remaining-requests", reset: "x-ratelimit-reset-requests",
		}, toldLimit{
			dimension: Tokens, limit: "x-ratelimit-limit-tokens", remaining: "x-ratelimit-remaining-tokens",
			reset: "x-ratelimit-reset-tokens",
		})
	}
	d.refuse = wording{quota: func(x *exchange, r Refusal, h http.Header) (message, kind string) {
		retryAfter(h, r)
		kind, short := "tokens", "TP"
		if r.Dimension == Requests {
			kind, short = "requests", "RP"
		}
		per := "minute"
		if r.Window == Day {
			per = "day"
		}
		hint := ""
		if r.RetryAfter >= 0 {
			hint = " Please try again in " + shortDuration(r.RetryAfter) + "."
		}
		return fmt.Sprintf("Rate limit reached for model `%s` in organization `org_01simulator` service tier `on_demand` "+
			"on %s per %s (%s%c): Limit %d, Used %d, Requested %d.%s", x.q.model, kind, per, short, per[0]-'a'+'A', r.Amount,
			r.Used, r.Requested, hint), kind
	}}.refuse
})
