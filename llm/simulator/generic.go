package simulator

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Generic is an API of no provider, for profiles that users describe. Any path behind /generic will
// do.
const Generic Provider = "generic"

var genericDialect = &dialect{
	provider: Generic,
	apart:    true,
	route: func(string) (*api, bool) {
		return &api{parseGeneric, answerGeneric, func(x *exchange) stream { return genericStream{x} }}, true
	},
	charging: usualCharging,
	key: func(r *http.Request) string {
		if key := r.Header.Get("X-Api-Key"); key != "" {
			return key
		}
		return bearer(r)
	},
	headers: func(x *exchange, h http.Header) { h.Set("X-Request-Id", x.requestID("")) },
	refuse:  refuseGeneric,
}

// parseGeneric reads a JSON object. Its model is the field "model", or what follows /generic/ in
// the path. Every text in it, at any depth, is the input; "stream" and "max_tokens" are what they
// are elsewhere.
func parseGeneric(r *http.Request, body []byte, q *request) error {
	var in map[string]any
	if err := decode(body, q, &in); err != nil || in == nil {
		return errors.New("the body must be a JSON object")
	}
	if q.model == "" {
		q.model = strings.TrimPrefix(r.URL.Path, "/")
	}
	q.generates = true
	q.stream, _ = in["stream"].(bool)
	if n, ok := in["max_tokens"].(float64); ok {
		if n < 1 || n > maxMaxTokens {
			return fmt.Errorf("max_tokens must be from 1 to %d", maxMaxTokens)
		}
		q.maxTokens = int64(n)
	}
	delete(in, "model")
	q.collect(in)
	return nil
}

// collect takes all texts in a value into account, in a fixed order.
func (q *request) collect(v any) {
	switch v := v.(type) {
	case string:
		q.add(v)
	case []any:
		for _, e := range v {
			q.collect(e)
		}
	case map[string]any:
		names := make([]string, 0, len(v))
		for name := range v {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			q.collect(v[name])
		}
	}
}

func genericUsage(x *exchange, answer object) object {
	o := &x.s.options
	if x.fault.Kind != FaultNoUsage {
		answer[o.UsageField] = object{
			o.InputField: x.q.input, o.OutputField: x.output,
			o.TotalField: x.q.input + x.output,
		}
	}
	return answer
}

func answerGeneric(x *exchange) any {
	return genericUsage(x, object{"id": x.requestID(""), "model": x.q.model, "output": x.q.text()})
}

// genericStream is a stream of events whose last one has the usage.
type genericStream struct{ *exchange }

func (s genericStream) begin() []event { return nil }

func (s genericStream) words(_ int64, text string) []event {
	return []event{{data: object{"delta": text}}}
}

func (s genericStream) end() []event {
	return []event{{data: genericUsage(s.exchange, object{"delta": ""})}, {data: done}}
}

func (s genericStream) fail() []event {
	return []event{{data: genericError("internal", "internal error")}}
}

func genericError(code, message string) object {
	return object{"error": object{"code": code, "message": message}}
}

func refuseGeneric(x *exchange, f failure, h http.Header) (int, any) {
	switch f.reason {
	case invalid:
		return http.StatusBadRequest, genericError("invalid_request", f.message)
	case tooLarge:
		return http.StatusRequestEntityTooLarge, genericError("too_large", f.message)
	case unauthorized:
		return http.StatusUnauthorized, genericError("unauthorized", "unknown API key")
	case unknownModel:
		return http.StatusNotFound, genericError("not_found", "unknown model "+f.message)
	case unknownPath:
		return http.StatusNotFound, genericError("not_found", f.message)
	case wrongMethod:
		return http.StatusMethodNotAllowed, genericError("method_not_allowed", f.message)
	case overQuota:
		return http.StatusTooManyRequests, genericOverQuota(longest(x.call.Refusals), h)
	case faulty:
	}
	switch f.fault {
	case FaultMinute, FaultDay:
		return http.StatusTooManyRequests, genericOverQuota(x.pretend(f.fault), h)
	case FaultCredit, FaultSpendCap, FaultTransient:
		return http.StatusTooManyRequests, genericError(string(f.fault), "too many requests")
	case FaultOverload, FaultUnavailable:
		return http.StatusServiceUnavailable, genericError("overloaded", "overloaded")
	case FaultOverloaded:
		return statusOverloaded, genericError("overloaded", "overloaded")
	}
	return http.StatusInternalServerError, genericError("internal", "internal error")
}

func genericOverQuota(r Refusal, h http.Header) object {
	if r.RetryAfter >= 0 {
		h.Set("Retry-After", fmt.Sprint(int64((r.RetryAfter+time.Second-1)/time.Second)))
	}
	body := genericError("rate_limited", fmt.Sprintf("limit %s: %d used and %d requested of %d %s", r.Limit, r.Used,
		r.Requested, r.Amount, r.Dimension))
	body["error"].(object)["limit"] = json.RawMessage(encode(r))
	return body
}
