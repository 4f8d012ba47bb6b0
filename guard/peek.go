package guard

import (
	"context"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/record"
)

// Peek implements [drawgate.Store]. While the store is away it describes what this process knows, with Fallback set.
func (s *Store) Peek(ctx context.Context, buckets []drawgate.BucketCost, priority int8, out []drawgate.Status) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	if len(buckets) == 0 {
		return nil
	}
	cause := s.refusedBy()
	answered := false
	if cause == nil {
		actx, cancel, whole := s.limit(ctx)
		defer cancel()
		cause = s.attempt(actx, ctx, "peek", whole, func(ctx context.Context) error {
			if err := s.store().Peek(ctx, buckets, priority, out); err != nil {
				return err
			}
			answered = true
			for i := range out {
				if out[i].Fail != nil && wide(out[i].Fail) {
					return out[i].Fail
				}
			}
			return nil
		})
		if !answered && (gaveUp(ctx) || !isAway(cause)) {
			return cause
		}
	}
	for i := range buckets {
		if !answered || isAway(out[i].Fail) {
			out[i] = s.describe(&buckets[i], priority)
		}
	}
	return nil
}

// describe says what a take of b would get here, and spends nothing.
func (s *Store) describe(b *drawgate.BucketCost, priority int8) (st drawgate.Status) {
	if b.Plan == nil || priority < 0 || priority > drawgate.MaxPriority {
		return drawgate.Status{Decision: drawgate.Decision{Fail: drawgate.ErrInvalid}}
	}
	now := s.clock.now()
	t := &drawgate.Take{Buckets: []drawgate.BucketCost{*b}, Priority: priority}
	r := &request{take: t, parts: s.parts(t.Buckets)}
	s.book.with(r.parts, kept, now, func(pages []*page) {
		l := &local{request: r, pages: pages, now: now.at, room: true}
		s.prepare(l)
		v := l.look(now.at)
		v.Allowed = v.Allowed && !l.shut
		st.Decision = l.answer(&v)
		st.States = l.usage()
		if p := pages[0]; p != nil {
			st.Open = len(p.rec.Open)
		}
	})
	return st
}

// usage says what each limit of the first bucket has used, as far as it is kept here.
func (l *local) usage() []drawgate.LimitUsage {
	pt := &l.parts[0]
	specs := pt.terms.plan.Specs(false)
	us := make([]drawgate.LimitUsage, len(specs))
	if len(l.asks) == 0 {
		return us
	}
	for j, at := range pt.terms.at {
		u := l.asks[0].Rec.Usage(&pt.terms.part[j], l.take.Priority)
		us[at] = drawgate.LimitUsage{Used: u.Used, Held: u.Held, Debt: u.Debt, Most: u.Most, Start: micros(u.Start), End: micros(u.End)}
		if pt.terms.mode[at] == drawgate.FallbackOpen {
			us[at].Most = specs[at].Effective[l.take.Priority]
			us[at].Debt = max(0, u.Used-specs[at].Effective[record.Priorities-1])
		}
	}
	return us
}

func micros(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us)
}
