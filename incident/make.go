package incident

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/internal/pattern"
	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/outbound"
)

const (
	maxText   = 200         // bytes of a text that others chose
	maxLimits = 64          // limits that an incident shows
	unsaid    = time.Minute // how long [outbound] pauses a quota of which nobody said until when
	unknown   = "unknown"   // the meaning of a refusal that nobody explained
)

// made makes an incident of a refused call. r has the calls to its upstream.
func made(e *outbound.Event, meaning, instance string, r *ring, concurrent int, at time.Time) *api.Incident {
	i := &api.Incident{
		ID: newID(at), At: at.UTC(), Instance: instance, Severity: severity(meaning), Upstream: short(e.Upstream),
		Model: short(e.Model), Meaning: meaning,
		Count: 1, Last: at.UTC(), Until: until(e, at), NotPaused: e.Err != nil, Status: e.Status,
		Reason: short(e.Reason), Provider: provider(&e.Refusal),
		Fallback: e.Decision.Fallback, Limits: limits(&e.Decision), Concurrent: concurrent,
	}
	var sum api.IncidentSum
	i.Takes, sum = r.show(e.Model, at)
	i.Minute = &sum
	i.Call = callOf(e)
	i.Summary = summary(i)
	i.Diagnosis = diagnose(i, e)
	return i
}

// newID returns an id that sorts by time.
func newID(at time.Time) string {
	return strings.Replace(at.UTC().Format("20060102T150405.000Z"), ".", "", 1) + "-" + strings.ToLower(rand.Text()[:8])
}

// meaningOf returns what a refusal means. A function that [outbound.Do] calls does not say.
func meaningOf(e *outbound.Event) string {
	if e.Refusal.Meaning == llm.NotQuota {
		return unknown
	}
	return e.Refusal.Meaning.String()
}

func severity(meaning string) string {
	switch meaning {
	case llm.Spend.String(), llm.Credit.String(), llm.NotOffered.String():
		return api.SeverityWarning
	}
	return api.SeverityError
}

// until returns until when the quota is closed: nil if it stays open, because other models share
// it.
func until(e *outbound.Event, at time.Time) *time.Time {
	switch {
	case e.Refusal.Meaning == llm.NotOffered:
		return nil
	case e.Until.After(at):
		return new(e.Until.UTC())
	}
	return new(at.Add(unsaid).UTC())
}

func callOf(e *outbound.Event) api.IncidentTake {
	t := take{
		granted: e.Granted, sent: e.Sent, answered: e.Answered, model: e.Model, priority: e.Priority, queued: e.Queued,
		estimate: e.Estimate, used: e.Used, outcome: e.Outcome, ended: true,
	}
	if l, ok := e.Decision.Tightest(); ok {
		t.policy, t.limit, t.remaining = l.Policy, l.Limit.Name, l.Remaining
	}
	return t.wire()
}

func limits(d *drawgate.Decision) (list []api.Limit) {
	for l := range d.Limits() {
		if len(list) == maxLimits {
			break
		}
		list = append(list, api.Limit{
			Bucket: l.Bucket, Policy: l.Policy, Name: l.Limit.Name, Unit: unit(l.Limit.Unit), Amount: l.Limit.Amount,
			Most:      l.Max,
			Remaining: l.Remaining, ResetAt: l.ResetAt().UTC(),
		})
	}
	return list
}

// limitNames are the forms in which OpenAI, Azure and Gemini name limits. Such a name is taken from
// the text of an error, which may quote a key or a prompt: nothing else is shown.
var limitNames = pattern.New(`^(?:[a-z]{1,12} (?:[a-z]{1,12} )?per (?:min|minute|hour|day|month)(?: \([A-Z]{2,4}\))?` +
	`|(?:Generate|Embed|Batch|Stream)[A-Za-z]{0,60}Per(?:Minute|Hour|Day|Project|Model|User)[A-Za-z]{0,60}(?:-FreeTier)?` +
	`|generativelanguage\.googleapis\.com/generate_content_[a-z_]{1,60})$`)

// provider returns the limit that the upstream named, or nil.
func provider(r *llm.Refusal) *api.ProviderLimit {
	p := &api.ProviderLimit{Unit: r.Unit}
	if limitNames().MatchString(r.QuotaID) {
		p.Name = r.QuotaID
	}
	if r.Limit >= 0 && r.Meaning != llm.NotQuota {
		p.Amount = new(r.Limit)
	}
	if *p == (api.ProviderLimit{}) {
		return nil
	}
	return p
}

// summary says in one sentence what happened.
func summary(i *api.Incident) string {
	what := "a quota"
	switch i.Meaning {
	case llm.PerMinute.String():
		what = "its limit per minute"
	case llm.PerDay.String():
		what = "its limit per day"
	case llm.Spend.String():
		what = "its cap on spending"
	case llm.Credit.String():
		what = "missing credit"
	case llm.NotOffered.String():
		what = "a limit of 0"
	}
	text := fmt.Sprintf("%s refused a call of %s for %s", i.Upstream, cmp.Or(i.Model, "an unnamed model"), what)
	if p := i.Provider; p != nil && p.Unit != "" && i.Severity == api.SeverityError {
		text += " (" + p.Unit + ")"
	}
	if i.Severity == api.SeverityError {
		text += ", although our limits had allowed it"
	}
	return text
}

func unit(u string) string { return cmp.Or(u, drawgate.UnitRequests) }

func costs(list []drawgate.Cost) api.Costs {
	if len(list) == 0 {
		return nil
	}
	c := api.Costs{}
	for _, x := range list {
		c[unit(x.Unit)] += x.N
	}
	return c
}

func instant(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return new(t.UTC())
}

// short cuts a text off, and replaces what cannot be printed.
func short(s string) string {
	if len(s) > maxText {
		s = s[:maxText]
		for !utf8.ValidString(s) && len(s) > maxText-utf8.UTFMax {
			s = s[:len(s)-1]
		}
		s += "…"
	}
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}
