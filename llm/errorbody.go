package llm

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// ErrorKind is why we refuse a call ourselves, in place of the provider.
type ErrorKind uint8

// The kinds of errors.
const (
	RateLimited  ErrorKind = iota // a quota has no room
	Unauthorized                  // the key is missing or wrong
	BadRequest                    // the call cannot be counted, or can never fit
	Overloaded                    // too much is waiting here, or the provider is overloaded
	ServerError                   // something failed here, before anything was sent
	TimedOut                      // no answer in time
	NotFound                      // there is no such model, as far as the caller may know
	NoSuchPath                    // there is no such operation, as far as the caller may know
	Forbidden                     // the key may not do this
	TooLarge                      // the request has more bytes than are read
	Unavailable                   // nothing was sent: the provider is left alone for a time, or a quota could not be asked
	Lost                          // the provider cannot be reached, or its answer was cut off
	numErrorKinds
)

// ErrorResponse is a response of ours in the provider's own form, so that its official clients
// raise the error that they would raise for the provider's.
type ErrorResponse struct {
	Status int
	Header http.Header // Content-Type, Retry-After, Retry-After-Ms and X-Should-Retry, as far as they apply
	Body   []byte
}

// providerErrors name each kind in a provider's words.
type providerErrors [numErrorKinds]struct {
	status     int
	kind, code string
}

// Sources: the error types of openai-go v3 and anthropic-sdk-go, google.rpc.Code.
var (
	openAIErrors = providerErrors{
		RateLimited:  {http.StatusTooManyRequests, "requests", "rate_limit_exceeded"},
		Unauthorized: {http.StatusUnauthorized, "invalid_request_error", "invalid_api_key"},
		BadRequest:   {http.StatusBadRequest, "invalid_request_error", ""},
		Overloaded:   {http.StatusServiceUnavailable, "server_error", "overloaded"},
		ServerError:  {http.StatusInternalServerError, "server_error", "server_error"},
		TimedOut:     {http.StatusGatewayTimeout, "server_error", "timeout"},
		NotFound:     {http.StatusNotFound, "invalid_request_error", "model_not_found"},
		NoSuchPath:   {http.StatusNotFound, "invalid_request_error", "unknown_url"},
		Forbidden:    {http.StatusForbidden, "invalid_request_error", "permission_denied"},
		TooLarge:     {http.StatusRequestEntityTooLarge, "invalid_request_error", "request_too_large"},
		Unavailable:  {http.StatusServiceUnavailable, "server_error", "unavailable"},
		Lost:         {http.StatusBadGateway, "server_error", "upstream_lost"},
	}
	anthropicErrors = providerErrors{
		RateLimited:  {http.StatusTooManyRequests, "rate_limit_error", ""},
		Unauthorized: {http.StatusUnauthorized, "authentication_error", ""},
		BadRequest:   {http.StatusBadRequest, "invalid_request_error", ""},
		Overloaded:   {statusOverloaded, "overloaded_error", ""},
		ServerError:  {http.StatusInternalServerError, "api_error", ""},
		TimedOut:     {http.StatusGatewayTimeout, "timeout_error", ""},
		NotFound:     {http.StatusNotFound, "not_found_error", ""},
		NoSuchPath:   {http.StatusNotFound, "not_found_error", ""},
		Forbidden:    {http.StatusForbidden, "permission_error", ""},
		TooLarge:     {http.StatusRequestEntityTooLarge, "request_too_large", ""},
		Unavailable:  {http.StatusServiceUnavailable, "api_error", ""},
		Lost:         {http.StatusBadGateway, "api_error", ""},
	}
	geminiErrors = providerErrors{
		RateLimited:  {http.StatusTooManyRequests, "RESOURCE_EXHAUSTED", ""},
		Unauthorized: {http.StatusUnauthorized, "UNAUTHENTICATED", ""},
		BadRequest:   {http.StatusBadRequest, "INVALID_ARGUMENT", ""},
		Overloaded:   {http.StatusServiceUnavailable, "UNAVAILABLE", ""},
		ServerError:  {http.StatusInternalServerError, "INTERNAL", ""},
		TimedOut:     {http.StatusGatewayTimeout, "DEADLINE_EXCEEDED", ""},
		NotFound:     {http.StatusNotFound, "NOT_FOUND", ""},
		NoSuchPath:   {http.StatusNotFound, "NOT_FOUND", ""},
		Forbidden:    {http.StatusForbidden, "PERMISSION_DENIED", ""},
		TooLarge:     {http.StatusRequestEntityTooLarge, "INVALID_ARGUMENT", ""},
		Unavailable:  {http.StatusServiceUnavailable, "UNAVAILABLE", ""},
		Lost:         {http.StatusBadGateway, "UNAVAILABLE", ""},
	}
	genericErrors = providerErrors{
		RateLimited:  {http.StatusTooManyRequests, "rate limited", ""},
		Unauthorized: {http.StatusUnauthorized, "unauthorized", ""},
		BadRequest:   {http.StatusBadRequest, "bad request", ""},
		Overloaded:   {http.StatusServiceUnavailable, "overloaded", ""},
		ServerError:  {http.StatusInternalServerError, "server error", ""},
		TimedOut:     {http.StatusGatewayTimeout, "timed out", ""},
		NotFound:     {http.StatusNotFound, "not found", ""},
		NoSuchPath:   {http.StatusNotFound, "not found", ""},
		Forbidden:    {http.StatusForbidden, "forbidden", ""},
		TooLarge:     {http.StatusRequestEntityTooLarge, "too large", ""},
		Unavailable:  {http.StatusServiceUnavailable, "unavailable", ""},
		Lost:         {http.StatusBadGateway, "upstream lost", ""},
	}
)

// Error returns the response with which to refuse a call ourselves. message is a sentence for the
// person who reads it; retryAfter is how long to wait, 0 if that is not known or no wait helps.
//
// Retry-After is in whole seconds, rounded up, and Retry-After-Ms exact. X-Should-Retry is false
// where the provider's own clients must not try again by themselves: if no wait helps, if they
// would come back before the wait is over (they cut it off at ClientMaxWait), or if the call may
// have been sent already, as another attempt would be paid for again.
func (p *Profile) Error(kind ErrorKind, message string, retryAfter time.Duration) ErrorResponse {
	if kind >= numErrorKinds {
		kind = ServerError
	}
	retryAfter = max(0, retryAfter)
	var what any
	r := ErrorResponse{Header: http.Header{"Content-Type": {"application/json"}}}
	switch p.wire {
	case wireOpenAI:
		e := openAIErrors[kind]
		r.Status = e.status
		what = map[string]any{"error": map[string]any{"message": message, "type": e.kind, "param": nil, "code": nullable(e.code)}}
	case wireAnthropic:
		e := anthropicErrors[kind]
		r.Status = e.status
		what = map[string]any{"type": "error", "error": map[string]any{"type": e.kind, "message": message}}
	case wireGemini:
		e := geminiErrors[kind]
		r.Status = e.status
		inner := map[string]any{"code": e.status, "message": message, "status": e.kind}
		if retryAfter > 0 {
			inner["details"] = []any{map[string]any{
				"@type":      "type.googleapis.com/google.rpc.RetryInfo",
				"retryDelay": strconv.FormatFloat(retryAfter.Seconds(), 'f', -1, 64) + "s",
			}}
		}
		what = map[string]any{"error": inner}
	default: // RFC 9457
		e := genericErrors[kind]
		r.Status = e.status
		r.Header.Set("Content-Type", "application/problem+json")
		what = map[string]any{"title": e.kind, "status": e.status, "detail": message}
	}
	r.Body = encode(what)
	if retryAfter > 0 {
		r.Header.Set("Retry-After", strconv.FormatInt(seconds(retryAfter), 10))
		r.Header.Set("Retry-After-Ms", strconv.FormatInt((retryAfter+time.Millisecond-1).Milliseconds(), 10))
	}
	if !p.shouldRetry(kind, retryAfter) {
		r.Header.Set("X-Should-Retry", "false")
	}
	return r
}

func (p *Profile) shouldRetry(kind ErrorKind, after time.Duration) bool {
	switch kind {
	case RateLimited, Overloaded, Unavailable:
		return after > 0 && (p.ClientMaxWait == 0 || after <= p.ClientMaxWait)
	case ServerError:
		return true // nothing was sent
	}
	return false
}

func nullable(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// encode never fails: the values are texts, numbers, lists and maps.
func encode(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(v) != nil {
		return nil
	}
	return b.Bytes()
}
