package redisstore

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/internal/storekey"
	"github.com/drawgate/drawgate/store"
)

// A take of buckets in several slots of a cluster cannot be one call. It looks at all buckets, and
// refuses if one of them does. Otherwise it reserves in one slot after the other, in the order of
// their keys, under an ID of its own: as leases, whose units do not age while they are open. If a
// slot refuses, the leases are cancelled: nothing was spent. Their grant is that of one sending of
// the take, so no other one relies on them.
//
// Once all slots but one have a lease, a plain take is carried out in the last one, and that is the
// decision: then the leases are settled, so that their units count from then or later.
//
// A take with an ID has leases in all slots. Then it takes under the caller's ID what each lease
// held, in one pipeline with the cancellation of the lease: first in the slot that is first in
// order, so that of takes that race for one ID one succeeds there, and then in the others. From the
// first of these on only the taker cancels, because another sending of the same take may already
// have been answered by what is open. A replay that one slot refuses has counted its units anew in
// those before it: they count longer, and it stays open until its taker cancels it.
//
// spreadline.go has the tickets of those that wait.
//
// If the process dies, leases end by themselves, and their units then count as used. See
// models/slots.pml.

const (
	leaseHold  = 5 * time.Second // of the leases
	leaseSpare = 2 * time.Second // a decision is made at least so long before they end
	mostWaits  = 30              // for another sending of the same take
	mostTries  = 4               // of a take whose buckets change between look and reservation
)

// undoTime bounds the time for cancelling the leases. Callers do not wait for it.
var undoTime = 2 * time.Second

var (
	errSlow  = errors.New("reserving in several slots took too long")
	errBusy  = errors.New("another sending of this take is just reserving: send it again")
	errTaken = errors.New("another call took what was reserved: cancel the take, or send it again")
)

// spread reports whether buckets are in several slots of a cluster.
func (s *Store) spread(buckets []store.BucketCost) bool {
	if !s.cluster || len(buckets) < 2 || len(buckets) > store.MaxBuckets {
		return false
	}
	first, _ := storekey.Format(s.prefix, buckets[0].Key)
	slot := slotOf(first)
	for i := range buckets[1:] {
		if key, _ := storekey.Format(s.prefix, buckets[1+i].Key); slotOf(key) != slot {
			return true
		}
	}
	return false
}

// group is buckets of one slot, by their positions in the take.
type group struct {
	key string // the first one
	at  []int
}

// groups returns the buckets by their slots, in the order of their keys.
func (s *Store) groups(buckets []store.BucketCost) ([]group, error) {
	var gs []group
	of, seen := map[uint16]int{}, map[string]bool{}
	for i := range buckets {
		key, _ := storekey.Format(s.prefix, buckets[i].Key)
		if seen[key] {
			return nil, fmt.Errorf("%w: the same bucket is named twice", store.ErrInvalid)
		}
		seen[key] = true
		k, ok := of[slotOf(key)]
		if !ok {
			k = len(gs)
			of[slotOf(key)] = k
			gs = append(gs, group{key: key})
		}
		gs[k].key = min(gs[k].key, key)
		gs[k].at = append(gs[k].at, i)
	}
	slices.SortFunc(gs, func(a, b group) int { return strings.Compare(a.key, b.key) })
	return gs, nil
}

func (g *group) buckets(all []store.BucketCost) []store.BucketCost {
	bs := make([]store.BucketCost, len(g.at))
	for k, i := range g.at {
		bs[k] = all[i]
	}
	return bs
}

// known returns what is known of the group's buckets.
func (g *group) known(all []store.Known) []store.Known {
	if all == nil {
		return nil
	}
	ks := make([]store.Known, len(g.at))
	for k, i := range g.at {
		ks[k] = all[i]
	}
	return ks
}

// tell adds the histories of the group's buckets to those of all of a take.
func (g *group) tell(all, some []store.History, t *store.Take) []store.History {
	if len(t.Known) == 0 || len(some) != len(g.at) {
		return all
	}
	if all == nil {
		all = make([]store.History, len(t.Buckets))
	}
	for k, i := range g.at {
		all[i] = some[k]
	}
	return all
}

// spreadTake is a take over several slots in progress.
type spreadTake struct {
	s       *Store
	t       *store.Take
	groups  []group
	content uint64

	looks []look    // at each bucket
	busy  bool      // another sending of the take has leases
	open  []known   // what it said of the take's ID
	start time.Time // of this try
	id    string    // of its leases
	grant store.Grant
	last  store.Verdict   // of a plain take, in the last slot
	past  []store.History // of buckets with leases; nil if nobody wants to know
	got   []store.Amounts // of a take that is a lease: what each bucket granted
}

// takeSpread decides a take over several slots.
func (s *Store) takeSpread(ctx context.Context, t *store.Take) store.Verdict {
	if err := t.Check(); err != nil {
		return store.Verdict{Fail: err}
	}
	gs, err := s.groups(t.Buckets)
	if err != nil {
		return store.Verdict{Fail: err}
	}
	if t.Ticket != nil {
		s.announced.sends(t.Ticket)
	}
	st := &spreadTake{s: s, t: t, groups: gs}
	if t.ID != "" {
		st.content = t.Fingerprint()
	}
	wait := func(n int) bool { return pause(ctx, backoff(n)) }
	for changed, busy := 1, 1; ; {
		d, state := st.try(ctx)
		switch {
		case state == refusedLate && changed < mostTries && wait(changed):
			changed++
		case state == inProgress && busy < mostWaits && wait(busy):
			busy++
		case state == inProgress && ctx.Err() != nil:
			return store.Verdict{Fail: storeError("take", ctx.Err())}
		default:
			return d
		}
	}
}

// progress says why a try was not the last one.
type progress uint8

const (
	decided     progress = iota
	refusedLate          // by what others took since the look
	inProgress           // another sending of the take is just reserving
)

// try decides the take, unless it has to be tried again.
func (st *spreadTake) try(ctx context.Context) (store.Verdict, progress) {
	st.id = ""
	if err := st.look(ctx); err != nil {
		return store.Verdict{Fail: untouched(err)}, decided
	}
	switch part, err := st.ofID(); {
	case err != nil:
		st.persist(ctx)
		return store.Verdict{Fail: err, Now: st.now()}, decided
	case part == partly && st.t.Given: // its taker comes again, or cancels that and takes another id
		return store.Verdict{Fail: store.ErrIDOpen, Now: st.now()}, decided
	case part == partly:
		return store.Verdict{Fail: store.ErrIDReused, Now: st.now()}, inProgress
	case part == whole:
		return st.convert(ctx), decided
	case st.busy:
		return store.Verdict{Fail: storeError("take", errBusy)}, inProgress
	}
	if d := st.fits(); !d.Allowed {
		st.persist(ctx)
		if st.stand(ctx, &d) { // nobody announces it any more
			return d, refusedLate
		}
		return d, decided
	}
	return st.reserve(ctx)
}

// reached tells a test how far a take is.
func (s *Store) reached(step string, g int) {
	if s.step != nil {
		s.step(step, g)
	}
}

// backoff returns how long to wait before the next try: so long that another take has ended, and
// not the same for all.
func backoff(try int) time.Duration {
	return time.Duration(min(try, 5)) * (time.Millisecond + rand.N(3*time.Millisecond)) //nolint:gosec // see above
}

// leaseID is the ID of the leases: the same for all sendings of a take with an ID, so that they do
// not reserve beside each other, but each has a grant of its own.
func (st *spreadTake) leaseID() string {
	if st.t.ID == "" {
		return "\x00" + st.grant.String()
	}
	sum := sha256.Sum256([]byte(st.t.ID)) // an ID may be as long as is allowed
	return "\x00" + st.t.Grant.String() + string(sum[:])
}

// opened says in how many of its buckets a take is open already.
type opened uint8

const (
	nowhere opened = iota
	partly
	whole
)

// ofID says whether the take is open already, and what speaks against it.
func (st *spreadTake) ofID() (opened, error) {
	n := 0
	for i := range st.open {
		if k := &st.open[i]; k.open && k.grant != st.t.Grant {
			return 0, store.ErrIDOpen
		} else if k.open && k.content != st.content {
			return 0, store.ErrIDReused
		} else if k.open {
			n++
		}
	}
	switch n {
	case 0:
		return nowhere, nil
	case len(st.open):
		return whole, nil
	}
	return partly, nil
}

// fits joins what the look said.
func (st *spreadTake) fits() store.Verdict {
	d := store.Verdict{Allowed: true, Rest: make([]store.Answer, len(st.looks)-1)}
	for i := range st.looks {
		l := &st.looks[i].state.Verdict
		*d.Bucket(i) = l.First
		refuseBy(&d, i, l)
	}
	d.Histories = st.histories()
	return d
}

// persist lets buckets be written whose rate this take saw for the first time, although it was
// refused: a lower rate is in force from when it is first seen. If it fails, the next take does it.
func (st *spreadTake) persist(ctx context.Context) {
	var reqs []request
	for i := range st.open {
		if bs := st.t.Buckets[i : i+1]; st.open[i].otherRate(bs[0].Plan) {
			// it finds nothing to cancel, and writes what has changed
			none := store.Settlement{Op: store.OpCancel, ID: "\x00", Grant: store.NewGrant(), Buckets: bs}
			reqs = append(reqs, unheard(&none))
		}
	}
	if len(reqs) > 0 {
		_ = st.s.carryOut(ctx, "take", reqs)
	}
}

// refuseBy adds to the verdict on a take what the verdict on its bucket i says.
func refuseBy(d *store.Verdict, i int, by *store.Verdict) {
	d.Now = max(d.Now, by.Now)
	if by.Allowed {
		return
	}
	if by.Reason == store.Paused && (d.Reason != store.Paused || by.RetryAfter > d.RetryAfter) {
		d.PausedAt = i
	}
	if d.Allowed || by.Reason == store.Paused || d.Reason == store.Queued {
		d.Reason = by.Reason
	}
	d.Allowed = false
	if by.RetryAfter > d.RetryAfter {
		d.Standing = by.Standing
	}
	d.RetryAfter, d.EarliestRetry = max(d.RetryAfter, by.RetryAfter), max(d.EarliestRetry, by.EarliestRetry)
}

// reserve takes in all slots. If one of them refuses, nothing is taken, and the verdict explains
// it.
func (st *spreadTake) reserve(ctx context.Context) (store.Verdict, progress) {
	t := st.t
	st.start, st.grant = time.Now(), store.NewGrant()
	st.id = st.leaseID()
	var leased []int
	for g := range st.groups {
		last := t.ID == "" && g == len(st.groups)-1
		got, err := st.part(ctx, g, last)
		if err == nil && last && time.Since(st.start) > leaseHold-leaseSpare {
			err = storeError("take", fmt.Errorf("%w: %w", store.ErrUnknownOutcome, errSlow)) // the last slot took
		}
		if !last {
			leased = append(leased, g) // even if its answer is lost, it may have one
		}
		if err != nil {
			nothing := errors.Is(err, store.ErrNothingDone)
			if nothing {
				leased = leased[:g] // without this slot
			}
			if undone := st.undo(ctx, leased); nothing && !undone {
				err = partlyTaken(err)
			}
			if errors.Is(err, store.ErrIDOpen) && !last {
				return store.Verdict{Fail: storeError("take", errBusy)}, inProgress
			}
			return store.Verdict{Fail: err}, decided
		}
		if !got.Allowed {
			d := st.refusal(g, &got)
			st.stand(ctx, &d) // before others can take what is cancelled
			st.undo(ctx, leased)
			return d, refusedLate
		}
		if last {
			st.last = got
		}
	}
	if t.ID != "" {
		return st.convert(ctx), decided
	}
	d := st.answer()
	st.end(ctx, store.OpSettle, leased)
	return d, decided
}

// part takes in one slot: a lease, or in the last one what a plain take asks for.
func (st *spreadTake) part(ctx context.Context, g int, last bool) (store.Verdict, error) {
	t := st.t
	st.s.reached("reserve", g)
	one := store.Take{
		Buckets: st.groups[g].buckets(t.Buckets), Priority: t.Priority, Given: t.Given, Barge: t.Barge,
		Ticket: st.groups[g].ticket(t.Ticket),
	}
	one.Known = st.groups[g].known(t.Known)
	if !last {
		one.ID, one.Grant, one.Hold, one.Lease = st.id, st.grant, leaseHold, true
	}
	got, err := st.s.takeOne(ctx, &one)
	if err == nil && got.Allowed {
		st.past = st.groups[g].tell(st.past, got.Histories, t)
		if t.Lease {
			st.keep(g, &got)
		}
	}
	if err != nil || last || !got.Allowed || t.Lease {
		return got, err
	}
	for k := range one.Buckets {
		if got.Granted(k) != one.Buckets[k].N { // a lease is granted in part
			d := st.short(g, &got)
			st.stand(ctx, &d) // as in reserve. What is left without the lease is not known yet
			st.undo(ctx, []int{g})
			return st.refused(ctx, g)
		}
	}
	return got, nil
}

// short returns the verdict on a take of which a slot granted a part: each limit of which it did
// not have enough refuses it.
func (st *spreadTake) short(g int, got *store.Verdict) store.Verdict {
	d := *got
	d.Allowed, d.Reason, d.Rest = false, store.Limited, slices.Clone(got.Rest)
	for k, i := range st.groups[g].at {
		for j, n := range st.t.Buckets[i].N {
			if got.Granted(k)[j] < n {
				d.Bucket(k).Limits[j].RetryAfter, d.RetryAfter = time.Microsecond, time.Microsecond
			}
		}
	}
	return st.refusal(g, &d)
}

// keep keeps what a slot granted of a lease. Not more than that is taken in the end: others may
// wait for the rest.
func (st *spreadTake) keep(g int, got *store.Verdict) {
	if st.got == nil {
		st.got = make([]store.Amounts, len(st.t.Buckets))
	}
	for k, i := range st.groups[g].at {
		st.got[i] = got.Granted(k)
	}
}

// refused explains why a slot does not have all that is asked.
func (st *spreadTake) refused(ctx context.Context, g int) (store.Verdict, error) {
	asks := st.groups[g].buckets(st.t.Buckets)
	looks, err := st.s.lookAt(ctx, st.t, asks, st.groups[g].known(st.t.Known))
	if err != nil {
		return store.Verdict{}, err
	}
	d := store.Verdict{Allowed: true, Rest: make([]store.Answer, len(asks)-1)}
	for k := range looks {
		*d.Bucket(k) = looks[k].state.First
		refuseBy(&d, k, &looks[k].state.Verdict)
		d.Histories = append(d.Histories, looks[k].state.Histories...)
	}
	if d.Allowed { // it has become free since
		d.Allowed, d.Reason, d.RetryAfter = false, store.Limited, time.Microsecond
	}
	return d, nil
}

// refusal returns the verdict on a take that one slot refused. Of the others it says what the look
// said; that they refuse, too, would be wrong of a replay, which gives back what it has there.
func (st *spreadTake) refusal(g int, by *store.Verdict) store.Verdict {
	d := store.Verdict{Allowed: true, Rest: make([]store.Answer, len(st.looks)-1)}
	for i := range st.looks {
		*d.Bucket(i) = st.looks[i].state.First
		d.Now = max(d.Now, st.looks[i].state.Now)
	}
	for k, i := range st.groups[g].at {
		*d.Bucket(i) = *by.Bucket(k)
	}
	refuseBy(&d, st.groups[g].at[by.PausedAt], by)
	d.Histories = st.groups[g].tell(st.histories(), by.Histories, st.t)
	return d
}

// answer returns the verdict on a plain take that was granted. What is left in the slots with
// leases follows from the look at them: a lease's own answer would count what was taken as held.
func (st *spreadTake) answer() store.Verdict {
	d := store.Verdict{Allowed: true, Now: st.last.Now, Histories: st.past, Rest: make([]store.Answer, len(st.looks)-1)}
	for g := range st.groups {
		for k, i := range st.groups[g].at {
			if g == len(st.groups)-1 {
				*d.Bucket(i) = *st.last.Bucket(k)
				continue
			}
			one := store.Take{Buckets: st.t.Buckets[i : i+1], Priority: st.t.Priority, Given: st.t.Given}
			v := store.Internal.Decide(&one, []*record.Record{st.looks[i].rec}, false, st.looks[i].now)
			*d.Bucket(i) = v.First
		}
	}
	return d
}

// convert takes under the caller's ID, and cancels the leases at the same time. What was open
// already is replayed.
func (st *spreadTake) convert(ctx context.Context) store.Verdict {
	rest := make([]int, len(st.groups)-1)
	for k := range rest {
		rest[k] = k + 1
	}
	parts := make([]store.Verdict, len(st.groups))
	leased := st.id != "" // otherwise it is open in all of them
	if leased && time.Since(st.start) > leaseHold-leaseSpare {
		st.undo(ctx, append([]int{0}, rest...))
		return store.Verdict{Fail: storeError("take", errSlow)}
	}
	st.convertSome(ctx, []int{0}, parts)
	if first := &parts[0]; first.Fail != nil || !first.Allowed {
		if leased && !st.undo(ctx, append([]int{0}, rest...)) && errors.Is(first.Fail, store.ErrNothingDone) {
			first.Fail = partlyTaken(first.Fail)
		}
		if first.Fail == nil && leased {
			first.Fail = storeError("take", errTaken)
		}
		if first.Fail != nil {
			return store.Verdict{Fail: first.Fail}
		}
		return st.refusal(0, first)
	}
	st.convertSome(ctx, rest, parts)
	if leased {
		rest = slices.DeleteFunc(rest, func(g int) bool { return parts[g].Fail == nil })
		st.undo(ctx, rest) // the leases that are left; what is open stays
	}
	d := store.Verdict{Allowed: true, Replayed: parts[0].Replayed, Rest: make([]store.Answer, len(st.looks)-1)}
	d.Now = parts[0].Now // the others count their units from later on
	left := int64(0)
	for g := range parts {
		p := &parts[g]
		switch {
		case p.Fail != nil:
			return store.Verdict{Fail: partlyTaken(p.Fail)}
		case !p.Allowed && leased:
			return store.Verdict{Fail: partlyTaken(errTaken)}
		case !p.Allowed: // a replay is refused, and the take stays open until its taker cancels it
			return st.refusal(g, p)
		}
		if g == 0 || p.End-p.Now < left {
			left = p.End - p.Now
		}
		for k, i := range st.groups[g].at {
			*d.Bucket(i) = *p.Bucket(k)
		}
		d.Histories = st.groups[g].tell(d.Histories, p.Histories, st.t)
	}
	d.End = d.Now + left
	return d
}

// partlyTaken returns the error of a take that is open in other slots, or may be. It does not wrap
// what a slot answered: that nothing was taken is true of that slot only.
func partlyTaken(err error) error {
	if errors.Is(err, store.ErrUnknownOutcome) {
		return err
	}
	se, ok := errors.AsType[*store.Error](err)
	if !ok {
		se = &store.Error{Store: "redis", Op: "take", Err: err}
	}
	why := strings.TrimPrefix(se.Err.Error(), store.ErrNothingDone.Error()+": ")
	return &store.Error{
		Store: se.Store, Op: se.Op, Fault: se.Fault,
		Err: fmt.Errorf("%w: %s", store.ErrUnknownOutcome, why),
	}
}

// convertSome converts in some slots, at the same time.
func (st *spreadTake) convertSome(ctx context.Context, of []int, parts []store.Verdict) {
	st.s.reached("convert", of[0])
	var reqs []request
	var to []*store.Verdict // where each is answered; nil: its answer does not matter
	for _, g := range of {
		bs, d := st.groups[g].buckets(st.t.Buckets), &parts[g]
		if st.id != "" {
			r := unheard(&store.Settlement{Op: store.OpCancel, ID: st.id, Grant: st.grant, Buckets: bs})
			r.stays = true // others must not come in between
			reqs, to = append(reqs, r), append(to, nil)
			if st.t.Lease {
				bs = slices.Clone(bs)
				for k, i := range st.groups[g].at {
					bs[k].N = st.got[i]
				}
			}
		}
		one := *st.t
		one.Buckets, one.Known, one.Ahead, one.Ticket = bs, st.groups[g].known(st.t.Known), 0, nil
		if st.id != "" { // it was allowed: a pause that began since does not refuse it
			one.Given = true
		}
		r := request{content: st.content, verdict: d}
		r.ofTake(&one)
		r.setKnown(one.Known, &d.Histories)
		reqs, to = append(reqs, r), append(to, d)
	}
	if err := st.s.carryOut(ctx, "take", reqs); err != nil {
		for _, g := range of {
			parts[g] = store.Verdict{Fail: err}
		}
		return
	}
	for i := range reqs {
		if reqs[i].err != nil && to[i] != nil {
			*to[i] = store.Verdict{Fail: reqs[i].err}
		}
	}
}

// undo cancels leases, and reports whether none of them is left. It goes on if the caller leaves;
// what it does not reach ends by itself.
func (st *spreadTake) undo(ctx context.Context, of []int) (undone bool) {
	if len(of) == 0 {
		return true
	}
	detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	c, done, ended := *st, make(chan struct{}), &atomic.Bool{}
	t := *st.t
	t.Buckets = slices.Clone(t.Buckets) // the caller may use them again
	c.t = &t
	st.s.running.Go(func() { // ends by its timeout. Close waits for it, as for any call
		defer close(done)
		defer cancel()
		ended.Store(c.end(detached, store.OpCancel, of))
	})
	select {
	case <-done:
	case <-ctx.Done():
	}
	return ended.Load()
}

// end ends leases, and reports whether all were open, and are ended. If it fails, they end by
// themselves.
func (st *spreadTake) end(ctx context.Context, op store.Op, of []int) bool {
	st.s.reached(op.String(), 0)
	reqs := make([]request, len(of))
	for i, g := range of {
		bs := st.groups[g].buckets(st.t.Buckets)
		for k := range bs {
			for j := range bs[k].N {
				bs[k].N[j] = store.KeepEstimate
			}
		}
		reqs[i] = unheard(&store.Settlement{Op: op, ID: st.id, Grant: st.grant, Buckets: bs})
	}
	if err := st.s.carryOut(ctx, op.String(), reqs); err != nil {
		return false
	}
	return !slices.ContainsFunc(reqs, func(r request) bool { return r.err != nil || r.outcome.Gone })
}

// takeOne carries out a take in one slot.
func (s *Store) takeOne(ctx context.Context, t *store.Take) (d store.Verdict, err error) {
	reqs := [1]request{{verdict: &d}}
	reqs[0].ofTake(t)
	reqs[0].setKnown(t.Known, &d.Histories)
	if err := s.carryOut(ctx, "take", reqs[:]); err != nil {
		return d, err
	}
	return d, cmp.Or(reqs[0].err, d.Fail)
}

// unheard returns the request of a settlement whose answer does not matter.
func unheard(st *store.Settlement) request {
	r := settleRequest(st)
	r.settle, r.outcome = st, &store.Outcome{}
	return r
}
