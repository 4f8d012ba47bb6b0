package llm

// deepSeek is DeepSeek's API. It has no fixed limits: a 429 says that there are too many calls at
// once.
//
// Sources: api-docs.deepseek.com (chat completion, FIM completion, error codes, rate limit,
// thinking mode). Not verified: that max_completion_tokens is passed over.
var deepSeek = compatible("deepseek", "https://api.deepseek.com", 1_050_000, func(v *provider) {
	v.bases = []string{"/v1", "/beta"}
	v.serves(endChat, endCompletions)
	v.known = openAIKnown.withFree("request", "thinking")
	v.request = onlyMaxTokens
	v.limits, v.atStart = nil, nil
	v.response = func() *node {
		root := openAIResponse()
		root.at("usage", "prompt_cache_hit_tokens").role = resUsage + useCacheRead
		return root
	}
})
