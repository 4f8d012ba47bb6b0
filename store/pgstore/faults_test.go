package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/pgtest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/pgstore"
)

// load are callers of several stores, who take as fast as they can: from a bucket that has enough,
// and from one that has not.
type load struct {
	t        *testing.T
	stores   []*pgstore.Store
	plan     *store.Plan
	name     string        // of the buckets
	deadline time.Duration // of each take; 0: none

	stop    context.CancelFunc
	callers sync.WaitGroup
	granted []atomic.Int64 // of the bucket that has enough, by store
	scarce  atomic.Int64   // granted of the other one
	unknown atomic.Int64   // takes that may have been granted
	undone  atomic.Int64   // takes of which it is certain that they were not
	longest atomic.Int64   // ns, of a take
	late    atomic.Int64   // ns, by how much the machine woke somebody too late
}

// scarce is what the scarce bucket has.
const scarce = 100

// start starts so many callers of each store.
func (l *load) start(callers int) {
	ctx, cancel := context.WithCancel(context.Background())
	l.stop, l.plan, l.granted = cancel, hourly(l.t, many), make([]atomic.Int64, len(l.stores))
	l.t.Cleanup(l.end)
	few := hourly(l.t, scarce)
	for i, s := range l.stores {
		for n := range callers {
			l.callers.Go(func() {
				for round := n; ctx.Err() == nil; round++ {
					if round%8 == 0 {
						l.take(ctx, s, takeOf(few, l.name), &l.scarce)
					} else {
						l.take(ctx, s, takeOf(l.plan, l.name), &l.granted[i])
					}
				}
			})
		}
	}
	if l.deadline > 0 {
		l.callers.Go(func() { l.watch(ctx) })
	}
}

// take makes a take, which goes on when the load ends.
func (l *load) take(ctx context.Context, s store.Store, take store.Take, granted *atomic.Int64) {
	ctx, cancel := context.WithoutCancel(ctx), func() {}
	if l.deadline > 0 {
		ctx, cancel = context.WithTimeout(ctx, l.deadline)
	}
	defer cancel()
	var v [1]store.Verdict
	began := time.Now()
	err := errors.Join(s.Take(ctx, []store.Take{take}, v[:]), v[0].Fail)
	larger(&l.longest, int64(time.Since(began)))
	switch {
	case err == nil && v[0].Allowed:
		granted.Add(1)
	case err == nil:
	case errors.Is(err, store.ErrNothingDone):
		l.undone.Add(1)
		time.Sleep(5 * time.Millisecond) // the server is away
	default:
		l.unknown.Add(1)
	}
}

func larger(most *atomic.Int64, n int64) {
	for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
	}
}

// watch notes by how much the machine wakes somebody too late.
func (l *load) watch(ctx context.Context) {
	for ctx.Err() == nil {
		due := time.Now().Add(10 * time.Millisecond)
		time.Sleep(time.Until(due))
		larger(&l.late, int64(time.Since(due)))
	}
}

// more waits until each store has granted n more takes.
func (l *load) more(n int64) {
	l.t.Helper()
	for i := range l.granted {
		from := l.granted[i].Load()
		until(l.t, fmt.Sprint("store ", i, " grants takes"), func() bool { return l.granted[i].Load() >= from+n })
	}
}

// lasts waits for some takes, in the long form for some time.
func (l *load) lasts(n int64, long time.Duration) {
	l.t.Helper()
	if needs.Long() {
		time.Sleep(long)
		return
	}
	l.more(n)
}

func (l *load) end() {
	l.stop()
	l.callers.Wait()
}

// check compares what was granted with what is used.
func (l *load) check() {
	l.t.Helper()
	l.end()
	granted := int64(0)
	for i := range l.granted {
		granted += l.granted[i].Load()
	}
	n := used(l.t, l.stores[0], l.plan, l.name)
	l.t.Logf("granted %d, used %d, unknown %d, of %d scarce units %d; %d failed without effect; the longest take lasted %v, "+
		"and the machine was late by %v", granted, n, l.unknown.Load(), scarce, l.scarce.Load(), l.undone.Load(),
		time.Duration(l.longest.Load()), time.Duration(l.late.Load()))
	if n < granted || n > granted+l.unknown.Load() {
		l.t.Errorf("%d units are used; %d were granted, and the outcome of %d takes is unknown", n, granted, l.unknown.Load())
	}
	if got := l.scarce.Load(); got > scarce {
		l.t.Errorf("%d units were granted of %d", got, scarce)
	}
	if most := l.deadline + time.Duration(2*l.late.Load()) + 100*time.Millisecond; l.deadline > 0 &&
		time.Duration(l.longest.Load()) > most {
		l.t.Errorf("a take lasted %v, with a deadline of %v", time.Duration(l.longest.Load()), l.deadline)
	}
}

// serverFault is what happens to a server while callers take.
type serverFault struct {
	name    string
	happens func(s *pgtest.Server, l *load)
}

var serverFaults = []serverFault{
	{"all backends are terminated, ten times", func(s *pgtest.Server, l *load) {
		for range 10 {
			s.Do("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'drawgate'")
			l.lasts(20, time.Second)
		}
	}},
	{"a backend that holds a row is killed", func(s *pgtest.Server, l *load) {
		pid := 0
		until(l.t, "a backend is within a transaction", func() bool {
			pid, _ = strconv.Atoi(s.Do("SELECT coalesce(max(pid), 0) FROM pg_stat_activity " +
				"WHERE application_name = 'drawgate' AND state LIKE 'idle in transaction'"))
			return pid > 0
		})
		s.KillBackend(pid)
	}},
	{"the server is killed, and starts again", func(s *pgtest.Server, _ *load) {
		s.Kill9()
		s.Restart()
	}},
	{"the server is shut down, and starts again", func(s *pgtest.Server, _ *load) {
		s.Shutdown()
		s.Restart()
	}},
	{"the server takes no writes for a while", func(s *pgtest.Server, l *load) {
		readOnly(s, "on")
		from := l.undone.Load()
		until(l.t, "takes fail", func() bool { return l.undone.Load() > from+10 })
		_, err := takeOne(l.t, l.stores[0], takeOf(l.plan, "another"))
		fails(l.t, err, store.FaultConfiguration)
		if err == nil || !strings.Contains(err.Error(), "takes no writes") {
			l.t.Errorf("%v does not say that the server takes no writes", err)
		}
		readOnly(s, "off")
	}},
}

func readOnly(s *pgtest.Server, is string) {
	s.Do("ALTER SYSTEM SET default_transaction_read_only = " + is)
	s.Do("SELECT pg_reload_conf()")
}

// TestServerFaults lets callers of two stores take while the server fails, and comes back. No unit
// is granted twice or lost, and both stores come back by themselves. In the long form each fault
// lasts for half a minute, with 64 callers of each store, all of whom have an answer by their
// deadline.
//
// req: A10, C12, E1, E7
func TestServerFaults(t *testing.T) { //nolint:tparallel // they share a server
	t.Parallel()
	server := pgtest.Start(t)
	url := server.Schema(t)
	stores := []*pgstore.Store{open(t, url, nil), open(t, url, nil)}
	for i, f := range serverFaults {
		t.Run(f.name, func(t *testing.T) {
			l := &load{t: t, stores: stores, name: fmt.Sprint("k", i)}
			callers := 8
			if needs.Long() {
				callers, l.deadline = 64, time.Second
			}
			l.start(callers)
			for range needs.Rounds(1, 1, 3) {
				l.lasts(20, 5*time.Second)
				f.happens(server, l)
				l.more(20)
			}
			l.check()
		})
	}
}

// connect returns a connection of its own.
func connect(t *testing.T, url string) *pgconn.PgConn {
	t.Helper()
	address, _, _ := strings.Cut(url, "&")
	c, err := pgconn.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.WithoutCancel(t.Context())) })
	return c
}

// TestRowLockedBySomebodyElse: a take of a bucket whose row an administrator has locked fails
// after the time that the URL sets, and nothing was done. Another bucket is served meanwhile, and
// this one as soon as it is free.
//
// req: E1, E7
func TestRowLockedBySomebodyElse(t *testing.T) {
	t.Parallel()
	for _, setting := range []string{"lock_timeout=100", "statement_timeout=100", "options=-c%20lock_timeout%3D100"} {
		t.Run(setting, func(t *testing.T) {
			t.Parallel()
			url := pgtest.Shared(t).Schema(t)
			s, plain, plan := open(t, url+"&"+setting, nil), open(t, url, nil), hourly(t, many)
			mustTake(t, plain, takeOf(plan, "k"))
			c := connect(t, url)
			lock := "BEGIN; SELECT FROM " + schemaOf(t, url) + ".drawgate_bucket FOR UPDATE"
			if _, err := c.Exec(t.Context(), lock).ReadAll(); err != nil {
				t.Fatal(err)
			}
			_, err := takeOne(t, s, takeOf(plan, "k"))
			fails(t, err, store.FaultTransient)
			if err == nil || !strings.Contains(err.Error(), "_timeout") {
				t.Errorf("%v does not name the setting", err)
			}
			mustTake(t, plain, takeOf(plan, "another"))
			if _, err := c.Exec(t.Context(), "ROLLBACK").ReadAll(); err != nil {
				t.Fatal(err)
			}
			until(t, "the bucket is served", func() bool {
				v, err := takeOne(t, s, takeOf(plan, "k"))
				return err == nil && v.Allowed
			})
			if got := used(t, plain, plan, "k"); got != 2 {
				t.Errorf("%d units are used, want 2", got)
			}
		})
	}
}

// TestStricterIsolation: the database may have another isolation level as its default, in which
// transactions that wait for a row fail when they get it. The store's own are not of that kind.
//
// req: E1, E7
func TestStricterIsolation(t *testing.T) {
	needs.NoRace(t) // the others are for goroutines
	t.Parallel()
	url := pgtest.Shared(t).Schema(t)
	strict := url + "&options=-c%20default_transaction_isolation%3Dserializable"
	stores, plan := []*pgstore.Store{open(t, strict, nil), open(t, strict, nil)}, hourly(t, many)
	const callers, takes = 8, 10
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for range takes {
				if v, err := takeOne(t, stores[i%2], takeOf(plan, "k")); err != nil || !v.Allowed {
					t.Errorf("allowed %t, %v", v.Allowed, err)
				}
			}
		})
	}
	all.Wait()
	if got := used(t, stores[0], plan, "k"); got != callers*takes {
		t.Errorf("%d units are used, want %d", got, callers*takes)
	}
	addToDocument(t, stores)
}

// addToDocument has two stores add to a document at the same time.
func addToDocument(t *testing.T, stores []*pgstore.Store) {
	t.Helper()
	const adds = 10
	var all sync.WaitGroup
	for _, s := range stores {
		all.Go(func() {
			for done := 0; done < adds; {
				docs, err := s.ReadDocuments(t.Context(), "numbers", []string{"sum"})
				if err != nil {
					t.Error(err)
					return
				}
				was := store.Document{Name: "sum"}
				if len(docs) > 0 {
					was = docs[0]
				}
				n, _ := strconv.Atoi(string(was.Value))
				ok, err := s.WriteDocuments(t.Context(), "numbers", was, []store.Document{
					{Name: "sum", Value: []byte(strconv.Itoa(n + 1))},
				})
				if err != nil {
					t.Error(err)
					return
				}
				if ok {
					done++
				}
			}
		})
	}
	all.Wait()
	docs, err := stores[0].ReadDocuments(t.Context(), "numbers", nil)
	if want := strconv.Itoa(2 * adds); err != nil || len(docs) != 1 || string(docs[0].Value) != want {
		t.Errorf("%v, %v: want one document with %s", docs, err, want)
	}
}

// TestWaitIsGivenUp: a transaction that waits too long for a row is ended in the server, too, while
// the row is still locked. Otherwise each would leave a connection behind.
//
// req: A10, E7
func TestWaitIsGivenUp(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared(t)
	url := server.Schema(t)
	s, plan := open(t, named(t, url, "gives_up"), nil), hourly(t, many)
	mustTake(t, s, takeOf(plan, "k"))
	c := connect(t, url)
	if _, err := c.Exec(t.Context(), "BEGIN; SELECT FROM "+schemaOf(t,
		url)+".drawgate_bucket FOR UPDATE").ReadAll(); err != nil {
		t.Fatal(err)
	}
	_, err := takeOne(t, s, takeOf(plan, "k"))
	fails(t, err, store.FaultTransient)
	until(t, "nobody waits for the row", func() bool { return !waitingForLock(server, "gives_up") })
	if _, err := c.Exec(t.Context(), "ROLLBACK").ReadAll(); err != nil {
		t.Fatal(err)
	}
	mustTake(t, s, takeOf(plan, "k"))
	if got := used(t, s, plan, "k"); got != 2 {
		t.Errorf("%d units are used, want 2", got)
	}
}

// TestServerNoticesDeadPeers: of a transaction of which only a part arrives, because a machine
// dies or the network is cut within it, the server waits for the rest, with the rows locked. It
// finds out soon that nobody is there.
//
// req: A12, E7
func TestServerNoticesDeadPeers(t *testing.T) {
	t.Parallel()
	s := open(t, pgtest.Shared(t).Schema(t), nil)
	seconds := func(setting string) int {
		t.Helper()
		text, err := s.Setting(t.Context(), setting)
		n, _ := strconv.Atoi(text)
		if err != nil || n <= 0 {
			t.Errorf("%s is %q, %v", setting, text, err)
		}
		return n
	}
	n := seconds("tcp_keepalives_idle") + seconds("tcp_keepalives_interval")*seconds("tcp_keepalives_count")
	if n >= 10 { // for so long a lost answer is looked up
		t.Errorf("the server needs %d s to notice that nobody is there", n)
	}
}

// TestServerThatClosesIdleConnections: one that was closed while nobody used it is no reason for a
// call to fail.
func TestServerThatClosesIdleConnections(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared(t)
	url := server.Schema(t)
	const app = "closes_idle"
	s, plan := open(t, named(t, url, app)+"&options=-c%20idle_session_timeout%3D200ms", nil), hourly(t, many)
	for range 2 {
		mustTake(t, s, takeOf(plan, "k"))
		until(t, "the server closes the connection", func() bool {
			return server.Do("SELECT count(*) FROM pg_stat_activity WHERE application_name = '"+app+"'") == "0"
		})
	}
	if n := used(t, s, plan, "k"); n != 2 {
		t.Errorf("%d units are used, want 2", n)
	}
}
