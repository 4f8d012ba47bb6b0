package httplimit

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/drawgate/drawgate"
)

// ProblemType is the media type of a [Problem] (RFC 9457).
const ProblemType = "application/problem+json"

// The problem types for limits (draft-ietf-httpapi-ratelimit-headers-11, sections 5.1 and 5.2).
const (
	typeQuota   = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	typeReduced = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
)

// Code says why a request was not served, for programs. Codes are never renamed.
type Code string

// The codes, with the HTTP status of each. Sending a request again helps only after a 429 or a 503.
const (
	CodeLimited   Code = "limited"    // 429: a limit does not have enough left. Scope says whose
	CodeQueued    Code = "queued"     // 429: other requests are ahead in the queue
	CodePaused    Code = "paused"     // 429: a bucket is paused, whatever its limits have left
	CodeQueueFull Code = "queue_full" // 429: the maximum number of requests is waiting
	// 413: it costs more than a limit ever allows: waiting does not help, and there is no
	// Retry-After.
	CodeNeverFits Code = "never_fits"
	// 503: nothing was decided, or a limit admits nothing while the store is unavailable
	CodeStoreUnavailable Code = "store_unavailable"
	CodeClosing          Code = "closing" // 503: this process is stopping
	// 400: proxies, the site and the rules may each read the path differently
	CodePath    Code = "path"
	CodeInvalid Code = "invalid" // 500: the program asks for a unit that its policies do not have
	// 499: the client disconnected while it waited. If the store was being asked at that moment, a
	// plain request may have been counted.
	CodeCancelled Code = "cancelled"
)

// statusCancelled is the status that logs show for a client that closed the connection.
const statusCancelled = 499

// The values of Scope: whose limit refuses.
const (
	ScopeCaller = "caller" // the caller's own
	ScopeAPI    = "api"    // one that all callers share
)

// Problem says why a request was not served (RFC 9457). It is an http.Handler that answers with it.
type Problem struct {
	Type   string `json:"type"` // a type of the draft for refusals by a limit, otherwise "about:blank"
	Title  string `json:"title"`
	Status int    `json:"status"`
	Code   Code   `json:"code"`
	Detail string `json:"detail"`          // a sentence for people
	Scope  string `json:"scope,omitempty"` // whose limit it is: ScopeCaller or ScopeAPI
	// the names of the limits that refuse, as RateLimit-Policy has them
	Violated []string `json:"violated-policies,omitempty"`
	After    int64    `json:"retry_after,omitempty"` // seconds, as in Retry-After; 0: there is none
}

// ServeHTTP answers with the problem. Additional headers must be set before.
func (p *Problem) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body := p.JSON()
	h := w.Header()
	p.SetHeaders(h)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(p.Status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // a client that closed the connection needs no answer
	}
}

// SetHeaders sets the headers that every answer with this problem needs.
func (p *Problem) SetHeaders(h http.Header) {
	h.Set("Content-Type", ProblemType)
	h.Set("X-Content-Type-Options", "nosniff")
	if h.Get("Cache-Control") == "" {
		h.Set("Cache-Control", "no-store") // a 413 may be cached, but it is the answer to one caller only
	}
	p.setRetry(h)
}

func (p *Problem) setRetry(h http.Header) {
	if p.After > 0 {
		h[HeaderRetry] = []string{strconv.FormatInt(p.After, 10)}
	}
}

// JSON returns the problem's body.
func (p *Problem) JSON() []byte {
	body, err := json.Marshal(p)
	if err != nil { // strings and numbers cannot fail
		return []byte("{}")
	}
	return append(body, '\n')
}

// blank returns a problem without a type of its own.
func blank(code Code, status int, detail string) *Problem {
	title := http.StatusText(status)
	if status == statusCancelled {
		title = "Client Closed Request"
	}
	return &Problem{Type: "about:blank", Title: title, Status: status, Code: code, Detail: detail}
}

// unavailable returns a problem that may pass within a second.
func unavailable(code Code, detail string) *Problem {
	p := blank(code, http.StatusServiceUnavailable, detail)
	p.After = 1
	return p
}

// Refused describes a refusal for the caller: a 429, a 413 if the request can never pass, or a 503
// if the store is unavailable ([drawgate.Unavailable]). shared reports whether all callers share
// the bucket at a position of the take; nil means that none is shared. Of a shared limit only the
// name is shown. If one of the caller's own limits refuses too, that one is described.
func Refused(d *drawgate.Decision, shared func(bucket int) bool) *Problem {
	p := &Problem{
		Type: typeQuota, Title: "Quota Exceeded", Status: http.StatusTooManyRequests, Code: CodeLimited,
		Scope: ScopeCaller,
	}
	if d.RetryAfter == drawgate.Never {
		return neverFits(p)
	}
	p.After, _ = RetryAfter(d)
	counts := limitsPerBucket(d)
	var longest drawgate.LimitResult
	own := false // one of the caller's own limits refuses, which the caller can do something about
	for r := range d.Limits() {
		if !r.Refused() && d.Reason != drawgate.Queued {
			continue
		}
		p.Violated = appendNew(p.Violated, nameOf(&r, counts[r.Bucket] == 1))
		mine := shared == nil || !shared(r.Bucket)
		if longest.Limit == nil || mine && !own || mine == own && r.RetryAfter > longest.RetryAfter {
			longest, own = r, mine
		}
	}
	if !own && longest.Limit != nil {
		p.Scope = ScopeAPI
	}
	switch d.Reason {
	case drawgate.Queued:
		p.Code = CodeQueued
	case drawgate.Paused:
		*p = Problem{
			Type: "about:blank", Title: http.StatusText(p.Status), Status: p.Status, Code: CodePaused,
			After: p.After,
		}
	case drawgate.Unavailable:
		p.Type, p.Title, p.Status = typeReduced, "Temporary Reduced Capacity", http.StatusServiceUnavailable
		p.Code, p.Scope = CodeStoreUnavailable, ""
	}
	p.Detail = p.sentence(&longest)
	return p
}

func neverFits(p *Problem) *Problem {
	*p = *blank(CodeNeverFits, http.StatusRequestEntityTooLarge,
		"This request costs more than a limit ever allows: sending it again will not help.")
	return p
}

func appendNew(all []string, s string) []string {
	if slices.Contains(all, s) {
		return all
	}
	return append(all, s)
}

// nameOf returns the name of a limit as RateLimit-Policy has it, without quotes.
func nameOf(r *drawgate.LimitResult, alone bool) string {
	if alone {
		return r.Policy
	}
	return r.Policy + "/" + r.Limit.Name
}

// sentence says whose limit refuses, which one, and what to do. r.Limit is nil if the limit is
// unknown.
func (p *Problem) sentence(r *drawgate.LimitResult) string {
	again := fmt.Sprintf(" Try again in %d s.", p.After)
	switch {
	case p.Code == CodeStoreUnavailable:
		return "The server cannot check its limits at the moment." + again
	case p.Code == CodePaused:
		return "Requests like this one are paused at the moment." + again
	case p.Code == CodeQueued:
		return "Other requests are ahead of this one in the queue." + again
	case p.Code == CodeQueueFull:
		return "The maximum number of requests is already waiting." + again
	case p.Scope == ScopeAPI:
		return "The limit that all callers of this API share has been reached; it is not your own." + again
	case r.Limit == nil:
		return "Your limit has been reached." + again
	case r.Limit.Kind == drawgate.Concurrency:
		return fmt.Sprintf("You have reached the maximum number of running %s: %s. Try again when one of them has ended.", noun(r.Limit), describe(r))
	}
	return fmt.Sprintf("Your limit has been reached: %s.%s", describe(r), again)
}

// noun returns the unit of a limit for people.
func noun(l *drawgate.Limit) string {
	return strings.ReplaceAll(cmp.Or(l.Unit, drawgate.UnitRequests), "_", " ")
}

// count writes a number of units for people: "1 request", "10 output tokens".
func count(n int64, l *drawgate.Limit) string {
	if n == 1 {
		return "1 " + strings.TrimSuffix(noun(l), "s")
	}
	return strconv.FormatInt(n, 10) + " " + noun(l)
}

// describe returns a limit in words, without its headroom, as the headers show it.
func describe(r *drawgate.LimitResult) string {
	l := r.Limit
	q, most := r.Quota()
	switch l.Kind {
	case drawgate.Bucket:
		if most != q {
			return fmt.Sprintf("%s per %s, and at most %d in a burst", count(q, l), span(l.Window), most)
		}
		return fmt.Sprintf("%s per %s", count(q, l), span(l.Window))
	case drawgate.Rolling:
		return fmt.Sprintf("%s per %s", count(q, l), span(l.Window))
	case drawgate.Calendar:
		return fmt.Sprintf("%s per %s", count(q, l), l.Every)
	}
	return fmt.Sprintf("%d at once", q)
}

// span writes a window for people: "minute", "24h", "1m30s".
func span(d time.Duration) string {
	switch d {
	case time.Second:
		return "second"
	case time.Minute:
		return "minute"
	case time.Hour:
		return "hour"
	case 24 * time.Hour:
		return "day"
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
