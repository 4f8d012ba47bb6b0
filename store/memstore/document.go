package memstore

import (
	"bytes"
	"context"
	"sync"

	"github.com/drawgate/drawgate/store"
)

// documents are the documents of a store, by collection and name.
type documents struct {
	mu  sync.Mutex
	all map[string]map[string][]byte // guarded by mu
}

var _ store.Documents = (*Store)(nil)

// KeepsDocuments implements [store.Documents].
func (s *Store) KeepsDocuments() bool { return true }

// ReadDocuments implements [store.Documents].
func (s *Store) ReadDocuments(ctx context.Context, collection string, names []string) (list []store.Document,
	err error,
) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	if err := store.CheckDocuments(collection); err != nil {
		return nil, err
	}
	d := &s.documents
	d.mu.Lock()
	defer d.mu.Unlock()
	if names == nil {
		for name, value := range d.all[collection] {
			list = append(list, store.Document{Name: name, Value: bytes.Clone(value)})
		}
		return list, nil
	}
	for _, name := range names {
		if value, ok := d.all[collection][name]; ok {
			list = append(list, store.Document{Name: name, Value: bytes.Clone(value)})
		}
	}
	return list, nil
}

// WriteDocuments implements [store.Documents].
func (s *Store) WriteDocuments(ctx context.Context, collection string, was store.Document, docs []store.Document,
) (done bool, err error) {
	if err := s.ready(ctx); err != nil {
		return false, err
	}
	if err := store.CheckWrite(collection, was, docs); err != nil {
		return false, err
	}
	d := &s.documents
	d.mu.Lock()
	defer d.mu.Unlock()
	if is := d.all[collection][was.Name]; !bytes.Equal(is, was.Value) { // none is empty
		return false, nil
	}
	if d.all == nil {
		d.all = map[string]map[string][]byte{}
	}
	if d.all[collection] == nil {
		d.all[collection] = map[string][]byte{}
	}
	for i := range docs {
		if docs[i].Value == nil {
			delete(d.all[collection], docs[i].Name)
		} else {
			d.all[collection][docs[i].Name] = bytes.Clone(docs[i].Value)
		}
	}
	return true, nil
}
