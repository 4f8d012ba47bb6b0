package llm

import "github.com/drawgate/drawgate"

// together is Together's API. Its limits are per second, and follow what was used lately.
//
// Sources: docs.together.ai/docs/rate-limits (429 and 503, error_type, and in an older version the
// headers, of seconds); together (Python) 3.1 (paths, fields, the usage in the last chunk). Not
// verified: where in an error error_type is.
var together = compatible("together", "https://api.together.ai", 1_050_000, func(v *provider) {
	v.serves(endChat, endCompletions, endEmbeddings)
	v.known = openAIKnown.withFree("request", "context_length_exceeded_behavior")
	v.request = onlyMaxTokens
	v.askUsage = false // the last chunk has it
	v.limits = []limitHeader{
		{
			unit: drawgate.UnitRequests, scope: "second", limit: "X-Ratelimit-Limit",
			remaining: "X-Ratelimit-Remaining", reset: "X-Ratelimit-Reset",
		},
		{
			unit: UnitTokens, scope: "second", limit: "X-Tokenlimit-Limit", remaining: "X-Tokenlimit-Remaining",
			reset: "X-Tokenlimit-Reset",
		},
	}
	v.quotaHeaders = []string{"X-Tokenlimit-"}
})
