package drawgate

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drawgate/drawgate/internal/queue"
	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
)

// defaultQueue bounds a bucket's line where the policy does not.
const defaultQueue = 10_000

// waitQueue is where the callers of one process wait: a line per bucket. Only the first waiter of a
// line asks the store.
//
// Where the store keeps a line of all processes, and units are kept for priorities, there is a line
// for each class of priorities that may use the same units: nobody stands behind those who may use
// less than it may. The store orders the first ones of these lines. While it does not, as during an
// outage behind a guard, they are one line.
type waitQueue struct {
	start   time.Time     // for ranks
	watch   store.Watcher // nil: the store gives no hints
	liner   store.Liner   // nil: the store keeps no line
	closed  atomic.Bool
	ended   chan struct{} // closed by close
	some    atomic.Int64  // waiters in all lines, and one more once it is closed
	wakeups atomic.Uint64 // counts them, of all lines
	late    time.Duration // for tests: by how much every timer is late

	mu      sync.Mutex
	keeps   bool                      // guarded by mu: the store kept a line when it was looked at last
	lines   map[lineKey]*line         // guarded by mu; none is empty
	classes uint8                     // guarded by mu: that there were, at most
	waiters map[*queue.Waiter]*waiter // guarded by mu: all who wait in them
	several map[Key]map[*waiter]bool  // guarded by mu: of these, who need several buckets, by each of them
	numbers map[uint64]*waiter        // guarded by mu: by those of their tickets
	places  queue.Places              // guarded by mu
	stop    func()                    // guarded by mu: ends the hints
	journey queue.Journey             // guarded by mu: to the store and back
}

// lineKey names a line: of a bucket, and the class of those in it.
type lineKey struct {
	Key
	class uint8
}

// line is who waits for one bucket, and what is known about the first one; both times are zero
// until it has been refused there.
type line struct {
	queue.Line
	next     time.Time    // it is going to try again
	earliest time.Time    // it passes no earlier
	by       obstacle     // what refused the first one last, whoever that was
	pause    *pauseReason // nil: nobody has asked for it
	ends     time.Time    // the pause, by what the first one was told
	amounts  *Plan        // of the first who came
	kept     bool         // the store keeps a line of the bucket, too
	stands   standing     // in that line, the first one, as of its last refusal
	others   int          // of other processes, before it
	clock    queue.Clock  // that the line goes by, while somebody waits here
	mixed    bool         // others have different amounts: it is not known how long their units take
	left     int64        // units of the limit in by that count once the first one fits, without its own
	// who have a deadline, and came to stand behind others before the first one was refused: it was
	// not known for how long
	unsure map[*queue.Waiter]bool
}

// held reports whether open reservations hold what the first one needs. With others in front in the
// store's line an early retry says no such thing, as they may leave; but slots are always held.
func (ln *line) held() bool {
	return ln.by.held && (ln.others == 0 || ln.by.limit >= 0 &&
		ln.by.plan.specs[ln.by.limit].Kind == record.Concurrency)
}

// waiter is a take that waits: in the line of its bucket at, which is the one that refused it
// longest, or has others in front.
type waiter struct {
	*queue.Waiter
	take     *take
	at       int
	in       lineKey // guarded by waitQueue.mu: the line
	since    time.Time
	deadline time.Time   // zero: none
	invited  atomic.Bool // it may ask once although it is not in front
	asks     atomic.Bool // or is about to, and has no answer yet
	named    time.Time   // guarded by waitQueue.mu: when the store was told of it; zero: never
	corrects bool        // guarded by waitQueue.mu: the last answer found others before it who came later
	progress *reporter   // nil: nobody wants to know
}

// plan returns the policy of the bucket in whose line w waits.
func (w *waiter) plan() *Plan { return w.take.plans[w.at] }

// bucket returns the bucket in whose line w waits.
func (w *waiter) bucket() *store.BucketCost { return &w.take.Buckets[w.at] }

func newWaitQueue(s store.Store) *waitQueue {
	w, _ := s.(store.Watcher)
	l, _ := s.(store.Liner)
	return &waitQueue{
		start: time.Now(), watch: w, liner: l, ended: make(chan struct{}), lines: make(map[lineKey]*line), classes: 1,
		waiters: make(map[*queue.Waiter]*waiter), several: make(map[Key]map[*waiter]bool),
		numbers: make(map[uint64]*waiter),
	}
}

// keyOf names the line in which a take waits for its bucket i.
func (q *waitQueue) keyOf(t *take, i int) lineKey {
	return q.key(t.Buckets[i].Key, t.plans[i], t.Priority)
}

// key names the line in which takes of a priority wait for a bucket. q.mu is held.
func (q *waitQueue) key(k Key, p *Plan, priority int8) lineKey {
	if q.keeps && !p.policy.Wait.OwnLine {
		return lineKey{k, p.classes[priority]}
	}
	return lineKey{Key: k}
}

// look finds out whether the store keeps a line. When that has changed, those who wait move to the
// lines in which they stand now, and who is first in these tries at once. q.mu is held.
func (q *waitQueue) look() {
	if q.liner == nil || q.liner.KeepsLine() == q.keeps {
		return
	}
	q.keeps = !q.keeps
	moved := make(map[lineKey]bool)
	for _, w := range q.waiters {
		if to := q.keyOf(w.take, w.at); to != w.in {
			q.move(w, w.at)
			moved[to] = true
		}
	}
	for to := range moved {
		q.lines[to].Wake()
	}
}

// of returns the lines of a bucket. q.mu is held.
func (q *waitQueue) of(key Key) (lines []*line) {
	for class := range q.classes {
		if ln := q.lines[lineKey{key, class}]; ln != nil {
			lines = append(lines, ln)
		}
	}
	return lines
}

// idle reports whether nobody waits and the queue is open.
func (q *waitQueue) idle() bool { return q.some.Load() == 0 }

func (q *waitQueue) close() {
	if q.closed.CompareAndSwap(false, true) {
		q.some.Add(1)
		close(q.ended)
	}
}

func (q *waitQueue) now() int64 { return int64(time.Since(q.start)) }

// ahead returns the position of the first bucket of t for which others wait that come before p, and
// their line; -1 if there is none. q.mu is held.
func (q *waitQueue) ahead(t *take, p queue.Place) (int, *line) {
	for i := range t.Buckets {
		if ln := q.lines[q.keyOf(t, i)]; ln != nil && !ln.Leads(p) {
			return i, ln
		}
	}
	return -1, nil
}

// queued refuses a take that will not wait, where others do: until the last of those in front tries
// again. It describes only that bucket.
func (q *waitQueue) queued(t *take) (Decision, bool) {
	if q.some.Load() == 0 {
		return Decision{}, false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.look()
	p := q.places.Next(t.Priority, q.now())
	after, at := time.Duration(0), 0
	for i := range t.Buckets {
		ln := q.lines[q.keyOf(t, i)]
		if ln == nil || ln.Leads(p) || t.plans[i].policy.Wait.Barge {
			continue
		}
		if w := max(time.Millisecond, time.Until(ln.next)); w > after {
			after, at = w, i
		}
	}
	if after == 0 {
		return Decision{}, false
	}
	return behind(t, at, after, after), true
}

// behind is the refusal of a take because others wait in front at bucket at. It describes only that
// bucket.
func behind(t *take, at int, after, earliest time.Duration) Decision {
	d := Decision{
		Reason: Queued, RetryAfter: after, EarliestRetry: earliest, at: time.Now().UnixMicro(), plan: t.plans[at],
		first: uint8(at), priority: uint8(t.Priority),
	}
	var out [record.MaxLimits]record.Result
	for j := range out {
		out[j].ResetAt = d.at + after.Microseconds()
	}
	d.results(d.plan, &out)
	return d
}

// inFront is the refusal of a take that waits, or would wait, at p in a line of bucket at: others
// are in front, who try again at the instants that the line knows. It need not be the line that
// keyOf names by now. The queue's mu is held.
func (ln *line) inFront(t *take, at int, p queue.Place) Decision {
	b := &t.Buckets[at]
	earliest := max(0, time.Until(ln.earliest))
	if ln.counts(t.plans[at]) {
		_, _, firm := ln.Before(p, ln.by.limit)
		earliest += ln.by.passed(firm, t.least(b, ln.by.limit), ln.left, t.Priority)
	}
	return behind(t, at, max(time.Millisecond, earliest, time.Until(ln.next)), earliest)
}

// least returns the least units of a limit of bucket b that let t pass.
func (t *take) least(b *store.BucketCost, limit int) int64 {
	if t.Lease {
		return min(1, b.N[limit])
	}
	return b.N[limit]
}

// counts reports whether it is known how long the units of those in front take.
func (ln *line) counts(p *Plan) bool {
	return !ln.earliest.IsZero() && ln.by.plan == p && ln.by.limit >= 0 && !ln.by.held && !ln.mixed
}

// doubt notes that w may find out later that it cannot pass in time.
func (ln *line) doubt(w *waiter) {
	if w.deadline.IsZero() {
		return
	}
	if ln.unsure == nil {
		ln.unsure = make(map[*queue.Waiter]bool)
	}
	ln.unsure[w.Waiter] = true
}

// wakeLate wakes those of the unsure who cannot pass in time, so that they leave. It looks at all
// in one go, because a line may have thousands. q.mu is held.
func (q *waitQueue) wakeLate(ln *line) {
	if len(ln.unsure) == 0 {
		return
	}
	for other, firm := range ln.InOrder(max(0, ln.by.limit)) {
		if !ln.unsure[other] {
			continue
		}
		w, earliest := q.waiters[other], ln.earliest
		if ln.counts(w.plan()) {
			earliest = earliest.Add(ln.by.passed(firm, w.take.least(w.bucket(), ln.by.limit), ln.left, w.take.Priority))
		}
		if !w.deadline.After(earliest) {
			ln.Loosen(other) // for those behind it, too, which may be awake before it
			other.Wake()
		}
	}
	clear(ln.unsure)
}

// afterOthers is inFront for a take that the store has just refused: its own refusal says when it
// would fit alone. It is false if the others take no time for sure. q.mu is held.
func (q *waitQueue) afterOthers(t *take, d *Decision, p queue.Place) (Decision, bool) {
	at, o := d.refusingBucket(), obstacleOf(d)
	b := &t.Buckets[at]
	ln := q.lines[q.keyOf(t, at)]
	if ln == nil || o.plan != t.plans[at] || o.limit < 0 || o.held || ln.mixed {
		return Decision{}, false
	}
	_, _, firm := ln.Before(p, o.limit)
	if firm == 0 {
		return Decision{}, false
	}
	n := t.least(b, o.limit)
	more := o.passed(firm, n, o.plan.specs[o.limit].Effective[t.Priority]-n, t.Priority)
	if o.plan.policy.Limits[o.limit].Kind == Bucket {
		more += d.EarliestRetry
	}
	earliest := max(d.EarliestRetry, more)
	return behind(t, at, max(time.Millisecond, earliest), earliest), true
}

// stillBehind is inFront for a take that has waited. It may have been woken as too late by one in
// front that has left since, or is not in front any more: then it is not known any more.
func (q *waitQueue) stillBehind(w *waiter) Decision {
	q.mu.Lock()
	defer q.mu.Unlock()
	ln := q.lines[w.in]
	if ln.earliest.IsZero() {
		ln.doubt(w)
	}
	return ln.inFront(w.take, w.at, w.Place)
}

// join puts a take into the line of bucket i. Turn says when it should try. q.mu is held.
func (q *waitQueue) join(ctx context.Context, t *take, i int, p queue.Place) (*waiter, error) {
	b := &t.Buckets[i]
	most := t.plans[i].policy.Wait.Queue
	if most == 0 {
		most = defaultQueue
	}
	waiting := 0
	for _, ln := range q.of(b.Key) {
		waiting += ln.Len()
	}
	if waiting >= most {
		return nil, fmt.Errorf("%w: %d callers are already waiting for this bucket of policy %q", ErrQueueFull, most,
			b.Plan.Name())
	}
	if len(q.lines) == 0 {
		q.listen()
	}
	w := &waiter{Waiter: queue.NewWaiter(p), take: t, at: i, since: time.Now()}
	// Held units may come back at any time, and who waits for several buckets may go to another
	// line.
	w.Firm = t.Hold == 0 && len(t.Buckets) == 1
	w.deadline, _ = ctx.Deadline()
	q.waiters[w.Waiter], q.numbers[t.place.number] = w, w
	q.note(w)
	q.add(w)
	q.some.Add(1)
	return w, nil
}

// add puts a waiter into its line. q.mu is held.
func (q *waitQueue) add(w *waiter) {
	b := w.bucket()
	w.Units, w.in = b.N[:], q.keyOf(w.take, w.at)
	q.classes = max(q.classes, w.in.class+1)
	ln := q.lines[w.in]
	if ln == nil {
		ln = &line{}
		q.lines[w.in] = ln
	}
	if ln.amounts == nil {
		ln.amounts = w.plan()
	}
	ln.mixed = ln.mixed || !ln.amounts.sameAmounts(w.plan())
	was := ln.Front()
	switch ln.Add(w.Waiter); {
	case ln.Front() == w.Waiter:
		ln.next, ln.earliest = time.Time{}, time.Time{}
		if was != nil {
			ln.doubt(q.waiters[was])
			if q.waiters[was].take.place.own.Load() {
				was.Wake() // to take its ticket back
			}
		}
	case ln.earliest.IsZero():
		ln.doubt(w)
	}
}

// remove takes a waiter out of its line: whoever comes to the front by that gets its turn. q.mu is
// held.
func (q *waitQueue) remove(w *waiter) {
	ln := q.lines[w.in]
	if ln.Front() == w.Waiter {
		ln.next, ln.earliest = time.Time{}, time.Time{}
	}
	delete(ln.unsure, w.Waiter)
	if ln.Remove(w.Waiter); ln.Len() == 0 {
		delete(q.lines, w.in)
	}
}

// leave ends the waiting of w.
func (q *waitQueue) leave(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.remove(w)
	delete(q.waiters, w.Waiter)
	delete(q.numbers, w.take.place.number)
	q.forget(w)
	q.some.Add(-1)
	if len(q.lines) == 0 && q.stop != nil {
		q.stop()
		q.stop = nil
	}
}

// move lets w wait for its bucket i instead, at the same place among all. q.mu is held.
//
// A line's bound does not count for who moves: it has been let in already.
func (q *waitQueue) move(w *waiter, i int) {
	q.remove(w)
	w.at = i
	q.add(w)
}

// listen passes the store's hints on for as long as somebody waits. q.mu is held.
func (q *waitQueue) listen() {
	if q.watch == nil {
		return
	}
	keys, done := make(chan Key, 64), make(chan struct{})
	stop := q.watch.Watch(keys)
	q.stop = func() { stop(); close(done) }
	go func() {
		for {
			select {
			case k := <-keys:
				q.wake(k)
			case <-done:
				return
			}
		}
	}()
}

// note notes a waiter that needs several buckets. Those of our own policies refuse nobody: what is
// given back there is no news. q.mu is held.
func (q *waitQueue) note(w *waiter) {
	for i := range w.take.Buckets {
		if key := w.take.Buckets[i].Key; len(w.take.Buckets) > 1 && !w.take.plans[i].own {
			if q.several[key] == nil {
				q.several[key] = make(map[*waiter]bool)
			}
			q.several[key][w] = true
		}
	}
}

// forget is the opposite of note. q.mu is held.
func (q *waitQueue) forget(w *waiter) {
	for i := range w.take.Buckets {
		key := w.take.Buckets[i].Key
		if delete(q.several[key], w); len(q.several[key]) == 0 {
			delete(q.several, key)
		}
	}
}

// wake lets those try at once who are in front and need a bucket, whichever bucket's line they are
// in.
func (q *waitQueue) wake(key Key) {
	q.wakeups.Add(1) // first: see enter
	if q.some.Load() == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, ln := range q.of(key) {
		ln.Wake()
	}
	for w := range q.several[key] {
		if w.in.Key != key && q.lines[w.in].Front() == w.Waiter {
			w.Wake()
		}
	}
}

func (q *waitQueue) wakeAll() {
	q.wakeups.Add(1) // first: see enter
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, ln := range q.lines {
		ln.next, ln.earliest = time.Time{}, time.Time{}
		ln.Wake()
	}
}

// front reports whether it is w's turn. If w is first in its own line, but another of its buckets
// has a line with somebody ahead of w, then w moves to that line: otherwise it would pass those who
// wait for that bucket.
func (q *waitQueue) front(w *waiter) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.look()
	if q.lines[w.in].Front() != w.Waiter {
		return false
	}
	i, _ := q.ahead(w.take, w.Place)
	if i >= 0 {
		q.move(w, i)
	}
	return i < 0
}

// invite lets those behind w, which was just granted in front, ask at once as far as units are left
// for them: one after the other they would take as many journeys to the store. It invites no others
// than the store was told of: those it would place by their own requests, and not in order. So it
// invites nobody where the store keeps no line.
func (q *waitQueue) invite(w *waiter, d *Decision) {
	q.mu.Lock()
	defer q.mu.Unlock()
	ln, n := q.lines[w.in], 0
	if ln.Front() != w.Waiter || !ln.kept || ln.Len() < 3 { // the second one comes to the front anyway
		return
	}
	var left [record.MaxLimits]int64
	for j := range w.plan().specs {
		left[j] = d.result(w.at, j).Remaining
	}
	for behind := range ln.Following() {
		for j := range w.plan().specs {
			if left[j] -= behind.Units[j]; left[j] < 0 {
				return
			}
		}
		if n++; n > store.MaxNext {
			return
		}
		o := q.waiters[behind]
		o.asks.Store(true)
		o.invited.Store(true)
		behind.Wake()
	}
}

// waiting returns how many wait in all lines, and how long the longest-waiting one has been
// waiting.
func (q *waitQueue) waiting() (n int, oldest time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, w := range q.waiters {
		oldest = max(oldest, time.Since(w.since))
	}
	return len(q.waiters), oldest
}

// answered notes how long the store took to answer one in front.
func (q *waitQueue) answered(took time.Duration, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err == nil {
		q.journey.Add(took)
	}
}

// lookAhead returns how far ahead the one in front of a line may be granted. If ctx ends soon that
// is little: it would have left before it may start.
func (q *waitQueue) lookAhead(ctx context.Context) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	ahead := min(max(leastAhead, q.journey.Most()), mostAhead).Round(time.Microsecond)
	if end, ok := ctx.Deadline(); ok && time.Until(end) < 2*ahead {
		return leastAhead
	}
	return ahead
}

// plan notes when w, in front, is going to try again, and why it was refused. If another of its
// buckets refuses it for longer, it goes to wait there, and plan is false unless it is in front
// there as well: those who need only this bucket need not wait for that one.
func (q *waitQueue) plan(w *waiter, d *Decision, delay time.Duration) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.lines[w.in].Front() != w.Waiter {
		return false
	}
	if at := d.refusingBucket(); at != w.at {
		q.move(w, at)
	}
	ln := q.lines[w.in]
	if ln.Front() != w.Waiter {
		return false
	}
	now := time.Now()
	q.learnStanding(w, ln, now, d.Reason == Queued)
	ln.next, ln.earliest, ln.by = now.Add(delay), now.Add(d.EarliestRetry), obstacleOf(d)
	if ln.by.plan == w.plan() && ln.by.limit >= 0 {
		ln.left = ln.by.plan.specs[ln.by.limit].Effective[w.take.Priority] - w.Units[ln.by.limit]
	}
	q.wakeLate(ln)
	if end := now.Add(d.RetryAfter); d.Reason != Paused || end.Sub(ln.ends).Abs() > progressEvery {
		ln.pause, ln.ends = nil, end // it may be another pause
	}
	return true
}

// learnStanding notes where w stands in the store's line. If others of its line stand before it
// there, who came later, its next question names them again, and the one after that finds them
// behind it. These are put at once if it left units to them. q.mu is held.
func (q *waitQueue) learnStanding(w *waiter, ln *line, now time.Time, left bool) {
	ln.kept, ln.stands, ln.others = w.take.place.arrival.Load() != 0, w.take.place.stands, 0
	wrong := false
	for _, number := range ln.stands.before {
		if o := q.numbers[number]; o == nil {
			ln.others++
		} else if o.in == w.in {
			o.named, wrong = now.Add(-nameAgain), true
		}
	}
	if left && wrong != w.corrects {
		w.Wake()
	}
	w.corrects = wrong
}
