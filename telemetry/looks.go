package telemetry

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
)

const (
	lookTime  = 2 * time.Second // for the store to answer
	lookPause = time.Second     // between two rounds
	lookAgain = time.Minute     // until buckets are looked at again in which nothing seems to happen
	mostLooks = 4096            // buckets
	// shortestBudget is the shortest window of limits whose milestones depend on what is used
	// without what is held. A shorter one is soon reported again.
	shortestBudget = 24 * time.Hour
)

// budget reports whether limit i of a plan holds units until it is known what was used, for a
// window so long that a milestone should not be reported because of what is held.
func budget(p *store.Plan, i int) bool {
	l := &p.Policy().Limits[i]
	long := l.Window >= shortestBudget
	if l.Kind == store.Calendar {
		long = l.Every >= store.Day
	}
	return long && store.Internal.ChargesAtEnd(p, i)
}

// looks finds out what buckets have used without what open reservations hold. A decision does not
// say that, and what is held becomes used only if the calls use it. A bucket is looked at when what
// is held would reach a milestone, and again after each settlement, until that is no longer so.
type looks struct {
	store store.Store
	// seen is told what a look has found, and reports whether to look again: what is held would
	// reach a milestone.
	seen func(b *store.BucketCost, s *store.State) (again bool)

	wake  chan struct{} // has a value when a bucket is due
	turn  sync.Mutex    // held during a round
	some  atomic.Int64  // buckets in wanted
	mu    sync.Mutex
	wants map[drawgate.Key]*want // guarded by mu
}

// want is a bucket to be looked at.
type want struct {
	bucket   store.BucketCost // without units
	priority int8
	due      bool // something has happened since the last look
}

func newLooks(s store.Store, seen func(*store.BucketCost, *store.State) bool) *looks {
	return &looks{store: s, seen: seen, wake: make(chan struct{}, 1), wants: map[drawgate.Key]*want{}}
}

// ask has a bucket looked at. If there are too many, the next take asks again.
func (l *looks) ask(b *store.BucketCost, priority int8) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wants[b.Key] == nil {
		if len(l.wants) >= mostLooks {
			return
		}
		l.some.Add(1)
	}
	l.wants[b.Key] = &want{bucket: store.BucketCost{Key: b.Key, Plan: b.Plan}, priority: priority, due: true}
	l.awake()
}

func (l *looks) awake() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// settled has the buckets of a settlement looked at again.
func (l *looks) settled(e *drawgate.Settled) {
	if l.some.Load() == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range e.Settlement.Buckets {
		if w := l.wants[e.Settlement.Buckets[i].Key]; w != nil {
			w.due = true
			l.awake()
		}
	}
}

// run looks at buckets until ctx ends.
func (l *looks) run(ctx context.Context) {
	again := time.NewTicker(lookAgain) // a hold has ended, or another process has settled
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-again.C:
			l.mu.Lock()
			for _, w := range l.wants {
				w.due = true
			}
			l.mu.Unlock()
		case <-l.wake:
		}
		l.round(ctx)
		select {
		case <-ctx.Done():
			return
		case <-time.After(lookPause):
		}
	}
}

// round looks at the buckets that are due. If the store does not answer, they stay due.
func (l *looks) round(ctx context.Context) {
	l.turn.Lock()
	defer l.turn.Unlock()
	for _, w := range l.due() {
		ctx, cancel := context.WithTimeout(ctx, lookTime)
		var out [1]store.State
		err := l.store.Peek(ctx, []store.BucketCost{w.bucket}, w.priority, out[:])
		cancel()
		ok := err == nil && out[0].Fail == nil && !out[0].Fallback &&
			len(out[0].States) == len(w.bucket.Plan.Policy().Limits)
		again := !ok || l.seen(&w.bucket, &out[0])
		l.mu.Lock()
		now := l.wants[w.bucket.Key]
		switch {
		case now == nil:
		case !ok:
			now.due = true // looked at within a minute: whatever is wrong is reported by the calls
		case !again && !now.due:
			delete(l.wants, w.bucket.Key)
			l.some.Add(-1)
		}
		l.mu.Unlock()
		if err != nil {
			return // the others are looked at within a minute
		}
	}
}

// due returns the buckets that are due, which they are no longer.
func (l *looks) due() (list []want) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.wants {
		if w.due {
			w.due = false
			list = append(list, *w)
		}
	}
	return list
}

// seen reports the milestones that a bucket has reached without what is held, and reports whether
// what is held would reach more.
func (w *Warner) seen(b *store.BucketCost, s *store.State) (again bool) {
	p := w.table.get(b.Plan.Name())
	for i, limit := range b.Plan.Policy().Limits {
		if !budget(b.Plan, i) || s.States[i].Max < 1 {
			continue
		}
		is, l := &s.States[i], drawgate.Limit(limit)
		m := measured{
			limit: &l, used: is.Used - is.Held, most: is.Max, at: s.Now, reset: s.First.Limits[i].ResetAt,
		}
		at := w.look(&b.Key, i, &m)
		w.milestone(p, &at, &m)
		m.used = is.Used
		at = w.look(&b.Key, i, &m)
		again = again || w.marks.would(&at)
	}
	return again
}
