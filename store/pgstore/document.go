package pgstore

import (
	"bytes"
	"context"
	"fmt"
	"hash/fnv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/drawgate/drawgate/store"
)

// KeepsDocuments implements [store.Documents].
func (s *Store) KeepsDocuments() bool { return true }

// ReadDocuments implements [store.Documents].
func (s *Store) ReadDocuments(ctx context.Context, collection string, names []string) (list []store.Document,
	err error,
) {
	if err := store.CheckDocuments(collection); err != nil {
		return nil, err
	}
	sql, args := s.sql.documents, []any{[]byte(collection)}
	if names != nil {
		all := make([][]byte, len(names))
		for i := range names {
			all[i] = []byte(names[i])
		}
		sql, args = s.sql.documentsNamed, append(args, all)
	}
	err = s.query(ctx, "read", sql, args, func(rows pgx.Rows) error {
		var name, value []byte
		err := rows.Scan(&name, &value)
		list = append(list, store.Document{Name: string(name), Value: value})
		return err
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// WriteDocuments implements [store.Documents]. Steps in one collection wait for each other.
func (s *Store) WriteDocuments(ctx context.Context, collection string, was store.Document, docs []store.Document,
) (done bool, err error) {
	if err := store.CheckWrite(collection, was, docs); err != nil {
		return false, err
	}
	leave, err := s.enter(ctx, "write")
	if err != nil {
		return false, err
	}
	defer leave()
	for attempt := 0; ; attempt++ {
		done, sent, err := s.writeDocuments(ctx, collection, was, docs)
		switch {
		case err == nil:
			return done, nil
		case sent && !refused(err):
			return false, storeError("write", fmt.Errorf("%w: %w", ErrUnknownOutcome, err))
		case attempt > 0 || ctx.Err() != nil || !s.link.mend(err):
			return false, nothingDone("write", err)
		}
	}
}

// writeDocuments makes one step. sent reports whether the commit was sent.
func (s *Store) writeDocuments(ctx context.Context, collection string, was store.Document, docs []store.Document,
) (done, sent bool, err error) {
	conn, err := s.link.acquire(ctx)
	if err != nil {
		return false, false, err
	}
	defer conn.Release() // it is closed if it is within a transaction
	is, err := s.lockDocument(ctx, conn, collection, was.Name)
	if err != nil {
		return false, false, err
	}
	if !bytes.Equal(is, was.Value) { // none is empty
		_, err = conn.Exec(ctx, "ROLLBACK")
		return false, false, err
	}
	b := &pgx.Batch{}
	for i := range docs {
		if d := &docs[i]; d.Value == nil {
			b.Queue(s.sql.dropDocument, []byte(collection), []byte(d.Name))
		} else {
			b.Queue(s.sql.setDocument, []byte(collection), []byte(d.Name), d.Value)
		}
	}
	b.Queue("COMMIT")
	err = commit(ctx, conn, b)
	return err == nil, true, err
}

// lockDocument begins a transaction, keeps others from writing the collection, and returns what a
// document says.
func (s *Store) lockDocument(ctx context.Context, conn *pgxpool.Conn, collection, name string) (value []byte, err error) {
	h := fnv.New32a()
	_, _ = h.Write([]byte(collection))
	b := &pgx.Batch{}
	b.Queue("BEGIN ISOLATION LEVEL READ COMMITTED")
	b.Queue(s.sql.documentLock, int64(h.Sum32()))
	b.Queue(s.sql.documentsNamed, []byte(collection), [][]byte{[]byte(name)}).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			if err := rows.Scan(nil, &value); err != nil {
				return err
			}
		}
		return rows.Err()
	})
	return value, conn.SendBatch(ctx, b).Close()
}
