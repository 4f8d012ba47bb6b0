package record

import "math"

// run is a run of plain takes of one bucket in which nothing else happens: no window ends, no entry
// begins or ends, nothing is held.
//
// Such takes only change how much of each limit is used and when. A run keeps just these numbers,
// next to each other, and leaves the states unchanged. That is faster because processors that take
// turns at a bucket pass on each cache line that they write, and each state has its own. The zero
// value is no run.
type run struct {
	counts [MaxLimits]count
	until  int64 // the run ends then
	specs  *Spec // the first of those that it counts by; nil if there is no run
}

// count is the part of a run that belongs to one limit.
type count struct {
	used int64 // State.Used
	at   int64 // rolling: when the newest entry was last joined, 0 if there is none; calendar: the window's end
}

// begin begins a run after a plain take, if more takes may follow with nothing else in between.
func (r *Record) begin(specs []Spec) {
	if len(r.Limits) != len(specs) || r.Changes != nil {
		return
	}
	r.run.until = math.MaxInt64
	for i := range specs {
		s, st, c := &specs[i], &r.Limits[i], &r.run.counts[i]
		c.used, c.at = st.Used, 0
		switch {
		case s.Kind == Rolling && st.Entries.n != 0:
			e := &st.Entries.last
			// the first condition means that takes may be too rare for a run
			if e.First == e.Last || e.N == 0 || e.Last > r.Last+s.lateness() {
				return
			}
			c.at = e.Last
			r.run.until = min(r.run.until, e.First+s.Join-s.lateness(), st.Entries.due+s.Window)
		case s.Kind == Calendar:
			c.at = st.End
			r.run.until = min(r.run.until, st.End-s.reach())
		}
	}
	if r.Last < r.run.until {
		r.run.specs = &specs[0]
	}
}

// FlushRun writes the run that [DecidePlain] keeps back to the record, before anything else is done
// with it.
func (r *Record) FlushRun() {
	if r.run.specs == nil {
		return
	}
	r.run.specs = nil
	for i := range r.Limits {
		st, c := &r.Limits[i], &r.run.counts[i]
		switch {
		case st.Kind == Bucket:
			st.At = r.Last
		case st.Kind == Rolling && c.at != 0:
			st.Entries.last.N += c.used - st.Used
			st.Entries.last.Last = c.at
		}
		st.Used = c.used
	}
}

// continueRun is [DecidePlain] for a take that continues the run. It returns false and does nothing
// if the run is over or the take does not fit.
func (r *Record) continueRun(specs []Spec, n *Amounts, priority int8, now int64, out []Result) bool {
	if r.run.specs != &specs[0] || now >= r.run.until {
		return false
	}
	for i := range specs {
		s, c, k := &specs[i], &r.run.counts[i], n[i]
		if k == 0 {
			continue
		}
		most, used := s.Effective[priority], c.used
		if s.Kind == Bucket {
			most, used, k = most*s.Scale, c.drained(s, now-r.Last), mulSat(k, s.Scale)
		}
		if k > most-used || s.Kind == Rolling && c.at == 0 {
			return false
		}
	}
	for i := range specs {
		s, c, k := &specs[i], &r.run.counts[i], n[i]
		most, res := s.Effective[priority], &out[i]
		switch s.Kind {
		case Rolling:
			reset := now
			if k != 0 {
				c.used += k
				c.at = now + s.lateness()
			}
			if c.at != 0 {
				reset = c.at + s.Window
			}
			*res = Result{Remaining: max(0, most-c.used), ResetAt: reset}
		case Calendar:
			c.used += k
			*res = Result{Remaining: max(0, most-c.used), ResetAt: c.at}
		case Bucket:
			c.used = min(c.drained(s, now-r.Last)+k*s.Scale, maxUsed)
			*res = s.Left(c.used, now, priority)
		}
	}
	r.Last = now
	return true
}

// Left is the result of a take from a bucket limit after which so much is used.
func (s *Spec) Left(used, now int64, priority int8) Result {
	left := max(0, (s.Effective[priority]*s.Scale-used)/s.Scale)
	return Result{Remaining: left, ResetAt: now + CeilDiv(used, s.Drain)}
}

// drained returns what is used of a bucket limit after dt more µs.
func (c *count) drained(s *Spec, dt int64) int64 { return max(0, c.used-mulSat(dt, s.Drain)) }
