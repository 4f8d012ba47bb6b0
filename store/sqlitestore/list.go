package sqlitestore

import (
	"context"
	"database/sql/driver"
	"errors"

	"github.com/drawgate/drawgate/store"
)

// read calls f with the reading connection. f must not call back into the store, nor call a
// caller's function.
func (s *Store) read(ctx context.Context, op string, f func(c *conn) error) error {
	if err := ctx.Err(); err != nil {
		return storeError(op, err)
	}
	if err := s.usable(); err != nil {
		return err
	}
	s.readMu.Lock()
	defer s.readMu.Unlock()
	err := s.readLocked(f)
	if err == nil {
		return nil
	}
	err = explain(err)
	s.setBroken(err)
	if s.reader != nil && code(err) != 0 {
		_ = s.reader.close() // the error above says more
		s.reader = nil
	}
	return storeError(op, err)
}

func (s *Store) readLocked(f func(c *conn) error) error {
	if err := s.isBroken(); err != nil {
		return err
	}
	if err := s.usable(); err != nil {
		return err
	}
	file, err := s.opened()
	if err != nil {
		return err
	}
	if err := file.check(false); err != nil {
		return err
	}
	if s.reader == nil {
		c, err := dial(file.path, "rw")
		if err != nil {
			return err
		}
		if err := readOnly(c); err != nil {
			return errors.Join(err, c.close())
		}
		s.reader = c
	}
	return f(s.reader)
}

func readOnly(c *conn) error {
	for _, p := range [...]string{"busy_timeout = 2000", "query_only = ON"} {
		if _, err := c.pragma(p); err != nil {
			return err
		}
	}
	return nil
}

// List implements [store.Lister] for keys of exactly this tenant and policy.
func (s *Store) List(ctx context.Context, tenant, policy string, yield func(store.Key) bool) error {
	q, after := qNames, ""
	for {
		var names []string
		more := false
		err := s.read(ctx, "list", func(c *conn) (err error) {
			names, after, more, err = page(c, q, tenant, policy, after, s.now())
			return err
		})
		if err != nil {
			return err
		}
		for _, name := range names {
			if !yield(store.Key{Tenant: tenant, Policy: policy, Name: name}) {
				return nil
			}
		}
		if !more {
			return nil
		}
		q = qNamesAfter
	}
}

// page returns the names in use among the next rows, and the last name looked at.
func page(c *conn, q query, tenant, policy, after string, now int64) (names []string, last string, more bool,
	err error,
) {
	args := []any{tenant, policy}
	if q == qNamesAfter {
		args = append(args, after)
	}
	var held []string
	last = after
	err = c.query(q, func(row []driver.Value) error {
		more = true
		last, _ = row[0].(string)
		until, _ := row[1].(int64)
		switch {
		case until == forever:
			held = append(held, last)
		case until > now:
			names = append(names, last)
		}
		return nil
	}, args...)
	for _, name := range held { // the hold may have ended since the record was written
		b, fault := load(c, store.Key{Tenant: tenant, Policy: policy, Name: name}, nil)
		if fault != nil {
			return nil, "", false, errors.Join(err, fault)
		}
		b.rec.Advance(nil, now)
		if b.rec.Until() > now {
			names = append(names, name)
		}
	}
	return names, last, more, err
}
