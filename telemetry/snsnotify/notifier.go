package snsnotify

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sns"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/internal/sampler"
)

// Defaults and bounds.
const (
	defaultQueue      = 100
	defaultTimeout    = 5 * time.Second
	defaultAttempts   = 8
	defaultBackoff    = time.Second
	defaultMaxBackoff = time.Minute
	defaultClose      = 5 * time.Second
	warnEvery         = time.Minute
)

// Options holds what a [Notifier] can do without. The zero value is ready to use.
type Options struct {
	// Queue is the maximum number of waiting incidents: 0 means 100. What does not fit is dropped,
	// counted and logged.
	Queue int
	// Timeout bounds one attempt: 0 means 5 seconds.
	Timeout time.Duration
	// Attempts is the maximum number of times that one incident is sent: 0 means 8.
	Attempts int
	// Backoff is the mean pause after the first attempt that fails; it doubles with each further
	// one up to MaxBackoff. 0 means one second and one minute. Each pause is random, between half
	// and one and a half times the mean.
	Backoff, MaxBackoff time.Duration
	// CloseTimeout is how long Close goes on sending: 0 means 5 seconds, negative means not at all.
	CloseTimeout time.Duration
	// Logger gets the incidents that were not sent, and why; nil discards.
	Logger *slog.Logger
	// Ended is told how each attempt ended, and of each incident that was dropped, for counters. It
	// must not block. It may be nil.
	Ended func(Result)
}

// Result is how an attempt to send a message ended.
type Result string

// The results.
const (
	Delivered Result = "delivered" // SNS has accepted it
	Retried   Result = "retried"   // it failed, and another attempt follows
	Rejected  Result = "rejected"  // sending it again would not help
	GaveUp    Result = "gave_up"   // the last attempt failed
	Dropped   Result = "dropped"   // it was not sent: the queue was full, or the process ended
)

// Notifier publishes incidents to a topic, one after the other, in order, from a bounded queue.
//
// A message that SNS does not accept because of an outage or throttling is sent again, with growing
// pauses. So subscribers may get it twice, with the same id in it. It is safe for concurrent use.
type Notifier struct {
	opts      Options
	client    *sns.Client
	topic     string
	closeIdle func() // nil: the client is the caller's

	full, failing sampler.Sampler // of the log

	mu       sync.Mutex
	closed   bool               // guarded by mu: queue is closed
	queue    chan *api.Incident // guarded by mu against sending after it was closed
	accepted int64              // guarded by mu: put in the queue
	finished int64              // guarded by mu: of these, sent or lost
	lost     int64              // guarded by mu: of these, lost
	reported int64              // guarded by mu: of lost, by Flush
	waiters  []waiter           // guarded by mu

	cancel context.CancelFunc // ends what the goroutine is doing
	done   chan struct{}      // closed when the goroutine has ended
}

// waiter is a Flush that waits until so many incidents were finished.
type waiter struct {
	upTo int64
	done chan struct{}
}

// New returns a Notifier that publishes to a topic with the caller's client, whose own retries are
// not used. opts may be nil. It must be closed.
func New(client *sns.Client, topic string, opts *Options) (*Notifier, error) {
	if _, ok := RegionOf(topic); !ok {
		return nil, errARN
	}
	n := &Notifier{client: client, topic: topic, done: make(chan struct{})}
	if opts != nil {
		n.opts = *opts
	}
	n.opts.defaults()
	n.queue = make(chan *api.Incident, n.opts.Queue)
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	go n.run(ctx)
	return n, nil
}

func (o *Options) defaults() {
	o.Queue, o.Attempts = positive(o.Queue, defaultQueue), positive(o.Attempts, defaultAttempts)
	o.Timeout, o.Backoff = positive(o.Timeout, defaultTimeout), positive(o.Backoff, defaultBackoff)
	o.MaxBackoff = max(o.Backoff, positive(o.MaxBackoff, defaultMaxBackoff))
	if o.CloseTimeout == 0 {
		o.CloseTimeout = defaultClose
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Ended == nil {
		o.Ended = func(Result) {}
	}
}

func positive[N int | time.Duration](n, otherwise N) N {
	if n <= 0 {
		return otherwise
	}
	return n
}

// Notify queues an incident: for the option Report of package incident. It never waits. The
// incident must not be changed any more.
func (n *Notifier) Notify(in *api.Incident) {
	if n.enqueue(in) {
		return
	}
	n.opts.Ended(Dropped)
	if skipped, ok := n.full.Pass(time.Now(), warnEvery, 1); ok {
		n.opts.Logger.Error("an incident was not sent to SNS: too many are waiting, or the process ends", "incident", in.ID, "topic", n.topic, "not_logged", skipped)
	}
}

func (n *Notifier) enqueue(in *api.Incident) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return false
	}
	select {
	case n.queue <- in:
		n.accepted++
		return true
	default:
		return false
	}
}

// Flush waits until the incidents that Notify was given before were sent. The error says how many
// could not be sent, since the last Flush; or it is ctx's, and those that wait are sent later.
func (n *Notifier) Flush(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if w := (waiter{n.accepted, make(chan struct{})}); n.finished < w.upTo {
		n.waiters = append(n.waiters, w)
		n.mu.Unlock()
		select {
		case <-w.done:
		case <-ctx.Done():
		}
		n.mu.Lock()
		if n.finished < w.upTo {
			n.waiters = slices.DeleteFunc(n.waiters, func(other waiter) bool { return other.done == w.done })
			return fmt.Errorf("snsnotify: not all incidents were sent yet: %w", ctx.Err())
		}
	}
	lost := n.lost - n.reported
	n.reported = n.lost
	return lostError(lost)
}

func lostError(n int64) error {
	if n == 0 {
		return nil
	}
	return fmt.Errorf("snsnotify: incidents that were not sent: %d; see the log", n)
}

// finish counts an incident that was sent, or could not be.
func (n *Notifier) finish(sent bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.finished++
	if !sent {
		n.lost++
	}
	rest := n.waiters[:0]
	for _, w := range n.waiters {
		if w.upTo <= n.finished {
			close(w.done)
		} else {
			rest = append(rest, w)
		}
	}
	n.waiters = rest
}

// Close accepts no more incidents, sends those that wait for up to CloseTimeout, and ends. The
// error says how many were not sent.
func (n *Notifier) Close() error {
	n.mu.Lock()
	before := n.lost
	if !n.closed {
		n.closed = true
		close(n.queue)
	}
	n.mu.Unlock()
	if n.opts.CloseTimeout > 0 {
		t := time.NewTimer(n.opts.CloseTimeout)
		defer t.Stop()
		select {
		case <-n.done:
		case <-t.C:
		}
	}
	n.cancel()
	<-n.done
	if n.closeIdle != nil {
		n.closeIdle()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return lostError(n.lost - before)
}
