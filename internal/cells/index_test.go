package cells

import (
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/drawgate/drawgate/internal/needs"
)

// colliding returns n names of a space that want the same place, the last or the first one of a
// page of any size, and belong to the same page as long as their hashes have those bits in common.
func colliding(x *index, sp *Space, n int, bits uint) (names []string) {
	for i := 0; len(names) < n; i++ {
		name := strconv.Itoa(i)
		if h := x.hash(sp, name); h>>(64-bits) == 0 && (place(h, 1280) == 0 ||
			place(h, 8) == 7 && place(h, 1280) == 1279) {
			names = append(names, name)
		}
	}
	return names
}

// size returns how many cells the pages have room for, and checks that the directory leads to each
// by all of its hashes.
func (x *index) size(t interface{ Fatalf(string, ...any) }) (n int) {
	x.eachPage(func(p *page) {
		n += len(p.cells)
		if living := p.living(); p.used < living || p.used*5 > len(p.cells)*4 {
			t.Fatalf("%d of %d cells used, %d living", p.used, len(p.cells), living)
		}
		d := x.dir.Load()
		for i := range d.pages {
			h := uint64(i)<<(64-d.depth) | 0xb504f333 // anywhere in the page
			if n := len(p.cells); d.pages[i].page.Load() == p && n > 0 &&
				d.pages[i].begin(h) != uint64(uintptr(unsafe.Pointer(&p.cells[place(h, n)]))) {
				t.Fatalf("page %x of %d bits has its cells elsewhere", p.first, p.depth)
			}
			if (d.pages[i].page.Load() == p) != (h>>(64-p.depth) == p.first>>(64-p.depth)) {
				t.Fatalf("page %x of %d bits stands for %x", p.first, p.depth, h)
			}
		}
	}, func() bool { return true })
	return n
}

// TestIndexIsAMap compares the index with a map, for names that are as alike as can be and for
// others, in two spaces that have equal names.
func TestIndexIsAMap(t *testing.T) {
	needs.NoRace(t) // only one goroutine computes
	t.Parallel()
	seeded := newIndex()
	one, two := &Space{}, &Space{} // without salt their equal names have equal hashes, too
	names := colliding(seeded, one, 30, 3)
	for i := range 1500 {
		names = append(names, fmt.Sprint("other", i))
	}
	type key struct {
		sp   *Space
		name string
	}
	rapid.Check(t, func(t *rapid.T) {
		x := newIndex()
		x.seed = seeded.seed
		model := map[key]any{} // its word, or its record
		is := func(c *cell) any {
			if w := c.tat.Load(); w != isRecord {
				return w
			}
			return c.owner.Load().locked
		}
		count := int64(0)
		insert := func(t *rapid.T, k key) {
			count++
			var mine any
			c, made := x.insert(k.sp, k.name, func() (int64, *owner) {
				if count%3 == 0 {
					lr := newLockedRecord(k.sp, nil)
					mine = lr
					return isRecord, &lr.owner
				}
				mine = count
				return count, &owner{space: k.sp}
			})
			old := model[k]
			if made != (old == nil) {
				t.Fatalf("insert %q: made %v, and there was %v", k.name, made, old)
			}
			if made {
				model[k] = mine
			}
			if is(c) != model[k] {
				t.Fatalf("insert %q: %v, want %v", k.name, is(c), model[k])
			}
		}
		draw := func(t *rapid.T) key {
			return key{
				rapid.SampledFrom([]*Space{one, two}).Draw(t, "space"),
				rapid.SampledFrom(names[:40]).Draw(t, "name"),
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"insert": func(t *rapid.T) { insert(t, draw(t)) },
			"insert many": func(t *rapid.T) { // so that it grows
				for _, name := range names[:rapid.SampledFrom([]int{10, 30, 100, len(names)}).Draw(t, "many")] {
					insert(t, key{two, name})
				}
			},
			"find": func(t *rapid.T) {
				k := draw(t)
				c := x.find(k.sp, k.name)
				if (c == nil) != (model[k] == nil) || c != nil && is(c) != model[k] {
					t.Fatalf("find %q: %v, want %v", k.name, c, model[k])
				}
			},
			"kill": func(t *rapid.T) {
				k := draw(t)
				killed := 0
				x.sweep(func(c *cell) bool {
					if c.owner.Load().space != k.sp || c.name.String() != k.name {
						return false
					}
					killed++
					c.tat.Store(dead)
					return true
				})
				if was := model[k] != nil; killed != 0 != was || killed > 1 {
					t.Fatalf("killed %q %d times; it was there: %v", k.name, killed, was)
				}
				delete(model, k)
			},
			"kill many": func(*rapid.T) { // so that it shrinks
				x.sweep(func(c *cell) bool {
					if c.owner.Load().space == one {
						return false
					}
					c.tat.Store(dead)
					return true
				})
				for k := range model {
					if k.sp == two {
						delete(model, k)
					}
				}
			},
			"": func(t *rapid.T) {
				n := 0
				x.each(func(c *cell) bool {
					n++
					if model[key{c.owner.Load().space, c.name.String()}] != is(c) {
						t.Fatalf("%q is listed and not there", c.name.String())
					}
					return true
				})
				if n != len(model) {
					t.Fatalf("%d are listed, want %d", n, len(model))
				}
				if most := 64 + 2*int(count); x.size(t) > most {
					t.Fatalf("room for %d cells, and there never were more than %d", x.size(t), count)
				}
			},
		})
	})
}

// TestIndexStopsListing when it is told to.
func TestIndexStopsListing(t *testing.T) {
	t.Parallel()
	x, sp := newIndex(), &Space{}
	for i := range 100 {
		x.insert(sp, fmt.Sprint(i), func() (int64, *owner) { return 1, &owner{space: sp} })
	}
	n := 0
	x.each(func(*cell) bool { n++; return n < 7 })
	if n != 7 {
		t.Errorf("%d yielded after the seventh was refused", n)
	}
}

// TestIndexNeverLosesACell: while others insert, die and are moved beside it in the same pages, a
// cell that is there is found, and listed once.
func TestIndexNeverLosesACell(t *testing.T) {
	t.Parallel()
	x, sp := newIndex(), &Space{}
	const workers, each = 4, 40
	names := colliding(x, sp, each, 3)
	for i := len(names); i < workers*each; i++ {
		names = append(names, fmt.Sprint("other", i))
	}
	tat := func(i int) func() (int64, *owner) {
		return func() (int64, *owner) { return int64(i), &owner{space: sp} }
	}
	var done atomic.Bool
	var readers, writers sync.WaitGroup
	fixed := map[string]int64{} // are there all the time
	for i := 0; i < len(names); i += workers {
		x.insert(sp, names[i], tat(i))
		fixed[names[i]] = int64(i)
	}
	for range 2 {
		readers.Go(func() {
			for !done.Load() {
				for n, want := range fixed {
					for c := x.find(sp, n); ; c = x.find(sp, n) {
						if c == nil {
							t.Errorf("%q is lost", n)
							return
						}
						if w := c.tat.Load(); w == want {
							break
						} else if w != dead { // moved since it was found
							t.Errorf("%q is %d, want %d", n, w, want)
							return
						}
					}
				}
				seen := map[string]int{}
				x.each(func(c *cell) bool {
					seen[c.name.String()]++
					return true
				})
				for n := range fixed {
					if seen[n] != 1 {
						t.Errorf("%q is listed %d times", n, seen[n])
						return
					}
				}
				runtime.Gosched()
			}
		})
	}
	for w := 1; w < workers; w++ {
		writers.Go(func() {
			for round := range 100 {
				mine := map[string]bool{}
				for i := w; i < len(names) && len(mine) < 1+round%each; i += workers {
					if _, made := x.insert(sp, names[i], tat(i)); !made {
						t.Errorf("%q is there already", names[i])
					}
					mine[names[i]] = true
				}
				for n := range mine {
					if x.find(sp, n) == nil {
						t.Errorf("%q is lost", n)
					}
				}
				killed := 0
				x.sweep(func(c *cell) bool {
					if !mine[c.name.String()] {
						return false
					}
					killed++
					c.tat.Store(dead)
					return true
				})
				if killed != len(mine) {
					t.Errorf("%d of %d were there to be killed", killed, len(mine))
				}
			}
		})
	}
	writers.Wait()
	done.Store(true)
	readers.Wait()
	n := 0
	x.each(func(*cell) bool { n++; return true })
	if n != len(fixed) {
		t.Errorf("%d cells are left, want %d", n, len(fixed))
	}
	x.size(t)
}

// TestIndexMakesOneCellPerName when many want it at once.
func TestIndexMakesOneCellPerName(t *testing.T) {
	t.Parallel()
	x, sp := newIndex(), &Space{}
	const names, workers = 2000, 4
	var made atomic.Int64
	var got [workers][names]int64
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range names {
				c, m := x.insert(sp, fmt.Sprint(i), func() (int64, *owner) {
					return int64(i*workers + w),
						&owner{space: sp}
				})
				if m {
					made.Add(1)
				}
				for got[w][i] = c.tat.Load(); got[w][i] == dead; { // moved since
					got[w][i] = x.find(sp, fmt.Sprint(i)).tat.Load()
				}
			}
		})
	}
	wg.Wait()
	for w := range workers {
		if got[w] != got[0] {
			t.Error("two workers have different cells")
		}
	}
	if made.Load() != names {
		t.Errorf("%d made, want %d", made.Load(), names)
	}
	if n := x.size(t); n > 2*names {
		t.Errorf("room for %d cells for %d", n, names)
	}
}

// TestARecordThatMovesIsTheSame for those who found it before, until it dies, and for those who
// find it after.
func TestARecordThatMovesIsTheSame(t *testing.T) {
	t.Parallel()
	s := New(10_000)
	defer s.Close()
	sp := s.Space("t", "p")
	specs := leaky(10, 1<<40)
	b := sp.Bind(specs)
	lr, err := sp.lock("k", specs)
	if err != nil {
		t.Fatal(err)
	}
	lr.mu.Unlock()
	if ok, _, err := take(b, "k", 1); !ok || err != nil { // otherwise it is swept
		t.Fatal(ok, err)
	}
	old := s.index.find(sp, "k")
	b.hot.Store(&hot{cell: old, name: "k"})
	for i := range 5000 {
		if _, _, err := take(b, fmt.Sprint(i), 1); err != nil {
			t.Fatal(err)
		}
	}
	if c := s.index.find(sp, "k"); c == old || c.owner.Load().locked != lr || old.owner.Load().locked != lr {
		t.Error("it did not move, or is another record now")
	}
	for range 2 { // by the old one, and by the new one
		if ok, _, err := take(b, "k", 1); !ok || err != nil {
			t.Fatal(ok, err)
		}
		b.hot.Store(nil)
	}
	if u := lr.whole().Limits[0].Used; u <= 2*specs[0].Scale || u > 3*specs[0].Scale {
		t.Errorf("%d parts used", u)
	}
	b.hot.Store(&hot{cell: old, name: "k"})
	s.index.sweep(func(c *cell) bool { return c.kill(s, 1<<50) })
	for _, want := range []int64{9, 8} { // by the old one, and by the new one: they are the same bucket
		if ok, left, err := take(b, "k", 1); !ok || left != want || err != nil {
			t.Errorf("after it died: %v, %d left, %v; want %d", ok, left, err, want)
		}
		b.hot.Store(nil)
	}
}

// TestAWordThatMovesIsElsewhere for those who found it before, and counts on.
func TestAWordThatMovesIsElsewhere(t *testing.T) {
	t.Parallel()
	s := New(10)
	defer s.Close()
	sp := s.Space("t", "p")
	b := sp.Bind(leaky(2, 1<<40))
	if ok, left, err := take(b, "k", 1); !ok || left != 1 || err != nil {
		t.Fatal(ok, left, err)
	}
	old := s.index.find(sp, "k")
	b.hot.Store(&hot{cell: old, name: "k"})
	s.move(sp, "k")
	if ok, left, err := take(b, "k", 1); !ok || left != 0 || err != nil || old.lock(nil) != nil {
		t.Errorf("by its old cell: %v, %d left, %v", ok, left, err)
	}
	if ok, _, err := take(b, "k", 1); ok || err != nil {
		t.Errorf("by its new one: %v, %v", ok, err)
	}
}

// TestWhatMovesIsWaitedFor: who looks for a bucket that is between two pages finds it.
func TestWhatMovesIsWaitedFor(t *testing.T) {
	t.Parallel()
	s := New(10)
	defer s.Close()
	sp := s.Space("t", "p")
	if ok, _, err := take(sp.Bind(leaky(2, time.Hour)), "k", 1); !ok || err != nil {
		t.Fatal(ok, err)
	}
	old, h := s.index.find(sp, "k"), s.index.hash(sp, "k")
	page := s.index.dir.Load().entry(h).page.Load()
	var mover, finder sync.WaitGroup
	s.index.mu.Lock() // the new page cannot be entered
	mover.Go(func() { s.move(sp, "k") })
	for old.tat.Load() != dead {
		runtime.Gosched()
	}
	var found atomic.Pointer[cell]
	finder.Go(func() { found.Store(s.index.find(sp, "k")) })
	for range 1000 { // time enough to miss it
		runtime.Gosched()
	}
	if s.index.dir.Load().entry(h).page.Load() != page {
		t.Error("the new page was entered while another might be")
	}
	s.index.mu.Unlock()
	mover.Wait()
	finder.Wait()
	if c := found.Load(); c == nil || c == old {
		t.Error("the bucket was not found")
	}
}

// TestAWordThatBecomesARecordMoves as that record.
func TestAWordThatBecomesARecordMoves(t *testing.T) {
	t.Parallel()
	s := New(10)
	defer s.Close()
	sp := s.Space("t", "p")
	specs := leaky(2, 1<<40)
	b := sp.Bind(specs)
	if ok, _, err := take(b, "k", 1); !ok || err != nil {
		t.Fatal(ok, err)
	}
	c := s.index.find(sp, "k")
	lr := newLockedRecord(sp, b.gcra) // the first half of what cell.lock does
	lr.mu.Lock()
	c.owner.Store(&lr.owner)
	s.move(sp, "k")
	if c.become(lr, specs) == nil { // and the second
		t.Fatal("it died")
	}
	lr.mu.Unlock()
	for i, want := range []bool{true, false} {
		if ok, _, err := take(b, "k", 1); ok != want || err != nil {
			t.Errorf("take %d: %v, %v", i, ok, err)
		}
	}
}

// TestADeadWordStaysDead while who found it before asks for its record: if it seemed to live for an
// instant, whoever moves its page then would move it.
//
// Not parallel: who watches must be awake in that instant.
func TestADeadWordStaysDead(t *testing.T) {
	s := New(10)
	defer s.Close()
	words := s.Space("t", "p").gcraOf(leaky(1, time.Hour))
	cells := make([]cell, needs.Rounds(5_000, 10_000, 50_000))
	for i := range cells {
		cells[i].tat.Store(dead)
		cells[i].owner.Store(&words.owner)
	}
	var watcher sync.WaitGroup
	var next atomic.Int64 // that is watched
	watcher.Go(func() {
		for i := range cells {
			next.Store(int64(i))
			for spun := 1; cells[i].owner.Load().locked == nil; spun++ {
				if spun%1000 == 0 { // not at once: it would be too late to see an instant
					runtime.Gosched()
				}
			}
			for range 20 {
				if w := cells[i].tat.Load(); w != dead {
					t.Errorf("%d, want %d", w, int64(dead))
					return
				}
			}
		}
	})
	for i := range cells {
		for next.Load() < int64(i) && !t.Failed() {
			runtime.Gosched()
		}
		if cells[i].lock(nil) != nil {
			t.Error("a dead bucket was locked")
		}
	}
	watcher.Wait()
}

// TestAMovedBucketIsFoundInAFullStore by who knows only where it was, which others knew, too, and
// asked for its record there.
func TestAMovedBucketIsFoundInAFullStore(t *testing.T) {
	t.Parallel()
	s := New(1)
	defer s.Close()
	sp := s.Space("t", "p")
	b := sp.Bind(leaky(2, time.Hour))
	if ok, _, err := take(b, "k", 1); !ok || err != nil {
		t.Fatal(ok, err)
	}
	old := s.index.find(sp, "k")
	s.move(sp, "k")
	if old.lock(nil) != nil {
		t.Fatal("a dead bucket was locked")
	}
	b.hot.Store(&hot{cell: old, name: "k"})
	for i, want := range []bool{true, false} {
		if ok, _, err := take(b, "k", 1); ok != want || err != nil {
			t.Errorf("take %d: %v, %v", i, ok, err)
		}
	}
}

// TestRoomIsGivenBack when what was many buckets is few.
func TestRoomIsGivenBack(t *testing.T) {
	t.Parallel()
	x, sp := newIndex(), &Space{}
	const many, few = 20_000, 500
	for i := range many {
		x.insert(sp, fmt.Sprint(i), func() (int64, *owner) { return int64(i), &owner{space: sp} })
	}
	if n := x.size(t); n > 2*many {
		t.Errorf("room for %d cells for %d", n, many)
	}
	for range 2 {
		x.sweep(func(c *cell) bool {
			if c.tat.Load() < few {
				return false
			}
			c.tat.Store(dead)
			return true
		})
	}
	if n := x.size(t); n > 3*few {
		t.Errorf("room for %d cells for %d that are left of %d", n, few, many)
	}
}

// TestCellsLieInCacheLines of their own, in pages of every size, and so do records.
func TestCellsLieInCacheLines(t *testing.T) {
	t.Parallel()
	if n := unsafe.Sizeof(lockedRecord{}); n != 256 { // a size that Go's allocator has
		t.Errorf("what has a record has %d bytes", n)
	}
	if n := unsafe.Sizeof(cell{}); n != 64 {
		t.Errorf("a cell has %d bytes", n)
	}
	last := 0
	for n := range 854 {
		size, ok := sizeFor(n)
		if !ok || size < n || size < last || size > max(8, 3*n) {
			t.Errorf("%d cells for %d, %v", size, n, ok)
		}
		if n == 0 || size == last {
			continue
		}
		last = size
		for range 3 {
			var kept atomic.Pointer[page] // not on the stack
			kept.Store(newPage(size, 0, 1))
			if cells := kept.Load().cells; len(cells) != size || uintptr(unsafe.Pointer(&cells[0]))%64 != 0 {
				t.Errorf("the first of %d cells stands at %p", size, &cells[0])
			}
		}
	}
}
