// Package cells keeps buckets in the memory of this process: records under a lock each, or a single word where that is enough.
//
// It knows nothing of policies, contexts or callers, so that whatever decides locally can stand on it.
package cells

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drawgate/drawgate/internal/record"
)

// Why a take was not decided.
var (
	ErrFull   = errors.New("as many buckets are in use as may be") // there was no room for another bucket
	ErrClosed = errors.New("the store is closed")
)

// Name is the full name of a bucket.
type Name struct{ Tenant, Policy, Name string }

// Compare orders names.
func (a Name) Compare(b Name) int {
	for _, p := range [...][2]string{{a.Tenant, b.Tenant}, {a.Policy, b.Policy}, {a.Name, b.Name}} {
		if p[0] < p[1] {
			return -1
		} else if p[0] > p[1] {
			return 1
		}
	}
	return 0
}

// Store keeps buckets. It is safe for concurrent use. Time is the process's monotonic clock, placed on the wall clock when the store is made.
type Store struct {
	epoch  time.Time
	base   int64 // epoch in Unix µs
	most   int64
	closed atomic.Bool
	index  *index

	mu     sync.RWMutex
	spaces map[spaceKey]*Space // guarded by mu
	sweeper
}

type spaceKey struct{ tenant, policy string }

// Space holds the buckets of one policy for one tenant.
type Space struct {
	store *Store
	salt  uint64 // of its hashes

	mu    sync.Mutex
	leans []*lean // guarded by mu: one per way of counting, so that equal ways are the same pointer
}

// New returns an empty store that keeps at most so many buckets.
func New(most int64) *Store {
	s := &Store{epoch: time.Now(), most: most, index: newIndex(), spaces: make(map[spaceKey]*Space)}
	s.base = s.epoch.UnixMicro()
	s.sweepAt.Store(firstSweep)
	return s
}

// Now returns the time in Unix µs.
func (s *Store) Now() int64 { return s.base + s.now() }

// now returns the time in µs since the store was made.
func (s *Store) now() int64 { return int64(time.Since(s.epoch)) / 1000 }

// Len returns the number of buckets in memory.
func (s *Store) Len() int64 { return s.count.Load() }

// Closed reports whether the store was closed.
func (s *Store) Closed() bool { return s.closed.Load() }

// Close waits for what runs in the background.
func (s *Store) Close() {
	s.starting.Lock()
	s.closed.Store(true)
	s.starting.Unlock()
	s.running.Wait()
}

// Space returns the buckets of a policy.
func (s *Store) Space(tenant, policy string) *Space {
	key := spaceKey{tenant, policy}
	s.mu.RLock()
	sp := s.spaces[key]
	s.mu.RUnlock()
	if sp != nil {
		return sp
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if sp = s.spaces[key]; sp == nil {
		sp = &Space{store: s, salt: rand.Uint64()} //nolint:gosec // spreads the hashes of equal names; the hash itself is keyed
		s.spaces[key] = sp
	}
	return sp
}

// With calls f with the records of the named buckets, all locked. The names are in order ([Name.Compare]) and different. Where create is false, a
// bucket that does not exist is an empty record that is thrown away.
func (s *Store) With(names []Name, create bool, f func([]*record.Record)) error {
	recs := make([]*record.Record, len(names))
	locked := make([]*full, 0, len(names))
	defer func() {
		for _, fl := range locked {
			fl.mu.Unlock()
		}
	}()
	for i, n := range names {
		fl, err := s.Space(n.Tenant, n.Policy).lock(n.Name, create)
		switch {
		case err != nil:
			return err
		case fl == nil:
			recs[i] = &record.Record{}
		default:
			recs[i] = &fl.rec
			locked = append(locked, fl)
		}
	}
	f(recs)
	return nil
}

// Reset forgets a bucket, its open reservations included.
func (s *Store) Reset(n Name) {
	if fl, _ := s.Space(n.Tenant, n.Policy).lock(n.Name, false); fl != nil {
		fl.rec = record.Record{Last: fl.rec.Last}
		fl.mu.Unlock()
	}
}

// List yields the names of the buckets of which something is used, in no order, until yield returns false.
func (sp *Space) List(yield func(string) bool) {
	sp.store.index.each(func(c *cell) bool {
		return c.space != sp || c.idle(sp.store) || yield(c.name)
	})
}
