package cells

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/drawgate/drawgate/internal/record"
)

// takeOf is a take by way of a store's records, as of a tenant that callers name.
func takeOf(s *Store, tenant string, specs []record.Spec) (allowed bool, err error) {
	err = s.With([]Named{{Name{tenant, "p", "k"}, specs}}, func(recs []*record.Record) {
		asks := []record.Ask{{Rec: recs[0], Specs: specs, N: record.Amounts{1}}}
		allowed = record.Decide(asks, &record.Take{}, s.Now()).Allowed
	})
	return allowed, err
}

// TestSpacesAreGivenUp: callers may name as many tenants as they like; what is kept for those of
// which nothing is used is given up.
func TestSpacesAreGivenUp(t *testing.T) {
	t.Parallel()
	s := New(10_000)
	defer s.Close()
	pinned := s.Space("mine", "p").Bind(leaky(1, time.Hour))
	brief, hourly := leaky(1, time.Millisecond), leaky(1, time.Hour)
	for i := range 5000 {
		if _, err := takeOf(s, fmt.Sprint("t", i), brief); err != nil {
			t.Fatal(err)
		}
	}
	if ok, err := takeOf(s, "lasting", hourly); !ok || err != nil {
		t.Fatal(ok, err)
	}
	time.Sleep(2 * time.Millisecond) // nothing is used by then
	s.busy.Store(true)
	s.sweep(0)
	if n := len(s.spaces); n != 2 {
		t.Errorf("%d spaces are kept, want the pinned one and that of which something is used", n)
	}
	if ok, err := takeOf(s, "lasting", hourly); ok || err != nil {
		t.Errorf("what limits was given up: %v %v", ok, err)
	}
	if ok, _, err := take(pinned, "k", 1); !ok || err != nil {
		t.Error(ok, err)
	}
	if ok, err := takeOf(s, "mine", hourly); ok || err != nil {
		t.Errorf("another way to the same bucket counts apart: %v %v", ok, err)
	}
}

// TestSpacesNeverMint: spaces come and go while they are taken from, and never grant more than time
// allows.
func TestSpacesNeverMint(t *testing.T) {
	t.Parallel()
	const burst, window = 2, 2 * time.Millisecond
	s := New(1000)
	defer s.Close()
	specs := leaky(burst, window)
	neverMints(t, 4, 5000, burst, window, func(tenant string) (bool, error) { return takeOf(s, tenant, specs) },
		func(int) {
			if s.busy.CompareAndSwap(false, true) {
				s.sweep(0)
			}
		})
}

// TestASpaceInUseStays until its last user is done.
func TestASpaceInUseStays(t *testing.T) {
	t.Parallel()
	s := New(10)
	defer s.Close()
	sp, err := s.use("t", "p")
	if err != nil || s.find("t", "p") != sp {
		t.Fatal(err, "or it is not there")
	}
	sp.done()
	sp.drop() // as if its last bucket was swept
	if len(s.spaces) != 1 {
		t.Error("given up while it was in use")
	}
	if sp.done(); len(s.spaces) != 0 {
		t.Error("not given up")
	}
}

// TestMakingRoomWaitsForNobody: who holds a bucket and needs another one sweeps a full store.
func TestMakingRoomWaitsForNobody(t *testing.T) {
	t.Parallel()
	s := New(1)
	defer s.Close()
	specs := leaky(1, time.Hour)
	err := s.With([]Named{{Name{"t", "p", "a"}, specs}, {Name{"t", "p", "b"}, specs}}, func([]*record.Record) {
		t.Error("there was room for two")
	})
	if !errors.Is(err, ErrFull) || s.Len() != 1 {
		t.Errorf("%v, %d buckets", err, s.Len())
	}
}

// TestNoSpaceWithoutRoom: a flood of tenants at a full store leaves nothing behind.
func TestNoSpaceWithoutRoom(t *testing.T) {
	t.Parallel()
	const most = 100
	s := New(most)
	defer s.Close()
	hourly := leaky(1, time.Hour)
	refused := 0
	for i := range 10 * most {
		if _, err := takeOf(s, fmt.Sprint("t", i), hourly); err != nil {
			refused++
		}
		s.Among([]Named{{Name{fmt.Sprint("u", i), "p", "k"}, hourly}}, false, func([]*record.Record) {})
	}
	if n := len(s.spaces); n != most || refused != 9*most {
		t.Errorf("%d spaces are kept for %d buckets; %d of %d takes found no room", n, most, refused, 10*most)
	}
}

// TestDecidedAfterMakingRoom: who has to make room in a full store first, which takes long, decides
// as of then, and the bucket is unused from then on: not for as long as making room took, which
// would be admitted twice.
func TestDecidedAfterMakingRoom(t *testing.T) {
	t.Parallel()
	const most = 20_000
	s := New(most)
	defer s.Close()
	s.sweepAt.Store(1 << 60) // not before it is full
	idle := s.Space("", "idle").Bind(leaky(1, time.Microsecond))
	for i := range most {
		idle.TakeGCRA(fmt.Sprint(i), 1, 0)
	}
	specs := leaky(10, time.Hour)
	b := s.Space("", "p").Bind(specs)
	begin := s.now()
	_, _, over, at, ok := b.TakeGCRA("k", 10, 0)
	swept := (s.again.Load() + 9*begin) / 10 // at the earliest: it may sweep again nine times as long after
	if !ok || over > 0 || at-s.base < swept {
		t.Errorf("over %d, %v; decided %d µs before there was room", over, ok, swept-(at-s.base))
	}
	if w := s.index.find(b.space, "k").tat.Load(); w < swept*specs[0].Drain {
		t.Error("the bucket counts as unused since before it was made")
	}
}
