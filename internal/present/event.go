package present

import (
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/store"
)

// Event describes an event of a history.
func Event(e *store.Event) api.Event {
	out := api.Event{
		At: e.At.UTC(), Op: e.Op, Policy: e.Key.Policy, Tenant: e.Key.Tenant, Key: e.Key.Name, ID: e.ID,
		Units: map[string]int64{},
	}
	for _, u := range e.Units {
		out.Units[u.Unit] = u.N
	}
	for _, l := range e.Labels {
		if out.Labels == nil {
			out.Labels = map[string]string{}
		}
		out.Labels[l.Name] = l.Value
	}
	return out
}

// Newest keeps the newest events of a history that is read from the oldest on. The zero value keeps
// none.
type Newest struct {
	Most int
	ring []store.Event
	next int // where the oldest is, once the ring is full
}

// Add adds an event.
func (n *Newest) Add(e *store.Event) {
	if len(n.ring) < n.Most {
		n.ring = append(n.ring, *e)
		return
	}
	if n.Most > 0 {
		n.ring[n.next] = *e
		n.next = (n.next + 1) % n.Most
	}
}

// All yields the events that were kept, the oldest first.
func (n *Newest) All(yield func(*store.Event) bool) {
	for i := range n.ring {
		if !yield(&n.ring[(n.next+i)%len(n.ring)]) {
			return
		}
	}
}
