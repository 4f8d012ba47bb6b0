package simulator

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Shapes are those of Anthropic's own clients: github.com/anthropics/anthropic-sdk-go and
// anthropic-sdk-python.

// Anthropic is the API of Anthropic.
const Anthropic Provider = "anthropic"

var anthropicDialect = &dialect{
	provider: Anthropic,
	apis: map[string]*api{
		"/v1/messages": {
			parseMessages, answerMessages,
			func(x *exchange) stream { return messagesStream{x} },
		},
		"/v1/messages/count_tokens": {parseCount, answerCount, nil},
	},
	route: func(path string) (*api, bool) { return nil, strings.HasPrefix(path, "/v1/messages/") },
	// docs.claude.com/en/api/rate-limits: input without what was read from a cache; output as it is
	// produced. Until 2025 the page described [MaxTokens].
	charging: Charging{Tokens: Total, Output: Produced, Failed: true},
	key: func(r *http.Request) string {
		if key := r.Header.Get("X-Api-Key"); key != "" {
			return key
		}
		return bearer(r)
	},
	headers: anthropicHeaders,
	refuse:  refuseAnthropic,
}

type messagesRequest struct {
	Model    string `json:"model"`
	Messages []struct {
		Role    string  `json:"role"`
		Content content `json:"content"`
	} `json:"messages"`
	System    content  `json:"system"`
	MaxTokens *int64   `json:"max_tokens"`
	Stream    bool     `json:"stream"`
	Tools     jsonList `json:"tools"`
}

func parseMessages(r *http.Request, body []byte, q *request) error {
	in, err := parseConversation(r, body, q)
	if err != nil {
		return err
	}
	q.generates, q.stream = true, in.Stream
	if in.MaxTokens == nil {
		return errors.New("max_tokens: Field required")
	}
	if *in.MaxTokens < 1 || *in.MaxTokens > maxMaxTokens {
		return fmt.Errorf("max_tokens: %d is not from 1 to %d", *in.MaxTokens, maxMaxTokens)
	}
	q.maxTokens = *in.MaxTokens
	return nil
}

func parseCount(r *http.Request, body []byte, q *request) error {
	_, err := parseConversation(r, body, q)
	q.free = true
	return err
}

// parseConversation reads what messages and the counting of their tokens have in common.
func parseConversation(r *http.Request, body []byte, q *request) (in messagesRequest, err error) {
	if err := decode(body, q, &in); err != nil {
		return in, err
	}
	switch {
	case r.Header.Get("Anthropic-Version") == "":
		return in, errors.New("anthropic-version: header is required")
	case in.Model == "":
		return in, errors.New("model: Field required")
	case len(in.Messages) == 0:
		return in, errors.New("messages: at least one message is required")
	}
	q.fixed = TokensPerRequest
	if in.System.given {
		q.message(in.System)
	}
	for i, m := range in.Messages {
		switch {
		case m.Role != "user" && m.Role != "assistant":
			return in, fmt.Errorf("messages.%d.role: Input should be 'user' or 'assistant'", i)
		case !m.Content.given:
			return in, fmt.Errorf("messages.%d.content: Field required", i)
		}
		q.message(m.Content)
	}
	for _, t := range in.Tools {
		q.tool(t)
	}
	return in, nil
}

func answerCount(x *exchange) any { return object{"input_tokens": x.q.input} }

// anthropicUsage has the input, and the output so far.
func anthropicUsage(x *exchange, output int64) object {
	return object{
		"input_tokens":                x.q.input - x.q.cacheRead - x.q.cacheWrite,
		"cache_creation_input_tokens": x.q.cacheWrite, "cache_read_input_tokens": x.q.cacheRead,
		"cache_creation": object{"ephemeral_5m_input_tokens": x.q.cacheWrite, "ephemeral_1h_input_tokens": 0},
		"output_tokens":  output, "service_tier": "standard",
	}
}

func anthropicMessage(x *exchange, content []object, stop any, usage object) object {
	m := object{
		"id": x.requestID("msg_"), "type": "message", "role": "assistant", "model": x.q.model,
		"content": content, "stop_reason": stop, "stop_sequence": nil, "usage": usage,
	}
	if x.fault.Kind == FaultNoUsage {
		delete(m, "usage")
	}
	return m
}

func answerMessages(x *exchange) any {
	text := []object{{"type": "text", "text": x.q.text()}}
	return anthropicMessage(x, text, x.q.finish("end_turn", "max_tokens"), anthropicUsage(x, x.output))
}

// messagesStream is the stream of messages: named events.
type messagesStream struct{ *exchange }

func anthropicEvent(name string, data object) event {
	data["type"] = name
	return event{name, data}
}

func (s messagesStream) begin() []event {
	// The output that is known at the beginning is provisional, and small.
	message := anthropicMessage(s.exchange, []object{}, nil, anthropicUsage(s.exchange, 1))
	return []event{
		anthropicEvent("message_start", object{"message": message}),
		anthropicEvent("content_block_start", object{"index": 0, "content_block": object{"type": "text", "text": ""}}),
		anthropicEvent("ping", object{}),
	}
}

func (s messagesStream) words(_ int64, text string) []event {
	return []event{anthropicEvent("content_block_delta", object{
		"index": 0,
		"delta": object{"type": "text_delta", "text": text},
	})}
}

func (s messagesStream) end() []event {
	delta := object{
		"delta": object{"stop_reason": s.q.finish("end_turn", "max_tokens"), "stop_sequence": nil},
		"usage": object{
			"input_tokens":                s.q.input - s.q.cacheRead - s.q.cacheWrite,
			"cache_creation_input_tokens": s.q.cacheWrite, "cache_read_input_tokens": s.q.cacheRead,
			"output_tokens": s.output,
		},
	}
	if s.fault.Kind == FaultNoUsage {
		delete(delta, "usage")
	}
	return []event{
		anthropicEvent("content_block_stop", object{"index": 0}),
		anthropicEvent("message_delta", delta),
		anthropicEvent("message_stop", object{}),
	}
}

func (s messagesStream) fail() []event {
	return []event{{"error", anthropicError(s.exchange, "overloaded_error", "Overloaded")}}
}

func anthropicError(x *exchange, kind, message string) object {
	return object{"type": "error", "error": object{"type": kind, "message": message}, "request_id": x.requestID("req_")}
}

func refuseAnthropic(x *exchange, f failure, h http.Header) (int, any) {
	switch f.reason {
	case invalid:
		return http.StatusBadRequest, anthropicError(x, "invalid_request_error", f.message)
	case tooLarge:
		return http.StatusRequestEntityTooLarge, anthropicError(x, "request_too_large", f.message)
	case unauthorized:
		return http.StatusUnauthorized, anthropicError(x, "authentication_error", "invalid x-api-key")
	case unknownModel:
		return http.StatusNotFound, anthropicError(x, "not_found_error", "model: "+f.message)
	case unknownPath:
		return http.StatusNotFound, anthropicError(x, "not_found_error", f.message)
	case wrongMethod:
		return http.StatusMethodNotAllowed, anthropicError(x, "invalid_request_error", f.message)
	case overQuota:
		return http.StatusTooManyRequests, anthropicOverQuota(x, longest(x.call.Refusals), h)
	case faulty:
	}
	return anthropicFault(x, f.fault, h)
}

func anthropicFault(x *exchange, f FaultKind, h http.Header) (int, any) {
	switch f {
	case FaultMinute, FaultDay:
		return http.StatusTooManyRequests, anthropicOverQuota(x, x.pretend(f), h)
	case FaultCredit:
		return http.StatusBadRequest, anthropicError(x, "invalid_request_error",
			"Your credit balance is too low to access the Anthropic API.")
	case FaultSpendCap:
		body := anthropicError(x, "rate_limit_error", "The monthly spend limit of the organization's tier is reached.")
		body["error"].(object)["details"] = object{"error_code": "enforced_spend_limit_reached"}
		return http.StatusTooManyRequests, body
	case FaultTransient:
		return http.StatusTooManyRequests, anthropicError(x, "rate_limit_error", "Error")
	case FaultOverload, FaultOverloaded:
		return statusOverloaded, anthropicError(x, "overloaded_error", "Overloaded")
	case FaultUnavailable:
		return http.StatusServiceUnavailable, anthropicError(x, "api_error", "Service unavailable")
	}
	return http.StatusInternalServerError, anthropicError(x, "api_error", "Internal server error")
}

func anthropicOverQuota(x *exchange, r Refusal, h http.Header) object {
	if r.RetryAfter >= 0 {
		h.Set("Retry-After", fmt.Sprint(int64((r.RetryAfter+time.Second-1)/time.Second)))
	}
	what := strings.ReplaceAll(string(r.Dimension), "_", " ")
	per := "minute"
	if r.Window == Day || r.Window == Month {
		per = string(r.Window)
	}
	return anthropicError(x, "rate_limit_error",
		fmt.Sprintf("This request would exceed your organization's rate limit of %s %s per %s (org: %s, model: %s).",
			thousands(r.Amount), what, per, x.call.Organization, x.q.model))
}

// thousands writes a number with commas.
func thousands(n int64) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// anthropicHeaders describes the limits. Remaining tokens are rounded to the nearest thousand, and
// the tokens triple shows the limit of tokens of which the smallest part remains.
func anthropicHeaders(x *exchange, h http.Header) {
	h.Set("request-id", x.requestID("req_"))
	h.Set("anthropic-organization-id", x.call.Organization)
	for _, d := range []struct {
		name string
		of   func(l *limit) bool
	}{
		{"requests", func(l *limit) bool { return l.Dimension == Requests }},
		{"input-tokens", func(l *limit) bool { return l.Dimension == InputTokens }},
		{"output-tokens", func(l *limit) bool { return l.Dimension == OutputTokens }},
		{"tokens", func(l *limit) bool { return l.Dimension != Requests }},
	} {
		s := x.tightest(d.of)
		if s == nil {
			continue
		}
		remaining := s.remaining
		if d.name != "requests" {
			remaining = (remaining + 500) / 1000 * 1000
		}
		prefix := "anthropic-ratelimit-" + d.name
		h.Set(prefix+"-limit", fmt.Sprint(s.limit.Amount))
		h.Set(prefix+"-remaining", fmt.Sprint(remaining))
		if s.full >= 0 {
			// Whole seconds, rounded up: it is full then.
			full := x.began.Add(s.full + time.Second - 1)
			h.Set(prefix+"-reset", full.UTC().Truncate(time.Second).Format(time.RFC3339))
		}
	}
}
