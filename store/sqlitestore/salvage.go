package sqlitestore

import (
	"context"
	"database/sql/driver"
	"errors"
	"strings"

	"github.com/drawgate/drawgate/store"
)

// Each table of a damaged database is copied through its own tree, from both ends towards the part
// that cannot be read.
var salvaged = [...]struct{ table, columns, key string }{
	{"key", "id, tenant, policy, name", "id"},
	{"state", "key, rev, until, record", "key"},
	{"entry", "key, lim, first, last, n", "key, lim, first"},
	{"open", "key, id, reservation, units, labels", "key, id"},
	{"history", "seq, at, op, tenant, policy, name, units, id, labels", "seq"},
}

// salvage copies what can be read of a database, and drops incomplete buckets.
func salvage(to *conn, path string, r *Repaired) error {
	from, err := dial(path, "ro") // a damaged file is not changed
	if err != nil {
		return err
	}
	defer func() { _ = from.close() }() // it was only read
	// SQLite reads nothing from a file that is shorter than its first page says, unless its schema
	// may be written, which serves to repair files by hand
	// (https://sqlite.org/pragma.html#pragma_writable_schema).
	if _, err := from.pragma("writable_schema = ON"); err != nil {
		return err
	}
	if err := to.script("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	for _, t := range salvaged {
		complete, err := copyTable(to, from, t.table, t.columns, t.key)
		if err != nil {
			return errors.Join(err, to.script("ROLLBACK"))
		}
		if !complete {
			r.Incomplete = append(r.Incomplete, t.table)
		}
	}
	if err := salvageDocuments(to, from, r); err != nil {
		return errors.Join(err, to.script("ROLLBACK"))
	}
	if err := sift(to, r); err != nil {
		return errors.Join(err, to.script("ROLLBACK"))
	}
	return to.script("COMMIT")
}

// salvageDocuments copies the documents, if the file has any.
func salvageDocuments(to, from *conn, r *Repaired) error {
	if _, there, err := from.number(qHasDocuments); err == nil && !there {
		return nil
	}
	if err := to.script(createDocuments); err != nil {
		return err
	}
	complete, err := copyTable(to, from, "document", "collection, name, value", "collection, name")
	if err == nil && !complete {
		r.Incomplete = append(r.Incomplete, "document")
	}
	return err
}

// copyTable copies the rows that can be read, and reports whether those are all. The error is a
// write error.
func copyTable(to, from *conn, table, columns, key string) (complete bool, err error) {
	into := "INSERT OR IGNORE INTO " + table + " (" + columns + ") VALUES (?" +
		strings.Repeat(", ?", strings.Count(columns, ",")) + ")"
	stmt, err := to.raw.Prepare(into)
	if err != nil {
		return false, err
	}
	defer func() { _ = stmt.Close() }() // its effect is in the transaction
	put := stmt.(driver.StmtExecContext)
	down := strings.ReplaceAll(key, ",", " DESC,") + " DESC"
	for _, order := range []string{key, down} {
		var failed error
		complete, failed = from.rows("SELECT "+columns+" FROM "+table+" ORDER BY "+order,
			func(row []driver.Value) error {
				_, err := put.ExecContext(context.Background(), named(row))
				return err
			})
		if failed != nil {
			return false, failed
		}
		if complete {
			return order == key, nil
		}
	}
	return false, nil
}

func named(row []driver.Value) []driver.NamedValue {
	args := make([]driver.NamedValue, len(row))
	for i, v := range row {
		args[i] = driver.NamedValue{Ordinal: i + 1, Value: v}
	}
	return args
}

// rows calls f with each row of a query that can be read, and reports whether those are all. The
// error is f's.
func (c *conn) rows(text string, f func(row []driver.Value) error) (complete bool, err error) {
	rows, err := c.raw.(driver.QueryerContext).QueryContext(context.Background(), text, nil)
	if err != nil {
		return false, nil // that it cannot be read is the answer
	}
	err = nil
	read := c.each(rows, func(row []driver.Value) error {
		err = f(row)
		return err
	})
	return read == nil, err
}

// sift drops buckets with incomplete rows, and counts the others.
func sift(c *conn, r *Repaired) error {
	var keys []store.Key
	_, err := c.rows("SELECT tenant, policy, name FROM key", func(row []driver.Value) error {
		var k store.Key
		k.Tenant, _ = row[0].(string)
		k.Policy, _ = row[1].(string)
		k.Name, _ = row[2].(string)
		keys = append(keys, k)
		return nil
	})
	if err != nil {
		return err
	}
	for _, k := range keys {
		b, err := load(c, k, nil)
		switch {
		case err == nil && b.rec.Last > 0:
			r.Buckets++
			r.last = max(r.last, b.rec.Last)
			continue
		case isBucket(err):
			r.Damaged++
		case err != nil:
			return err
		}
		if err := dropKey(c, k); err != nil {
			return err
		}
	}
	for _, t := range []string{"state", "entry", "open"} { // of buckets whose name could not be read
		if err := c.script("DELETE FROM " + t + " WHERE key NOT IN (SELECT id FROM key)"); err != nil {
			return err
		}
	}
	for table, n := range map[string]*int{"open": &r.Reservations, "history": &r.Events} {
		if _, err := c.rows("SELECT count(*) FROM "+table, func(row []driver.Value) error {
			v, _ := row[0].(int64)
			*n = int(v)
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

func dropKey(c *conn, k store.Key) error {
	id, ok, err := c.number(qKey, k.Tenant, k.Policy, k.Name)
	if err != nil || !ok {
		return err
	}
	for _, q := range [...]query{qDropState, qDropAllEntries, qDropAllOpen, qDropKey} {
		if _, err := c.exec(q, id); err != nil {
			return err
		}
	}
	return nil
}
