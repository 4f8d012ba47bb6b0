package llm

import (
	"bytes"
	"encoding/json"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/drawgate/drawgate"
)

// Meaning says what kind of thing a provider ran out of.
type Meaning uint8

// What an error of a provider can mean.
const (
	// NotQuota is an error of the call itself, such as a bad request or a wrong key.
	NotQuota Meaning = iota
	// Minute is a limit per minute or less.
	Minute
	// Day is a limit per day.
	Day
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

var meaningNames = [numMeanings]string{"not_quota", "minute", "day", "spend", "credit", "overload", "transient", "not_offered"}

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
	case Minute, Day, Spend, Credit, NotOffered:
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

const (
	statusOverloaded = 529       // Anthropic
	maxErrorBody     = 256 << 10 // bytes of an error's body that are read
	dayHint          = 5 * time.Minute
	geminiSpend      = 10 * time.Minute // the window of its spend limit
	pacific          = "America/Los_Angeles"
)

// errorBody is the error of any provider.
type errorBody struct {
	Type    string          `json:"type"`
	Code    json.RawMessage `json:"code"`
	Status  plainText       `json:"status"` // Azure's is a number
	Message string          `json:"message"`
	Details json.RawMessage `json:"details"`
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
	r := Refusal{Status: status, Limit: -1}
	r.RetryAfter, _ = retryAfter(header, now)
	r.Billed = status == http.StatusRequestTimeout || p.wire == wireOpenAI && e.code() == "content_filter"
	switch p.wire {
	case wireAnthropic:
		p.anthropicRefusal(&r, &e, header, now)
	case wireGemini:
		p.geminiRefusal(&r, &e, now)
	default:
		p.openAIRefusal(&r, &e, header, now)
	}
	if !r.Meaning.Quota() {
		r.ReopenAt = time.Time{}
	}
	return r
}

// Concerns reports whether a refusal is for the quota that counts a call. It is not if it is for
// another pool of the provider, whose refusals must not stop the calls of this one: a model of
// another known family, Anthropic's fast mode, whose limits are separate, or the capacity of
// OpenAI's flex tier, which a 429 that names no limit means (platform.claude.com/docs, fast mode;
// platform.openai.com/docs, flex processing). If in doubt it is.
func (p *Profile) Concerns(c *Call, r *Refusal) bool {
	if r.Meaning != Minute && r.Meaning != Day {
		return true // money is the whole account's
	}
	named, asked := p.Family(r.Model).Name, p.Family(c.Model).Name
	switch {
	case r.Model != "" && named != asked && p.known(named) && p.known(asked):
		return false // names that are not known may be other names of the same model
	case p.wire == wireAnthropic && c.fast:
		return false
	case p.wire == wireOpenAI && c.flex:
		return r.Unit != "" || r.Limit >= 0
	}
	return true
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
	for _, raw := range []json.RawMessage{doc.Error, doc.Response.Error} {
		if len(raw) > 0 && json.Unmarshal(raw, &e) == nil && (e.Message != "" || e.Type != "" || len(e.Code) > 0 || e.Status != "") {
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
	case r.Status == http.StatusServiceUnavailable, r.Status == statusOverloaded:
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

var (
	openAILimit = regexp.MustCompile(`.*\b(?:on|for) ([^:]{1,100}): Limit:? (\d[\d,]{0,15}\d|\d)(?:, Used:? (?:\d[\d,]{0,15}\d|\d))?(?:, Requested:? (\d[\d,]{0,15}\d|\d))?`)
	openAITry   = regexp.MustCompile(`(?i)(?:try again in|retry after|retry in) ((?:\d{1,9}(?:\.\d{1,12})?(?:ms|s|m|h))+|\d{1,9} seconds?)`)
	// afford is OpenRouter's word for a call whose largest output costs more than the credit that
	// is left: smaller ones pass.
	afford      = regexp.MustCompile(`can only afford [1-9]`)
	openAIModel = regexp.MustCompile(`limit reached for ([\w.:/-]{1,128})`)
)

func (p *Profile) openAIRefusal(r *Refusal, e *errorBody, header http.Header, now time.Time) {
	decided := r.plain()
	code, message := e.code(), strings.ToLower(e.Message)
	switch {
	case code == "insufficient_quota", e.Type == "insufficient_quota", code == "billing_hard_limit_reached", code == "billing_not_active",
		r.Meaning == Credit:
		p.credit(r, now)
		r.Oversize = afford.MatchString(e.Message)
		return
	case decided, r.Status != http.StatusTooManyRequests:
		return
	case strings.Contains(message, "overloaded"), code == "engine_overloaded", code == "slow_down":
		r.Meaning = Overload
		return
	}
	hint := r.RetryAfter
	if m := openAITry.FindStringSubmatch(e.Message); m != nil {
		if d, ok := wireDuration(strings.TrimSuffix(strings.TrimSuffix(strings.ReplaceAll(m[1], " ", ""), "econds"), "econd")); ok {
			hint = max(hint, d)
		}
	}
	r.RetryAfter = hint
	r.Meaning = Minute
	if m := openAIModel.FindStringSubmatch(e.Message); m != nil {
		r.Model = m[1]
	}
	if m := openAILimit.FindStringSubmatch(e.Message); m != nil {
		r.QuotaID = m[1]
		if n, ok := wireNumber([]string{m[2]}); ok {
			r.Limit = n
			asked, ok := wireNumber([]string{m[3]})
			r.Oversize = ok && asked > n
		}
	}
	what := strings.ToLower(r.QuotaID + " " + e.Type)
	switch {
	case strings.Contains(what, "image"):
		r.Unit = UnitImages
	case strings.Contains(what, "token"):
		r.Unit = UnitTokens
	case strings.Contains(what, "request"), strings.Contains(message, "call rate limit"):
		r.Unit = drawgate.UnitRequests
	}
	if strings.Contains(what, "per day") {
		r.Meaning = Day
	}
	r.reopen(p, hint, p.fullAt(header, r.Unit, now), now)
}

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
	case r.Meaning == Day:
		r.ReopenAt = now.Add(24 * time.Hour)
	default:
		r.ReopenAt = now.Add(max(p.MinutePause, time.Second))
	}
}

// fullAt returns the latest instant at which a limit of the unit that has nothing left is full
// again; with "" of any unit. It is zero if the headers do not say.
func (p *Profile) fullAt(header http.Header, unit string, now time.Time) (at time.Time) {
	for _, o := range p.Observed(header, now) {
		if (unit == "" || o.Unit == unit || o.Unit == UnitTokens && unit != drawgate.UnitRequests) && o.Remaining == 0 && o.ResetAt.After(at) {
			at = o.ResetAt
		}
	}
	return at
}

var (
	anthropicLimit = regexp.MustCompile(`limit of (\d[\d,]{0,15}\d|\d) (input tokens|output tokens|requests|tokens)`)
	// Whole sentences: other errors quote what the caller wrote, such as the name of a model or of
	// a field that is not known.
	anthropicCap    = regexp.MustCompile(`^you have reached your specified [^:]*usage limits\.([^:]* at 00:00 utc\.)?$`)
	anthropicCredit = regexp.MustCompile(`^your credit balance is too low[^:]*$`)
	anthropicRegain = regexp.MustCompile(`on (\d{4}-\d{2}-\d{2}) at 00:00 UTC`)
)

func (p *Profile) anthropicRefusal(r *Refusal, e *errorBody, header http.Header, now time.Time) {
	var details struct {
		ErrorCode string `json:"error_code"`
	}
	if len(e.Details) > 0 {
		_ = json.Unmarshal(e.Details, &details) // without details the type and message decide
	}
	message := strings.ToLower(e.Message)
	decided := r.plain()
	switch {
	case e.Type == "overloaded_error":
		r.Meaning = Overload
		return
	case decided:
		return
	case e.Type == "billing_error", r.Meaning == Credit, r.Status == http.StatusBadRequest && anthropicCredit.MatchString(message):
		p.credit(r, now)
		return
	case details.ErrorCode == "enforced_spend_limit_reached", r.Status == http.StatusBadRequest && anthropicCap.MatchString(message):
		r.Meaning = Spend
		r.ReopenAt = nextMonth(now)
		if m := anthropicRegain.FindStringSubmatch(e.Message); m != nil {
			if at, err := time.Parse(time.DateOnly, m[1]); err == nil && at.After(now) && at.Before(now.Add(2*maxReset)) {
				r.ReopenAt = at
			}
		}
		return
	case r.Status != http.StatusTooManyRequests:
		return
	}
	r.Meaning = Minute
	if m := anthropicLimit.FindStringSubmatch(e.Message); m != nil {
		if n, ok := wireNumber([]string{m[1]}); ok {
			r.Limit = n
		}
		r.Unit = strings.ReplaceAll(m[2], " ", "_")
	}
	if r.Unit == "" {
		r.Unit = p.spent(header, now)
	}
	if strings.Contains(message, "per day") || strings.Contains(message, "daily") {
		r.Meaning = Day
	}
	r.reopen(p, r.RetryAfter, p.fullAt(header, r.Unit, now), now)
}

// spent returns the unit of which nothing is left, if the headers name exactly one.
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

// violation is an element of google.rpc.QuotaFailure's list.
type violation struct {
	QuotaMetric     string            `json:"quotaMetric"`
	QuotaID         string            `json:"quotaId"`
	QuotaDimensions map[string]string `json:"quotaDimensions"`
	QuotaValue      json.RawMessage   `json:"quotaValue"` // an int64, which ProtoJSON writes as a text
}

var geminiLimit = regexp.MustCompile(`metric: ([\w./-]{1,200}), limit: (\d{1,12})(?:, model: ([\w.:/-]{1,128}))?`)

func (p *Profile) geminiRefusal(r *Refusal, e *errorBody, now time.Time) {
	if r.Status == 0 {
		r.Status, _ = strconv.Atoi(e.code())
	}
	message := strings.ToLower(e.Message)
	if r.plain() {
		return
	}
	if r.Meaning == Credit || r.Status == http.StatusTooManyRequests && strings.Contains(message, "credits are depleted") {
		p.credit(r, now)
		return
	}
	if r.Status != http.StatusTooManyRequests {
		return
	}
	violations, hint := geminiDetails(e.Details)
	if m := openAITry.FindStringSubmatch(e.Message); m != nil && hint == 0 {
		hint, _ = wireDuration(m[1])
	}
	r.RetryAfter = max(r.RetryAfter, hint)
	if len(violations) == 0 {
		for _, m := range geminiLimit.FindAllStringSubmatch(e.Message, 16) {
			violations = append(violations, violation{QuotaMetric: m[1], QuotaValue: json.RawMessage(m[2]), QuotaDimensions: map[string]string{"model": m[3]}})
		}
	}
	if len(violations) == 0 {
		violations = []violation{{QuotaID: e.Message[:min(len(e.Message), maxKeep)]}}
	}
	for i, v := range violations {
		one := p.geminiViolation(r, &v, message, now)
		if i == 0 || one.ReopenAt.After(r.ReopenAt) {
			*r = one
		}
	}
	if len(r.QuotaID) > 200 {
		r.QuotaID = ""
	}
}

// geminiViolation says what one violation means, given what all have in common.
func (p *Profile) geminiViolation(common *Refusal, v *violation, message string, now time.Time) Refusal {
	r := *common
	r.QuotaID, r.Model, r.Unit, r.Limit, r.ReopenAt = v.QuotaID, v.QuotaDimensions["model"], "", -1, time.Time{}
	if r.QuotaID == "" {
		r.QuotaID = v.QuotaMetric
	}
	if n, ok := wireNumber([]string{strings.Trim(string(v.QuotaValue), `"`)}); ok && len(v.QuotaValue) > 0 {
		r.Limit = n
	}
	what := strings.ToLower(strings.ReplaceAll(v.QuotaID+" "+v.QuotaMetric, "_", ""))
	switch {
	case strings.Contains(what, "token"):
		r.Unit = UnitInputTokens
	case strings.Contains(what, "image"):
		r.Unit = UnitImages
	case strings.Contains(what, "request"):
		r.Unit = drawgate.UnitRequests
	}
	switch {
	case r.Limit == 0:
		r.Meaning = NotOffered
		r.ReopenAt = now.Add(learnedFor)
	case strings.Contains(what, "spend") || strings.Contains(message, "spending cap") || strings.Contains(message, "spend limit"):
		r.Meaning = Spend
		r.ReopenAt = now.Add(max(geminiSpend, r.RetryAfter))
		if strings.Contains(message, "month") {
			r.ReopenAt = p.nextMonth(now)
		}
	case strings.Contains(what, "perday"), strings.Contains(what, "per day"), strings.Contains(what, "daily"), r.RetryAfter > dayHint:
		// The hint of a limit per day is a few seconds: it is wrong.
		r.Meaning = Day
		r.ReopenAt = p.nextDay(now)
	default:
		r.Meaning = Minute
		r.reopen(p, r.RetryAfter, time.Time{}, now)
	}
	return r
}

// geminiDetails reads the details of an error, in any order.
func geminiDetails(raw json.RawMessage) (all []violation, hint time.Duration) {
	var list []struct {
		Type       string      `json:"@type"`
		Violations []violation `json:"violations"`
		RetryDelay string      `json:"retryDelay"`
	}
	if len(raw) == 0 || json.Unmarshal(raw, &list) != nil {
		return nil, 0
	}
	for _, d := range list {
		switch {
		case strings.HasSuffix(d.Type, "google.rpc.QuotaFailure"):
			all = append(all, d.Violations...)
		case strings.HasSuffix(d.Type, "google.rpc.RetryInfo"):
			if d, ok := wireDuration(d.RetryDelay); ok {
				hint = max(hint, d)
			}
		}
	}
	return all, hint
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
