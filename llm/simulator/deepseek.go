package simulator

import "net/http"

// DeepSeek is the API of DeepSeek. Its shapes are those of api-docs.deepseek.com.
const DeepSeek Provider = "deepseek"

var deepSeekDialect = likeOpenAI(DeepSeek, func(d *dialect) {
	d.charging = usualCharging
	chat := chatOf("max_completion_tokens")
	d.apis = map[string]*api{"/chat/completions": chat, "/v1/chat/completions": chat, "/beta/chat/completions": chat}
	d.usage = func(x *exchange) object {
		usage := openAIUsage(x)
		usage["prompt_cache_hit_tokens"] = x.q.cacheRead
		usage["prompt_cache_miss_tokens"] = x.q.input - x.q.cacheRead
		return usage
	}
	d.refuse = wording{
		quota: func(*exchange, Refusal, http.Header) (message, kind string) {
			return "Too many requests. Please pace your requests reasonably.", "rate_limit_reached_error"
		},
		credit: func() (status int, message, kind string) {
			return http.StatusPaymentRequired, "Insufficient Balance", "unknown_error"
		},
	}.refuse
})
