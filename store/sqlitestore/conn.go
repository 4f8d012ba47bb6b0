package sqlitestore

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"strings"

	"modernc.org/sqlite"
)

// conn is one connection with its prepared statements. Only one goroutine may use it at a time.
//
// It calls the driver directly: database/sql would cost as much per row as SQLite itself.
type conn struct {
	raw   driver.Conn
	stmts [stmtCount]driver.Stmt
	args  []driver.NamedValue
	row   []driver.Value
}

// private is the mode of new files. They hold keys, which may be personal data or secrets.
const private fs.FileMode = 0o600

// dialNew makes an empty file and opens a connection to it. SQLite itself would make one that
// everybody may read.
func dialNew(path string, mode fs.FileMode) (*conn, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, private) //nolint:gosec // beside the file that the caller named
	if err != nil {
		return nil, err
	}
	if mode != private {
		err = f.Chmod(mode)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	c, err := dial(path, "rw")
	if err != nil {
		return nil, err
	}
	// must come before the first table: unused pages are given back
	if _, err := c.pragma("auto_vacuum = INCREMENTAL"); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// dial opens a connection to an existing database file. mode is SQLite's URI mode: "rw" or "ro".
//
// On macOS fsync alone leaves what was written in the drive's cache, where a loss of power erases
// it. Elsewhere fullfsync has no effect.
func dial(path, mode string) (*conn, error) {
	raw, err := (&sqlite.Driver{}).Open("file:" + (&url.URL{Path: path}).EscapedPath() + "?_pragma=fullfsync(1)&mode=" +
		mode)
	if err != nil {
		return nil, err
	}
	return &conn{raw: raw}, nil
}

func (c *conn) close() error {
	for _, st := range c.stmts {
		if st != nil {
			_ = st.Close() // the connection's error says what is wrong
		}
	}
	return c.raw.Close()
}

// leave closes a connection without changing the file. Otherwise closing the last connection would
// move the log into the file. A connection that is still open and can only read prevents that.
func (c *conn) leave(path string) {
	if last, err := dial(path, "ro"); err == nil {
		defer func() { _ = last.close() }()  // it was only read
		_, _ = last.pragma("schema_version") // if this fails, there is no log that could be moved
	}
	_ = c.close() // the caller has the more useful error
}

// stmt returns a prepared statement.
func (c *conn) stmt(q query) (driver.Stmt, error) {
	if st := c.stmts[q]; st != nil {
		return st, nil
	}
	st, err := c.raw.Prepare(statements[q])
	if err != nil {
		return nil, err // err is set, and st is not nil, but not a statement
	}
	c.stmts[q] = st
	return st, nil
}

// values converts statement arguments: int64, string, []byte or nil. An empty []byte is NULL.
func (c *conn) values(args []any) []driver.NamedValue {
	c.args = c.args[:0]
	for i, a := range args {
		if b, ok := a.([]byte); ok && len(b) == 0 {
			a = nil
		}
		c.args = append(c.args, driver.NamedValue{Ordinal: i + 1, Value: a})
	}
	return c.args
}

func (c *conn) exec(q query, args ...any) (driver.Result, error) {
	st, err := c.stmt(q)
	if err != nil {
		return nil, err
	}
	return st.(driver.StmtExecContext).ExecContext(context.Background(), c.values(args))
}

// query calls f with each row. The row, except for its strings, is only valid until f returns.
func (c *conn) query(q query, f func(row []driver.Value) error, args ...any) error {
	st, err := c.stmt(q)
	if err != nil {
		return err
	}
	rows, err := st.(driver.StmtQueryContext).QueryContext(context.Background(), c.values(args))
	if err != nil {
		return err
	}
	return c.each(rows, f)
}

func (c *conn) each(rows driver.Rows, f func(row []driver.Value) error) (err error) {
	defer func() { err = errors.Join(err, rows.Close()) }()
	n := len(rows.Columns())
	for len(c.row) < n {
		c.row = append(c.row, nil)
	}
	for {
		switch err := rows.Next(c.row[:n]); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := f(c.row[:n]); err != nil {
			return err
		}
	}
}

// number returns the first integer that a statement yields. ok is false if there is no row, or for
// NULL.
func (c *conn) number(q query, args ...any) (n int64, ok bool, err error) {
	err = c.query(q, func(row []driver.Value) error {
		if !ok {
			n, ok = row[0].(int64)
		}
		return nil
	}, args...)
	return n, ok, err
}

// script runs statements without preparing them.
func (c *conn) script(text string) error {
	_, err := c.raw.(driver.ExecerContext).ExecContext(context.Background(), text, nil)
	return err
}

// pragma returns the first value of a pragma's answer, as text.
func (c *conn) pragma(text string) (value string, err error) {
	rows, err := c.raw.(driver.QueryerContext).QueryContext(context.Background(), "PRAGMA "+text, nil)
	if err != nil {
		return "", err
	}
	first := true
	err = c.each(rows, func(row []driver.Value) error {
		if first && len(row) > 0 {
			value, first = fmt.Sprint(row[0]), false
		}
		return nil
	})
	return value, err
}

// query identifies a prepared statement.
type query int

const (
	qBegin query = iota
	qBeginRead
	qCommit
	qRollback
	qVersion
	qSchema
	qKey
	qNewKey
	qDropKey
	qRev
	qSetState
	qDropState
	qEntries
	qNewEntries
	qSetEntry
	qDropEntries
	qDropAllEntries
	qOpen
	qSetOpen
	qDropOpen
	qDropAllOpen
	qAddPlain
	qAddMany
	qAddEvent
	qFirstSeq
	qLastSeq
	qAtFrom
	qPageEnd
	qEvents
	qOldEvents
	qDropEvents
	qStates
	qNames
	qNamesAfter
	qMeta
	qSetMeta
	qHasDocuments
	qDocument
	qDocuments
	qSetDocument
	qDropDocument
	stmtCount
)

var statements = [stmtCount]string{
	qBegin:     `BEGIN IMMEDIATE`,
	qBeginRead: `BEGIN`,
	qCommit:    `COMMIT`,
	qRollback:  `ROLLBACK`,
	qVersion:   `PRAGMA data_version`,
	qSchema:    `PRAGMA user_version`,

	qKey:     `SELECT k.id, s.rev, s.record FROM key k LEFT JOIN state s ON s.key = k.id WHERE k.tenant = ? AND k.policy = ? AND k.name = ?`,
	qNewKey:  `INSERT INTO key (tenant, policy, name) VALUES (?, ?, ?)`,
	qDropKey: `DELETE FROM key WHERE id = ?`,

	qRev: `SELECT rev FROM state WHERE key = ?`,
	qSetState: `INSERT INTO state (key, rev, until, record) VALUES (?, ?, ?, ?)
		ON CONFLICT (key) DO UPDATE SET rev = excluded.rev, until = excluded.until, record = excluded.record`,
	qDropState: `DELETE FROM state WHERE key = ?`,

	qEntries:        `SELECT lim, first, last, n FROM entry WHERE key = ? ORDER BY lim, first`,
	qNewEntries:     `SELECT first, last, n FROM entry WHERE key = ? AND lim = ? AND first >= ? ORDER BY first`,
	qSetEntry:       `INSERT INTO entry (key, lim, first, last, n) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET last = excluded.last, n = excluded.n`,
	qDropEntries:    `DELETE FROM entry WHERE key = ? AND lim = ? AND first <= ?`,
	qDropAllEntries: `DELETE FROM entry WHERE key = ?`,

	qOpen: `SELECT id, reservation, units, labels FROM open WHERE key = ?`,
	qSetOpen: `INSERT INTO open (key, id, reservation, units, labels) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT DO UPDATE SET reservation = excluded.reservation, units = excluded.units, labels = excluded.labels`,
	qDropOpen:    `DELETE FROM open WHERE key = ? AND id = ?`,
	qDropAllOpen: `DELETE FROM open WHERE key = ?`,

	qAddPlain: `INSERT INTO history (at, op, tenant, policy, name, units) VALUES (?, ?, ?, ?, ?, ?)`,
	qAddMany: `INSERT INTO history (at, op, tenant, policy, name, units) VALUES (?, ?, ?, ?, ?, ?)` +
		strings.Repeat(`, (?, ?, ?, ?, ?, ?)`, many-1),
	qAddEvent: `INSERT INTO history (at, op, tenant, policy, name, units, id, labels) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
	qFirstSeq: `SELECT min(seq) FROM history WHERE seq > ?`,
	qLastSeq:  `SELECT max(seq) FROM history`,
	qAtFrom:   `SELECT at FROM history WHERE seq >= ? ORDER BY seq LIMIT 1`,
	qPageEnd:  `SELECT seq, at FROM history WHERE seq <= ? ORDER BY seq DESC LIMIT 1`,
	qEvents: `SELECT at, op, tenant, policy, name, units, id, labels FROM history WHERE seq BETWEEN ? AND ? AND at >= ? AND at < ?
		AND coalesce(?, policy) = policy AND coalesce(?, op) = op AND coalesce(?, tenant) = tenant AND coalesce(?, name) = name
		AND instr(coalesce(labels, x''), coalesce(?, x'')) ORDER BY seq`,
	qOldEvents:  `SELECT seq, at FROM history ORDER BY seq LIMIT 512`,
	qDropEvents: `DELETE FROM history WHERE seq <= ?`,

	qStates:     `SELECT s.key, s.until, k.tenant, k.policy, k.name FROM state s JOIN key k ON k.id = s.key WHERE s.key > ? ORDER BY s.key LIMIT ?`,
	qNames:      `SELECT k.name, s.until FROM key k JOIN state s ON s.key = k.id WHERE k.tenant = ? AND k.policy = ? ORDER BY k.name LIMIT 256`,
	qNamesAfter: `SELECT k.name, s.until FROM key k JOIN state s ON s.key = k.id WHERE k.tenant = ? AND k.policy = ? AND k.name > ? ORDER BY k.name LIMIT 256`,

	qMeta:    `SELECT value FROM meta WHERE name = ?`,
	qSetMeta: `INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value`,

	qHasDocuments: `SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'document'`,
	qDocument:     `SELECT value FROM document WHERE collection = ? AND name = ?`,
	qDocuments:    `SELECT name, value FROM document WHERE collection = ?`,
	qSetDocument: `INSERT INTO document (collection, name, value) VALUES (?, ?, ?)
		ON CONFLICT DO UPDATE SET value = excluded.value`,
	qDropDocument: `DELETE FROM document WHERE collection = ? AND name = ?`,
}
