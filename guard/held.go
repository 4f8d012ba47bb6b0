package guard

import (
	"slices"
	"sync"

	"github.com/drawgate/drawgate"
)

// stage says who knows of a reservation.
type stage uint8

const (
	inStore stage = iota // the store gave it
	here                 // it was given here, and the store has yet to be told
	counted              // it was given here, and its units were charged to the store, which does not know its id
	ending               // it is settled, or is a charge: the store has yet to be told
	done                 // nothing has to be told any more: its id is remembered for a while, as gone
)

// held is a reservation of this process, or something else that the store has to be told.
type held struct {
	take    drawgate.Take
	parts   []part
	granted []drawgate.Amounts
	given   int64 // when it was given here, by the store's clock; 0: the store gave it

	sent  bool                // guarded by heldTable.mu: given here, but the store was asked for it and may have it
	stage stage               // guarded by heldTable.mu
	end   int64               // guarded by heldTable.mu: of the hold, by the store's clock
	last  drawgate.Settlement // guarded by heldTable.mu: how it ends, if it is ending
	was   stage               // guarded by heldTable.mu: where it was before it was ending
	busy  chan struct{}       // guarded by heldTable.mu: closed when the store has been told; nil: it is not being told
}

// heldTable keeps reservations by their ids. It is bounded.
type heldTable struct {
	mu      sync.Mutex
	most    int
	ids     map[string]*held // guarded by mu
	charges int              // guarded by mu: those without an id
	sweepAt int              // guarded by mu
}

const firstHeldSweep = 1024

func (t *heldTable) init(most int) {
	t.most, t.sweepAt, t.ids = most, min(most, firstHeldSweep), make(map[string]*held)
}

// granted keeps a reservation that the store gave, if there is room.
func (t *heldTable) granted(r *request, d *drawgate.Decision, now instant) {
	end := d.HoldEnd().UnixMicro()
	t.mu.Lock()
	defer t.mu.Unlock()
	if h := t.ids[r.take.ID]; h != nil && h.stage != done {
		if h.stage == inStore {
			h.end = end
		}
		return
	}
	if !t.room(now) {
		return
	}
	h := newHeld(r, end)
	for k := range h.granted {
		h.granted[k] = d.Granted(k)
	}
	t.ids[h.take.ID] = h
}

// newHeld copies what is needed of a take: its caller may use it again.
func newHeld(r *request, end int64) *held {
	h := &held{take: *r.take, parts: slices.Clone(r.parts), sent: r.sent, end: end}
	h.take.Buckets = append([]drawgate.BucketCost(nil), r.take.Buckets...)
	h.take.Labels = append([]drawgate.Label(nil), r.take.Labels...)
	h.granted = make([]drawgate.Amounts, len(r.parts))
	return h
}

// give keeps a reservation that is given here. It is nil if there is no room, or if the id is in use.
func (t *heldTable) give(l *local, now instant) *held {
	t.mu.Lock()
	defer t.mu.Unlock()
	if h := t.ids[l.take.ID]; h != nil && h.stage != inStore && h.stage != done || h == nil && !t.room(now) {
		return nil
	}
	h := newHeld(l.request, holdEnd(now, l.take.Hold))
	h.stage, h.granted, h.given = here, l.granted(), now.at
	t.ids[l.take.ID] = h
	return h
}

// room reports whether one more may be kept. Those of which nothing has to be told, and whose hold is over, make room. t.mu is held.
func (t *heldTable) room(now instant) bool {
	if len(t.ids)+t.charges >= t.sweepAt {
		for id, h := range t.ids {
			if h.stage == done || h.end <= now.at && (h.stage == inStore || h.stage == counted) {
				h.stage = done
				delete(t.ids, id)
			}
		}
		t.sweepAt = min(t.most, max(firstHeldSweep, 2*(len(t.ids)+t.charges)))
	}
	return len(t.ids)+t.charges < t.most
}

// overdue returns the reservations that were given here and whose hold is over.
func (t *heldTable) overdue(now int64) (over []*held) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range t.ids {
		if h.stage == here && h.busy == nil && h.end <= now {
			over = append(over, h)
		}
	}
	return over
}

// drop forgets a reservation. t.mu is held.
func (t *heldTable) drop(h *held) {
	if h.stage == done {
		return
	}
	if h.take.ID == "" {
		t.charges--
	} else if t.ids[h.take.ID] == h {
		delete(t.ids, h.take.ID)
	}
	h.stage = done
}
