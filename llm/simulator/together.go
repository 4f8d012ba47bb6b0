package simulator

import "net/http"

// Together is the API of Together. Its shapes are those of docs.together.ai/docs/rate-limits and of
// its client for Python.
const Together Provider = "together"

var togetherDialect = likeOpenAI(Together, func(d *dialect) {
	d.apis = map[string]*api{
		"/v1/chat/completions": chatOf("max_completion_tokens", "stream_options"),
		"/v1/embeddings":       openAIDialect.apis["/v1/embeddings"],
	}
	d.last = func(chunk, usage object) { chunk["usage"] = usage }
	d.headers = func(x *exchange, h http.Header) {
		x.tell(h, toldLimit{
			dimension: Requests, limit: "x-ratelimit-limit", remaining: "x-ratelimit-remaining", seconds: 60,
		}, toldLimit{
			dimension: Tokens, limit: "x-tokenlimit-limit", remaining: "x-tokenlimit-remaining", seconds: 60,
		})
	}
	d.refuse = wording{
		body: func(_ int, message, kind string, code any) object {
			return object{"error": object{"message": message, "error_type": kind, "param": nil, "code": code}}
		},
		quota: func(_ *exchange, r Refusal, _ http.Header) (message, kind string) {
			if r.Dimension == Requests {
				return "Request was rejected due to request rate limiting.", "dynamic_request_limited"
			}
			return "Request was rejected due to token rate limiting.", "dynamic_token_limited"
		},
		credit: func() (status int, message, kind string) {
			return http.StatusPaymentRequired, "Credit limit exceeded", "credit_limit"
		},
	}.refuse
})
