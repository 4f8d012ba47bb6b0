package llm

// ollama is a server of Ollama, by its paths that are OpenAI's: those of its own API, /api/…,
// stream unless they are told not to, and are not counted here. It has no quotas; with too many
// calls at once it answers 503.
//
// Sources: github.com/ollama/ollama, docs/openai.md and openai/openai.go (fields). Not verified:
// that max_completion_tokens is passed over.
var ollama = compatible("ollama", "http://localhost:11434", longestOpen, func(v *provider) {
	v.serves(endChat, endCompletions, endEmbeddings)
	v.request = onlyMaxTokens
	v.limits, v.atStart = nil, nil
})
