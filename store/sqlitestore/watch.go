package sqlitestore

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
)

// While somebody watches, the store looks every few milliseconds whether another process has
// written. If so, it looks at the buckets in which this process left tickets: units that came free
// early, or a ticket that ended early, are announced.

const (
	lookEvery     = 5 * time.Millisecond
	announceEvery = 5 * time.Millisecond // in one bucket: its receiver asks the store each time
	awaitedFor    = ticketLife           // after a refusal; the taker asks again in half of that
	maxAwaited    = 1024                 // buckets
)

// watchers receive buckets whose units may have come free early.
type watchers struct {
	mu    sync.Mutex
	some  atomic.Bool
	chans map[chan<- store.Key]bool // guarded by mu
}

// Watch implements [store.Watcher]. It also announces what other processes did, about 5 ms later,
// to buckets in which this store left tickets.
func (s *Store) Watch(keys chan<- store.Key) (stop func()) {
	w := &s.watchers
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.chans == nil {
		w.chans = make(map[chan<- store.Key]bool)
	}
	w.chans[keys] = true
	w.some.Store(true)
	s.signal() // the writer may be resting for minutes
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.chans, keys)
		w.some.Store(len(w.chans) > 0)
	}
}

// hint never blocks: a slow watcher misses it.
func (w *watchers) hint(key store.Key) {
	if !w.some.Load() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for ch := range w.chans {
		select {
		case ch <- key:
		default:
		}
	}
}

// hintAll announces the buckets of a settlement.
func (w *watchers) hintAll(buckets []store.BucketCost) {
	if !w.some.Load() {
		return
	}
	for i := range buckets {
		w.hint(buckets[i].Key)
	}
}

// awaited is a bucket in which this process has left a ticket.
type awaited struct {
	cost  store.BucketCost
	until int64     // µs: its taker has asked again by then
	freed bool      // to be announced
	sent  time.Time // when it was last announced
}

// await has a bucket looked at for a while.
func (w *writer) await(b *store.BucketCost, now int64) {
	a := w.awaited[b.Key]
	if a == nil {
		if len(w.awaited) >= maxAwaited {
			return
		}
		a = &awaited{}
		if w.awaited == nil {
			w.awaited = map[store.Key]*awaited{}
		}
		w.awaited[b.Key] = a
	}
	a.cost, a.until = *b, now+awaitedFor
}

// watched returns what is awaited of a bucket if somebody watches, or nil.
func (w *writer) watched(key store.Key) *awaited {
	if len(w.awaited) == 0 || !w.s.watchers.some.Load() {
		return nil
	}
	return w.awaited[key]
}

// lineChanged compares a line with what another process has made of it: a ticket that is gone
// before its end was granted or withdrawn.
func (w *writer) lineChanged(was, is *line) {
	a := w.watched(is.key)
	if a == nil || was == nil {
		return
	}
	now := w.s.now()
	left := is.decode(now).Tickets
	for _, x := range was.decode(now).Tickets {
		if x.End > now && !hasTicket(left, x.Number) {
			a.freed = true
		}
	}
}

func hasTicket(all []record.Ticket, number uint64) bool {
	for i := range all {
		if all[i].Number == number {
			return true
		}
	}
	return false
}

// lookAround looks for what other processes did, if it is time.
func (w *writer) lookAround() {
	if !w.s.watchers.some.Load() || time.Since(w.looked) < lookEvery || w.conn == nil || w.s.isBroken() != nil {
		return
	}
	w.looked = time.Now()
	now := w.s.now()
	for k, a := range w.awaited {
		if a.until <= now {
			delete(w.awaited, k)
		}
	}
	if len(w.awaited) == 0 {
		return
	}
	version, _, err := w.conn.number(qVersion)
	if err != nil {
		return // the next transaction finds out
	}
	if version != w.version || w.epoch != w.lookedEpoch {
		if !w.reload() {
			return
		}
		w.lookedEpoch = w.epoch
	}
	w.lines.sync(false)
	for k, a := range w.awaited {
		if a.freed && time.Since(a.sent) >= announceEvery {
			a.freed, a.sent = false, w.looked
			w.s.watchers.hint(k)
		}
	}
}

// reload reads the awaited buckets that others have changed. fetch compares them with what they
// were.
func (w *writer) reload() bool {
	if err := w.begin(true); err != nil {
		return false
	}
	for k := range w.awaited {
		if _, err := w.fetch(k); err != nil && !isBucket(err) {
			w.abort(err)
			return false
		}
	}
	if _, err := w.conn.exec(qCommit); err != nil {
		w.abort(err)
		return false
	}
	w.cache.shrink()
	return true
}

// state describes an awaited bucket.
func (w *writer) state(a *awaited, b *bucket, now int64) store.State {
	w.repaired.fill(b, a.cost.Plan, now)
	return store.Internal.Describe(&a.cost, b.rec, nil, 0, true, now)
}

// compare notes whether units of a bucket came free early, or its pause ended.
func (a *awaited) compare(was, is *store.State, now int64) {
	for j := range was.States {
		if is.States[j].Used < was.States[j].Used {
			a.freed = true
		}
	}
	if was.Pause.Until.UnixMicro() > now && is.Pause.Until.Before(was.Pause.Until) {
		a.freed = true
	}
}
