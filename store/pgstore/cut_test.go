package pgstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/pgtest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/pgstore"
)

// cutter passes bytes between a store and a server. It counts them, and cuts a connection between
// two of them.
type cutter struct {
	addr string

	mu     sync.Mutex
	server string        // guarded by mu
	passed [2]int        // guarded by mu: bytes to the server, and from it
	left   [2]int        // guarded by mu: how many more may pass before a cut, if armed
	armed  [2]bool       // guarded by mu
	late   chan struct{} // guarded by mu: if not nil, what was cut off reaches the server when it is closed
	conns  []net.Conn    // guarded by mu
	wg     sync.WaitGroup
}

const toServer, fromServer = 0, 1

func newCutter(tb testing.TB, server string) *cutter {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	c := &cutter{addr: l.Addr().String(), server: server}
	c.wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			c.connect(client)
		}
	})
	tb.Cleanup(func() {
		_ = l.Close()
		c.mu.Lock()
		for _, conn := range c.conns {
			_ = conn.Close()
		}
		c.mu.Unlock()
		c.wg.Wait()
	})
	return c
}

func (c *cutter) connect(client net.Conn) {
	server, err := net.Dial("tcp", c.server)
	if err != nil {
		_ = client.Close()
		return
	}
	c.mu.Lock()
	c.conns = append(c.conns, client, server)
	c.mu.Unlock()
	c.wg.Go(func() { c.pass(toServer, server, client) })
	c.wg.Go(func() { c.pass(fromServer, client, server) })
}

// pass passes on what arrives until either end closes, or it cuts.
func (c *cutter) pass(direction int, to, from net.Conn) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buf := make([]byte, 1<<16)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		may, cut, late := c.count(direction, n)
		if _, err := to.Write(buf[:may]); err != nil {
			return
		}
		if late != nil {
			_ = from.Close()
			<-late
			_, _ = to.Write(buf[may:n])
		}
		if cut {
			return
		}
	}
}

// count counts n bytes, and returns how many of them may pass.
func (c *cutter) count(direction, n int) (may int, cut bool, late chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.passed[direction] += n
	if !c.armed[direction] {
		return n, false, nil
	}
	if may = min(n, c.left[direction]); may == n && n > 0 && c.left[direction] > n {
		c.left[direction] -= n
		return n, false, nil
	}
	c.armed = [2]bool{}
	late, c.late = c.late, nil
	return may, true, late
}

// arm cuts after n more bytes.
func (c *cutter) arm(direction, n int, late chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed, c.left[direction], c.late = [2]bool{}, n, late
	c.armed[direction] = true
}

func (c *cutter) disarm() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed = [2]bool{}
}

// bytes returns how many bytes there were.
func (c *cutter) bytes() [2]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.passed
}

// throughCutter returns the URL of a new schema, and the same through a cutter.
func throughCutter(t *testing.T, server *pgtest.Server) (direct, through string, c *cutter) {
	t.Helper()
	direct = server.Schema(t)
	u, err := url.Parse(direct)
	if err != nil {
		t.Fatal(err)
	}
	c = newCutter(t, u.Host)
	return direct, strings.Replace(direct, u.Host, c.addr, 1), c
}

// TestLostAnswers cuts the connection between two bytes of what a transaction writes, or of the
// server's answer, which may be that to the commit. Each caller gets its answer, and each unit is
// counted once. The rows are old and new ones, of one caller or several.
//
// req: A10, C12, E1
func TestLostAnswers(t *testing.T) {
	needs.NoRace(t) // the others are for goroutines
	t.Parallel()
	direct, through, c := throughCutter(t, pgtest.Shared(t))
	var cutting, armed atomic.Bool
	var from, size [2]int // of a transaction's second round trip
	o := &pgstore.Options{}
	o.Between(func(_ context.Context, step string) {
		switch {
		case step == "committed":
			c.disarm()
			for i, n := range c.bytes() {
				size[i] = max(size[i], n-from[i])
			}
		case cutting.Load() && !armed.Swap(true):
			direction := rand.IntN(2)
			c.arm(direction, rand.IntN(size[direction]+1), nil)
		default:
			from = c.bytes()
		}
	})
	s, plain, plan := open(t, through, o), open(t, direct, nil), hourly(t, many)
	mustTake(t, s, takeOf(plan, "k"))
	cutting.Store(true)
	answered := int64(1)
	for round := range needs.Rounds(20, 200, 10_000) {
		armed.Store(false)
		name, callers := "k", 1+round%3
		if round%2 == 0 {
			name = "new"
		}
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				if v, err := takeOne(t, s, takeOf(plan, name)); err != nil || !v.Allowed {
					t.Errorf("round %d: allowed %t, %v", round, v.Allowed, err)
				}
			})
		}
		wg.Wait()
		n := int64(callers)
		if name == "k" {
			answered += n
			n = answered
		}
		if got := used(t, plain, plan, name); got != n {
			t.Fatalf("round %d: %d units of %s are used, and %d were granted", round, got, name, n)
		}
		if name == "new" {
			if err := plain.Reset(t.Context(), []store.Key{takeOf(plan, name).Buckets[0].Key}); err != nil {
				t.Fatal(err)
			}
			pgtest.Shared(t).Do("DELETE FROM " + schemaOf(t, direct) + ".drawgate_bucket WHERE key LIKE '%new%'")
		}
	}
}

// TestCommitArrivesLate cuts a connection whose last bytes reach the server only after the store
// has begun to look the transaction up: it waits until the transaction has ended, also if that
// inserted the row.
//
// req: A10, E1
func TestCommitArrivesLate(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared(t)
	for _, name := range []string{"old", "new"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			app := "late_" + name
			direct, through, c := throughCutter(t, server)
			late := make(chan struct{})
			var cutting atomic.Bool
			o := &pgstore.Options{}
			o.Between(func(_ context.Context, step string) {
				if step == "locked" && cutting.Swap(false) {
					c.arm(toServer, 0, late)
				}
			})
			s, plan := open(t, named(t, through, app)+"&pool_max_conns=1", o), hourly(t, many)
			mustTake(t, s, takeOf(plan, "old")) // the connection knows all statements now
			cutting.Store(true)
			done := make(chan error, 1)
			go func() {
				_, err := takeOne(t, s, takeOf(plan, name))
				done <- err
			}()
			until(t, "the transaction is looked up", func() bool { return waitingForLock(server, app) })
			close(late)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			want := int64(1)
			if name == "old" {
				want = 2
			}
			if got := used(t, open(t, direct, nil), plan, name); got != want {
				t.Errorf("%d units are used, want %d", got, want)
			}
		})
	}
}

// TestAnswersCutInTheMiddle cuts the connection within an answer of many rows: it is read again,
// and no row is seen twice.
func TestAnswersCutInTheMiddle(t *testing.T) {
	t.Parallel()
	direct, through, c := throughCutter(t, pgtest.Shared(t))
	s, plain, plan := open(t, through, nil), open(t, direct, nil), hourly(t, many)
	const keys = 300
	for i := range keys {
		mustTake(t, plain, takeOf(plan, fmt.Sprint("key", i)))
	}
	for name, read := range map[string]func() (n int, err error){
		"the history": func() (n int, err error) {
			err = s.Read(t.Context(), store.EventQuery{}, func(store.Event) bool { n++; return true })
			return n, err
		},
		"the list": func() (n int, err error) {
			err = s.List(t.Context(), "", plan.Name(), func(store.Key) bool { n++; return true })
			return n, err
		},
	} {
		if n, err := read(); err != nil || n != keys { // prepares
			t.Fatalf("%s has %d rows: %v", name, n, err)
		}
		before := c.bytes()
		if n, err := read(); err != nil || n != keys {
			t.Fatalf("%s has %d rows: %v", name, n, err)
		}
		size := c.bytes()[fromServer] - before[fromServer]
		for part := 1; part < 8; part++ {
			c.arm(fromServer, size*part/8, nil)
			if n, err := read(); err != nil || n != keys {
				t.Errorf("%s, cut after %d of 8 parts: %d rows, %v", name, part, n, err)
			}
		}
	}
}
