package record

import (
	"cmp"
	"slices"
)

// The open reservations are kept in the order of their ends as well, so that neither finding those
// that are over nor saying what is held until when takes more than it has to: thousands may be
// open.

// sooner orders reservations by their ends, those of the same instant by their ids.
func sooner(a, b *Open) int { return cmp.Or(cmp.Compare(a.End, b.End), cmp.Compare(a.id, b.id)) }

// enorder puts a reservation, with its id, where it belongs.
func (r *Record) enorder(o *Open) {
	i, _ := slices.BinarySearchFunc(r.order, o, sooner)
	r.order = slices.Insert(r.order, i, o)
}

// unorder takes a reservation out, before its end changes or it is closed.
func (r *Record) unorder(o *Open) {
	if i, ok := slices.BinarySearchFunc(r.order, o, sooner); ok {
		r.order = slices.Delete(r.order, i, i+1)
	}
}

// Reorder has to be called after reservations were put into Open directly, by others than
// [Record.Complete].
func (r *Record) Reorder() {
	r.order = slices.Grow(r.order[:0], len(r.Open))
	for id, o := range r.Open {
		o.id = id
		r.order = append(r.order, o)
	}
	slices.SortFunc(r.order, sooner)
}
