package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/drawgate/drawgate/store"
)

// yield is how long a settlement waits for another one that was first, and is about to end the
// reservation in the other slots, too.
const yield = 50 * time.Millisecond

// settleSpread carries out a settlement over several slots, in each separately: first in the one
// that is first in the order of keys, and then in the others, so that racing settlements of a
// reservation do not each succeed in a part of it.
func (s *Store) settleSpread(ctx context.Context, t *store.Settlement) (out store.Outcome) {
	if err := t.Check(); err != nil {
		return store.Outcome{Err: err}
	}
	gs, err := s.groups(t.Buckets)
	if err != nil {
		return store.Outcome{Err: err}
	}
	st := *t
	switch {
	case t.Op == store.OpRenew:
		if o, kept, err := s.keptLease(ctx, t); err != nil {
			return store.Outcome{Err: err}
		} else if kept {
			return s.withHistories(ctx, t, o)
		}
	case t.Op == store.OpPause && t.Hold > 0: // one end for all, because that names the pause
		if st.At, err = s.latest(ctx, t.Buckets); err != nil {
			return store.Outcome{Err: err}
		}
		st.At, st.Hold = st.At.Add(t.Hold), 0
	}
	outs := make([]store.Outcome, len(gs))
	s.settleSome(ctx, &st, gs[:1], outs[:1])
	if ends := t.Op == store.OpSettle || t.Op == store.OpCancel; ends && outs[0].Gone {
		ks, err := s.lookForID(ctx, "settle", t.Buckets, t.ID)
		open := err != nil || slices.ContainsFunc(ks, func(k known) bool { return k.open && k.grant == t.Grant })
		if !open && !t.Ended {
			return s.withHistories(ctx, t, store.Outcome{Gone: true})
		}
		if open {
			pause(ctx, yield)
		}
	}
	s.settleSome(ctx, &st, gs[1:], outs[1:])
	return joinOutcomes(t, gs, outs)
}

// settleSome settles in some slots, at the same time.
func (s *Store) settleSome(ctx context.Context, t *store.Settlement, gs []group, outs []store.Outcome) {
	sts, reqs := make([]store.Settlement, len(gs)), make([]request, len(gs))
	for i := range gs {
		sts[i] = *t
		sts[i].Buckets, sts[i].Known = gs[i].buckets(t.Buckets), gs[i].known(t.Known)
		reqs[i] = settleRequest(&sts[i])
		reqs[i].settle, reqs[i].outcome = &sts[i], &outs[i]
		reqs[i].setKnown(sts[i].Known, &outs[i].Histories)
	}
	err := s.carryOut(ctx, "settle", reqs)
	for i := range reqs {
		if e := cmp.Or(err, reqs[i].err); e != nil {
			outs[i] = store.Outcome{Err: e}
		}
	}
}

// joinOutcomes joins what the slots answered.
func joinOutcomes(t *store.Settlement, gs []group, outs []store.Outcome) (out store.Outcome) {
	ends := t.Op == store.OpSettle || t.Op == store.OpCancel
	out.Gone, out.Kept = ends || t.Op == store.OpRenew, t.Op == store.OpPause
	failed := 0
	for g := range outs {
		o := &outs[g]
		if o.Err != nil {
			failed++
			// That nothing was done is true of a slot only: what is unknown of another one says
			// more.
			if out.Err == nil || errors.Is(o.Err, store.ErrUnknownOutcome) &&
				!errors.Is(out.Err, store.ErrUnknownOutcome) {
				out.Err = o.Err
			}
			continue
		}
		out.Gone = out.Gone && o.Gone
		if t.Op == store.OpPause {
			out.Kept = out.Kept && o.Kept
		} else {
			out.Kept = out.Kept || o.Kept
		}
		// A holder may rely on the hold that ends first; a pause lasts until the last one has
		// ended.
		first := t.Op == store.OpRenew && !o.Gone && (out.End.IsZero() || o.End.Before(out.End))
		if first || t.Op != store.OpRenew && o.End.After(out.End) {
			out.End = o.End
		}
		for k, i := range gs[g].at {
			if len(o.Histories) > 0 {
				if out.Histories == nil {
					out.Histories = make([]store.History, len(t.Buckets))
				}
				out.Histories[i] = o.Histories[k]
			}
			if len(o.Corrected) > 0 && o.Corrected[k] {
				if out.Corrected == nil {
					out.Corrected = make([]bool, len(t.Buckets))
				}
				out.Corrected[i] = true
			}
			if len(o.Back) > 0 && o.Back[k] != (store.Amounts{}) {
				if out.Back == nil {
					out.Back = make([]store.Amounts, len(t.Buckets))
				}
				out.Back[i] = o.Back[k]
			}
		}
	}
	if failed > 0 && failed < len(outs) { // it was carried out in the others
		se, ok := errors.AsType[*store.Error](out.Err)
		if !ok {
			se = &store.Error{Store: "redis", Op: "settle", Err: out.Err}
		}
		return store.Outcome{Err: &store.Error{
			Store: se.Store, Op: se.Op, Fault: se.Fault,
			Err: fmt.Errorf("%w: it was carried out in %d of %d slots: %s", store.ErrUnknownOutcome, len(outs)-failed,
				len(outs), se.Err.Error()), // not wrapped: in these slots, too, nobody may take it for not done
		}}
	}
	if out.Err != nil {
		return store.Outcome{Err: out.Err}
	}
	return out
}

// withHistories adds the histories to the outcome of a settlement that found nothing to do.
func (s *Store) withHistories(ctx context.Context, t *store.Settlement, o store.Outcome) store.Outcome {
	if len(t.Known) == 0 {
		return o
	}
	buckets := slices.Clone(t.Buckets)
	for i := range buckets {
		buckets[i].N = store.Amounts{}
	}
	looks, err := s.lookAt(ctx, &store.Take{}, buckets, t.Known)
	if err != nil {
		return store.Outcome{Err: err}
	}
	for i := range looks {
		o.Histories = append(o.Histories, looks[i].state.Histories...)
		o.Histories[i].Gone = o.Gone
	}
	return o
}

// keptLease reports whether a renewal would find a lease with a paused bucket, which is renewed in
// none of them.
func (s *Store) keptLease(ctx context.Context, t *store.Settlement) (out store.Outcome, kept bool, err error) {
	ks, err := s.lookForID(ctx, "settle", t.Buckets, t.ID)
	if err != nil {
		return out, false, err
	}
	for i := range ks {
		k := &ks[i]
		if !k.open || k.grant != t.Grant {
			continue
		}
		kept = kept || k.lease && k.paused
		if end := time.UnixMicro(k.end); out.End.IsZero() || end.Before(out.End) {
			out.End = end
		}
	}
	out.Kept = true
	return out, kept, nil
}

// latest returns the instant that the latest of some buckets' clocks shows.
func (s *Store) latest(ctx context.Context, buckets []store.BucketCost) (time.Time, error) {
	ks, err := s.lookForID(ctx, "settle", buckets, "")
	if err != nil {
		return time.Time{}, err
	}
	now := int64(0)
	for i := range ks {
		now = max(now, ks[i].now)
	}
	return time.UnixMicro(now), nil
}
