package telemetry

import (
	"crypto/rand"
	"time"

	"github.com/drawgate/drawgate/api"
)

// Event is the body of a webhook call. New fields may be added at any time. Fields that an event
// does not have are left out.
type Event struct {
	Version  int       `json:"version"` // 1
	ID       string    `json:"id"`      // the same when it is sent again
	Kind     Kind      `json:"kind"`
	At       time.Time `json:"at"`
	Instance string    `json:"instance"`
	Message  string    `json:"message"` // for people

	Policy       string     `json:"policy,omitempty"`
	Limit        string     `json:"limit,omitempty"`
	Period       string     `json:"period,omitempty"`
	Unit         string     `json:"unit,omitempty"`
	Identifier   string     `json:"identifier,omitempty"` // the key's hash
	Percent      int        `json:"percent,omitempty"`
	Used         int64      `json:"used,omitempty"`
	Most         int64      `json:"most,omitempty"`
	RetryAfterMS int64      `json:"retry_after_ms,omitempty"`
	ResetAt      *time.Time `json:"reset_at,omitempty"`
	Suppressed   int64      `json:"suppressed,omitempty"`
	WouldRefuse  int64      `json:"would_refuse,omitempty"`
	WouldAllow   int64      `json:"would_allow,omitempty"`
	OutageMS     int64      `json:"away_ms,omitempty"`
	Decided      int64      `json:"decided,omitempty"`
	Fault        string     `json:"fault,omitempty"`
	Upstream     string     `json:"upstream,omitempty"`
	Model        string     `json:"model,omitempty"`
	Caller       string     `json:"caller,omitempty"`

	Incident *api.Incident `json:"incident,omitempty"`
}

// event makes the body of a webhook call. It leaves out the store's error.
func event(w *Warning, instance string) *Event {
	e := &Event{
		Version: 1, ID: rand.Text(), Kind: w.Kind, At: w.At.UTC(), Instance: instance, Message: w.Message(),
		Policy: w.Policy, Limit: w.Limit, Period: w.Period, Unit: w.Unit, Identifier: w.Identifier,
		Percent: w.Percent, Used: w.Used, Most: w.Most, RetryAfterMS: (w.RetryAfter +
			time.Millisecond - 1).Milliseconds(),
		Suppressed: w.Suppressed, WouldRefuse: w.WouldRefuse, WouldAllow: w.WouldAllow,
		OutageMS: w.Outage.Milliseconds(), Decided: w.Decided, Fault: w.Fault, Upstream: w.Upstream,
		Model: w.Model, Caller: w.Caller, Incident: w.Incident,
	}
	if w.RetryAfter > time.Duration(1<<63-1)-time.Millisecond {
		e.RetryAfterMS = w.RetryAfter.Milliseconds()
	}
	if !w.ResetAt.IsZero() {
		e.ResetAt = new(w.ResetAt.UTC())
	}
	return e
}
