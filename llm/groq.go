package llm

import (
	"net/http"
	"time"

	"github.com/drawgate/drawgate"
)

// groq is Groq's API. Its quotas do not count what was read from a cache; here it counts.
//
// Sources: console.groq.com/docs/rate-limits (the header of requests is of a day, that of tokens of
// a minute), /docs/errors (498), /docs/flex-processing; groq-python 1.7 (fields, paths, x_groq).
var groq = compatible("groq", "https://api.groq.com", 1_050_000, func(v *provider) {
	v.bases = []string{"/openai/v1"}
	v.serves(endChat, endResponses, endEmbeddings)
	v.plain = map[role][]string{reqTier: {"auto", "default", "on_demand", "flex"}}
	v.searches = []string{"compound"} // console.groq.com/docs/compound
	v.askUsage = false                // x_groq of the last chunk has it
	v.response = func() *node {
		root := openAIResponse()
		usage := root.at("x_groq", "usage")
		usage.at("prompt_tokens").role = resUsage + useInput
		usage.at("prompt_tokens_details", "cached_tokens").role = resUsage + useCacheRead
		usage.at("completion_tokens").role = resUsage + useOutput
		usage.at("completion_tokens_details", "reasoning_tokens").role = resUsage + useReasoning
		usage.at("total_tokens").role = resUsage + useTotal
		return root
	}
	v.limits = openAILimits()
	for i := range v.limits {
		if l := &v.limits[i]; l.unit == drawgate.UnitRequests && l.scope == "" {
			l.scope = "day"
		}
	}
	v.account = []string{`\borg_[A-Za-z0-9]{6,}`}
	v.refusal = func(p *Profile, r *Refusal, e *errorBody, h http.Header, now time.Time) {
		const flexFull = 498
		if r.Status == flexFull {
			r.Meaning = Overload
			return
		}
		openAIRefusal(p, r, e, h, now)
	}
})
