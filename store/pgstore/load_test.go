package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/pgtest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/pgstore"
)

// TestNoDeadlock takes from random sets of buckets in two stores, while their rows are inserted,
// fall into disuse and are removed: no two transactions wait for each other.
//
// req: A10, E1
func TestNoDeadlock(t *testing.T) { //nolint:tparallel // it closes the stores
	t.Parallel()
	server := pgtest.Start(t)
	url := server.Schema(t)
	plan := planOf(t, drawgate.Policy{
		Name: "short", Limits: []drawgate.Limit{drawgate.RollingLimit("r", many, 20*time.Millisecond)},
	})
	var made, again atomic.Int64
	takes := int64(needs.Rounds(500, 3000, 1_000_000))
	t.Run("takes", func(t *testing.T) {
		stores := []*pgstore.Store{open(t, url, nil), open(t, url, nil)}
		ctx, stop := context.WithCancel(t.Context())
		var callers, sweeper sync.WaitGroup
		sweeper.Go(func() {
			for ctx.Err() == nil {
				if err := stores[0].Sweep(ctx, 0); err != nil && ctx.Err() == nil {
					t.Errorf("removing rows: %v", err)
				}
			}
		})
		for i := range 32 {
			callers.Go(func() {
				for made.Add(1) <= takes {
					var take store.Take
					for _, k := range rand.Perm(400)[:1+rand.IntN(5)] {
						take.Buckets = append(take.Buckets, takeOf(plan, fmt.Sprint("k", k)).Buckets...)
					}
					v, err := takeOne(t, stores[i%2], take)
					for ; errors.Is(err, store.ErrNothingDone); v, err = takeOne(t, stores[i%2], take) {
						again.Add(1) // its rows were removed each time before it had them
					}
					if err != nil || !v.Allowed {
						t.Errorf("allowed %t, %v", v.Allowed, err)
					}
				}
			})
		}
		callers.Wait()
		stop()
		sweeper.Wait()
		t.Logf("%d takes were made again", again.Load())
	})
	noConnections(t, server, "drawgate") // each adds what it counted when it ends
	if got := server.Do("SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'"); got != "0" {
		t.Errorf("there were %s deadlocks", got)
	}
}

// noConnections waits until there is no connection with a name.
func noConnections(t *testing.T, server *pgtest.Server, name string) {
	t.Helper()
	until(t, "all connections are closed", func() bool { return connections(t, server, name) == 0 })
}

func connections(t *testing.T, server *pgtest.Server, name string) int {
	t.Helper()
	n, err := strconv.Atoi(server.Do("SELECT count(*) FROM pg_stat_activity WHERE application_name = '" + name + "'"))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestCallersThatLeave lets callers leave at any moment: the pool gets its connections back, and
// after closing the store no connection and no goroutine is left. What was granted and not told is
// bounded by what is used.
//
// req: A10, E1
func TestCallersThatLeave(t *testing.T) { //nolint:paralleltest // it counts goroutines
	server := pgtest.Shared(t)
	url := named(t, server.Schema(t), "leaving")
	plan := hourly(t, many)
	noGoroutineLeft(t, func() {
		s, err := pgstore.Open(url+"&pool_max_conns=4", nil)
		if err != nil {
			t.Fatal(err)
		}
		mustTake(t, s, takeOf(plan, "k"))
		var granted, unknown atomic.Int64
		var callers sync.WaitGroup
		for range needs.Rounds(200, 1000, 50_000) {
			ctx, leave := context.WithCancel(t.Context())
			callers.Go(func() {
				time.Sleep(rand.N(100 * time.Millisecond))
				callers.Go(func() {
					time.Sleep(rand.N(10 * time.Millisecond))
					leave()
				})
				var v [1]store.Verdict
				err := errors.Join(s.Take(ctx, []store.Take{takeOf(plan, "k")}, v[:]), v[0].Fail)
				switch {
				case err == nil:
					granted.Add(1)
				case errors.Is(err, store.ErrUnknownOutcome):
					unknown.Add(1)
				case !errors.Is(err, store.ErrNothingDone) || !errors.Is(err, context.Canceled):
					t.Error(err)
				}
			})
		}
		callers.Wait()
		mustTake(t, s, takeOf(plan, "k"))
		got, least := used(t, s, plan, "k"), granted.Load()+2
		t.Logf("%d were granted, of %d the outcome is unknown, %d are used", least, unknown.Load(), got)
		if got < least || got > least+unknown.Load() {
			t.Errorf("%d units are used; %d were granted, and the outcome of %d is unknown", got, least, unknown.Load())
		}
		if n := connections(t, server, "leaving"); n > 4 {
			t.Errorf("there are %d connections, want at most 4", n)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	noConnections(t, server, "leaving")
}

// noGoroutineLeft waits until all goroutines have ended that f starts.
func noGoroutineLeft(t *testing.T, f func()) {
	t.Helper()
	before := runtime.NumGoroutine()
	f()
	until(t, "all goroutines have ended", func() bool { return runtime.NumGoroutine() <= before })
}

// TestFourConnections: a pool of four is enough for a thousand callers at once.
//
// req: E1, E10
func TestFourConnections(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared(t)
	s, plan := open(t, named(t, server.Schema(t), "four")+"&pool_max_conns=4", nil), hourly(t, many)
	const callers, keys = 1000, 20
	var all sync.WaitGroup
	begin := make(chan struct{})
	for i := range callers {
		all.Go(func() {
			<-begin
			if v, err := takeOne(t, s, takeOf(plan, fmt.Sprint("k", i%keys))); err != nil || !v.Allowed {
				t.Errorf("allowed %t, %v", v.Allowed, err)
			}
		})
	}
	close(begin)
	all.Wait()
	for k := range keys {
		if got := used(t, s, plan, fmt.Sprint("k", k)); got != callers/keys {
			t.Errorf("k%d: %d units are used, want %d", k, got, callers/keys)
		}
	}
	if n := connections(t, server, "four"); n > 4 {
		t.Errorf("there are %d connections, want at most 4", n)
	}
}

// TestHotRowStaysSmall: the row of a bucket that is used all the time stays where it is, and the
// table and its index do not grow.
//
// req: E1, E10
func TestHotRowStaysSmall(t *testing.T) { //nolint:tparallel // it closes the store
	needs.NoRace(t) // the others are for goroutines
	t.Parallel()
	server := pgtest.Start(t) // a transaction of another test would keep old versions of the row
	url := server.Schema(t)
	plan := hourly(t, many)
	const batch = 20
	rounds := needs.Rounds(100, 1000, 50_000)
	t.Run("takes", func(t *testing.T) {
		s := open(t, url, &pgstore.Options{HistoryFor: -1})
		takes, v := make([]store.Take, batch), make([]store.Verdict, batch)
		for i := range takes {
			takes[i] = takeOf(plan, "k")
		}
		for range rounds {
			if err := s.Take(t.Context(), takes, v); err != nil {
				t.Fatal(err)
			}
		}
		if got := used(t, s, plan, "k"); got != int64(rounds*batch) {
			t.Errorf("%d units are used, want %d", got, rounds*batch)
		}
	})
	noConnections(t, server, "drawgate") // each adds what it counted when it ends
	table := schemaOf(t, url) + ".drawgate_bucket"
	var updates, inPlace, heap, index int
	row := server.Do("SELECT n_tup_upd, n_tup_hot_upd, pg_relation_size(relid), pg_indexes_size(relid) " +
		"FROM pg_stat_user_tables WHERE relid = '" + table + "'::regclass")
	if _, err := fmt.Sscan(strings.ReplaceAll(row, "|", " "), &updates, &inPlace, &heap, &index); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d updates, %d of them in the same page; the table has %d bytes, its index %d", updates, inPlace, heap, index)
	if updates != rounds || float64(inPlace) < 0.95*float64(updates) {
		t.Errorf("%d of %d updates were made in the same page; %d transactions were made", inPlace, updates, rounds)
	}
	if most := 64 << 10; heap > most || index > most {
		t.Errorf("the table has %d bytes, its index %d, of a single row", heap, index)
	}
}
