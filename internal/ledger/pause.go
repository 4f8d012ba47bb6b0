package ledger

import (
	"math"
	"slices"
	"time"

	"github.com/drawgate/drawgate/store"
)

// pause returns the entry's pause, if it is in force.
func (e *entry) pause(now int64) store.Pause {
	if e.paused <= now {
		return store.Pause{}
	}
	return store.Pause{Until: store.Internal.Instant(e.paused), Reason: e.reason}
}

// setPause makes a pause last until an instant, or longer if it already does.
func (e *entry) setPause(until int64, reason string, now int64) {
	if until > max(now, e.paused) {
		e.paused, e.since, e.reason = until, now, reason
	}
}

// clearPause ends a pause if the store's answer, as of that instant, shows none. A pause that the
// store has not received, or received later, stays.
func (e *entry) clearPause(at int64) {
	if at <= e.since {
		return
	}
	for _, it := range e.items {
		if it.kind == pauseItem {
			return
		}
	}
	e.paused, e.reason = 0, ""
}

// learnPause records a pause that the store had at an instant. One that lasts longer, and of which
// this process had learned before, was ended there meanwhile.
func (e *entry) learnPause(until int64, reason string, at int64, now Now) {
	if until != e.paused {
		e.clearPause(at)
		e.setPause(until, reason, now.Store)
	}
}

// endPause ends the pause that ends at until, and no other, unless a pause with the same end is
// still pending: it was made later.
func (e *entry) endPause(until int64) {
	if e.paused != until {
		return
	}
	for _, it := range e.items {
		if it.kind == pauseItem && !it.spent && it.st.At.UnixMicro() == until {
			return
		}
	}
	e.paused, e.reason = 0, ""
}

// Pause records the store's answer about a bucket's pause, as of an instant.
func (l *Ledger) Pause(now Now, key store.Key, p store.Pause, at int64) {
	until := int64(0)
	if !p.Until.IsZero() {
		until = p.Until.UnixMicro()
	}
	if until <= now.Store {
		if e := l.entries.byKey[key]; e != nil {
			e.clearPause(at)
			l.entries.release(e)
		}
		return
	}
	if e := l.entries.ensure(key, now); e != nil {
		e.learnPause(until, p.Reason, at, now)
	}
}

// notePauses learns of pauses from the store's decisions. A refusal because of a pause says until
// when; a take that is allowed, and was not open before, shows that there is none.
func (l *Ledger) notePauses(now Now, r *Request, d *store.Verdict) {
	switch {
	case d.Fail != nil || d.Replayed:
	case d.Allowed:
		for i := range r.parts {
			if e := r.parts[i].e; e != nil && e.paused != 0 {
				e.clearPause(d.At().UnixMicro())
			}
		}
	case d.Reason == store.Paused && len(r.parts) == 1:
		// With several buckets, the decision does not say which one is paused; a peek at each does.
		p := &r.parts[0]
		if p.e == nil {
			p.e = l.entries.ensure(p.key, now)
		}
		if p.e != nil {
			p.e.learnPause(pauseEnd(d), "", d.At().UnixMicro(), now)
		}
	}
}

// pauseEnd returns until when a bucket is paused, according to a decision.
func pauseEnd(d *store.Verdict) int64 {
	at, us := d.At().UnixMicro(), d.RetryAfter.Microseconds()
	if us > math.MaxInt64-at {
		return math.MaxInt64
	}
	return at + us
}

// paused returns until when one of the take's buckets is paused, on the store's clock; 0 if none
// is.
func (c *local) paused() (until int64) {
	for i := range c.parts {
		if e := c.parts[i].e; e != nil && e.paused > c.now.Store {
			until = max(until, e.paused)
		}
	}
	return until
}

// pausedAny reports whether one of the buckets is paused.
func (l *Ledger) pausedAny(now Now, buckets []store.BucketCost) bool {
	for i := range buckets {
		if e := l.entries.byKey[buckets[i].Key]; e != nil && e.paused > now.Store {
			return true
		}
	}
	return false
}

// refusePaused refuses a take because a bucket is paused.
func (c *local) refusePaused(until int64) store.Verdict {
	v := c.refuse()
	d := c.answer(&v)
	wait := time.Duration(math.MaxInt64)
	if us := until - v.Now; us < math.MaxInt64/1000 {
		wait = time.Duration(us) * time.Microsecond
	}
	d.Reason, d.RetryAfter = store.Paused, max(wait, d.RetryAfter)
	return d
}

// pausePending reports whether the store must first have a pause of one of the buckets, or the end
// of one.
func (l *Ledger) pausePending(buckets []store.BucketCost) bool {
	for i := range buckets {
		if e := l.entries.byKey[buckets[i].Key]; e != nil && e.lastPause() != nil {
			return true
		}
	}
	return false
}

// lastPause returns the last item that is a pause, or ends one.
func (e *entry) lastPause() *item {
	for _, it := range slices.Backward(e.items) {
		if it.kind == pauseItem || it.kind == unpauseItem {
			return it
		}
	}
	return nil
}

// keepPause keeps a pause that was set during an outage. It is not ok if there is no room.
func (l *Ledger) keepPause(now Now, st *store.Settlement) (o store.Outcome, ok bool) {
	until := st.At.UnixMicro()
	if st.Hold > 0 {
		until = now.Store + st.Hold.Microseconds()
	}
	es := make([]*entry, 0, len(st.Buckets))
	for i := range st.Buckets {
		e := l.entries.ensure(st.Buckets[i].Key, now)
		if e == nil {
			for _, e := range es {
				l.entries.release(e)
			}
			return o, false
		}
		es = append(es, e)
	}
	end := int64(0)
	o.Kept = true
	for i, e := range es {
		if until > max(now.Store, e.paused) {
			e.setPause(until, st.Reason, now.Store)
			l.pendPause(now, e, &st.Buckets[i], st.Labels)
		}
		end, o.Kept = max(end, e.paused), o.Kept && e.paused > max(now.Store, until)
		l.entries.release(e)
	}
	o.End = store.Internal.Instant(end)
	return o, true
}

// pendPause makes an entry's pause pending.
func (l *Ledger) pendPause(now Now, e *entry, b *store.BucketCost, labels []store.Label) {
	st := store.Settlement{
		Op: store.OpPause, At: store.Internal.Instant(e.paused), Reason: e.reason,
		Labels: slices.Clone(labels),
	}
	st.Buckets = []store.BucketCost{{Key: b.Key, Plan: b.Plan}}
	// The store must have an unpause that was made before this pause before it, too.
	if it := e.lastPause(); it != nil && it.kind == pauseItem && !it.inFlight {
		it.st, it.spent = st, false
		return
	}
	l.pend(now, &item{kind: pauseItem, st: st}, []*entry{e})
}

// keepUnpause ends pauses during an outage, here and, once the store is back, there. A bucket that
// is paused until another instant, as far as this process knows, is left as it is: it returns when
// the last of these pauses ends. It is not ok if there is no room.
func (l *Ledger) keepUnpause(now Now, st *store.Settlement) (end int64, ok bool) {
	until, ok := st.At.UnixMicro(), true
	for i := range st.Buckets {
		e := l.entries.ensure(st.Buckets[i].Key, now)
		switch {
		case e == nil:
			ok = false
			continue
		case e.paused > now.Store && e.paused != until:
			end = max(end, e.paused)
		default:
			l.pendUnpause(now, e, &st.Buckets[i], st)
			e.endPause(until)
		}
		l.entries.release(e)
	}
	return end, ok
}

// pendUnpause makes the end of an entry's pause pending. A pause that is itself pending need not be
// delivered any more, but the store may have it: its delivery may be under way, or its answer lost.
func (l *Ledger) pendUnpause(now Now, e *entry, b *store.BucketCost, st *store.Settlement) {
	for _, it := range e.items {
		it.spent = it.spent || it.kind == pauseItem && it.st.At.Equal(st.At)
	}
	one := *st
	one.Buckets, one.Labels = []store.BucketCost{{Key: b.Key, Plan: b.Plan}}, slices.Clone(st.Labels)
	l.pend(now, &item{kind: unpauseItem, st: one}, []*entry{e})
}
