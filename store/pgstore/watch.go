package pgstore

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/pgstore/internal/pg"
)

// When units come free early in a bucket for which somebody waits, or its line moves on, the store
// sends the key of its row as a notification, after the transaction and not within it: the commit
// of one that notifies takes a lock of the whole server. A store listens while somebody watches it,
// and passes on what concerns a bucket in which it has left a ticket. Nobody relies on this: who
// waits asks again.

const (
	mostAwaited = 10_000
	awaitedFor  = 10 * time.Second      // no ticket lives as long
	notifyEvery = 50 * time.Millisecond // at most, per process
	mostPending = 256                   // keys of one notifying statement
	mostPayload = 7000                  // bytes: the server takes less than 8000
	listenAgain = time.Second           // after the connection was lost
	hearAgain   = 10 * time.Minute      // after nothing was heard: somebody has to change a URL
)

// watchers receive buckets whose units may have come free early.
type watchers struct {
	mu      sync.Mutex
	chans   map[chan<- store.Key]bool // guarded by mu
	stop    context.CancelFunc        // guarded by mu: of the goroutine that listens; nil: there is none
	awaited map[string]awaited        // guarded by mu: by the key of the row

	listens atomic.Bool     // notifications arrive
	pending map[string]bool // guarded by mu: rows of which others have to be told
	telling bool            // guarded by mu: a goroutine does so
}

// awaited is a bucket in which this process has left a ticket.
type awaited struct {
	key   store.Key
	until time.Time
}

// Watch implements [store.Watcher]. What other processes did is announced to buckets in which this
// store left tickets.
func (s *Store) Watch(keys chan<- store.Key) (stop func()) {
	w := &s.watchers
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.chans == nil {
		w.chans = map[chan<- store.Key]bool{}
	}
	w.chans[keys] = true
	if w.stop == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.closed { // else nobody would wait for its end
			var ctx context.Context
			ctx, w.stop = context.WithCancel(s.life)
			s.loops.Go(func() { s.listen(ctx) })
		}
	}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if delete(w.chans, keys); len(w.chans) == 0 && w.stop != nil {
			w.stop()
			w.stop = nil
		}
	}
}

// await notes that a take may leave a ticket in buckets.
func (w *watchers) await(keys []keyed) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.awaited) >= mostAwaited {
		maps.DeleteFunc(w.awaited, func(_ string, a awaited) bool { return now.After(a.until) })
	}
	if w.awaited == nil || len(w.awaited) >= mostAwaited {
		w.awaited = map[string]awaited{}
	}
	for i := range keys {
		w.awaited[keys[i].row] = awaited{keys[i].key, now.Add(awaitedFor)}
	}
}

// hint tells those who watch in this process. A slow one misses it.
func (w *watchers) hint(key store.Key) {
	for ch := range w.chans {
		select {
		case ch <- key:
		default:
		}
	}
}

// heard passes a notification on, if this process waits there.
func (w *watchers) heard(row string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if a, ok := w.awaited[row]; ok && time.Now().Before(a.until) {
		w.hint(a.key)
	}
}

// announce tells those who wait for a bucket that they may have a look.
func (s *Store) announce(r *row) {
	w := &s.watchers
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hint(r.key)
	if r.line == nil || len(r.line.Tickets) == 0 || len(r.row) > mostPayload || len(w.pending) >= mostPending {
		return
	}
	if w.pending == nil {
		w.pending = map[string]bool{}
	}
	w.pending[r.row] = true
	if !w.telling {
		w.telling = true
		s.loops.Go(s.tell)
	}
}

// tell notifies the other processes until there is nothing to tell.
func (s *Store) tell() {
	w := &s.watchers
	for {
		w.mu.Lock()
		rows := make([]string, 0, len(w.pending))
		for r := range w.pending {
			rows = append(rows, r)
		}
		clear(w.pending)
		w.telling = len(rows) > 0
		w.mu.Unlock()
		if len(rows) == 0 {
			return
		}
		// A failure is no fault: who waits asks again.
		_ = s.notify(s.life, rows...)
		if !s.sleep(notifyEvery) {
			return
		}
	}
}

// notify sends notifications to the channel of this store's tables.
func (s *Store) notify(ctx context.Context, texts ...string) error {
	return s.link.with(ctx, func(c *pg.Conn) error {
		_, err := c.Exec(ctx, "SELECT pg_notify($1, t) FROM unnest($2::text[]) AS t", s.sql.channel, texts)
		return err
	})
}

// hearsay begins a notification to oneself: no row's key begins so.
const hearsay = "!"

var errNotHeard = errors.New("a notification to oneself did not arrive")

// listen listens until ctx ends, on a connection of its own.
func (s *Store) listen(ctx context.Context) {
	for warned := false; ctx.Err() == nil; {
		err := s.listenOnce(ctx)
		if ctx.Err() == nil && !warned {
			warned = true
			s.opts.Logger.Warn("pgstore: who waits is not told at once when units come free in another process, until the "+
				"connection that listens is back; behind a pooler, name a server itself with listen=host:port", "error", explain(err))
		}
		wait := listenAgain
		if errors.Is(err, errNotHeard) {
			wait = hearAgain
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
		}
	}
}

func (s *Store) listenOnce(ctx context.Context) error {
	c, err := s.link.a.listener(ctx)
	if err != nil {
		return err
	}
	defer c.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it is not used any more
	if err := c.Listen(ctx, s.sql.channel); err != nil {
		return err
	}
	// What a pooler has taken for somebody else's connection does not arrive.
	own := hearsay + strconv.FormatUint(s.process, 16)
	if err := s.notify(ctx, own); err != nil {
		return err
	}
	soon, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for until := soon; ; {
		text, err := c.Hear(until)
		switch {
		case err != nil && until == soon && soon.Err() != nil && ctx.Err() == nil:
			return errNotHeard
		case err != nil:
			return err
		case text == own:
			until = ctx
			s.watchers.listens.Store(true)
			defer s.watchers.listens.Store(false)
		default:
			s.watchers.heard(text)
		}
	}
}
