package simulator

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Shapes are those of Google's own clients: github.com/googleapis/go-genai and python-genai.

// Gemini is the Gemini Developer API.
const Gemini Provider = "gemini"

var geminiDialect = &dialect{
	provider: Gemini,
	route:    routeGemini,
	// ai.google.dev/gemini-api/docs/rate-limits: input only, with what was read from a cache; a
	// request that fails with 400 or 500 counts.
	charging: usualCharging,
	frame: func(x *exchange) framer {
		if x.q.sse {
			return eventFramer{lineEnd: "\r\n"}
		}
		return &arrayFramer{}
	},
	key: func(r *http.Request) string {
		if key := r.Header.Get("X-Goog-Api-Key"); key != "" {
			return key
		}
		return r.URL.Query().Get("key")
	},
	headers: func(*exchange, http.Header) {}, // it documents none
	refuse:  refuseGemini,
}

// Path parts of the operations. The version is v1beta, or v1 as in newer clients.
const (
	geminiModels   = "/models/"
	geminiAnswer   = "generateContent"
	geminiStream   = "streamGenerateContent"
	geminiCounting = "countTokens"
)

// geminiContent is one turn. Fields have names in camel case; those of the protocol's own, with
// underscores, are accepted too.
type geminiContent struct {
	Role  string       `json:"role"`
	Parts []geminiPart `json:"parts"`
}

type geminiPart struct {
	Text             *string         `json:"text"`
	FunctionCall     json.RawMessage `json:"functionCall"`
	FunctionResponse json.RawMessage `json:"functionResponse"`
	ExecutableCode   json.RawMessage `json:"executableCode"`
	CodeResult       json.RawMessage `json:"codeExecutionResult"`
}

type geminiConfig struct {
	MaxOutputTokens      *int64 `json:"maxOutputTokens"`
	MaxOutputTokensSnake *int64 `json:"max_output_tokens"`
	CandidateCount       *int64 `json:"candidateCount"`
}

type geminiRequest struct {
	Contents               []geminiContent `json:"contents"`
	SystemInstruction      *geminiContent  `json:"systemInstruction"`
	SystemInstructionSnake *geminiContent  `json:"system_instruction"`
	GenerationConfig       geminiConfig    `json:"generationConfig"`
	Tools                  jsonList        `json:"tools"`
	// GenerateContentRequest is what countTokens may have instead of contents.
	GenerateContentRequest *geminiRequest `json:"generateContentRequest"`
}

// geminiModel returns the model and the operation that a path names.
func geminiModel(path string) (model, operation string, ok bool) {
	version, rest, _ := strings.Cut(path, geminiModels)
	if version != "/v1beta" && version != "/v1" && version != "/v1alpha" {
		return "", "", false
	}
	return strings.Cut(rest, ":")
}

var geminiAPI = &api{parseGemini, answerGemini, func(x *exchange) stream { return geminiWords{x} }}

func routeGemini(path string) (*api, bool) {
	if model, operation, ok := geminiModel(path); ok && model != "" && !strings.Contains(model, "/") {
		if operation == geminiAnswer || operation == geminiStream || operation == geminiCounting {
			return geminiAPI, true
		}
		return nil, true
	}
	return nil, strings.HasPrefix(path, "/v1beta/") || strings.HasPrefix(path, "/v1alpha/")
}

func parseGemini(r *http.Request, body []byte, q *request) (err error) {
	model, operation, _ := geminiModel(r.URL.Path)
	q.model = model
	var in geminiRequest
	if err := json.Unmarshal(body, &in); err != nil {
		return fmt.Errorf("Invalid JSON payload received: %w", err) //nolint:staticcheck // the provider's words
	}
	switch operation {
	case geminiCounting:
		q.free = true
		if in.GenerateContentRequest != nil {
			in = *in.GenerateContentRequest
		}
	case geminiStream:
		q.generates, q.stream, q.sse = true, true, r.URL.Query().Get("alt") == "sse"
	default:
		q.generates = true
	}
	if len(in.Contents) == 0 {
		return errors.New("* GenerateContentRequest.contents: contents is not specified")
	}
	q.fixed = TokensPerRequest
	for _, c := range []*geminiContent{in.SystemInstruction, in.SystemInstructionSnake} {
		if c != nil {
			q.turn(c)
		}
	}
	for i := range in.Contents {
		if err := in.Contents[i].check(i); err != nil {
			return err
		}
		q.turn(&in.Contents[i])
	}
	for _, t := range in.Tools {
		q.tool(t)
	}
	return q.configure(in.GenerationConfig)
}

func (c *geminiContent) check(i int) error {
	switch {
	case c.Role != "" && c.Role != "user" && c.Role != "model" && c.Role != "function":
		return errors.New("Please use a valid role: user, model.") //nolint:staticcheck // the provider's words
	case len(c.Parts) == 0:
		return fmt.Errorf("* GenerateContentRequest.contents[%d].parts: contents.parts must not be empty", i)
	}
	return nil
}

// turn takes one turn into account.
func (q *request) turn(t *geminiContent) {
	c := content{}
	for _, p := range t.Parts {
		switch {
		case p.Text != nil:
			c.texts = append(c.texts, *p.Text)
		case len(p.FunctionCall) > 0 || len(p.FunctionResponse) > 0:
			c.texts = append(c.texts, string(p.FunctionCall), string(p.FunctionResponse))
		case len(p.ExecutableCode) > 0 || len(p.CodeResult) > 0:
			c.texts = append(c.texts, string(p.ExecutableCode), string(p.CodeResult))
		default:
			c.files++
		}
	}
	q.message(c)
}

func (q *request) configure(c geminiConfig) (err error) {
	bound := c.MaxOutputTokens
	if bound == nil {
		bound = c.MaxOutputTokensSnake
	}
	if q.maxTokens, err = bounded(bound, "max_output_tokens", maxMaxTokens, 0); err != nil {
		return err
	}
	q.choices, err = bounded(c.CandidateCount, "candidate_count", maxChoices, 1)
	return err
}

func answerGemini(x *exchange) any {
	if x.q.free {
		return object{"totalTokens": x.q.input, "promptTokensDetails": []object{{
			"modality":   "TEXT",
			"tokenCount": x.q.input,
		}}}
	}
	return geminiChunk(x, geminiCandidates(x, x.q.text(), x.q.finish("STOP", "MAX_TOKENS")), x.output)
}

func geminiCandidates(x *exchange, text, finish string) (all []object) {
	for i := range x.q.choices {
		all = append(all, geminiCandidate(i, text, finish))
	}
	return all
}

func geminiCandidate(i int64, text, finish string) object {
	c := object{"content": object{"parts": []object{{"text": text}}, "role": "model"}, "index": i}
	if finish != "" {
		c["finishReason"] = finish
	}
	return c
}

func geminiChunk(x *exchange, candidates []object, output int64) object {
	chunk := object{"candidates": candidates, "modelVersion": x.q.model, "responseId": x.requestID("")}
	if x.fault.Kind == FaultNoUsage {
		return chunk
	}
	thoughts := x.q.thoughts * x.q.choices
	usage := object{
		"promptTokenCount": x.q.input, "candidatesTokenCount": output - thoughts, "totalTokenCount": x.q.input + output,
		"promptTokensDetails": []object{{"modality": "TEXT", "tokenCount": x.q.input}},
	}
	if thoughts > 0 {
		usage["thoughtsTokenCount"] = thoughts
	}
	if x.q.cacheRead > 0 {
		usage["cachedContentTokenCount"] = x.q.cacheRead
	}
	chunk["usageMetadata"] = usage
	return chunk
}

// geminiWords is the stream of Gemini: each event is a whole response, with the usage so far.
type geminiWords struct{ *exchange }

func (s geminiWords) begin() []event { return nil }

func (s geminiWords) words(choice int64, text string) []event {
	return []event{{data: geminiChunk(s.exchange, []object{geminiCandidate(choice, text, "")}, s.output)}}
}

func (s geminiWords) end() []event {
	return []event{{data: geminiChunk(s.exchange, geminiCandidates(s.exchange, "", s.q.finish("STOP", "MAX_TOKENS")),
		s.output)}}
}

func (s geminiWords) fail() []event {
	return []event{{data: geminiError(http.StatusServiceUnavailable, "UNAVAILABLE", geminiOverloaded)}}
}

const geminiOverloaded = "The model is overloaded. Please try again later."

func geminiError(code int, status, message string, details ...object) object {
	e := object{"code": code, "message": message, "status": status}
	if len(details) > 0 {
		e["details"] = details
	}
	return object{"error": e}
}

func refuseGemini(x *exchange, f failure, _ http.Header) (int, any) {
	const argument, missing = "INVALID_ARGUMENT", "NOT_FOUND"
	switch f.reason {
	case invalid:
		return http.StatusBadRequest, geminiError(http.StatusBadRequest, argument, f.message)
	case tooLarge:
		return http.StatusBadRequest, geminiError(http.StatusBadRequest, argument,
			"Request payload size exceeds the limit.")
	case unauthorized: // Gemini says 400 where others say 401
		return http.StatusBadRequest, geminiError(http.StatusBadRequest, argument,
			"API key not valid. Please pass a valid API key.", object{
				"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID",
				"domain":   "googleapis.com",
				"metadata": object{"service": "generativelanguage.googleapis.com"},
			})
	case unknownModel:
		return http.StatusNotFound, geminiError(http.StatusNotFound, missing,
			fmt.Sprintf("models/%s is not found for API version v1beta.", f.message))
	case unknownPath:
		return http.StatusNotFound, geminiError(http.StatusNotFound, missing, f.message)
	case wrongMethod:
		return http.StatusMethodNotAllowed, geminiError(http.StatusMethodNotAllowed, argument, f.message)
	case overQuota:
		return http.StatusTooManyRequests, geminiOverQuota(x, x.call.Refusals)
	case faulty:
	}
	return geminiFault(x, f.fault)
}

const exhausted = "RESOURCE_EXHAUSTED"

func geminiFault(x *exchange, f FaultKind) (int, any) {
	switch f {
	case FaultMinute, FaultDay:
		return http.StatusTooManyRequests, geminiOverQuota(x, []Refusal{x.pretend(f)})
	case FaultCredit:
		return http.StatusTooManyRequests, geminiError(http.StatusTooManyRequests, exhausted,
			"Your prepayment credits are depleted.")
	case FaultSpendCap:
		return http.StatusTooManyRequests, geminiError(http.StatusTooManyRequests, exhausted,
			"Your project has exceeded its spending cap.")
	case FaultTransient:
		return http.StatusTooManyRequests, geminiError(http.StatusTooManyRequests, exhausted,
			"Resource has been exhausted (e.g. check quota).")
	case FaultOverload, FaultUnavailable:
		return http.StatusServiceUnavailable, geminiError(http.StatusServiceUnavailable, "UNAVAILABLE",
			geminiOverloaded)
	case FaultOverloaded:
		return statusOverloaded, geminiError(statusOverloaded, "UNAVAILABLE", geminiOverloaded)
	}
	return http.StatusInternalServerError, geminiError(http.StatusInternalServerError, "INTERNAL",
		"An internal error has occurred.")
}

// geminiOverQuota names every limit that was full. The delay is that of the minute even if a day's
// limit is full, as Gemini's is: clients must look at the quotaId.
func geminiOverQuota(x *exchange, refusals []Refusal) object {
	delay := time.Duration(0)
	violations := []object{}
	for _, r := range refusals {
		if r.Window != Day && r.Window != Month {
			delay = max(delay, r.RetryAfter)
		}
		metric, id := geminiQuota(r, x.quota != nil && x.quota.FreeTier)
		violations = append(violations, object{
			"quotaMetric": "generativelanguage.googleapis.com/" + metric, "quotaId": id,
			"quotaDimensions": object{"location": "global", "model": x.q.model}, "quotaValue": fmt.Sprint(r.Amount),
		})
	}
	if delay == 0 { // until the next minute
		delay = x.began.Truncate(time.Minute).Add(time.Minute).Sub(x.began)
	}
	first := refusals[0]
	metric, _ := geminiQuota(first, x.quota != nil && x.quota.FreeTier)
	message := fmt.Sprintf("You exceeded your current quota, please check your plan and billing details.\n* Quota exceeded for metric: generativelanguage.googleapis.com/%s, limit: %d, model: %s\nPlease retry in %s.",
		metric, first.Amount, x.q.model, seconds(delay))
	return geminiError(http.StatusTooManyRequests, exhausted, message,
		object{"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": violations},
		object{
			"@type": "type.googleapis.com/google.rpc.Help",
			"links": []object{{
				"description": "Learn more about Gemini API quotas",
				"url":         "https://ai.google.dev/gemini-api/docs/rate-limits",
			}},
		},
		object{
			"@type":      "type.googleapis.com/google.rpc.RetryInfo",
			"retryDelay": seconds(delay.Truncate(time.Second) + time.Second),
		})
}

// seconds writes a duration as the protocol does: in seconds, as a fraction if need be.
func seconds(d time.Duration) string {
	if d%time.Second == 0 {
		return fmt.Sprintf("%ds", int64(d/time.Second))
	}
	return strings.TrimRight(fmt.Sprintf("%d.%09d", int64(d/time.Second), int64(d%time.Second)), "0") + "s"
}

// geminiQuota returns the metric and the id that a refusal names.
func geminiQuota(r Refusal, free bool) (metric, id string) {
	per := "PerMinute"
	switch r.Window {
	case Day:
		per = "PerDay"
	case Month:
		per = "PerMonth"
	case Rolling, Aligned, Bucket:
	}
	switch {
	case r.Dimension == Requests && free:
		return "generate_content_free_tier_requests", "GenerateRequests" + per + "PerProjectPerModel-FreeTier"
	case r.Dimension == Requests:
		return "generate_requests_per_model", "GenerateRequests" + per + "PerProjectPerModel"
	case free:
		return "generate_content_free_tier_input_token_count", "GenerateContentInputTokensPerModel" + per + "-FreeTier"
	}
	return "generate_content_paid_tier_input_token_count", "GenerateContentPaidTierInputTokensPerModel" + per
}
