package llm

import (
	"net/http"
	"strings"
	"time"

	"github.com/drawgate/drawgate"
)

// mistral is Mistral's API.
//
// Sources: mistralai (Python) 3.7 (paths, fields); github.com/mistralai/client-ts, issue 169
// (headers of a minute); errors as users quote them (github.com/raycast/extensions, issue 31107).
// Not verified: the headers of a month, and that a limit of 0 means that the plan lacks the model.
var mistral = compatible("mistral", "https://api.mistral.ai", 1_050_000, func(v *provider) {
	v.serves(endChat, pathEnd{"/fim/completions", OpCompletions}, endEmbeddings)
	v.known = openAIKnown.withFree("request", "random_seed output_dimension output_dtype")
	v.request = func(k *known) *node {
		root := onlyMaxTokens(k)
		root.at("messages", "*", "content", "*", "image_url").scalar = true // an address, or an object
		return root
	}
	v.askUsage = false // the last chunk has it, and stream_options is refused
	v.response = func() *node {
		root := openAIResponse()
		for _, name := range []string{"delta", "message"} { // of a model that reasons: a list
			part := root.at("choices", "*", name, "content", "*")
			part.at("text").role = resText
			part.at("thinking", "*", "text").role = resText
		}
		return root
	}
	v.limits = nil
	for unit, name := range map[string]string{drawgate.UnitRequests: "Req", UnitTokens: "Tokens"} {
		for scope, window := range map[string]string{"": "Minute", "month": "Month"} {
			v.limits = append(v.limits, canonical(limitHeader{
				unit: unit, scope: scope, limit: "X-Ratelimit-Limit-" + name + "-" + window,
				remaining: "X-Ratelimit-Remaining-" + name + "-" + window,
			}))
		}
	}
	v.quotaHeaders = []string{"X-Ratelimitbysize-"}
	v.refusal = func(p *Profile, r *Refusal, e *errorBody, h http.Header, now time.Time) {
		full := r.Status == http.StatusTooManyRequests
		if full && (e.Type == "service_tier_capacity_exceeded" || e.code() == "3505") {
			r.Meaning = Overload
			return
		}
		openAIRefusal(p, r, e, h, now)
		if !full || r.Meaning != PerMinute {
			return
		}
		for _, l := range v.limits {
			switch limit, _ := wireNumber(h[l.limit]); {
			case l.scope == "" && len(h[l.limit]) > 0 && limit == 0 && strings.TrimSpace(h.Get(l.limit)) == "0":
				r.Limit = 0
				r.reopen(p, 0, time.Time{}, now)
				return
			case l.scope == "month" && limit > 0 && strings.TrimSpace(h.Get(l.remaining)) == "0":
				r.Meaning, r.Unit, r.ReopenAt = Spend, l.unit, nextMonth(now)
			}
		}
	}
})
