// Package outbox sends entries to something slow, such as a webhook, in the background: from a
// bounded queue, in order, with retries if the sender wants them.
package outbox

import (
	"context"
	"errors"
	"sync"
)

// Why [Outbox.Add] does not accept an entry.
var (
	ErrFull   = errors.New("too many wait to be sent")
	ErrClosed = errors.New("nothing is sent any more: closed")
)

// Outbox is a queue whose entries one goroutine sends, one after the other. It is safe for
// concurrent use.
type Outbox[T any] struct {
	send func(context.Context, T) error
	end  context.CancelFunc // ends the context of what is sent
	done chan struct{}      // closed when the goroutine has ended

	mu       sync.Mutex
	closed   bool           // guarded by mu
	queue    chan *entry[T] // guarded by mu against sending after it was closed
	last     *Sending       // guarded by mu: of the last entry that was accepted; nil: it was sent
	lost     int            // guarded by mu: entries that were accepted and could not be sent
	reported int            // guarded by mu: of lost, by Flush
}

type entry[T any] struct {
	value T
	Sending
}

// Sending is how far an entry is.
type Sending struct {
	done chan struct{}
	err  error // set before done is closed
}

// Wait waits until the entry was sent, or could not be. The error is that of sending it. ok is
// false if ctx ended before.
func (s *Sending) Wait(ctx context.Context) (ok bool, err error) {
	if !Await(ctx, s.done) {
		return false, nil
	}
	return true, s.err
}

// Await waits until done is closed or ctx ends. It reports whether done is closed, also if ctx has
// ended as well.
func Await(ctx context.Context, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-ctx.Done():
	}
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// New returns an Outbox in which most entries can wait, besides the one that is being sent. An
// error of send means that the entry is lost: send tries again itself, by [Retry]. The context that
// send gets ends when the deadline of Close has passed. The Outbox must be closed.
func New[T any](most int, send func(context.Context, T) error) *Outbox[T] {
	ctx, end := context.WithCancel(context.Background()) //nolint:gosec // Close calls it
	o := &Outbox[T]{send: send, end: end, done: make(chan struct{}), queue: make(chan *entry[T], most)}
	go o.run(ctx)
	return o
}

func (o *Outbox[T]) run(ctx context.Context) {
	defer close(o.done)
	for e := range o.queue {
		e.err = o.send(ctx, e.value)
		o.mu.Lock()
		if e.err != nil {
			o.lost++
		}
		if o.last == &e.Sending {
			o.last = nil
		}
		close(e.done)
		o.mu.Unlock()
	}
}

// Add accepts an entry. It never waits: if there is no room the error is [ErrFull], and after Close
// it is [ErrClosed].
func (o *Outbox[T]) Add(v T) (*Sending, error) {
	e := &entry[T]{value: v, Sending: Sending{done: make(chan struct{})}}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil, ErrClosed
	}
	select {
	case o.queue <- e:
		o.last = &e.Sending
		return o.last, nil
	default:
		return nil, ErrFull
	}
}

// Last returns the last entry that was accepted, or nil if it was sent. When it was sent, all
// before it were.
func (o *Outbox[T]) Last() *Sending {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last
}

// Flush waits until the entries so far were sent, or could not be: lost is how many could not since
// the last Flush. If ctx ends before, the error is ctx's, and what waits is sent later.
func (o *Outbox[T]) Flush(ctx context.Context) (lost int, err error) {
	if last := o.Last(); last != nil && !Await(ctx, last.done) {
		return 0, ctx.Err()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	lost = o.lost - o.reported
	o.reported = o.lost
	return lost, nil
}

// Close accepts no more entries, waits until those that wait are sent, or ctx ends, and ends. lost
// is how many were not sent since Close was called, late how many of them because ctx had ended:
// send gets them too, with a context that has ended. Close waits for send.
func (o *Outbox[T]) Close(ctx context.Context) (lost, late int) {
	o.mu.Lock()
	if !o.closed {
		o.closed = true
		close(o.queue)
	}
	before := o.lost
	o.mu.Unlock()
	Await(ctx, o.done)
	o.mu.Lock()
	inTime := o.lost
	o.mu.Unlock()
	o.end()
	<-o.done
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.lost - before, o.lost - inTime
}
