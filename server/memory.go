package server

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"sync"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
)

// remembered is how many reservations a server remembers that it gave out: the newest.
const remembered = 65_536

// mark identifies what a token says, but for the end of its hold.
type mark [sha256.Size]byte

func markOf(id string, grant drawgate.Grant, buckets []api.Bucket) mark {
	return sha256.Sum256(encode(token{ID: id, Grant: grant, Buckets: buckets}))
}

// encode writes what can always be written, for machines.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // strings and integers can always be written
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'})
}

// memory knows which reservations this process gave out and has not seen the end of: only for these
// may what was used beyond the estimate be charged after the hold has ended, and once. It also has
// what is held beside them in shadow. It is safe for concurrent use.
type memory struct {
	mu   sync.Mutex
	at   map[mark]int // guarded by mu: positions in ring
	ring []entry      // guarded by mu
	next int          // guarded by mu: the oldest, once the ring is full
	size int
}

type entry struct {
	mark
	shadows *engine.Result // nil: nothing is
}

func newMemory(size int) *memory { return &memory{at: map[mark]int{}, size: size} }

// add remembers a reservation, and forgets the oldest one if there are too many.
func (m *memory) add(k mark, shadows *engine.Result) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.at[k]; ok {
		return
	}
	if len(m.ring) < m.size {
		m.at[k] = len(m.ring)
		m.ring = append(m.ring, entry{k, shadows})
		return
	}
	if old := m.ring[m.next].mark; m.at[old] == m.next {
		delete(m.at, old)
	}
	m.ring[m.next], m.at[k] = entry{k, shadows}, m.next
	m.next = (m.next + 1) % m.size
}

// claim forgets a reservation, and reports whether it was there: of several callers one gets it.
func (m *memory) claim(k mark) (shadows *engine.Result, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i, ok := m.at[k]
	if !ok {
		return nil, false
	}
	delete(m.at, k)
	shadows, m.ring[i].shadows = m.ring[i].shadows, nil
	return shadows, true
}

// shadows returns what is held in shadow beside a reservation, if that is known.
func (m *memory) shadows(k mark) *engine.Result {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i, ok := m.at[k]; ok {
		return m.ring[i].shadows
	}
	return nil
}
