package redisstore_test

import (
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/redisstore"
)

// heard is what a store said of lost data.
type heard struct {
	mu   sync.Mutex
	text strings.Builder
	lost atomic.Int64
}

func (h *heard) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.Write(b)
}

func (h *heard) options(required bool) *redisstore.Options {
	return &redisstore.Options{
		Logger: slog.New(slog.NewTextHandler(h, nil)), RequireMark: required,
		Lost: func(redisstore.Loss) { h.lost.Add(1) },
	}
}

// want checks that so many losses were reported, and logged.
func (h *heard) want(t *testing.T, when string, n int64) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if logged := strings.Count(h.text.String(), "event=store_lost"); h.lost.Load() != n || int64(logged) != n {
		t.Errorf("%s: %d losses reported and %d logged, want %d: %s", when, h.lost.Load(), logged, n, h.text.String())
	}
}

// losses are ways in which a server forgets everything.
var losses = map[string]func(t *testing.T, s *redistest.Server){
	"restarted": func(_ *testing.T, s *redistest.Server) { s.Kill9(); s.Restart() },
	"flushed": func(t *testing.T, s *redistest.Server) { // it keeps its scripts, and the connections
		c := client(t, s)
		if err := c.Do(t.Context(), c.B().Flushall().Build()).Error(); err != nil {
			t.Error(err)
		}
	},
}

// patience is for how long a test waits for what should come soon, on the slowest machine.
const patience = 5 * time.Minute

// until calls f until it reports true.
func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not after %v: %s", patience, what)
		}
	}
}

// TestDataLost: each process that had used the server before it lost its data logs an error and
// counts the loss, once per loss; the store goes on.
//
// req: E5, A10
func TestDataLost(t *testing.T) {
	t.Parallel()
	for name, lose := range losses {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, plan := redistest.Start(t, "--save", "", "--appendonly", "no"), day(t, 1000)
			var first, second, later heard
			stores := []*redisstore.Store{open(t, server, first.options(false)), open(t, server, second.options(false))}
			for _, s := range stores {
				take(t, s, takeOf(plan, "k", 1))
			}
			first.want(t, "before", 0)
			second.want(t, "before", 0)
			for round := range int64(2) {
				lose(t, server)
				for i, h := range []*heard{&first, &second} {
					until(t, "the loss is reported", func() bool {
						_ = tryTake(t.Context(), stores[i], takeOf(plan, "k", 1))
						return h.lost.Load() > round
					})
				}
				until(t, "the store decides again", func() bool {
					return tryTake(t.Context(), stores[0],
						takeOf(plan, "k", 1)) == nil
				})
			}
			for _, s := range stores {
				until(t, "a ping", func() bool { return s.Ping(t.Context()) == nil })
			}
			first.want(t, "afterwards", 2)
			second.want(t, "afterwards", 2)
			take(t, open(t, server, later.options(false)), takeOf(plan, "k", 1))
			later.want(t, "a process that had never seen the first mark", 0)
		})
	}
}

// TestDataKept: a server that was restarted with its data, cut off for a while or lost only its
// scripts is no alarm.
//
// req: E5
func TestDataKept(t *testing.T) {
	t.Parallel()
	server, plan := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always"), day(t, 1000)
	proxy := redistest.NewProxy(t, server.Addr)
	var h heard
	s, err := redisstore.Open("redis://"+proxy.Addr, h.options(true))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if made, err := open(t, server, nil).Init(t.Context()); err != nil || !made {
		t.Fatalf("made %v, %v", made, err)
	}
	for name, harm := range map[string]func(){
		"scripts": func() {
			c := client(t, server)
			if err := c.Do(t.Context(), c.B().ScriptFlush().Build()).Error(); err != nil {
				t.Error(err)
			}
		},
		"cut":       proxy.Cut,
		"restarted": func() { server.Kill9(); server.Restart() },
	} {
		until(t, "it decides before "+name, func() bool { return tryTake(t.Context(), s, takeOf(plan, "k", 1)) == nil })
		harm()
		until(t, "it decides after "+name, func() bool { return tryTake(t.Context(), s, takeOf(plan, "k", 1)) == nil })
	}
	h.want(t, "afterwards", 0)
}

// TestRequiredMark: a store that requires the mark is unavailable before it is initialized. After
// the server was restarted empty it grants nothing at all, until it is initialized again.
//
// req: E5, A10, D10
func TestRequiredMark(t *testing.T) {
	t.Parallel()
	server, plan := redistest.Start(t, "--save", "", "--appendonly", "no"), day(t, 10)
	var h heard
	s := open(t, server, h.options(true))
	refused := func(when string) {
		t.Helper()
		err := tryTake(t.Context(), s, takeOf(plan, "k", 1))
		se, ok := errors.AsType[*store.Error](err)
		if !ok || !errors.Is(err, redisstore.ErrLost) || se.Fault != store.FaultConfiguration ||
			!strings.Contains(err.Error(), "drawgate store init") {
			t.Errorf("%s: %v, want ErrLost", when, err)
		}
		if err := s.Ping(t.Context()); !errors.Is(err, redisstore.ErrLost) {
			t.Errorf("%s: a ping says %v, want ErrLost", when, err)
		}
	}
	initialize := func(want bool) {
		t.Helper()
		if made, err := open(t, server, nil).Init(t.Context()); err != nil || made != want {
			t.Errorf("made %v, %v; want %v", made, err, want)
		}
	}
	refused("never initialized")
	h.want(t, "never initialized", 0)
	initialize(true)
	initialize(false)
	for range 10 {
		take(t, s, takeOf(plan, "k", 1))
	}
	server.Kill9()
	server.Restart()
	until(t, "it is missing", func() bool {
		err := tryTake(t.Context(), s, takeOf(plan, "k", 1))
		if err == nil {
			t.Fatal("a take was granted by the empty server")
		}
		return errors.Is(err, redisstore.ErrLost)
	})
	refused("restarted empty")
	h.want(t, "restarted empty", 1)
	initialize(true)
	take(t, s, takeOf(plan, "k", 1))
	h.want(t, "initialized again", 1)
	if _, err := s.Init(t.Context()); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a store that requires the mark initializes itself: %v", err)
	}
}

// TestRequiredMarkOfAnother: a process that starts after the server was restarted empty, and
// requires the mark, does not give it the script. Those that run would be granted takes by it,
// because they connect again within a take, and so read the mark too late.
//
// req: A10
func TestRequiredMarkOfAnother(t *testing.T) {
	t.Parallel()
	server, plan := redistest.Start(t, "--save", "", "--appendonly", "no"), day(t, 10)
	if made, err := open(t, server, nil).Init(t.Context()); err != nil || !made {
		t.Fatal(made, err)
	}
	var h, other heard
	s := open(t, server, h.options(true))
	take(t, s, takeOf(plan, "k", 1))
	server.Kill9()
	server.Restart()
	starts := open(t, server, other.options(true))
	until(t, "it knows that there is no mark", func() bool {
		return errors.Is(starts.Ping(t.Context()), redisstore.ErrLost)
	})
	c := client(t, server)
	known, err := c.Do(t.Context(), c.B().ScriptExists().Sha1(redisstore.ScriptSHA()).Build()).AsIntSlice()
	if err != nil || len(known) != 1 || known[0] != 0 {
		t.Errorf("the script is known: %v, %v", known, err)
	}
	until(t, "it is missing", func() bool {
		err := tryTake(t.Context(), s, takeOf(plan, "k", 1))
		if err == nil {
			t.Fatal("a take was granted by the empty server")
		}
		return errors.Is(err, redisstore.ErrLost)
	})
}
