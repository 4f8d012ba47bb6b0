package api

import "fmt"

// ProblemType is the media type of a [Problem] (RFC 9457).
const ProblemType = "application/problem+json"

// Code is an error code for programs. Codes are never renamed.
type Code string

// The codes, with their HTTP status.
const (
	// 400: not JSON, a field that is unknown, duplicate or spelled with other capitals, or a value
	// of another type.
	CodeBadJSON       Code = "bad_json"
	CodeInvalid       Code = "invalid"        // 422: a value is out of bounds, or fields contradict each other
	CodeUnknownPolicy Code = "unknown_policy" // 422
	// 422: no limit of the policy has it, or a take names no unit and none of its policies counts
	// requests.
	CodeUnknownUnit Code = "unknown_unit"
	CodeNeverFits   Code = "never_fits" // 422: more than a limit can ever grant: waiting does not help
	CodeNeedsHold   Code = "needs_hold" // 422: the policy has a concurrency limit: give hold_ms
	// 422: this server, with its policies, did not give out the reservation
	CodeBadToken Code = "bad_token"
	CodeIDReused Code = "id_reused" // 409: this grant of the id is open with different content
	// 409: the id is open for another take. Settle or cancel that one, or use another id
	CodeIDOpen      Code = "id_open"
	CodeUnknownKey  Code = "unknown_key"  // 404: the store has no such virtual key
	CodeKeyExists   Code = "key_exists"   // 409: the store has a virtual key of this name
	CodeKeyConflict Code = "key_conflict" // 409: somebody else has changed the virtual key
	// 429: a bucket has the maximum number of open reservations. Nothing was taken; try again when
	// one is settled or ends.
	CodeTooManyOpen Code = "too_many_open"
	CodeTooLarge    Code = "too_large"  // 413
	CodeNotFound    Code = "not_found"  // 404: no such path
	CodeBadMethod   Code = "bad_method" // 405
	// 403: sent by a web page of another origin, or to a loopback address under another name
	CodeCrossOrigin  Code = "cross_origin"
	CodeUnauthorized Code = "unauthorized" // 401: no access token, or an unknown one
	// 403: the access token does not have the role for this path, or is bound to another tenant
	CodeForbidden  Code = "forbidden"
	CodeUntrusted  Code = "untrusted"   // 403: only trusted proxies may ask on behalf of clients
	CodeRuleFailed Code = "rule_failed" // 422: the expression of a rule fails on these attributes
	// 501: the store, or this server's configuration, does not support it
	CodeNotSupported Code = "not_supported"
	// 422: the new configuration has mistakes; the old one stays in force
	CodeNotReloaded Code = "not_reloaded"
	CodeLimited     Code = "limited" // 429: only at /auth
	// 503: nothing was decided, and if the outcome is unknown, the units count as spent; or, at
	// /auth, refused because the store is unavailable.
	CodeStoreUnavailable Code = "store_unavailable"
	CodeClosing          Code = "closing" // 503: this server is stopping
	// 499: the client closed the connection. If the call to the store was running, units may be
	// spent; what was held under a grant that the server chose is given back.
	CodeCancelled Code = "cancelled"
)

// Problem is an error on the wire (RFC 9457). It is an error.
type Problem struct {
	Type   string `json:"type"` // "about:blank": see Code
	Title  string `json:"title"`
	Status int    `json:"status"`
	Code   Code   `json:"code"`
	Detail string `json:"detail"` // a sentence for people: what is wrong, and how to correct it
}

func (p *Problem) Error() string { return fmt.Sprintf("%s (%s)", p.Detail, p.Code) }
