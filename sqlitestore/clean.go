package sqlitestore

import (
	"database/sql/driver"
	"errors"
	"time"

	"github.com/drawgate/drawgate"
)

// Cleaning goes through the file once a day, in steps of a few milliseconds, while nobody asks anything.
const (
	cleanEvery = 24 * time.Hour
	cleanRetry = time.Minute // after a step that failed
)

// metaCleaned is the name under which it is stored when the last pass began.
const metaCleaned = "cleaned"

// metaPinged is what a ping writes: the instant.
const metaPinged = "pinged"

// afterHold is how long after the end of its hold a reservation may still count beyond what its record alone says: the longest margin of a limit.
const afterHold = int64(10 * time.Minute / time.Microsecond)

// cleaner is the state of the pass that is under way.
type cleaner struct {
	next    int64 // µs: when the next pass, or the next step of this one, is due
	began   int64 // µs: when this pass began; 0: none is under way
	history bool  // the history is done
	cursor  int64 // keys up to here are done
}

func (w *writer) due() bool { return w.s.isBroken() == nil && w.s.now() >= w.next }

// rest waits for a call, or for the next cleaning.
func (w *writer) rest() {
	wait := cleanEvery
	if d := w.next - w.s.now(); d > 0 {
		wait = min(wait, time.Duration(d)*time.Microsecond)
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-w.s.wake:
	case <-t.C:
	}
}

// clean makes one step.
func (w *writer) clean() {
	now := w.s.now()
	err := w.begin(false)
	if err == nil {
		if err = w.cleanStep(now); err != nil {
			w.abort(err)
		} else if w.wrote || len(w.events) > 0 {
			err = w.commit()
		} else {
			w.reset()
			_, err = w.conn.exec(qRollback)
		}
	}
	if err == nil {
		return
	}
	w.next = now + cleanRetry.Microseconds()
	if errors.Is(err, errNobody) { // another process has the lock: later
		return
	}
	err = explain(err)
	w.s.setBroken(err)
	w.s.opts.Logger.Warn("sqlitestore: cleaning failed and is tried again", "error", err)
}

func (w *writer) cleanStep(now int64) error {
	switch {
	case w.began == 0:
		return w.beginPass(now)
	case !w.history:
		return w.cleanHistory(now)
	}
	return w.cleanStates(now)
}

// nextPass returns when the next pass is due: a day after the last one began, whichever process made it.
func nextPass(c *conn) (int64, error) {
	last, ok, err := c.number(qMeta, metaCleaned)
	if err != nil || !ok {
		return 0, err
	}
	return last + cleanEvery.Microseconds(), nil
}

// beginPass begins a pass, unless another process has made it meanwhile.
func (w *writer) beginPass(now int64) error {
	due, err := nextPass(w.conn)
	if err != nil {
		return err
	}
	if now < due {
		w.next = due
		return nil
	}
	w.began, w.history, w.cursor = now, false, 0
	return nil
}

// cleanHistory deletes the oldest rows.
func (w *writer) cleanHistory(now int64) error {
	horizon := now - w.s.opts.HistoryFor.Microseconds()
	if w.s.opts.HistoryFor < 0 {
		horizon = now - historyFor.Microseconds()
	}
	rows, old, upTo := 0, 0, int64(0)
	err := w.conn.query(qOldEvents, func(row []driver.Value) error {
		seq, _ := row[0].(int64)
		at, _ := row[1].(int64)
		if rows == old && at < horizon {
			upTo = seq
			old++
		}
		rows++
		return nil
	})
	if err != nil || old == 0 {
		w.history = true
		return err
	}
	w.history = old < rows || rows == 0
	w.wrote = true
	_, err = w.conn.exec(qDropEvents, upTo)
	return err
}

// cleanStates deletes the next buckets of which nothing is used any more.
func (w *writer) cleanStates(now int64) error {
	type found struct {
		id, until int64
		key       drawgate.Key
	}
	var idle []found
	rows := 0
	err := w.conn.query(qStates, func(row []driver.Value) error {
		var f found
		f.id, _ = row[0].(int64)
		f.until, _ = row[1].(int64)
		f.key.Tenant, _ = row[2].(string)
		f.key.Policy, _ = row[3].(string)
		f.key.Name, _ = row[4].(string)
		if f.until <= now || f.until == forever {
			idle = append(idle, f)
		}
		w.cursor = f.id
		rows++
		return nil
	}, w.cursor)
	if err != nil {
		return err
	}
	if rows == 0 {
		return w.endPass()
	}
	for _, f := range idle {
		if f.until == forever {
			if over, err := w.over(f.key, now); err != nil || !over {
				if err != nil && !isBucket(err) {
					return err
				}
				continue
			}
		}
		if err := w.drop(f.id); err != nil {
			return err
		}
		if b := w.cache.buckets[f.key]; b != nil {
			w.cache.remove(b)
		}
	}
	return nil
}

// over reports whether nothing is used of a bucket that had open reservations when it was written, and notes that they ended.
func (w *writer) over(key drawgate.Key, now int64) (bool, error) {
	b, err := load(w.conn, key)
	if err != nil {
		return false, err
	}
	b.rec.Advance(nil, now)
	for i := range b.rec.Limits { // without their rules, limits are not advanced
		if st := &b.rec.Limits[i]; st.Held > 0 {
			return false, nil
		}
	}
	if len(b.rec.Open) > 0 || b.rec.Until() > now-afterHold {
		return false, nil
	}
	for _, e := range b.rec.Changes.Ended {
		n := b.notes[e.ID]
		w.note(event{at: now, op: opExpire, key: key, units: n.units, id: e.ID, labels: n.labels})
	}
	return true, nil
}

// endPass ends a pass.
func (w *writer) endPass() error {
	w.next = w.began + cleanEvery.Microseconds()
	began := w.began
	w.began = 0
	w.wrote = true
	_, err := w.conn.exec(qSetMeta, metaCleaned, began)
	return err
}
