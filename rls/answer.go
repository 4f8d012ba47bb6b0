package rls

import (
	"math"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"
)

// answer1 and answerN are responses with their statuses in one allocation each, because most
// requests have one or two descriptors.
type (
	status1 struct {
		status ratelimit.RateLimitResponse_DescriptorStatus
		reset  durationpb.Duration
	}
	answerN struct {
		response ratelimit.RateLimitResponse
		list     [2]*ratelimit.RateLimitResponse_DescriptorStatus
		statuses [2]status1
	}
)

// newAnswer returns a response with n statuses and room for their durations.
func newAnswer(n int) (*ratelimit.RateLimitResponse, []status1) {
	a := &answerN{}
	if n <= len(a.list) {
		a.response.Statuses = a.list[:n:n]
		for i := range n {
			a.list[i] = &a.statuses[i].status
		}
		return &a.response, a.statuses[:n]
	}
	statuses := make([]status1, n)
	a.response.Statuses = make([]*ratelimit.RateLimitResponse_DescriptorStatus, n)
	for i := range statuses {
		a.response.Statuses[i] = &statuses[i].status
	}
	return &a.response, statuses
}

// ok is the answer of a service in shadow mode.
func ok(n int) *ratelimit.RateLimitResponse {
	response, statuses := newAnswer(n)
	response.OverallCode = ratelimit.RateLimitResponse_OK
	for i := range statuses {
		statuses[i].status.Code = ratelimit.RateLimitResponse_OK
	}
	return response
}

// answer builds the response from what was decided.
func (c *call) answer() *ratelimit.RateLimitResponse {
	response, statuses := newAnswer(len(c.parts))
	for i := range c.parts {
		c.parts[i].describe(&statuses[i])
	}
	response.OverallCode = ratelimit.RateLimitResponse_OK
	if (c.refused || c.blocked()) && !c.s.opts.Shadow {
		response.OverallCode = ratelimit.RateLimitResponse_OVER_LIMIT
	}
	c.headers(response)
	c.tellMetadata(response)
	return response
}

// describe fills in the status of a descriptor.
func (p *part) describe(s *status1) {
	s.status.Code = ratelimit.RateLimitResponse_OK
	if p.refusedAlone() {
		s.status.Code = ratelimit.RateLimitResponse_OVER_LIMIT
	}
	if p.unlimited {
		s.status.LimitRemaining = unlimitedRemaining
		return
	}
	// no limit; or one that is disabled, or in shadow without an answer in time: nothing is known
	if p.rule == nil || !p.known {
		return
	}
	s.status.CurrentLimit = p.current
	s.status.LimitRemaining = uint32(min(max(0, p.remaining), math.MaxUint32))
	s.reset.Seconds = p.resetSeconds(s.status.Code == ratelimit.RateLimitResponse_OVER_LIMIT)
	s.status.DurationUntilReset = &s.reset
}

// resetSeconds returns the seconds until the limit is unused, or its window ends, rounded up: Envoy
// truncates fractions of a second, and would tell clients to come too early. If hits never fit an
// unused limit, it is the whole window, and never 0.
func (p *part) resetSeconds(refused bool) int64 {
	after := p.resetAfter
	if refused && after == 0 {
		after = max(p.rule.window.Microseconds(), 1)
	}
	return seconds(after)
}

// refusedAlone reports whether the descriptor alone would be refused.
func (p *part) refusedAlone() bool { return (p.over || p.never) && !p.shadowed() }

// seconds rounds up, so that a client that waits this long is not too early.
func seconds(us int64) int64 {
	return (us + int64(time.Second/time.Microsecond) - 1) / int64(time.Second/time.Microsecond)
}
