package pg

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/puddle/v2"
)

// Conn is a connection. Only one goroutine may use it at a time.
type Conn struct {
	raw      *pgconn.PgConn
	plain    bool
	prepared map[string]*pgconn.StatementDescription // by their text; of statements, there are only a few
	listens  bool
	heard    []string                // notifications
	pool     *Pool                   // nil: none has it
	place    *puddle.Resource[*Conn] // in the pool, while it is in use
}

// Connect makes a connection. A plain one prepares no statements on the server, because a pooler
// may send the next one to another connection.
func Connect(ctx context.Context, cfg *pgconn.Config, plain bool) (*Conn, error) {
	c := &Conn{plain: plain, prepared: map[string]*pgconn.StatementDescription{}}
	cfg = cfg.Copy()
	cfg.OnNotification = func(_ *pgconn.PgConn, n *pgconn.Notification) {
		if c.listens { // behind a pooler, others receive them, too
			c.heard = append(c.heard, n.Payload)
		}
	}
	cfg.BuildContextWatcherHandler = func(raw *pgconn.PgConn) ctxwatch.Handler { return interrupter{raw} }
	var err error
	if c.raw, err = pgconn.ConnectConfig(ctx, cfg); err != nil {
		return nil, err
	}
	return c, nil
}

// interrupter ends what a connection waits for when the context of a call ends. Such a connection
// is closed, and pgx waits for the server for up to 15 s more. Its own handler takes that end away
// if the server answers to the request to cancel at once: then a connection to a server that falls
// silent is never closed.
type interrupter struct{ raw *pgconn.PgConn }

// HandleCancel implements [ctxwatch.Handler].
func (h interrupter) HandleCancel(context.Context) { _ = h.raw.Conn().SetDeadline(time.Now()) }

// HandleUnwatchAfterCancel implements [ctxwatch.Handler].
func (h interrupter) HandleUnwatchAfterCancel() {
	if !h.raw.IsClosed() {
		_ = h.raw.Conn().SetDeadline(time.Time{})
	}
}

// Close closes a connection that is not of a pool.
func (c *Conn) Close(ctx context.Context) error { return c.raw.Close(ctx) }

// IsClosed reports whether the connection was closed, or lost.
func (c *Conn) IsClosed() bool { return c.raw.IsClosed() }

// Data returns what belongs to the connection, for those who receive its notices.
func (c *Conn) Data() map[string]any { return c.raw.CustomData() }

// Listen has the server send the notifications of a channel to this connection.
func (c *Conn) Listen(ctx context.Context, channel string) error {
	c.listens = true
	return c.Script(ctx, "LISTEN "+Name(channel))
}

// Hear waits for a notification.
func (c *Conn) Hear(ctx context.Context) (payload string, err error) {
	for len(c.heard) == 0 {
		if err := c.raw.WaitForNotification(ctx); err != nil {
			return "", err
		}
	}
	payload, c.heard = c.heard[0], c.heard[1:]
	return payload, nil
}

// Script carries out statements without parameters.
func (c *Conn) Script(ctx context.Context, sql string) error {
	_, err := c.raw.Exec(ctx, sql).ReadAll()
	return err
}

// Exec carries out a statement, and returns how many rows it changed.
func (c *Conn) Exec(ctx context.Context, sql string, args ...any) (rows int64, err error) {
	b := &Batch{}
	b.Add(sql, args...)
	tags, err := c.Run(ctx, b)
	if err != nil {
		return 0, err
	}
	return tags[0].RowsAffected(), nil
}

// Query calls scan for each row that a statement returns.
func (c *Conn) Query(ctx context.Context, scan func(Row) error, sql string, args ...any) error {
	b := &Batch{}
	b.Query(scan, sql, args...)
	_, err := c.Run(ctx, b)
	return err
}

// ErrNoRow means that a statement returned no row.
var ErrNoRow = errors.New("the server returned no row")

// QueryRow reads the only row that a statement returns.
func (c *Conn) QueryRow(ctx context.Context, dest []any, sql string, args ...any) error {
	found := false
	err := c.Query(ctx, func(r Row) error {
		found = true
		return r.Scan(dest...)
	}, sql, args...)
	if err == nil && !found {
		err = ErrNoRow
	}
	return err
}

// Batch has statements that are sent at once: one round trip, or two if the server does not know
// all of them yet.
type Batch struct{ list []statement }

type statement struct {
	sql    string
	oids   []uint32
	values [][]byte
	err    error
	scan   func(Row) error
}

// Len returns how many statements there are.
func (b *Batch) Len() int { return len(b.list) }

// Add adds a statement.
func (b *Batch) Add(sql string, args ...any) { b.Query(nil, sql, args...) }

// Query adds a statement, and has scan called for each row that it returns. scan may be nil.
func (b *Batch) Query(scan func(Row) error, sql string, args ...any) {
	s := statement{sql: sql, scan: scan, oids: make([]uint32, len(args)), values: make([][]byte, len(args))}
	for i, a := range args {
		var err error
		if s.oids[i], s.values[i], err = encode(a); err != nil {
			s.err = fmt.Errorf("parameter %d of a statement: %w", i+1, err)
		}
	}
	b.list = append(b.list, s)
}

var errTypes = errors.New("a statement has parameters of other types than before")

var errFew = errors.New("the server answered to fewer statements than it was sent")

var binaryFormat = []int16{1} // of all parameters and columns

// Run carries out the statements in order, up to the first one that fails, and returns what the
// server said of those that it has carried out.
func (c *Conn) Run(ctx context.Context, b *Batch) (tags []pgconn.CommandTag, err error) {
	if err := c.prepare(ctx, b); err != nil {
		return nil, err
	}
	send := &pgconn.Batch{}
	for i := range b.list {
		s := &b.list[i]
		switch d := c.prepared[s.sql]; {
		case c.plain:
			send.ExecParams(s.sql, s.values, s.oids, binaryFormat, binaryFormat)
		case !slices.Equal(d.ParamOIDs, s.oids):
			return nil, errTypes
		default:
			send.ExecStatement(d, s.values, binaryFormat, binaryFormat)
		}
	}
	res := c.raw.ExecBatch(ctx, send)
	for i := 0; i < len(b.list) && err == nil && res.NextResult(); i++ {
		r := res.ResultReader()
		for r.NextRow() && err == nil {
			if b.list[i].scan != nil {
				err = b.list[i].scan(Row(r.Values()))
			}
		}
		tag, failed := r.Close()
		if err == nil {
			err = failed
		}
		if err == nil {
			tags = append(tags, tag)
		}
	}
	if failed := res.Close(); err == nil {
		err = failed
	}
	if err == nil && len(tags) < len(b.list) {
		err = errFew
	}
	return tags, err
}

// prepare prepares those statements that this connection has not yet. It returns the error of a
// parameter, too.
func (c *Conn) prepare(ctx context.Context, b *Batch) error {
	var missing []*statement
	for i := range b.list {
		s := &b.list[i]
		if s.err != nil {
			return s.err
		}
		if c.prepared[s.sql] == nil && !c.plain &&
			!slices.ContainsFunc(missing, func(m *statement) bool { return m.sql == s.sql }) {
			missing = append(missing, s)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	p := c.raw.StartPipeline(ctx)
	for _, s := range missing {
		p.SendPrepare(s.name(), s.sql, s.oids)
	}
	_ = p.Sync() // its error is that of the first result
	for _, s := range missing {
		if err := c.described(p, s); err != nil {
			_ = p.Close()
			// The server may have prepared it nevertheless. Without an answer the connection is
			// closed.
			_ = c.raw.Deallocate(ctx, s.name())
			return err
		}
	}
	return p.Close()
}

// described receives the description of a statement that is prepared.
func (c *Conn) described(p *pgconn.Pipeline, s *statement) error {
	res, err := p.GetResults()
	if err != nil {
		return err
	}
	d, ok := res.(*pgconn.StatementDescription)
	if !ok {
		return fmt.Errorf("the server answered to the preparing of a statement with %T", res)
	}
	d.Name, d.SQL, d.ParamOIDs = s.name(), s.sql, s.oids
	c.prepared[s.sql] = d
	return nil
}

// name returns a name under which a statement is prepared: the same name is always the same
// statement, whoever uses the connection behind a pooler.
func (s *statement) name() string {
	h := sha256.New()
	for _, oid := range s.oids {
		_ = binary.Write(h, binary.BigEndian, oid)
	}
	h.Write([]byte(s.sql))
	return "drawgate_" + hex.EncodeToString(h.Sum(nil)[:12])
}

// Name returns a name as it is written in a statement. With several parts, the first one is the
// schema.
func Name(parts ...string) string {
	var quoted []string
	for _, p := range parts {
		quoted = append(quoted, `"`+strings.ReplaceAll(p, `"`, `""`)+`"`)
	}
	return strings.Join(quoted, ".")
}
