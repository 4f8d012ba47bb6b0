package llm

import (
	"bytes"
	"cmp"
	"encoding/json"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/pattern"
)

// Meaning says what kind of thing a provider ran out of.
type Meaning uint8

// What an error of a provider can mean.
const (
	// NotQuota is an error of the call itself, such as a bad request or a wrong key.
	NotQuota Meaning = iota
	// PerMinute is a limit per minute or less.
	PerMinute
	// PerDay is a limit per day.
	PerDay
	// Spend is a cap on what is spent, per month or in another window, of the provider or of the
	// owner.
	Spend
	// Credit is that nothing is paid for: it ends when somebody pays.
	Credit
	// Overload is that the provider has too much to do. The quota is not concerned.
	Overload
	// Transient is any other failure of the provider: a time-out, an internal error.
	Transient
	// NotOffered is a limit of 0: the owner's plan does not have this model.
	NotOffered
	numMeanings
)

var meaningNames = [numMeanings]string{
	"not_quota", "minute", "day", "spend", "credit", "overload", "transient",
	"not_offered",
}

// String returns a name for logs and metrics, such as "minute".
func (m Meaning) String() string {
	if m < numMeanings {
		return meaningNames[m]
	}
	return "unknown"
}

// Quota reports whether a quota is closed: whoever shares it must wait as well.
func (m Meaning) Quota() bool {
	switch m {
	case PerMinute, PerDay, Spend, Credit, NotOffered:
		return true
	}
	return false
}

// Refusal is what an error of a provider means.
type Refusal struct {
	Meaning Meaning
	Status  int
	Unit    string // that ran out; "" if not told
	Model   string // that the quota is for; "" if not told
	QuotaID string // the provider's name of the limit; "" if not told
	Limit   int64  // the provider's number, or -1 if not told
	// Oversize says that the call asks for more than the limit: it never fits.
	Oversize bool
	// Billed says that the provider may bill the call all the same, with an answer: one that took
	// too long, or was filtered (learn.microsoft.com/azure, Azure OpenAI, "Plan and manage costs"
	// and "Content filtering").
	Billed bool
	// ReopenAt is until when the quota is closed, by the meaning of the refusal rather than by the
	// hint in it. It is zero if the meaning is no quota's, or if nothing but an operator ends it.
	ReopenAt time.Time
	// RetryAfter is how long the provider asks to wait, 0 if it does not.
	RetryAfter time.Duration
}

// StatusOverloaded is Anthropic's status for a provider that has too much to do.
const StatusOverloaded = 529

const (
	maxErrorBody = 256 << 10 // bytes of an error's body that are read
	pacific      = "America/Los_Angeles"
)

// errorBody is the error of any provider.
type errorBody struct {
	Type    string          `json:"type"`
	Code    json.RawMessage `json:"code"`
	Status  plainText       `json:"status"` // Azure's is a number
	Message string          `json:"message"`
	Details json.RawMessage `json:"details"`
	Kind    plainText       `json:"error_type"` // Together's name of the type
}

// plainText is a text. Anything else in its place is passed over.
type plainText string

// UnmarshalJSON implements json.Unmarshaler.
func (t *plainText) UnmarshalJSON(raw []byte) error {
	if raw[0] != '"' {
		return nil
	}
	return json.Unmarshal(raw, (*string)(t))
}

// Refusal says what a response with an error means. status is its status, header may be nil, body
// may be cut off after some 100 KB, and now is when it came. Times in header and body that are
// malformed or absurd are not believed; a quota that says nothing of its end stays closed as long
// as its kind can last.
func (p *Profile) Refusal(status int, header http.Header, body []byte, now time.Time) Refusal {
	e := readError(body)
	e.Type = cmp.Or(e.Type, string(e.Kind))
	r := Refusal{Status: status, Limit: -1}
	r.RetryAfter, _ = retryAfter(header, now)
	r.Billed = status == http.StatusRequestTimeout
	p.provider.refusal(p, &r, &e, header, now)
	if !r.Meaning.Quota() {
		r.ReopenAt = time.Time{}
	}
	return r
}

// Concerns reports whether a refusal is for the quota that counts a call. It is not if it is for
// another pool of the provider, whose refusals must not stop the calls of this one: a model of
// another known family, or a speed or tier that has limits of its own. If in doubt it is.
func (p *Profile) Concerns(c *Call, r *Refusal) bool {
	if r.Meaning != PerMinute && r.Meaning != PerDay {
		return true // money is the whole account's
	}
	named, asked := p.Family(r.Model).Name, p.Family(c.Model).Name
	if r.Model != "" && named != asked && p.known(named) && p.known(asked) {
		return false // names that are not known may be other names of the same model
	}
	return p.provider.otherPool == nil || !p.provider.otherPool(c, r)
}

// known reports whether a family is one of the profile's.
func (p *Profile) known(family string) bool {
	return family != "" && slices.ContainsFunc(p.Families, func(f Family) bool { return f.Name == family })
}

// readError finds the error in a body: {"error": {…}}, the same in an array, {"response": {"error":
// …}}, or an event of the type "error".
func readError(body []byte) (e errorBody) {
	var doc struct {
		errorBody
		Error    json.RawMessage `json:"error"`
		Response struct {
			Error json.RawMessage `json:"error"`
		} `json:"response"`
	}
	if len(body) > maxErrorBody {
		return e
	}
	body = bytes.TrimSpace(body)
	if len(body) > 0 && body[0] == '[' {
		var list []json.RawMessage
		if json.Unmarshal(body, &list) != nil || len(list) == 0 {
			return e
		}
		body = list[0]
	}
	if json.Unmarshal(body, &doc) != nil {
		return e
	}
	if len(doc.Error) > 0 && doc.Error[0] == '"' { // xAI: {"code": …, "error": "a sentence"}
		_ = json.Unmarshal(doc.Error, &doc.Message)
		return doc.errorBody
	}
	for _, raw := range []json.RawMessage{doc.Error, doc.Response.Error} {
		if len(raw) > 0 && json.Unmarshal(raw, &e) == nil &&
			(e.Message != "" || e.Type != "" || len(e.Code) > 0 || e.Status != "") {
			return e
		}
	}
	return doc.errorBody
}

// code returns the code, which is a text, a number or null.
func (e *errorBody) code() string { return strings.Trim(string(e.Code), `"`) }

// plain handles what does not depend on the provider. It reports whether that decided.
func (r *Refusal) plain() bool {
	switch {
	case r.Status == http.StatusTooManyRequests:
		return false
	case r.Status == http.StatusServiceUnavailable, r.Status == StatusOverloaded:
		r.Meaning = Overload
	case r.Status >= 500, r.Status == http.StatusRequestTimeout, r.Status == http.StatusConflict:
		r.Meaning = Transient
	case r.Status == http.StatusPaymentRequired:
		r.Meaning = Credit
		return false
	default:
		r.Meaning = NotQuota
		return false
	}
	return true
}

func (p *Profile) credit(r *Refusal, now time.Time) {
	r.Meaning, r.ReopenAt = Credit, time.Time{}
	if p.CreditPause > 0 {
		r.ReopenAt = now.Add(p.CreditPause)
	}
}

// tryAgain finds how long a message asks to wait.
var tryAgain = pattern.New(`(?i)(?:try again in|retry after|retry in) ` +
	`((?:\d{1,9}(?:\.\d{1,12})?(?:ms|s|m|h))+|\d{1,9} seconds?)`)

// reopen sets ReopenAt of a limit per minute or per day that comes back gradually: after the hint;
// without one, when all of it is back; without that, after the whole window.
func (r *Refusal) reopen(p *Profile, hint time.Duration, full, now time.Time) {
	if r.Limit == 0 {
		r.Meaning = NotOffered
	}
	switch {
	case r.Meaning == NotOffered:
		r.ReopenAt = now.Add(learnedFor)
	case hint > 0:
		r.ReopenAt = now.Add(hint)
	case full.After(now):
		r.ReopenAt = full
	case r.Meaning == PerDay:
		r.ReopenAt = now.Add(24 * time.Hour)
	default:
		r.ReopenAt = now.Add(max(p.MinutePause, time.Second))
	}
}

// fullAt returns the latest instant at which a limit of the unit that has nothing left is full
// again; with "" of any unit. It is zero if the headers do not say.
func (p *Profile) fullAt(header http.Header, unit string, now time.Time) (at time.Time) {
	for _, o := range p.Observed(header, now) {
		if (unit == "" || o.Unit == unit || o.Unit == UnitTokens && unit != drawgate.UnitRequests) &&
			o.Remaining == 0 && o.ResetAt.After(at) {
			at = o.ResetAt
		}
	}
	return at
}

// spent returns the unit of which nothing is left, if the headers name exactly one, whatever its
// scope. UnitTokens is passed over: see [Observed].
func (p *Profile) spent(header http.Header, now time.Time) (unit string) {
	for _, o := range p.Observed(header, now) {
		if o.Remaining != 0 || o.Unit == UnitTokens {
			continue
		}
		if unit != "" && unit != o.Unit {
			return ""
		}
		unit = o.Unit
	}
	return unit
}

// zone returns the zone of the provider's days.
func (p *Profile) zone() *time.Location {
	if p.location != nil && p.location.String() == p.ResetZone {
		return p.location
	}
	return loadZone(p.ResetZone) // somebody has set another one
}

// loadZone returns a zone of the IANA database. Where the database is missing, it is the zone's
// latest midnight, if that is known: Pacific standard time for Los Angeles.
func loadZone(name string) *time.Location {
	if loc, err := time.LoadLocation(name); err == nil {
		return loc
	}
	if name == pacific {
		return time.FixedZone(pacific, -8*60*60)
	}
	return time.UTC
}

// nextDay returns when the provider's next day begins.
func (p *Profile) nextDay(now time.Time) time.Time {
	t := now.In(p.zone())
	return time.Date(t.Year(), t.Month(), t.Day()+1, 0, 0, 0, 0, t.Location())
}

func (p *Profile) nextMonth(now time.Time) time.Time {
	t := now.In(p.zone())
	return time.Date(t.Year(), t.Month()+1, 1, 0, 0, 0, 0, t.Location())
}

// nextMonth returns 00:00 UTC on the first day of the next month.
func nextMonth(now time.Time) time.Time {
	t := now.UTC()
	return time.Date(t.Year(), t.Month()+1, 1, 0, 0, 0, 0, time.UTC)
}

// seconds rounds a wait up to whole seconds.
func seconds(d time.Duration) int64 { return int64(math.Ceil(d.Seconds())) }
