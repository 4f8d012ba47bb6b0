package cells

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"
)

// TestNamesOfAnyLength are told apart, whether a cell holds them itself or not.
func TestNamesOfAnyLength(t *testing.T) {
	t.Parallel()
	s := New(10_000)
	defer s.Close()
	b := s.Space("t", "p").Bind(leaky(1, time.Hour))
	var names []string
	for _, n := range []int{0, 1, 7, 8, inCell - 1, inCell, inCell + 1, 200, 64 << 10} {
		x := strings.Repeat("x", n)
		names = append(names, x)
		if n > 0 {
			names = append(names, "y"+x[1:], x[1:]+"y", x[1:]+"\x00")
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	for _, allowed := range []bool{true, false} {
		for _, n := range names {
			if ok, _, err := take(b, n, 1); ok != allowed || err != nil {
				t.Errorf("a name of %d bytes: %v %v, want %v", len(n), ok, err, allowed)
			}
		}
	}
	var listed []string
	s.List("t", "p", func(name string) bool { listed = append(listed, name); return true })
	slices.Sort(listed)
	if !slices.Equal(listed, names) {
		t.Errorf("%d names are listed, want %d", len(listed), len(names))
	}
}

// TestNamesAreCopied: a bucket keeps nothing of the caller's string.
func TestNamesAreCopied(t *testing.T) {
	t.Parallel()
	s := New(10)
	defer s.Close()
	b := s.Space("t", "p").Bind(leaky(1, time.Hour))
	for _, n := range []int{inCell, inCell + 1} {
		buf := bytes.Repeat([]byte("k"), n)
		name := strings.Clone(string(buf))
		if ok, _, err := take(b, unsafe.String(&buf[0], n), 1); !ok || err != nil {
			t.Fatal(ok, err)
		}
		clear(buf)
		if ok, _, err := take(b, name, 1); ok || err != nil {
			t.Errorf("a name of %d bytes changed with the caller's: %v %v", n, ok, err)
		}
	}
}

// TestHotWasMetTwice: a cell is kept at hand when two samples in a row met it, until one meets
// another.
func TestHotWasMetTwice(t *testing.T) {
	t.Parallel()
	b, one, two := &Buckets{}, &cell{}, &cell{}
	for i, step := range []struct{ met, hot *cell }{
		{one, nil}, {one, one}, {one, one}, {two, nil}, {one, nil}, {two, nil}, {two, two}, {one, nil}, {one, one},
	} {
		b.asked(two, seldom+1, false) // no sample
		b.asked(step.met, 5*seldom, false)
		var at *cell
		if h := b.hot.Load(); h != nil {
			at = h.cell
		}
		if at != step.hot {
			t.Errorf("step %d: what is at hand is not as it should be", i)
		}
	}
}

// TestHotRefuses as its latest sample did.
func TestHotRefuses(t *testing.T) {
	t.Parallel()
	b, c := &Buckets{}, &cell{}
	for i, refused := range []bool{true, true, true, false, true} {
		b.asked(c, 0, refused)
		if h := b.hot.Load(); i > 1 && (h == nil || h.refuses.Load() != refused) {
			t.Errorf("sample %d: %+v", i, h)
		}
	}
}
