package simulator

import "net/http"

// Ollama is a server of Ollama, with its paths that are OpenAI's. It has no quotas: limits of it
// are a proxy's.
const Ollama Provider = "ollama"

var ollamaDialect = likeOpenAI(Ollama, func(d *dialect) {
	d.charging = usualCharging
	d.apis = map[string]*api{
		"/v1/chat/completions": chatOf("max_completion_tokens"),
		"/v1/embeddings":       openAIDialect.apis["/v1/embeddings"],
	}
	d.refuse = wording{
		body: func(_ int, message, _ string, _ any) object {
			return object{"error": object{"message": message, "type": "api_error", "param": nil, "code": nil}}
		},
		quota: func(*exchange, Refusal, http.Header) (message, kind string) { return "too many requests", "" },
	}.refuse
})
