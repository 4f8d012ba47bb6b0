package ledger

import (
	"math"
	"slices"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/answer"
)

// pause returns the entry's pause, if it is in force.
func (e *entry) pause(now int64) drawgate.Pause {
	if e.paused <= now {
		return drawgate.Pause{}
	}
	return drawgate.Pause{Until: answer.Instant(e.paused), Reason: e.reason}
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

// endPause ends the pause that ends at until, and no other.
func (e *entry) endPause(until int64) {
	if e.paused == until {
		e.paused, e.reason = 0, ""
	}
}

// Pause records the store's answer about a bucket's pause, as of an instant.
func (l *Ledger) Pause(now Now, key drawgate.Key, p drawgate.Pause, at int64) {
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
		e.setPause(until, p.Reason, now.Store)
	}
}

// notePauses learns of pauses from the store's decisions. A refusal because of a pause says until
// when; a take that is allowed, and was not open before, shows that there is none.
func (l *Ledger) notePauses(now Now, r *Request, d *drawgate.Decision) {
	switch {
	case d.Fail != nil || d.Replayed:
	case d.Allowed:
		for i := range r.parts {
			if e := r.parts[i].e; e != nil && e.paused != 0 {
				e.clearPause(d.At().UnixMicro())
			}
		}
	case d.Reason == drawgate.Paused && len(r.parts) == 1:
		// With several buckets, the decision does not say which one is paused; a peek at each does.
		p := &r.parts[0]
		if p.e == nil {
			p.e = l.entries.ensure(p.key, now)
		}
		if p.e != nil {
			p.e.setPause(pauseEnd(d), "", now.Store)
		}
	}
}

// pauseEnd returns until when a bucket is paused, according to a decision.
func pauseEnd(d *drawgate.Decision) int64 {
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
func (l *Ledger) pausedAny(now Now, buckets []drawgate.BucketCost) bool {
	for i := range buckets {
		if e := l.entries.byKey[buckets[i].Key]; e != nil && e.paused > now.Store {
			return true
		}
	}
	return false
}

// refusePaused refuses a take because a bucket is paused.
func (c *local) refusePaused(until int64) drawgate.Decision {
	v := c.refuse()
	d := c.answer(&v)
	wait := time.Duration(math.MaxInt64)
	if us := until - v.Now; us < math.MaxInt64/1000 {
		wait = time.Duration(us) * time.Microsecond
	}
	d.Reason, d.RetryAfter = drawgate.Paused, max(wait, d.RetryAfter)
	return d
}

// keepPause keeps a pause that was set during an outage. It is not ok if there is no room.
func (l *Ledger) keepPause(now Now, st *drawgate.Settlement) (o drawgate.Outcome, ok bool) {
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
	o.End = answer.Instant(end)
	return o, true
}

// pendPause makes an entry's pause pending. If the same pause was ended before, that end need not be
// delivered any more: it would end this one.
func (l *Ledger) pendPause(now Now, e *entry, b *drawgate.BucketCost, labels []drawgate.Label) {
	st := drawgate.Settlement{Op: drawgate.OpPause, At: answer.Instant(e.paused), Reason: e.reason, Labels: slices.Clone(labels)}
	st.Buckets = []drawgate.BucketCost{{Key: b.Key, Plan: b.Plan}}
	var pending *item
	for _, it := range e.items {
		switch {
		case it.kind == unpauseItem && it.st.At.Equal(st.At):
			it.spent = true
		case it.kind == pauseItem && !it.inFlight:
			pending = it
		}
	}
	if pending != nil {
		pending.st, pending.spent = st, false
		return
	}
	l.pend(now, &item{kind: pauseItem, st: st}, []*entry{e})
}

// keepUnpause ends pauses during an outage, here and, once the store is back, there. A bucket that
// is paused until another instant, as far as this process knows, is left as it is: it returns when
// the last of these pauses ends. It is not ok if there is no room.
func (l *Ledger) keepUnpause(now Now, st *drawgate.Settlement) (end int64, ok bool) {
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
			e.endPause(until)
			l.pendUnpause(now, e, &st.Buckets[i], st)
		}
		l.entries.release(e)
	}
	return end, ok
}

// pendUnpause makes the end of an entry's pause pending. A pause that is itself pending need not be
// delivered any more, but the store may have it: its delivery may be under way, or its answer lost.
func (l *Ledger) pendUnpause(now Now, e *entry, b *drawgate.BucketCost, st *drawgate.Settlement) {
	for _, it := range e.items {
		it.spent = it.spent || it.kind == pauseItem && it.st.At.Equal(st.At)
	}
	one := *st
	one.Buckets, one.Labels = []drawgate.BucketCost{{Key: b.Key, Plan: b.Plan}}, slices.Clone(st.Labels)
	l.pend(now, &item{kind: unpauseItem, st: one}, []*entry{e})
}
