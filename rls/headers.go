package rls

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/httplimit"
)

// Headers of envoyproxy/ratelimit, and our own.
const (
	legacyLimit     = "RateLimit-Limit"
	legacyRemaining = "RateLimit-Remaining"
	legacyReset     = "RateLimit-Reset"
	headerRetry     = "Retry-After"
	headerFallback  = "X-RateLimit-Fallback" // "true": decided without the store
	headerShadow    = "X-RateLimit-Shadow"   // "policy;would_refuse, policy2;would_allow"
)

// headers adds the headers that the proxy should add to its response.
func (c *call) headers(r *ratelimit.RateLimitResponse) {
	style := c.s.opts.Headers
	if c.fallback {
		add(r, headerFallback, "true")
	}
	if c.s.opts.ShadowHeader {
		if text := c.shadows(); text != "" {
			add(r, headerShadow, text)
		}
	}
	if style == HeadersNone {
		return
	}
	if r.OverallCode == ratelimit.RateLimitResponse_OVER_LIMIT {
		if wait := c.retryAfter(); wait > 0 {
			add(r, headerRetry, strconv.FormatInt(seconds(wait), 10))
		}
	}
	switch style {
	case HeadersLegacy:
		c.legacy(r)
	case HeadersDraft:
		for _, name := range [...]string{httplimit.HeaderRateLimit, httplimit.HeaderPolicy} {
			if values := c.draft[name]; len(values) > 0 {
				add(r, name, strings.Join(values, ", "))
			}
		}
	}
}

func add(r *ratelimit.RateLimitResponse, key, value string) {
	r.ResponseHeadersToAdd = append(r.ResponseHeadersToAdd, &core.HeaderValue{Key: key, Value: value})
}

// legacy describes the descriptor that is over, or otherwise the one with the least left.
func (c *call) legacy(r *ratelimit.RateLimitResponse) {
	var least *ratelimit.RateLimitResponse_DescriptorStatus
	for i, s := range r.GetStatuses() {
		if s.GetCurrentLimit() == nil || c.parts[i].shadowed() {
			continue
		}
		if least == nil || rank(s) < rank(least) {
			least = s
		}
	}
	if least == nil {
		return
	}
	o, reset := &c.s.opts, least.GetDurationUntilReset().AsDuration()
	add(r, cmp.Or(o.LimitHeader, legacyLimit), strconv.FormatUint(uint64(least.GetCurrentLimit().GetRequestsPerUnit()),
		10))
	add(r, cmp.Or(o.RemainingHeader, legacyRemaining), strconv.FormatUint(uint64(least.GetLimitRemaining()), 10))
	add(r, cmp.Or(o.ResetHeader, legacyReset), strconv.FormatInt(seconds(reset.Microseconds()), 10))
}

func rank(s *ratelimit.RateLimitResponse_DescriptorStatus) int64 {
	if s.GetCode() == ratelimit.RateLimitResponse_OVER_LIMIT {
		return -1
	}
	return int64(s.GetLimitRemaining())
}

// retryAfter returns the µs after which the request would pass if nothing else happened; 0 if
// waiting does not help, or it is unknown. It is the longest time of the enforced descriptors, but
// the shortest of the quotas.
func (c *call) retryAfter() int64 {
	longest, quota, quotas := int64(0), int64(-1), true
	for i := range c.parts {
		p := &c.parts[i]
		switch {
		case p.rule == nil || p.shadowed() || p.action == reports || p.action == refunds:
		case p.quota():
			if p.never {
				continue
			}
			if wait := p.wait(); !p.over {
				quotas = false
			} else if quota < 0 || wait < quota {
				quota = wait
			}
		case p.never:
			return 0
		case p.over:
			longest = max(longest, p.wait())
		}
	}
	if quotas {
		longest = max(longest, quota)
	}
	if longest == 0 || c.paused {
		longest = max(longest, c.retry)
	}
	if longest >= drawgate.Never.Microseconds() {
		return 0
	}
	return longest
}

// wait returns how long a part that is over has to wait. For a part that was only peeked at, it is
// the time until the limit is unused, which is no earlier.
func (p *part) wait() int64 {
	if p.retryAfter > 0 {
		return p.retryAfter
	}
	return max(p.resetAfter, time.Second.Microseconds())
}

// diverged is a policy in shadow that would have answered differently.
type diverged struct{ policy, way string }

func (c *call) shadows() string {
	var b strings.Builder
	for i := range c.diverged {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(c.diverged[i].policy + ";" + c.diverged[i].way)
	}
	return b.String()
}

// diverge records once that a policy in shadow would have answered differently.
func (c *call) diverge(policy, way string) {
	d := diverged{policy, way}
	if way != engine.Same && !slices.Contains(c.diverged, d) {
		c.diverged = append(c.diverged, d)
	}
}

// bare reports whether no headers describe the request yet: it only peeks, or its hits never fit,
// so nothing was taken.
func (c *call) bare() bool { return len(c.draft[httplimit.HeaderRateLimit]) == 0 }

// describeDraft sets the headers of a decision, and replaces those of an earlier attempt.
func (c *call) describeDraft(d *drawgate.Decision, more bool) {
	if c.s.opts.Headers != HeadersDraft {
		return
	}
	if c.draft == nil || !more {
		c.draft = http.Header{}
	}
	c.s.draft.Append(c.draft, d)
}
