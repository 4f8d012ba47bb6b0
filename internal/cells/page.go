package cells

import (
	"sync"
	"sync/atomic"
)

// page is a part of an index: a table of cells, some of them free.
type page struct {
	cells []cell
	moved atomic.Bool // set before the first cell moves: a search that fails looks again once mu is free
	depth uint        // number of significant bits of first
	first uint64      // the first bits of the hashes that belong here

	mu   sync.Mutex // held to add, kill and move cells
	used int        // guarded by mu: cells that are not free, dead ones included
}

// newPage returns an empty page of so many cells.
func newPage(cells int, first uint64, depth uint) *page {
	return &page{cells: newCells(cells), first: first, depth: depth}
}

// hasRoom reports whether another cell may be added without making searches too long. p.mu is held.
func (p *page) hasRoom() bool { return (p.used+1)*5 <= len(p.cells)*4 }

// sizeFor returns the size of a page for n cells, with at least a fifth to spare. It is not ok if
// that is more than a page may have.
func sizeFor(n int) (size int, ok bool) {
	if n == 0 {
		return 0, true // no cells until there is one
	}
	for _, size = range [...]int{8, 15, 31, 63, 127, 255, 512, 896, 1280} {
		if n*3 <= size*2 {
			return size, true
		}
	}
	return size, false
}

// find returns the cell of that name, or nil.
func (p *page) find(sp *Space, name string, h uint64) *cell {
	n := len(p.cells)
	if n == 0 {
		return nil
	}
	for i := place(h, n); ; {
		c := &p.cells[i]
		hm := c.owner.Load()
		if hm == nil {
			return nil
		}
		if c.name.is(name) && hm.space == sp && c.tat.Load() != dead {
			return c
		}
		if i++; i == n {
			i = 0
		}
	}
}

// place returns the position of a hash among n cells. It uses other bits than those that selected
// the page.
func place(h uint64, n int) int { return int(h & (1<<32 - 1) * uint64(n) >> 32) }

// add makes a cell for a name that has none. p.mu is held, or nobody else knows p.
func (p *page) add(name nameCopy, tat int64, hm *owner, h uint64) *cell {
	i := place(h, len(p.cells))
	for p.cells[i].owner.Load() != nil {
		if i++; i == len(p.cells) {
			i = 0
		}
	}
	c := &p.cells[i]
	c.name = name
	c.tat.Store(tat)
	c.owner.Store(hm) // last: now it can be found
	p.used++
	return c
}

// living counts the cells that are not dead. p.mu is held.
func (p *page) living() (n int) {
	for i := range p.cells {
		if p.cells[i].alive() {
			n++
		}
	}
	return n
}

// halves counts them in each half of the page's range of hashes. p.mu is held.
func (p *page) halves(x *index) (n [2]int) {
	for i := range p.cells {
		if c := &p.cells[i]; c.alive() {
			n[x.hashOf(c)>>(63-p.depth)&1]++
		}
	}
	return n
}

// appendAlive appends the cells that are not dead. p.mu is held.
func (p *page) appendAlive(cells []*cell) []*cell {
	for i := range p.cells {
		if c := &p.cells[i]; c.alive() {
			cells = append(cells, c)
		}
	}
	return cells
}

// move moves the cells that are not dead, each to the page of its half. p.mu is held, p.moved is
// set, and nobody else knows the new pages.
func (p *page) move(x *index, zero, one *page) {
	for i := range p.cells {
		c := &p.cells[i]
		if !c.alive() {
			continue
		}
		h := x.hashOf(c)
		tat, hm := c.leave()
		if h>>(63-p.depth)&1 == 0 {
			zero.add(c.name, tat, hm, h)
		} else {
			one.add(c.name, tat, hm, h)
		}
	}
}

// alive reports whether the cell is in use and not dead. Its page is locked.
func (c *cell) alive() bool { return c.owner.Load() != nil && c.tat.Load() != dead }

// leave returns the state for the cell that replaces c. A TAT is dead afterwards; a record is
// shared by both.
func (c *cell) leave() (tat int64, h *owner) {
	for {
		w := c.tat.Load()
		h := c.owner.Load()
		// or it is becoming one right now: its lock is held until it has taken over the TAT
		if w == isRecord || h.locked != nil {
			return isRecord, h
		}
		if c.tat.CompareAndSwap(w, dead) {
			return w, h
		}
	}
}

// newCells returns n free cells, each aligned to a cache line. For some sizes, Go's allocator puts
// a word before data with pointers; those sizes have types of their own.
func newCells(n int) []cell {
	switch n {
	case 15:
		return new(struct {
			_ [56]byte
			c [15]cell
		}).c[:]
	case 31:
		return new(struct {
			_ [56]byte
			c [31]cell
		}).c[:]
	case 63:
		return new(struct {
			_ [56]byte
			c [63]cell
		}).c[:]
	case 127:
		return new(struct {
			_ [56]byte
			c [127]cell
		}).c[:]
	case 255:
		return new(struct {
			_ [56]byte
			c [255]cell
		}).c[:]
	}
	return make([]cell, n)
}
