package llm

import (
	"sync"
	"time"
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
	if r.Limit < 0 || r.Unit == "" {
		return
	}
	switch r.Meaning {
	case Minute, Day:
		l.Note(LimitKey{Owner: c.Owner, Family: c.Family, Unit: r.Unit, Day: r.Meaning == Day}, r.Limit, now)
	case NotOffered:
		l.Note(LimitKey{Owner: c.Owner, Family: c.Family, Unit: r.Unit}, 0, now)
	}
}
