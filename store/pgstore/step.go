package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/drawgate/drawgate/internal/journal"
	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/pgstore/internal/pg"
)

// step is a transaction that answers several calls. It takes two round trips: the rows are locked
// in the order of their keys and read, with the clock; what has changed is written, and committed.
// Between the two everything is decided here, by package record.
type step struct {
	s      *Store
	calls  []*call
	number uint64 // of the transaction, in the marks

	keys   []string // of the rows, sorted
	rows   map[string]*row
	full   map[string]bool // rows of which no take is granted: they would become too large
	now    int64
	events []event
	sent   time.Time // when the commit was sent
}

// stepTime bounds a transaction: callers leave by their own deadlines.
const stepTime = 5 * time.Second

// transact answers a batch.
func (s *Store) transact(batch []*call) {
	ctx, cancel := context.WithTimeout(s.life, stepTime)
	defer cancel()
	answered, err := s.attempts(ctx, batch)
	switch {
	case answered:
	case len(batch) > 1 && ofData(err): // of one call, which is not to fail the others
		for i := range batch {
			s.transact(batch[i : i+1])
		}
	default:
		for _, c := range batch {
			c.err = err
			c.done <- struct{}{}
		}
	}
}

// attempts carries out a transaction, again if it is certain that nothing was done and another
// connection may help. answered reports whether the calls have their answers.
func (s *Store) attempts(ctx context.Context, batch []*call) (answered bool, err error) {
	full := map[string]bool{}
	for tries := 0; ; tries++ {
		st := &step{s: s, calls: s.waiting(batch), number: s.steps.Add(1), full: full}
		if len(st.calls) == 0 {
			return false, errNobody
		}
		err = st.run(ctx)
		switch {
		case err == nil:
			st.answer()
			return true, nil
		case errors.Is(err, errDoubt):
			if done, known := st.lookUp(err); !known {
				return false, fmt.Errorf("%w: %w", store.ErrUnknownOutcome, err)
			} else if done {
				st.answer()
				return true, nil
			}
			err = fmt.Errorf("%w: %w", store.ErrNothingDone, err)
			if s.link.pool.Load() != nil {
				s.link.pool.Load().Reset()
			}
		case errors.Is(err, errTooLarge):
			tries-- // more rows are full than before
			err = fmt.Errorf("%w: %w", store.ErrNothingDone, err)
		case errors.Is(err, errRows):
		case code(err) == codeDeadlock, code(err) == codeSerialization, code(err) == codeDivision:
			err = fmt.Errorf("%w: %w", store.ErrNothingDone, err)
		default:
			again := s.link.mend(err)
			err = fmt.Errorf("%w: %w", store.ErrNothingDone, err)
			if !again {
				return false, err
			}
		}
		if tries >= 3 || ctx.Err() != nil {
			return false, err
		}
	}
}

var (
	errNobody = errors.New("nobody is waiting any more")
	errRows   = fmt.Errorf("%w: rows were removed meanwhile, or row level security hides them from this role", store.ErrNothingDone)
	errDoubt  = errors.New("the answer to a commit was lost")
)

// run carries out the transaction. Unless the error is errDoubt, nothing was done.
func (st *step) run(ctx context.Context) error {
	conn, err := st.s.link.acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release() // it is closed if it is within a transaction
	if err := st.lock(ctx, conn); err != nil {
		return err
	}
	st.s.at(ctx, "locked")
	st.decide()
	changes := st.changes()
	if len(changes) == 0 {
		st.answer() // nobody waits for the locks to be given back
		st.calls, st.keys = nil, nil
		_, _ = conn.Exec(ctx, rollback) // without an answer the connection is closed, which is the same
		return nil
	}
	return st.write(ctx, conn, changes)
}

func (s *Store) at(ctx context.Context, step string) {
	if s.opts.between != nil {
		s.opts.between(ctx, step)
	}
}

const (
	begin    = "BEGIN ISOLATION LEVEL READ COMMITTED" // whatever the database's default is
	rollback = "ROLLBACK"
)

// lock locks and reads the rows. Those that are new are inserted first, in the order of their keys:
// nobody waits for one whose key comes later than those that it has.
func (st *step) lock(ctx context.Context, conn *pg.Conn) error {
	st.collect()
	b := &pg.Batch{}
	b.Add(begin)
	b.Add(st.s.sql.begin)
	if keys, parts := st.unknown(); len(keys) > 0 {
		b.Add(st.s.sql.insert, keys, parts)
	}
	b.Query(st.read, st.s.sql.lock, st.keys)
	if _, err := conn.Run(ctx, b); err != nil {
		return err
	}
	return st.complete()
}

// complete reports rows that were not found, and notes which are there for others, too: a row that
// was committed has a mark.
func (st *step) complete() error {
	missing, there := false, st.keys[:0:0]
	for _, k := range st.keys {
		switch r := st.rows[k]; {
		case !r.there:
			missing = true
			st.s.known.remove(k)
		case len(r.marks) > 0:
			there = append(there, k)
		}
	}
	st.s.known.add(there)
	if missing {
		return errRows
	}
	return nil
}

// collect lists the rows of the calls.
func (st *step) collect() {
	st.rows = map[string]*row{}
	for _, c := range st.calls {
		for i := range c.keys {
			k := c.keys[i]
			if st.rows[k.row] == nil {
				st.rows[k.row] = &row{keyed: k}
				st.keys = append(st.keys, k.row)
			}
		}
	}
	slices.Sort(st.keys)
}

// unknown returns the rows of which it is not known that they are there.
func (st *step) unknown() (keys []string, parts [][]byte) {
	for _, k := range st.keys {
		if st.s.known.has(k) {
			continue
		}
		keys = append(keys, k)
		var p []byte
		if text := st.rows[k].parts; text != "" {
			p = []byte(text)
		}
		parts = append(parts, p)
	}
	return keys, parts
}

// read reads one row.
func (st *step) read(columns pg.Row) error {
	var key, place string
	var rec, line, notes, marks []byte
	var clock time.Time
	if err := columns.Scan(&key, &place, &rec, &line, &notes, &marks, &clock); err != nil {
		return err
	}
	if r := st.rows[key]; r != nil {
		r.place = place
		r.fill(rec, line, notes, marks)
	}
	st.now = max(st.now, st.s.now(clock))
	return nil
}

// write writes what has changed and commits.
func (st *step) write(ctx context.Context, conn *pg.Conn, changes []*row) error {
	b := &pg.Batch{}
	large := false
	for _, r := range changes {
		if !st.queue(b, r) {
			large, st.full[r.row] = true, true
		}
	}
	if large {
		_, _ = conn.Exec(ctx, rollback) // without an answer the connection is closed, which is the same
		return errTooLarge
	}
	st.queueEvents(b)
	b.Add("COMMIT")
	st.sent = time.Now()
	err := commit(ctx, conn, b)
	st.s.at(ctx, "committed")
	switch {
	case err == nil:
		return nil
	case refused(err):
		return err
	}
	return fmt.Errorf("%w: %w", errDoubt, err)
}

var (
	errRolledBack = errors.New("the server rolled the transaction back")
	errLocal      = errors.New("the server committed, but was kept from waiting for its standby")
)

// commit sends a batch of statements of which the last one commits, and reads the answers.
func commit(ctx context.Context, conn *pg.Conn, b *pg.Batch) error {
	notes := conn.Data()
	delete(notes, notWaited)
	tags, err := conn.Run(ctx, b)
	switch {
	case len(tags) < b.Len():
		return err
	case tags[len(tags)-1].String() != "COMMIT":
		return errRolledBack
	case notes[notWaited] != nil:
		return errLocal
	}
	return nil // whatever came after the answer to the commit
}

// queue adds the writing of a row, and reports whether it is small enough.
func (st *step) queue(b *pg.Batch, r *row) bool {
	var line, notes []byte
	if r.line != nil {
		line = r.line.Append(nil)
	}
	if len(r.notes) > 0 {
		notes = r.noteBytes()
	}
	at, held := until(r.rec)
	rec := []byte{}
	if r.rec.Last != 0 {
		rec = record.Append(nil, r.rec, record.Whole)
	}
	if max(len(rec), len(notes)) > MostRecord && r.taken {
		return false
	}
	r.marks = r.marks.set(st.s.process, st.number, st.now)
	// Cleaning leaves a row for a while from now: its marks may be looked up, and its tickets
	// count.
	b.Add(st.s.sql.update, r.row, r.place, max(at, st.now), held, rec, line, notes, r.marks.bytes())
	return true
}

// lookUp finds out whether a transaction was committed whose answer was lost: it waits until the
// row is no longer locked, and so the transaction has ended, and looks for its mark. If the server
// cannot be asked before all callers have left, nothing is known.
func (st *step) lookUp(cause error) (done, known bool) {
	ctx, cancel := context.WithTimeout(st.s.life, lookTime)
	defer cancel()
	r := st.changes()[0]
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, lookAgain) {
		done, known, err := st.look(ctx, r)
		if err == nil {
			return done, done || known && time.Since(st.sent) < markLife*time.Microsecond
		}
		st.s.link.mend(err)
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
		}
		if ctx.Err() != nil || len(st.s.waiting(st.calls)) == 0 {
			st.s.opts.Logger.Warn("pgstore: the answer to a commit was lost and could not be looked up", "error", cause)
			return false, false
		}
	}
}

const (
	lookTime  = 10 * time.Second // how long a lost answer is looked up
	lookAgain = 500 * time.Millisecond
)

// look looks once for the transaction's mark. It inserts the row first, and takes that back: a row
// that the transaction has inserted is seen by nobody until it ends, but for those who insert it,
// too, and wait for that. If the transaction has ended, a standby for which the server waits may
// not have it yet: this one commits then, which waits for that.
func (st *step) look(ctx context.Context, r *row) (done, known bool, err error) {
	conn, err := st.s.link.acquire(ctx)
	if err != nil {
		return false, false, err
	}
	defer conn.Release()
	var text []byte
	if r.parts != "" {
		text = []byte(r.parts)
	}
	var b []byte
	var clock time.Time
	look := &pg.Batch{}
	look.Add(begin)
	look.Add(st.s.sql.insert, []string{r.row}, [][]byte{text})
	look.Query(func(row pg.Row) error { return row.Scan(&b, &clock) }, st.s.sql.marks, r.row)
	if _, err := conn.Run(ctx, look); err != nil {
		return false, false, err
	}
	if done, known = parseMarks(b).has(st.s.process, st.number); done {
		end := &pg.Batch{}
		end.Add("COMMIT")
		err = commit(ctx, conn, end)
	} else {
		_, err = conn.Exec(ctx, rollback)
	}
	if err != nil {
		return false, false, err
	}
	// Marks are dropped by the server's clock.
	return done, done || known && st.s.now(clock)-st.now < markLife, nil
}

// changes returns the rows that have to be written.
func (st *step) changes() (all []*row) {
	for _, k := range st.keys {
		if r := st.rows[k]; r.dirty || r.line != nil && r.line.Changed {
			st.mark(r)
			all = append(all, r)
		}
	}
	return all
}

// answer answers the calls, and tells those who wait.
func (st *step) answer() {
	for _, c := range st.calls {
		c.done <- struct{}{}
	}
	for _, k := range st.keys {
		if r := st.rows[k]; r.freed {
			st.s.announce(r)
		}
	}
}

// decide decides all calls, in order.
func (st *step) decide() {
	for _, c := range st.calls {
		switch c.op {
		case "take":
			keys := c.keys
			for i := range c.takes {
				n := len(c.takes[i].Buckets)
				c.verdicts[i] = st.take(&c.takes[i], keys[:n])
				keys = keys[n:]
			}
		case "settle":
			keys := c.keys
			for i := range c.settlements {
				n := len(c.settlements[i].Buckets)
				c.outcomes[i] = st.settle(&c.settlements[i], keys[:n])
				keys = keys[n:]
			}
		case "reset":
			for i := range c.keys {
				st.reset(st.rows[c.keys[i].row])
			}
		case "withdraw":
			for i := range c.keys {
				if r := st.rows[c.keys[i].row]; r.line != nil && r.line.Remove(c.number) {
					r.line.Changed, r.freed = true, true
				}
			}
		}
	}
}

// of returns the rows of buckets, and their records.
func (st *step) of(keys []keyed) (rows []*row, recs []*record.Record, err error) {
	rows, recs = make([]*row, len(keys)), make([]*record.Record, len(keys))
	for i := range keys {
		r := st.rows[keys[i].row]
		if r.err != nil {
			return nil, nil, r.err
		}
		rows[i], recs[i] = r, r.rec
	}
	return rows, recs, nil
}

// take decides one take.
func (st *step) take(t *store.Take, keys []keyed) store.Verdict {
	if err := t.Check(); err != nil {
		return store.Verdict{Fail: err}
	}
	rows, recs, err := st.of(keys)
	if err != nil {
		return store.Verdict{Fail: storeError("take", err)}
	}
	for _, r := range rows {
		if st.full[r.row] {
			return store.Verdict{Fail: nothingDone("take", errTooLarge)}
		}
	}
	st.keepMustPersist(t.Buckets, rows)
	if t.Ticket != nil {
		st.s.watchers.await(keys)
	}
	v := st.decideInLine(t, rows, recs)
	if v.Replayed {
		for _, r := range rows {
			if slices.Contains(r.rec.Changes.Touched, t.ID) { // its units were newly taken
				r.taken = true
				st.mark(r)
			}
		}
	}
	if !v.Allowed || v.Replayed {
		return v
	}
	for i, r := range rows {
		n := t.Buckets[i].N
		if t.ID != "" {
			n = v.Granted(i) // a lease may be granted in part
		}
		r.taken = true
		st.mark(r)
		if !st.s.keepsHistory(t.Buckets[i].Key) {
			continue
		}
		units := journal.Units(t.Buckets[i].Plan.Policy().Limits, n, 0)
		st.note(event{op: journal.Take, key: r.key, units: units, id: t.ID, labels: t.Labels})
		if t.ID != "" {
			r.keep(t.ID, note{units, t.Labels})
		}
	}
	return v
}

// keep notes what the history will say of a reservation.
func (r *row) keep(id string, n note) {
	if r.notes == nil {
		r.notes = map[string]note{}
	}
	r.notes[id] = n
}

// decideInLine decides a take with the lines of its buckets, if anybody waits there or the take
// may.
func (st *step) decideInLine(t *store.Take, rows []*row, recs []*record.Record) store.Verdict {
	lines := st.lines(rows, t.Ticket != nil)
	if lines == nil {
		return store.Internal.Decide(t, recs, false, st.now)
	}
	v := store.Internal.DecideInLine(t, recs, lines, false, st.now)
	st.keepLines(rows, lines, v.Allowed)
	return v
}

// ticketLife is longer than any ticket lives, in µs.
const ticketLife = 2 * record.MostLife

// lines returns the lines of buckets, or nil if nobody waits for any of them; with ticket empty
// ones, too, because a ticket may be left there.
func (st *step) lines(rows []*row, ticket bool) []*record.Line {
	some := ticket
	lines := make([]*record.Line, len(rows))
	for i, r := range rows {
		if r.line != nil { // of which a clock that was set back would keep some for long
			last := max(st.now, r.rec.Last) + ticketLife
			n := len(r.line.Tickets)
			r.line.Tickets = slices.DeleteFunc(r.line.Tickets, func(x record.Ticket) bool { return x.End > last })
			r.line.Changed = r.line.Changed || len(r.line.Tickets) != n
		}
		if r.line == nil && ticket {
			r.line = &record.Line{}
		}
		lines[i] = r.line
		some = some || r.line != nil
	}
	if !some {
		return nil
	}
	return lines
}

// keepLines notes that a ticket has gone, or left its place to the next one.
func (st *step) keepLines(rows []*row, lines []*record.Line, allowed bool) {
	for i, l := range lines {
		if l != nil && l.Changed && allowed {
			rows[i].freed = true
		}
	}
}

// settle carries out one settlement.
func (st *step) settle(s *store.Settlement, keys []keyed) store.Outcome {
	if err := s.Check(); err != nil {
		return store.Outcome{Err: err}
	}
	rows, recs, err := st.of(keys)
	if err != nil {
		return store.Outcome{Err: storeError(s.Op.String(), err)}
	}
	var open [store.MaxBuckets]*record.Open
	var paused [store.MaxBuckets]*record.Pause
	now := st.keepMustPersist(s.Buckets, rows)
	for i, r := range rows {
		r.rec.Advance(store.Internal.Specs(s.Buckets[i].Plan, false), now) // a hold that is over by now is not settled
		if o := r.rec.Open[s.ID]; o != nil && o.Grant == uint64(s.Grant) {
			open[i] = o
		}
		paused[i] = r.rec.Pause
	}
	lines := st.lines(rows, false)
	out := store.Internal.ApplyInLine(s, recs, lines, false, now)
	st.keepLines(rows, lines, false)
	st.noteCorrected(s, rows, &out)
	if out.Gone || out.Err != nil {
		return out
	}
	for i, r := range rows {
		switch s.Op {
		case store.OpSettle, store.OpCancel, store.OpRefund, store.OpUnpause:
			r.freed = true
		default:
		}
		switch {
		case s.Op == store.OpPause, s.Op == store.OpUnpause:
			st.notePause(s, r, paused[i])
		case s.Op != store.OpRefund:
			st.noteSettled(s, &s.Buckets[i], r, open[i])
		case out.Back != nil && out.Back[i] != store.Amounts{}:
			st.mark(r)
			st.note(event{
				op: journal.Refund, key: r.key, units: journal.Units(s.Buckets[i].Plan.Policy().Limits, out.Back[i], 0),
				labels: s.Labels,
			})
		}
	}
	return out
}

// keepMustPersist has buckets written if this caller's limits advance them differently from other
// callers' limits, whatever is decided. It returns the instant to which they are advanced.
func (st *step) keepMustPersist(buckets []store.BucketCost, rows []*row) int64 {
	now := st.now
	for _, r := range rows {
		now = max(now, r.rec.Last)
	}
	for i, r := range rows {
		specs := store.Internal.Specs(buckets[i].Plan, false)
		if r.rec.MustPersist(specs, now) {
			r.rec.Advance(specs, now)
			st.mark(r)
		}
	}
	return now
}

// reset forgets a bucket, even one that cannot be read. Those who wait for it stay.
func (st *step) reset(r *row) {
	r.rec, r.err, r.notes = &record.Record{Changes: &record.Changes{}}, nil, nil
	r.dirty, r.freed = true, true
}

// mark has a bucket written in this transaction, and records the holds that ended.
func (st *step) mark(r *row) {
	r.dirty = true
	for _, e := range r.rec.Changes.Ended {
		n := r.notes[e.ID]
		st.note(event{op: journal.Expire, key: r.key, units: n.units, id: e.ID, labels: n.labels})
		delete(r.notes, e.ID)
	}
	r.rec.Changes.Ended = r.rec.Changes.Ended[:0]
}

// keepsHistory reports whether the history has what happens to a bucket: it has nothing of what
// this module counts for itself.
func (s *Store) keepsHistory(k store.Key) bool {
	return s.opts.HistoryFor > 0 && !strings.HasPrefix(k.Policy, store.OwnPolicies)
}

// Peek implements [store.Store]. It waits for no transaction.
func (s *Store) Peek(ctx context.Context, buckets []store.BucketCost, priority int8, out []store.State) error {
	keys := make([]string, len(buckets))
	for i := range buckets {
		keys[i] = rowOf(buckets[i].Key).row
	}
	if len(keys) == 0 {
		return s.usable()
	}
	return s.query(ctx, "peek", s.sql.look, []any{keys}, func(r pg.Row) error {
		var i int
		var clock time.Time
		var rec, line []byte
		if err := r.Scan(&i, &clock, &rec, &line); err != nil {
			return err
		}
		b := &buckets[i-1]
		out[i-1] = s.describe(b, rec, line, priority, s.now(clock))
		return nil
	})
}

// describe describes one bucket.
func (s *Store) describe(b *store.BucketCost, bytes, places []byte, priority int8, now int64) store.State {
	if err := b.Check(priority); err != nil {
		return store.State{Verdict: store.Verdict{Fail: err}}
	}
	rec, err := decodeRecord(bytes)
	if err != nil {
		return store.State{Verdict: store.Verdict{Fail: storeError("peek", err)}}
	}
	var line *record.Line
	if len(places) > 0 {
		line = record.DecodeLine(places)
	}
	return store.Internal.Describe(b, rec, line, priority, false, now)
}
