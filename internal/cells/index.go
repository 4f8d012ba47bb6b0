package cells

import (
	"hash/maphash"
	"math/bits"
	"sync"
	"sync/atomic"
)

// index finds cells by space and name. Finding takes no lock and two memory accesses that depend on each other (group, cell); a general map of pointers
// takes three or four.
//
// It is a hash table of groups the size of a cache line, seven cells and a tag for each: as in a Swiss table, the tags tell which cells to look at.
// What does not fit into its group goes to the next one. Writers hold a lock per shard; a growing shard is copied.
type index struct {
	seed   maphash.Seed
	shards [shards]shard
}

const (
	shards    = 64
	shardBits = 6
	perGroup  = 7
)

type shard struct {
	mu     sync.Mutex
	groups atomic.Pointer[[]group] // the length is a power of two
	used   int                     // guarded by mu: slots that are not empty, deleted ones included
	_      [40]byte                // a cache line each
}

// group is seven slots. Byte i of tags describes slot i: 0 empty, 1 deleted, otherwise seven bits of the hash and the top bit.
type group struct {
	tags  atomic.Uint64
	slots [perGroup]atomic.Pointer[cell]
}

const (
	lowBits  = 0x0001_0101_0101_0101
	highBits = 0x0080_8080_8080_8080
	deleted  = 1
)

func newIndex() *index { return &index{seed: maphash.MakeSeed()} }

func (x *index) hash(sp *Space, name string) uint64 { return maphash.String(x.seed, name) ^ sp.salt }

func (x *index) hashOf(c *cell) uint64 { return c.name.hash(x.seed) ^ c.home.Load().space.salt }

// tagged returns seven bytes of a tag.
func tagOf(h uint64) uint64 { return h>>57 | 0x80 }

// zeros has the top bit set of the lowest zero byte among the seven, and perhaps of some above it.
func zeros(v uint64) uint64 { return (v - lowBits) &^ v & highBits }

// find returns a cell, or nil.
func (x *index) find(sp *Space, name string) *cell { return x.findHashed(sp, name, x.hash(sp, name)) }

// findHashed is find for those who know the hash.
func (x *index) findHashed(sp *Space, name string, h uint64) *cell {
	gs := x.shards[h&(shards-1)].groups.Load()
	if gs == nil {
		return nil
	}
	groups := *gs
	mask := uint64(len(groups) - 1)
	want := tagOf(h) * lowBits
	for i := h >> shardBits & mask; ; i = (i + 1) & mask {
		g := &groups[i]
		tags := g.tags.Load()
		for m := zeros(tags ^ want); m != 0; m &= m - 1 {
			c := g.slots[bits.TrailingZeros64(m)/8].Load()
			if c != nil && c.name.is(name) && c.home.Load().space == sp {
				return c
			}
		}
		if zeros(tags) != 0 {
			return nil
		}
	}
}

// insert returns the cell of that name, made by create if there is none, and whether it was made.
func (x *index) insert(sp *Space, name string, create func() *cell) (c *cell, made bool) {
	h := x.hash(sp, name)
	s := &x.shards[h&(shards-1)]
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := x.findHashed(sp, name, h); c != nil { // whoever was first
		return c, false
	}
	gs := s.groups.Load()
	if gs == nil || s.used >= len(*gs)*perGroup*3/4 {
		gs = s.grow(x)
	}
	c = create()
	s.put(*gs, c, h)
	return c, true
}

// put adds a cell to groups that have room. s.mu is held.
func (s *shard) put(groups []group, c *cell, h uint64) {
	mask := uint64(len(groups) - 1)
	for i := h >> shardBits & mask; ; i = (i + 1) & mask {
		g := &groups[i]
		tags := g.tags.Load()
		m := zeros(tags)
		if m == 0 {
			continue
		}
		slot := bits.TrailingZeros64(m) / 8
		g.slots[slot].Store(c)
		g.tags.Store(tags | tagOf(h)<<(8*slot))
		s.used++
		return
	}
}

// grow copies the cells that are alive into groups with room for twice as many. s.mu is held.
func (s *shard) grow(x *index) *[]group {
	n := 0
	s.each(func(*cell) bool { n++; return true })
	size := 1
	for size*perGroup*3/8 < n {
		size *= 2
	}
	groups := make([]group, size)
	old := s.groups.Load()
	s.used = 0
	if old != nil {
		for i := range *old {
			g := &(*old)[i]
			for k := range g.slots {
				if c := g.slots[k].Load(); c != nil {
					s.put(groups, c, x.hashOf(c))
				}
			}
		}
	}
	s.groups.Store(&groups)
	return &groups
}

// remove takes out a cell.
func (x *index) remove(c *cell) bool {
	h := x.hashOf(c)
	s := &x.shards[h&(shards-1)]
	s.mu.Lock()
	defer s.mu.Unlock()
	gs := s.groups.Load()
	if gs == nil {
		return false
	}
	groups := *gs
	mask := uint64(len(groups) - 1)
	for i := h >> shardBits & mask; ; i = (i + 1) & mask {
		g := &groups[i]
		tags := g.tags.Load()
		for k := range g.slots {
			if g.slots[k].Load() != c {
				continue
			}
			tag := uint64(deleted)
			if zeros(tags) != 0 { // nobody looks past this group
				tag = 0
				s.used--
			}
			g.tags.Store(tags&^(0xff<<(8*k)) | tag<<(8*k))
			g.slots[k].Store(nil)
			return true
		}
		if zeros(tags) != 0 {
			return false
		}
	}
}

// each yields the cells of a shard that are there all the time, and perhaps others, until yield returns false.
func (s *shard) each(yield func(*cell) bool) bool {
	gs := s.groups.Load()
	if gs == nil {
		return true
	}
	for i := range *gs {
		for k := range (*gs)[i].slots {
			if c := (*gs)[i].slots[k].Load(); c != nil && !yield(c) {
				return false
			}
		}
	}
	return true
}

// each yields the cells that are there all the time, and perhaps others, until yield returns false.
func (x *index) each(yield func(*cell) bool) {
	for i := range x.shards {
		if !x.shards[i].each(yield) {
			return
		}
	}
}
