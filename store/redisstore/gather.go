package redisstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/drawgate/drawgate/store"
)

// Coalescing. Whoever finds its lane idle makes a call of its own, in its own goroutine and within
// its own time. While calls are in flight, later requests gather in a queue; when a call has ended,
// what has gathered goes as one call, a batch, in a goroutine that goes on until nothing is left.
// A batch has a time of its own, and its callers keep theirs: one that leaves while its requests
// are in the queue takes them out, and one that leaves later does not know what became of them.
//
// A call that hangs, as in a fail-over, does not hold up those who come after it: it is written
// off, and another one follows.
//
// Looks at buckets stay calls of their own: they write nothing, and what they read has no bound.

// gatherer has the lanes of a store.
type gatherer struct {
	off       bool
	always    bool // for tests: each request goes in a batch
	unhurried bool // for tests: no call hangs, however long it takes

	mu    sync.Mutex
	lanes map[int]*lane // guarded by mu; a lane is never removed

	apart  map[string]time.Time // guarded by mu: when requests of a damaged bucket may be in a batch again
	aparts atomic.Int64         // how many these are
}

// lane is where requests gather that one call may carry out.
type lane struct {
	calls int    // guarded by gatherer.mu: in flight, without those that hang
	queue []*job // guarded by gatherer.mu
	left  int    // guarded by gatherer.mu: about how many of the queue have left

	ended   int  // guarded by gatherer.mu: how many calls have ended, those that hang apart
	watched bool // guarded by gatherer.mu: there is somebody to see whether calls hang
	hang    int  // guarded by gatherer.mu: how many calls do, and
	era     int  // guarded by gatherer.mu: how often calls were found to
}

// How many calls of a lane may be in flight: one, so that requests gather, and one more while more
// have gathered than fit into a batch. Then the server has work while answers are read.
const (
	inFlight     = 1
	mostInFlight = 2
)

// Calls hang if none has ended for so long while requests wait. No more are written off than
// mostHang: then the server is away.
const (
	hangsAfter = 100 * time.Millisecond
	mostHang   = 8
)

// turn is the right to make calls of a lane, of which each is one in flight.
type turn struct {
	lane *lane
	era  int // of the lane when the turn began. In a later one its call hangs
}

// job is what one caller wants at once: the requests of a batch of its own, in order.
type job struct {
	op    string
	reqs  []*request
	lane  *lane // whose queue it was put into; nil: none
	state atomic.Int32
	batch *batch        // set before state says that it is in one
	ready chan struct{} // has one place; filled once the following are set

	err   error // the batch failed
	alone bool  // nothing was done: its requests have to be calls of their own
}

// States of a job.
const (
	gathering = iota
	inBatch
	hasLeft
)

// laneOf returns the number of the lane of some keys, which are in one slot of a cluster: those
// with the same number may be in one call.
func (s *Store) laneOf(keys []string) int {
	if !s.cluster {
		return 0
	}
	return int(slotOf(keys[0]))
}

// oneLane returns the lane of all requests, if there is one.
func (s *Store) oneLane(reqs []*request) (number int, ok bool) {
	for i, r := range reqs {
		n := s.laneOf(r.keys)
		if i > 0 && n != number {
			return 0, false
		}
		number = n
	}
	return number, true
}

// gathers reports whether requests may go in a batch.
func (s *Store) gathers(op string, reqs []*request) bool {
	return !s.gather.off && op != "peek" && !s.gather.isApart(reqs)
}

// together carries out requests, in order: with those of other callers if there are any. They are
// to fit into one batch, and to have one lane. Those that it returns have to be sent again; alone
// says that they have to be calls of their own.
func (s *Store) together(ctx context.Context, c rueidis.Client, op string, number int, reqs []*request,
) (again []*request, alone bool) {
	t, j := s.join(c, op, number, reqs) //nolint:contextcheck // a batch has its own
	if j != nil {
		return s.await(ctx, j)
	}
	defer s.leave(c, t) //nolint:contextcheck // what comes next is for others
	if len(reqs) == 1 && !s.gather.always {
		return s.oneByOne(ctx, c, op, reqs, false), true
	}
	for _, r := range reqs {
		s.fill(r)
	}
	j = newJob(op, reqs)
	b := newBatch()
	b.add(j)
	s.send(ctx, c, b)
	return s.await(ctx, j)
}

// join either begins a call of a lane, if it may have another one, or puts a job into its queue.
func (s *Store) join(c rueidis.Client, op string, number int, reqs []*request) (turn, *job) {
	g := &s.gather
	var j *job
	for {
		g.mu.Lock()
		l := g.lanes[number]
		if l == nil {
			l = &lane{}
			if g.lanes == nil {
				g.lanes = map[int]*lane{}
			}
			g.lanes[number] = l
		}
		if l.calls < inFlight && len(l.queue) == 0 {
			t := l.begin()
			g.mu.Unlock()
			return t, nil
		}
		if j != nil {
			l.queue = append(l.queue, j)
			s.watch(c, l)
			g.mu.Unlock()
			return turn{}, j
		}
		g.mu.Unlock()
		for _, r := range reqs { // not while others wait for the lock
			s.fill(r)
		}
		j = newJob(op, reqs)
		j.lane = l
	}
}

// begin begins a turn. The caller has locked gatherer.mu.
func (l *lane) begin() turn {
	l.calls++
	return turn{l, l.era}
}

// ended notes that a call has ended. It returns false if others were not to wait for it: then the
// turn is over. The caller has locked gatherer.mu.
func (t turn) ended() bool {
	if t.era != t.lane.era {
		t.lane.hang--
		return false
	}
	t.lane.ended++
	return true
}

// leave ends a call of a lane. If others have gathered meanwhile, it is their turn.
func (s *Store) leave(c rueidis.Client, t turn) {
	s.gather.mu.Lock()
	defer s.gather.mu.Unlock()
	switch {
	case !t.ended():
	case len(t.lane.queue) == 0:
		t.lane.calls--
	default:
		s.running.Go(func() { s.pump(c, t) }) // ends when the queue is empty; Close waits for it
	}
}

// pump makes the calls of a lane until nobody waits.
func (s *Store) pump(c rueidis.Client, t turn) {
	for {
		runtime.Gosched() // those who were just answered may come again
		b := s.nextBatch(c, t)
		if b == nil {
			return
		}
		if len(b.jobs) > 0 {
			ctx, cancel := context.WithCancel(context.Background())
			b.cancel.Store(&cancel)
			if b.waiting.Load() == 0 { // they left before they could cancel it
				cancel()
			}
			s.send(ctx, c, b)
			cancel()
		}
		s.gather.mu.Lock()
		mine := t.ended()
		s.gather.mu.Unlock()
		if !mine {
			return
		}
	}
}

// nextBatch returns what goes next, and ends the turn if there is nothing.
func (s *Store) nextBatch(c rueidis.Client, t turn) *batch {
	g, l := &s.gather, t.lane
	g.mu.Lock()
	queue := l.queue
	l.queue, l.left = nil, 0
	if len(queue) == 0 {
		l.calls--
		g.mu.Unlock()
		return nil
	}
	g.mu.Unlock()
	b := newBatch()
	for len(queue) > 0 && b.add(queue[0]) {
		queue = queue[1:]
	}
	if len(queue) > 0 {
		g.mu.Lock()
		l.queue = append(queue, l.queue...)
		if l.calls < mostInFlight {
			next := l.begin()
			s.running.Go(func() { s.pump(c, next) })
		}
		g.mu.Unlock()
	}
	return b
}

// watch sees after a while whether the calls of a lane hang for which requests wait. The caller has
// locked gatherer.mu.
func (s *Store) watch(c rueidis.Client, l *lane) {
	if l.watched || s.gather.unhurried {
		return
	}
	l.watched = true
	ended := l.ended
	time.AfterFunc(hangsAfter, func() { // ends at once
		s.gather.mu.Lock()
		defer s.gather.mu.Unlock()
		l.watched = false
		if len(l.queue) == 0 {
			return
		}
		if l.ended == ended && l.hang+l.calls <= mostHang {
			l.hang, l.calls = l.hang+l.calls, 0
			l.era++
			t := l.begin()
			s.running.Go(func() { s.pump(c, t) }) // those that hang are running calls
		}
		s.watch(c, l)
	})
}

// await waits until a job is answered, and reads its answers. It returns what together does.
func (s *Store) await(ctx context.Context, j *job) (again []*request, alone bool) {
	if ctx.Done() == nil {
		<-j.ready
	} else {
		select {
		case <-j.ready:
		case <-ctx.Done():
			select {
			case <-j.ready:
			default:
				s.abandon(j, ctx.Err())
				return nil, false
			}
		}
	}
	reqs, failed, alone, op := j.reqs, j.err, j.alone, j.op
	j.free()
	if alone {
		return reqs, true
	}
	again = reqs[:0]
	for _, r := range reqs {
		err := failed
		if err == nil {
			if err = s.readAnswer(r); errors.Is(err, errAgain) {
				again = append(again, r)
				continue
			}
			err = failure(op, err, r.keys)
		}
		r.err = err
	}
	return again, false
}

// abandon ends the requests of a caller whose time is over.
func (s *Store) abandon(j *job, why error) {
	var err error
	if j.state.CompareAndSwap(gathering, hasLeft) {
		err = &store.Error{Store: "redis", Op: j.op, Err: fmt.Errorf("%w: %w", store.ErrNothingDone, why)}
		s.gather.mu.Lock()
		if l := j.lane; l != nil {
			if l.left++; l.left > 64 && 2*l.left > len(l.queue) {
				l.compact()
			}
		}
		s.gather.mu.Unlock()
	} else {
		err = j.batch.failed(storeError(j.op, fmt.Errorf("%w: %w", store.ErrUnknownOutcome, why)))
		j.batch.left()
	}
	for _, r := range j.reqs {
		r.err = err
	}
}

// compact removes those from the queue that have left.
func (l *lane) compact() {
	kept := l.queue[:0]
	for _, j := range l.queue {
		if j.state.Load() == gathering {
			kept = append(kept, j)
		}
	}
	clear(l.queue[len(kept):])
	l.queue, l.left = kept, 0
}

const (
	// apartFor is how long the requests of a damaged bucket stay calls of their own: each batch
	// with one of them would have to be sent again, one by one.
	apartFor = 10 * time.Second
	// mostKeptApart bounds how many buckets this is known of.
	mostKeptApart = 1000
)

// isApart reports whether one of the requests is for a bucket that spoiled a batch.
func (g *gatherer) isApart(reqs []*request) bool {
	if g.aparts.Load() == 0 {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range reqs {
		for _, k := range r.keys {
			if time.Now().Before(g.apart[k]) {
				return true
			}
		}
	}
	return false
}

// spoiled notes the buckets of requests that failed by themselves after they failed in a batch.
func (g *gatherer) spoiled(reqs []*request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(g.apart, func(_ string, until time.Time) bool { return !now.Before(until) })
	for _, r := range reqs {
		if se, ok := errors.AsType[*store.Error](r.err); !ok || se.Fault != store.FaultBucket {
			continue
		}
		for _, k := range r.keys {
			if g.apart == nil {
				g.apart = map[string]time.Time{}
			}
			if len(g.apart) < mostKeptApart {
				g.apart[k] = now.Add(apartFor)
			}
		}
	}
	g.aparts.Store(int64(len(g.apart)))
}
