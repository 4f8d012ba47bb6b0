package rls

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/drawgate/drawgate"
)

// Rule is the rate of one descriptor of a file.
type Rule struct {
	Domain     string
	Path       []Step // the descriptors that lead to it, outermost first
	Name       string // "" if it has none
	Replaces   []string
	Unit       ratelimit.RateLimitResponse_RateLimit_Unit
	Multiplier uint32 // of Unit; at least 1
	Requests   uint32 // per Multiplier units; 0 always refuses
	Unlimited  bool
	Shadow     bool // evaluated but not enforced
	Quota      bool // the request is refused only if every descriptor with Quota is over
	Detailed   bool // metrics include the values of all steps

	metadata *structpb.Struct
	policy   drawgate.Policy
	current  *ratelimit.RateLimitResponse_RateLimit // shared by all answers
	window   time.Duration                          // approximate: a month has 30 days
}

// Step is one descriptor on the path to a rate.
type Step struct {
	Key      string // with Wildcard, each * in it matches any text
	Value    string // "" matches every value; with Wildcard, each * in it matches any text
	Wildcard bool   // Key or Value has a *
	Shared   bool   // all matching values count together, each key separately
	Metric   bool   // metrics include the value
}

// wildKey reports whether the key has a *.
func (s *Step) wildKey() bool { return s.Wildcard && strings.Contains(s.Key, "*") }

// joined returns the step's name in envoyproxy/ratelimit.
func (s *Step) joined() string {
	if s.Value == "" {
		return s.Key
	}
	return join(s.Key, s.Value)
}

// varies reports whether every value has its own bucket.
func (s *Step) varies() bool { return s.Value == "" && !s.Wildcard || s.Wildcard && !s.Shared }

// text returns the step as part of a name.
func (s *Step) text() string {
	text := escape
	if s.Wildcard { // its asterisks are not literal
		text = func(t string) string { return strings.ReplaceAll(escape(t), escape("*"), "*") }
	}
	if s.Value == "" {
		return text(s.Key)
	}
	return text(s.Key) + "=" + text(s.Value)
}

// counts reports whether the rule needs a bucket.
func (r *Rule) counts() bool { return !r.Unlimited && r.Requests > 0 }

// finish computes what answers need of the rule.
func (r *Rule) finish(w Windows, leased bool) {
	r.current = &ratelimit.RateLimitResponse_RateLimit{Name: r.Name, RequestsPerUnit: r.Requests, Unit: r.Unit}
	if r.Multiplier > 1 {
		r.current.UnitMultiplier = wrapperspb.UInt32(r.Multiplier)
	}
	r.window = time.Duration(r.Multiplier) * unitLength(r.Unit)
	if r.counts() {
		r.policy = drawgate.Policy{
			Name:   policyName(r.Domain, r.Path),
			Limits: []drawgate.Limit{limitOf(r.Unit, r.Multiplier, r.Requests, w)}, Leased: leased,
		}
	}
}

// maxPolicy is the maximum length of a policy's name, in bytes.
const maxPolicy = 128

// policyName returns a name that is unique in a file: its parts are escaped, and a long name ends
// in a hash.
func policyName(domain string, path []Step) string {
	var b strings.Builder
	b.WriteString("rls/" + escape(domain))
	for i := range path {
		b.WriteString("/" + path[i].text())
	}
	name := b.String()
	if len(name) <= maxPolicy {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	hash := "~" + hex.EncodeToString(sum[:8])
	cut := name[:maxPolicy-len(hash)]
	return strings.ToValidUTF8(cut, "") + hash
}

var escaper = strings.NewReplacer("%", "%25", "/", "%2F", "~", "%7E", "=", "%3D", "*", "%2A", "\n", "%0A", "\r", "%0D",
	"\t", "%09", " ", "%20")

func escape(s string) string { return escaper.Replace(s) }

// unitLength returns the length of a unit; approximate for a month and a year.
func unitLength(u ratelimit.RateLimitResponse_RateLimit_Unit) time.Duration {
	const day = 24 * time.Hour
	switch u {
	case ratelimit.RateLimitResponse_RateLimit_SECOND:
		return time.Second
	case ratelimit.RateLimitResponse_RateLimit_MINUTE:
		return time.Minute
	case ratelimit.RateLimitResponse_RateLimit_HOUR:
		return time.Hour
	case ratelimit.RateLimitResponse_RateLimit_DAY:
		return day
	case ratelimit.RateLimitResponse_RateLimit_WEEK:
		return 7 * day
	case ratelimit.RateLimitResponse_RateLimit_MONTH:
		return 30 * day
	case ratelimit.RateLimitResponse_RateLimit_YEAR:
		return 365 * day
	default:
		return 0
	}
}

// limitOf returns the limit of a rate: see [Windows].
func limitOf(u ratelimit.RateLimitResponse_RateLimit_Unit, multiplier, requests uint32, w Windows) drawgate.Limit {
	l := drawgate.Limit{
		Name: strings.ToLower(u.String()), Kind: drawgate.Rolling, Amount: int64(requests),
		Window: time.Duration(multiplier) * unitLength(u),
	}
	if w != Aligned || multiplier > 1 {
		return l
	}
	every, ok := map[ratelimit.RateLimitResponse_RateLimit_Unit]drawgate.Every{
		ratelimit.RateLimitResponse_RateLimit_MINUTE: drawgate.Minute,
		ratelimit.RateLimitResponse_RateLimit_HOUR:   drawgate.Hour,
		ratelimit.RateLimitResponse_RateLimit_DAY:    drawgate.Day,
		ratelimit.RateLimitResponse_RateLimit_WEEK:   drawgate.Week,
		ratelimit.RateLimitResponse_RateLimit_MONTH:  drawgate.Month,
	}[u]
	if ok {
		l.Kind, l.Window, l.Every = drawgate.Calendar, 0, every
	}
	return l
}
