package engine

import (
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine/rules"
)

// Request is a take: of what the rules say for Attributes, or for several Sets of them, and of
// Asks. One of these is enough.
type Request struct {
	Attributes *rules.Attributes // nil: no rule is asked
	Asks       []Ask

	// Costs is what is asked of the policies that rules apply, unit by unit, in place of what the
	// rules say. A policy without the unit is not asked for it.
	Costs []drawgate.Cost

	// Sets are several Attributes, each with its Costs, in place of the two above: the rules look
	// at each by itself, and what they apply is one take.
	//
	// What two sets ask of one bucket adds up, unit by unit, and has to pass the lower of their
	// amounts. Within a set a bucket is asked for once, and not at all if one of Asks names it. An
	// exemption ends the rules of its set.
	Sets []Set

	Wait         bool           // wait in the queue until the take fits
	Hold         time.Duration  // over 0: reserve, for so long; see [Result.Reservation]
	HoldIfNeeded bool           // take plainly unless one of the policies has a concurrency limit
	Lease        bool           // with Hold: the units do not age while held, and may be granted in part
	ID           string         // of the reservation; "" makes a random one
	Grant        drawgate.Grant // of the take: 0 makes a random one; the same on each resend. See [drawgate.Grant]
	Priority     int            // 0 to drawgate.MaxPriority
	Within       string         // unless "": the only tenant whose buckets may count the request, otherwise it is ErrOtherTenant and takes nothing
	Labels       []drawgate.Label
}

// Set is what is known of a part of a request, such as one descriptor of a proxy's, and what that
// part costs: see [Request].
type Set struct {
	Attributes *rules.Attributes // required
	Costs      []drawgate.Cost
}

// Ask names a policy and a key.
type Ask struct {
	Policy string
	Tenant string // "": the engine's own
	Key    string
	Costs  []drawgate.Cost // without any it is one request
}

// Result answers a Request.
type Result struct {
	Decision    drawgate.Decision     // of what is enforced; allowed and without limits if that is nothing
	Reservation *drawgate.Reservation // with Hold, if allowed and something is enforced
	Applied     []Applied             // what counts this request, the enforced and the shadow, in order
	Shadow      []Shadow              // of the applied, what is in shadow
	Exempt      bool                  // a rule exempts the request; every one of its Sets
	Unmatched   bool                  // no rule matched that is not in shadow, none of its Sets, and nothing was asked for by name

	shadowHold *drawgate.Reservation // of the shadows
}

// Applied is one policy that counts a request.
type Applied struct {
	Set       int    // position in [Request.Sets] of what it counts; 0 without them
	Rule      int    // position of the rule; -1 if it was asked for by name
	RuleName  string // may be empty
	Policy    string
	Tenant    string
	Key       string // may be personal data
	Shadow    bool
	Disabled  bool // the policy is: see [Engine.Disable]
	NeverFits bool // one of its limits never grants what is asked: why the error is [drawgate.ErrNeverFits]
	Bucket    int  // position in the Decision, the same for all Sets that ask for the bucket; -1 if it is in shadow or disabled
}

// The ways in which a shadow differs from what is enforced.
const (
	Same        = ""
	WouldRefuse = "would_refuse" // what is enforced allows, the shadow refuses
	WouldAllow  = "would_allow"  // what is enforced refuses, the shadow allows
)

// Shadow is how one policy in shadow would have answered. All of a request are one take: if one
// refuses, none is spent. There is one of each bucket.
type Shadow struct {
	Policy     string
	Rule       int // this and RuleName as in Applied
	RuleName   string
	Tenant     string
	Allowed    bool              // by this policy
	Decision   drawgate.Decision // of all the shadows together
	Bucket     int               // position in it
	Divergence string            // Same, WouldRefuse or WouldAllow
	Err        error             // why it was not evaluated: nothing is known then
}

// Divergence tells [Options.Diverged] of a shadow that differs. What it points to may not be kept.
type Divergence struct {
	Policy   string
	RuleName string // "" if it was asked for by name, or the rule has none
	Tenant   string
	Way      string // WouldRefuse or WouldAllow
	Enforced *drawgate.Decision
	Shadow   *Shadow
}

// Info describes a policy in force.
type Info struct {
	Name          string
	Policy        drawgate.Policy // its slices must not be changed
	Shadow        bool
	Overrides     []Override // must not be changed
	DisabledUntil time.Time  // zero: it is not disabled
}
