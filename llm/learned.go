package llm

import (
	"cmp"
	"sync"
	"time"

	"github.com/drawgate/drawgate"
)

const (
	// learnedFor is how long a limit that a provider told is believed without being told again.
	learnedFor   = 24 * time.Hour
	learnedBound = 10_000 // limits in all
)

// LimitKey names a limit whose amount was learned.
type LimitKey struct {
	Owner  string // whose quota it is; "" if there is one
	Family string // of models
	Unit   string
	Day    bool // per day; otherwise per minute
}

// Learned are amounts of limits that providers told. The zero value is ready to use. It is safe for
// concurrent use, and has no clock: now is the time of the call, and may not go back by much.
type Learned struct {
	mu     sync.Mutex
	limits map[LimitKey]learnedLimit
}

type learnedLimit struct {
	amount int64
	until  time.Time
}

// Note learns an amount: it replaces what was learned of the limit before, larger or smaller. A
// negative one is ignored; 0 means that nothing is offered.
func (l *Learned) Note(k LimitKey, amount int64, now time.Time) {
	if amount < 0 || amount > maxAmount {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.limits == nil {
		l.limits = map[LimitKey]learnedLimit{}
	}
	if _, ok := l.limits[k]; !ok && len(l.limits) >= learnedBound {
		for old, v := range l.limits {
			if !now.Before(v.until) {
				delete(l.limits, old)
			}
		}
		if len(l.limits) >= learnedBound {
			return // what is configured holds
		}
	}
	l.limits[k] = learnedLimit{amount: amount, until: now.Add(learnedFor)}
}

// Of returns the amount of a limit of a policy that counts a call: what was learned, if that is
// less, and 0 only if that is configured. What was learned of a minute holds for limits of 60
// seconds and of the calendar's minutes, what was learned of a day for those of 24 hours and of the
// calendar's days; about others providers say nothing.
func (l *Learned) Of(c *Call, limit *drawgate.Limit, now time.Time) int64 {
	minute, day := limit.Window == time.Minute, limit.Window == 24*time.Hour
	switch limit.Kind {
	case drawgate.Rolling, drawgate.Bucket:
	case drawgate.Calendar:
		minute, day = limit.Every == drawgate.Minute, limit.Every == drawgate.Day
	default:
		return limit.Amount
	}
	if !minute && !day {
		return limit.Amount
	}
	n := l.Amount(LimitKey{Owner: c.Owner, Family: c.Family, Unit: cmp.Or(limit.Unit, drawgate.UnitRequests), Day: day},
		limit.Amount, now)
	return max(n, min(1, limit.Amount))
}

// Offered reports whether a call may be made: false says that the provider has refused one of its
// models within the last day because the owner's plan does not have it.
func (l *Learned) Offered(c *Call, now time.Time) bool {
	return l.Amount(notOffered(c), 1, now) > 0
}

// notOffered is the limit that is 0 if a model is not offered. Others of its family may be: plans
// leave out single versions.
func notOffered(c *Call) LimitKey {
	return LimitKey{Owner: c.Owner, Family: c.Model, Unit: "offered"}
}

// Amount returns the amount of a limit of which so much is configured: what was learned within the
// last day if that is less.
func (l *Learned) Amount(k LimitKey, configured int64, now time.Time) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	v, ok := l.limits[k]
	if !ok || !now.Before(v.until) {
		return configured
	}
	return min(configured, v.amount)
}

// NoteObserved learns the limits in a response's headers, as limits per minute. Limits of another
// scope than the usual one are left out, and so are Anthropic's tokens, which may be of either
// side.
func (l *Learned) NoteObserved(p *Profile, c *Call, seen []Observed, now time.Time) {
	for _, o := range seen {
		if o.Scope != "" && o.Scope != "project" || !p.unit(o.Unit) {
			continue
		}
		if tighter(seen, o) { // of the organisation's and the project's, the smaller one decides
			continue
		}
		l.Note(LimitKey{Owner: c.Owner, Family: c.Family, Unit: o.Unit}, o.Limit, now)
	}
}

// tighter reports whether another limit of the same unit is smaller.
func tighter(seen []Observed, o Observed) bool {
	for _, other := range seen {
		if other.Unit == o.Unit && (other.Scope == "" || other.Scope == "project") && other.Limit < o.Limit {
			return true
		}
	}
	return false
}

// NoteRefusal learns the limit that a refusal names.
func (l *Learned) NoteRefusal(c *Call, r Refusal, now time.Time) {
	switch {
	case r.Meaning == NotOffered:
		l.Note(notOffered(c), 0, now)
	case r.Limit > 0 && r.Unit != "" && (r.Meaning == PerMinute || r.Meaning == PerDay):
		l.Note(LimitKey{Owner: c.Owner, Family: c.Family, Unit: r.Unit, Day: r.Meaning == PerDay}, r.Limit, now)
	}
}
