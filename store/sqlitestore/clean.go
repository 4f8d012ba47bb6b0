package sqlitestore

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/drawgate/drawgate/internal/journal"
	"github.com/drawgate/drawgate/store"
)

// Cleaning goes through the file in steps of a few milliseconds while the store is idle. If it
// never is, steps run between transactions.
const (
	cleanEvery = 24 * time.Hour  // the history
	sweepEvery = 2 * time.Minute // unused buckets
	cleanRetry = time.Minute     // after a step that failed
	grace      = time.Minute     // how long an unused bucket is kept: clocks are sometimes set back
	openPause  = time.Second     // after opening: many programs make one take and end

	late     = time.Minute           // how long cleaning waits for the store to be idle
	lateStep = 20 * time.Millisecond // then: time between two steps
)

// Step sizes.
const (
	idleRows = 256
	lateRows = 128
	rowsPage = 4 // looking at rows is this many times faster than moving pages
)

// Names under which the start of the last passes is stored.
const (
	metaCleaned = "cleaned" // over the history
	metaSwept   = "swept"   // over the buckets; if nothing had to be done, only updated every hour
)

// sweptFor is the age of metaSwept from which a store cleans right after it is opened: other
// programs did not run long enough to clean.
const sweptFor = time.Hour

// metaPinged stores the time of the last ping.
const metaPinged = "pinged"

// afterHold is how long after its end a reservation may still count in ways that its record alone
// does not show: the longest margin of a limit.
const afterHold = int64(10 * time.Minute / time.Microsecond)

// cleaner is the state of the current pass.
type cleaner struct {
	next    int64 // µs: when the next pass or step is due
	began   int64 // µs: start of this pass; 0: none is running
	stepped int64 // µs: time of the last step
	whole   bool  // this pass includes the history
	lined   bool  // the lines are done
	history bool  // the history is done
	states  bool  // the buckets are done
	cursor  int64 // keys up to here are done
	removed bool  // this pass removed rows
	shrank  bool  // this pass gave pages back

	lineKeys []store.Key // lines that are not done; nil: none is
}

func (w *writer) due() bool { return w.s.isBroken() == nil && w.s.now() >= w.next }

// overdue reports whether a step must run although the store is busy.
func (w *writer) overdue() bool {
	now := w.s.now()
	return now-w.next >= late.Microseconds() && now-w.stepped >= lateStep.Microseconds() && w.s.isBroken() == nil
}

// rest waits for a call, or for the next cleaning.
func (w *writer) rest() {
	wait := sweepEvery
	if d := w.next - w.s.now(); d > 0 {
		wait = min(wait, time.Duration(d)*time.Microsecond)
	}
	if len(w.awaited) > 0 && w.s.watchers.some.Load() {
		wait = min(wait, lookEvery)
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-w.s.wake:
	case <-t.C:
	}
}

// clean makes one step over at most so many rows.
func (w *writer) clean(rows int) {
	now := w.s.now()
	w.stepped = now
	err := w.begin(false)
	if err == nil {
		if err = w.cleanStep(now, rows); err != nil {
			w.abort(err)
		} else if w.wrote || len(w.events) > 0 {
			err = w.commit()
		} else {
			w.reset()
			_, err = w.conn.exec(qRollback)
		}
	}
	if err == nil {
		if w.began == 0 && w.shrank { // the file gets shorter when the log is moved into it
			w.shrank = false
			_ = w.conn.emptyLog() // if another process is reading, the log is moved later
		}
		return
	}
	w.next = now + cleanRetry.Microseconds()
	if errors.Is(err, errNobody) || busy(err) { // another process has the lock: try later
		return
	}
	err = explain(err)
	w.s.setBroken(err)
	w.s.opts.Logger.Warn("sqlitestore: cleaning failed and will be tried again", "error", err)
}

func (w *writer) cleanStep(now int64, rows int) error {
	switch {
	case w.began == 0:
		return w.beginPass(now)
	case !w.lined && w.lines.f != nil:
		w.cleanLines(now, rows)
		return nil
	case !w.history:
		return w.cleanHistory(now)
	case !w.states:
		return w.cleanStates(now, rows)
	}
	more, err := w.giveBack(rows / rowsPage)
	if err != nil || more {
		return err
	}
	return w.endPass(now)
}

// firstPass returns when a newly opened store first cleans.
func firstPass(c *conn, now int64) (int64, error) {
	swept, _, err := c.number(qMeta, metaSwept)
	if err != nil || swept+sweptFor.Microseconds() < now {
		return now, err
	}
	return max(swept+sweepEvery.Microseconds(), now+openPause.Microseconds()), nil
}

// beginPass starts a pass, unless another process has just made one.
func (w *writer) beginPass(now int64) error {
	swept, _, err := w.conn.number(qMeta, metaSwept)
	if err != nil {
		return err
	}
	cleaned, _, err := w.conn.number(qMeta, metaCleaned)
	if err != nil {
		return err
	}
	if due := swept + sweepEvery.Microseconds(); now < due {
		w.next = due
		return nil
	}
	whole := now >= cleaned+cleanEvery.Microseconds()
	w.cleaner = cleaner{next: w.next, stepped: w.stepped, began: now, whole: whole, history: !whole}
	return nil
}

// cleanHistory deletes the oldest rows of the history.
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
	w.wrote, w.removed = true, true
	_, err = w.conn.exec(qDropEvents, upTo)
	return err
}

// cleanStates deletes the next unused buckets.
func (w *writer) cleanStates(now int64, most int) error {
	type found struct {
		id, until int64
		key       store.Key
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
		if f.until <= now-grace.Microseconds() || f.until == forever {
			idle = append(idle, f)
		}
		w.cursor = f.id
		rows++
		return nil
	}, w.cursor, int64(most))
	if err != nil {
		return err
	}
	w.states = rows < most
	for _, f := range idle {
		if f.until == forever {
			if over, err := w.over(f.key, now); err != nil || !over {
				if err != nil && !isBucket(err) {
					return err
				}
				continue
			}
		}
		w.removed = true
		if err := w.drop(f.id); err != nil {
			return err
		}
		if b := w.cache.buckets[f.key]; b != nil {
			w.cache.remove(b)
		}
	}
	return nil
}

// over reports whether a bucket that had open reservations when it was written is now unused, and
// records that they ended.
func (w *writer) over(key store.Key, now int64) (bool, error) {
	b, err := load(w.conn, key, nil)
	if err != nil {
		return false, err
	}
	b.rec.Advance(nil, now)
	for i := range b.rec.Limits { // limits without their rules are not advanced
		if st := &b.rec.Limits[i]; st.Held > 0 {
			return false, nil
		}
	}
	if len(b.rec.Open) > 0 || b.rec.Until() > now-afterHold {
		return false, nil
	}
	for _, e := range b.rec.Changes.Ended {
		n := b.notes[e.ID]
		w.note(event{at: now, op: journal.Expire, key: key, units: n.units, id: e.ID, labels: n.labels})
	}
	return true, nil
}

// autoVacuum is SQLite's mode "incremental": the file gives pages back on request. It must be set
// before the first table is made; older files do not have it.
const autoVacuum = 2

// keptFree returns how many free pages a file of this size keeps for reuse.
func keptFree(pages int64) int64 { return 64 + pages/8 }

// giveBack returns at most so many free pages to the file system, and reports whether there are
// more.
func (w *writer) giveBack(most int) (more bool, err error) {
	var n [3]int64
	for i, pragma := range [...]string{"auto_vacuum", "page_count", "freelist_count"} {
		if n[i], err = number(w.conn, pragma); err != nil {
			return false, err
		}
	}
	over := n[2] - keptFree(n[1])
	if n[0] != autoVacuum || over <= 0 {
		return false, nil
	}
	w.wrote, w.shrank = true, true
	_, err = w.conn.pragma(fmt.Sprintf("incremental_vacuum(%d)", min(over, int64(most))))
	return true, err
}

// endPass ends a pass.
func (w *writer) endPass(now int64) error {
	began := w.began
	w.next, w.began = now+sweepEvery.Microseconds(), 0
	swept, _, err := w.conn.number(qMeta, metaSwept)
	if err != nil {
		return err
	}
	// do not write an unused file all day
	if w.removed || w.shrank || w.whole || began-swept >= sweptFor.Microseconds() {
		w.wrote = true
		if _, err := w.conn.exec(qSetMeta, metaSwept, began); err != nil {
			return err
		}
	}
	if w.whole {
		_, err = w.conn.exec(qSetMeta, metaCleaned, began)
	}
	return err
}
