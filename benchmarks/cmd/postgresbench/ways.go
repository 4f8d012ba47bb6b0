package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store/pgstore"
)

// take takes one unit of a key.
type take func(ctx context.Context, key string) (bool, error)

// far is a limit that no run reaches.
const far = 100_000_000

// open returns what a kind of callers does.
func open(ctx context.Context, kind string) (t take, end func() error, err error) {
	switch kind {
	case "bucket":
		return drawgateOver(drawgate.BucketLimit("rpm", far, time.Minute, far), -1)
	case "rolling":
		return drawgateOver(drawgate.RollingLimit("rpm", far, time.Minute), -1)
	case "history":
		return drawgateOver(drawgate.RollingLimit("rpm", far, time.Minute), 0)
	}
	cfg, err := pgxpool.ParseConfig(*st)
	if err != nil {
		return nil, nil, err
	}
	cfg.MaxConns = int32(*conns)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	closed := func() error { pool.Close(); return nil }
	switch kind {
	case "counter":
		return counter(pool), closed, nil
	case "tx":
		return transaction(pool), closed, nil
	case "floor", "floor-yield":
		f := startFloor(ctx, pool, kind == "floor-yield")
		return f.take, func() error { f.stop(); return closed() }, nil
	}
	return nil, nil, fmt.Errorf("there is no kind %q of callers", kind)
}

func drawgateOver(limit drawgate.Limit, historyFor time.Duration) (take, func() error, error) {
	s, err := pgstore.Open(*st, &pgstore.Options{HistoryFor: historyFor})
	if err != nil {
		return nil, nil, err
	}
	l, err := drawgate.New(s, drawgate.Policy{Name: "bench", Limits: []drawgate.Limit{limit}},
		&drawgate.Options{StoreTimeout: -1})
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context, key string) (bool, error) {
		d, err := l.Allow(ctx, key)
		return d.Allowed, err
	}, s.Close, nil
}

const counterTable = `CREATE TABLE c (key text PRIMARY KEY, used bigint NOT NULL, lim bigint NOT NULL)`

// counter is one conditional UPDATE for each take, which commits by itself.
func counter(pool *pgxpool.Pool) take {
	return func(ctx context.Context, key string) (bool, error) {
		tag, err := pool.Exec(ctx, `UPDATE c SET used = used + $2 WHERE key = $1 AND used + $2 <= lim`, key, 1)
		return tag.RowsAffected() == 1, err
	}
}

// transaction is a transaction for each take, one statement after the other.
func transaction(pool *pgxpool.Pool) take {
	return func(ctx context.Context, key string) (bool, error) {
		tx, err := pool.Begin(ctx)
		if err != nil {
			return false, err
		}
		defer tx.Rollback(ctx) //nolint:errcheck // nothing to do after a commit
		var used, lim int64
		if err := tx.QueryRow(ctx, `SELECT used, lim FROM c WHERE key = $1 FOR UPDATE`, key).Scan(&used, &lim); err != nil {
			return false, err
		}
		if used+1 > lim {
			return false, nil
		}
		if _, err := tx.Exec(ctx, `UPDATE c SET used = $2 WHERE key = $1`, key, used+1); err != nil {
			return false, err
		}
		return true, tx.Commit(ctx)
	}
}
