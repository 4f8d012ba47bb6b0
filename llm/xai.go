package llm

import (
	"net/http"
	"time"

	"github.com/drawgate/drawgate/internal/pattern"
)

// xai is xAI's API.
//
// Sources: docs.x.ai (API reference; consumption and rate limits: prompt, answer, reasoning and
// cached tokens count, per model; an image has 256 to 1792 tokens); xai-sdk-python 1.21 (fields,
// tools and tiers). Not verified: the headers, which are read as OpenAI's, and the text of a 429,
// which is as users quote it.
var xai = compatible("xai", "https://api.x.ai", 2_000_000, func(v *provider) {
	profile := v.profile
	v.profile = func() *Profile {
		p := profile()
		p.Default.Images = 1792
		return p
	}
	v.serves(endChat, endResponses, endEmbeddings)
	v.request = func(k *known) *node {
		root := openAIRequest(k)
		root.at("deferred").role = reqBackground // its answer is fetched by another call
		root.at("search_parameters").set(reqSearch)
		return root
	}
	v.atStart = nil // "all tokens consumed" count
	v.account = []string{`\bteam [0-9a-f]{8}-[0-9a-f-]{20,}`}
	v.refusal = func(p *Profile, r *Refusal, e *errorBody, h http.Header, now time.Time) {
		if r.Status == http.StatusTooManyRequests && xaiSpent().MatchString(e.Message) {
			p.credit(r, now)
			return
		}
		openAIRefusal(p, r, e, h, now)
	}
})

// xaiSpent is of a team without credit (github.com/continuedev/continue, issue 10373).
var xaiSpent = pattern.New(`used all available credits|reached its monthly spending limit`)
