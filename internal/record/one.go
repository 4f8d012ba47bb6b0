package record

// One is [Decide] for a plain take of one bucket, where nothing is held and every limit was used before: the common case, in one pass to test
// and one to charge. It is false, and nothing is done, where that is not so.
func One(r *Record, specs []Spec, n *Amounts, priority int8, now int64, out []Result) (v Verdict, ok bool) {
	if len(r.Open) != 0 || len(r.Limits) < len(specs) {
		return v, false
	}
	now = max(now, r.Last)
	fits := true
	for i := range specs {
		s, st := &specs[i], &r.Limits[i]
		if st.ID != s.ID || s.Kind == Bucket && st.Rate != s.Rate {
			return v, false
		}
		switch s.Kind {
		case Rolling:
			if st.Entries.n == 0 || st.Entries.At(0).Last+s.Window <= now {
				st.expire(now)
			}
			fits = fits && (n[i] == 0 || addSat(st.Used, n[i]) <= s.Effective[priority])
		case Calendar:
			if now >= st.End {
				st.roll(s, now)
			}
			fits = fits && (n[i] == 0 || st.excess(s, now, n[i], priority) == 0)
		case Bucket:
			st.drain(s, now)
			fits = fits && (n[i] == 0 || st.excess(s, now, n[i], priority) == 0)
		case Concurrency:
			return v, false
		}
	}
	r.Last = now
	if !fits {
		return refuse(r, specs, n, priority, now, out), true
	}
	for i := range specs {
		s, st, k := &specs[i], &r.Limits[i], n[i]
		res := &out[i]
		switch {
		case k == 0:
			*res = Result{Remaining: st.room(s, now, priority), ResetAt: r.resetAt(s, st, now)}
			continue
		case s.ChargeEnd:
			st.enter(s, now, 0, k)
		case s.Kind == Rolling:
			st.push(now+s.Margin, s.Join, k)
		case s.Kind == Calendar && now+s.Margin < st.End:
			st.Used += k
		default:
			st.enter(s, now, s.Margin, k)
		}
		switch s.Kind {
		case Rolling:
			res.Remaining = s.Effective[priority] - st.Used
			res.ResetAt = st.Entries.At(st.Entries.n-1).Last + s.Window
		case Calendar:
			res.Remaining, res.ResetAt = st.room(s, now, priority), st.End
		default:
			res.Remaining, res.ResetAt = st.room(s, now, priority), now+CeilDiv(st.Used, s.Drain)
		}
	}
	return Verdict{Now: now, Allowed: true}, true
}

// refuse says of each limit when the take would fit. Nothing is held.
func refuse(r *Record, specs []Spec, n *Amounts, priority int8, now int64, out []Result) Verdict {
	v := Verdict{Now: now}
	for i := range specs {
		s, st := &specs[i], &r.Limits[i]
		out[i] = Result{Remaining: st.room(s, now, priority), ResetAt: r.resetAt(s, st, now)}
		if n[i] == 0 {
			continue
		}
		if n[i] > s.Effective[priority] {
			out[i].RetryAfter = Never
		} else if over := st.excess(s, now, n[i], priority); over > 0 {
			out[i].RetryAfter = r.wait(s, st, now, n[i], priority)
		}
		v.RetryAfter = max(v.RetryAfter, out[i].RetryAfter)
	}
	v.Soonest = v.RetryAfter // nothing is held that could come back
	return v
}
