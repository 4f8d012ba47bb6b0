package sqlitestore

import (
	"context"
	"os"

	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
)

// Withdraw implements [store.Liner]. If ctx ends, it behaves as [Store.Take].
func (s *Store) Withdraw(ctx context.Context, number uint64, keys []store.Key) error {
	if len(keys) == 0 {
		return s.usable()
	}
	c := s.get("withdraw")
	c.keys, c.number = append(c.keys[:0], keys...), number
	if err := s.do(ctx, c); err != nil {
		return err
	}
	s.put(c)
	return nil
}

// KeepsLine implements [store.Liner].
func (s *Store) KeepsLine() bool { return !s.opts.noLines }

// decide decides one take on the records in w.recs, and changes the lines of its buckets.
func (w *writer) decide(t *store.Take, now int64) store.Verdict {
	lines := w.linesOf(t.Buckets, t.Ticket != nil, now)
	if lines == nil {
		return store.Internal.Decide(t, w.recs, true, now)
	}
	d := store.Internal.DecideInLine(t, w.recs, lines, true, now)
	w.keepLines(t.Buckets, lines)
	if t.Ticket != nil && !d.Allowed && d.Fail == nil {
		for i := range t.Buckets {
			w.await(&t.Buckets[i], now)
		}
	}
	return d
}

// apply carries out one settlement on the records in w.recs, and changes the lines of its buckets.
func (w *writer) apply(st *store.Settlement, now int64) store.Outcome {
	lines := w.linesOf(st.Buckets, false, now)
	out := store.Internal.ApplyInLine(st, w.recs, lines, true, now)
	w.keepLines(st.Buckets, lines)
	return out
}

// keepLines notes which lines have changed.
func (w *writer) keepLines(buckets []store.BucketCost, lines []*record.Line) {
	for i, l := range lines {
		if l != nil && l.Changed {
			w.lines.set(buckets[i].Key, l)
		}
	}
}

// linesOf returns the lines of buckets, or nil if nobody waits for any of them; with ticket empty
// ones, too, because a ticket may be left there.
func (w *writer) linesOf(buckets []store.BucketCost, ticket bool, now int64) []*record.Line {
	if !w.lines.usable() || !ticket && len(w.lines.lines) == 0 {
		return nil
	}
	some := ticket
	w.places = w.places[:0]
	for i := range buckets {
		var l *record.Line
		if x := w.lines.lines[buckets[i].Key]; x != nil {
			l, some = x.decode(max(now, w.recs[i].Last)), true
		} else if ticket {
			l = &record.Line{}
		}
		w.places = append(w.places, l)
	}
	if !some {
		return nil
	}
	return w.places
}

// withdraw removes a ticket from the line of a bucket.
func (w *writer) withdraw(number uint64, key store.Key, now int64) {
	x := w.lines.lines[key]
	if x == nil {
		return
	}
	if l := x.decode(now); l.Remove(number) {
		w.lines.set(key, l)
		w.s.watchers.hint(key)
	}
}

// cleanLines drops the next lines whose tickets are over, and empties a file that has none.
func (w *writer) cleanLines(now int64, most int) {
	if w.lineKeys == nil {
		w.lineKeys = make([]store.Key, 0, len(w.lines.lines))
		for k := range w.lines.lines {
			w.lineKeys = append(w.lineKeys, k)
		}
	}
	n := min(most, len(w.lineKeys))
	w.dropOver(w.lineKeys[:n], now)
	w.lineKeys = w.lineKeys[n:]
	w.lined = len(w.lineKeys) == 0
}

// dropOver drops those of some lines whose tickets are over. The write lock is held.
func (w *writer) dropOver(keys []store.Key, now int64) {
	for _, k := range keys {
		x := w.lines.lines[k]
		if x == nil {
			continue
		}
		l := x.decode(now)
		if l.Expire(now); l.Changed {
			w.lines.set(k, l)
		}
	}
	w.lines.flush()
	if len(w.lines.lines) == 0 && w.lines.end > 0 {
		if err := w.lines.truncate(); err != nil {
			w.lines.fail(err)
		}
	}
}

// leaveLines empties the file of lines when the store is closed, if nobody waits.
func (w *writer) leaveLines() {
	if w.conn == nil || w.lines.f == nil || w.begin(false) != nil {
		return
	}
	keys := make([]store.Key, 0, len(w.lines.lines))
	for k := range w.lines.lines {
		keys = append(keys, k)
	}
	w.dropOver(keys, w.s.now())
	if w.lines.f != nil && len(w.lines.lines) == 0 && w.s.lock.alone() {
		_ = os.Remove(w.lines.path) // an empty one does no harm
	}
	_, _ = w.conn.exec(qRollback) // nothing was changed
}
