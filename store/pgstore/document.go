package pgstore

import (
	"bytes"
	"context"
	"fmt"
	"hash/fnv"

	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/pgstore/internal/pg"
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
	err = s.query(ctx, "read", sql, args, func(r pg.Row) error {
		var name, value []byte
		err := r.Scan(&name, &value)
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
			return false, storeError("write", fmt.Errorf("%w: %w", store.ErrUnknownOutcome, err))
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
		_, err = conn.Exec(ctx, rollback)
		return false, false, err
	}
	b := &pg.Batch{}
	for i := range docs {
		if d := &docs[i]; d.Value == nil {
			b.Add(s.sql.dropDocument, []byte(collection), []byte(d.Name))
		} else {
			b.Add(s.sql.setDocument, []byte(collection), []byte(d.Name), d.Value)
		}
	}
	b.Add("COMMIT")
	err = commit(ctx, conn, b)
	return err == nil, true, err
}

// lockDocument begins a transaction, keeps others from writing the collection, and returns what a
// document says.
func (s *Store) lockDocument(ctx context.Context, conn *pg.Conn, collection, name string) (value []byte, err error) {
	h := fnv.New32a()
	_, _ = h.Write([]byte(collection))
	b := &pg.Batch{}
	b.Add(begin)
	b.Add(s.sql.documentLock, int64(h.Sum32()))
	b.Query(func(r pg.Row) error { return r.Scan(nil, &value) }, s.sql.documentsNamed, []byte(collection),
		[][]byte{[]byte(name)})
	_, err = conn.Run(ctx, b)
	return value, err
}
