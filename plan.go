package drawgate

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/drawgate/drawgate/internal/calendar"
	"github.com/drawgate/drawgate/internal/record"
)

// Policy is a named set of limits that must all pass, and what happens otherwise.
type Policy struct {
	Name   string  // required; at most 128 bytes; part of every bucket's key
	Limits []Limit // 1 to MaxLimits
	Wait   Wait    // how callers wait

	Fallback Fallback // while the store is unavailable, for limits that do not set their own
	Start    Start    // while the store is unavailable, in a process that does not know what was used before
}

// Wait says how callers of [Limiter.Wait] and [Limiter.Reserve] wait for a policy's buckets.
type Wait struct {
	MaxWait time.Duration   // longest wait if the caller's context has no earlier deadline; 0 means that the policy sets no bound
	Queue   int             // most waiters per bucket and process; 0 means 10,000
	Backoff []time.Duration // fixed waits between attempts, the last one repeated, instead of waiting for the refusing limit's retry-after
	Barge   bool            // Allow may pass in front of waiters
}

// Amounts holds one number of units per limit of a policy, in the policy's order.
type Amounts [MaxLimits]int64

// KeepEstimate in the Amounts of a settlement means that the estimate is kept.
const KeepEstimate int64 = -1

// Plan is a policy that was checked and made ready. It is immutable and safe for concurrent use.
// Stores receive plans, not policies.
type Plan struct {
	policy Policy
	specs  []record.Spec
	exact  []record.Spec // the same for stores whose rolling limits are exact unless told otherwise
	units  []string
	needs  bool // has a concurrency limit
	counts bool // has a limit of requests
}

// Compile checks a policy. The error names the limit, what is wrong and what would be valid; for
// each limit the first mistake is reported, all limits together.
func (p Policy) Compile() (*Plan, error) {
	pl := &Plan{policy: p}
	pl.policy.Limits, pl.policy.Wait.Backoff = slices.Clone(p.Limits), slices.Clone(p.Wait.Backoff)
	var errs []error
	if p.Name == "" || len(p.Name) > 128 {
		errs = append(errs, fmt.Errorf("drawgate: a policy needs a name of at most 128 bytes, got %q", p.Name))
	}
	if n := len(p.Limits); n == 0 || n > MaxLimits {
		errs = append(errs, fmt.Errorf("drawgate: policy %q has %d limits, not 1 to %d", p.Name, n, MaxLimits))
	}
	errs = append(errs, p.Wait.check(p.Name)...)
	if p.Fallback > FallbackOpen {
		errs = append(errs, fmt.Errorf("drawgate: policy %q: unknown fallback %d: use closed, share or open", p.Name, p.Fallback))
	}
	if p.Start > StartFull {
		errs = append(errs, fmt.Errorf("drawgate: policy %q: unknown start %d: use closed, cold or full", p.Name, p.Start))
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
		pl.units = append(pl.units, l.unit())
		pl.needs = pl.needs || l.Kind == Concurrency
		pl.counts = pl.counts || l.unit() == UnitRequests
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return pl, nil
}

func (w *Wait) check(policy string) (errs []error) {
	if w.MaxWait < 0 || w.Queue < 0 || len(w.Backoff) > 32 {
		errs = append(errs, fmt.Errorf("drawgate: policy %q: wait: up_to and queue must not be negative, and backoff must have at most 32 steps", policy))
	}
	for _, d := range w.Backoff {
		if d < time.Millisecond || d > 24*time.Hour {
			errs = append(errs, fmt.Errorf("drawgate: policy %q: wait: backoff %v is not between 1ms and 24h", policy, d))
		}
	}
	return errs
}

// Name returns the policy's name.
func (p *Plan) Name() string { return p.policy.Name }

// Policy returns the policy. Its slices must not be changed.
func (p *Plan) Policy() Policy { return p.policy }

// sameLimits reports whether two plans count in the same way, in the same buckets: what one asks of
// a limit can be asked by the other.
func (p *Plan) sameLimits(o *Plan) bool {
	return p.policy.Name == o.policy.Name && slices.EqualFunc(p.specs, o.specs, func(a, b record.Spec) bool { return a.ID == b.ID })
}

// sameAmounts reports whether both count the same limits with the same amounts.
func (p *Plan) sameAmounts(o *Plan) bool {
	return p == o || slices.EqualFunc(p.specs, o.specs, func(a, b record.Spec) bool {
		return a.ID == b.ID && a.Effective == b.Effective && a.Rate == b.Rate
	})
}

// NeedsHold reports whether the policy has a concurrency limit, so that a take needs a hold.
func (p *Plan) NeedsHold() bool { return p.needs }

// CountsRequests reports whether the policy has a limit of requests, so that a take of it need not
// name a unit.
func (p *Plan) CountsRequests() bool { return p.counts }

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

// Amounts resolves costs to one number per limit. A unit that is not named costs 0, requests 1.
//
// It reports a unit that no limit of the policy has ([ErrUnknownUnit]) and a number out of bounds
// ([ErrInvalid]). Costs of the same unit add up, and their sum has the same bounds.
func (p *Plan) Amounts(costs []Cost) (Amounts, error) {
	return p.resolve(costs, UnitRequests, 0)
}

// actual resolves what was really used to one number per limit, [KeepEstimate] for a limit whose
// unit is not named.
func (p *Plan) actual(costs []Cost) (Amounts, error) {
	return p.resolve(costs, "", KeepEstimate)
}

func (p *Plan) resolve(costs []Cost, one string, rest int64) (a Amounts, err error) {
	for i, u := range p.units {
		a[i] = rest
		if u == one {
			a[i] = 1
		}
	}
	for k, c := range costs {
		unit := c.Unit
		if unit == "" {
			unit = UnitRequests
		}
		if c.N < 0 || c.N > MaxAmount {
			return a, fmt.Errorf("%w: n=%d %s is not between 0 and %d", ErrInvalid, c.N, unit, int64(MaxAmount))
		}
		found := false
		for i, u := range p.units {
			if u != unit {
				continue
			}
			found = true
			if !named(costs[:k], unit) {
				a[i] = c.N
			} else if a[i] += c.N; a[i] > MaxAmount { // a settlement, which has to count, counts this much
				a[i], err = MaxAmount, fmt.Errorf("%w: the costs add up to more than %d %s", ErrInvalid, int64(MaxAmount), unit)
			}
		}
		if !found {
			return a, fmt.Errorf("%w: %q in policy %q, whose units are %s", ErrUnknownUnit, unit, p.policy.Name, units(p.units))
		}
	}
	return a, err
}

// units names units, each once.
func units(list []string) string {
	return strings.Join(slices.Compact(slices.Sorted(slices.Values(list))), ", ")
}

func named(costs []Cost, unit string) bool {
	for _, c := range costs {
		if c.Unit == unit || c.Unit == "" && unit == UnitRequests {
			return true
		}
	}
	return false
}

// neverFits returns an error if a take of n at this priority can never be granted.
func (p *Plan) neverFits(n *Amounts, priority int8) error {
	for i := range p.specs {
		if !p.specs[i].Fits(n[i], priority) {
			l := &p.policy.Limits[i]
			return &NeverFitsError{Policy: p.policy.Name, Limit: l.Name, Unit: p.units[i], Amount: l.Amount, N: n[i], Max: p.specs[i].Effective[priority]}
		}
	}
	return nil
}

// Check reports what is wrong with a limit, as [Policy.Compile] does for each of a policy's.
func (l Limit) Check() error {
	_, err := l.spec()
	return err
}

// spec checks a limit and makes it ready for the arithmetic.
func (l Limit) spec() (record.Spec, error) {
	s := record.Spec{ID: l.identity(), Kind: record.Kind(l.Kind), ChargeEnd: l.chargeEnd(), Window: l.Window.Microseconds(), Margin: l.Margin.Microseconds()}
	if err := l.checkNames(); err != nil {
		return s, err
	}
	if err := l.checkWindow(&s); err != nil {
		return s, err
	}
	return s, l.checkAmounts(&s)
}

func (l *Limit) checkNames() error {
	for _, f := range [...]struct{ field, text string }{{"name", l.Name}, {"unit", l.unit()}} {
		if f.text == "" || len(f.text) > 64 || strings.Trim(f.text, wordChars) != "" {
			return fmt.Errorf("%s %q is not 1 to 64 letters, digits, '.', '-' or '_'", f.field, f.text)
		}
		for _, r := range f.text {
			if !strings.ContainsRune(wordChars, r) {
				return fmt.Errorf("%s %q is not 1 to 64 letters, digits, '.', '-' or '_'", f.field, f.text)
			}
		}
	}
	return nil
}

const minWindow = time.Millisecond

const wordChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_"

// checkWindow settles what the kind says of time.
func (l *Limit) checkWindow(s *record.Spec) error {
	shortest := minWindow
	switch l.Kind {
	case Bucket, Rolling:
		if l.Window < minWindow || l.Window > MaxWindow || l.Window%time.Microsecond != 0 {
			return fmt.Errorf("window %v is not between %v and %v in whole microseconds", l.Window, minWindow, MaxWindow)
		}
		shortest = l.Window
	case Calendar:
		zone, err := calendar.LoadZone(l.Zone)
		if err != nil {
			return err
		}
		s.Rule = calendar.Rule{Unit: calendar.Unit(l.Every), Zone: zone, Anchor: l.Anchor}
		if err := s.Rule.Validate(); err != nil {
			return err
		}
		shortest = time.Minute
	case Concurrency:
	default:
		return errors.New("the kind is missing: bucket, rolling, calendar or concurrency")
	}
	if l.Fallback > FallbackOpen {
		return fmt.Errorf("unknown fallback %d: use closed, share or open", l.Fallback)
	}
	if l.Kind != Calendar && (l.Every != 0 || l.Zone != "" || l.Anchor != 0) {
		return fmt.Errorf("the fields every, zone and anchor are for calendar limits, not for a %s limit", l.Kind)
	}
	if (l.Kind == Calendar || l.Kind == Concurrency) && l.Window != 0 {
		return fmt.Errorf("a %s limit has no window of its own", l.Kind)
	}
	if l.Margin < 0 || l.Kind != Concurrency && l.Margin > min(shortest/2, 10*time.Minute) || l.Margin%time.Microsecond != 0 {
		return fmt.Errorf("margin %v is not between 0 and %v in whole microseconds", l.Margin, min(shortest/2, 10*time.Minute))
	}
	return l.checkPrecision(s)
}

// defaultPrecision is the precision of a rolling limit that names none, on stores that keep entries
// together.
const defaultPrecision = 128

func (l *Limit) checkPrecision(s *record.Spec) error {
	switch p := l.Precision; {
	case p != 0 && l.Kind != Rolling:
		return errors.New("precision is for rolling limits")
	case p == 0 && l.Kind == Rolling:
		s.Join = s.Window / defaultPrecision
	case p == 0 || p == Exact:
	case p < MinPrecision || p > MaxPrecision:
		return fmt.Errorf("precision %d is invalid: use exact, or a number between %d and %d", p, MinPrecision, MaxPrecision)
	default:
		s.Join = s.Window / int64(p)
	}
	return nil
}

// checkAmounts settles what takes of each priority may use.
func (l *Limit) checkAmounts(s *record.Spec) error {
	if l.Amount < 0 || l.Amount > MaxAmount {
		return fmt.Errorf("amount %d is not between 0 and %d", l.Amount, int64(MaxAmount))
	}
	if l.Burst < 0 || l.Burst > MaxAmount || l.Burst != 0 && l.Kind != Bucket {
		return fmt.Errorf("burst %d is invalid: it must be between 0 and %d, and only a bucket limit has one", l.Burst, int64(MaxAmount))
	}
	if err := l.Headroom.check(); err != nil {
		return fmt.Errorf("headroom: %w", err)
	}
	if l.Amount == 0 { // nothing passes: Effective stays 0
		if l.Kind == Bucket { // what was used before drains as slowly as it can
			s.Rate = 1
			s.Scale, s.Drain = record.BucketScale(s.Rate, s.Window)
		}
		return l.reserve(s, 0)
	}
	whole := l.Amount - l.Headroom.of(l.Amount)
	if whole < 1 {
		return fmt.Errorf("amount %d minus headroom %s leaves less than 1 unit: lower the headroom", l.Amount, l.Headroom)
	}
	if l.Kind == Bucket {
		burst := l.Amount
		if l.Burst > 0 {
			burst = l.Burst
		}
		s.Rate = whole
		s.Scale, s.Drain = record.BucketScale(s.Rate, s.Window)
		if burst > 1<<53/s.Scale {
			return fmt.Errorf("burst %d with %d per %v is too fine to be counted exactly: choose a window that %d divides, such as %v",
				burst, s.Rate, l.Window, s.Rate, roundWindow(l.Window, s.Rate))
		}
		// What may still be on its way when the next window starts is not available as burst.
		margin := int64(MaxAmount)
		if s.Margin < math.MaxInt64/s.Drain-s.Scale {
			margin = (s.Margin*s.Drain + s.Scale - 1) / s.Scale
		}
		whole = burst - l.Headroom.of(burst) - margin
		if whole < 1 {
			return fmt.Errorf("burst %d minus headroom %s and %d units for the margin %v leaves less than 1 unit: raise the burst or lower the margin", burst, l.Headroom, margin, l.Margin)
		}
	}
	return l.reserve(s, whole)
}

// roundWindow returns a window near w, in µs a multiple of rate where that is possible.
func roundWindow(w time.Duration, rate int64) time.Duration {
	us := w.Microseconds()
	if rate < us {
		us = (us + rate/2) / rate * rate
	}
	return time.Duration(us) * time.Microsecond
}

func (l *Limit) reserve(s *record.Spec, whole int64) error {
	for i := range s.Effective {
		s.Effective[i] = whole
	}
	for p, share := range l.ReservedByPriority {
		if p < 1 || p > MaxPriority {
			return fmt.Errorf("keep: priority %d is not between 1 and %d", p, MaxPriority)
		}
		if err := share.check(); err != nil {
			return fmt.Errorf("keep: %w", err)
		}
		for i := range p {
			s.Effective[i] = max(0, s.Effective[i]-share.of(whole))
		}
	}
	return nil
}
