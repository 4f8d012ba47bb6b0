package simulator

import "net/http"

// VLLM is a server of vLLM. Its shapes are those of vLLM 0.11. It has no quotas: limits of it are a
// proxy's.
const VLLM Provider = "vllm"

var vllmDialect = likeOpenAI(VLLM, func(d *dialect) {
	d.charging = usualCharging
	d.refuse = wording{
		body: func(status int, message, kind string, _ any) object {
			return object{"error": object{"message": message, "type": kind, "param": nil, "code": status}}
		},
		quota: func(*exchange, Refusal, http.Header) (message, kind string) {
			return "Too many requests", "TooManyRequests"
		},
	}.refuse
})
