package api

import "fmt"

// ProblemType is the media type of a [Problem] (RFC 9457).
const ProblemType = "application/problem+json"

// Code says what is wrong, for programs. Codes are never renamed.
type Code string

// The codes, with the HTTP status that goes with each.
const (
	CodeBadJSON       Code = "bad_json"       // 400: not JSON, a field that is not known, is there twice or is spelled in other letters, or a value of another type
	CodeInvalid       Code = "invalid"        // 422: a value is out of bounds, or fields contradict each other
	CodeUnknownPolicy Code = "unknown_policy" // 422
	CodeUnknownUnit   Code = "unknown_unit"   // 422: no limit of the policy has it, or a take names none and none of its policies counts requests
	CodeNeverFits     Code = "never_fits"     // 422: more than a limit can ever grant: no wait will help
	CodeNeedsHold     Code = "needs_hold"     // 422: the policy has a concurrency limit: give hold_ms
	CodeBadToken      Code = "bad_token"      // 422: the reservation is not one that this server, with its policies, gave out
	CodeIDReused      Code = "id_reused"      // 409: this grant of the id is open with another content
	CodeIDOpen        Code = "id_open"        // 409: the id is open, of another take. Settle or cancel that one, or use another id
	CodeTooManyOpen   Code = "too_many_open"  // 429: a bucket has as many open reservations as it may. Nothing was taken; it passes when one is settled or ends
	CodeTooLarge      Code = "too_large"      // 413
	CodeNotFound      Code = "not_found"      // 404: no such path
	CodeBadMethod     Code = "bad_method"     // 405
	CodeCrossOrigin   Code = "cross_origin"   // 403: sent by a web page of another origin, or to a loopback address by another name
	CodeUnauthorized  Code = "unauthorized"   // 401: no access token, or none that this server knows
	CodeForbidden     Code = "forbidden"      // 403: the access token has not the role that this path needs, or is bound to another tenant
	CodeUntrusted     Code = "untrusted"      // 403: only trusted proxies may ask for the requests of others
	CodeRuleFailed    Code = "rule_failed"    // 422: the expression of a rule fails on these attributes
	CodeNotSupported  Code = "not_supported"  // 501: the store, or this server's set-up, cannot do it
	CodeNotReloaded   Code = "not_reloaded"   // 422: the new configuration has mistakes; the old one stays in force
	CodeLimited       Code = "limited"        // 429: only on the doors that proxies ask
	CodeStoreAway     Code = "store_away"     // 503: nothing was decided, and if the outcome is unknown, the units count as spent; or, at /auth, refused for want of the store
	CodeClosing       Code = "closing"        // 503: this server is going away
	CodeCancelled     Code = "cancelled"      // 499: the client went away. If the store was just asked, units may be spent; what was held by a grant of the server's is given back
)

// Problem is an error on the wire (RFC 9457). It is an error.
type Problem struct {
	Type   string `json:"type"` // "about:blank": Code says more
	Title  string `json:"title"`
	Status int    `json:"status"`
	Code   Code   `json:"code"`
	Detail string `json:"detail"` // a sentence for people: what was wrong, and what would be right
}

func (p *Problem) Error() string { return fmt.Sprintf("%s (%s)", p.Detail, p.Code) }
