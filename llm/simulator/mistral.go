package simulator

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// Mistral is the API of Mistral. Its shapes are those of its client for Python; its headers and its
// 429 are as users quote them.
const Mistral Provider = "mistral"

var mistralDialect = likeOpenAI(Mistral, func(d *dialect) {
	chat := chatOf("max_completion_tokens")
	parse := chat.parse
	chat.parse = func(r *http.Request, body []byte, q *request) error {
		var in struct {
			Options json.RawMessage `json:"stream_options"`
		}
		if json.Unmarshal(body, &in) == nil && in.Options != nil {
			return badField("stream_options", "Extra inputs are not permitted")
		}
		return parse(r, body, q)
	}
	d.apis = map[string]*api{
		"/v1/chat/completions": chat, "/v1/embeddings": openAIDialect.apis["/v1/embeddings"],
	}
	d.last = func(chunk, usage object) { chunk["usage"] = usage }
	d.headers = func(x *exchange, h http.Header) {
		for name, dimension := range map[string]Dimension{"req": Requests, "tokens": Tokens} {
			x.tell(h, toldLimit{
				dimension: dimension, limit: "x-ratelimit-limit-" + name + "-minute",
				remaining: "x-ratelimit-remaining-" + name + "-minute",
			})
		}
		h.Set("x-ratelimit-tokens-query-cost", fmt.Sprint(x.q.input))
	}
	d.refuse = wording{
		body: func(status int, message, kind string, code any) object {
			return object{
				"object": "error", "message": message, "type": kind, "param": nil, "code": code,
				"raw_status_code": status,
			}
		},
		quota: func(*exchange, Refusal, http.Header) (message, kind string) {
			return "Rate limit exceeded", "rate_limited"
		},
	}.refuse
})
