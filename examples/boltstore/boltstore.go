// Package boltstore keeps buckets in a bbolt file: an example of a [store.Store] that is written
// outside Drawgate's own module, with package store.
//
// The file belongs to one process at a time. Every call that spends is one transaction, and is
// answered once its changes are on the disk. README.md next to this file explains it step by step.
package boltstore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/drawgate/drawgate/store"
)

// Options holds the optional settings of a Store. The zero value is ready to use.
type Options struct {
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// NoSync answers before decisions are on the disk: a crash of the machine may lose some.
	NoSync bool
}

// Store keeps buckets in a file. It is safe for concurrent use.
type Store struct {
	db  *bolt.DB
	now func() time.Time

	stop  chan struct{} // ends the sweeper
	close sync.Once
	done  sync.WaitGroup
}

var (
	_ store.Store    = (*Store)(nil)
	_ store.Resetter = (*Store)(nil)
	_ store.Lister   = (*Store)(nil)
	_ store.Pinger   = (*Store)(nil)
)

// records is the only bucket of the file, in bbolt's sense: our buckets are its entries.
var records = []byte("drawgate records")

// sweepEvery is how often what is unused is deleted.
const sweepEvery = time.Minute

// Open opens or makes the file at path. It fails if another process has it open. opts may be nil.
func Open(path string, opts *Options) (*Store, error) {
	if opts == nil {
		opts = &Options{}
	}
	db, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: time.Second, NoSync: opts.NoSync})
	if err != nil {
		return nil, fmt.Errorf("boltstore: %s: %w", path, err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(records)
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("boltstore: %s: %w", path, err), db.Close())
	}
	s := &Store{db: db, now: opts.Now, stop: make(chan struct{})}
	if s.now == nil {
		s.now = time.Now
	}
	s.done.Go(s.sweepOften)
	return s, nil
}

// Take implements [store.Store].
func (s *Store) Take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	return s.update(ctx, "take", func(tx *step) error {
		for i := range batch {
			recs, err := tx.load(batch[i].Buckets)
			if err != nil {
				out[i] = store.Verdict{Fail: err}
				continue
			}
			out[i] = store.Decide(&batch[i], recs, s.now())
		}
		return tx.save()
	})
}

// Settle implements [store.Store].
func (s *Store) Settle(ctx context.Context, batch []store.Settlement, out []store.Outcome) error {
	return s.update(ctx, "settle", func(tx *step) error {
		for i := range batch {
			recs, err := tx.load(batch[i].Buckets)
			if err != nil {
				out[i] = store.Outcome{Err: err}
				continue
			}
			out[i] = store.Apply(&batch[i], recs, s.now())
		}
		return tx.save()
	})
}

// Peek implements [store.Store].
func (s *Store) Peek(ctx context.Context, buckets []store.BucketCost, priority int8, out []store.State) error {
	return s.view(ctx, "peek", func(tx *step) error {
		for i := range buckets {
			recs, err := tx.load(buckets[i : i+1])
			if err != nil {
				out[i] = store.State{Verdict: store.Verdict{Fail: err}}
				continue
			}
			out[i] = store.Describe(&buckets[i], recs[0], priority, s.now())
		}
		return nil
	})
}

// Reset implements [store.Resetter].
func (s *Store) Reset(ctx context.Context, keys []store.Key) error {
	return s.update(ctx, "reset", func(tx *step) error {
		for _, k := range keys {
			if err := tx.all.Delete(digest(encodeKey(k))); err != nil {
				return err
			}
		}
		return nil
	})
}

// List implements [store.Lister]. Writers wait until it ends.
func (s *Store) List(ctx context.Context, tenant, policy string, yield func(store.Key) bool) error {
	return s.view(ctx, "list", func(tx *step) error {
		c, now := tx.all.Cursor(), s.now()
		for _, value := c.First(); value != nil; _, value = c.Next() {
			if err := ctx.Err(); err != nil {
				return err
			}
			k, rec, err := decodeKey(value)
			if err != nil {
				return err
			}
			if k.Tenant == tenant && k.Policy == policy && !unused(rec, now) && !yield(k) {
				return nil
			}
		}
		return nil
	})
}

// Ping implements [store.Pinger].
func (s *Store) Ping(ctx context.Context) error {
	return s.view(ctx, "ping", func(*step) error { return nil })
}

// Close implements [store.Store]. Running transactions finish first.
func (s *Store) Close() error {
	s.close.Do(func() { close(s.stop) })
	s.done.Wait()
	return s.db.Close()
}

// step is one transaction.
type step struct {
	all  *bolt.Bucket
	recs map[store.Key]*store.Record // that it has read: a batch may use a bucket more than once
}

// load returns the records of buckets. The error concerns only these.
func (tx *step) load(buckets []store.BucketCost) ([]*store.Record, error) {
	recs := make([]*store.Record, len(buckets))
	for i := range buckets {
		k := buckets[i].Key
		if tx.recs[k] == nil {
			r, err := tx.read(encodeKey(k))
			if err != nil {
				return nil, &store.Error{Store: "bolt", Op: "read", Err: err, Fault: store.FaultBucket}
			}
			tx.recs[k] = r
		}
		recs[i] = tx.recs[k]
	}
	return recs, nil
}

// read returns the record of a key; it is an unused one if there is none.
func (tx *step) read(key []byte) (*store.Record, error) {
	value := tx.all.Get(digest(key))
	if value == nil {
		return &store.Record{}, nil
	}
	rec, found := bytes.CutPrefix(value, key)
	if !found || len(rec) == 0 {
		return nil, store.ErrDamaged
	}
	return store.Decode(rec)
}

// save writes the records that must be written, each once for the whole batch.
func (tx *step) save() error {
	for k, r := range tx.recs {
		if !r.Changed() {
			continue
		}
		key := encodeKey(k)
		if err := tx.all.Put(digest(key), r.Append(key)); err != nil {
			return err
		}
	}
	return nil
}

// update runs f in a transaction that writes. If it fails nothing was done.
func (s *Store) update(ctx context.Context, op string, f func(*step) error) error {
	return s.in(ctx, op, s.db.Update, f)
}

func (s *Store) view(ctx context.Context, op string, f func(*step) error) error {
	return s.in(ctx, op, s.db.View, f)
}

func (s *Store) in(ctx context.Context, op string, run func(func(*bolt.Tx) error) error, f func(*step) error) error {
	err := run(func(tx *bolt.Tx) error {
		if err := ctx.Err(); err != nil { // it may have ended while others had the file
			return err
		}
		return f(&step{all: tx.Bucket(records), recs: map[store.Key]*store.Record{}})
	})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, bolterrors.ErrDatabaseNotOpen):
		return store.ErrClosed
	}
	return &store.Error{Store: "bolt", Op: op, Err: fmt.Errorf("%w: %w", store.ErrNothingDone, err)}
}

// sweepOften deletes what is unused, until the store is closed.
func (s *Store) sweepOften() {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-tick.C:
			_ = s.Sweep() // the next one tries again; calls report what is wrong with the file
		}
	}
}

// Sweep deletes the records that mean the same as none. The store does so every minute.
func (s *Store) Sweep() error {
	return s.update(context.Background(), "sweep", func(tx *step) error {
		var gone [][]byte
		now := s.now()
		err := tx.all.ForEach(func(key, value []byte) error {
			_, rec, err := decodeKey(value)
			if err == nil && unused(rec, now) {
				gone = append(gone, key)
			}
			return nil // what cannot be read stays
		})
		for _, key := range gone {
			err = errors.Join(err, tx.all.Delete(key))
		}
		return err
	})
}

// unused reports whether a record means the same as none. What cannot be read is in use.
func unused(rec []byte, now time.Time) bool {
	r, err := store.Decode(rec)
	if err != nil {
		return false
	}
	until := r.Until()
	return !until.IsZero() && !until.After(now)
}

// An entry of the file is a key's digest, because bbolt bounds the length of keys, and the key
// itself followed by the record.

func digest(key []byte) []byte {
	h := sha256.Sum256(key)
	return h[:]
}

// encodeKey returns the bytes that stand for a key: its parts may hold any bytes, so each is
// preceded by its length.
func encodeKey(k store.Key) (b []byte) {
	for _, part := range [...]string{k.Tenant, k.Policy, k.Name} {
		b = binary.AppendUvarint(b, uint64(len(part)))
		b = append(b, part...)
	}
	return b
}

// decodeKey reads the key in front of an entry's record.
func decodeKey(b []byte) (k store.Key, rec []byte, err error) {
	for _, part := range [...]*string{&k.Tenant, &k.Policy, &k.Name} {
		n, size := binary.Uvarint(b)
		if size <= 0 || uint64(len(b)-size) < n {
			return k, nil, store.ErrDamaged
		}
		*part, b = string(b[size:size+int(n)]), b[size+int(n):]
	}
	return k, b, nil
}
