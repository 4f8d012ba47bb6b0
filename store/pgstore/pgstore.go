package pgstore

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/pgstore/internal/pg"
)

// Options holds the optional settings of a Store. The zero value is ready to use.
type Options struct {
	// Prefix is how the names of the tables begin; "" means "drawgate". Stores with different
	// prefixes share nothing.
	Prefix     string
	HistoryFor time.Duration // how long the history is kept; 0 means 35 days; negative means that none is written
	// Logger receives warnings about settings of the server that endanger limits, and what cleaning
	// met with; nil discards.
	Logger *slog.Logger
	// Existing makes the store fail where its tables are missing. Otherwise it makes them.
	Existing bool

	clock   func() int64                         // for tests: the time in Unix µs, instead of the server's
	between func(ctx context.Context, st string) // for tests: called at steps of a transaction, and of a new connection
	process uint64                               // for tests: instead of a random number
}

const historyFor = 35 * 24 * time.Hour

// takeTime is how long a take may need: a disk is sometimes slow.
const takeTime = 500 * time.Millisecond

// Store keeps buckets in a PostgreSQL database. It is safe for concurrent use, and any number of
// processes may use one database.
type Store struct {
	link    *link
	sql     *statements
	opts    Options
	process uint64 // random: the marks of this store's transactions
	steps   atomic.Uint64

	mu     sync.Mutex
	queue  []*call         // guarded by mu: those whose transaction has not begun
	busy   map[string]bool // guarded by mu: the rows of transactions that are under way
	lanes  int             // guarded by mu: how many goroutines carry out transactions
	closed bool            // guarded by mu

	known    known
	watchers watchers
	running  sync.WaitGroup  // lanes and calls outside them; only added to while mu is held and the store is open
	loops    sync.WaitGroup  // what runs until life ends
	life     context.Context //nolint:containedctx // it belongs to the store: what runs by itself ends with it
	end      context.CancelFunc
}

var (
	_ store.Store     = (*Store)(nil)
	_ store.Resetter  = (*Store)(nil)
	_ store.Lister    = (*Store)(nil)
	_ store.Journal   = (*Store)(nil)
	_ store.Pinger    = (*Store)(nil)
	_ store.Timed     = (*Store)(nil)
	_ store.Watcher   = (*Store)(nil)
	_ store.Liner     = (*Store)(nil)
	_ store.Documents = (*Store)(nil)
)

// Open returns a store in the database that a URL names; opts may be nil. The first call connects:
// a database that is away makes calls fail, not Open.
//
//	postgres://user:password@host:5432/database?sslmode=verify-full&schema=quotas
//
// The URL is as libpq and pgx have it, so PG* variables, ~/.pgpass, and several hosts with
// target_session_attrs apply. These parameters are this store's own:
//
//   - pool_max_conns: how many connections there may be; otherwise 4, or as many as processors
//   - schema: the schema that has the tables; otherwise the first of the search path
//   - listen: host:port at which to listen for notifications, because the pooler that the URL names
//     passes none on
//   - password_file: the file that has the password; it is read before each connection
func Open(url string, opts *Options) (*Store, error) {
	s := &Store{busy: map[string]bool{}}
	if opts != nil {
		s.opts = *opts
	}
	if s.opts.Logger == nil {
		s.opts.Logger = slog.New(slog.DiscardHandler)
	}
	s.opts.HistoryFor = cmp.Or(s.opts.HistoryFor, historyFor)
	s.opts.Prefix = cmp.Or(s.opts.Prefix, "drawgate")
	a, err := parse(url)
	if err != nil {
		return nil, err
	}
	if s.sql, err = newStatements(a.schema, s.opts.Prefix); err != nil {
		return nil, err
	}
	s.process = cmp.Or(s.opts.process, rand.Uint64()|1) //nolint:gosec // it must be another one, not a secret
	s.life, s.end = context.WithCancel(context.Background())
	s.link = newLink(a, s)
	s.loops.Go(s.clean)
	return s, nil
}

// TakeTime implements [store.Timed]. A take that is cut off before its turn is withdrawn, so
// less time is no reason for a warning.
func (s *Store) TakeTime(set time.Duration) time.Duration { return cmp.Or(max(0, set), takeTime) }

// Take implements [store.Store]. A call whose ctx ends before its transaction begins takes
// nothing; one whose ctx ends later may have.
func (s *Store) Take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	c := newCall("take")
	c.setTakes(batch)
	if err := s.do(ctx, c); err != nil {
		return err
	}
	copy(out, c.verdicts)
	return nil
}

// Settle implements [store.Store]. If ctx ends, it behaves as [Store.Take].
func (s *Store) Settle(ctx context.Context, batch []store.Settlement, out []store.Outcome) error {
	c := newCall("settle")
	c.setSettlements(batch)
	if err := s.do(ctx, c); err != nil {
		return err
	}
	copy(out, c.outcomes)
	return nil
}

// Reset implements [store.Resetter]. All buckets are one step, or several if there are many.
func (s *Store) Reset(ctx context.Context, keys []store.Key) error {
	for len(keys) > 0 {
		n := min(len(keys), mostRows)
		c := newCall("reset")
		c.setKeys(keys[:n])
		if err := s.do(ctx, c); err != nil {
			return err
		}
		keys = keys[n:]
	}
	return s.usable()
}

// Withdraw implements [store.Liner]. If ctx ends, it behaves as [Store.Take].
func (s *Store) Withdraw(ctx context.Context, number uint64, keys []store.Key) error {
	c := newCall("withdraw")
	c.number = number
	c.setKeys(keys)
	return s.do(ctx, c)
}

// KeepsLine implements [store.Liner].
func (s *Store) KeepsLine() bool { return true }

// Close implements [store.Store]. It waits for calls under way.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	s.running.Wait()
	s.end()
	s.loops.Wait()
	s.link.close()
	return nil
}

// usable returns ErrClosed if the store was closed.
func (s *Store) usable() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return store.ErrClosed
	}
	return nil
}

// enter counts a call that is not carried out by a lane; leave ends it.
func (s *Store) enter(ctx context.Context, op string) (leave func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, nothingDone(op, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, store.ErrClosed
	}
	s.running.Add(1)
	return s.running.Done, nil
}

// now returns the instant in the clock's answer, in Unix µs.
func (s *Store) now(server time.Time) int64 {
	if s.opts.clock != nil {
		return s.opts.clock()
	}
	return server.UnixMicro()
}

// query reads rows outside of a transaction.
func (s *Store) query(ctx context.Context, op, sql string, args []any, scan func(pg.Row) error) error {
	leave, err := s.enter(ctx, op)
	if err != nil {
		return err
	}
	defer leave()
	return s.read(ctx, op, sql, args, scan)
}

// read is query for a call that has entered. Rows of an answer that is cut off, and read again, are
// not scanned.
func (s *Store) read(ctx context.Context, op, sql string, args []any, scan func(pg.Row) error) error {
	var rows []pg.Row
	err := s.link.with(ctx, func(c *pg.Conn) error {
		rows = rows[:0]
		return c.Query(ctx, func(r pg.Row) error {
			rows = append(rows, r.Clone())
			return nil
		}, sql, args...)
	})
	for i := 0; i < len(rows) && err == nil; i++ {
		err = scan(rows[i])
	}
	return storeError(op, err)
}
