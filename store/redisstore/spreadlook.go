package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/rueidis"

	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
)

// A take over several slots looks at all of them before it reserves in any: see spread.go.

// look looks at all buckets.
func (st *spreadTake) look(ctx context.Context) error {
	t := st.t
	asks := slices.Clone(t.Buckets)
	if t.Lease { // it accepts any part
		for i := range asks {
			for j, n := range asks[i].N {
				asks[i].N[j] = min(n, 1)
			}
		}
	}
	found := make(chan error, 1)
	go func() { // ends by ctx; it is waited for below
		var err error
		st.open, err = st.s.lookForID(ctx, "take", t.Buckets, t.ID)
		if err == nil && t.ID != "" {
			var leases []known
			leases, err = st.s.lookForID(ctx, "take", st.groups[0].buckets(t.Buckets)[:1], st.leaseID())
			st.busy = err == nil && leases[0].open
		}
		found <- err
	}()
	looks, err := st.s.lookAt(ctx, t, asks, t.Known)
	st.looks = looks
	return cmp.Or(<-found, err)
}

// untouched returns the error of a look, which changes nothing even if its answer was lost.
func untouched(err error) error {
	se, ok := errors.AsType[*store.Error](err)
	if !ok {
		return err
	}
	cause := se.Err
	if both, ok := cause.(interface{ Unwrap() []error }); ok && errors.Is(cause, store.ErrUnknownOutcome) {
		cause = both.Unwrap()[1] // what is said of a call that may have been carried out
	}
	return &store.Error{
		Store: se.Store, Op: se.Op, Fault: se.Fault, Err: fmt.Errorf("%w: %w", store.ErrNothingDone, cause),
	}
}

// look is what a look at a bucket says.
type look struct {
	state store.State
	rec   *record.Record
	now   int64
}

// lookAt looks at buckets of a take, each by its server's clock, for what it wants of them.
func (s *Store) lookAt(ctx context.Context, t *store.Take, buckets []store.BucketCost, known []store.Known,
) ([]look, error) {
	looks, reqs := make([]look, len(buckets)), make([]request, len(buckets))
	for i := range buckets {
		b, l := &buckets[i], &looks[i]
		reqs[i] = request{op: opPeek, priority: t.Priority, buckets: buckets[i : i+1]}
		if known != nil {
			reqs[i].setKnown(known[i:i+1], &l.state.Histories)
		}
		reqs[i].looked = func(m *rueidis.RedisMessage) error {
			code, now, rest, err := answered(m)
			if err != nil || code != gotPeek || len(rest) < 2 {
				return errAnswer
			}
			s.learn(now)
			st, _, err := readView(&rest[1], b)
			if err != nil {
				return err
			}
			if t.Given {
				st.rec.Pause = nil
			}
			l.rec, l.now = &st.rec, now
			l.state = store.Internal.Describe(b, l.rec, nil, t.Priority, false, now)
			if len(rest) > 2 && l.state.Allowed || t.Ticket != nil {
				return l.queue(t, b, rest[1:], now)
			}
			return nil
		}
	}
	if err := s.carryOut(ctx, "take", reqs); err != nil {
		return nil, err
	}
	for i := range reqs {
		if reqs[i].err != nil {
			return nil, reqs[i].err
		}
	}
	return looks, nil
}

// queue refuses a take that has to leave the bucket's units to others who wait, and says where it
// stands. seen is what the script saw: the bucket, and its line if it has one.
func (l *look) queue(t *store.Take, b *store.BucketCost, seen []rueidis.RedisMessage, now int64) error {
	st, _, err := readView(&seen[0], b) // a decision changes its record
	if err != nil {
		return err
	}
	line := &record.Line{}
	if len(seen) > 1 {
		text, err := seen[1].ToString()
		if err != nil {
			return errAnswer
		}
		if l, err := readLine(text); err == nil { // otherwise the script finds the same
			line = l
		}
	}
	if t.Given {
		st.rec.Pause = nil
	}
	one := store.Take{
		Buckets: []store.BucketCost{*b}, Priority: t.Priority, Given: t.Given, Barge: t.Barge,
		Hold: t.Hold, Lease: t.Lease, // without an ID nothing is opened
	}
	if t.Ticket != nil {
		place := *t.Ticket
		place.Next = nil
		one.Ticket = &place
	}
	d := store.Internal.DecideInLine(&one, []*record.Record{&st.rec}, []*record.Line{line}, false, now)
	if !d.Allowed && d.Fail == nil {
		l.state.Verdict = d
	}
	return nil
}

// histories returns what the looks said of the buckets' histories.
func (st *spreadTake) histories() (hs []store.History) {
	for i := range st.looks {
		hs = append(hs, st.looks[i].state.Histories...)
	}
	return hs
}

// now returns when the buckets were looked at, by the latest of their clocks.
func (st *spreadTake) now() (now int64) {
	for i := range st.open {
		now = max(now, st.open[i].now)
	}
	return now
}
