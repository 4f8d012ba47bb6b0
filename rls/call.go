package rls

import (
	"context"
	"net/http"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
)

// action is what a descriptor asks for.
type action uint8

const (
	nothing action = iota // no limit, or a limit that is replaced
	takes                 // spend hits
	peeks                 // 0 hits: answer without spending
	reports               // hits that are already used
	refunds               // give hits back
)

// part is one descriptor of a request while it is decided.
type part struct {
	entries []*common.RateLimitDescriptor_Entry    // without ReportKey
	rule    *Rule                                  // nil: no limit
	limiter *drawgate.Limiter                      // of the rate in the descriptor; nil: the rule's
	current *ratelimit.RateLimitResponse_RateLimit // the limit to show in the answer
	applied []engine.Applied                       // by the engine's rules
	own     bool                                   // the descriptor or the request has a number of hits
	policy  string
	key     string
	action  action
	hits    int64
	never   bool // more hits than the limit can ever grant
	ask     int  // position in the take; -1: not part of it
	outcome
}

// outcome is the answer for a descriptor.
type outcome struct {
	over       bool
	known      bool // remaining and reset are set
	unlimited  bool
	remaining  int64
	retryAfter int64 // µs; 0: it passes, or waiting does not help
	resetAfter int64 // µs
	shadow     bool  // in shadow, and would be refused
}

// call is one request being decided. Its memory is reused.
type call struct {
	s       *Service
	request *ratelimit.RateLimitRequest
	rates   *rates

	parts    []part
	asks     []engine.Ask
	sets     []engine.Set
	costs    []drawgate.Cost // of asks, or of sets, in place
	labels   []drawgate.Label
	dropped  []string // names of replaced rates
	diverged []diverged
	draft    http.Header
	req      engine.Request
	res      engine.Result
	carries  bool // a descriptor has a rate
	fallback bool // a decision was made without the store
	refused  bool
	retry    int64 // µs; of the refusal
	paused   bool  // a bucket is paused: then no limit says when the request passes
}

// usual is the initial capacity for descriptors. Most requests have one or two.
const usual = 8

func newCall() *call {
	return &call{
		parts: make([]part, 0, usual), asks: make([]engine.Ask, 0, usual),
		costs: make([]drawgate.Cost, 0, usual),
	}
}

// clear removes everything of the request, so that nothing is kept or leaks into the next one.
func (c *call) clear() {
	clear(c.parts)
	clear(c.asks)
	clear(c.sets)
	clear(c.labels)
	c.parts, c.asks, c.sets, c.costs, c.labels = c.parts[:0], c.asks[:0], c.sets[:0], c.costs[:0], c.labels[:0]
	c.dropped, c.diverged = c.dropped[:0], c.diverged[:0]
	c.s, c.request, c.rates, c.draft, c.req.Labels = nil, nil, nil, nil, nil
	c.carries, c.fallback, c.refused, c.retry, c.paused = false, false, false, 0, false
	c.res.Reservation = nil // the next take overwrites the rest before anybody can see it
}

// hits determines what a descriptor asks for, by the protocol's rules: its own number, or the
// request's, where 0 means unset and counts as 1.
func (c *call) hits(d *common.RateLimitDescriptor, p *part) {
	own := d.GetHitsAddend()
	n := uint64(max(1, c.request.GetHitsAddend()))
	if own != nil {
		n = own.GetValue()
	}
	p.hits = int64(min(n, MaxHits))
	var marked bool
	p.entries, marked = withoutMarks(d.GetEntries())
	switch {
	case d.GetIsNegativeHits():
		p.action = refunds
	case n == 0:
		p.action = peeks
	case marked || own != nil && c.s.opts.Reports == ReportOwnHits:
		p.action = reports
	default:
		p.action = takes
	}
}

// withoutMarks returns the entries that are used for matching, and whether one was ReportKey.
func withoutMarks(entries []*common.RateLimitDescriptor_Entry) ([]*common.RateLimitDescriptor_Entry, bool) {
	for i, e := range entries {
		if e.GetKey() != ReportKey {
			continue
		}
		rest := make([]*common.RateLimitDescriptor_Entry, 0, len(entries)-1)
		rest = append(rest, entries[:i]...)
		for _, e := range entries[i+1:] {
			if e.GetKey() != ReportKey {
				rest = append(rest, e)
			}
		}
		return rest, true
	}
	return entries, false
}

// byTree decides a request of a domain that has a tree.
func (c *call) byTree(ctx context.Context, d *domain) (*ratelimit.RateLimitResponse, error) {
	if err := c.classify(d); err != nil {
		return nil, err
	}
	if err := c.peekAll(ctx); err != nil {
		return nil, err
	}
	if err := c.takeAll(ctx); err != nil {
		return nil, err
	}
	if err := c.peekRest(ctx); err != nil {
		return nil, err
	}
	if err := c.afterwards(ctx); err != nil {
		return nil, err
	}
	return c.answer(), nil
}
