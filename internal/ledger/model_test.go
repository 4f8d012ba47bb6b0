package ledger_test

import (
	"fmt"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
)

const (
	window = int64(10 * time.Minute / time.Microsecond)
	second = int64(time.Second / time.Microsecond)
)

// entry is one admission in a model store: the units of a take or of a charge.
type entry struct {
	at, n int64
	grant store.Grant // 0: a plain take or a charge
}

// hold is an open reservation of a model store.
type hold struct {
	grant      store.Grant
	entry      *entry
	slots, end int64
}

// modelStore is a simple store of one bucket with two limits: units in a window, and slots. It
// keeps a list of what it admitted.
type modelStore struct {
	modelRecord
	modelServer
	charged int64 // units, by OpCharge
}

// modelRecord is the data of a model store.
type modelRecord struct {
	entries []*entry
	open    map[string]*hold // by id
	paused  int64
	past    modelPast
	ended   map[string]*entry // by id and grant, of holds that ended without a settlement; nil: it remembers none
}

func newModel() *modelStore { return &modelStore{modelRecord: modelRecord{open: map[string]*hold{}}} }

// used returns the units and the slots that count at an instant.
func (m *modelStore) used(now int64) (units, slots int64) {
	for id, h := range m.open {
		if h.end <= now {
			delete(m.open, id)
			if _, ok := m.past.done[h.grant]; ok {
				m.past.done[h.grant] = true
			}
			if m.ended != nil {
				m.ended[fmt.Sprint(id, h.grant)] = h.entry
			}
		}
	}
	for _, e := range m.entries {
		if e.at+window > now {
			units += e.n
		}
	}
	for _, h := range m.open {
		slots += h.slots
	}
	return units, slots
}

// decide decides a take of one bucket.
func (m *modelStore) decide(t *store.Take, now int64) store.Verdict {
	units, slots := m.used(now)
	b := &t.Buckets[0]
	v, asks := record.Verdict{Now: now}, []record.Ask{{Granted: record.Amounts(b.N)}}
	if h := m.open[t.ID]; t.ID != "" && h != nil {
		if h.grant != t.Grant {
			return store.Verdict{Fail: store.ErrIDOpen}
		}
		if now > h.entry.at { // a later replay is a cancellation and a take in one
			if units > store.Internal.Specs(b.Plan, true)[0].Effective[t.Priority] || m.paused > now && !t.Given {
				return m.refuse(t, now)
			}
			h.entry.at = now
			m.dirty = true
		}
		v.Allowed, v.Replayed, v.End = true, true, h.end
		m.remains(t, &asks[0], now)
		return store.Internal.Verdict(&v, asks)
	}
	if t.ID != "" && !t.NotAfter.IsZero() && now > t.NotAfter.UnixMicro() {
		return store.Verdict{Fail: store.ErrTooLate}
	}
	specs := store.Internal.Specs(b.Plan, true)
	over := func(i int, used int64) bool { return b.N[i] > 0 && used+b.N[i] > specs[i].Effective[t.Priority] }
	if over(0, units) || over(1, slots) || m.paused > now && !t.Given {
		return m.refuse(t, now)
	}
	e := &entry{at: now, n: b.N[0], grant: t.Grant}
	m.entries = append(m.entries, e)
	v.Allowed, m.dirty = true, true
	if t.ID != "" {
		v.End = now + t.Hold.Microseconds()
		m.open[t.ID] = &hold{grant: t.Grant, entry: e, slots: b.N[1], end: v.End}
	}
	m.remains(t, &asks[0], now)
	return store.Internal.Verdict(&v, asks)
}

// remains says what is left of both limits.
func (m *modelStore) remains(t *store.Take, a *record.Ask, now int64) {
	units, slots := m.used(now)
	for i, used := range []int64{units, slots} {
		a.Out[i].Remaining = max(0, store.Internal.Specs(t.Buckets[0].Plan, true)[i].Effective[t.Priority]-used)
	}
}

func (m *modelStore) refuse(t *store.Take, now int64) store.Verdict {
	asks := []record.Ask{{}}
	asks[0].Out[0].RetryAfter = 1
	m.remains(t, &asks[0], now)
	d := store.Internal.Verdict(&record.Verdict{Now: now, RetryAfter: 1}, asks)
	if m.paused > now {
		d.Reason, d.RetryAfter = store.Paused, time.Duration(m.paused-now)*time.Microsecond
	}
	return d
}

// apply carries out a settlement.
func (m *modelStore) apply(s *store.Settlement, now int64) store.Outcome {
	m.used(now)
	b := &s.Buckets[0]
	switch s.Op {
	case store.OpCharge:
		m.entries = append(m.entries, &entry{at: now, n: b.N[0]})
		m.charged += b.N[0]
		m.dirty = true
		return store.Outcome{}
	case store.OpUnpause:
		if m.paused == s.At.UnixMicro() {
			m.paused = 0
			m.dirty, m.past.resumed = true, m.next(now)
		}
		if m.paused <= now {
			return store.Outcome{}
		}
		return store.Outcome{Kept: true, End: time.UnixMicro(m.paused)}
	case store.OpPause:
		if s.At.UnixMicro() > m.paused {
			m.paused, m.dirty, m.past.paused = s.At.UnixMicro(), true, m.next(now)
		}
		return store.Outcome{End: time.UnixMicro(m.paused)}
	default:
	}
	h := m.open[s.ID]
	if h != nil && h.grant != s.Grant {
		h = nil
	}
	out := store.Outcome{Gone: h == nil}
	if e := m.ended[fmt.Sprint(s.ID, s.Grant)]; e != nil && s.Ended {
		switch n := b.N[0]; {
		case h != nil, s.Op == store.OpCancel:
			e.n = 0
		case n != store.KeepEstimate:
			e.n = min(e.n, n)
		}
		delete(m.ended, fmt.Sprint(s.ID, s.Grant))
		out.Corrected, m.dirty = []bool{true}, true
	}
	if h == nil {
		return out
	}
	m.dirty = true
	if _, ok := m.past.done[s.Grant]; ok && s.Op != store.OpRenew {
		m.past.done[s.Grant] = true
	}
	switch s.Op {
	case store.OpCancel:
		h.entry.n = 0
		delete(m.open, s.ID)
	case store.OpSettle:
		if b.N[0] != store.KeepEstimate {
			h.entry.n = b.N[0]
		}
		delete(m.open, s.ID)
	case store.OpRenew:
		h.end = max(h.end, now+s.Hold.Microseconds())
		return store.Outcome{End: time.UnixMicro(h.end)}
	default:
	}
	return out
}

// plan has the limits of a model store.
func plan(units, slots int64) *store.Plan {
	p, err := drawgate.Policy{Name: "p", Fallback: drawgate.FallbackShare, Limits: []drawgate.Limit{
		{Name: "units", Kind: drawgate.Rolling, Amount: units, Window: 10 * time.Minute, Precision: drawgate.Exact},
		{Name: "slots", Kind: drawgate.Concurrency, Amount: slots},
	}}.Compile()
	if err != nil {
		panic(fmt.Sprint("a plan of the tests: ", err))
	}
	return p.Plan
}

func bucket(p *store.Plan, units, slots int64) []store.BucketCost {
	return []store.BucketCost{{Key: store.Key{Policy: "p", Name: "k"}, Plan: p, N: store.Amounts{units, slots}}}
}
