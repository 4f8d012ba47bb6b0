package ledger_test

import (
	"maps"
	"slices"

	"github.com/drawgate/drawgate/store"
)

// modelPast is what a model store says of its record's past.
type modelPast struct {
	exists  bool
	last    int64 // instant of the last write
	epochs  []store.Epoch
	reset   int64
	paused  int64
	resumed int64
	done    map[store.Grant]bool // recovered grants; false: a reopening that is open
}

// modelServer is what may happen to the server of a model store that keeps histories.
type modelServer struct {
	keeps bool
	full  bool // it has no room for grants of charges
	dirty bool // the call wrote
	gen   uint64
	gens  uint64
	first map[uint64]uint64 // of the names of a server that was renamed: the first one
	conn  uint64            // by which name the server goes on the connection that is used; 0: the last one
	name  uint64            // and during this call
	hist  []modelRecord     // after each write
	olds  []modelPrimary

	again     int                  // pauses that were set or ended again
	plains    map[int64]int        // how often plain takes of so many units were allowed, or charged without a grant
	cancelled map[store.Grant]bool // a cancellation was carried out
}

// modelPrimary is a server that was replaced, and may come back.
type modelPrimary struct {
	gen  uint64
	rec  modelRecord
	hist []modelRecord
}

func newKeeper() *modelStore {
	m := newModel()
	m.keeps, m.gen, m.gens, m.plains = true, 1, 1, map[int64]int{}
	m.cancelled, m.first = map[store.Grant]bool{}, map[uint64]uint64{}
	m.name = m.gen
	m.past.done = map[store.Grant]bool{}
	m.hist = []modelRecord{m.clone()}
	return m
}

func emptyRecord() modelRecord {
	return modelRecord{open: map[string]*hold{}, past: modelPast{done: map[store.Grant]bool{}}}
}

func (r *modelRecord) clone() modelRecord {
	c := *r
	copies := map[*entry]*entry{}
	c.entries, c.open = nil, map[string]*hold{}
	for _, e := range r.entries {
		o := *e
		copies[e] = &o
		c.entries = append(c.entries, &o)
	}
	for id, h := range r.open {
		o := *h
		o.entry = copies[h.entry]
		c.open[id] = &o
	}
	c.past.epochs, c.past.done = slices.Clone(r.past.epochs), maps.Clone(r.past.done)
	return c
}

// next returns the instant of the next write.
func (m *modelStore) next(now int64) int64 { return max(now, m.past.last+1) }

// write ends a call that wrote.
func (m *modelStore) write(now int64, mark bool) {
	p := &m.past
	if p.exists && len(p.epochs) == 0 { // an older program made it
		p.epochs = []store.Epoch{{}}
	}
	if !p.exists || mark || p.epochs[len(p.epochs)-1].Mark.Generation != m.name {
		next := store.Mark{Generation: m.name, Clock: m.next(now)}
		p.epochs = append(p.epochs, store.Epoch{Mark: next, Start: p.last})
	}
	p.exists, p.last = true, m.next(now)
	m.hist = append(m.hist, m.clone())
}

// known returns what who has an answer of now knows.
func (m *modelStore) known() store.Known {
	switch p := &m.past; {
	case !p.exists:
		return store.Known{Mark: store.NoRecord, Generation: m.name}
	case len(p.epochs) == 0:
		return store.Known{Generation: m.name}
	default:
		return store.Known{Mark: p.epochs[len(p.epochs)-1].Mark, Generation: m.name}
	}
}

// begin begins a call that names what its caller knows. If that, or the record, has another name of
// the server than its connection, the server says how it is called.
func (m *modelStore) begin(known store.Known) {
	m.dirty, m.name = false, m.gen
	if m.conn == 0 || m.root(m.conn) != m.root(m.gen) {
		return
	}
	other := func(gen uint64) bool { return gen != 0 && gen != m.conn }
	es := m.past.epochs
	if other(known.Generation) || m.past.exists && (len(es) == 0 || other(es[len(es)-1].Mark.Generation)) {
		return
	}
	m.name = m.conn
}

// rename gives the server another name. It keeps its data, and connections from before.
func (m *modelStore) rename() {
	m.gens++
	m.first[m.gens] = m.root(m.gen)
	m.gen, m.name = m.gens, m.gens
}

// root returns the first name of a server.
func (m *modelStore) root(gen uint64) uint64 {
	if f, ok := m.first[gen]; ok {
		return f
	}
	return gen
}

// names returns all names of the server, the last one first.
func (m *modelStore) names() (gens []uint64) {
	for gen := m.gens; gen > 0; gen-- {
		if m.root(gen) == m.root(m.gen) && gen <= m.gen {
			gens = append(gens, gen)
		}
	}
	return gens
}

// history answers a call.
func (m *modelStore) history(known store.Known, now int64) store.History {
	wrote := m.dirty
	if m.dirty = false; wrote {
		m.write(now, false)
	}
	p := &m.past
	a := store.History{Known: m.known(), Wrote: wrote, Last: p.last, Listed: known != m.known()}
	if !a.Listed {
		return a
	}
	a.Reset, a.Paused, a.Resumed, a.Epochs = p.reset, p.paused, p.resumed, slices.Clone(p.epochs)
	if p.exists && len(a.Epochs) == 0 {
		a.Epochs = []store.Epoch{{}}
	}
	return a
}

// take decides a take.
func (m *modelStore) take(t *store.Take, now int64) store.Verdict {
	if !m.keeps {
		m.dirty = false
		return m.decide(t, now)
	}
	m.begin(t.Known[0])
	if t.Recovery == nil {
		v := m.decide(t, now)
		if v.Allowed && t.ID == "" {
			m.plains[t.Buckets[0].N[0]]++
		}
		v.Histories = []store.History{m.history(t.Known[0], now)}
		return v
	}
	if t.Known[0] != m.known() {
		a := m.history(t.Known[0], now)
		a.Unmet = true
		return store.Verdict{Now: now, Histories: []store.History{a}}
	}
	m.used(now)
	v := store.Verdict{Allowed: true, Replayed: true, Now: now, End: t.Recovery.End}
	h := m.open[t.ID]
	switch {
	case h != nil && h.grant != t.Grant:
		return store.Verdict{Fail: store.ErrIDOpen}
	case m.past.done[t.Grant]:
	case h != nil:
		m.dirty = t.Recovery.End > h.end
		h.end = max(h.end, t.Recovery.End)
	default:
		m.dirty = true
		e := &entry{at: now, n: t.Buckets[0].N[0], grant: t.Grant}
		m.entries = append(m.entries, e)
		m.open[t.ID] = &hold{grant: t.Grant, entry: e, slots: t.Buckets[0].N[1], end: t.Recovery.End}
		m.past.done[t.Grant] = false
	}
	v.Histories = []store.History{m.history(t.Known[0], now)}
	return v
}

// settle carries out a settlement.
func (m *modelStore) settle(s *store.Settlement, now int64) store.Outcome {
	if !m.keeps {
		m.dirty = false
		return m.apply(s, now)
	}
	m.begin(s.Known[0])
	if s.Op == store.OpPause || s.Op == store.OpUnpause {
		return m.pause(s, now)
	}
	if s.Recovery == nil {
		o := m.apply(s, now)
		if s.Op == store.OpCharge {
			m.plains[s.Buckets[0].N[0]]++
		}
		if s.Op == store.OpCancel && !o.Gone {
			m.cancelled[s.Grant] = true
		}
		a := m.history(s.Known[0], now)
		a.Gone = o.Gone
		o.Histories = []store.History{a}
		return o
	}
	if m.full {
		return store.Outcome{Err: store.ErrTooManyOpen}
	}
	m.used(now) // a hold that is over is done
	unmet := s.Known[0] != m.known()
	if g := s.Recovery.Grant; !unmet && !m.past.done[g] {
		m.recharge(s.Recovery, now)
	}
	a := m.history(s.Known[0], now)
	a.Unmet = unmet
	return store.Outcome{Histories: []store.History{a}}
}

// pause sets or ends a pause, or does so again.
func (m *modelStore) pause(s *store.Settlement, now int64) store.Outcome {
	if s.Recovery != nil {
		m.again++
	}
	if r := s.Recovery; r != nil && s.Op == store.OpPause && m.past.resumed >= r.End {
		return store.Outcome{Histories: []store.History{m.history(s.Known[0], now)}}
	}
	was := m.past.resumed
	o := m.apply(s, now)
	if r := s.Recovery; r != nil {
		if s.Op == store.OpUnpause {
			m.past.resumed, m.dirty = max(was, r.End), true
		} else if m.dirty {
			m.past.paused = r.End
		}
	}
	o.Histories = []store.History{m.history(s.Known[0], now)}
	return o
}

// recharge charges what was lost, in the place of a reservation that is open under the grant.
func (m *modelStore) recharge(r *store.Recovery, now int64) {
	for id, h := range m.open {
		if h.grant == r.Grant {
			m.entries = slices.DeleteFunc(m.entries, func(e *entry) bool { return e == h.entry })
			delete(m.open, id)
		}
	}
	m.dirty, m.past.done[r.Grant] = true, true
	for _, p := range r.Parts {
		if p.Until > now && p.N[0] > 0 {
			m.entries = append(m.entries, &entry{at: max(now, p.From), n: p.N[0]})
		}
	}
}

// look describes the record.
func (m *modelStore) look(now int64) store.State {
	m.begin(store.Known{})
	st := store.State{Verdict: store.Verdict{Now: now, Histories: []store.History{m.history(store.Known{}, now)}}}
	if m.paused > now {
		st.Pause = store.Pause{Until: store.Internal.Instant(m.paused)}
	}
	return st
}

// named returns a func that reports whether the server is still the one to which a message is sent:
// no other one carries it out.
func (m *modelStore) named() func() bool {
	root := m.root(m.gen)
	return func() bool { return root == m.root(m.gen) }
}

// failover replaces the server by one that has the record as it was after write k.
func (m *modelStore) failover(k int) {
	m.olds = append(m.olds, modelPrimary{m.gen, m.clone(), m.hist})
	m.gens++
	m.gen, m.modelRecord, m.hist = m.gens, m.hist[k].clone(), slices.Clone(m.hist[:k+1])
}

// back replaces the server by an old one, with its data.
func (m *modelStore) back(k int) {
	old := m.olds[k]
	m.olds[k] = modelPrimary{m.gen, m.clone(), m.hist}
	m.gen, m.modelRecord, m.hist = old.gen, old.rec.clone(), old.hist
}

// migrate moves the record to another server.
func (m *modelStore) migrate() {
	m.gens++
	m.gen, m.hist = m.gens, []modelRecord{m.clone()}
}

// evict drops the record.
func (m *modelStore) evict() {
	m.modelRecord = emptyRecord()
	m.hist = []modelRecord{m.clone()}
}

// reset empties the record, and remembers that.
func (m *modelStore) reset(now int64) {
	if !m.past.exists {
		return
	}
	m.begin(store.Known{})
	p := m.past
	m.modelRecord = emptyRecord()
	m.past.exists, m.past.last, m.past.epochs = true, p.last, p.epochs
	m.past.reset = m.next(now)
	m.write(now, true)
}

// older lets a program of the version before write: it keeps a list, and makes none; it may drop it
// with expired entries, too.
func (m *modelStore) older(now int64, drops bool) {
	p := &m.past
	if drops {
		p.epochs, p.done = nil, map[store.Grant]bool{}
	}
	p.exists, p.last = true, m.next(now)
	m.hist = append(m.hist, m.clone())
}
