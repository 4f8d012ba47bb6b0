package redisstore_test

import (
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/redisstore"
	"github.com/drawgate/drawgate/storetest"
)

// clocked is a store whose clock a test moves.
type clocked struct {
	*redisstore.Store
	clock  *fakeClock
	prefix string
}

// harness returns stores on a server of the test's own.
func harness(t *testing.T) storetest.Harness {
	t.Helper()
	server := redistest.Start(t)
	conn := client(t, server)
	on := func(t *testing.T, clock *fakeClock, prefix string) drawgate.Store {
		t.Helper()
		s := redisstore.NewWithClock(conn, &redisstore.Options{Prefix: prefix}, clock.now)
		t.Cleanup(func() { _ = s.Close() })
		return &clocked{s, clock, prefix}
	}
	return storetest.Harness{
		New:     func(t *testing.T) drawgate.Store { return on(t, newClock(), prefix()) },
		Advance: func(s drawgate.Store, d time.Duration) { s.(*clocked).clock.advance(d) },
		Second: func(t *testing.T, s drawgate.Store) drawgate.Store {
			c := s.(*clocked)
			return on(t, c.clock, c.prefix)
		},
	}
}

// req: B1, C3, E5, E10
func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, harness(t))
}

// TestServerClock runs the cases that need no other clock by the server's own.
//
// req: E5
func TestServerClock(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	storetest.Run(t, storetest.Harness{
		New: func(t *testing.T) drawgate.Store { return open(t, server, &redisstore.Options{Prefix: prefix()}) },
	})
}
