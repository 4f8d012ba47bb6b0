package store

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/drawgate/drawgate/internal/record"
)

// Amounts holds one number of units per limit of a plan, in the plan's order.
type Amounts [MaxLimits]int64

// KeepEstimate in the Amounts of a settlement means that the estimate is kept.
const KeepEstimate int64 = -1

// Policy is what a [Plan] is made of: a policy of package drawgate without what concerns its
// callers only.
type Policy struct {
	Name   string  // 1 to 128 bytes
	Limits []Limit // 1 to MaxLimits

	Fallback Fallback // while the store is unavailable, for limits that do not set their own
	Start    Start    // while the store is unavailable, in a process that does not know what was used before

	// Leased lets package lease decide plain takes of these limits locally, with units that it took
	// ahead; never over. What is left, as answers say, is then approximate.
	Leased bool
}

// Plan is a policy that was checked and made ready. It is immutable and safe for concurrent use.
type Plan struct {
	policy Policy
	specs  []record.Spec
	exact  []record.Spec                    // the same for stores whose rolling limits are exact unless told otherwise
	needs  bool                             // has a concurrency limit
	lives  [record.Priorities]time.Duration // of leases, per priority; 0: takes of it are not leased
}

// Compile checks a policy. The error names the limit, what is wrong and what would be valid; for
// each limit the first mistake is reported, all limits together.
func (p Policy) Compile() (*Plan, error) {
	pl := &Plan{policy: p}
	pl.policy.Limits = slices.Clone(p.Limits)
	var errs []error
	if p.Name == "" || len(p.Name) > 128 {
		errs = append(errs, fmt.Errorf("drawgate: a policy needs a name of at most 128 bytes, got %q", p.Name))
	}
	if n := len(p.Limits); n == 0 || n > MaxLimits {
		errs = append(errs, fmt.Errorf("drawgate: policy %q has %d limits, not 1 to %d", p.Name, n, MaxLimits))
	}
	if p.Fallback > FallbackOpen {
		errs = append(errs, fmt.Errorf("drawgate: policy %q: unknown fallback %d: use closed, share or open", p.Name,
			p.Fallback))
	}
	if p.Start > StartFull {
		errs = append(errs, fmt.Errorf("drawgate: policy %q: unknown start %d: use closed, cold or full", p.Name,
			p.Start))
	}
	seen := map[string]bool{}
	for i := range p.Limits {
		l := &p.Limits[i]
		spec, err := l.spec()
		if err == nil && seen[l.Name] {
			err = errors.New("the name is used twice in this policy")
		}
		seen[l.Name] = true
		if err != nil {
			errs = append(errs, &LimitError{Policy: p.Name, Limit: l.Name, Index: i, Err: err})
			continue
		}
		pl.specs = append(pl.specs, spec)
		if l.Precision == 0 {
			spec.Join = 0
		}
		pl.exact = append(pl.exact, spec)
		pl.needs = pl.needs || l.Kind == Concurrency
		if err := l.leasable(); p.Leased && err != nil {
			errs = append(errs, &LimitError{Policy: p.Name, Limit: l.Name, Index: i, Err: err})
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if p.Leased {
		pl.lives = leaseLives(pl.specs, p.Limits)
	}
	return pl, nil
}

// Name returns the policy's name.
func (p *Plan) Name() string { return p.policy.Name }

// Policy returns the policy. Its slices must not be changed.
func (p *Plan) Policy() Policy { return p.policy }

// NeedsHold reports whether the policy has a concurrency limit, so that a take needs a hold.
func (p *Plan) NeedsHold() bool { return p.needs }

// Max returns how many units of limit i takes of a priority may use in all: headroom and what is
// kept for higher priorities are subtracted; for a bucket, in a burst after an idle period.
func (p *Plan) Max(i, priority int) int64 { return p.specs[i].Effective[priority] }

// specsFor returns the limits as the arithmetic needs them; exact says that a rolling limit without
// a precision is exact.
func (p *Plan) specsFor(exact bool) []record.Spec {
	if exact {
		return p.exact
	}
	return p.specs
}

// variant returns the plan for a store whose clock may be ahead of the instant that it says by blur
// µs. With atOnce no unit waits for a settlement to count.
func (p *Plan) variant(blur int64, atOnce bool) *Plan {
	b := *p
	b.specs, b.exact = slices.Clone(p.specs), slices.Clone(p.exact)
	for _, specs := range [][]record.Spec{b.specs, b.exact} {
		for i := range specs {
			s := &specs[i]
			s.Blur = blur
			if atOnce && s.ChargeEnd {
				s.ChargeEnd, s.Margin = false, 0
			}
		}
	}
	return &b
}
