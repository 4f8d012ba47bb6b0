package sqlitestore

import (
	"bytes"
	"context"
	"database/sql/driver"

	"github.com/drawgate/drawgate/store"
)

var _ store.Documents = (*Store)(nil)

// createDocuments makes the table of documents. It is made when the first one is written, and not
// by a migration, so that programs that know no documents can use the file of those that keep none.
const createDocuments = `CREATE TABLE IF NOT EXISTS document (
	collection TEXT NOT NULL,
	name       TEXT NOT NULL,
	value      BLOB NOT NULL,
	PRIMARY KEY (collection, name)
) WITHOUT ROWID`

// documentStep is a step that writes documents, and its result.
type documentStep struct {
	collection string
	was        store.Document
	docs       []store.Document
	done       bool
}

// WriteDocuments implements [store.Documents]. If ctx ends, it behaves as [Store.Take].
func (s *Store) WriteDocuments(ctx context.Context, collection string, was store.Document, docs []store.Document,
) (done bool, err error) {
	if err := store.CheckWrite(collection, was, docs); err != nil {
		return false, err
	}
	step := &documentStep{collection: collection, was: cloneDocument(was)} // the caller may leave before it is made
	for i := range docs {
		step.docs = append(step.docs, cloneDocument(docs[i]))
	}
	c := s.get("write")
	c.write = step
	if err := s.do(ctx, c); err != nil {
		return false, err
	}
	s.put(c)
	return step.done, nil
}

func cloneDocument(d store.Document) store.Document {
	return store.Document{Name: d.Name, Value: bytes.Clone(d.Value)}
}

// writeDocuments writes documents within the transaction.
func (w *writer) writeDocuments(step *documentStep) error {
	found, err := w.conn.documents(step.collection, []string{step.was.Name})
	if err != nil {
		return err
	}
	var is []byte // no document is empty
	if len(found) > 0 {
		is = found[0].Value
	}
	if !bytes.Equal(is, step.was.Value) {
		return nil
	}
	w.wrote = true
	if err := w.conn.script(createDocuments); err != nil {
		return err
	}
	for i := range step.docs {
		d := &step.docs[i]
		if d.Value == nil {
			_, err = w.conn.exec(qDropDocument, step.collection, d.Name)
		} else {
			_, err = w.conn.exec(qSetDocument, step.collection, d.Name, d.Value)
		}
		if err != nil {
			return err
		}
	}
	step.done = true
	return nil
}

// KeepsDocuments implements [store.Documents].
func (s *Store) KeepsDocuments() bool { return true }

// ReadDocuments implements [store.Documents]. It does not wait for those who write.
func (s *Store) ReadDocuments(ctx context.Context, collection string, names []string) (list []store.Document,
	err error,
) {
	if err := store.CheckDocuments(collection); err != nil {
		return nil, err
	}
	err = s.read(ctx, "read", func(c *conn) (err error) {
		list, err = c.documents(collection, names)
		return err
	})
	return list, err
}

// documents returns documents by their names, or all of a collection.
func (c *conn) documents(collection string, names []string) (list []store.Document, err error) {
	if _, there, err := c.number(qHasDocuments); err != nil || !there {
		return nil, err
	}
	if names == nil {
		err = c.query(qDocuments, func(row []driver.Value) error {
			name, _ := row[0].(string)
			value, _ := row[1].([]byte)
			list = append(list, store.Document{Name: name, Value: bytes.Clone(value)})
			return nil
		}, collection)
		return list, err
	}
	for _, name := range names {
		err := c.query(qDocument, func(row []driver.Value) error {
			value, _ := row[0].([]byte)
			list = append(list, store.Document{Name: name, Value: bytes.Clone(value)})
			return nil
		}, collection, name)
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}
