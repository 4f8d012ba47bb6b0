package drawgate

import (
	"context"
	"math"
	"slices"
	"time"
)

// Progress says what a take waits for: see [WithProgress].
type Progress struct {
	Place int // position in the line of its bucket, among the callers of this process: 1 is the first
	// Others are how many tickets of other processes were in front of the first of the line when it
	// tried last; 0 where the store keeps no line.
	Others int
	Reason Reason // what holds up the line; Queued until its first one was refused there
	Held   bool   // open reservations hold what its first one needs, as far as that is known with others in front
	Bucket int    // position of the bucket in the take
	Policy string
	Limit  string // that refuses the first of the line; "" if none does
	Pause  string // the reason of the pause, if there is one
	// Estimate is how long it takes at least until the take passes, as things stand: until the
	// first of the line fits, and the units have come back that those in front ask for. 0 means
	// that this is not known, or that it may pass at any time.
	Estimate time.Duration
	Waited   time.Duration
}

// progressKey is the key of a context's func(Progress).
type progressKey struct{}

// WithProgress returns a context whose takes report what they wait for. A take that has to wait
// calls f when it begins to, and then when something has changed, at most once a second, and less
// often far behind. The waiting goroutine calls f, which must not block: the first of a line keeps
// the others waiting.
func WithProgress(ctx context.Context, f func(Progress)) context.Context {
	return context.WithValue(ctx, progressKey{}, f)
}

// progressEvery is the shortest time between two reports of a take. The further behind a take is,
// the less often it looks: looking takes time in proportion to the place.
const (
	progressEvery    = time.Second
	progressPerPlace = 10 * time.Millisecond
)

// reporter reports the progress of a waiter. It is used by the goroutine that waits. A nil reporter
// reports nothing.
type reporter struct {
	q        *waitQueue
	w        *waiter
	f        func(Progress)
	peek     func(context.Context, *waiter) (string, bool) // see [Limiter.pauseOf]
	timer    *time.Timer
	last     Progress // as it was reported
	reported time.Time
}

// begin makes the first report.
func (r *reporter) begin(ctx context.Context) {
	if r != nil && r.timer == nil {
		r.timer = time.NewTimer(0)
		<-r.timer.C
		r.report(ctx)
	}
}

// due says when to report again.
func (r *reporter) due() <-chan time.Time {
	if r == nil {
		return nil
	}
	return r.timer.C
}

// report reports what has changed.
func (r *reporter) report(ctx context.Context) {
	p, look := r.q.progress(r.w)
	if look != nil {
		reason, ok := r.peek(ctx, r.w)
		r.q.looked(r.w, look, reason, ok)
		p.Pause = reason
	}
	if now := time.Now(); !p.like(&r.last, now.Sub(r.reported)) {
		r.last, r.reported = p, now
		r.f(p)
	}
	r.timer.Reset(progressEvery + time.Duration(p.Place)*progressPerPlace)
}

// like reports whether p says the same as last, which was reported some time ago.
func (p *Progress) like(last *Progress, ago time.Duration) bool {
	moved := p.Estimate - max(0, last.Estimate-ago)
	was := *last
	was.Estimate, was.Waited = p.Estimate, p.Waited
	return was == *p && -progressEvery < moved && moved < progressEvery
}

// obstacle is what refused the first waiter of a line.
type obstacle struct {
	reason Reason
	held   bool
	plan   *Plan // of the line's bucket
	limit  int   // -1: none refuses
}

func obstacleOf(d *Decision) obstacle {
	o := obstacle{reason: d.Reason, held: d.Reason == Limited &&
		d.EarliestRetry < d.RetryAfter, plan: d.bucket(d.refusingBucket() - int(d.first)), limit: -1}
	if r, ok := d.Refusing(); ok && d.Reason != Paused {
		o.limit = slices.IndexFunc(o.plan.policy.Limits, func(l Limit) bool { return l.Name == r.Limit.Name })
	}
	return o
}

// name returns the name of the limit, or "".
func (o *obstacle) name() string {
	if o.plan == nil || o.limit < 0 {
		return ""
	}
	return o.plan.policy.Limits[o.limit].Name
}

// refill returns how long it takes at least until units have come back after others have passed.
// all are the units of everybody in front, and of who asks; rest are those of them that were not
// asked for by the first. A limit whose holder may give units back at any time takes no time.
func (o *obstacle) refill(all, rest int64) time.Duration {
	if o.plan == nil || o.limit < 0 {
		return 0
	}
	times := 0.0 // the window
	switch spec := &o.plan.specs[o.limit]; o.plan.policy.Limits[o.limit].Kind {
	case Bucket:
		times = float64(rest) / float64(spec.Rate)
	case Rolling:
		times = float64(max(0, all-1) / max(1, spec.Effective[MaxPriority]))
	default:
	}
	return time.Duration(min(times*float64(o.plan.policy.Limits[o.limit].Window), math.MaxInt64/2))
}

// passed returns how long it takes at least after the first one fits until n units fit, where firm
// units of others come before them. left units count already when the first one fits, without its
// own. The limit is one whose units come back by themselves.
func (o *obstacle) passed(firm, n, left int64, priority int8) time.Duration {
	const rounding = time.Millisecond
	spec := &o.plan.specs[o.limit]
	times := 0.0 // the window
	switch o.plan.policy.Limits[o.limit].Kind {
	case Bucket:
		if n == 0 { // only those before it need to fit
			priority = MaxPriority
		}
		times = float64(max(0, left+firm+n-spec.Effective[priority])) / float64(spec.Rate)
	case Rolling:
		times = float64(max(0, firm+n-1) / max(1, spec.Effective[MaxPriority]))
	default:
	}
	return max(0, time.Duration(min(times*float64(o.plan.policy.Limits[o.limit].Window), math.MaxInt64/2))-rounding)
}

// pauseReason is the reason of the pause that holds up a line. One of those who wait in it asks the
// store, for all of them.
type pauseReason struct {
	text string // "" while somebody asks
}

// progress describes what w waits for. If look is not nil, the caller asks for the reason of the
// line's pause, and passes it to looked.
func (q *waitQueue) progress(w *waiter) (p Progress, look *pauseReason) {
	q.mu.Lock()
	defer q.mu.Unlock()
	b := w.bucket()
	ln := q.lines[w.in]
	p = Progress{Reason: Queued, Bucket: w.at, Policy: b.Key.Policy, Limit: ln.by.name(), Waited: time.Since(w.since)}
	if ln.by.plan != nil {
		p.Reason, p.Held = ln.by.reason, ln.held()
	}
	p.Others = ln.others
	if !ln.earliest.IsZero() {
		p.Estimate = max(0, time.Until(ln.earliest))
	}
	limit := max(0, ln.by.limit)
	before, units, _ := ln.Before(w.Place, limit)
	if p.Place = before + 1; before > 0 {
		all := units + w.Units[limit]
		p.Estimate += ln.by.refill(all, all-ln.Front().Units[limit])
	}
	switch {
	case p.Reason != Paused:
	case ln.pause == nil:
		ln.pause = &pauseReason{}
		look = ln.pause
	default:
		p.Pause = ln.pause.text
	}
	return p, look
}

// looked notes the reason of a line's pause. If the store did not say it, the next one asks.
func (q *waitQueue) looked(w *waiter, look *pauseReason, text string, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	look.text = text
	if ln := q.lines[w.in]; !ok && ln != nil && ln.pause == look {
		ln.pause = nil
	}
}
