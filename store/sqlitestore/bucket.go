package sqlitestore

import (
	"cmp"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
)

// bucket is a record in memory, with what is needed to store it.
type bucket struct {
	key    store.Key
	id     int64 // its row; 0: not stored yet
	rec    *record.Record
	notes  map[string]note // for the open reservations
	dirty  bool            // to be written in this transaction
	gone   bool            // reset
	reset  int64           // µs: when it was reset since the file was repaired; 0: never, or no longer relevant
	rev    int64           // revision of its row: a write by another process changes it, see revise
	seen   int64           // writer.epoch when the record was last known to be current
	weight int
}

// note is what the history will record about an open reservation when it ends.
type note struct {
	units  string
	labels []byte
}

// cache keeps records between transactions. After a write by another process, each record is
// compared with its row before it is used again.
type cache struct {
	buckets map[store.Key]*bucket
	weight  int
	most    int // largest weight between transactions
}

// maxWeight is the approximate size of the cache in bytes.
const maxWeight = 64 << 20

func newCache(most int) *cache {
	return &cache{buckets: map[store.Key]*bucket{}, most: cmp.Or(most, maxWeight)}
}

func (c *cache) clear() {
	clear(c.buckets)
	c.weight = 0
}

func (c *cache) put(b *bucket) {
	c.buckets[b.key] = b
	c.weigh(b)
}

func (c *cache) remove(b *bucket) {
	if c.buckets[b.key] == b {
		delete(c.buckets, b.key)
		c.weight -= b.weight
	}
}

// weigh updates the estimated memory of a bucket.
func (c *cache) weigh(b *bucket) {
	n := 512 + len(b.key.Tenant) + len(b.key.Policy) + len(b.key.Name) + 512*len(b.rec.Open)
	for i := range b.rec.Limits {
		n += 200 + 32*b.rec.Limits[i].Entries.Len()
	}
	c.weight += n - b.weight
	b.weight = n
}

// shrink drops arbitrary buckets while the cache is too large. It must not be called within a
// transaction.
func (c *cache) shrink() {
	for _, b := range c.buckets {
		if c.weight <= c.most {
			return
		}
		c.remove(b)
	}
}

// isBucket reports whether an error concerns one bucket only.
func isBucket(err error) bool {
	return errors.Is(err, record.ErrDamaged) || errors.Is(err, record.ErrVersion)
}

// fetch returns the bucket of a key, from memory if possible.
func (w *writer) fetch(key store.Key) (*bucket, error) {
	old := w.cache.buckets[key]
	if old != nil {
		if ok, err := w.fresh(old); ok || err != nil {
			return old, err
		}
		w.cache.remove(old)
	}
	a, was := w.watched(key), store.State{}
	if a != nil && old != nil {
		was = w.state(a, old, w.s.now())
	}
	b, err := load(w.conn, key, old)
	if err != nil {
		return nil, err
	}
	if b.rec.Last < w.repaired.last() {
		if b.reset, _, err = w.conn.number(qMeta, resetName(key)); err != nil {
			return nil, err
		}
	}
	if a != nil && old != nil {
		is := w.state(a, b, w.s.now())
		a.compare(&was, &is, w.s.now())
	}
	b.seen = w.epoch
	w.cache.put(b)
	return b, nil
}

// fresh reports whether a cached bucket equals the stored one.
func (w *writer) fresh(b *bucket) (bool, error) {
	if b.seen == w.epoch {
		return true, nil
	}
	if b.id == 0 {
		return false, nil
	}
	rev, ok, err := w.conn.number(qRev, b.id)
	if !ok || rev != b.rev {
		return false, err
	}
	b.seen = w.epoch
	return true, err
}

// load reads a bucket. A bucket without a row is empty. old is the bucket as this process knew it
// last, or nil, and is not valid afterwards: entries that cannot have changed since are taken from
// it.
func load(c *conn, key store.Key, old *bucket) (*bucket, error) {
	b := &bucket{key: key, rec: &record.Record{}, notes: map[string]note{}}
	err := c.query(qKey, func(row []driver.Value) (err error) {
		b.id, _ = row[0].(int64)
		b.rev, _ = row[1].(int64)
		blob, _ := row[2].([]byte)
		var form record.Form
		b.rec, form, err = record.Decode(blob)
		if err == nil && form != record.Header {
			err = fmt.Errorf("%w: not a header", record.ErrDamaged)
		}
		return err
	}, key.Tenant, key.Policy, key.Name)
	if err == nil && b.id != 0 {
		err = b.complete(c, old)
	}
	if old != nil && isBucket(err) { // a clock that was set back may have dropped entries here only
		return load(c, key, nil)
	}
	if err != nil {
		return nil, err
	}
	b.rec.Changes = &record.Changes{}
	return b, nil
}

// complete adds the rows of entries and reservations.
func (b *bucket) complete(c *conn, old *bucket) error {
	rolling := rollingOf(b.rec)
	for _, st := range rolling {
		st.Log = &record.Log{}
	}
	var err error
	switch {
	case len(rolling) == 0:
	case old != nil && b.onlyAddedTo(old):
		err = b.newEntries(c, rolling, rollingOf(old.rec))
	default:
		err = b.entries(c, rolling)
	}
	if err == nil && b.rec.Missing() > 0 {
		err = b.reservations(c)
	}
	if err != nil {
		return err
	}
	return b.rec.Complete()
}

// rollingOf returns the states of rolling limits by their identities, of which all 64 bits are
// kept.
func rollingOf(rec *record.Record) map[int64]*record.State {
	rolling := map[int64]*record.State{}
	for i := range rec.Limits {
		if st := &rec.Limits[i]; st.Kind == record.Rolling {
			rolling[int64(st.ID)] = st
		}
	}
	return rolling
}

func (b *bucket) entries(c *conn, rolling map[int64]*record.State) error {
	return c.query(qEntries, func(row []driver.Value) error {
		lim, _ := row[0].(int64)
		st := rolling[lim]
		if st == nil {
			return fmt.Errorf("%w: an entry without a limit", record.ErrDamaged)
		}
		st.Entries.Push(entryOf(row[1:]))
		return nil
	}, b.id)
}

// newEntries takes the entries from those that were known, and reads the newest of these and what
// came after it. It drops those that were over when the bucket was written.
func (b *bucket) newEntries(c *conn, rolling, known map[int64]*record.State) error {
	for lim, st := range rolling {
		newest := int64(-1) // none
		if was := known[lim]; was != nil && was.Entries.Len() > 0 && len(was.Log.Dirty) == 0 {
			st.Entries, st.Log.Popped = was.Entries, was.Log.Popped
			newest = st.Entries.At(st.Entries.Len() - 1).First
		}
		err := c.query(qNewEntries, func(row []driver.Value) error {
			if e := entryOf(row); e.First == newest {
				*st.Entries.At(st.Entries.Len() - 1) = e
			} else {
				st.Entries.Push(e)
			}
			return nil
		}, b.id, lim, newest)
		if err != nil {
			return err
		}
		for st.Entries.Len() > 0 && st.Entries.At(0).Last+st.Window <= b.rec.Last {
			st.Log.Popped = st.Entries.At(0).First // its row may still be there
			st.Entries.Pop()
		}
	}
	return nil
}

func entryOf(row []driver.Value) (e record.Entry) {
	e.First, _ = row[0].(int64)
	e.Last, _ = row[1].(int64)
	e.N, _ = row[2].(int64)
	return e
}

// revise makes the revision for a writing. Its lower half counts them, and its upper half counts
// those that changed an entry that was not the newest; both begin with a random number. Older
// programs make a random number each time.
func (b *bucket) revise() {
	if b.rev == 0 {
		b.rev = rand.Int64()
	}
	added, changed := uint32(b.rev), uint32(b.rev>>32)
	for i := range b.rec.Limits {
		if l := b.rec.Limits[i].Log; l != nil && l.Older {
			l.Older = false
			changed++
		}
	}
	b.rev = int64(uint64(changed)<<32 | uint64(added+1))
}

// onlyAddedTo reports whether since old at most the newest entry of each limit was changed, and
// newer ones were added.
func (b *bucket) onlyAddedTo(old *bucket) bool {
	return old.id == b.id && old.rev != 0 && old.rev>>32 == b.rev>>32
}

func (b *bucket) reservations(c *conn) error {
	b.rec.Open = make(map[string]*record.Open, b.rec.Missing())
	return c.query(qOpen, func(row []driver.Value) error {
		id, _ := row[0].(string)
		blob, _ := row[1].([]byte)
		o, err := record.DecodeOpen(blob)
		if err != nil {
			return err
		}
		b.rec.Open[id] = o
		n := note{}
		n.units, _ = row[2].(string)
		n.labels, _ = row[3].([]byte)
		b.notes[id] = n
		return nil
	}, b.id)
}

// flush writes the changes of a bucket.
func (w *writer) flush(b *bucket) error {
	b.dirty = false
	if b.gone {
		return nil
	}
	if b.id == 0 {
		res, err := w.conn.exec(qNewKey, b.key.Tenant, b.key.Policy, b.key.Name)
		if err != nil {
			return err
		}
		if b.id, err = res.LastInsertId(); err != nil {
			return err
		}
	}
	w.buf = record.Append(w.buf[:0], b.rec, record.Header)
	b.revise()
	if _, err := w.conn.exec(qSetState, b.id, b.rev, b.rec.Until(), w.buf); err != nil {
		return err
	}
	for i := range b.rec.Limits {
		if err := w.flushEntries(b.id, &b.rec.Limits[i]); err != nil {
			return err
		}
	}
	if err := w.flushOpen(b); err != nil {
		return err
	}
	w.cache.weigh(b)
	return nil
}

// flushEntries writes a limit's new and changed entries, and deletes those that have expired.
func (w *writer) flushEntries(id int64, st *record.State) error {
	if st.Log == nil {
		return nil
	}
	lim := int64(st.ID) // an identity: all 64 bits are kept
	if st.Log.Popped != 0 {
		if _, err := w.conn.exec(qDropEntries, id, lim, st.Log.Popped); err != nil {
			return err
		}
		st.Log.Popped = 0
	}
	for _, first := range st.Log.Dirty {
		e := st.Entries.Find(first)
		if e == nil {
			continue
		}
		if _, err := w.conn.exec(qSetEntry, id, lim, e.First, e.Last, e.N); err != nil {
			return err
		}
	}
	st.Log.Dirty = st.Log.Dirty[:0]
	return nil
}

// flushOpen writes the reservations that were opened, renewed or closed, or are remembered.
func (w *writer) flushOpen(b *bucket) error {
	for _, id := range b.rec.Changes.Touched {
		var err error
		if o := b.rec.Reservation(id); o != nil {
			w.buf = record.AppendOpen(w.buf[:0], o)
			n := b.notes[id]
			_, err = w.conn.exec(qSetOpen, b.id, id, w.buf, n.units, n.labels)
		} else {
			_, err = w.conn.exec(qDropOpen, b.id, id)
		}
		if err != nil {
			return err
		}
	}
	clear(b.rec.Changes.Touched)
	b.rec.Changes.Touched = b.rec.Changes.Touched[:0]
	return nil
}

// forget removes a bucket, even one that cannot be read, and ends the effect of a repair on it.
func (w *writer) forget(key store.Key, now int64) error {
	w.s.watchers.hint(key)
	if b := w.cache.buckets[key]; b != nil {
		b.gone = true
		w.cache.remove(b)
	}
	if last := w.repaired.last(); last > 0 {
		w.wrote = true
		if _, err := w.conn.exec(qSetMeta, resetName(key), max(now, last)); err != nil {
			return err
		}
	}
	id := int64(0)
	err := w.conn.query(qKey, func(row []driver.Value) error {
		id, _ = row[0].(int64)
		return nil
	}, key.Tenant, key.Policy, key.Name)
	if err != nil || id == 0 {
		return err
	}
	return w.drop(id)
}

// drop deletes the rows of a bucket.
func (w *writer) drop(id int64) error {
	w.wrote = true
	for _, q := range [...]query{qDropState, qDropAllEntries, qDropAllOpen, qDropKey} {
		if _, err := w.conn.exec(q, id); err != nil {
			return err
		}
	}
	return nil
}
