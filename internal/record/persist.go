package record

import (
	"maps"
	"slices"
)

// latest returns now, or the latest instant that a record has seen if that is later.
func latest(asks []Ask, now int64) int64 {
	for i := range asks {
		now = max(now, asks[i].Rec.Last)
	}
	return now
}

func advance(asks []Ask, now int64) {
	for i := range asks {
		asks[i].Rec.Advance(asks[i].Specs, now)
	}
}

// MustPersist reports whether a caller with these limits would advance the record differently than
// others would: it has another rate for a bucket, or ends a hold on a limit that it does not know.
// Only then is a refusal (or a replay, or a settlement of what is gone) a change that a store must
// keep: the rate that was seen applies from now on. Otherwise the next caller would advance the
// record to the same state.
func (r *Record) MustPersist(specs []Spec, now int64) bool {
	for i := range specs {
		if specs[i].Kind != Bucket {
			continue
		}
		if st := r.state(&specs[i], i); st != nil && st.Rate != specs[i].Rate {
			return true
		}
	}
	for _, o := range r.order {
		if o.End > now {
			break
		}
		for i := range o.Parts {
			if specOf(specs, o.Parts[i].Limit) == nil {
				return true
			}
		}
	}
	return false
}

// clone returns a copy that shares nothing.
func (r *Record) clone() *Record {
	c := *r
	c.Limits = slices.Clone(r.Limits)
	for i := range c.Limits {
		st := &c.Limits[i]
		st.Entries.buf = slices.Clone(st.Entries.buf)
		if st.Log != nil {
			st.Log = &Log{Dirty: slices.Clone(st.Log.Dirty), Older: st.Log.Older, Popped: st.Log.Popped}
		}
	}
	c.Open = maps.Clone(r.Open)
	for id, o := range c.Open {
		oc := *o
		oc.Parts = slices.Clone(o.Parts)
		c.Open[id] = &oc
	}
	c.order = nil
	c.Reorder()
	c.past = r.past.clone()
	if r.Changes != nil {
		c.Changes = &Changes{Touched: slices.Clone(r.Changes.Touched), Ended: slices.Clone(r.Changes.Ended)}
	}
	return &c
}
