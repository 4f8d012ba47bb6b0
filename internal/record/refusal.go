package record

import "math"

// Refusal describes how a plain take was refused. The same take is refused in the same way until
// something else is done with the record, or a window or an entry ends. It is immutable: answering
// from it needs neither the record nor its lock.
type Refusal struct {
	specs    *Spec // the first
	n        Amounts
	priority int8
	at       int64 // the instant of the decision
	until    int64
	after    int64
	out      [MaxLimits]Result
}

// Refusal returns the answer that [DecidePlain] has just given, or nil if time changes more of it
// than the waits.
func (r *Record) Refusal(specs []Spec, n *Amounts, priority int8, at, after int64, out []Result) *Refusal {
	until := int64(math.MaxInt64)
	for i := range specs {
		s, st := &specs[i], &r.Limits[i]
		switch {
		case s.Kind == Rolling && st.Entries.n != 0 && st.Entries.last.N != 0:
			until = min(until, st.Entries.due+s.Window)
		case s.Kind == Calendar && at < st.End-s.reach():
			until = min(until, st.End-s.reach())
		case s.Kind == Calendar:
			until = min(until, st.End)
		default:
			return nil
		}
	}
	f := &Refusal{specs: &specs[0], n: *n, priority: priority, at: at, until: until, after: after}
	copy(f.out[:], out[:len(specs)])
	return f
}

// Again is [DecidePlain] for a take that was refused before in this way. For any other take it is
// not ok.
//
// A caller that read its clock before until is answered as of that time, even if another caller has
// seen a later instant meanwhile.
func (f *Refusal) Again(specs []Spec, n *Amounts, priority int8, now int64, out []Result) (at, after int64, ok bool) {
	if now >= f.until || f.specs != &specs[0] || f.priority != priority || f.n != *n || len(out) < len(specs) {
		return 0, 0, false
	}
	now = max(now, f.at)
	passed := now - f.at
	for i := range specs {
		out[i] = f.out[i]
		out[i].RetryAfter = less(out[i].RetryAfter, passed)
	}
	return now, less(f.after, passed), true
}

// less returns what is left of a wait after some time.
func less(wait, passed int64) int64 {
	if wait == 0 || wait == Never {
		return wait
	}
	return wait - passed
}
