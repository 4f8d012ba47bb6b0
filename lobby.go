package drawgate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drawgate/drawgate/internal/queue"
	"github.com/drawgate/drawgate/internal/record"
)

// Never is the RetryAfter of what can never pass.
const Never = time.Duration(math.MaxInt64)

// defaultQueue bounds a bucket's line where the policy does not.
const defaultQueue = 10_000

// lobby is where the callers of one process wait: a line per bucket. Only who is in front of a line
// asks the store.
type waitQueue struct {
	start   time.Time // for ranks
	watch   Watcher   // nil: the store gives no hints
	closed  atomic.Bool
	ended   chan struct{} // closed by close
	some    atomic.Int64  // waiters in all lines, and one more once it is closed
	wakeups atomic.Uint64 // nudges, of all lines
	late    time.Duration // for tests: by how much every timer is late

	mu      sync.Mutex
	lines   map[Key]*line        // guarded by mu; none is empty
	waiters map[*waiter]struct{} // guarded by mu: all who stand in them
	places  queue.Places         // guarded by mu
	stop    func()               // guarded by mu: ends the hints
}

// line is who waits for one bucket, and what is known of the one in front; both times are zero
// until it has been refused there.
type line struct {
	queue.Line
	next     time.Time // it is going to try again
	earliest time.Time // it passes no earlier
}

// spot is where a take waits: in the line of its bucket at, which is the one that refused it
// longest, or has others in front.
type waiter struct {
	*queue.Waiter
	at    int
	since time.Time
}

func newWaitQueue(s Store) *waitQueue {
	w, _ := s.(Watcher)
	return &waitQueue{start: time.Now(), watch: w, ended: make(chan struct{}), lines: make(map[Key]*line), waiters: make(map[*waiter]struct{})}
}

// idle reports whether nobody waits and the lobby is open.
func (lb *waitQueue) idle() bool { return lb.some.Load() == 0 }

func (lb *waitQueue) close() {
	if lb.closed.CompareAndSwap(false, true) {
		lb.some.Add(1)
		close(lb.ended)
	}
}

func (lb *waitQueue) now() int64 { return int64(time.Since(lb.start)) }

// ahead returns the position of the first bucket of t for which others wait that come before p, and
// -1 if there is none. lb.mu is held.
func (lb *waitQueue) ahead(t *Take, p queue.Place) int {
	for i := range t.Buckets {
		if ln := lb.lines[t.Buckets[i].Key]; ln != nil && !ln.Leads(p) {
			return i
		}
	}
	return -1
}

// queued refuses a take that will not wait, where others do: until the last of those in front tries
// again. It describes only that bucket.
func (lb *waitQueue) queued(t *Take) (Decision, bool) {
	if lb.some.Load() == 0 {
		return Decision{}, false
	}
	lb.mu.Lock()
	defer lb.mu.Unlock()
	p := lb.places.Next(t.Priority, lb.now())
	after, at := time.Duration(0), 0
	for i := range t.Buckets {
		b := &t.Buckets[i]
		ln := lb.lines[b.Key]
		if ln == nil || ln.Leads(p) || b.Plan.policy.Wait.Barge {
			continue
		}
		if w := max(time.Millisecond, time.Until(ln.next)); w > after {
			after, at = w, i
		}
	}
	if after == 0 {
		return Decision{}, false
	}
	d := Decision{
		Reason: Queued, RetryAfter: after, EarliestRetry: after, at: time.Now().UnixMicro(), plan: t.Buckets[at].Plan, first: uint8(at),
	}
	var out [MaxLimits]record.Result
	for j := range out {
		out[j].ResetAt = d.at + after.Microseconds()
	}
	d.results(d.plan, &out)
	return d, true
}

// join puts a take into the line of bucket i. Turn says when it should try. lb.mu is held.
func (lb *waitQueue) join(t *Take, i int, p queue.Place) (*waiter, error) {
	b := &t.Buckets[i]
	most := b.Plan.policy.Wait.Queue
	if most == 0 {
		most = defaultQueue
	}
	if ln := lb.lines[b.Key]; ln != nil && ln.Len() >= most {
		return nil, fmt.Errorf("%w: %d callers wait for this bucket of policy %q", ErrQueueFull, most, b.Plan.policy.Name)
	}
	if len(lb.lines) == 0 {
		lb.listen()
	}
	s := &waiter{queue.NewWaiter(p), i, time.Now()}
	lb.waiters[s] = struct{}{}
	lb.add(b.Key, s)
	lb.some.Add(1)
	return s, nil
}

// add puts a waiter into a line. lb.mu is held.
func (lb *waitQueue) add(key Key, s *waiter) {
	ln := lb.lines[key]
	if ln == nil {
		ln = &line{}
		lb.lines[key] = ln
	}
	if ln.Add(s.Waiter); ln.Front() == s.Waiter {
		ln.next, ln.earliest = time.Time{}, time.Time{}
	}
}

// remove takes a waiter out of its line: whoever comes to the front by that gets its turn. lb.mu is
// held.
func (lb *waitQueue) remove(key Key, s *waiter) {
	ln := lb.lines[key]
	if ln.Front() == s.Waiter {
		ln.next, ln.earliest = time.Time{}, time.Time{}
	}
	if ln.Remove(s.Waiter); ln.Len() == 0 {
		delete(lb.lines, key)
	}
}

// leave ends the waiting of t.
func (lb *waitQueue) leave(t *Take, s *waiter) {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	lb.remove(t.Buckets[s.at].Key, s)
	delete(lb.waiters, s)
	lb.some.Add(-1)
	if len(lb.lines) == 0 && lb.stop != nil {
		lb.stop()
		lb.stop = nil
	}
}

// move lets t wait for its bucket i instead, at the same place among all. lb.mu is held.
//
// A line's bound does not count for who moves: it has been let in already.
func (lb *waitQueue) move(t *Take, s *waiter, i int) {
	lb.remove(t.Buckets[s.at].Key, s)
	s.at = i
	lb.add(t.Buckets[i].Key, s)
}

// listen passes the store's hints on for as long as somebody waits. lb.mu is held.
func (lb *waitQueue) listen() {
	if lb.watch == nil {
		return
	}
	keys, done := make(chan Key, 64), make(chan struct{})
	stop := lb.watch.Watch(keys)
	lb.stop = func() { stop(); close(done) }
	go func() {
		for {
			select {
			case k := <-keys:
				lb.wake(k)
			case <-done:
				return
			}
		}
	}()
}

// nudge lets the one in front of a bucket's line try at once.
func (lb *waitQueue) wake(key Key) {
	lb.wakeups.Add(1) // first: see enter
	if lb.some.Load() == 0 {
		return
	}
	lb.mu.Lock()
	defer lb.mu.Unlock()
	if ln := lb.lines[key]; ln != nil {
		ln.Wake()
	}
}

// Rouse lets everybody who is in front of a queue, of all limiters made from each other, try again
// at once: the amounts have changed by which they are counted. Those amounts come from
// [Request.RefreshLimiter].
func (l *Limiter) WakeAll() { l.queue.wakeAll() }

func (lb *waitQueue) wakeAll() {
	lb.wakeups.Add(1) // first: see enter
	lb.mu.Lock()
	defer lb.mu.Unlock()
	for _, ln := range lb.lines {
		ln.next, ln.earliest = time.Time{}, time.Time{}
		ln.Wake()
	}
}

// renewed lets t be counted by the policies that are in force by now. It is ErrNeverFits if it
// cannot fit any more.
func (t *Take) refresh() error {
	if t.refreshLimiter == nil {
		return nil
	}
	for i := range t.Buckets {
		if l := t.refreshLimiter(i); l != nil && l.plan != t.Buckets[i].Plan && l.plan.sameLimits(t.Buckets[i].Plan) {
			t.Buckets[i].Plan = l.plan
		}
	}
	return t.fits()
}

// front reports whether it is t's turn. If it is in its own line, but in that of another of its
// buckets somebody stands before it, it moves there: otherwise those who wait for that bucket would
// be passed by way of this one.
func (lb *waitQueue) front(t *Take, s *waiter) bool {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	if lb.lines[t.Buckets[s.at].Key].Front() != s.Waiter {
		return false
	}
	i := lb.ahead(t, s.Place)
	if i >= 0 {
		lb.move(t, s, i)
	}
	return i < 0
}

// waiting returns how many wait in all lines, and how long the one who waits longest has.
func (lb *waitQueue) waiting() (n int, oldest time.Duration) {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	for s := range lb.waiters {
		oldest = max(oldest, time.Since(s.since))
	}
	return len(lb.waiters), oldest
}

// wait asks for t until it passes, and says in the line of which bucket it stood last, or found no
// place, and how long it stood.
func (l *Limiter) wait(ctx context.Context, t *Take) (d Decision, at int, stood time.Duration, err error) {
	if up := l.maxWait(t); up > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, up, fmt.Errorf("%w: waited %v, the most that the policy allows", ErrDeadline, up))
		defer cancel()
	}
	s, d, at, err := l.enter(ctx, t)
	if s == nil || err != nil {
		return d, at, 0, err
	}
	d, err = l.waitTurn(ctx, t, s, d)
	l.queue.leave(t, s)
	if err == nil && d.Delay() > 0 {
		err = l.queue.untilStart(ctx, t, &d)
	}
	return d, s.at, time.Since(s.since), err
}

// lookAhead is how far ahead the one in front of a line may be granted: a wake-up that is late by
// less loses nothing of what came free meanwhile.
const lookAhead = 10 * time.Millisecond

// untilStart waits until a take may start that was granted ahead. The store decided before it
// answered, so this is late rather than early.
func (lb *waitQueue) untilStart(ctx context.Context, t *Take, d *Decision) error {
	if sleep(ctx, d.Delay()+lb.late) {
		return nil
	}
	t.lost = time.Now() // it was granted, and nobody will use it
	d.Allowed = false
	return t.ended(ctx, nil)
}

// upTo returns the shortest bound that the policies of t set on waiting; 0 if none does.
func (l *Limiter) maxWait(t *Take) (up time.Duration) {
	for i := range t.Buckets {
		if u := t.Buckets[i].Plan.policy.Wait.MaxWait; u > 0 && (up == 0 || u < up) {
			up = u
		}
	}
	return up
}

// enter asks once if nobody is in front, and otherwise, or if refused, takes a place in the line of
// bucket at. It is nil if there is nothing to wait for.
func (l *Limiter) enter(ctx context.Context, t *Take) (s *waiter, d Decision, at int, err error) {
	if ctx.Err() != nil {
		return nil, d, 0, ended(ctx, nil)
	}
	lb := l.queue
	lb.mu.Lock()
	place := lb.places.Next(t.Priority, lb.now())
	if at = lb.ahead(t, place); at >= 0 {
		defer lb.mu.Unlock()
		if err = reachable(ctx, max(0, time.Until(lb.lines[t.Buckets[at].Key].earliest)), nil); err == nil {
			s, err = lb.join(t, at, place)
		}
		return s, d, at, err
	}
	lb.mu.Unlock()
	news := lb.wakeups.Load()
	if d, err = l.ask(ctx, t, stepTimeout, 0); err != nil || d.Allowed {
		return nil, d, 0, err
	}
	at = d.refusingBucket()
	if err = reachable(ctx, d.EarliestRetry, &d); err != nil {
		return nil, d, at, err
	}
	lb.mu.Lock()
	defer lb.mu.Unlock()
	if s, err = lb.join(t, at, place); err == nil && lb.wakeups.Load() != news {
		s.Wake() // what has come free since the question was put may not have found anybody in the line
	}
	return s, d, at, err
}

// reachable returns ErrDeadline if ctx ends before soonest has passed.
func reachable(ctx context.Context, soonest time.Duration, d *Decision) error {
	end, ok := ctx.Deadline()
	if !ok || time.Until(end) > soonest {
		return nil
	}
	if d == nil {
		return &deadlineError{text: fmt.Sprintf("others wait in front, for %v at least", soonest)}
	}
	return &deadlineError{refusal: d.Err()}
}

// stand waits in line until t passes. last is the refusal that brought it here; empty if it has not
// asked yet.
func (l *Limiter) waitTurn(ctx context.Context, t *Take, s *waiter, last Decision) (Decision, error) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	attempt := 1
	for ask := last.Buckets() == 0; ; ask = true {
		if ctx.Err() != nil {
			return last, t.ended(ctx, &last)
		}
		if l.queue.front(t, s) {
			if ask {
				if err := t.refresh(); err != nil {
					return last, err
				}
				t.Ahead = lookAhead
				d, err := l.ask(ctx, t, stepTimeout, 0)
				if err != nil || d.Allowed {
					return d, err
				}
				if err := reachable(ctx, d.EarliestRetry, &d); err != nil {
					return d, err
				}
				last = d
			}
			delay := inTime(ctx, last.pause(attempt), last.RetryAfter)
			mine := l.queue.plan(t, s, &last, delay)
			if last.early(t) { // a little earlier: it may be granted ahead then
				if delay -= lookAhead; delay <= 0 && mine {
					continue
				}
			}
			if mine {
				timer.Reset(delay + l.queue.late)
			}
		}
		select {
		case <-s.Turn:
		case <-timer.C:
			attempt++
		case <-l.queue.ended:
			return Decision{}, ErrClosed
		case <-ctx.Done():
		}
	}
}

// inTime shortens a pause so that its jitter does not carry it over ctx's deadline.
func inTime(ctx context.Context, pause, retryAfter time.Duration) time.Duration {
	end, ok := ctx.Deadline()
	if !ok {
		return pause
	}
	left := time.Until(end)
	if retryAfter < left && left <= pause && pause-retryAfter <= queue.MaxJitter {
		return retryAfter + (left-retryAfter)/2
	}
	return pause
}

// ended says why waiting ended with ctx: with ErrDeadline if that was a bound of the policy's, or
// of a caller who says so. last may be nil.
func ended(ctx context.Context, last *Decision) error {
	if errors.Is(ctx.Err(), context.Canceled) && !errors.Is(context.Cause(ctx), ErrDeadline) {
		return ctx.Err()
	}
	e := &deadlineError{text: "it is over"}
	if cause := context.Cause(ctx); errors.Is(cause, ErrDeadline) {
		e.text = strings.TrimPrefix(cause.Error(), ErrDeadline.Error()+": ")
	}
	if last != nil && last.Buckets() > 0 && !last.Allowed {
		e.refusal = last.Err()
	}
	return e
}

// plan notes when t, in front, is going to try again. If another of its buckets refuses it for
// longer, it goes to wait there, and plan is false unless it is in front there as well: those who
// need only this bucket need not wait for that one.
func (lb *waitQueue) plan(t *Take, s *waiter, d *Decision, delay time.Duration) bool {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	if lb.lines[t.Buckets[s.at].Key].Front() != s.Waiter {
		return false
	}
	if at := d.refusingBucket(); at != s.at {
		lb.move(t, s, at)
	}
	ln := lb.lines[t.Buckets[s.at].Key]
	if ln.Front() != s.Waiter {
		return false
	}
	now := time.Now()
	ln.next, ln.earliest = now.Add(delay), now.Add(d.EarliestRetry)
	return true
}

// pausePoll is how often the one in front looks whether a pause was ended.
const pausePoll = 5 * time.Second

// early reports whether t may be granted a little before it fits: not if it was refused although it
// could have been, not where what is held may come back at any time, and not where the policy says
// when to ask.
func (d *Decision) early(t *Take) bool {
	r, ok := d.Refusing()
	return ok && d.RetryAfter > t.Ahead && d.EarliestRetry == d.RetryAfter && len(d.bucket(r.Bucket-int(d.first)).policy.Wait.Backoff) == 0
}

// pause returns how long to wait after a refusal.
func (d *Decision) pause(attempt int) time.Duration {
	r, ok := d.Refusing()
	if !ok { // it is paused, perhaps for a day: another process may end that, which nothing tells
		return min(max(time.Millisecond, d.RetryAfter), pausePoll)
	}
	window := r.Limit.Window
	if r.Limit.Kind == Calendar {
		window = r.ResetAfter()
	}
	plan := d.bucket(r.Bucket)
	return queue.Refusal{
		Attempt: attempt, RetryAfter: d.RetryAfter, EarliestRetry: d.EarliestRetry, Spread: queue.Spread(window, r.Limit.Amount),
	}.Delay(plan.policy.Wait.Backoff, rand.Float64()) //nolint:gosec // jitter needs no secrecy
}
