package drawgate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
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

// lobby is where the callers of one process wait: a line per bucket. Only who is in front of a line asks the store.
type lobby struct {
	start  time.Time // for ranks
	watch  Watcher   // nil: the store gives no hints
	closed atomic.Bool
	ended  chan struct{} // closed by close
	some   atomic.Int64  // waiters in all lines, and one more once it is closed

	mu    sync.Mutex
	lines map[Key]*line // guarded by mu; none is empty
	stop  func()        // guarded by mu: ends the hints
}

// line is who waits for one bucket, and when the one in front is going to try again.
type line struct {
	queue.Line
	next time.Time
}

func newLobby(s Store) *lobby {
	w, _ := s.(Watcher)
	return &lobby{start: time.Now(), watch: w, ended: make(chan struct{}), lines: make(map[Key]*line)}
}

// idle reports whether nobody waits and the lobby is open.
func (lb *lobby) idle() bool { return lb.some.Load() == 0 }

func (lb *lobby) close() {
	if lb.closed.CompareAndSwap(false, true) {
		lb.some.Add(1)
		close(lb.ended)
	}
}

func (lb *lobby) now() int64 { return int64(time.Since(lb.start)) }

// ahead returns the position of the first bucket of t for which others wait that t may not pass, and -1 if there is none. lb.mu is held.
func (lb *lobby) ahead(t *Take) int {
	for i := range t.Buckets {
		if ln := lb.lines[t.Buckets[i].Key]; ln != nil && !ln.Leads(t.Priority, lb.now()) {
			return i
		}
	}
	return -1
}

// queued refuses a take that will not wait, where others do.
func (lb *lobby) queued(t *Take) (Decision, bool) {
	if lb.some.Load() == 0 {
		return Decision{}, false
	}
	lb.mu.Lock()
	defer lb.mu.Unlock()
	i := lb.ahead(t)
	if i < 0 || t.Buckets[i].Plan.policy.Wait.Barge {
		return Decision{}, false
	}
	after := max(time.Millisecond, time.Until(lb.lines[t.Buckets[i].Key].next))
	d := Decision{Reason: Queued, RetryAfter: after, Soonest: after, at: time.Now().UnixMicro(), plan: t.Buckets[i].Plan}
	var out [MaxLimits]record.Result
	for j := range out {
		out[j].ResetAt = d.at + after.Microseconds()
	}
	d.results(d.plan, &out)
	return d, true
}

// join puts a take into the line of bucket i. w.Turn says when it should try.
func (lb *lobby) join(t *Take, i int) (*queue.Waiter, error) {
	b := &t.Buckets[i]
	most := b.Plan.policy.Wait.Queue
	if most == 0 {
		most = defaultQueue
	}
	ln := lb.lines[b.Key]
	if ln == nil {
		ln = &line{}
	}
	if ln.Len() >= most {
		return nil, fmt.Errorf("%w: %d callers wait for this bucket of policy %q", ErrQueueFull, most, b.Plan.policy.Name)
	}
	if len(lb.lines) == 0 {
		lb.listen()
	}
	lb.lines[b.Key] = ln
	lb.some.Add(1)
	return ln.Add(t.Priority, lb.now()), nil
}

// leave takes a waiter out of its line: whoever comes to the front by that gets its turn.
func (lb *lobby) leave(key Key, w *queue.Waiter) {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	ln := lb.lines[key]
	ln.Remove(w)
	if ln.Len() == 0 {
		delete(lb.lines, key)
	}
	lb.some.Add(-1)
	if len(lb.lines) == 0 && lb.stop != nil {
		lb.stop()
		lb.stop = nil
	}
}

// listen passes the store's hints on for as long as somebody waits. lb.mu is held.
func (lb *lobby) listen() {
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
				lb.nudge(k)
			case <-done:
				return
			}
		}
	}()
}

// nudge lets the one in front of a bucket's line try at once.
func (lb *lobby) nudge(key Key) {
	if lb.some.Load() == 0 {
		return
	}
	lb.mu.Lock()
	defer lb.mu.Unlock()
	if ln := lb.lines[key]; ln != nil {
		ln.Nudge()
	}
}

// front reports whether w is in front of its line.
func (lb *lobby) front(key Key, w *queue.Waiter) bool {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	return lb.lines[key].Front() == w
}

// wait asks for t until it passes.
func (l *Limiter) wait(ctx context.Context, t *Take) (Decision, error) {
	if up := l.upTo(t); up > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, up, fmt.Errorf("%w: waited %v, the most that the policy allows", ErrDeadline, up))
		defer cancel()
	}
	w, at, d, err := l.enter(ctx, t)
	if w == nil || err != nil {
		return d, err
	}
	key := t.Buckets[at].Key
	defer l.lobby.leave(key, w)
	return l.stand(ctx, t, key, w, d)
}

// upTo returns the shortest bound that the policies of t set on waiting; 0 if none does.
func (l *Limiter) upTo(t *Take) (up time.Duration) {
	for i := range t.Buckets {
		if u := t.Buckets[i].Plan.policy.Wait.UpTo; u > 0 && (up == 0 || u < up) {
			up = u
		}
	}
	return up
}

// enter asks once if nobody is in front, and otherwise, or if refused, takes a place in a line. w is nil if there is nothing to wait for.
func (l *Limiter) enter(ctx context.Context, t *Take) (w *queue.Waiter, at int, d Decision, err error) {
	lb := l.lobby
	lb.mu.Lock()
	if at = lb.ahead(t); at >= 0 {
		if err = reachable(ctx, max(0, time.Until(lb.lines[t.Buckets[at].Key].next)), nil); err == nil {
			w, err = lb.join(t, at)
		}
		lb.mu.Unlock()
		return w, at, d, err
	}
	lb.mu.Unlock()
	if d, err = l.ask(ctx, t, stepTimeout); err != nil || d.Allowed {
		return nil, 0, d, err
	}
	if err = reachable(ctx, d.Soonest, &d); err != nil {
		return nil, 0, d, err
	}
	at = d.refusingBucket()
	lb.mu.Lock()
	defer lb.mu.Unlock()
	w, err = lb.join(t, at)
	return w, at, d, err
}

// reachable returns ErrDeadline if ctx ends before soonest has passed.
func reachable(ctx context.Context, soonest time.Duration, d *Decision) error {
	end, ok := ctx.Deadline()
	if !ok || time.Until(end) >= soonest {
		return nil
	}
	if d == nil {
		return fmt.Errorf("%w: others wait in front, for %v at least", ErrDeadline, soonest)
	}
	return fmt.Errorf("%w: %w", ErrDeadline, d.Err())
}

// stand waits in line until t passes. last is the refusal that brought it here; empty if it has not asked yet.
func (l *Limiter) stand(ctx context.Context, t *Take, key Key, w *queue.Waiter, last Decision) (Decision, error) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	for attempt := 0; ; {
		if l.lobby.front(key, w) {
			if last.Buckets() == 0 || attempt > 0 {
				d, err := l.ask(ctx, t, stepTimeout)
				if err != nil || d.Allowed {
					return d, err
				}
				if err := reachable(ctx, d.Soonest, &d); err != nil {
					return d, err
				}
				last = d
			}
			attempt++
			delay := last.pause(attempt)
			l.lobby.plan(key, w, delay)
			timer.Reset(delay)
		}
		select {
		case <-w.Turn:
			attempt = max(attempt, 1) // in front now: ask, whatever the last answer was
		case <-timer.C:
		case <-l.lobby.ended:
			return Decision{}, ErrClosed
		case <-ctx.Done():
			return last, ended(ctx, &last)
		}
	}
}

// ended says why waiting ended with ctx.
func ended(ctx context.Context, last *Decision) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, ErrDeadline) {
		if last.Buckets() > 0 && !last.Allowed {
			return fmt.Errorf("%w: %w", cause, last.Err())
		}
		return cause
	}
	return cause
}

// plan notes when the one in front is going to try again.
func (lb *lobby) plan(key Key, w *queue.Waiter, delay time.Duration) {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	if ln := lb.lines[key]; ln.Front() == w {
		ln.next = time.Now().Add(delay)
	}
}

// pause returns how long to wait after a refusal.
func (d *Decision) pause(attempt int) time.Duration {
	r, ok := d.Refusing()
	if !ok {
		return time.Millisecond
	}
	window := r.Limit.Window
	if r.Limit.Kind == Calendar {
		window = max(0, r.ResetAt().Sub(d.At()))
	}
	plan := d.bucket(r.Bucket)
	return queue.Refusal{
		Attempt: attempt, RetryAfter: d.RetryAfter, Soonest: d.Soonest, Spread: queue.Spread(window, r.Limit.Amount),
	}.Delay(plan.policy.Wait.Backoff, rand.Float64()) //nolint:gosec // jitter needs no secrecy
}
