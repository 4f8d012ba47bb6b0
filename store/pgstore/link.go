package pgstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/drawgate/drawgate/store/pgstore/internal/pg"
)

// link has the connections to the database.
type link struct {
	a        *address
	log      *slog.Logger
	sql      *statements
	existing bool
	warned   atomic.Bool
	found    atomic.Bool                            // the tables were there
	at       func(ctx context.Context, step string) // for tests

	mu     sync.Mutex
	pool   atomic.Pointer[pg.Pool] // replaced while mu is held; nil: none was needed yet
	plain  bool                    // guarded by mu: without prepared statements, because a pooler does not keep them
	closed bool                    // guarded by mu
	ends   sync.WaitGroup          // pools that were replaced
}

func newLink(a *address, s *Store) *link {
	return &link{a: a, log: s.opts.Logger, sql: s.sql, existing: s.opts.Existing, at: s.at}
}

// mostLanes is how many transactions a store has under way at most: more would queue in the server.
const mostLanes = 8

// lanes returns how many transactions may be under way: one connection is left for what reads.
func (l *link) lanes() int { return min(mostLanes, max(1, int(l.a.conns)-1)) }

func (l *link) acquire(ctx context.Context) (*pg.Conn, error) {
	for {
		p := l.pool.Load()
		if p == nil {
			var err error
			if p, err = l.open(nil); err != nil {
				return nil, err
			}
		}
		c, err := p.Acquire(ctx)
		if err == nil || ctx.Err() != nil || l.pool.Load() == p { // a pool that was replaced is closed
			return c, err
		}
	}
}

// open makes the pool, or makes it anew if it is still old.
func (l *link) open(old *pg.Pool) (*pg.Pool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.pool.Load(); p != old || l.closed {
		return p, nil
	}
	plain := l.plain
	p, err := pg.NewPool(pg.PoolConfig{
		Max: l.a.conns, MaxLife: connLife, MaxIdle: connIdle,
		Connect: func(ctx context.Context) (*pg.Conn, error) { return l.connect(ctx, plain) },
	})
	if err != nil {
		return nil, err
	}
	l.pool.Store(p)
	return p, nil
}

const (
	connLife = time.Hour        // of a connection: then it is made anew, wherever the server's name leads by then
	connIdle = 30 * time.Minute // how long one may be unused
)

// connect makes a connection for the pool.
func (l *link) connect(ctx context.Context, plain bool) (*pg.Conn, error) {
	c, err := l.a.connect(ctx, plain, notice)
	if err != nil {
		return nil, err
	}
	if err := l.check(ctx, c); err != nil {
		_ = c.Close(ctx) // the error is the one above
		return nil, err
	}
	return c, nil
}

// notWaited is set in the data of a connection whose commit did not wait for a standby to the end.
const notWaited = "drawgate: not waited"

// notice receives the server's warnings. One that somebody keeps from waiting for its standby
// answers as if the standby had the commit; only this routine's warning tells.
func notice(c *pgconn.PgConn, n *pgconn.Notice) {
	if n.Routine == "SyncRepWaitForLSN" {
		c.CustomData()[notWaited] = true
	}
}

// mend prepares for another attempt after an error, and reports whether one may help. A server that
// was started again has closed all connections; one that takes no writes may not be the primary any
// more.
func (l *link) mend(err error) bool {
	p := l.pool.Load()
	if p == nil || !lost(err) {
		return false
	}
	switch code(err) {
	case codeNoStatement, codeStatementTwice:
		l.withoutStatements(p)
	default:
		p.Reset()
	}
	return true
}

// with calls f with a connection: again, once, if that one had been lost before. So what f does may
// be done twice.
func (l *link) with(ctx context.Context, f func(c *pg.Conn) error) error {
	for attempt := 0; ; attempt++ {
		err := l.withOne(ctx, f)
		if err == nil || ctx.Err() != nil || attempt > 0 || !l.mend(err) {
			return err
		}
	}
}

func (l *link) withOne(ctx context.Context, f func(c *pg.Conn) error) error {
	c, err := l.acquire(ctx)
	if err != nil {
		return err
	}
	defer c.Release() // it is closed if it is within a transaction
	return f(c)
}

// withoutStatements makes the pool anew, without prepared statements.
func (l *link) withoutStatements(old *pg.Pool) {
	l.mu.Lock()
	first := !l.plain
	l.plain = true
	l.mu.Unlock()
	if !first {
		old.Reset()
		return
	}
	l.log.Info("pgstore: a pooler stands before the server and keeps no prepared statements: going on without them")
	if p, err := l.open(old); err == nil && p != old {
		l.ends.Go(old.Close) // it waits for those who use a connection
	}
}

func (l *link) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	if p := l.pool.Load(); p != nil {
		p.Close()
	}
	l.ends.Wait()
}

// noticeSoon has the server notice within six seconds that this machine is gone, or the network
// between them: while a lost answer is looked up (lookTime). It would wait for two hours for the
// rest of a transaction of which it has received a part, with the rows locked: its time-outs for
// idle transactions only count when it has answered.
const noticeSoon = `SELECT set_config('tcp_keepalives_idle', '3', false), set_config('tcp_keepalives_interval', '1', false),
	set_config('tcp_keepalives_count', '3', false)`

// checkTime is how long a connection that is not ready yet may occupy a place in the pool.
const checkTime = 5 * time.Second

// check looks whether a new connection leads to tables that this version can use, and makes them if
// there are none.
func (l *link) check(ctx context.Context, c *pg.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, checkTime) // the pool gives it no end
	defer cancel()
	found := l.found.Load() // before it looks: if another connection makes them meanwhile, they are not gone
	err := l.known(ctx, c)
	l.at(ctx, "looked")
	// Tables that are gone are not made again: all limits would be unused, and nobody told.
	if code(err) == codeUndefinedTable && !l.existing && !found {
		if err = l.create(ctx, c); err == nil {
			err = l.known(ctx, c)
		}
	}
	if err != nil {
		return err
	}
	l.found.Store(true)
	// A server that cannot be asked for this works, too.
	if err := c.Script(ctx, noticeSoon); err != nil && c.IsClosed() {
		return err
	}
	if !l.warned.Swap(true) {
		l.warn(ctx, c)
	}
	return nil
}

// known returns an error unless this version knows that of the tables.
func (l *link) known(ctx context.Context, c *pg.Conn) error {
	version, err := l.version(ctx, c)
	if err == nil && version > schemaVersion {
		err = fmt.Errorf("%w: a newer version of this program has made version %d of them, and this one knows %d: "+
			"use the newer one", ErrTables, version, schemaVersion)
	}
	return err
}

// version returns the version of the tables.
func (l *link) version(ctx context.Context, c *pg.Conn) (int, error) {
	var text string
	err := c.QueryRow(ctx, []any{&text}, l.sql.version)
	switch {
	case errors.Is(err, pg.ErrNoRow):
		return 0, fmt.Errorf("%w: the table %s_setting does not have their version: another program made it, or they "+
			"were cleared: choose another prefix, or drop them", ErrTables, l.sql.prefix)
	case code(err) == codeUndefinedColumn:
		return 0, fmt.Errorf("%w: another program has made the table %s_setting: choose another prefix: %w", ErrTables,
			l.sql.prefix, err)
	case err != nil:
		return 0, err
	}
	version, err := strconv.Atoi(text)
	if err != nil || version < 1 {
		return 0, fmt.Errorf("%w: the table %s_setting says that their version is %q, and this program knows 1 to %d: use the "+
			"one that made them, or choose another prefix", ErrTables, l.sql.prefix, text, schemaVersion)
	}
	return version, nil
}

// createLock is the advisory lock under which tables are made.
const createLock = 0x6472_6177_6761_7465 // "drawgate"

// create makes the tables, unless another process has just made them.
func (l *link) create(ctx context.Context, c *pg.Conn) error { return l.makeTables(ctx, c, false) }

// makeTables makes the tables, with all those that are missing even if one is there.
func (l *link) makeTables(ctx context.Context, c *pg.Conn, all bool) error {
	made := false
	err := transaction(ctx, c, func() error {
		if _, err := c.Exec(ctx, l.sql.tablesLock, int64(createLock)); err != nil {
			return err
		}
		found := false
		if err := c.QueryRow(ctx, []any{&found}, l.sql.found); err != nil || found && !all {
			return err
		}
		made = true
		return c.Script(ctx, l.sql.create)
	})
	if err == nil && made && !all {
		l.log.Info("pgstore: made the tables", "prefix", l.sql.prefix)
	}
	return err
}

// transaction carries out f as one.
func transaction(ctx context.Context, c *pg.Conn, f func() error) error {
	if _, err := c.Exec(ctx, begin); err != nil {
		return err
	}
	if err := f(); err != nil {
		_, _ = c.Exec(ctx, rollback) // without an answer the connection is closed, which is the same
		return err
	}
	end := &pg.Batch{}
	end.Add("COMMIT")
	return commit(ctx, c, end)
}

// warn looks for settings with which an answer may be forgotten.
func (l *link) warn(ctx context.Context, c *pg.Conn) {
	l.at(ctx, "warns")
	f, err := readFacts(ctx, c, l.sql)
	if errors.Is(err, context.Canceled) { // the pool is closed; one that takes its place looks again
		l.warned.Store(false)
		return
	}
	if err != nil {
		l.log.Warn("pgstore: the server's settings cannot be read", "error", err)
		return
	}
	for _, w := range f.Warnings() {
		l.log.Warn("pgstore: " + w)
	}
}

// Facts are settings of a server that say what it may lose, and what it can keep.
type Facts struct {
	Version           int    // such as 150018
	SynchronousCommit string // off: the server may forget the last answers when it crashes
	Fsync             bool
	FullPageWrites    bool
	SynchronousNames  string // of standbys that have what was answered
	Standbys          int    // that are connected
	Standby           bool   // it is one itself
	ReadOnly          bool
	Unlogged          bool   // the table of buckets is emptied by a crash
	Encoding          string // of the database, such as UTF8
}

func readFacts(ctx context.Context, c *pg.Conn, sql *statements) (f Facts, err error) {
	var fsync, pages, readOnly string
	err = c.QueryRow(ctx, []any{
		&f.Version, &f.SynchronousCommit, &fsync, &pages, &f.SynchronousNames, &f.Standbys, &f.Standby, &readOnly,
		&f.Unlogged,
		&f.Encoding,
	}, sql.facts)
	f.Fsync, f.FullPageWrites, f.ReadOnly = fsync == "on", pages == "on", readOnly == "on"
	return f, err
}

// Warnings say what the server may lose or cannot keep, and what to do about it.
func (f Facts) Warnings() (all []string) {
	for _, w := range f.findings() {
		all = append(all, w.Message+": "+w.Advice)
	}
	return all
}

func (f Facts) findings() (all []Finding) {
	add := func(code, message, advice string) { all = append(all, Finding{true, code, message, advice}) }
	const priced, restore = "; drawgate bound --losses 1 says how many units that may be",
		"turn it on: what is damaged has to be restored from a backup"
	if f.SynchronousCommit == "off" {
		add(CodeLoss, "synchronous_commit is off: after a crash the server has forgotten what it answered in about the last "+
			"second, and may admit it again", "set it to on for this role (ALTER ROLE ... SET synchronous_commit = on)"+priced)
	}
	if !f.Fsync {
		add(CodeLoss, "fsync is off: a loss of power may damage the database", restore)
	}
	if !f.FullPageWrites {
		add(CodeLoss, "full_page_writes is off: a loss of power may damage the database", restore)
	}
	if f.Unlogged {
		add(CodeLoss, "the table of buckets is unlogged: a crash empties it, and all limits are unused then",
			"set it to logged (ALTER TABLE ... SET LOGGED)"+priced)
	}
	if f.Standbys > 0 && (f.SynchronousNames == "" || f.SynchronousCommit == "local") {
		add(CodeLoss, "standbys copy the server with a delay: one that takes its place has forgotten what was answered in that "+
			"time, and may admit it again", "set synchronous_standby_names if it must not"+priced)
	}
	if f.Encoding != "UTF8" && f.Encoding != "SQL_ASCII" { // which keeps what it gets
		add(CodeEncoding, "the database's encoding is "+f.Encoding+": a take fails whose key or label has a character that it lacks",
			"use a database that was created with ENCODING 'UTF8'")
	}
	return all
}

// Facts returns the settings of the server that say what it may lose.
func (s *Store) Facts(ctx context.Context) (f Facts, err error) {
	leave, err := s.enter(ctx, "facts")
	if err != nil {
		return f, err
	}
	defer leave()
	err = s.link.with(ctx, func(c *pg.Conn) (err error) {
		f, err = readFacts(ctx, c, s.sql)
		return err
	})
	return f, storeError("facts", err)
}

// Ping implements [store.Pinger]. It writes, and takes that back, because a server that takes no
// writes cannot decide.
func (s *Store) Ping(ctx context.Context) error {
	leave, err := s.enter(ctx, "ping")
	if err != nil {
		return err
	}
	defer leave()
	return storeError("ping", s.link.with(ctx, func(c *pg.Conn) error {
		if err := s.link.known(ctx, c); err != nil {
			return err
		}
		b := &pg.Batch{}
		b.Add(begin)
		b.Add(s.sql.ping)
		b.Add(rollback)
		_, err := c.Run(ctx, b)
		return err
	}))
}
