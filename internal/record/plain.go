package record

// DecidePlain is [Decide] for the common case: a plain take of one bucket, in which nothing is held
// and every limit was used before. In any other case it is not ok, and nothing is done. at is the
// instant of the decision. after is 0 if the take is allowed, and otherwise the time until it fits;
// giving units back cannot shorten it. The results are not a [Verdict], so that they travel in
// registers.
//
// After an allowed take only DecidePlain knows what the record has used, until [Record.FlushRun] is
// called.
func DecidePlain(r *Record, specs []Spec, n *Amounts, priority int8, now int64, out []Result) (at, after int64,
	ok bool,
) {
	if len(r.Open) != 0 || r.Pause != nil || len(r.Limits) < len(specs) || len(out) < len(specs) {
		return 0, 0, false
	}
	now = max(now, r.Last)
	if r.continueRun(specs, n, priority, now, out) {
		return now, 0, true
	}
	r.FlushRun()
	fits := true
	for i := range specs {
		s, st, k := &specs[i], &r.Limits[i], n[i]
		if st.ID != s.ID {
			return 0, 0, false
		}
		switch s.Kind {
		case Rolling:
			if st.Entries.n != 0 && st.Entries.due+s.Window <= now {
				st.expire(now)
			}
			fits = fits && (k == 0 || addSat(st.Used, k) <= s.Effective[priority])
		case Calendar:
			if now >= st.End {
				st.roll(s, now)
			}
			fits = fits && (k == 0 || st.excess(s, now, k, priority) == 0)
		case Bucket:
			if st.Rate != s.Rate {
				return 0, 0, false
			}
			st.drain(s, now)
			fits = fits && (k == 0 || st.excess(s, now, k, priority) == 0)
		default:
			return 0, 0, false
		}
	}
	r.Last = now
	if !fits {
		return now, refuse(r, specs, n, priority, now, out), true
	}
	for i := range specs {
		r.Limits[i].grant(&specs[i], now, n[i], priority, &out[i])
	}
	r.begin(specs)
	return now, 0, true
}

// grant counts n units that fit, and sets what remains. Nothing is held.
func (st *State) grant(s *Spec, now, n int64, priority int8, res *Result) {
	margin := s.lateness()
	switch s.Kind {
	case Rolling:
		if n != 0 {
			st.push(now+margin, s.Join, n)
		}
		res.Remaining, res.RetryAfter, res.ResetAt = max(0, s.Effective[priority]-st.Used), 0, now
		if st.Used != 0 {
			res.ResetAt = st.Entries.last.Last + s.Window
			if st.Entries.last.N == 0 {
				res.ResetAt = st.resetRolling(s, nil, now)
			}
		}
	case Calendar:
		st.enter(s, now, margin, n)
		res.Remaining, res.RetryAfter, res.ResetAt = st.room(s, now, priority), 0, st.End
	case Bucket:
		st.enter(s, now, margin, n)
		res.Remaining, res.RetryAfter, res.ResetAt = st.room(s, now, priority), 0, now+CeilDiv(st.Used, s.Drain)
	}
}

// refuse sets, for each limit, when the take would fit, and returns the latest. Nothing is held.
func refuse(r *Record, specs []Spec, n *Amounts, priority int8, now int64, out []Result) (after int64) {
	for i := range specs {
		s, st, k := &specs[i], &r.Limits[i], n[i]
		eff := s.Effective[priority]
		// The two most common cases are inlined, because other callers wait for the bucket
		// meanwhile.
		if s.Kind == Rolling && st.Entries.n != 0 && st.Held == 0 && k <= eff {
			oldest, newest := st.Entries.At(0), &st.Entries.last
			if over := addSat(st.Used, k) - eff; newest.N != 0 && over <= oldest.N {
				out[i] = Result{Remaining: max(0, eff-st.Used), ResetAt: newest.Last + st.Window}
				if k != 0 && over > 0 {
					out[i].RetryAfter = oldest.Last + st.Window - now
					after = max(after, out[i].RetryAfter)
				}
				continue
			}
		} else if s.Kind == Calendar && now+s.reach() < st.End && st.Held == 0 &&
			(k == 0 || addSat(st.Used, k) <= eff) {
			out[i] = Result{Remaining: max(0, eff-st.Used), ResetAt: st.End}
			continue
		}
		out[i] = Result{Remaining: st.room(s, now, priority), ResetAt: r.resetAt(s, st, now)}
		if k == 0 {
			continue
		}
		if k > eff {
			out[i].RetryAfter = Never
		} else if over := st.excess(s, now, k, priority); over > 0 {
			out[i].RetryAfter = r.wait(s, st, now, k, priority)
		}
		after = max(after, out[i].RetryAfter)
	}
	return after
}
