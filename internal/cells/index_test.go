package cells

import (
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"
)

// colliding returns n names of a space that want the same group of the same shard, and among them some that have the same tag as well.
func colliding(x *index, sp *Space, n, tags int) (names []string) {
	const first = 1<<(shardBits+3) - 1 // of eight groups
	for i := 0; len(names) < n; i++ {
		name := strconv.Itoa(i)
		if h := x.hash(sp, name); h&first == 0 && (len(names) >= tags || tagOf(h) == 0x80) {
			names = append(names, name)
		}
	}
	return names
}

func newCell(sp *Space, name string) func() *cell {
	return func() *cell {
		c := &cell{name: copyName(name)}
		c.home.Store(&home{space: sp})
		return c
	}
}

// TestIndexIsAMap compares the index with a map, for names that are as alike as can be and for others, in two spaces that have equal names.
func TestIndexIsAMap(t *testing.T) {
	t.Parallel()
	x := newIndex()
	one, two := &Space{}, &Space{} // without salt their equal names have equal hashes, too
	names := colliding(x, one, 30, 4)
	for i := range 10 {
		names = append(names, fmt.Sprint("other", i))
	}
	type key struct {
		sp   *Space
		name string
	}
	rapid.Check(t, func(t *rapid.T) {
		x := &index{seed: x.seed}
		model := map[key]*cell{}
		draw := func(t *rapid.T) key {
			return key{rapid.SampledFrom([]*Space{one, two}).Draw(t, "space"), rapid.SampledFrom(names).Draw(t, "name")}
		}
		insert := func(t *rapid.T) {
			k := draw(t)
			c, made := x.insert(k.sp, k.name, newCell(k.sp, k.name))
			if old := model[k]; made != (old == nil) || old != nil && c != old {
				t.Fatalf("insert %q: made %v, and there was %v", k.name, made, old)
			}
			model[k] = c
		}
		t.Repeat(map[string]func(*rapid.T){
			"insert":       insert,
			"insert again": insert, // so that it grows
			"find": func(t *rapid.T) {
				k := draw(t)
				if got := x.find(k.sp, k.name); got != model[k] {
					t.Fatalf("find %q: %v, want %v", k.name, got, model[k])
				}
			},
			"remove": func(t *rapid.T) {
				k := draw(t)
				c := model[k]
				if c == nil {
					if c = newCell(k.sp, k.name)(); x.remove(c) {
						t.Fatalf("removed %q, which was not there", k.name)
					}
					return
				}
				if !x.remove(c) || x.remove(c) {
					t.Fatalf("%q was not removed once", k.name)
				}
				delete(model, k)
			},
			"": func(t *rapid.T) {
				n := 0
				x.each(func(c *cell) bool {
					n++
					if model[key{c.home.Load().space, c.name.String()}] != c {
						t.Fatalf("%q is listed and not there", c.name.String())
					}
					return true
				})
				if n != len(model) {
					t.Fatalf("%d are listed, want %d", n, len(model))
				}
				used := 0
				for i := range x.shards {
					used += x.shards[i].used
				}
				if used < n {
					t.Fatalf("%d slots used for %d cells", used, n)
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
		x.insert(sp, fmt.Sprint(i), newCell(sp, fmt.Sprint(i)))
	}
	n := 0
	x.each(func(*cell) bool { n++; return n < 7 })
	if n != 7 {
		t.Errorf("%d yielded after the seventh was refused", n)
	}
}

// TestIndexNeverLosesACell: while others insert, remove and grow beside it in the same groups, a cell that is there is found.
func TestIndexNeverLosesACell(t *testing.T) {
	t.Parallel()
	x, sp := newIndex(), &Space{}
	const workers, each = 4, 12
	names := colliding(x, sp, workers*each, 2)
	var done atomic.Bool
	var readers, writers sync.WaitGroup
	fixed := names[:each] // are there all the time
	for _, n := range fixed {
		x.insert(sp, n, newCell(sp, n))
	}
	for range 2 {
		readers.Go(func() {
			for !done.Load() {
				for _, n := range fixed {
					if c := x.find(sp, n); c == nil || !c.name.is(n) {
						t.Errorf("find %q: %v", n, c)
						return
					}
				}
				seen := 0
				x.each(func(c *cell) bool {
					if slices.Contains(fixed, c.name.String()) {
						seen++
					}
					return true
				})
				if seen != len(fixed) {
					t.Errorf("%d of %d are listed", seen, len(fixed))
					return
				}
				runtime.Gosched()
			}
		})
	}
	for w := range workers - 1 {
		mine := names[(w+1)*each : (w+2)*each]
		writers.Go(func() {
			for round := range 300 {
				cells := make([]*cell, 0, each)
				for _, n := range mine[:1+round%each] {
					c, made := x.insert(sp, n, newCell(sp, n))
					if !made {
						t.Errorf("%q is there already", n)
					}
					cells = append(cells, c)
				}
				for _, c := range cells {
					if x.find(sp, c.name.String()) != c {
						t.Errorf("lost %q", c.name.String())
					}
				}
				for _, c := range cells {
					if !x.remove(c) || x.find(sp, c.name.String()) != nil {
						t.Errorf("%q was not removed", c.name.String())
					}
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
}

// TestIndexMakesOneCellPerName when many want it at once.
func TestIndexMakesOneCellPerName(t *testing.T) {
	t.Parallel()
	x, sp := newIndex(), &Space{}
	const names, workers = 2000, 4
	var made atomic.Int64
	got := make([][names]*cell, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range names {
				name := fmt.Sprint(i)
				c, m := x.insert(sp, name, newCell(sp, name))
				if m {
					made.Add(1)
				}
				got[w][i] = c
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
}
