package record

import (
	"cmp"
	"slices"
)

// The open reservations are also kept in the order of their ends. There may be thousands, so
// finding those that are over, and what is held until when, must not look at all of them.

// sooner orders reservations by their ends, those of the same instant by their ids.
func sooner(a, b *Open) int { return cmp.Or(cmp.Compare(a.End, b.End), cmp.Compare(a.id, b.id)) }

// enorder inserts a reservation, with its ID, at its position.
func (r *Record) enorder(o *Open) {
	i, _ := slices.BinarySearchFunc(r.order, o, sooner)
	r.order = slices.Insert(r.order, i, o)
}

// unorder removes a reservation, before its end changes or it is closed.
func (r *Record) unorder(o *Open) {
	if i, ok := slices.BinarySearchFunc(r.order, o, sooner); ok {
		r.order = slices.Delete(r.order, i, i+1)
	}
}

// Reorder must be called after code other than [Record.Complete] has put reservations directly into
// Open.
func (r *Record) Reorder() {
	r.order = slices.Grow(r.order[:0], len(r.Open))
	for id, o := range r.Open {
		o.id = id
		r.order = append(r.order, o)
	}
	slices.SortFunc(r.order, sooner)
}
