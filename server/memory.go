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

// remembered is how many of its newest reservations a server remembers.
const remembered = 65_536

// mark identifies the content of a token, except for the end of its hold.
type mark [sha256.Size]byte

func markOf(id string, grant drawgate.Grant, buckets []api.Bucket) mark {
	return sha256.Sum256(encode(token{ID: id, Grant: grant, Buckets: buckets}))
}

// encode encodes values that cannot fail, for machines.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // strings and integers cannot fail
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'})
}

// memory holds the reservations that this process gave out and has not seen the end of. Only for
// these may use beyond the estimate be charged after the hold has ended, and once. It also has
// their shadows' reservations. It is safe for concurrent use.
type memory struct {
	mu   sync.Mutex
	at   map[mark]int // guarded by mu: positions in ring
	ring []entry      // guarded by mu
	next int          // guarded by mu: the oldest, once the ring is full
	size int
}

type entry struct {
	mark
	shadows *engine.Result // nil: there are none
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

// claim forgets a reservation, and reports whether it was there: of several callers, only one
// succeeds.
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

// has reports whether it remembers k.
func (m *memory) has(k mark) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.at[k]
	return ok
}

// shadows returns the shadows' reservation, if it is known.
func (m *memory) shadows(k mark) *engine.Result {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i, ok := m.at[k]; ok {
		return m.ring[i].shadows
	}
	return nil
}
