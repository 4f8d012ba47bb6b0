// Package cells keeps buckets in the memory of this process: records under one lock each, or a
// single word where that is enough.
//
// It knows nothing about policies, contexts or callers, so that anything that decides locally can
// be built on it.
package cells

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drawgate/drawgate/internal/record"
)

// Errors of a take that was not decided.
var (
	ErrFull   = errors.New("the maximum number of buckets is in use") // there was no room for another bucket
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

// Store keeps buckets. It is safe for concurrent use. Time is the process's monotonic clock, set
// from the wall clock when the store is made.
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
	store  *Store
	key    spaceKey
	salt   uint64       // for its hashes
	pinned atomic.Bool  // it is kept for good; set under store.mu
	users  atomic.Int64 // callers about to look for a bucket in it; incremented under store.mu
	cells  atomic.Int64 // buckets in the index

	noted atomic.Pointer[record.Spec] // the first of the most recently noted limits

	mu    sync.Mutex
	rates map[rate]int64 // guarded by mu: when each was first seen, in µs since the store was made
	gcras []*gcra        // guarded by mu: one per way of counting, so that equal ways are the same pointer
}

// rate identifies a bucket limit with its rate.
type rate struct {
	limit uint64
	units int64
}

// since returns when a bucket limit was first seen with its rate.
func (sp *Space) since(s *record.Spec) int64 {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	return sp.rates[rate{s.ID, s.Rate}]
}

// note records the rates of specs, so that a change of a rate has an instant.
func (sp *Space) note(specs []record.Spec) {
	if sp.noted.Load() == &specs[0] {
		return
	}
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if sp.rates == nil {
		sp.rates = make(map[rate]int64)
	}
	for i := range specs {
		r := rate{specs[i].ID, specs[i].Rate}
		if _, ok := sp.rates[r]; !ok && specs[i].Kind == record.Bucket {
			sp.rates[r] = sp.store.now()
		}
	}
	sp.noted.Store(&specs[0])
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

// Close waits for background work.
func (s *Store) Close() {
	s.starting.Lock()
	s.closed.Store(true)
	s.starting.Unlock()
	s.running.Wait()
}

// Space returns the buckets of a policy, which then stay for as long as the store exists.
func (s *Store) Space(tenant, policy string) *Space {
	s.mu.Lock()
	defer s.mu.Unlock()
	sp := s.space(spaceKey{tenant, policy})
	sp.pinned.Store(true)
	return sp
}

// space returns the buckets of a policy. s.mu is held.
func (s *Store) space(key spaceKey) *Space {
	sp := s.spaces[key]
	if sp == nil {
		sp = &Space{store: s, key: key, salt: rand.Uint64()} //nolint:gosec // spreads the hashes of equal names; the hash itself is keyed
		s.spaces[key] = sp
	}
	return sp
}

// use returns the buckets of a policy, which stay until done is called. Callers can invent any
// number of tenants, so spaces without a bucket are dropped, and none is made where there is no
// room for a bucket.
func (s *Store) use(tenant, policy string) (*Space, error) {
	if sp := s.find(tenant, policy); sp != nil {
		return sp, nil
	}
	if !s.room(s.most) {
		return nil, ErrFull
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sp := s.space(spaceKey{tenant, policy})
	sp.users.Add(1)
	return sp, nil
}

// find is use without making a space: it returns nil if there is none.
func (s *Store) find(tenant, policy string) *Space {
	s.mu.RLock()
	defer s.mu.RUnlock()
	sp := s.spaces[spaceKey{tenant, policy}]
	if sp != nil {
		sp.users.Add(1)
	}
	return sp
}

// done ends a use.
func (sp *Space) done() {
	if sp.users.Add(-1) == 0 {
		sp.drop()
	}
}

// drop drops the space if nobody uses it and it has no bucket.
func (sp *Space) drop() {
	if sp.pinned.Load() || sp.cells.Load() > 0 {
		return
	}
	s := sp.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if !sp.pinned.Load() && sp.users.Load() == 0 && sp.cells.Load() == 0 && s.spaces[sp.key] == sp {
		delete(s.spaces, sp.key)
	}
}

// Named is a bucket with its caller's way of counting.
type Named struct {
	Name
	Specs []record.Spec
}

// With calls f with the records of the buckets, all locked. It makes missing ones. The names must
// be distinct and in order ([Name.Compare]).
func (s *Store) With(names []Named, f func([]*record.Record)) error {
	recs := make([]*record.Record, len(names))
	locked := make([]*lockedRecord, 0, len(names))
	defer func() {
		for _, lr := range locked {
			lr.mu.Unlock()
		}
	}()
	for i, n := range names {
		sp, err := s.use(n.Tenant, n.Policy)
		if err != nil {
			return err
		}
		sp.note(n.Specs)
		lr, err := sp.lock(n.Name.Name, n.Specs)
		sp.done() // it has a bucket now
		if err != nil {
			return err
		}
		recs[i] = lr.whole()
		locked = append(locked, lr)
	}
	f(recs)
	return nil
}

// Among is like With, but makes no bucket: a missing one is an empty record that is discarded. If
// look is set, f changes nothing and gets copies of TATs.
func (s *Store) Among(names []Named, look bool, f func([]*record.Record)) {
	recs := make([]*record.Record, len(names))
	locked := make([]*lockedRecord, 0, len(names))
	defer func() {
		for _, lr := range locked {
			lr.mu.Unlock()
		}
	}()
	for i, n := range names {
		lr, copied := s.existing(n, look)
		if lr != nil {
			copied = lr.whole()
			locked = append(locked, lr)
		}
		recs[i] = copied
	}
	f(recs)
}

// existing returns a bucket's record, locked. For a look, or if there is none, it returns a copy.
func (s *Store) existing(n Named, look bool) (*lockedRecord, *record.Record) {
	sp := s.find(n.Tenant, n.Policy)
	if sp == nil {
		return nil, &record.Record{}
	}
	defer sp.done()
	if !look {
		sp.note(n.Specs)
	}
	for {
		c := s.index.find(sp, n.Name.Name)
		if c == nil {
			return nil, &record.Record{}
		}
		if w := c.tat.Load(); look && w != isRecord && w != dead {
			rec := c.owner.Load().record(w, n.Specs)
			return nil, &rec
		}
		if lr := c.lock(n.Specs); lr != nil {
			return lr, nil
		}
	}
}

// Reset forgets a bucket, including its open reservations.
func (s *Store) Reset(n Name) {
	sp := s.find(n.Tenant, n.Policy)
	if sp == nil {
		return
	}
	defer sp.done()
	for {
		c := s.index.find(sp, n.Name)
		if c == nil {
			return
		}
		if lr := c.lock(nil); lr != nil {
			lr.rec = record.Record{Last: lr.whole().Last}
			lr.mu.Unlock()
			return
		}
	}
}

// List yields the names of a policy's used buckets, in no particular order, until yield returns
// false.
func (s *Store) List(tenant, policy string, yield func(string) bool) {
	sp := s.find(tenant, policy)
	if sp == nil {
		return
	}
	defer sp.done()
	s.index.each(func(c *cell) bool {
		return c.owner.Load().space != sp || s.idle(c) || yield(c.name.String())
	})
}
