// Package api holds the types of Drawgate's wire protocol, version 1: JSON over HTTP.
//
//	POST /v1/take       TakeRequest     -> TakeAnswer
//	POST /v1/settle     SettleRequest   -> SettleAnswer
//	GET  /v1/status     ?policy=&tenant=&key=&priority=  -> StatusAnswer
//	POST /v1/status     StatusRequest   -> StatusAnswer
//	POST /v1/explain    ExplainRequest  -> ExplainAnswer
//	GET  /v1/policies   -> PoliciesAnswer
//	GET  /healthz       -> Health: this process is alive
//	GET  /readyz        -> Health: it can decide; 503 if not
//	GET  /healthcheck   -> OK, as envoyproxy/ratelimit answers it
//	GET  /openapi.json  -> the document that describes all of this
//	     /auth          ?status=&route=  for proxies: headers in, 200 or 429 and headers out
//
// and, for administrators only, on a separate listener:
//
//	POST /v1/policies/{name}/disable  DisableRequest  -> Policy
//	POST /v1/policies/{name}/enable   -> Policy
//	GET  /v1/buckets    ?policy=&tenant=&limit=&after=   -> BucketsAnswer
//	GET  /v1/usage      ?policy=&tenant=&match=&limit=   -> UsageAnswer
//	GET  /v1/waiting    ?policy=&tenant=  -> WaitingAnswer
//	GET  /v1/refusals   ?policy=&tenant=&limit=   -> RefusalsAnswer
//	POST /v1/reset      ResetRequest    -> ResetAnswer
//	POST /v1/pause      PauseRequest    -> PauseAnswer
//	POST /v1/unpause    UnpauseRequest  -> UnpauseAnswer
//	POST /v1/adjust     AdjustRequest   -> AdjustAnswer
//	GET  /v1/history    ?since=&until=&policy=&tenant=&key=&op=&label=&last=  -> lines, each an Event
//	GET  /v1/history/keys    ?key=&last=  -> KeyEventsAnswer
//	GET  /v1/keys       -> KeysAnswer: virtual keys of the gateway that the store keeps
//	POST /v1/keys       CreateKeyRequest  -> KeyWithSecret
//	GET  /v1/keys/{name}  -> Key
//	PUT  /v1/keys/{name}  ChangeKeyRequest  -> Key
//	DELETE /v1/keys/{name}  -> Key, as it was
//	POST /v1/keys/{name}/rotate   RotateKeyRequest  -> KeyWithSecret
//	POST /v1/keys/{name}/disable  -> Key
//	POST /v1/keys/{name}/enable   -> Key
//	GET  /v1/spend           ?from=&to=&by=&team=&key=&upstream=&model=  -> SpendAnswer
//	GET  /v1/incidents       ?since=  -> IncidentsAnswer
//	GET  /v1/incidents/{id}  -> Incident; "last" is the newest one
//	GET  /v1/upstreams       ?name=   -> UpstreamsAnswer
//	POST /v1/reload     -> ReloadAnswer
//
// Numbers are integers, times are RFC 3339 in UTC, and durations are milliseconds, rounded up, in
// fields that end in _ms. A refusal is an answer (200, with "allowed": false). Only a request that
// cannot be answered is an error, whose body is a [Problem]. Answers may get new fields at any
// time; an unknown field in a request is an error.
package api

import (
	_ "embed" // the document
	"time"
)

// DefaultKey is the key of a request without a key.
const DefaultKey = "default"

// Bounds on requests.
const (
	MaxBody  = 1 << 20          // bytes of a request's body
	MaxTakes = 100              // takes in a batch
	MaxWait  = 60 * time.Minute // longest wait_ms
)

// Bucket identifies a bucket, and says what to take from it.
type Bucket struct {
	Policy string `json:"policy,omitempty"` // optional if there is only one
	// tenant of the key; "" means the server's own, or the one that the access token is bound to
	Tenant string `json:"tenant,omitempty"`
	Key    string `json:"key,omitempty"`   // who is counted; "" means DefaultKey
	Costs  Costs  `json:"costs,omitempty"` // units; a unit that is missing costs 0, "requests" 1
}

// Take asks for units: from one bucket, given by policy, tenant and key; from several buckets, all
// or nothing; or from those that the rules choose by attributes.
type Take struct {
	Bucket
	// instead of policy, tenant, key and costs: 1 to 64 different ones
	Buckets []Bucket `json:"buckets,omitempty"`
	// instead of policy, tenant, key and buckets: the rules choose policies and keys, all or
	// nothing
	Attributes *Attributes `json:"attributes,omitempty"`
	Priority   int         `json:"priority,omitempty"` // 0 to 9
	// wait in the queue for at most this time, counted from the request's arrival; 0: answer now
	WaitMS int64 `json:"wait_ms,omitempty"`
	// hold the units until they are settled, for at most this time; 0: they are used immediately
	HoldMS int64 `json:"hold_ms,omitempty"`
	// with hold_ms: a name for the reservation, which may be used again once that has ended
	ID string `json:"id,omitempty"`
	// with id: 16 random hexadecimal digits for this take. Sending the take again with the same
	// grant repeats the answer and costs nothing more
	Grant  string            `json:"grant,omitempty"`
	Labels map[string]string `json:"labels,omitempty"` // for the history: a task's type, its id
}

// TakeRequest is one take, or a batch of takes that are decided one after the other, separately.
type TakeRequest struct {
	Take
	Takes []Take `json:"takes,omitempty"`
}

// Reason says why a take was refused.
type Reason string

// The reasons.
const (
	ReasonLimited   Reason = "limited"    // a limit does not have enough left
	ReasonQueued    Reason = "queued"     // other callers are ahead in the queue
	ReasonQueueFull Reason = "queue_full" // the maximum number of callers is waiting
	// the store is unavailable, and a limit admits nothing, or nothing of that size, without it.
	ReasonUnavailable Reason = "unavailable"
	ReasonPaused      Reason = "paused" // a bucket is paused; its status has the end and the reason
)

// Answer answers one take.
type Answer struct {
	Allowed   bool       `json:"allowed"`
	Reason    Reason     `json:"reason,omitempty"`     // if it is refused
	Message   string     `json:"message,omitempty"`    // why it is refused, for people
	RefusedBy *LimitName `json:"refused_by,omitempty"` // the limit that refuses longest
	// 0 if allowed; otherwise the same take fits after this time if nothing else happens; null:
	// never
	RetryAfterMS Millis `json:"retry_after_ms"`
	// of the limit that refuses longest; if none does, of the tightest
	ResetAt   *time.Time `json:"reset_at,omitempty"`
	Remaining int64      `json:"remaining"`        // of the tightest limit
	Limits    []Limit    `json:"limits,omitempty"` // bucket by bucket
	// with hold_ms: the token to settle it with. Its content is not part of the interface
	Reservation string `json:"reservation,omitempty"`
	Grant       string `json:"grant,omitempty"` // of the reservation: as sent, or chosen by the server
	// by when it must be settled or renewed, according to this server's clock
	HoldEnd *time.Time `json:"hold_end,omitempty"`
	HoldMS  int64      `json:"hold_ms,omitempty"` // the same without clocks: from when the request was sent
	// this grant of the id was already open: this repeats its answer
	Replayed bool `json:"replayed,omitempty"`
	// the store was unavailable: this server decided, as the policies say
	Fallback bool `json:"fallback,omitempty"`
	// with attributes: a rule exempts the request from all limits
	Exempt    bool      `json:"exempt,omitempty"`
	Unmatched bool      `json:"unmatched,omitempty"`  // with attributes: no rule applies a policy to them
	Applied   []Applied `json:"applied,omitempty"`    // with attributes: what the rules chose
	Shadow    []Shadow  `json:"shadow,omitempty"`     // what is evaluated but not enforced
	Error     *Problem  `json:"error,omitempty"`      // in a batch: this take was not decided
	NeverFits bool      `json:"never_fits,omitempty"` // in a status: the cost is more than a limit can ever grant
}

// LimitName names a limit.
type LimitName struct {
	Policy string `json:"policy"`
	Limit  string `json:"limit"`
}

// Limit is a decision's result for one limit.
type Limit struct {
	Bucket int    `json:"bucket"` // position of its bucket in the take
	Policy string `json:"policy"`
	Name   string `json:"name"`
	Unit   string `json:"unit"`
	Amount int64  `json:"amount"`
	// the most that may be used at this priority: the amount, or a bucket's burst, less headroom
	// and what is kept for higher priorities
	Most         int64     `json:"most"`
	Remaining    int64     `json:"remaining"`      // units that a take of the same priority would get right now
	RetryAfterMS Millis    `json:"retry_after_ms"` // 0 if it passes; null: never
	ResetAt      time.Time `json:"reset_at"`       // when nothing is used; for a calendar limit, the end of its window
	Refused      bool      `json:"refused"`
}

// TakeAnswer answers a [TakeRequest]: Answer for a take, Answers, in the order of the request, for
// a batch.
type TakeAnswer struct {
	*Answer
	Answers []Answer `json:"answers,omitempty"`
}

// SettleRequest ends or extends a reservation. With only a token, what was held counts as used.
type SettleRequest struct {
	Reservation string `json:"reservation,omitempty"`
	// instead of a token, with cancel: a take whose answer was lost, with its id, grant and hold_ms
	Take    *Take `json:"take,omitempty"`
	Used    Costs `json:"used,omitempty"`     // what was really used; missing units keep the estimate
	Cancel  bool  `json:"cancel,omitempty"`   // give everything back
	RenewMS int64 `json:"renew_ms,omitempty"` // hold it for this long from now
}

// Outcomes of a settlement.
const (
	OutcomeSettled   = "settled"
	OutcomeCancelled = "cancelled"
	OutcomeRenewed   = "renewed"
	// it was no longer open: settled, reset, or its hold had ended, and then it counts as used. The
	// holder must stop.
	OutcomeGone = "gone"
)

// SettleAnswer answers a [SettleRequest].
type SettleAnswer struct {
	Outcome     string     `json:"outcome"`
	Reservation string     `json:"reservation,omitempty"` // renewed: the token to use from now
	HoldEnd     *time.Time `json:"hold_end,omitempty"`    // renewed: by when it must be settled or renewed
}

// StatusRequest asks what a take of Costs would get. Nothing is spent.
type StatusRequest struct {
	Bucket
	Priority int `json:"priority,omitempty"`
}

// StatusAnswer describes a bucket.
type StatusAnswer struct {
	Policy string        `json:"policy"`
	Tenant string        `json:"tenant,omitempty"` // "": the server's own
	Key    string        `json:"key"`
	At     time.Time     `json:"at"`               // the store's time
	Open   int           `json:"open"`             // reservations
	Paused *Pause        `json:"paused,omitempty"` // it refuses every take
	Take   Answer        `json:"take"`             // what a take of the costs would get now, without its Limits
	Limits []LimitStatus `json:"limits"`           // in the policy's order

	Waiting   int   `json:"waiting,omitempty"`     // takes that wait for the bucket in this server process
	NextTryMS int64 `json:"next_try_ms,omitempty"` // until the first of them tries again

	// who waits in all processes, in their order: of each process those who come to its front next,
	// 128 in all. Left out where the store keeps no line.
	Line []LineEntry `json:"line,omitempty"`
}

// LineEntry describes a take that waits for a bucket, in this process or another one.
type LineEntry struct {
	WaitedMS int64 `json:"waited_ms"`
	Priority int   `json:"priority"`
	// what it waits for, per limit: none of those that come after the limit that refuses it
	Units map[string]int64 `json:"units"`
}

// Pause has the end of a bucket's pause, and the reason.
type Pause struct {
	Until  time.Time `json:"until"`            // according to the store's clock
	Reason string    `json:"reason,omitempty"` // for people
}

// LimitStatus describes one limit of a bucket.
type LimitStatus struct {
	Limit
	Kind        string     `json:"kind"`                   // bucket, rolling, calendar, concurrency
	WindowMS    int64      `json:"window_ms,omitempty"`    // rolling: the window; bucket: the period of the amount
	Every       string     `json:"every,omitempty"`        // calendar: its window, such as month
	Zone        string     `json:"zone,omitempty"`         // calendar
	Burst       int64      `json:"burst,omitempty"`        // bucket
	Used        int64      `json:"used"`                   // units that count now, including held ones
	Held        int64      `json:"held"`                   // those of them that are held and do not age
	Debt        int64      `json:"debt"`                   // by how much use exceeds the limit
	WindowStart *time.Time `json:"window_start,omitempty"` // calendar: the open window
	WindowEnd   *time.Time `json:"window_end,omitempty"`
}

//go:embed openapi.json
var openAPI string

// OpenAPI returns the OpenAPI 3.1 document of this protocol, as JSON. The server serves it at
// /openapi.json.
func OpenAPI() string { return openAPI }
