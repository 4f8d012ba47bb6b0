package simulator

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"
)

// Shapes are those of OpenAI's own clients: github.com/openai/openai-go and openai-python.

// object is a JSON object that is answered.
type object map[string]any

// OpenAI is the API of OpenAI.
const OpenAI Provider = "openai"

var openAIDialect = &dialect{
	provider: OpenAI,
	apis: map[string]*api{
		"/v1/chat/completions": {parseChat, answerChat, func(x *exchange) stream { return chatStream{x} }},
		"/v1/responses": {
			parseResponses, answerResponses,
			func(x *exchange) stream { return newResponses(x) },
		},
		"/v1/embeddings":         {parseEmbeddings, answerEmbeddings, nil},
		"/v1/moderations":        {parseModerations, answerModerations, nil},
		"/v1/images/generations": {parseImages, answerImages, func(x *exchange) stream { return imageStream{x} }},
		"/v1/images/edits":       {parseImageEdits, answerImages, func(x *exchange) stream { return imageStream{x} }},
	},
	route: func(path string) (*api, bool) {
		if keptPath("", path) != nil {
			return keptAPI, true
		}
		return nil, strings.HasPrefix(path, "/v1/")
	},
	// platform.openai.com/docs/guides/rate-limits: unsuccessful requests count against the minute.
	charging: Charging{Tokens: MaxOrEstimate, Output: Produced, CacheReads: true, Failed: true, Refused: true},
	key:      bearer,
	headers:  openAIHeaders,
	refuse:   refuseOpenAI,
}

func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "bearer") {
		return ""
	}
	return token
}

// fieldError says which field of a request is wrong.
type fieldError struct{ field, text string }

func (e *fieldError) Error() string { return e.text }

func badField(field, format string, args ...any) error {
	return &fieldError{field, fmt.Sprintf(format, args...)}
}

// decode reads a request's body into v, and its model into q even if the rest is wrong.
func decode(body []byte, q *request, v any) error {
	var m struct {
		Model string `json:"model"`
	}
	if json.Unmarshal(body, &m) == nil {
		q.model = m.Model
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("the body of the request is not the JSON that is expected: %w", err)
	}
	return nil
}

// bounded reads an optional number, from 1 on.
func bounded(v *int64, field string, most, otherwise int64) (int64, error) {
	if v == nil {
		return otherwise, nil
	}
	if *v < 1 || *v > most {
		return 0, badField(field, "Invalid '%s': %d is not from 1 to %d.", field, *v, most)
	}
	return *v, nil
}

type chatRequest struct {
	Model    string `json:"model"`
	Messages []struct {
		Role      string          `json:"role"`
		Content   content         `json:"content"`
		Name      string          `json:"name"`
		ToolCalls json.RawMessage `json:"tool_calls"`
	} `json:"messages"`
	MaxTokens           *int64 `json:"max_tokens"`
	MaxCompletionTokens *int64 `json:"max_completion_tokens"`
	N                   *int64 `json:"n"`
	Stream              bool   `json:"stream"`
	StreamOptions       *struct {
		IncludeUsage       bool  `json:"include_usage"`
		IncludeObfuscation *bool `json:"include_obfuscation"`
	} `json:"stream_options"`
	Tools jsonList `json:"tools"`
}

var chatRoles = map[string]bool{
	"system": true, "developer": true, "user": true, "assistant": true, "tool": true,
	"function": true,
}

func parseChat(_ *http.Request, body []byte, q *request) (err error) {
	var in chatRequest
	if err := decode(body, q, &in); err != nil {
		return err
	}
	q.generates, q.stream, q.obfuscate = true, in.Stream, in.Stream
	switch {
	case in.Model == "":
		return badField("model", "you must provide a model parameter")
	case len(in.Messages) == 0:
		return badField("messages",
			"Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead.")
	case in.StreamOptions != nil && !in.Stream:
		return badField("stream_options", "The 'stream_options' parameter is only allowed when 'stream' is enabled.")
	case in.MaxTokens != nil && in.MaxCompletionTokens != nil:
		return badField("max_tokens",
			"Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.")
	}
	if o := in.StreamOptions; o != nil {
		q.usage, q.obfuscate = o.IncludeUsage, o.IncludeObfuscation == nil || *o.IncludeObfuscation
	}
	if in.MaxCompletionTokens != nil {
		q.maxTokens, err = bounded(in.MaxCompletionTokens, "max_completion_tokens", maxMaxTokens, 0)
	} else {
		q.maxTokens, err = bounded(in.MaxTokens, "max_tokens", maxMaxTokens, 0)
	}
	if err != nil {
		return err
	}
	if q.choices, err = bounded(in.N, "n", maxChoices, 1); err != nil {
		return err
	}
	q.fixed = TokensPerRequest
	for i, m := range in.Messages {
		field := fmt.Sprintf("messages[%d]", i)
		switch {
		case !chatRoles[m.Role]:
			return badField(field+".role",
				"Invalid value: '%s'. Supported values are: 'system', 'assistant', 'user', 'function', 'tool', and 'developer'.", m.Role)
		case !m.Content.given && m.Role != "assistant":
			return badField(field+".content", "Invalid value for 'content': expected a string, got null.")
		}
		q.message(m.Content, m.Name, present(m.ToolCalls))
	}
	for _, t := range in.Tools {
		q.tool(t)
	}
	return nil
}

// present returns JSON as text, "" for null.
func present(v json.RawMessage) string {
	if string(v) == "null" {
		return ""
	}
	return string(v)
}

// finish returns why an answer ended, in a provider's words.
func (q *request) finish(stop, length string) string {
	if _, truncated := q.words(); truncated {
		return length
	}
	return stop
}

func (q *request) text() string {
	n, _ := q.words()
	return answerText(0, n)
}

func chatUsage(x *exchange) object {
	if x.dialect.usage != nil {
		return x.dialect.usage(x)
	}
	return openAIUsage(x)
}

func openAIUsage(x *exchange) object {
	return object{
		"prompt_tokens": x.q.input, "completion_tokens": x.output, "total_tokens": x.q.input + x.output,
		"prompt_tokens_details": object{"cached_tokens": x.q.cacheRead, "audio_tokens": 0},
		"completion_tokens_details": object{
			"reasoning_tokens": x.q.thoughts * x.q.choices, "audio_tokens": 0,
			"accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0,
		},
	}
}

func answerChat(x *exchange) any {
	choices := []object{}
	for i := range x.q.choices {
		choices = append(choices, object{
			"index": i, "logprobs": nil, "finish_reason": x.q.finish("stop", "length"),
			"message": object{"role": "assistant", "content": x.q.text(), "refusal": nil, "annotations": []any{}},
		})
	}
	answer := object{
		"id": x.requestID("chatcmpl-"), "object": "chat.completion", "created": x.began.Unix(), "model": x.q.model,
		"choices":      choices,
		"service_tier": "default", "system_fingerprint": "fp_simulator",
	}
	if x.fault.Kind != FaultNoUsage {
		answer["usage"] = chatUsage(x)
	}
	return answer
}

// chatStream is the stream of chat completions.
type chatStream struct{ *exchange }

func (s chatStream) chunk(choices []object) object {
	chunk := object{
		"id": s.requestID("chatcmpl-"), "object": "chat.completion.chunk", "created": s.began.Unix(),
		"model":        s.q.model,
		"service_tier": "default", "system_fingerprint": "fp_simulator", "choices": choices,
	}
	if s.q.usage {
		chunk["usage"] = nil
	}
	return chunk
}

func (s chatStream) delta(choice int64, delta object, finish any) event {
	chunk := s.chunk([]object{{"index": choice, "delta": delta, "logprobs": nil, "finish_reason": finish}})
	if text, _ := delta["content"].(string); s.q.obfuscate {
		chunk["obfuscation"] = padding(len(text))
	}
	return event{data: chunk}
}

// padTo is a multiple of the lengths that padded texts have.
const padTo = 16

// padding returns text that hides the length of a delta.
func padding(n int) string { return strings.Repeat("x", padTo-n%padTo) }

func (s chatStream) begin() (events []event) {
	for i := range s.q.choices {
		events = append(events, s.delta(i, object{"role": "assistant", "content": "", "refusal": nil}, nil))
	}
	return events
}

func (s chatStream) words(choice int64, text string) []event {
	return []event{s.delta(choice, object{"content": text}, nil)}
}

func (s chatStream) end() (events []event) {
	reported := s.dialect.last != nil
	for i := range s.q.choices {
		e := s.delta(i, object{}, s.q.finish("stop", "length"))
		if reported && i == s.q.choices-1 && s.fault.Kind != FaultNoUsage {
			s.dialect.last(e.data.(object), chatUsage(s.exchange))
		}
		events = append(events, e)
	}
	if s.q.usage && !reported && s.fault.Kind != FaultNoUsage {
		last := s.chunk([]object{})
		last["usage"] = chatUsage(s.exchange)
		events = append(events, event{data: last})
	}
	return append(events, event{data: done})
}

func (s chatStream) fail() []event {
	return []event{{data: openAIError("The server had an error while processing your request. Sorry about that!",
		"server_error", nil, nil)}}
}

type embeddingsRequest struct {
	Model          string          `json:"model"`
	Input          json.RawMessage `json:"input"`
	EncodingFormat string          `json:"encoding_format"`
	Dimensions     *int64          `json:"dimensions"`
}

const (
	defaultWidth = 16 // the providers' models have 1536 and more; shorter ones test the same
	maxWidth     = 4096
	maxVectors   = 2048
)

func parseEmbeddings(_ *http.Request, body []byte, q *request) error {
	var in embeddingsRequest
	if err := decode(body, q, &in); err != nil {
		return err
	}
	if in.Model == "" {
		return badField("model", "you must provide a model parameter")
	}
	switch in.EncodingFormat {
	case "", "float":
	case "base64":
		q.base64 = true
	default:
		return badField("encoding_format", "Invalid value: '%s'. Supported values are: 'float' and 'base64'.",
			in.EncodingFormat)
	}
	width, err := bounded(in.Dimensions, "dimensions", maxWidth, defaultWidth)
	if err != nil {
		return err
	}
	q.width = int(width)
	return q.embed(in.Input)
}

// embed reads text, a list of texts, the tokens of one text, or a list of those.
func (q *request) embed(input json.RawMessage) error {
	var (
		one    string
		texts  []string
		tokens []int64
		lists  [][]int64
	)
	switch {
	case string(input) == "null":
	case json.Unmarshal(input, &one) == nil && one != "":
		q.vectors = 1
		q.add(one)
	case json.Unmarshal(input, &texts) == nil:
		q.vectors, q.texts = len(texts), texts
	case json.Unmarshal(input, &tokens) == nil:
		q.vectors, q.fixed = 1, int64(len(tokens))
	case json.Unmarshal(input, &lists) == nil:
		q.vectors = len(lists)
		for _, l := range lists {
			q.fixed += int64(len(l))
		}
	}
	if q.vectors == 0 || q.vectors > maxVectors {
		return badField("input", "'$.input' is invalid: it must be text or tokens, or a list of 1 to %d of them.",
			maxVectors)
	}
	return nil
}

func answerEmbeddings(x *exchange) any {
	data := []object{}
	for i := range x.q.vectors {
		data = append(data, object{"object": "embedding", "index": i, "embedding": vector(i, x.q.width, x.q.base64)})
	}
	answer := object{"object": "list", "data": data, "model": x.q.model}
	if x.fault.Kind != FaultNoUsage {
		answer["usage"] = object{"prompt_tokens": x.q.input, "total_tokens": x.q.input}
	}
	return answer
}

// vector returns numbers with the length 1, as a list or as little-endian floats in base64.
func vector(i, width int, inBase64 bool) any {
	v := make([]float32, width)
	v[i%width] = 1
	if !inBase64 {
		return v
	}
	b := make([]byte, 0, 4*width)
	for _, f := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
	}
	return base64.StdEncoding.EncodeToString(b)
}

func openAIError(message, kind string, param, code any) object {
	return object{"error": object{"message": message, "type": kind, "param": param, "code": code}}
}

// orNil returns nil for "".
func orNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func refuseOpenAI(x *exchange, f failure, _ http.Header) (int, any) {
	const request = "invalid_request_error"
	switch f.reason {
	case invalid:
		return http.StatusBadRequest, openAIError(f.message, request, orNil(f.param), nil)
	case tooLarge:
		return http.StatusRequestEntityTooLarge, openAIError(f.message, request, nil, nil)
	case unauthorized:
		return http.StatusUnauthorized,
			openAIError("Incorrect API key provided. The simulator knows only the keys of its configuration.", request,
				nil, "invalid_api_key")
	case unknownModel:
		return http.StatusNotFound,
			openAIError(fmt.Sprintf("The model `%s` does not exist or you do not have access to it.", f.message),
				request, nil, "model_not_found")
	case unknownPath:
		return http.StatusNotFound, openAIError(f.message, request, nil, nil)
	case wrongMethod:
		return http.StatusMethodNotAllowed, openAIError(f.message, request, nil, "method_not_supported")
	case overQuota:
		return http.StatusTooManyRequests, openAIOverQuota(x, longest(x.call.Refusals))
	case faulty:
	}
	return openAIFault(x, f.fault)
}

func openAIFault(x *exchange, f FaultKind) (int, any) {
	const overloaded = "The engine is currently overloaded, please try again later"
	switch f {
	case FaultMinute, FaultDay:
		return http.StatusTooManyRequests, openAIOverQuota(x, x.pretend(f))
	case FaultCredit, FaultSpendCap:
		const quota = "insufficient_quota"
		return http.StatusTooManyRequests,
			openAIError("You exceeded your current quota, please check your plan and billing details.", quota, nil,
				quota)
	case FaultTransient:
		return http.StatusTooManyRequests, openAIError("Too Many Requests", "requests", nil, nil)
	case FaultOverload, FaultUnavailable:
		return http.StatusServiceUnavailable, openAIError(overloaded, "server_error", nil, nil)
	case FaultOverloaded:
		return statusOverloaded, openAIError(overloaded, "server_error", nil, nil)
	}
	return http.StatusInternalServerError,
		openAIError("The server had an error while processing your request. Sorry about that!", "server_error", nil,
			nil)
}

// statusOverloaded is Anthropic's.
const statusOverloaded = 529

// openAIOverQuota returns the body that says which limit was full, and how long to wait.
func openAIOverQuota(x *exchange, r Refusal) object {
	kind, short := "tokens", "TPM"
	switch r.Dimension {
	case Requests:
		kind, short = "requests", "RPM"
	case Images:
		kind, short = "images", "IPM"
	case InputTokens, OutputTokens, Tokens:
	}
	per := "min"
	if r.Window == Day || r.Window == Month {
		per, short = string(r.Window), short[:2]+strings.ToUpper(string(r.Window[:1]))
	}
	what := fmt.Sprintf("%s per %s (%s)", kind, per, short)
	if r.RetryAfter < 0 {
		return openAIError(fmt.Sprintf("Request too large for %s in organization %s on %s: Limit %d, Requested %d. The input or output tokens must be reduced in order to run successfully.",
			x.q.model, x.call.Organization, what, r.Amount, r.Requested), kind, nil, "rate_limit_exceeded")
	}
	return openAIError(fmt.Sprintf("Rate limit reached for %s in organization %s on %s: Limit %d, Used %d, Requested %d. Please try again in %s.",
		x.q.model, x.call.Organization, what, r.Amount, r.Used, r.Requested, shortDuration(r.RetryAfter)), kind, nil,
		"rate_limit_exceeded")
}

// shortDuration writes a duration as OpenAI does, in Go's syntax: whole milliseconds, rounded up so
// that the wait is long enough.
func shortDuration(d time.Duration) string {
	up := d.Truncate(time.Millisecond)
	if up < d {
		up += time.Millisecond
	}
	return up.String()
}

// openAIHeaders describes the limits: per dimension the one of the organization, and the one of the
// project, of which the smallest part remains.
func openAIHeaders(x *exchange, h http.Header) {
	h.Set("x-request-id", x.requestID("req_"))
	h.Set("openai-version", "2020-10-01")
	h.Set("openai-organization", x.call.Organization)
	h.Set("openai-processing-ms", fmt.Sprint(time.Since(x.began).Milliseconds()))
	for _, d := range []struct {
		dimension Dimension
		scope     Scope
		name      string
	}{
		{Requests, Organization, "requests"},
		{Tokens, Organization, "tokens"},
		{Images, Organization, "images"},
		{Requests, Project, "project-requests"},
		{Tokens, Project, "project-tokens"},
	} {
		s := x.tightest(func(l *limit) bool { return l.Dimension == d.dimension && l.Scope == d.scope })
		if s == nil {
			continue
		}
		h.Set("x-ratelimit-limit-"+d.name, fmt.Sprint(s.limit.Amount))
		h.Set("x-ratelimit-remaining-"+d.name, fmt.Sprint(s.remaining))
		if s.full >= 0 {
			h.Set("x-ratelimit-reset-"+d.name, shortDuration(s.full))
		}
	}
}

// tightest returns the limit of which the smallest part remains, or nil.
func (x *exchange) tightest(which func(l *limit) bool) (found *state) {
	part := func(s *state) float64 { return float64(s.remaining) / float64(max(1, s.limit.Amount)) }
	for i := range x.states {
		s := &x.states[i]
		if which(s.limit) && (found == nil || part(s) < part(found)) {
			found = s
		}
	}
	return found
}

// pretend returns the refusal that a fault pretends: by a limit of the call's quota if it has one
// of that window, and by one that is made up otherwise.
func (x *exchange) pretend(f FaultKind) Refusal {
	r := Refusal{
		Limit: string(f), Dimension: Requests, Window: Rolling, Amount: 60, Requested: 1,
		RetryAfter: 20 * time.Second,
	}
	if f == FaultDay {
		r.Window, r.RetryAfter = Day, 8*time.Hour
	}
	for _, s := range x.states {
		if (s.limit.Window == Day) == (f == FaultDay) && s.limit.Dimension == Requests {
			r.Limit, r.Window, r.Amount = s.limit.Name, s.limit.Window, s.limit.Amount
			break
		}
	}
	r.Used, r.Over = r.Amount, 1
	return r
}
