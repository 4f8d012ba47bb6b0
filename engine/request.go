package engine

import (
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine/rules"
)

// Request is a take. It names what to count by Attributes, for which the rules decide, by several
// Sets of them, or by Asks. One of these is enough.
type Request struct {
	Attributes *rules.Attributes // nil: rules are not used
	Asks       []Ask

	// Costs replaces, unit by unit, what the rules say about costs. A policy that does not count a
	// unit ignores it.
	Costs []drawgate.Cost
	// Spare ignores Costs whose unit no policy that the rules apply counts. Otherwise they are
	// drawgate.ErrUnknownUnit.
	Spare bool

	// Sets are several Attributes, each with its Costs, in place of the two fields above. The rules
	// look at each separately, and everything they apply is one take.
	//
	// What two sets ask of one bucket adds up, unit by unit, and must fit the lower of their
	// amounts. Within a set a bucket is used once, and not at all if one of Asks names it. An
	// exemption ends the rules of its set.
	Sets []Set

	Wait         bool           // wait in the queue until the take fits
	Hold         time.Duration  // if positive: reserve for this time; see [Result.Reservation]
	HoldIfNeeded bool           // take without a hold unless one of the policies has a concurrency limit
	Lease        bool           // with Hold: the units do not age while held, and may be granted in part
	ID           string         // of the reservation; "" makes a random one
	Grant        drawgate.Grant // of the take: 0 makes a random one; resends use the same one. See [drawgate.Grant]
	Priority     int            // 0 to drawgate.MaxPriority
	// unless "": only buckets of this tenant may count the request; otherwise the error is
	// ErrOtherTenant and nothing is taken
	Within string
	Labels []drawgate.Label

	// Attempts says that this take is one of several attempts to decide the same request; nil means
	// that it is the only one.
	Attempts *Attempts
}

// Set describes a part of a request, such as one of a proxy's descriptors, and what that part
// costs: see [Request].
type Set struct {
	Attributes *rules.Attributes // required
	Costs      []drawgate.Cost
}

// Ask names a policy and a key.
type Ask struct {
	Policy string
	Tenant string // "": the engine's own
	Key    string
	Costs  []drawgate.Cost // none means one request
	Own    bool            // the policy may be one that this module made for itself: see [OwnPrefix]

	// Adapt returns the limiter that counts the ask in the place of the policy's, before each
	// attempt of the take: one that was made from it with [drawgate.Limiter.With], whose policy has
	// lower amounts. nil changes nothing.
	Adapt func(*drawgate.Limiter) *drawgate.Limiter
}

// Result answers a Request.
type Result struct {
	Decision    drawgate.Decision     // of what is enforced; allowed and without limits if nothing is
	Reservation *drawgate.Reservation // with Hold, if allowed and something is enforced
	Applied     []Applied             // what counts this request, enforced or shadow, in order
	Shadow      []Shadow              // those of Applied that are in shadow
	Exempt      bool                  // a rule exempts the request; with Sets, every one of them
	Unmatched   bool                  // no rule matched that is not in shadow, for no Set, and no policy was named

	shadowHold *drawgate.Reservation // of the shadows
	asked      []drawgate.Ask
}

// Asked returns what a take that failed asked of each enforced bucket, by [Applied.Bucket]: the
// costs, and the limiter that counts the bucket. It serves to describe a refusal that is an error,
// such as the end of a wait. It is nil if there is no error.
func (r *Result) Asked() []drawgate.Ask { return r.asked }

// Applied is one policy that counts a request.
type Applied struct {
	Set       int    // position in [Request.Sets]; 0 without them
	Rule      int    // position of the rule; -1 if the policy was named in the request
	RuleName  string // may be empty
	Policy    string
	Tenant    string
	Key       string // may be personal data
	Shadow    bool
	Disabled  bool // the policy is: see [Engine.Disable]
	NeverFits bool // one of its limits can never grant the cost: the reason for [drawgate.ErrNeverFits]
	// position in the Decision, the same for all Sets that use the bucket; -1 if it is in shadow or
	// disabled
	Bucket int

	// counts its bucket, with the amounts of the rule or of an override; nil if there is no such
	// policy
	limiter *drawgate.Limiter
}

// How a shadow differs from what is enforced.
const (
	Same        = ""
	WouldRefuse = "would_refuse" // what is enforced allows, the shadow refuses
	WouldAllow  = "would_allow"  // what is enforced refuses, the shadow allows
)

// Shadow is how one policy in shadow would have answered. All shadows of a request are one take: if
// one refuses, none is spent. There is one per bucket.
type Shadow struct {
	Policy     string
	Rule       int // this and RuleName as in Applied
	RuleName   string
	Tenant     string
	Allowed    bool              // by this policy
	Decision   drawgate.Decision // of all shadows together
	Bucket     int               // position in Decision
	Divergence string            // Same, WouldRefuse or WouldAllow
	Err        error             // why it was not evaluated; the other fields are then not set
}

// Divergence describes to [Options.Diverged] a shadow that differs. What it points to must not be
// kept.
type Divergence struct {
	Policy   string
	RuleName string // "" if the policy was named in the request, or the rule has no name
	Tenant   string
	Way      string // WouldRefuse or WouldAllow
	Enforced *drawgate.Decision
	Shadow   *Shadow
}

// Info describes a policy in force.
type Info struct {
	Name          string
	Policy        drawgate.Policy // its slices must not be changed
	Plan          *drawgate.Plan  // the same, as it was checked
	Shadow        bool
	Overrides     []Override // must not be changed
	DisabledUntil time.Time  // zero: it is not disabled
}
