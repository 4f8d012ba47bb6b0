package sqlitestore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/drawgate/drawgate/store"
)

// call is one caller's request. Its arguments are copies, and the caller copies its results,
// because a caller leaves when its ctx ends.
type call struct {
	op      string // "take", "settle", "peek", "reset", "withdraw", "write" or "ping"
	started bool   // its transaction has begun; guarded by Store.mu
	asked   time.Time
	done    chan struct{}
	err     error

	takes       []store.Take
	settlements []store.Settlement
	buckets     []store.BucketCost // of the takes, of the settlements, or to peek at
	labels      []store.Label
	priority    int8
	keys        []store.Key
	number      uint64 // of the ticket to withdraw
	write       *documentStep

	decisions []store.Verdict
	outcomes  []store.Outcome
	statuses  []store.State
}

// size returns how many takes or settlements a call counts for in a transaction.
func (c *call) size() int { return 1 + len(c.takes) + len(c.settlements) }

func (c *call) setTakes(batch []store.Take) {
	c.takes = append(c.takes[:0], batch...)
	buckets, labels := 0, 0
	for i := range batch {
		buckets += len(batch[i].Buckets)
		labels += len(batch[i].Labels)
	}
	c.buckets = slices.Grow(c.buckets[:0], buckets)
	c.labels = slices.Grow(c.labels[:0], labels)
	for i := range c.takes {
		t := &c.takes[i]
		c.buckets = append(c.buckets, t.Buckets...)
		t.Buckets = c.buckets[len(c.buckets)-len(t.Buckets):]
		c.labels = append(c.labels, t.Labels...)
		t.Labels = c.labels[len(c.labels)-len(t.Labels):]
	}
	c.decisions = resize(c.decisions, len(batch))
}

func (c *call) setSettlements(batch []store.Settlement) {
	c.settlements = append(c.settlements[:0], batch...)
	buckets := 0
	for i := range batch {
		buckets += len(batch[i].Buckets)
	}
	c.buckets = slices.Grow(c.buckets[:0], buckets)
	for i := range c.settlements {
		st := &c.settlements[i]
		c.buckets = append(c.buckets, st.Buckets...)
		st.Buckets = c.buckets[len(c.buckets)-len(st.Buckets):]
	}
	c.outcomes = resize(c.outcomes, len(batch))
}

func (c *call) setPeek(buckets []store.BucketCost, priority int8) {
	c.buckets, c.priority = append(c.buckets[:0], buckets...), priority
	c.statuses = resize(c.statuses, len(buckets))
}

// resize returns a slice of n zero elements.
func resize[T any](s []T, n int) []T {
	s = slices.Grow(s[:0], n)[:n]
	clear(s)
	return s
}

func (s *Store) get(op string) *call {
	c := s.pool.Get().(*call)
	c.op = op
	return c
}

// maxKept is the size of a call up to which its memory is reused.
const maxKept = 64

// put returns a call that nobody uses any more to the pool.
func (s *Store) put(c *call) {
	if c.size()+len(c.buckets)+len(c.keys) > maxKept {
		return
	}
	c.started, c.err, c.write = false, nil, nil
	c.takes, c.settlements, c.buckets, c.keys = c.takes[:0], c.settlements[:0], c.buckets[:0], c.keys[:0]
	s.pool.Put(c)
}

// do hands a call to the writer and waits until it is answered or ctx ends.
func (s *Store) do(ctx context.Context, c *call) error {
	if err := ctx.Err(); err != nil {
		return storeError(c.op, fmt.Errorf("%w: %w", store.ErrNothingDone, err))
	}
	c.asked = time.Now()
	s.mu.Lock()
	switch {
	case s.closed:
		s.mu.Unlock()
		return store.ErrClosed
	case s.broken != nil:
		s.mu.Unlock()
		return storeError(c.op, s.broken)
	}
	s.queue = append(s.queue, c)
	s.mu.Unlock()
	s.signal()
	select {
	case <-c.done:
	case <-ctx.Done():
		if !s.leave(c) {
			return storeError(c.op, s.nothingDone(ctx.Err()))
		}
		select {
		case <-c.done: // just in time
		default:
			return storeError(c.op, fmt.Errorf("%w: %w", store.ErrUnknownOutcome, ctx.Err()))
		}
	}
	if c.err != nil {
		return storeError(c.op, c.err)
	}
	return nil
}

// leave withdraws a call unless its transaction has begun, and reports whether it has.
func (s *Store) leave(c *call) (started bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.started {
		return true
	}
	if i := slices.Index(s.queue, c); i >= 0 {
		s.queue = slices.Delete(s.queue, i, i+1)
	}
	return false
}

func (s *Store) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// waiting returns the number of calls in the queue, whether all of them only read, and whether the
// store is closed.
func (s *Store) waiting() (n int, reads, closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.queue {
		if c.op != "peek" {
			return len(s.queue), false, s.closed
		}
	}
	return len(s.queue), true, s.closed
}

// oldest returns when the longest-waiting call arrived; ok is false if none waits.
func (s *Store) oldest() (asked time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return time.Time{}, false
	}
	return s.queue[0].asked, true
}

// overdue removes the calls from the queue that arrived before an instant.
func (s *Store) overdue(batch []*call, before time.Time) []*call {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for n < len(s.queue) && s.queue[n].asked.Before(before) {
		s.queue[n].started = true
		n++
	}
	batch = append(batch, s.queue[:n]...)
	s.queue = slices.Delete(s.queue, 0, n)
	return batch
}

// gather removes calls from the queue for one transaction, in order, up to most takes. If reads is
// set, it takes only calls that read.
func (s *Store) gather(batch []*call, reads bool, most int) []*call {
	s.mu.Lock()
	defer s.mu.Unlock()
	size, n := 0, 0
	for _, c := range s.queue {
		if size > 0 && size+c.size() > most || reads && c.op != "peek" {
			break
		}
		size += c.size()
		c.started = true
		n++
	}
	batch = append(batch, s.queue[:n]...)
	s.queue = slices.Delete(s.queue, 0, n)
	return batch
}
