package pgstore

import (
	"context"
	"time"

	"github.com/drawgate/drawgate/internal/storekey"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/pgstore/internal/pg"
)

// listRows is how many buckets are listed at a time: the record of one may have a MiB.
const listRows = 100

// List implements [store.Lister] for keys of exactly this tenant and policy.
func (s *Store) List(ctx context.Context, tenant, policy string, yield func(store.Key) bool) error {
	from := storekey.Start("", tenant, policy)
	end := from[:len(from)-1] + ";" // ':' + 1
	for {
		var page []store.Key
		n := 0
		err := s.query(ctx, "list", s.sql.page, []any{from, end, listRows}, func(r pg.Row) error {
			n++
			var row string
			var parts, rec []byte
			var until int64
			var held bool
			var clock time.Time
			if err := r.Scan(&row, &parts, &until, &held, &rec, &clock); err != nil {
				return err
			}
			from = row + " " // less than any other name that is greater
			if !s.inUse(until, held, rec, s.now(clock)) {
				return nil
			}
			k, err := storekey.Parse("", row, string(parts))
			if err == nil && k.Tenant == tenant && k.Policy == policy {
				page = append(page, k)
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, k := range page {
			if !yield(k) {
				return nil
			}
		}
		if n < listRows {
			return nil
		}
	}
}

// inUse reports whether a row means something else than none. One that cannot be read does.
func (s *Store) inUse(until int64, held bool, bytes []byte, now int64) bool {
	if until > now || !held {
		return until > now
	}
	rec, err := decodeRecord(bytes)
	if err != nil {
		return true
	}
	rec.Advance(nil, now)
	return rec.Until() > now
}

// Cleaning removes rows that mean the same as none, a page at a time: in one process at a time, but
// nothing depends on that.
const (
	cleanFirst = time.Second // after opening: many programs make one take and end
	cleanEvery = 5 * time.Minute
	cleanGrace = int64(time.Minute / time.Microsecond) // how long an unused row is kept: see mark
	cleanPause = 20 * time.Millisecond                 // between two pages
	cleanRows  = 500
	settingRun = "cleaned" // when a pass began last, in Unix µs
)

// clean removes rows until the store is closed.
func (s *Store) clean() {
	for wait := cleanFirst; s.sleep(wait); wait = cleanEvery {
		p := s.link.pool.Load()
		if p == nil {
			continue // nothing was done yet
		}
		p.Trim()
		// That the server is away is told by those who need it.
		if err := s.pass(s.life); err != nil && s.life.Err() == nil && !unreachable(err) && !lost(err) {
			s.opts.Logger.Warn("pgstore: unused buckets could not be removed", "error", storeError("clean", err))
		}
	}
}

// sleep reports whether the store is still open after a time.
func (s *Store) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.life.Done():
		return false
	}
}

// pass removes what is unused, if no other process has begun to in the last minutes.
func (s *Store) pass(ctx context.Context) error {
	now, err := s.clock(ctx)
	if err != nil {
		return err
	}
	mine, err := s.remove(ctx, s.sql.turn, settingRun, now, now-cleanEvery.Microseconds())
	if err != nil || mine == 0 {
		return err
	}
	for after, more := "", true; more; {
		if after, more, err = s.sweep(ctx, after, now-cleanGrace); err != nil || more && !s.sleep(cleanPause) {
			return err
		}
	}
	if s.opts.HistoryFor < 0 {
		return nil
	}
	for n := int64(cleanRows); n == cleanRows && err == nil && s.sleep(cleanPause); {
		n, err = s.remove(ctx, s.sql.forget, now-s.opts.HistoryFor.Microseconds(), cleanRows)
	}
	return err
}

func (s *Store) clock(ctx context.Context) (now int64, err error) {
	err = s.read(ctx, "clean", "SELECT clock_timestamp()", nil, func(r pg.Row) error {
		var t time.Time
		err := r.Scan(&t)
		now = s.now(t)
		return err
	})
	return now, err
}

// sweep removes what is unused in the next page of rows.
func (s *Store) sweep(ctx context.Context, after string, before int64) (last string, more bool, err error) {
	var end *string
	var over []string
	err = s.read(ctx, "clean", s.sql.candidates, []any{after, cleanRows, before}, func(r pg.Row) error {
		return r.Scan(&end, &over)
	})
	if err != nil || end == nil {
		return "", false, err
	}
	if len(over) > 0 {
		if err = s.endHolds(ctx, over, before); err == nil {
			err = s.dropNoted(ctx, over, before)
		}
		if err == nil {
			_, err = s.remove(ctx, s.sql.drop, over, before)
		}
	}
	for _, k := range over {
		s.known.remove(k)
	}
	return *end, true, err
}

// within carries out a transaction of cleaning, whatever the database's default is.
func (s *Store) within(ctx context.Context, f func(c *pg.Conn) error) error {
	return s.link.withOne(ctx, func(c *pg.Conn) error {
		return transaction(ctx, c, func() error { return f(c) })
	})
}

// remove carries out one statement of cleaning, and returns how many rows it changed.
func (s *Store) remove(ctx context.Context, sql string, args ...any) (n int64, err error) {
	err = s.within(ctx, func(c *pg.Conn) (err error) {
		n, err = c.Exec(ctx, sql, args...)
		return err
	})
	return n, err
}

// endHolds looks at rows whose last reservation has ended: what it held counts from then on.
func (s *Store) endHolds(ctx context.Context, keys []string, before int64) error {
	return s.within(ctx, func(c *pg.Conn) error {
		b := &pg.Batch{}
		err := c.Query(ctx, func(r pg.Row) error {
			var key string
			var bytes []byte
			if err := r.Scan(&key, &bytes); err != nil {
				return err
			}
			if rec, err := decodeRecord(bytes); err == nil {
				rec.Advance(nil, before)
				at, _ := until(rec)
				b.Add(s.sql.ended, key, at)
			}
			return nil
		}, s.sql.again, keys, before)
		return runIfAny(ctx, c, b, err)
	})
}

// dropNoted removes unused rows with reservations of which the history does not say yet that their
// holds have ended.
func (s *Store) dropNoted(ctx context.Context, keys []string, before int64) error {
	return s.within(ctx, func(c *pg.Conn) error {
		st, b := &step{s: s}, &pg.Batch{}
		err := c.Query(ctx, func(columns pg.Row) error {
			var k string
			var parts, rec, notes []byte
			var clock time.Time
			if err := columns.Scan(&k, &parts, &rec, &notes, &clock); err != nil {
				return err
			}
			key, err := storekey.Parse("", k, string(parts))
			r := &row{keyed: keyed{key: key, row: k}}
			if r.fill(rec, nil, notes, nil); err == nil && r.err == nil {
				r.rec.Advance(nil, before)
				st.mark(r)
				b.Add(s.sql.dropNoted, k)
			}
			st.now = max(st.now, s.now(clock))
			return nil
		}, s.sql.noted, keys, before)
		st.queueEvents(b)
		return runIfAny(ctx, c, b, err)
	})
}

// runIfAny carries out a batch if it has statements and those before it did not fail.
func runIfAny(ctx context.Context, c *pg.Conn, b *pg.Batch, err error) error {
	if err == nil && b.Len() > 0 {
		_, err = c.Run(ctx, b)
	}
	return err
}
