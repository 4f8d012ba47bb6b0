package sqlitestore_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/sqlitestore"
)

// callers is how many goroutines take at once.
const callers = 64

// BenchmarkTake measures takes that are durable before they are answered: one bucket limit that
// refuses nothing.
func BenchmarkTake(b *testing.B) {
	for _, kind := range []drawgate.Kind{drawgate.Bucket, drawgate.Rolling} {
		for _, keys := range []int{1, 1000} {
			b.Run(fmt.Sprintf("kind=%s/callers=%d/keys=%d", kind, callers, keys), func(b *testing.B) {
				s, err := sqlitestore.Open(dbPath(b), nil)
				if err != nil {
					b.Fatal(err)
				}
				defer s.Close()
				plan := compile(b, drawgate.Limit{Name: "l", Kind: kind, Window: time.Second, Amount: 100_000_000})
				load(b, keys, func(key string) error {
					var out [1]store.Verdict
					err := s.Take(context.Background(), []store.Take{{Buckets: buckets(plan, key, 1)}}, out[:])
					if err == nil {
						err = out[0].Fail
					}
					return err
				})
			})
		}
	}
}

// BenchmarkBatchCheck is one caller that asks for ten tasks under five rolling limits, minute to
// month, at the end of a month of 100,000 tasks: checked against all five, counted, and durable
// before it is answered. The figures are those of single calls.
//
// Of two processes that take turns each has to read what the other has added; a program that is
// started for each batch reads all. An exact limit has an entry for each batch, 12,700 in all five,
// one with a precision of 128 about so many.
//
// req: D11
func BenchmarkBatchCheck(b *testing.B) {
	for _, c := range []struct {
		name                 string
		processes, precision int
	}{
		{"processes=1/precision=exact", 1, drawgate.Exact},
		{"processes=2/precision=exact", 2, drawgate.Exact},
		{"processes=2/precision=128", 2, 128},
	} {
		m := filledMonth(b, c.precision)
		b.Run(c.name, func(b *testing.B) {
			path := dbPath(b)
			if err := os.WriteFile(path, m.file, 0o600); err != nil {
				b.Fatal(err)
			}
			var stores []*sqlitestore.Store
			for range c.processes {
				stores = append(stores, openAt(b, path, nil, m.clock))
			}
			var took []time.Duration
			for b.Loop() {
				m.clock.advance(batchEvery)
				start := time.Now()
				d, err := take(b.Context(), stores[len(took)%c.processes], m.plan, "tasks", m.cost...)
				took = append(took, time.Since(start))
				if err != nil || !d.Allowed {
					b.Fatalf("%v, %v", d.Fail, err)
				}
			}
			slices.Sort(took)
			for name, i := range map[string]int{
				"p50-µs": len(took) / 2, "p99-µs": len(took) * 99 / 100,
				"max-µs": len(took) - 1,
			} {
				b.ReportMetric(float64(took[i].Microseconds()), name)
			}
		})
	}
}

// BenchmarkRefused is one caller who is refused, without a ticket, or with tickets of so many
// waiters. Each says something new, so each is written.
func BenchmarkRefused(b *testing.B) {
	for _, waiters := range []uint64{0, 1, 40} {
		b.Run(fmt.Sprintf("waiters=%d", waiters), func(b *testing.B) {
			s, err := sqlitestore.Open(dbPath(b), nil)
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			plan := compile(b, rolling(1, 24*time.Hour))
			if d, err := take(b.Context(), s, plan, "k", 1); err != nil || !d.Allowed {
				b.Fatalf("%v, %v", d.Fail, err)
			}
			tk := store.Take{Buckets: buckets(plan, "k", 1)}
			var out [1]store.Verdict
			b.ReportAllocs()
			for i := uint64(0); b.Loop(); i++ {
				if waiters > 0 {
					tk.Ticket = &store.Ticket{Number: 1 + i%waiters, Arrival: 1e15 - int64(i)}
				}
				if err := s.Take(b.Context(), []store.Take{tk}, out[:]); err != nil || out[0].Allowed {
					b.Fatal(err)
				}
			}
		})
	}
}

const (
	batchTasks = 10
	batches    = 10_000 // a month's
	batchEvery = 30 * 24 * time.Hour / batches
)

// month is a file in which a month's batches were counted.
type month struct {
	file  []byte
	clock *clock
	plan  *store.Plan
	cost  []int64
}

func filledMonth(b *testing.B, precision int) month {
	b.Helper()
	m := month{clock: newClock()}
	var limits []drawgate.Limit
	for _, window := range []time.Duration{
		time.Minute, time.Hour, 24 * time.Hour, 7 * 24 * time.Hour,
		30 * 24 * time.Hour,
	} {
		most := int64(window/batchEvery) + 1
		limits = append(limits, drawgate.Limit{
			Name: window.String(), Kind: drawgate.Rolling, Window: window,
			Amount: 2 * most * batchTasks, Precision: precision,
		})
		m.cost = append(m.cost, batchTasks)
	}
	m.plan = compile(b, limits...)
	path := dbPath(b)
	s, err := sqlitestore.OpenAt(path, sqlitestore.With(0, "synchronous = OFF"), m.clock.now)
	if err != nil {
		b.Fatal(err)
	}
	for range batches {
		m.clock.advance(batchEvery)
		if d, err := take(b.Context(), s, m.plan, "tasks", m.cost...); err != nil || !d.Allowed {
			b.Fatalf("%v, %v", d.Fail, err)
		}
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	if m.file, err = os.ReadFile(path); err != nil {
		b.Fatal(err)
	}
	return m
}

// BenchmarkBareGroupCommit is the floor: what database/sql and SQLite need to write one state row
// and one history row per take, gathered in the same way, with nothing decided and nothing checked.
func BenchmarkBareGroupCommit(b *testing.B) {
	for _, keys := range []int{1, 1000} {
		b.Run(fmt.Sprintf("callers=%d/keys=%d", callers, keys), func(b *testing.B) {
			f := newFloor(b)
			queue := make(chan *floorCall, callers)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				f.run(queue)
			}()
			load(b, keys, func(key string) error {
				c := &floorCall{key: key, done: make(chan error, 1)}
				queue <- c
				return <-c.done
			})
			close(queue)
			<-ended
		})
	}
}

// BenchmarkTransactionPerTake is what a store does that keeps nothing in memory and gathers
// nothing.
func BenchmarkTransactionPerTake(b *testing.B) {
	for _, keys := range []int{1, 1000} {
		b.Run(fmt.Sprintf("callers=%d/keys=%d", callers, keys), func(b *testing.B) {
			f := newFloor(b)
			var mu sync.Mutex
			load(b, keys, func(key string) error {
				mu.Lock()
				defer mu.Unlock()
				return f.transaction([]*floorCall{{key: key}}, true)
			})
		})
	}
}

// load has 64 goroutines call f with random keys, b.N times in all.
func load(b *testing.B, keys int, f func(key string) error) {
	b.Helper()
	names := make([]string, keys)
	for i := range names {
		names[i] = "user-" + strconv.Itoa(100_000+i)
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := f(names[rand.IntN(keys)]); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "takes/s")
}

type floor struct {
	db                                   *sql.DB
	begin, commit, read, state, addEvent *sql.Stmt
	ids                                  map[string]int64
}

type floorCall struct {
	key  string
	done chan error
}

func newFloor(b *testing.B) *floor {
	b.Helper()
	db, err := sql.Open("sqlite", "file:"+dbPath(b)+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { db.Close() })
	db.SetMaxOpenConns(1)
	f := &floor{db: db, ids: map[string]int64{}}
	if _, err := db.Exec(`CREATE TABLE state (key INTEGER PRIMARY KEY, record BLOB NOT NULL);
		CREATE TABLE history (seq INTEGER PRIMARY KEY, at INTEGER NOT NULL, key INTEGER NOT NULL, units TEXT NOT NULL)`); err != nil {
		b.Fatal(err)
	}
	for st, text := range map[**sql.Stmt]string{
		&f.begin: `BEGIN IMMEDIATE`, &f.commit: `COMMIT`, &f.read: `SELECT record FROM state WHERE key = ?`,
		&f.state:    `INSERT INTO state (key, record) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET record = ?2`,
		&f.addEvent: `INSERT INTO history (at, key, units) VALUES (?, ?, ?)`,
	} {
		if *st, err = db.Prepare(text); err != nil { //nolint:sqlclosecheck // it is closed with the database
			b.Fatal(err)
		}
	}
	return f
}

func (f *floor) run(queue chan *floorCall) {
	var batch []*floorCall
	for c := range queue {
		batch = append(batch[:0], c)
		for len(queue) > 0 {
			batch = append(batch, <-queue)
		}
		err := f.transaction(batch, false)
		for _, c := range batch {
			c.done <- err
		}
	}
}

func (f *floor) transaction(batch []*floorCall, read bool) error {
	if _, err := f.begin.Exec(); err != nil {
		return err
	}
	for _, c := range batch {
		id, ok := f.ids[c.key]
		if !ok {
			id = int64(len(f.ids) + 1)
			f.ids[c.key] = id
		}
		var record [60]byte
		if read {
			var was []byte
			if err := f.read.QueryRow(id).Scan(&was); err != nil && err != sql.ErrNoRows {
				return err
			}
		}
		if _, err := f.state.Exec(id, record[:]); err != nil {
			return err
		}
		if _, err := f.addEvent.Exec(time.Now().UnixMicro(), id, "requests=1"); err != nil {
			return err
		}
	}
	_, err := f.commit.Exec()
	return err
}
