package config

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store/dynamostore"
	"github.com/drawgate/drawgate/store/memstore"
	"github.com/drawgate/drawgate/store/pgstore"
	"github.com/drawgate/drawgate/store/redisstore"
	"github.com/drawgate/drawgate/store/sqlitestore"
)

// OpenStore opens the store that the configuration names. It creates a SQLite file that does not
// exist, and its folder only within the [StateFolder].
func (c *Config) OpenStore(log *slog.Logger) (drawgate.Store, error) {
	return c.openNewStore(log, storeOptions{})
}

// storeOptions says how a store is opened, and who receives its events: each may be nil.
type storeOptions struct {
	table    *dynamostore.Observer
	lost     func(redisstore.Loss)
	batched  func(redisstore.Batch)
	existing bool // create nothing
	later    bool // a SQLite file that cannot be used is no error: the store's calls fail
}

// openNewStore is OpenStore with options.
func (c *Config) openNewStore(log *slog.Logger, o storeOptions) (drawgate.Store, error) {
	if path, ok := SQLitePath(c.Store); ok {
		if state, err := StateFolder(os.Environ()); err == nil &&
			strings.HasPrefix(path, state+string(filepath.Separator)) {
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				return nil, fmt.Errorf("config: the state folder cannot be created (a store elsewhere needs none): %w",
					err)
			}
		}
	}
	return c.openStore(log, o)
}

// OpenExistingStore is [Config.OpenStore] for a reader: it creates nothing. Without a database the
// error is [io/fs.ErrNotExist].
func (c *Config) OpenExistingStore(log *slog.Logger) (drawgate.Store, error) {
	return c.openStore(log, storeOptions{existing: true})
}

func (c *Config) openStore(log *slog.Logger, o storeOptions) (drawgate.Store, error) {
	if path, ok := SQLitePath(c.Store); ok {
		return sqlitestore.Open(path, &sqlitestore.Options{Logger: log, Existing: o.existing, OpenLater: o.later})
	}
	if c.local() {
		return memstore.New(&memstore.Options{MaxBuckets: c.MaxBuckets}), nil
	}
	if onDynamoDB(c.Store) {
		return dynamostore.Open(context.Background(), c.Store,
			&dynamostore.Options{Prefix: c.Prefix, Logger: log, Observer: o.table})
	}
	if IsPostgres(c.Store) {
		return pgstore.Open(c.Store, &pgstore.Options{Prefix: c.Prefix, Logger: log, Existing: o.existing})
	}
	return redisstore.Open(c.Store, &redisstore.Options{
		Prefix: c.Prefix, Logger: log, RequireMark: c.RequireMark, NoBatches: c.NoBatches,
		Lost: o.lost, Batched: o.batched,
	})
}

// InitStore makes the mark of a store on Redis, unless there is one: see store_mark. made reports
// whether it did. Other stores have none: the error is [drawgate.ErrInvalid].
func (c *Config) InitStore(ctx context.Context, log *slog.Logger) (made bool, err error) {
	if !c.onRedis() {
		return false, fmt.Errorf("%w: %s is not on Redis: only a store there has to be initialized",
			drawgate.ErrInvalid, RedactURL(c.Store))
	}
	s, err := redisstore.Open(c.Store, &redisstore.Options{Prefix: c.Prefix, Logger: log})
	if err != nil {
		return false, err
	}
	made, err = s.Init(ctx)
	return made, errors.Join(err, s.Close())
}

// onRedis reports whether the store is a server of Redis or Valkey.
func (c *Config) onRedis() bool { return IsRedis(c.Store) }

// onDynamoDB reports whether a store URL names a table of DynamoDB.
func onDynamoDB(store string) bool { return strings.HasPrefix(store, "dynamodb:") }

// local reports whether buckets exist only in this process.
func (c *Config) local() bool { return c.Store == Memory || c.Store == "" }
