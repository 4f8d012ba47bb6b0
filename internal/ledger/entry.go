package ledger

import (
	"slices"

	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
)

// entry is what this process knows of one bucket.
type entry struct {
	key     store.Key
	pos     int           // in table.all
	rec     record.Record // what this process was admitted, by the store or here
	fresh   bool          // the use by earlier processes has not been assumed yet
	prior   *FallbackPlan // by which it was assumed last
	uses    []priorUse    // what was assumed
	known   int64         // until then, on the store's clock, it matters that the store has said what was used
	unknown int64         // until then, on the store's clock, use that nobody has seen is assumed
	asked   []*part       // takes that the store is being asked for
	items   []*item       // pending or in flight: the store must have them before it decides about the bucket again
	charges []*item       // those of items that charge plain takes; some may be in flight
	fault   error         // why items could not be delivered, for this bucket alone
	paused  int64         // the bucket refuses takes until then, according to the store's clock
	since   int64         // when this process learned of the pause
	reason  string        // of the pause

	wasReset bool // earlier use does not count

	table *table
	hist  *history // what is in the store's history of the bucket; nil: nothing, or it keeps none

	oneAsked [1]*part // storage for asked, enough for most entries
}

// blank reports whether the entry says no more than a missing one.
func (e *entry) blank() bool {
	return e.idle() && len(e.rec.Limits) == 0 && !e.rec.Held() && e.paused == 0 && e.known == 0 &&
		(e.hist == nil || e.hist.blank())
}

// idle reports whether nothing is in flight or pending.
func (e *entry) idle() bool { return len(e.asked) == 0 && len(e.items) == 0 }

// reset forgets everything but what is in flight.
func (e *entry) reset() {
	e.rec, e.fresh = record.Record{Last: e.rec.Last}, false
	e.known, e.unknown, e.prior, e.uses, e.wasReset = 0, 0, nil, nil, true
	e.paused, e.reason, e.fault = 0, "", nil
	e.dropHistory()
}

// dropHistory forgets what the store's history has of this process.
func (e *entry) dropHistory() {
	if e.hist == nil {
		return
	}
	for _, t := range slices.Concat(e.hist.open, e.hist.ended) {
		t.detach()
	}
	e.hist = nil
}

func (e *entry) leave(p *part) {
	if i := slices.Index(e.asked, p); i >= 0 {
		e.asked = slices.Delete(e.asked, i, i+1)
	}
}

// over reports whether everything in the entry has aged, so that it can be removed.
//
// What is known of a bucket that is not used goes first if there is no room.
func (e *entry) over(now Now, noRoom bool) bool {
	if !e.idle() || e.paused > now.Store || e.known > now.Store && !noRoom {
		return false
	}
	if e.hist != nil && !e.hist.over(now) && !noRoom {
		return false
	}
	if end := e.rec.NextEnd(); end != 0 && end <= now.Store {
		e.rec.Advance(nil, now.Store)
	}
	return e.rec.Until() <= now.Store
}

// table holds the entries. Its size is bounded. Only entries whose content has aged are removed, so
// a bucket without room has no entry, and therefore no share.
type table struct {
	max     int
	byKey   map[store.Key]*entry
	all     []*entry
	hand    int   // position in all where the next sweep continues
	pending int   // entries with items
	traces  int   // reservations in the histories of all entries
	lost    int64 // something without an entry may have been admitted until then, by the own clock; 0: never
}

const (
	firstSweep = 64 // with this many entries or more, each new one triggers a small sweep
	sweepStep  = 2  // entries that it looks at
	sweepFull  = 32 // entries that a sweep looks at if the table is full
)

func (t *table) init(most int) {
	t.max, t.byKey = most, make(map[store.Key]*entry)
}

// ensure returns the entry of a key, or nil if there is no room for one.
func (t *table) ensure(key store.Key, now Now) *entry {
	e := t.find(key, now)
	if e == nil {
		t.lose(now.Own)
	}
	return e
}

// find is ensure for an entry in which no share is counted, so that without room nothing is lost.
func (t *table) find(key store.Key, now Now) *entry {
	e := t.byKey[key]
	if e != nil {
		return e
	}
	if n := len(t.all); n >= t.max {
		t.sweep(sweepFull, now, true)
	} else if n >= firstSweep {
		t.sweep(sweepStep, now, false)
	}
	if len(t.all) >= t.max {
		return nil
	}
	e = &entry{key: key, pos: len(t.all), fresh: true, table: t}
	e.asked = e.oneAsked[:0]
	t.byKey[key] = e
	t.all = append(t.all, e)
	return e
}

// lose notes that a bucket without an entry may have been admitted something until then.
func (t *table) lose(until int64) { t.lost = max(t.lost, until) }

// sweep looks at some entries, and removes those whose content has aged.
func (t *table) sweep(steps int, now Now, noRoom bool) {
	for range steps {
		if len(t.all) == 0 {
			return
		}
		if t.hand >= len(t.all) {
			t.hand = 0
		}
		if e := t.all[t.hand]; e.over(now, noRoom) {
			t.remove(e)
		} else {
			t.hand++
		}
	}
}

// release removes an entry if it is blank.
func (t *table) release(e *entry) {
	if e.blank() {
		t.remove(e)
	}
}

func (t *table) remove(e *entry) {
	if e.pos < 0 {
		return
	}
	last := len(t.all) - 1
	moved := t.all[last]
	t.all[e.pos], moved.pos = moved, e.pos
	t.all[last] = nil
	t.all = t.all[:last]
	delete(t.byKey, e.key)
	e.pos = -1
	e.dropHistory()
}

// attach makes an item pending for an entry.
func (t *table) attach(e *entry, it *item) {
	if len(e.items) == 0 {
		t.pending++
	}
	e.items = append(e.items, it)
}

func (t *table) detach(e *entry, it *item) {
	i := slices.Index(e.items, it)
	if i < 0 {
		return
	}
	if e.items = slices.Delete(e.items, i, i+1); len(e.items) == 0 {
		e.items, e.charges, e.fault = nil, nil, nil
		t.pending--
	}
}
