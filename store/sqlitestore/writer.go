package sqlitestore

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/drawgate/drawgate/internal/journal"
	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
)

// maxBatch is the most takes and settlements in one transaction: many enough to share a sync, few
// enough to take only a few milliseconds.
const maxBatch = 1024

// writer is the goroutine that owns the connection. Calls that arrive during a transaction run as
// one batch in the next.
type writer struct {
	s        *Store
	repaired repairMark
	conn     *conn // nil after an error that the connection may have caused: the next transaction opens it again
	cache    *cache

	commits   int64    // how many transactions have changed the database
	counter   *counter // nil: none
	uncounted bool     // it was logged that the counter fails

	version   int64     // of the data, as of the last transaction; 0: unknown. A write by another process changes it
	epoch     int64     // incremented when version changes
	contended bool      // another process recently wrote, or held the lock
	logsAt    time.Time // when the log's identity was last checked
	held      bool      // no transaction can begin: Store.held says why
	locked    time.Time // since when another process has had the lock, as far as known; zero if it does not

	batch  []*call
	dirty  []*bucket // to be written in this transaction
	events []event   // to be written in this transaction
	wrote  bool      // this transaction has already written something
	recs   []*record.Record
	bkts   []*bucket
	buf    []byte
	memo   unitsMemo

	lines       *lineFile
	places      []*record.Line         // of the buckets of a take
	awaited     map[store.Key]*awaited // where this process left tickets
	looked      time.Time              // when it was last looked for what other processes did
	lookedEpoch int64                  // the epoch at that time

	cleaner
}

// errNobody means that all callers left while the transaction waited for its lock.
var errNobody = errors.New("nobody is waiting any more")

func (w *writer) run() {
	defer close(w.s.done)
	defer w.lines.close()
	defer w.closeConn()
	for {
		w.lookAround()
		n, reads, closed := w.s.waiting()
		switch {
		case n > 0:
			if w.overdue() {
				w.clean(lateRows)
			}
			w.transact(reads)
			// Callers that were just answered run first: their next call then joins the next batch.
			w.yield()
		case closed:
			w.leaveLines()
			return
		case w.due():
			w.clean(idleRows)
		default:
			w.rest()
		}
	}
}

// closeConn closes the connection, which moves the log into the file if no other process has it
// open. The mark is closed with it, so that a disk that fails can be mounted again.
func (w *writer) closeConn() {
	w.counter.close()
	w.counter = nil
	if w.conn != nil {
		if err := w.conn.close(); err != nil {
			w.s.opts.Logger.Warn("sqlitestore: closing the database", "error", explain(err))
		}
		w.conn = nil
	}
}

// polite is how long the writer leaves the lock alone if other processes want it too: they try
// about every millisecond.
const polite = 300 * time.Microsecond

func (w *writer) yield() {
	if w.contended {
		time.Sleep(rand.N(polite))
		return
	}
	runtime.Gosched()
}

// transact answers one batch.
func (w *writer) transact(reads bool) {
	err := w.begin(reads)
	if errors.Is(err, errNobody) {
		return
	}
	switch {
	case err == nil:
		w.batch = w.s.gather(w.batch[:0], reads, maxBatch)
	case busy(err) && !w.locked.IsZero(): // later callers keep waiting
		w.batch = w.s.overdue(w.batch[:0], w.outOfPatience(time.Now()))
	default:
		w.batch = w.s.gather(w.batch[:0], false, forever)
	}
	if err == nil {
		if err = w.process(w.batch, w.s.now()); err == nil {
			err = w.commit()
		} else {
			w.abort(err)
		}
	}
	if err != nil {
		err = explain(err)
		w.s.setBroken(err)
	}
	for i, c := range w.batch {
		c.err = err
		c.done <- struct{}{}
		w.batch[i] = nil
	}
	w.cache.shrink()
}

// begin begins a transaction and finds out what has changed since the last one. If it returns an
// error, no transaction has begun.
func (w *writer) begin(reads bool) error {
	if err := w.s.isBroken(); err != nil {
		return err
	}
	err := w.tryBegin(reads)
	if !errors.Is(err, errNobody) {
		w.hold(err)
	}
	return err
}

// hold records why no transaction can begin, or nil if one can.
func (w *writer) hold(err error) {
	if err == nil && !w.held {
		return
	}
	w.held = err != nil
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.s.held = err
}

func (w *writer) tryBegin(reads bool) error {
	if err := w.dial(); err != nil {
		return err
	}
	if err := w.lock(reads); err != nil {
		if !errors.Is(err, errNobody) && !busy(err) {
			w.abort(err)
		}
		return err
	}
	if err := w.look(); err != nil {
		w.abort(err)
		return err
	}
	w.lines.sync(!reads)
	return nil
}

// open opens the database for the first time.
func (w *writer) open() error {
	if err := same(w.s.main, w.s.path, ""); err != nil {
		return err
	}
	f, c, err := connect(w.s.path, &w.s.opts)
	if err != nil {
		return err
	}
	next, err := firstPass(c, w.s.now())
	if err != nil {
		return errors.Join(explain(err), c.close())
	}
	w.conn, w.repaired, w.commits, w.counter, w.next = c, f.repaired, f.commits, w.s.count(f), next
	w.s.file.Store(f)
	return nil
}

// dial opens the connection again, and only to the same file.
func (w *writer) dial() error {
	if w.conn != nil {
		return nil
	}
	if w.s.file.Load() == nil {
		return w.open()
	}
	if err := w.s.file.Load().check(false); err != nil {
		return err
	}
	path, main := w.s.file.Load().path, w.s.file.Load().main
	c, err := dial(path, "rw")
	if err != nil {
		return err
	}
	f, err := vet(path, c, &w.s.opts)
	if err == nil {
		err = same(main, path, "")
	}
	if err != nil {
		return errors.Join(err, c.close())
	}
	w.conn, w.version, w.counter = c, 0, w.s.count(f)
	w.s.file.Store(f)
	return nil
}

// longestWait is the longest time between two attempts to get a lock that another process has.
const longestWait = 2 * time.Millisecond

// outOfPatience returns an instant: calls that arrived before it have waited for the lock for as
// long as they may, counted from their arrival or from when the lock was taken.
func (w *writer) outOfPatience(now time.Time) time.Time {
	before := now.Add(longestWait - w.s.opts.busyTimeout())
	if !w.locked.Before(before) {
		return time.Time{}
	}
	return before
}

// lock begins the transaction. While another process holds the lock, callers may leave; if all
// have, lock gives up. It fails once the longest-waiting call has used up its time.
func (w *writer) lock(reads bool) error {
	q := qBegin
	if reads {
		q = qBeginRead
	}
	for wait := 50 * time.Microsecond; ; wait = min(2*wait, longestWait) {
		_, err := w.conn.exec(q)
		if !busy(err) {
			w.locked = time.Time{}
			return err
		}
		w.contended = true
		now := time.Now()
		if w.locked.IsZero() {
			w.locked = now
			w.hold(err)
		}
		asked, waiting := w.s.oldest()
		if !waiting {
			return errNobody
		}
		if asked.Before(w.outOfPatience(now)) {
			return err
		}
		time.Sleep(wait/2 + rand.N(wait))
	}
}

// look drops the cached state if another process has written, and checks that the file is still the
// one that was opened.
func (w *writer) look() error {
	version, _, err := w.conn.number(qVersion)
	if err != nil {
		return err
	}
	if version != w.version {
		known := w.s.file.Load().schema
		if schema, _, err := w.conn.number(qSchema); err != nil || schema != known {
			return cmp.Or(err, newer(schema, known)) // a newer program has opened the file
		}
		commits, err := readCommits(w.conn)
		if err != nil {
			return err
		}
		if commits < w.commits {
			return lost(w.s.file.Load().path, w.commits-commits)
		}
		w.commits = commits
		w.epoch++
		w.contended = w.version != 0
		w.version = version
	} else if w.contended && rand.N(8) == 0 { // nobody else writes any more
		w.contended = false
	}
	logs := time.Since(w.logsAt) >= checkLogs || w.s.checkLogs.Swap(false)
	if logs {
		w.logsAt = time.Now()
		w.lines.check()
	}
	return w.s.file.Load().check(logs)
}

// commit writes the changes of the batch.
func (w *writer) commit() error {
	changed := w.wrote || len(w.dirty) > 0 || len(w.events) > 0
	err := w.write()
	if err == nil && changed {
		_, err = w.conn.exec(qSetMeta, metaCommits, w.commits+1)
	}
	if err == nil {
		w.lines.flush() // before the lock is released
		_, err = w.conn.exec(qCommit)
	}
	if err != nil {
		w.abort(err)
	} else if changed {
		w.count()
	}
	w.reset()
	return err
}

// count writes the number of a transaction that was committed into the mark. That it cannot be
// written is no reason to refuse what was taken.
func (w *writer) count() {
	w.commits++
	if w.s.opts.committed != nil {
		w.s.opts.committed()
	}
	if err := w.counter.raise(w.commits); err != nil && !w.uncounted {
		w.uncounted = true
		w.s.uncounted(err)
	}
}

func (w *writer) write() error {
	for _, b := range w.dirty {
		if err := w.flush(b); err != nil {
			return err
		}
	}
	return w.conn.addAll(w.events)
}

func (w *writer) reset() {
	clear(w.dirty)
	clear(w.events)
	w.dirty, w.events, w.wrote = w.dirty[:0], w.events[:0], false
}

// abort ends a transaction after an error. The state in memory may now be wrong.
func (w *writer) abort(err error) {
	w.reset()
	w.cache.clear()
	w.lines.forget()
	if w.conn == nil {
		return
	}
	_, rollback := w.conn.exec(qRollback) // after some errors SQLite has already rolled back
	switch c := code(err); {
	case c == codeFull || c == codeBusy || c == codeLocked:
	case rollback != nil || c != 0:
		w.closeConn()
	}
}

// process answers a batch. An error applies to all of it.
func (w *writer) process(batch []*call, now int64) error {
	for _, c := range batch {
		var err error
		switch c.op {
		case "take":
			for i := 0; i < len(c.takes) && err == nil; i++ {
				c.decisions[i], err = w.take(&c.takes[i], now)
			}
		case "settle":
			for i := 0; i < len(c.settlements) && err == nil; i++ {
				c.outcomes[i], err = w.settle(&c.settlements[i], now)
			}
		case "peek":
			for i := 0; i < len(c.buckets) && err == nil; i++ {
				c.statuses[i], err = w.peek(&c.buckets[i], c.priority, now)
			}
		case "reset":
			for i := 0; i < len(c.keys) && err == nil; i++ {
				err = w.forget(c.keys[i], now)
			}
		case "withdraw":
			for _, k := range c.keys {
				w.withdraw(c.number, k, now)
			}
		case "write":
			err = w.writeDocuments(c.write)
		case "ping":
			w.wrote = true
			_, err = w.conn.exec(qSetMeta, metaPinged, now)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// fetchAll loads the records of buckets into w.recs.
func (w *writer) fetchAll(buckets []store.BucketCost, now int64) error {
	w.recs, w.bkts = w.recs[:0], w.bkts[:0]
	for i := range buckets {
		b, err := w.fetch(buckets[i].Key)
		if err != nil {
			return err
		}
		w.repaired.fill(b, buckets[i].Plan, now)
		w.recs, w.bkts = append(w.recs, b.rec), append(w.bkts, b)
	}
	return nil
}

// take decides one take.
func (w *writer) take(t *store.Take, now int64) (store.Verdict, error) {
	if err := t.Check(); err != nil {
		return store.Verdict{Fail: err}, nil
	}
	if err := w.fetchAll(t.Buckets, now); err != nil {
		if isBucket(err) {
			return store.Verdict{Fail: storeError("take", explain(err))}, nil
		}
		return store.Verdict{}, err
	}
	w.keepMustPersist(t.Buckets, now)
	d := w.decide(t, now)
	if d.Replayed {
		for _, b := range w.bkts {
			if slices.Contains(b.rec.Changes.Touched, t.ID) { // its units were newly taken
				w.mark(b, now)
			}
		}
	}
	if !d.Allowed || d.Replayed {
		return d, nil
	}
	var labels []byte
	if len(t.Labels) > 0 {
		labels = labelBytes(t.Labels)
	}
	for i, b := range w.bkts {
		n := t.Buckets[i].N
		if t.ID != "" {
			n = d.Granted(i) // a lease may be granted in part
		}
		units := w.memo.units(t.Buckets[i].Plan, n)
		w.mark(b, now)
		w.note(event{at: now, op: journal.Take, key: b.key, units: units, id: t.ID, labels: labels})
		if t.ID != "" {
			b.notes[t.ID] = note{units, labels}
		}
	}
	return d, nil
}

// settle carries out one settlement.
func (w *writer) settle(st *store.Settlement, now int64) (store.Outcome, error) {
	if err := st.Check(); err != nil {
		return store.Outcome{Err: err}, nil
	}
	if err := w.fetchAll(st.Buckets, now); err != nil {
		if isBucket(err) {
			return store.Outcome{Err: storeError(st.Op.String(), explain(err))}, nil
		}
		return store.Outcome{}, err
	}
	var open [store.MaxBuckets]*record.Open
	var paused [store.MaxBuckets]*record.Pause
	now = w.keepMustPersist(st.Buckets, now)
	for i, rec := range w.recs {
		rec.Advance(store.Internal.Specs(st.Buckets[i].Plan, true), now) // a hold that is over by now is not settled
		if o := rec.Open[st.ID]; o != nil && o.Grant == uint64(st.Grant) {
			open[i] = o
		}
		paused[i] = rec.Pause
	}
	out := w.apply(st, now)
	w.noteCorrected(st, &out, now)
	if out.Gone || out.Err != nil {
		return out, nil
	}
	switch st.Op {
	case store.OpSettle, store.OpCancel, store.OpRefund, store.OpUnpause:
		w.s.watchers.hintAll(st.Buckets)
	}
	for i, b := range w.bkts {
		switch {
		case st.Op == store.OpPause, st.Op == store.OpUnpause:
			w.notePause(st, b, paused[i], now)
		case st.Op != store.OpRefund:
			w.noteSettled(st, &st.Buckets[i], b, open[i], now)
		case out.Back != nil && out.Back[i] != store.Amounts{}:
			w.mark(b, now)
			w.note(event{
				at: now, op: journal.Refund, key: b.key,
				units: journal.Units(st.Buckets[i].Plan.Policy().Limits,
					out.Back[i], 0), labels: labelBytes(st.Labels),
			})
		}
	}
	return out, nil
}

// keepMustPersist has buckets written if this caller's limits advance them differently from other
// callers' limits, whatever is decided. It returns the instant to which they are advanced.
func (w *writer) keepMustPersist(buckets []store.BucketCost, now int64) int64 {
	for _, rec := range w.recs {
		now = max(now, rec.Last)
	}
	for i, b := range w.bkts {
		if b.rec.MustPersist(store.Internal.Specs(buckets[i].Plan, true), now) {
			b.rec.Advance(store.Internal.Specs(buckets[i].Plan, true), now)
			w.mark(b, now)
		}
	}
	return now
}

// notePause records in the history that a bucket's pause began or ended, if it did. before is its
// pause until then.
func (w *writer) notePause(st *store.Settlement, b *bucket, before *record.Pause, now int64) {
	e := event{at: now, op: journal.Pause, key: b.key}
	switch after := b.rec.Pause; after {
	case before:
		return
	case nil:
		e.op, e.labels = journal.Unpause, labelBytes(journal.PauseLabels(st, before))
	default:
		e.labels = labelBytes(journal.PauseLabels(st, after))
	}
	w.mark(b, now)
	w.note(e)
}

// noteSettled records in the history what a settlement did to one bucket.
func (w *writer) noteSettled(st *store.Settlement, bc *store.BucketCost, b *bucket, open *record.Open, now int64) {
	if open == nil && st.Op != store.OpCharge {
		return
	}
	w.mark(b, now)
	e := event{at: now, key: b.key, id: st.ID, labels: b.notes[st.ID].labels}
	switch st.Op {
	case store.OpRenew:
		return
	case store.OpSettle:
		e.op, e.units = journal.Settle, journal.Settled(bc, open)
	case store.OpCancel:
		e.op = journal.Cancel
	case store.OpCharge:
		e.op, e.units, e.id, e.labels = journal.Charge, journal.Charged(bc), "", labelBytes(st.Labels)
	}
	w.note(e)
	if st.Op != store.OpCharge {
		delete(b.notes, st.ID)
	}
}

// noteCorrected records in the history what a settlement gave back of holds that had ended.
func (w *writer) noteCorrected(st *store.Settlement, out *store.Outcome, now int64) {
	for i, yes := range out.Corrected {
		if !yes {
			continue
		}
		b := w.bkts[i]
		w.mark(b, now)
		if out.Back == nil || out.Back[i] == (store.Amounts{}) {
			continue
		}
		w.s.watchers.hint(b.key)
		units := journal.Units(st.Buckets[i].Plan.Policy().Limits, out.Back[i], 0)
		w.note(event{at: now, op: journal.Refund, key: b.key, id: st.ID, units: units, labels: labelBytes(st.Labels)})
	}
}

// peek describes one bucket.
func (w *writer) peek(bc *store.BucketCost, priority int8, now int64) (store.State, error) {
	if err := bc.Check(priority); err != nil {
		return store.State{Verdict: store.Verdict{Fail: err}}, nil
	}
	b, err := w.fetch(bc.Key)
	switch {
	case err == nil:
		w.repaired.fill(b, bc.Plan, now)
		var line *record.Line
		if x := w.lines.lines[bc.Key]; x != nil {
			line = x.decode(max(now, b.rec.Last))
		}
		return store.Internal.Describe(bc, b.rec, line, priority, true, now), nil
	case isBucket(err):
		return store.State{Verdict: store.Verdict{Fail: storeError("peek", explain(err))}}, nil
	}
	return store.State{}, err
}

// mark has a bucket written in this transaction, and records the holds that ended.
func (w *writer) mark(b *bucket, now int64) {
	if !b.dirty {
		b.dirty = true
		w.dirty = append(w.dirty, b)
	}
	for _, e := range b.rec.Changes.Ended {
		n := b.notes[e.ID]
		w.note(event{at: now, op: journal.Expire, key: b.key, units: n.units, id: e.ID, labels: n.labels})
		delete(b.notes, e.ID)
	}
	clear(b.rec.Changes.Ended)
	b.rec.Changes.Ended = b.rec.Changes.Ended[:0]
}

// note adds an event to the history. What this module counts for itself is in none.
func (w *writer) note(e event) {
	if w.s.opts.HistoryFor > 0 && !strings.HasPrefix(e.key.Policy, store.OwnPolicies) {
		w.events = append(w.events, e)
	}
}
