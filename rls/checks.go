package rls

import (
	"errors"
	"strings"
	"sync"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
)

// errLostReport is logged, and not answered.
var errLostReport = errors.New(`hits were refused, and did not count, of a limit that is checked with 0 hits first: ` +
	`if they were used already, add the entry "` + ReportKey + `" to their descriptor, or set reports: own-hits`)

// maxChecks bounds how many limits are remembered.
const maxChecks = 10_000

// checks remembers the limits that a proxy checks with 0 hits before the work. Hits that it sends
// for the same limit afterwards were used already, as with apply_on_stream_done: nothing else in
// the protocol says so. If they did not count because they no longer fit, the limit would stop
// nothing.
type checks struct {
	mu     sync.RWMutex
	limits map[string]struct{}
}

func (s *checks) add(limit string) {
	if s.has(limit) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.limits == nil {
		s.limits = map[string]struct{}{}
	}
	if len(s.limits) < maxChecks {
		s.limits[limit] = struct{}{}
	}
}

func (s *checks) has(limit string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	_, ok := s.limits[limit]
	return ok
}

// followCheck notes a check of a limit, or makes hits for a limit that was checked a report.
func (c *call) followCheck(d *common.RateLimitDescriptor, p *part, limit string) {
	switch {
	case d.GetHitsAddend() == nil:
	case p.action == peeks:
		c.s.checks.add(limit)
	case p.action == takes && c.s.checks.has(limit):
		p.action = reports
	}
}

// shape names the limit of a descriptor that rules decide: its domain and its keys.
func (c *call) shape(p *part) string {
	var b strings.Builder
	b.WriteString(c.request.GetDomain())
	for _, e := range p.entries {
		b.WriteByte(0)
		b.WriteString(e.GetKey())
	}
	return b.String()
}
