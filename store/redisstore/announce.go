package redisstore

import (
	"context"
	"encoding/binary"
	"maps"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/drawgate/drawgate/internal/storekey"
	"github.com/drawgate/drawgate/store"
)

// The script tells on a channel who may pass in the line of a bucket in which units have come free,
// and in any case who is first: the number of the ticket, and the key. A store listens while
// somebody watches it, and passes on what is for a ticket that it has sent. Nobody relies on this:
// waiters ask again by themselves.

// announcements passes on what a store hears.
type announcements struct {
	mu      sync.Mutex
	chans   map[chan<- store.Key]bool // guarded by mu
	stop    context.CancelFunc        // guarded by mu: of the goroutine that listens; nil: there is none
	numbers map[uint64]time.Time      // guarded by mu: of the tickets that were sent, and when
}

const (
	mostNumbers = 10_000
	ticketLife  = 10 * time.Second // no ticket lives as long
	listenAgain = time.Second      // after the connection was lost
)

// Watch implements [store.Watcher]: it reports what is for a ticket of a take of this store.
func (s *Store) Watch(keys chan<- store.Key) (stop func()) {
	a := &s.announced
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.chans == nil {
		a.chans = map[chan<- store.Key]bool{}
	}
	a.chans[keys] = true
	if a.stop == nil {
		s.mu.RLock()
		defer s.mu.RUnlock()
		if !s.closed {
			var ctx context.Context
			ctx, a.stop = context.WithCancel(context.Background())
			s.running.Go(func() { s.listen(ctx) }) // until nobody watches, or Close
		}
	}
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if delete(a.chans, keys); len(a.chans) == 0 {
			a.end()
		}
	}
}

// end ends listening. a.mu is held.
func (a *announcements) end() {
	if a.stop != nil {
		a.stop()
		a.stop = nil
	}
}

// close ends listening for good.
func (a *announcements) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.end()
}

// listen listens until ctx ends.
func (s *Store) listen(ctx context.Context) {
	for warned := false; ctx.Err() == nil; {
		c, err := s.link.client(ctx)
		if err == nil {
			err = c.Receive(ctx, c.B().Subscribe().Channel(s.prefix+":%line").Build(), s.heard)
		}
		if _, denied := rueidis.IsRedisErr(err); denied && !warned {
			warned = true
			s.logger.Warn("redisstore: who waits is not told at once when units come free: the user may not subscribe "+
				"to the channel, see the package's documentation", "err", err)
		}
		t := time.NewTimer(listenAgain)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
		}
	}
}

// heard passes an announcement on, unless it is for another process.
func (s *Store) heard(m rueidis.PubSubMessage) {
	if len(m.Message) < 8 {
		return
	}
	number := binary.BigEndian.Uint64([]byte(m.Message))
	k, err := storekey.Parse(s.prefix, m.Message[8:], "")
	if err != nil {
		return // its parts are in the bucket
	}
	a := &s.announced
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ours := a.numbers[number]; !ours {
		return
	}
	for c := range a.chans {
		select {
		case c <- k:
		default: // it looks by itself
		}
	}
}

// sends notes the tickets of a take: who waits begins to watch when it was refused.
func (a *announcements) sends(t *store.Ticket) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if len(a.numbers) >= mostNumbers {
		maps.DeleteFunc(a.numbers, func(_ uint64, sent time.Time) bool { return now.Sub(sent) > ticketLife })
	}
	if a.numbers == nil || len(a.numbers) >= mostNumbers {
		a.numbers = map[uint64]time.Time{}
	}
	a.numbers[t.Number] = now
	for i := range t.Next {
		a.numbers[t.Next[i].Number] = now
	}
}
