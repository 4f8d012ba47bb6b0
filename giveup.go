package drawgate

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/drawgate/drawgate/store"
)

// GaveUpError means that a caller's ctx ended while the store was being asked, so that nobody knows
// the answer. It matches ctx's error, too.
//
// What was asked with an id, as by Reserve and Book, is cancelled in the background; if the store
// cannot be reached for that, its hold ends by itself, as used. A take whose [Hold.Grant] the
// caller chose is left alone: send it again, or cancel it with [Limiter.Resume].
type GaveUpError struct {
	MaySpend bool  // a plain take, or one whose grant the caller chose: its units may be spent, or held
	Err      error // ctx's error, or an error that is ErrDeadline
	Store    error // what the store answered when the caller's time had run out; nil if the caller gave up before that

	mine bool // the caller chose the grant
}

func (e *GaveUpError) Error() string {
	if e.mine {
		return "drawgate: the caller gave up while the store was being asked; send the take again with its grant, or cancel what it may hold: " + e.why()
	}
	if e.MaySpend {
		return "drawgate: the caller gave up while the store was being asked; the units may be spent: " + e.why()
	}
	return "drawgate: the caller gave up while the store was being asked; what the take may hold is being cancelled: " +
		e.why()
}

func (e *GaveUpError) why() string {
	if e.Store != nil {
		return strings.TrimPrefix(e.Store.Error(), "drawgate: ")
	}
	return strings.TrimPrefix(e.Err.Error(), "drawgate: ")
}

func (e *GaveUpError) Unwrap() []error {
	if e.Store == nil {
		return []error{e.Err}
	}
	return []error{e.Err, e.Store}
}

// Bounds of what is cancelled in the background.
const (
	maxAbandoned    = 1024 // at once; the holds of others end by themselves, as used
	abandonPause    = 100 * time.Millisecond
	abandonOnClose  = 2 * time.Second // what Close gives them
	abandonTooLate  = store.SendLife + store.SendLife/4
	abandonAttempts = 5
)

// abandoned cancels in the background the grants that callers gave up. Each has a goroutine of its
// own; Close ends them.
type abandoned struct {
	timeout time.Duration // for one: all attempts
	mu      sync.Mutex
	over    bool                                     // guarded by mu: no more are taken on
	doing   int                                      // guarded by mu: how many other things are done
	running map[*store.Settlement]context.CancelFunc // guarded by mu
	closing chan struct{}                            // closed by close: who waits for not_after stops waiting
	group   sync.WaitGroup                           // of the goroutines
}

// sendFunc makes one store call.
type sendFunc func(context.Context, *store.Settlement) (store.Outcome, error)

func newAbandoned(step time.Duration) *abandoned {
	return &abandoned{
		timeout: abandonAttempts * step, running: make(map[*store.Settlement]context.CancelFunc),
		closing: make(chan struct{}),
	}
}

// cancel cancels a take with an id whose answer is not known, if there is room, and wakes who waits
// for what came back.
func (a *abandoned) cancel(t *take, send sendFunc, wake func(Key)) {
	s := &store.Settlement{
		Op: store.OpCancel, ID: t.ID, Grant: t.Grant,
		Buckets: append([]store.BucketCost(nil), t.Buckets...),
	}
	for i := range s.Buckets {
		s.Buckets[i].N = store.Amounts{}
	}
	last := t.lost
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over { // nobody waits for the background any more: at once, and once
		a.mu.Unlock()
		ctx, stop := context.WithTimeout(context.Background(), abandonOnClose)
		_, _ = send(ctx, s)
		stop()
		a.mu.Lock()
		return
	}
	if len(a.running) >= maxAbandoned {
		return
	}
	ctx, stop := context.WithTimeout(context.Background(), a.timeout)
	a.running[s] = stop
	a.group.Go(func() {
		a.run(ctx, s, last, send, wake)
		stop()
		a.mu.Lock()
		delete(a.running, s)
		a.mu.Unlock()
	})
}

// do runs f in the background, unless too much is done there already.
func (a *abandoned) do(f func()) (begun bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over || a.doing >= mostWithdrawals {
		return false
	}
	a.doing++
	a.group.Go(func() { // ends by f's own time
		f()
		a.mu.Lock()
		a.doing--
		a.mu.Unlock()
	})
	return true
}

// run cancels until the store says that the grant was open and is not any more, or until a message
// that is still under way to it cannot open it.
func (a *abandoned) run(ctx context.Context, s *store.Settlement, last time.Time, send sendFunc, wake func(Key)) {
	for failures := 0; failures < abandonAttempts; {
		out, err := send(ctx, s)
		switch {
		case err == nil && !out.Gone:
			for k := range s.Buckets {
				wake(s.Buckets[k].Key)
			}
			return
		case err == nil && time.Since(last) > abandonTooLate:
			return
		case err == nil:
			a.pause(ctx, abandonTooLate-time.Since(last)+time.Millisecond)
		default:
			a.pause(ctx, abandonPause<<failures)
			failures++
		}
		select {
		case <-a.closing: // one more time, whatever may come
			_, _ = send(ctx, s)
			return
		default:
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// pause waits for d, or until the limiter is closed.
func (a *abandoned) pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	case <-a.closing:
	}
}

// close lets what is to be cancelled be tried once more, and waits for that, but not for long.
func (a *abandoned) close() {
	a.mu.Lock()
	if a.over {
		a.mu.Unlock()
		a.group.Wait()
		return
	}
	a.over = true
	close(a.closing)
	a.mu.Unlock()
	t := time.AfterFunc(abandonOnClose, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, stop := range a.running {
			stop()
		}
	})
	defer t.Stop()
	a.group.Wait()
}
