package lease

import "github.com/drawgate/drawgate/store"

// meter says how much is asked for lately: an average that forgets within about a lease life.
type meter struct {
	memory int64 // ns
	at     int64 // of the last measurement
	takes  float64
	units  [store.MaxLimits]float64 // both per ns

	seenTakes int64 // totals at the last measurement
	seen      store.Amounts
}

// measure is told the totals of what was asked for until now. Measurements that follow each other
// quickly are taken together.
func (m *meter) measure(now, takes int64, total *store.Amounts) {
	dt := now - m.at
	if dt < m.memory/16 {
		return
	}
	weight := float64(dt) / float64(dt+m.memory/2)
	m.takes += weight * (float64(takes-m.seenTakes)/float64(dt) - m.takes)
	for j := range m.units {
		m.units[j] += weight * (float64(total[j]-m.seen[j])/float64(dt) - m.units[j])
	}
	m.at, m.seenTakes, m.seen = now, takes, *total
}
