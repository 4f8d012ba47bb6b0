package engine

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"time"

	"github.com/drawgate/drawgate"
	mark "github.com/drawgate/drawgate/internal/shadow"
)

// Bounds on the cost of shadows.
const (
	shadowTime  = 50 * time.Millisecond // for a store call for shadows, if neither StoreTimeout nor the store says more
	shadowGrace = 5 * time.Millisecond  // how long an answer waits for its shadows, if no ShadowGrace is set
	maxShadows  = 256                   // store calls for shadows at once
)

// Reasons why a shadow was not evaluated.
var (
	errLate = errors.New("engine: the shadow was not answered in time")
	errBusy = errors.New("engine: too many shadows are being evaluated")
)

// shadowAnswer is the result of a shadow take.
type shadowAnswer struct {
	decision    drawgate.Decision
	reservation *drawgate.Reservation
	err         error
}

// Attempts lets several takes count as one request for its shadows, such as one that asks at once
// and a second one that waits. The first take evaluates the shadows, and [Attempts.End] compares
// them with the answer that was given to the caller. The zero value is ready to use, for one
// request. It is not safe for concurrent use.
type Attempts struct {
	begun   bool
	shadow  []Shadow             // of the first take
	compare func(*Result, error) // nil: there is no shadow to evaluate
}

// End adds the shadows to the result of the last take, whose error is err. Until then no Result of
// the attempts has any, nor their holds. It must be called once.
func (a *Attempts) End(res *Result, err error) {
	res.Shadow = append(res.Shadow[:0], a.shadow...)
	if a.compare != nil {
		a.compare(res, err)
	}
}

// beginShadows begins to evaluate the shadows of a take. It returns the func that compares them
// with the enforced take; nil if there is none, or if it is left to the Attempts of the request.
func (e *Engine) beginShadows(ctx context.Context, r *Request, sc *scratch,
	res *Result,
) (compare func(*Result, error)) {
	a := r.Attempts
	if (a == nil || !a.begun) && len(sc.shadow) > 0 {
		compare = e.evaluate(ctx, r, sc)
	}
	if a == nil {
		return compare
	}
	if !a.begun {
		*a = Attempts{begun: true, shadow: slices.Clone(res.Shadow), compare: compare}
	}
	res.Shadow = res.Shadow[:0]
	return nil
}

// evaluate takes from policies in shadow, at the same time as the enforced take: it can neither
// fail nor change that, and delays it by ShadowGrace at most. It returns a func that waits for the
// answer and compares it with the result and the error of the enforced take.
func (e *Engine) evaluate(ctx context.Context, r *Request, sc *scratch) func(*Result, error) {
	if failed := sc.failed; failed != nil {
		return func(res *Result, err error) { e.compare(&shadowAnswer{err: failed}, res, err) }
	}
	if e.local {
		a := shadow(ctx, r, sc.shadow) // does not wait
		return func(res *Result, err error) { e.compare(&a, res, err) }
	}
	select {
	case e.shadows <- struct{}{}:
	default:
		return func(res *Result, err error) { e.compare(&shadowAnswer{err: errBusy}, res, err) }
	}
	asks, own := slices.Clone(sc.shadow), *r
	for i := range asks { // the shadow may look at these after the answer, when their owners reuse them
		asks[i].Costs = slices.Clone(asks[i].Costs)
	}
	own.Labels = slices.Clone(r.Labels)
	got := make(chan shadowAnswer, 1)
	go func() {
		defer func() { <-e.shadows }()
		ctx, cancel := context.WithTimeout(mark.With(ctx), e.shadowTime())
		defer cancel()
		got <- shadow(ctx, &own, asks)
	}()
	return func(res *Result, err error) {
		timer := time.NewTimer(cmp.Or(e.opts.ShadowGrace, shadowGrace))
		defer timer.Stop()
		select {
		case a := <-got:
			e.compare(&a, res, err)
		case <-timer.C:
			e.compare(&shadowAnswer{err: errLate}, res, err)
		}
	}
}

// shadow takes from policies in shadow, in this goroutine.
func shadow(ctx context.Context, r *Request, asks []drawgate.Ask) (a shadowAnswer) {
	req := request(r, asks)
	if holds(r, asks) {
		req.Hold.ID = shadowID(r.ID)
	}
	a.decision, a.reservation, a.err = asks[0].Limiter.Take(ctx, req)
	return a
}

func (e *Engine) shadowTime() time.Duration {
	if t := e.opts.StoreTimeout; t > 0 {
		return t
	}
	if e.timed != nil {
		return e.timed.TakeTime(0)
	}
	return shadowTime
}

// shadowID is the same for the same ID, so that a request that is sent again finds its shadow
// again.
func shadowID(id string) string {
	if id == "" {
		return ""
	}
	h := sha256.Sum256([]byte(id))
	return hex.EncodeToString(h[:16]) + ShadowSuffix
}

// compare records how the shadows differ from what is enforced. failed is the error of the enforced
// take.
func (e *Engine) compare(a *shadowAnswer, res *Result, failed error) {
	res.shadowHold = a.reservation
	if a.err != nil && !errors.Is(a.err, drawgate.ErrNeverFits) {
		e.opts.Logger.Debug("a shadow was not evaluated", "error", a.err)
	}
	never, _ := errors.AsType[*drawgate.NeverFitsError](a.err)
	for i := range res.Shadow {
		s := &res.Shadow[i]
		if s.Bucket < 0 {
			continue // it was not evaluated
		}
		s.Decision = a.decision
		switch {
		case never != nil:
			s.Allowed = never.Policy != s.Policy && never.Policy != s.Policy+ShadowSuffix
		case a.err != nil:
			s.Err = a.err
			continue
		default:
			s.Allowed = passes(&a.decision, s.Bucket)
		}
		switch {
		case failed != nil:
		case res.Decision.Allowed && !s.Allowed:
			s.Divergence = WouldRefuse
		case !res.Decision.Allowed && a.err == nil && a.decision.Allowed:
			s.Divergence = WouldAllow
		}
		if s.Divergence != Same && e.opts.Diverged != nil && !res.Decision.Replayed {
			e.opts.Diverged(&Divergence{
				Policy: s.Policy, RuleName: s.RuleName, Tenant: s.Tenant, Way: s.Divergence, Enforced: &res.Decision,
				Shadow: s,
			})
		}
	}
}

// passes reports whether no limit of a bucket refuses.
func passes(d *drawgate.Decision, bucket int) bool {
	if d.Allowed {
		return true
	}
	for l := range d.Limits() {
		if l.Bucket == bucket && l.Refused() {
			return false
		}
	}
	return true
}
