package redisstore

import (
	"context"
	_ "embed"

	"github.com/redis/rueidis"

	"github.com/drawgate/drawgate/store"
)

// The documents of a collection are the fields of a hash, without an end. Its key is no bucket's,
// because no part of that begins with "%d".

//go:embed document.lua
var documentBody string

var documentScript = inLibrary("document", func() string { return documentBody })

var _ store.Documents = (*Store)(nil)

func (s *Store) documentsKey(collection string) string { return s.prefix + ":%documents:" + collection }

// KeepsDocuments implements [store.Documents].
func (s *Store) KeepsDocuments() bool { return true }

// ReadDocuments implements [store.Documents].
func (s *Store) ReadDocuments(ctx context.Context, collection string, names []string) (list []store.Document,
	err error,
) {
	if err := store.CheckDocuments(collection); err != nil {
		return nil, err
	}
	key := s.documentsKey(collection)
	c, err := s.beginDocuments(ctx, "read", key)
	if err != nil {
		return nil, err
	}
	defer s.end()
	if names == nil {
		all, err := c.Do(ctx, c.B().Hgetall().Key(key).Build()).AsStrMap()
		if err != nil {
			return nil, failure("read", err, []string{key})
		}
		for name, value := range all {
			list = append(list, store.Document{Name: name, Value: []byte(value)})
		}
		return list, nil
	}
	if len(names) == 0 {
		return nil, nil
	}
	values, err := c.Do(ctx, c.B().Hmget().Key(key).Field(names...).Build()).ToArray()
	if err == nil && len(values) != len(names) {
		err = errAnswer
	}
	for i := range values {
		if err != nil || values[i].IsNil() {
			continue
		}
		var value string
		if value, err = values[i].ToString(); err == nil {
			list = append(list, store.Document{Name: names[i], Value: []byte(value)})
		}
	}
	if err != nil {
		return nil, failure("read", err, []string{key})
	}
	return list, nil
}

// WriteDocuments implements [store.Documents].
func (s *Store) WriteDocuments(ctx context.Context, collection string, was store.Document, docs []store.Document,
) (done bool, err error) {
	if err := store.CheckWrite(collection, was, docs); err != nil {
		return false, err
	}
	key := s.documentsKey(collection)
	c, err := s.beginDocuments(ctx, "write", key)
	if err != nil {
		return false, err
	}
	defer s.end()
	args := []string{was.Name, string(was.Value)}
	for i := range docs {
		args = append(args, docs[i].Name, string(docs[i].Value))
	}
	res := s.runScript(ctx, c, documentScript(), key, args...)
	n, err := res.AsInt64()
	if err != nil {
		return false, failure("write", err, []string{key})
	}
	return n == 1, nil
}

// beginDocuments is begin for a key, whose server may have lost its data.
func (s *Store) beginDocuments(ctx context.Context, op, key string) (rueidis.Client, error) {
	c, err := s.begin(ctx, op)
	if err != nil {
		return nil, err
	}
	if err := s.checkShard(ctx, c, []string{key}); err != nil {
		s.end()
		return nil, notSent(op, err)
	}
	return c, nil
}
