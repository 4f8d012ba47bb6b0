package telemetry

import (
	"hash/maphash"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/drawgate/drawgate"
)

// How many keys of a policy rate_limit_hits_total tells apart.
const (
	defaultIdentifiers = 20
	maxIdentifiers     = 1000
)

// A key that was not refused for idleAfter gives its place to another. Idle keys are searched for
// once per lookEvery.
const (
	idleAfter = time.Hour
	lookEvery = time.Minute
)

// identifiers count refusals by key. The first keys that are refused have a series each; all others
// share one. A key that was not refused for an hour loses its series when another one needs the
// place.
type identifiers struct {
	m      *Metrics
	policy string
	other  prometheus.Counter

	all  atomic.Pointer[map[uint64]*identifier] // by the key's hash
	look atomic.Int64                           // Unix nanoseconds: idle keys are not searched for before
	mu   sync.Mutex                             // serialises changes of all
}

type identifier struct {
	hits prometheus.Counter
	name string
	last atomic.Int64 // Unix nanoseconds
}

func (d *identifiers) init(m *Metrics, policy string) {
	d.m, d.policy, d.other = m, policy, m.vecs.hits.WithLabelValues(policy, other)
	d.all.Store(&map[uint64]*identifier{})
}

// hit counts a refusal of a key.
func (d *identifiers) hit(k *drawgate.Key) {
	if d.m.opts.Identifiers == 0 {
		d.other.Inc()
		return
	}
	now := time.Now().UnixNano()
	h := maphash.Comparable(d.m.seed, *k)
	id := (*d.all.Load())[h]
	if id == nil && now >= d.look.Load() {
		id = d.add(h, k, now)
	}
	if id == nil {
		d.other.Inc()
		return
	}
	id.last.Store(now)
	id.hits.Inc()
}

// add gives a key a series of its own, if there is room.
func (d *identifiers) add(h uint64, k *drawgate.Key, now int64) *identifier {
	d.mu.Lock()
	defer d.mu.Unlock()
	old := *d.all.Load()
	if id := old[h]; id != nil {
		return id
	}
	all := maps.Clone(old)
	if len(all) >= d.m.opts.Identifiers {
		d.drop(all, now)
	}
	var id *identifier
	if len(all) < d.m.opts.Identifiers {
		id = &identifier{name: d.m.identifier(*k)}
		id.hits = d.m.vecs.hits.WithLabelValues(d.policy, id.name)
		id.last.Store(now)
		all[h] = id
	} else {
		d.look.Store(now + int64(lookEvery))
	}
	d.all.Store(&all)
	return id
}

// drop removes the keys that are idle.
func (d *identifiers) drop(all map[uint64]*identifier, now int64) {
	for h, id := range all {
		if now-id.last.Load() >= int64(idleAfter) {
			delete(all, h)
			if !shown(all, id.name) {
				d.m.vecs.hits.DeleteLabelValues(d.policy, id.name)
			}
		}
	}
}

// shown reports whether one of the keys is already shown under that name. Two hashes may coincide,
// and so may two different pairs of tenant and key when each pair is joined.
func shown(all map[uint64]*identifier, name string) bool {
	for _, id := range all {
		if id.name == name {
			return true
		}
	}
	return false
}

// identifier shows a key as the label "identifier" does.
func (m *Metrics) identifier(k drawgate.Key) string {
	if raw, ok := rawKey(k); ok && m.opts.RawIdentifiers {
		return raw
	}
	return m.opts.Hasher.Key(k)
}
