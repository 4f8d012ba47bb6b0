package guard

import (
	"context"
	"slices"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/record"
)

// Settle implements [drawgate.Store].
//
// While the store is away, settlements and cancellations of reservations of this process are kept, and delivered when it is back; so are charges. Of a
// renewal, and of an id that is not known here, the outcome is a [drawgate.StoreError]: nobody but the store can say.
func (s *Store) Settle(ctx context.Context, batch []drawgate.Settlement, out []drawgate.Outcome) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	var theirs []int
	for i := range batch {
		o, mine, err := s.settleHere(ctx, &batch[i])
		if err != nil {
			return err
		}
		if out[i] = o; !mine {
			theirs = append(theirs, i)
		}
	}
	if len(theirs) == 0 {
		return nil
	}
	if len(theirs) == len(batch) {
		return s.settleThere(ctx, batch, out)
	}
	some, outs := make([]drawgate.Settlement, len(theirs)), make([]drawgate.Outcome, len(theirs))
	for k, i := range theirs {
		some[k] = batch[i]
	}
	err := s.settleThere(ctx, some, outs)
	for k, i := range theirs {
		if out[i] = outs[k]; err != nil { // the others of the batch have been carried out
			out[i] = drawgate.Outcome{Err: err}
		}
	}
	return nil
}

// settleThere has the store carry out settlements, or keeps them until it can.
func (s *Store) settleThere(ctx context.Context, batch []drawgate.Settlement, out []drawgate.Outcome) error {
	cause := s.refusedBy()
	answered := false
	if cause == nil {
		actx, cancel, whole := s.limit(ctx)
		defer cancel()
		cause = s.attempt(actx, ctx, batch[0].Op.String(), whole, func(ctx context.Context) error {
			if err := s.store().Settle(ctx, batch, out); err != nil {
				return err
			}
			answered = true
			return unsettledWide(out)
		})
		if !answered && (gaveUp(ctx) || !isAway(cause)) {
			return cause
		}
	}
	for i := range batch {
		switch {
		case !answered:
			out[i] = s.keep(&batch[i], cause)
		case isAway(out[i].Err):
			out[i] = s.keep(&batch[i], out[i].Err)
		case out[i].Err == nil:
			s.settled(&batch[i], &out[i])
		}
	}
	return nil
}

// settled records what the store carried out.
func (s *Store) settled(st *drawgate.Settlement, o *drawgate.Outcome) {
	now := s.clock.now()
	s.held.mu.Lock()
	if h := s.held.ids[st.ID]; h != nil && st.ID != "" && h.stage == inStore {
		switch {
		case st.Op == drawgate.OpSettle, st.Op == drawgate.OpCancel, o.Gone:
			s.held.drop(h)
		case st.Op == drawgate.OpRenew:
			h.end = max(h.end, o.End.UnixMicro())
		}
	}
	s.held.mu.Unlock()
	if !o.Gone {
		s.apply(st, now)
	}
}

// apply carries out a settlement on the pages of its buckets.
func (s *Store) apply(st *drawgate.Settlement, now instant) {
	if len(st.Buckets) == 0 || len(st.Buckets) > drawgate.MaxBuckets || twice(st.Buckets) {
		return
	}
	w := found
	if st.Op == drawgate.OpCharge {
		w = kept
	}
	parts := s.parts(st.Buckets)
	s.book.with(parts, w, now, func(pages []*page) { s.carry(st, parts, pages, now) })
}

// carry carries out a settlement on pages, which are locked.
func (s *Store) carry(st *drawgate.Settlement, parts []part, pages []*page, now instant) {
	asks := make([]record.Ask, 0, len(pages))
	for k, p := range pages {
		pt := &parts[k]
		if st.Op == drawgate.OpRenew && s.book.parts[pt.shard].lost > 0 && (p == nil || p.rec.Open[st.ID] == nil) {
			s.unrecorded(pt, st.Hold)
		}
		if p == nil || len(pt.terms.at) == 0 {
			continue
		}
		if p.fresh {
			s.former(p, pt, all)
		}
		asks = append(asks, record.Ask{Rec: &p.rec, Specs: pt.terms.wide, N: pt.terms.pick(&pt.n)})
	}
	if len(asks) == 0 {
		return
	}
	switch st.Op {
	case drawgate.OpSettle, drawgate.OpCancel:
		record.Settle(asks, st.ID, uint64(st.Grant), st.Op == drawgate.OpCancel, now.at)
	case drawgate.OpRenew:
		record.Renew(asks, st.ID, uint64(st.Grant), st.Hold.Microseconds(), now.at)
	case drawgate.OpCharge:
		record.Charge(asks, st.At.UnixMicro(), now.at)
	}
	for k, p := range pages {
		if p != nil {
			parts[k].terms.clamp(&p.rec)
		}
	}
}

// settleHere carries out a settlement of what is known here better than by the store. It waits while the store is being told of it.
func (s *Store) settleHere(ctx context.Context, st *drawgate.Settlement) (o drawgate.Outcome, mine bool, err error) {
	if st.ID == "" || st.Op != drawgate.OpSettle && st.Op != drawgate.OpCancel && st.Op != drawgate.OpRenew {
		return o, false, nil
	}
	for {
		s.held.mu.Lock()
		h := s.held.ids[st.ID]
		now := s.clock.now()
		if h == nil || h.stage == inStore && (h.given == 0 || st.Op == drawgate.OpRenew && h.end > now.at) {
			s.held.mu.Unlock()
			return o, false, nil
		}
		busy, stage := h.busy, h.stage
		s.held.mu.Unlock()
		if busy != nil {
			select {
			case <-busy:
				continue
			case <-ctx.Done():
				return o, true, ctx.Err()
			}
		}
		if stage == ending || stage == done { // it was settled already
			return drawgate.Outcome{Gone: true}, true, nil
		}
		if o, done := s.end(h, st, now); done {
			return o, true, nil
		}
	}
}

// end settles, cancels or renews a reservation that was given here, even if the store knows of it by now: for the store it lasts longer, since it heard of it
// later. It is not done if the store is being told.
func (s *Store) end(h *held, st *drawgate.Settlement, now instant) (o drawgate.Outcome, ended bool) {
	s.book.with(h.parts, every, now, func(pages []*page) {
		s.held.mu.Lock()
		defer s.held.mu.Unlock()
		if h.busy != nil || h.stage == ending || h.stage == done {
			return
		}
		if h.end <= now.at {
			o.Gone, ended = true, true
			return
		}
		if h.stage == inStore && st.Op == drawgate.OpRenew {
			return
		}
		ended = true
		mine := h.inOrder(st)
		s.carry(&mine, h.partsOf(&mine), pages, now)
		if st.Op == drawgate.OpRenew {
			h.end = max(h.end, holdEnd(now, st.Hold))
			o.End = time.UnixMicro(h.end)
			return
		}
		s.bill(h, h.late(&mine, now.at), pages)
	})
	s.nudge()
	return o, ended
}

// late returns a settlement of a reservation that was given here, as a store has to be told of it that hears of it later: a bucket gives nothing back that
// has drained since it was given.
func (h *held) late(st *drawgate.Settlement, now int64) *drawgate.Settlement {
	told := *st
	told.Op, told.Buckets = drawgate.OpSettle, slices.Clone(st.Buckets)
	for k := range told.Buckets {
		b := &told.Buckets[k]
		b.N = usedOf(st, k, &h.granted[k])
		specs := b.Plan.Specs(false)
		for j := range specs {
			if s := &specs[j]; s.Kind == record.Bucket && !s.ChargeEnd && !h.take.Lease {
				b.N[j] = max(b.N[j], drained(s, h.granted[k][j], now-h.given))
			}
		}
	}
	return &told
}

// drained returns how many of n units have left a bucket in dt µs, rounded up.
func drained(s *record.Spec, n, dt int64) int64 {
	if dt >= record.CeilDiv(n*s.Scale, s.Drain) {
		return n
	}
	return record.CeilDiv(max(0, dt)*s.Drain, s.Scale)
}

// inOrder returns a settlement with the reservation's buckets, in their order; where it says nothing, the estimate stands.
func (h *held) inOrder(st *drawgate.Settlement) drawgate.Settlement {
	mine := *st
	mine.Buckets = make([]drawgate.BucketCost, len(h.take.Buckets))
	for k := range mine.Buckets {
		b := h.take.Buckets[k]
		for j := range b.N {
			b.N[j] = drawgate.Unnamed
		}
		i := slices.IndexFunc(st.Buckets, func(o drawgate.BucketCost) bool { return o.Key == b.Key })
		if i >= 0 && st.Buckets[i].Plan != nil {
			b.N = said(&st.Buckets[i], b.Plan)
		}
		mine.Buckets[k] = b
	}
	return mine
}

// said returns what a settlement says of a bucket, by the limits of a plan. Its caller may count by another plan, because the configuration was replaced
// or by what an override or a rule says of amounts: limits are the same by their identity.
func said(b *drawgate.BucketCost, plan *drawgate.Plan) (n drawgate.Amounts) {
	theirs := b.Plan.Specs(false)
	for j, spec := range plan.Specs(false) {
		n[j] = drawgate.Unnamed
		if i := slices.IndexFunc(theirs, func(s record.Spec) bool { return s.ID == spec.ID }); i >= 0 {
			n[j] = b.N[i]
		}
	}
	return n
}

// partsOf returns the reservation's parts with what a settlement says of them.
func (h *held) partsOf(st *drawgate.Settlement) []part {
	ps := slices.Clone(h.parts)
	for k := range ps {
		ps[k].n = st.Buckets[k].N
	}
	return ps
}

// bill has the store told how a reservation ended that was given here. The pages and s.held are locked.
func (s *Store) bill(h *held, st *drawgate.Settlement, pages []*page) {
	if h.stage == inStore || h.sent && h.stage == here { // it knows it, or may: it is told the same, and charged only if it has never known it
		h.was, h.stage, h.last = h.stage, ending, *st
		for k, p := range pages {
			if p != nil && !slices.Contains(p.owed, h) {
				p.owed = append(p.owed, h)
				s.tell.mark(h.parts[k].key)
			}
		}
		return
	}
	n := make([]drawgate.Amounts, len(h.parts))
	for k := range n {
		n[k] = usedOf(st, k, &h.granted[k])
		for j := range n[k] {
			if h.stage == counted { // what was granted is charged already, and is not given back
				n[k][j] = max(0, n[k][j]-h.granted[k][j])
			}
		}
	}
	h.stage = done
	s.owes(h, n, pages)
}

// owes notes on the pages of a reservation that n units are to be charged in its place. The pages are locked.
func (s *Store) owes(h *held, n []drawgate.Amounts, pages []*page) {
	for k, p := range pages {
		if p == nil {
			continue
		}
		p.settle(h)
		pt := &h.parts[k]
		some := pt.terms.pick(&n[k])
		some = pt.terms.place(&some)
		if p.charge(pt.terms, &some); p.owes() {
			s.tell.mark(pt.key)
		}
	}
}

// keep keeps a settlement that the store could not be given, if it may.
func (s *Store) keep(st *drawgate.Settlement, cause error) drawgate.Outcome {
	refused := drawgate.Outcome{Err: wrapped(st.Op.String(), cause)}
	now := s.clock.now()
	var h *held
	switch st.Op {
	case drawgate.OpSettle, drawgate.OpCancel:
		s.held.mu.Lock()
		h = s.held.ids[st.ID]
		if h == nil || h.stage != inStore || h.end <= now.at {
			s.held.mu.Unlock()
			return refused
		}
		h.was, h.stage, h.last = inStore, ending, h.inOrder(st)
		s.held.mu.Unlock()
	case drawgate.OpCharge:
		if h = s.heldCharge(st, now); h == nil {
			return refused
		}
	default:
		return refused
	}
	if !s.owe(h, now) {
		return refused
	}
	s.nudge()
	return drawgate.Outcome{}
}

// owe notes on the pages of a settlement that the store has to be told of it, and carries it out there. Without any page there is no room for it.
func (s *Store) owe(h *held, now instant) (room bool) {
	parts := h.partsOf(&h.last)
	s.book.with(parts, every, now, func(pages []*page) {
		for k, p := range pages {
			if p != nil {
				room = true
				p.owed = append(p.owed, h)
				s.tell.mark(parts[k].key)
			}
		}
		if room {
			s.carry(&h.last, parts, pages, now)
			return
		}
		s.held.mu.Lock()
		if h.stage = h.was; h.last.Op == drawgate.OpCharge {
			s.held.drop(h)
		}
		s.held.mu.Unlock()
	})
	return room
}

// heldCharge keeps a charge, if there is room.
func (s *Store) heldCharge(st *drawgate.Settlement, now instant) *held {
	if len(st.Buckets) == 0 || len(st.Buckets) > drawgate.MaxBuckets || twice(st.Buckets) {
		return nil
	}
	h := &held{parts: s.parts(st.Buckets), stage: ending, last: *st}
	h.take.Buckets = slices.Clone(st.Buckets)
	h.last.Buckets, h.last.ID = h.take.Buckets, ""
	h.granted = make([]drawgate.Amounts, len(h.parts))
	s.held.mu.Lock()
	defer s.held.mu.Unlock()
	if !s.held.room(now) {
		return nil
	}
	s.held.charges++
	return h
}

// wrapped makes a StoreError of why something was not done.
func wrapped(op string, cause error) error {
	se := asStoreError(op, cause)
	return &drawgate.StoreError{Store: se.Store, Op: op, Err: se.Err, Fault: se.Fault}
}

// expire has the store charged for reservations that were given here and ended by themselves. If it has one of them, it counts there as well.
func (s *Store) expire(now instant) {
	for _, h := range s.held.overdue(now.at) {
		s.book.with(h.parts, every, now, func(pages []*page) {
			s.held.mu.Lock()
			defer s.held.mu.Unlock()
			if h.stage == here && h.busy == nil && h.end <= now.at {
				h.stage = counted
				s.owes(h, h.granted, pages)
			}
		})
	}
}
