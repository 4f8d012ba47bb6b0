package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/drawgate/drawgate/benchmarks/internal/sysx"
)

// schema has the tables of a contestant during its cell.
const schema = "bench"

// database is the server that all contestants use, and a connection of our own to it.
type database struct {
	server *sysx.Postgres
	conn   *pgx.Conn
}

// connect waits until the server answers.
func connect(ctx context.Context, server *sysx.Postgres) (*database, error) {
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		conn, err := pgx.Connect(ctx, server.URL())
		if err == nil {
			return &database{server, conn}, nil
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("%w: %s", err, server.Printed())
		}
	}
}

func (d *database) close() { _ = d.conn.Close(context.Background()) } // the server is stopped next

// about returns the server's version, and settings on which the figures depend.
func (d *database) about(ctx context.Context) (version, settings string, err error) {
	for _, name := range []string{
		"fsync", "synchronous_commit", "full_page_writes", "wal_sync_method", "shared_buffers", "max_wal_size",
		"checkpoint_timeout", "max_connections", "autovacuum", "autovacuum_naptime",
	} {
		var value string
		if err := d.conn.QueryRow(ctx, `SELECT current_setting($1)`, name).Scan(&value); err != nil {
			return "", "", err
		}
		settings += name + "=" + value + " "
	}
	err = d.conn.QueryRow(ctx, `SELECT current_setting('server_version')`).Scan(&version)
	return version, strings.TrimSpace(settings), err
}

// clear makes an empty schema.
func (d *database) clear(ctx context.Context) error {
	for _, sql := range []string{
		`SET client_min_messages = warning`, `DROP SCHEMA IF EXISTS ` + schema + ` CASCADE`, `CREATE SCHEMA ` + schema,
		`SET search_path = ` + schema,
	} {
		if _, err := d.conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// checkpoint has each contestant write full pages into the log as if it was the first one.
func (d *database) checkpoint(ctx context.Context) error {
	_, err := d.conn.Exec(ctx, `CHECKPOINT`)
	return err
}

// analyze does what the server does by itself within a minute after a table's first rows: it plans
// statements for the table as it is now.
func (d *database) analyze(ctx context.Context, table string) error {
	_, err := d.conn.Exec(ctx, `ANALYZE `+table)
	return err
}

// commits returns how many transactions the database has committed.
func (d *database) commits(ctx context.Context) (n int64, err error) {
	err = d.conn.QueryRow(ctx, `SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()`).Scan(&n)
	return n, err
}

// quiet waits until clients have left, but for so many: a server process adds its last counts to
// the statistics when it ends.
func (d *database) quiet(ctx context.Context, but int) error {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		var n int
		err := d.conn.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity
			WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`).Scan(&n)
		if err != nil || n <= but {
			return err
		}
	}
	return errors.New("clients do not leave")
}

// sizes are those of a contestant's tables.
type sizes struct {
	bytes    int64 // of all tables, with their indexes
	dead     int64 // rows
	seqScans int64 // how often all rows of a table were read: its plan was bad, or made for a small table
	row      int64 // length of the longest row of the buckets
}

func (d *database) sizes(ctx context.Context, table string) (s sizes, err error) {
	err = d.conn.QueryRow(ctx, `SELECT coalesce(sum(pg_total_relation_size(relid)), 0)::bigint,
			coalesce(sum(n_dead_tup), 0)::bigint, coalesce(sum(seq_scan), 0)::bigint
		FROM pg_stat_all_tables WHERE schemaname = $1`, schema).Scan(&s.bytes, &s.dead, &s.seqScans)
	if err != nil {
		return s, err
	}
	err = d.conn.QueryRow(ctx, `SELECT max(pg_column_size(t.*)) FROM `+table+` AS t`).Scan(&s.row)
	return s, err
}

// openIdle begins a transaction that reads and then does nothing, as a report or a forgotten
// session may: until it ends, the server keeps each version of a row that was there when it began,
// or later.
func (d *database) openIdle(ctx context.Context) (end func() error, err error) {
	conn, err := pgx.Connect(ctx, d.server.URL())
	if err != nil {
		return nil, err
	}
	end = func() error { return conn.Close(ctx) }
	for _, sql := range []string{`BEGIN ISOLATION LEVEL REPEATABLE READ`, `SELECT count(*) FROM pg_class`} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return nil, errors.Join(err, end())
		}
	}
	return end, nil
}
