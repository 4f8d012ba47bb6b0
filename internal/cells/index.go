package cells

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"unsafe"
)

// index finds cells by space and name. It stores the cells themselves: finding one takes no lock
// and, if there are too many for a processor's cache, a single access to memory. An index of
// pointers would need at least two.
//
// It uses extendible hashing (Fagin, Nievergelt, Pippenger, Strong: Extendible hashing, 1979). The
// first bits of a hash select a page through a directory. Other bits select a cell in the page, and
// the search continues from there (linear probing). A full page is replaced by a larger one or by
// two, so nobody waits for more than some thousand cells to move, however many there are.
type index struct {
	seed maphash.Seed
	dir  atomic.Pointer[directory]
	mu   sync.Mutex // held to change dir or its entries, by the holder of the page that is replaced
}

// directory has a page for each value of the first bits of a hash. A page for which fewer bits are
// enough has several entries.
type directory struct {
	depth uint // bits, 1 or more
	pages []entry
}

// entry points to a page. It also has the address of the page's cells, so that a cell can be
// prefetched without waiting for the page.
type entry struct {
	page  atomic.Pointer[page]
	cells atomic.Uint64 // the address of the first, and in the highest 16 bits how many; only for prefetch
}

func (e *entry) set(p *page) {
	e.page.Store(p)
	e.cells.Store(uint64(uintptr(unsafe.Pointer(unsafe.SliceData(p.cells)))) | uint64(len(p.cells))<<48) //nolint:gosec // it never becomes a pointer again
}

// begin returns the address of the cell where the search for a hash begins.
func (e *entry) begin(h uint64) uint64 {
	cells := e.cells.Load()
	return cells&(1<<48-1) + uint64(place(h, int(cells>>48)))*uint64(unsafe.Sizeof(cell{}))
}

func newIndex() *index {
	x := &index{seed: maphash.MakeSeed()}
	d := newDirectory(1)
	for i := range d.pages {
		d.pages[i].set(newPage(0, uint64(i)<<63, 1))
	}
	x.dir.Store(d)
	return x
}

func newDirectory(depth uint) *directory {
	return &directory{depth: depth, pages: make([]entry, 1<<depth)}
}

func (d *directory) entry(h uint64) *entry { return &d.pages[h>>((64-d.depth)&63)] }

func (x *index) hash(sp *Space, name string) uint64 { return maphash.String(x.seed, name) ^ sp.salt }

func (x *index) hashOf(c *cell) uint64 { return c.name.hash(x.seed) ^ c.owner.Load().space.salt }

// find returns a cell that was not dead a moment ago, or nil.
func (x *index) find(sp *Space, name string) *cell { return x.findHashed(sp, name, x.hash(sp, name)) }

// findHashed is find for callers that know the hash.
func (x *index) findHashed(sp *Space, name string, h uint64) *cell {
	for {
		p := x.dir.Load().entry(h).page.Load()
		if c := p.find(sp, name, h); c != nil || !p.moved.Load() {
			return c
		}
		x.lock(h).mu.Unlock() // wait until the cells have moved
	}
}

// insert returns the cell of that name, and whether it was made. create returns the initial state
// of a new cell.
func (x *index) insert(sp *Space, name string, create func() (tat int64, h *owner)) (c *cell, made bool) {
	h := x.hash(sp, name)
	for {
		p := x.lock(h)
		if c := p.find(sp, name, h); c != nil { // another caller was faster
			p.mu.Unlock()
			return c, false
		}
		if p.hasRoom() {
			tat, hm := create()
			c := p.add(copyName(name), tat, hm, h)
			p.mu.Unlock()
			return c, true
		}
		x.replace(p, 1)
		p.mu.Unlock()
	}
}

// lock returns the page of a hash, locked.
func (x *index) lock(h uint64) *page {
	for {
		p := x.dir.Load().entry(h).page.Load()
		p.mu.Lock()
		if !p.moved.Load() {
			return p
		}
		p.mu.Unlock()
	}
}

// replace moves the living cells of a page to where there is room for them and more others. p.mu is
// held.
func (x *index) replace(p *page, more int) {
	p.moved.Store(true)
	if size, ok := sizeFor(p.living() + more); ok {
		q := newPage(size, p.first, p.depth)
		p.move(x, q, q)
		x.put(q)
		return
	}
	var q [2]*page
	for i, n := range p.halves(x) {
		size, _ := sizeFor(n)
		q[i] = newPage(size, p.first|uint64(i)<<(63-p.depth), p.depth+1)
	}
	p.move(x, q[0], q[1])
	x.put(q[:]...)
}

// put enters the pages that replace one.
func (x *index) put(pages ...*page) {
	x.mu.Lock()
	defer x.mu.Unlock()
	d := x.dir.Load()
	if pages[0].depth > d.depth {
		twice := newDirectory(d.depth + 1)
		for i := range twice.pages {
			twice.pages[i].set(d.pages[i/2].page.Load())
		}
		d = twice
	}
	for _, p := range pages {
		at := p.first >> (64 - d.depth)
		for i := range uint64(1) << (d.depth - p.depth) {
			d.pages[at+i].set(p)
		}
	}
	x.dir.Store(d)
}

// each yields all cells that exist throughout the call, and perhaps others, until yield returns
// false. A cell may be dead when it is yielded.
func (x *index) each(yield func(*cell) bool) {
	var found []*cell
	x.eachPage(func(p *page) {
		found = p.appendAlive(found[:0])
	}, func() bool {
		for _, c := range found {
			if !yield(c) {
				return false
			}
		}
		return true
	})
}

// sweep calls kill for each cell, and frees the room of those that died. kill must not wait for
// another cell.
func (x *index) sweep(kill func(*cell) bool) {
	x.eachPage(func(p *page) {
		left := 0
		for i := range p.cells {
			if c := &p.cells[i]; c.alive() && !kill(c) {
				left++
			}
		}
		if size, ok := sizeFor(left); ok && size < len(p.cells) {
			x.replace(p, 0)
		}
	}, func() bool { return true })
}

// eachPage calls locked with each page while it is locked, and then between, until that returns
// false.
func (x *index) eachPage(locked func(*page), between func() bool) {
	for h := uint64(0); ; {
		p := x.lock(h)
		locked(p)
		p.mu.Unlock()
		if !between() {
			return
		}
		if h = p.first + 1<<(64-p.depth); h == 0 {
			return
		}
	}
}
