package lease

import (
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/drawgate/drawgate/store"
)

// ident says whose leases an entry has. Takes of one priority must not spend what is kept for
// another one, and limits of other amounts are other leases of the same bucket.
type ident struct {
	key      store.Key
	plan     *store.Plan
	priority int8
}

const shards = 64

// keys finds the entries of the buckets that are asked for often. Looking one up takes no lock and
// does not allocate.
type keys struct {
	seed  maphash.Seed
	parts [shards]shard
	seen  sketch
}

type shard struct {
	mu      sync.Mutex
	entries atomic.Pointer[map[ident]*entry] // never changed: replaced, with mu held
}

func (k *keys) init() { k.seed = maphash.MakeSeed() }

func (k *keys) hash(id *ident) uint64 {
	h := maphash.Comparable(k.seed, id.key)
	return h ^ uint64(id.priority)<<32
}

// find returns the entry of a bucket, or nil.
func (k *keys) find(id *ident, hash uint64) *entry {
	m := k.parts[hash%shards].entries.Load()
	if m == nil {
		return nil
	}
	return (*m)[*id]
}

// add puts e in, unless there is one; it returns the one that is there.
func (k *keys) add(e *entry, hash uint64) *entry {
	e.id.key = store.Key{ // a name may be a part of something large
		Tenant: strings.Clone(e.id.key.Tenant), Policy: strings.Clone(e.id.key.Policy),
		Name: strings.Clone(e.id.key.Name),
	}
	p := &k.parts[hash%shards]
	p.mu.Lock()
	defer p.mu.Unlock()
	next := make(map[ident]*entry)
	if m := p.entries.Load(); m != nil {
		if was := (*m)[e.id]; was != nil {
			return was
		}
		maps.Copy(next, *m)
	}
	next[e.id] = e
	p.entries.Store(&next)
	return e
}

// remove takes e out.
func (k *keys) remove(e *entry) {
	p := &k.parts[k.hash(&e.id)%shards]
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.entries.Load()
	if m == nil || (*m)[e.id] != e {
		return
	}
	next := maps.Clone(*m)
	delete(next, e.id)
	p.entries.Store(&next)
}

// all returns all entries, or those of some buckets.
func (k *keys) all(of []store.Key) (list []*entry) {
	for i := range k.parts {
		m := k.parts[i].entries.Load()
		if m == nil {
			continue
		}
		for id, e := range *m {
			if of == nil || slices.Contains(of, id.key) {
				list = append(list, e)
			}
		}
	}
	return list
}

// sketch counts takes of buckets that have no entry, roughly and in little memory: cells are
// shared, and each counts the bucket that is asked for most.
type sketch struct{ cells [1 << 12]atomic.Uint64 } // 16 bits of count, 24 of the epoch, 24 of the hash

const sketchEpoch = 1 << 28 // ns, 268 ms

// count counts a take, and returns how many there were in the epoch. Some are missed.
func (s *sketch) count(hash uint64, now int64) (n int64) {
	c := &s.cells[hash>>6%uint64(len(s.cells))]
	tag, epoch := hash>>40, uint64(now/sketchEpoch)&(1<<24-1)
	was := c.Load()
	count := was & (1<<16 - 1)
	switch {
	case was>>16&(1<<24-1) != epoch:
		count = 1
	case was>>40 == tag:
		count = min(count+1, 1<<16-1)
	case count > 1:
		c.CompareAndSwap(was, was-1)
		return 0
	default:
		count = 1
	}
	c.CompareAndSwap(was, tag<<40|epoch<<16|count)
	return int64(count)
}
