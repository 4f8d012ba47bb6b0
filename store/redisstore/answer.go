package redisstore

import (
	"errors"
	"slices"
	"time"

	"github.com/redis/rueidis"

	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
)

// What the script answers: the codes are in wire.go.

var (
	// errAgain means that the request has to be sent again, with the calendar windows that the
	// script asked for, or because it did not get through with the expired entries. Each call
	// removes many of these, so there is an end to it.
	errAgain = errors.New("the script has to be called again")
	// errDisagree is a bug: the script refused what this side would allow.
	errDisagree = errors.New("the script and the store disagree")
)

// read hands an answer to the request, or returns why there is none.
func (s *Store) read(r *request, res *rueidis.RedisResult) error {
	var err error
	if r.msg, err = res.ToMessage(); err != nil {
		return err
	}
	return s.readMessage(r)
}

func (s *Store) readMessage(r *request) error {
	m, err := r.gotHistories(&r.msg)
	if err != nil {
		return err
	}
	if !m.IsArray() {
		return s.answer(r, m)
	}
	parts, err := m.ToArray()
	if err != nil || len(parts) < 2 {
		return errAnswer
	}
	code, err := parts[0].AsInt64()
	if err == nil && code == gotMore {
		r.op = opTake // the short way would not get through either
		return errAgain
	}
	if err != nil || code != gotWindows {
		return s.answer(r, m)
	}
	if r.rounds++; r.rounds > mostRounds {
		return errRounds
	}
	now, err := parts[1].AsInt64()
	if err != nil || len(parts) < 3 {
		return errAnswer
	}
	times, err := parts[2].AsIntSlice()
	if err != nil || len(times) == 0 {
		return errAnswer
	}
	s.learn(now)
	r.times = append(append(r.times, now), times...)
	return errAgain
}

// answer hands an answer to the request.
func (s *Store) answer(r *request, m *rueidis.RedisMessage) (err error) {
	switch {
	case r.looked != nil:
		err = r.looked(m)
	case r.take != nil:
		err = s.answerTake(r, m)
	case r.settle != nil:
		err = s.answerSettle(r.settle, r.outcome, m)
	default:
		err = s.answerPeek(&r.buckets[0], r.priority, r.state, m)
	}
	if err == nil && r.histories != nil {
		*r.histories = r.past
	}
	return err
}

// answered splits the array that the script returns.
func answered(m *rueidis.RedisMessage) (code, now int64, rest []rueidis.RedisMessage, err error) {
	parts, err := m.ToArray()
	if err != nil || len(parts) < 3 {
		return 0, 0, nil, errAnswer
	}
	if code, err = parts[0].AsInt64(); err == nil {
		now, err = parts[1].AsInt64()
	}
	if err != nil {
		return 0, 0, nil, errAnswer
	}
	return code, now, parts[2:], nil
}

func (s *Store) answerTake(r *request, m *rueidis.RedisMessage) error {
	t, d := r.take, r.verdict
	if m.IsString() {
		return s.answerShort(r, m)
	}
	code, now, rest, err := answered(m)
	if err != nil {
		return err
	}
	s.learn(now)
	if code == gotShort {
		st, err := header(&rest[0], 1)
		if err != nil {
			return err
		}
		r.tellShort(false, st.rec.Last)
		return refusal(t, d, []*stored{st}, nil, now)
	}
	switch code {
	case gotUnmet:
		*d = store.Verdict{Now: now}
		return nil
	case gotReused, gotOther, gotLate, gotFull:
		*d = store.Internal.Verdict(&record.Verdict{
			Now: now, Reused: code == gotReused, Other: code == gotOther,
			Late: code == gotLate, Full: code == gotFull,
		}, nil)
		return nil
	}
	if len(rest) < 1+len(t.Buckets) || code < gotAllowed || code > gotReplayed {
		return errAnswer
	}
	end, err := rest[0].AsInt64()
	if err != nil {
		return errAnswer
	}
	start := now
	var lines []*record.Line
	if len(rest) > 1+len(t.Buckets) && code == gotRefused {
		if lines, err = readLines(&rest[1+len(t.Buckets)], len(t.Buckets)); err != nil {
			return err
		}
	} else if len(rest) > 1+len(t.Buckets) {
		if start, err = rest[1+len(t.Buckets)].AsInt64(); err != nil {
			return errAnswer
		}
	}
	views := make([]*stored, len(t.Buckets))
	asks := make([]record.Ask, len(t.Buckets))
	for i := range views {
		b := &t.Buckets[i]
		st, got, err := readView(&rest[1+i], b)
		if err != nil {
			return err
		}
		views[i] = st
		asks[i] = record.Ask{Rec: &st.rec, Specs: store.Internal.Specs(b.Plan, false), Granted: record.Amounts(got)}
		if code != gotRefused {
			record.Peek(&asks[i], t.Priority, now)
		}
	}
	if code == gotRefused {
		return refusal(t, d, views, lines, now)
	}
	*d = store.Internal.Verdict(&record.Verdict{
		Now: now, Allowed: true, Replayed: code == gotReplayed, Start: start,
		End: end,
	}, asks)
	return nil
}

// answerShort answers a plain take of one bucket that was allowed, from the bucket's new header.
func (s *Store) answerShort(r *request, m *rueidis.RedisMessage) error {
	t, d, specs := r.take, r.verdict, store.Internal.Specs(r.buckets[0].Plan, false)
	st, err := header(m, len(specs))
	if err != nil {
		return err
	}
	now := st.rec.Last
	s.learn(now)
	r.tellShort(true, now)
	st.complete(nil)
	ask := [1]record.Ask{{Rec: &st.rec, Specs: specs}}
	record.Peek(&ask[0], t.Priority, now)
	*d = store.Internal.Verdict(&record.Verdict{Now: now, Allowed: true}, ask[:])
	return nil
}

// refusal explains a refusal by deciding once more, here, on what the script saw. lines is nil for
// a take that has no ticket where nobody waits.
func refusal(t *store.Take, d *store.Verdict, views []*stored, lines []*record.Line, now int64) error {
	recs := views[0].oneRecord[:0]
	for _, st := range views {
		recs = append(recs, &st.rec)
	}
	// The views have no more entries than are needed to explain that it has to wait; and a replay
	// is not granted ahead.
	atOnce := *t
	atOnce.Ahead = 0
	if lines == nil {
		*d = store.Internal.Decide(&atOnce, recs, false, now)
	} else {
		*d = store.Internal.DecideInLine(&atOnce, recs, lines, false, now)
	}
	if d.Allowed || d.Fail != nil {
		return errDisagree
	}
	return nil
}

func (s *Store) answerSettle(st *store.Settlement, o *store.Outcome, m *rueidis.RedisMessage) error {
	code, now, rest, err := answered(m)
	if err != nil {
		return err
	}
	s.learn(now)
	switch code {
	case gotGone:
		o.Gone = true
		return corrected(st, o, rest[1:])
	case gotLate:
		o.Err = store.ErrTooLate
		return nil
	case gotFull:
		o.Err = store.ErrTooManyOpen
		return nil
	case gotUnmet:
		return nil
	case gotKept:
		end, err := rest[0].AsInt64()
		if err != nil {
			return errAnswer
		}
		o.Kept, o.End = true, time.UnixMicro(end)
		return nil
	case gotDone:
		switch st.Op {
		case store.OpRenew, store.OpPause, store.OpUnpause:
			end, err := rest[0].AsInt64()
			if err != nil {
				return errAnswer
			}
			o.End = store.Internal.Instant(end)
		case store.OpRefund:
			o.Back, err = refunded(st, rest[1:], nil)
		case store.OpSettle, store.OpCancel:
			err = corrected(st, o, rest[1:])
		}
		return err
	}
	return errAnswer
}

// corrected reads what a settlement has corrected of a hold that had ended.
func corrected(st *store.Settlement, o *store.Outcome, parts []rueidis.RedisMessage) (err error) {
	if !st.Ended {
		return nil
	}
	done := make([]bool, len(st.Buckets))
	if o.Back, err = refunded(st, parts, done); slices.Contains(done, true) {
		o.Corrected = done
	}
	return err
}

// refunded reads how much was given back per bucket, and before that, if asked, whether something
// was corrected.
func refunded(st *store.Settlement, parts []rueidis.RedisMessage, done []bool) ([]store.Amounts, error) {
	asks := make([]record.Ask, len(st.Buckets))
	if len(parts) != len(asks) {
		return nil, errAnswer
	}
	for i := range asks {
		ns, err := parts[i].AsIntSlice()
		if err != nil {
			return nil, errAnswer
		}
		if len(ns) > 0 && done != nil {
			done[i], ns = ns[0] == 1, ns[1:]
		}
		if len(ns) > len(asks[i].Granted) {
			return nil, errAnswer
		}
		copy(asks[i].Granted[:], ns)
	}
	return store.Internal.Refunded(asks).Back, nil
}

func (s *Store) answerPeek(b *store.BucketCost, priority int8, out *store.State, m *rueidis.RedisMessage) error {
	code, now, rest, err := answered(m)
	if err != nil || code != gotPeek || len(rest) < 2 {
		return errAnswer
	}
	s.learn(now)
	st, _, err := readView(&rest[1], b)
	if err != nil {
		return err
	}
	var line *record.Line
	if len(rest) > 2 {
		text, err := rest[2].ToString()
		if err != nil {
			return errAnswer
		}
		if line, err = readLine(text); err != nil {
			line = nil // a take finds the same, and removes it
		}
	}
	*out = store.Internal.Describe(b, &st.rec, line, priority, false, now)
	out.Open = st.open
	return nil
}
