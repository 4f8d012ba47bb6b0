package llm

import (
	"bytes"
	"cmp"
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
	// nothing was sent: the provider is left alone for a time, or a quota could not be asked.
	Unavailable
	Lost        // the provider cannot be reached, or its answer was cut off
	KeyExpired  // the key was valid, or the secret that was shown of it
	KeyDisabled // the key is switched off
	NoCredit    // a budget that does not come back has not enough left
	numErrorKinds
)

// ErrorResponse is a response of ours in the provider's own form, so that its official clients
// raise the error that they would raise for the provider's.
type ErrorResponse struct {
	Status int
	Header http.Header // Content-Type, Retry-After, Retry-After-Ms and X-Should-Retry, as far as they apply
	Body   []byte
}

// Codes of this gateway for what no provider has a code for.
const (
	codeExpired  = "key_expired"
	codeDisabled = "key_disabled"
	codeCredit   = "insufficient_quota" // OpenAI's, and in no provider's words
)

// providerErrors name each kind in a provider's words.
type providerErrors [numErrorKinds]providerError

type providerError struct {
	status     int
	kind, code string
}

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
	v := p.provider
	e := &v.errors[kind]
	r := ErrorResponse{
		Status: e.status,
		Header: http.Header{"Content-Type": {cmp.Or(v.errorType, "application/json")}},
		Body:   encode(v.errorBody(e, message, retryAfter)),
	}
	if retryAfter > 0 {
		r.Header.Set("Retry-After", strconv.FormatInt(seconds(retryAfter), 10))
		r.Header.Set("Retry-After-Ms", strconv.FormatInt((retryAfter+time.Millisecond-1).Milliseconds(), 10))
	}
	if !p.shouldRetry(kind, retryAfter) {
		r.Header.Set("X-Should-Retry", "false")
	}
	return r
}

// ErrorEvent returns the event with which the provider would end a stream to say what Error says,
// without the empty line behind it.
func (p *Profile) ErrorEvent(kind ErrorKind, message string) string {
	event := "data: " + string(bytes.TrimSpace(p.Error(kind, message, 0).Body))
	if p.provider.events {
		return "event: error\n" + event
	}
	return event
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
