package redisstore

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/internal/storekey"
	"github.com/drawgate/drawgate/store"
)

// request is one element of a batch in progress.
type request struct {
	op       string
	id       string
	extra    string // further arguments of the operation
	timed    bool   // extra is made when it is sent
	content  uint64 // fingerprint of the take that this is a part of; 0: it is the whole
	priority int8
	buckets  []store.BucketCost
	times    []int64 // the script asked for their calendar windows
	rounds   int     // how often it did
	stays    bool    // in one call with the next one, or right before it
	life     int64   // not 0: it only leaves tickets, which live so long
	arrived  int64   // when their waiter came, as the answer said
	free     bool    // what it waits for is free by now
	call
	msg rueidis.RedisMessage // what the script answered
	err error

	// What it is, and where its answer goes: a take, a settlement, or a look at the only bucket.
	take    *store.Take
	verdict *store.Verdict
	settle  *store.Settlement
	outcome *store.Outcome
	state   *store.State
	looked  func(*rueidis.RedisMessage) error // receives an answer instead

	// Of a request whose answer is to have histories:
	known     string
	knows     []store.Known
	past      []store.History // the answer's
	histories *[]store.History

	// Of a batch with others:
	cost int      // its weight
	step int64    // what a plain take from one limit of kind bucket adds to what is used
	next *request // of its group
	got  got

	// Storage for what most requests need, to avoid allocations.
	oneKey [1]string
	words  [3]string
	self   [1]*request
}

// Take implements [store.Store].
func (s *Store) Take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	spread := func(t *store.Take) bool { return s.spread(t.Buckets) }
	if !anyOf(batch, spread) {
		return s.takeAll(ctx, batch, out)
	}
	ctx, end, err := s.stay(ctx)
	if err != nil {
		return err
	}
	defer end()
	return parted(batch, out, spread,
		func(t *store.Take, d *store.Verdict) { *d = s.takeSpread(ctx, t) },
		func(batch []store.Take, out []store.Verdict) error { return s.takeAll(ctx, batch, out) },
		func(d *store.Verdict, err error) { *d = store.Verdict{Fail: err} })
}

// anyOf reports whether one of a batch is spread over several slots.
func anyOf[In any](batch []In, spread func(*In) bool) bool {
	for i := range batch {
		if spread(&batch[i]) {
			return true
		}
	}
	return false
}

// parted carries out a batch in order: elements that are spread over several slots one by one, and
// those between them together. If it returns an error, nothing was sent.
func parted[In, Out any](batch []In, out []Out, spread func(*In) bool, one func(*In, *Out),
	all func([]In, []Out) error, fail func(*Out, error),
) error {
	sent := false
	for i := 0; i < len(batch); {
		if spread(&batch[i]) {
			one(&batch[i], &out[i])
			sent = true
			i++
			continue
		}
		n := i + 1
		for n < len(batch) && !spread(&batch[n]) {
			n++
		}
		if err := all(batch[i:n], out[i:n]); err != nil {
			if !sent && n == len(batch) {
				return err
			}
			for k := i; k < n; k++ {
				fail(&out[k], err)
			}
		}
		sent = true
		i = n
	}
	return nil
}

// takeAll carries out takes of which each is one call.
func (s *Store) takeAll(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	reqs := make([]request, len(batch))
	for i := range batch {
		t, d := &batch[i], &out[i]
		*d = store.Verdict{}
		reqs[i].ofTake(t)
		if t.Ticket != nil {
			s.announced.sends(t.Ticket)
		}
		reqs[i].verdict = d
		reqs[i].setKnown(t.Known, &d.Histories)
	}
	if err := s.carryOut(ctx, "take", reqs); err != nil {
		return err
	}
	for i := range reqs {
		if reqs[i].err != nil {
			out[i] = store.Verdict{Fail: reqs[i].err}
		}
	}
	return nil
}

func (r *request) ofTake(t *store.Take) {
	r.op, r.id, r.priority, r.buckets, r.take = opTake, t.ID, t.Priority, t.Buckets, t
	// What only leaves tickets is a part of a take that was checked, and has no hold although that
	// may need one.
	stands := r.life != 0
	if !stands {
		r.err = cmp.Or(t.Check(), checkRecovery(t.Recovery, t.Buckets, t.Known))
	}
	if r.err != nil {
		return
	}
	r.timed = t.ID != "" || t.Ahead > 0 || t.Given
	if waits := t.Ticket != nil || t.Barge; waits && t.Recovery == nil {
		// Where it was refused before, there is a line. And the short way takes what has come free.
		fresh := t.Ticket == nil || t.Ticket.Arrival == 0 && len(t.Ticket.Next) == 0
		if fresh && !stands && !r.timed && len(t.Buckets) == 1 {
			r.op = opWait
		}
		r.timed = true
	}
	if r.timed || len(t.Buckets) > 1 {
		return
	}
	r.op = opHot
	b := &t.Buckets[0]
	if specs := store.Internal.Specs(b.Plan, false); len(specs) == 1 && specs[0].Kind == record.Bucket &&
		b.N[0] > 0 && specs[0].Fits(b.N[0], t.Priority) {
		r.op, r.step = opGCRA, b.N[0]*specs[0].Scale
	}
}

// takeExtra returns the further arguments of a take that is sent at about now, on the server's
// clock.
func takeExtra(t *store.Take, content uint64, about, life int64) string {
	buf := make([]byte, 0, 41)
	notAfter := int64(0)
	if t.ID == "" {
		buf = append(buf, make([]byte, 16)...)
	} else {
		buf = binary.BigEndian.AppendUint64(buf, uint64(t.Grant))
		if content == 0 && t.Recovery != nil {
			content = t.Recovery.Content
		}
		if content == 0 {
			content = t.Fingerprint()
		}
		buf = binary.BigEndian.AppendUint64(buf, content)
		if notAfter = about + store.SendLife.Microseconds(); !t.NotAfter.IsZero() {
			notAfter = min(record.Latest(t.NotAfter), store.MaxInstant)
		}
	}
	hold, ahead, flags := t.Hold.Microseconds(), min(max(t.Ahead, 0), store.MaxHold).Microseconds(), byte(0)
	if t.Recovery != nil {
		hold, ahead, flags = instant(t.Recovery.End), instant(t.Recovery.From), flagGiven|flagAgain
	}
	buf = appendNums(buf, hold, notAfter, ahead)
	if t.Lease {
		flags |= flagLease
	}
	if t.Given {
		flags |= flagGiven
	}
	buf = append(buf, flags)
	if (t.Ticket != nil || t.Barge) && t.Recovery == nil {
		buf = appendTicket(buf, t, life)
	}
	return string(buf)
}

// Settle implements [store.Store].
func (s *Store) Settle(ctx context.Context, batch []store.Settlement, out []store.Outcome) error {
	spread := func(t *store.Settlement) bool { return s.spread(t.Buckets) }
	if !anyOf(batch, spread) {
		return s.settleAll(ctx, batch, out)
	}
	ctx, end, err := s.stay(ctx)
	if err != nil {
		return err
	}
	defer end()
	return parted(batch, out, spread,
		func(t *store.Settlement, o *store.Outcome) { *o = s.settleSpread(ctx, t) },
		func(batch []store.Settlement, out []store.Outcome) error { return s.settleAll(ctx, batch, out) },
		func(o *store.Outcome, err error) { *o = store.Outcome{Err: err} })
}

// settleAll carries out settlements of which each is one call.
func (s *Store) settleAll(ctx context.Context, batch []store.Settlement, out []store.Outcome) error {
	reqs := make([]request, len(batch))
	for i := range batch {
		st, o := &batch[i], &out[i]
		*o = store.Outcome{}
		reqs[i] = settleRequest(st)
		reqs[i].settle, reqs[i].outcome = st, o
		reqs[i].setKnown(st.Known, &o.Histories)
	}
	if err := s.carryOut(ctx, "settle", reqs); err != nil {
		return err
	}
	for i := range reqs {
		if reqs[i].err != nil {
			out[i] = store.Outcome{Err: reqs[i].err}
		}
	}
	return nil
}

func settleRequest(st *store.Settlement) request {
	r := request{id: st.ID, buckets: st.Buckets}
	if r.err = st.Check(); r.err != nil {
		return r
	}
	grant := binary.BigEndian.AppendUint64(nil, uint64(st.Grant))
	switch st.Op {
	case store.OpSettle, store.OpCancel:
		if r.op = opSettle; st.Op == store.OpCancel {
			r.op = opCancel
		}
		if st.Ended {
			grant = append(grant, 1)
		}
		r.extra = string(grant)
	case store.OpRenew:
		r.op, r.extra = opRenew, string(appendNum(grant, st.Hold.Microseconds()))
	case store.OpCharge:
		r.op, r.id = opCharge, ""
		if st.Recovery != nil {
			r.op = opRecover
			if r.err = checkRecovery(st.Recovery, st.Buckets, st.Known); r.err == nil {
				r.extra, r.err = recoverExtra(st.Recovery, &st.Buckets[0])
			}
			return r
		}
		notAfter := int64(0)
		if st.Once {
			notAfter = store.Internal.SeenAt(st) + record.SeenLife
		}
		r.extra = string(appendNums(nil, min(max(st.At.UnixMicro(), -store.MaxHold.Microseconds()), store.MaxInstant),
			notAfter))
	case store.OpRefund:
		r.op, r.id = opRefund, ""
		r.extra = string(appendNum(nil, store.Internal.SeenAt(st)))
	case store.OpPause:
		r.op, r.id = opPause, ""
		until := int64(0)
		if st.Hold == 0 {
			until = max(st.At.UnixMicro(), 0)
		}
		r.extra = string(appendNums(nil, st.Hold.Microseconds(), until, made(st))) + st.Reason
	case store.OpUnpause:
		r.op, r.id = opUnpause, ""
		r.extra = string(appendNums(nil, max(st.At.UnixMicro(), 0), made(st)))
	}
	return r
}

// made returns when a pause was set or ended, if it is made again; otherwise 0.
func made(st *store.Settlement) int64 {
	if st.Recovery == nil {
		return 0
	}
	return instant(st.Recovery.End)
}

// Peek implements [store.Store].
func (s *Store) Peek(ctx context.Context, buckets []store.BucketCost, priority int8, out []store.State) error {
	return s.peek(ctx, buckets, priority, nil, out)
}

// peek looks at buckets, of whose histories nothing needs to be known.
func (s *Store) peek(ctx context.Context, buckets []store.BucketCost, priority int8, known []store.Known,
	out []store.State,
) error {
	reqs := make([]request, len(buckets))
	for i := range buckets {
		st := &out[i]
		*st = store.State{}
		reqs[i] = request{op: opPeek, priority: priority, buckets: buckets[i : i+1]}
		reqs[i].state = st
		if known != nil {
			reqs[i].setKnown(known[i:i+1], &st.Histories)
		}
		reqs[i].err = buckets[i].Check(priority)
	}
	if err := s.carryOut(ctx, "peek", reqs); err != nil {
		return err
	}
	for i := range reqs {
		if reqs[i].err != nil {
			out[i] = store.State{Verdict: store.Verdict{Fail: reqs[i].err}}
		}
	}
	return nil
}

// mostRounds is how often the script may ask for further calendar windows: once if the estimate of
// the server's clock was wrong, and again if the clock moved meanwhile.
const mostRounds = 5

// errRounds is the error if the script keeps asking.
var errRounds = fmt.Errorf("%w: it keeps asking for calendar windows", errAnswer)

// carryOut sends requests until each is answered, and sets err for those that failed. The rest of a
// batch is carried out before a request that has to be sent again. If carryOut returns an error,
// nothing was sent.
func (s *Store) carryOut(ctx context.Context, op string, reqs []request) error {
	c, err := s.begin(ctx, op)
	if err != nil {
		return err
	}
	defer s.end()
	if len(reqs) == 0 {
		return nil
	}
	todo := reqs[0].self[:0] // enough for most calls
	for i := range reqs {
		r := &reqs[i]
		if r.err == nil {
			r.err = r.name(s.prefix)
		}
		if r.err != nil {
			// mistakes, which are no failure of the store
			if !errors.Is(r.err, store.ErrNeedsReserve) && !errors.Is(r.err, store.ErrInvalid) {
				r.err = storeError(op, r.err)
			}
			continue
		}
		if s.cluster {
			if err := s.checkShard(ctx, c, r.keys); err != nil {
				r.err = notSent(op, err)
				continue
			}
		}
		todo = append(todo, r)
	}
	if op == "peek" && !s.cluster && (len(todo) > 1 || s.gather.always) {
		todo = s.lookAtHeaders(ctx, c, todo)
	}
	if len(todo) == 0 {
		return nil
	}
	number, ok := s.oneLane(todo)
	if !ok || !s.gathers(op, todo) {
		s.oneByOne(ctx, c, op, todo, true)
		return nil
	}
	for len(todo) > 0 {
		n := piece(todo)
		again, alone := s.together(ctx, c, op, number, todo[:n:n])
		if alone && len(again) > 0 {
			s.oneByOne(ctx, c, op, again, true)
			s.gather.spoiled(again)
			again = nil
		}
		if todo = todo[n:]; len(again) > 0 {
			todo = append(again, todo...)
		}
	}
	return nil
}

// oneByOne sends each request as a call of its own, all at once: if it is to wait, until each is
// answered, and otherwise once. It returns those that have to be sent again.
func (s *Store) oneByOne(ctx context.Context, c rueidis.Client, op string, todo []*request, wait bool,
) (rest []*request) {
	for len(todo) > 0 {
		for _, r := range todo {
			s.fill(r)
		}
		var room [1]rueidis.RedisResult
		res := s.run(ctx, c, todo, room[:])
		again := todo[:0]
		for i, r := range todo {
			err := s.read(r, &res[i])
			switch {
			case !wait && (errors.Is(err, errAgain) || s.cluster && isMoving(err)):
				rest = append(rest, r)
			case errors.Is(err, errAgain) || s.cluster && isMoving(err) && s.soon(ctx):
				again = append(again, r)
			default:
				r.err = failure(op, err, r.keys)
			}
		}
		todo = again
	}
	return rest
}

// name finds the keys of a request's buckets.
func (r *request) name(prefix string) error {
	if len(r.buckets) == 0 || len(r.buckets) > store.MaxBuckets {
		return fmt.Errorf("%w: %d buckets, but 1 to %d are allowed", store.ErrInvalid, len(r.buckets), store.MaxBuckets)
	}
	r.keys = r.oneKey[:]
	if len(r.buckets) > 1 {
		r.keys = make([]string, len(r.buckets))
	}
	for i := range r.buckets {
		key, raw := storekey.Format(prefix, r.buckets[i].Key)
		r.keys[i] = key
		if slices.Contains(r.keys[:i], key) {
			return fmt.Errorf("%w: the same bucket is named twice", store.ErrInvalid)
		}
		if raw != "" && (r.op == opGCRA || r.op == opHot || r.op == opWait) {
			r.op = opTake // the short way does not store a key's parts
		}
	}
	return nil
}

// fill writes the arguments of a request's call.
func (s *Store) fill(r *request) {
	about := s.guess()
	if r.timed {
		r.extra = takeExtra(r.take, r.content, about, r.life)
	}
	args := append(r.words[:0], r.op)
	if r.op == opReset || r.op == opLeave {
		args = append(args, "", s.place)
		if r.op == opLeave {
			args = append(args, r.id)
		}
		if s.clock != nil {
			args = append(args, strconv.FormatInt(s.clock(), 10))
		}
		r.args = args
		return
	}
	if r.op != opGCRA && r.op != opHot {
		args = append(make([]string, 0, 6+len(r.buckets)), r.op)
	}
	if r.op == opGCRA && r.buckets[0].N[0] == 1 {
		args = append(args, s.askOne(&r.buckets[0], r.priority), s.place+r.known)
		if s.clock != nil {
			args = append(args, strconv.FormatInt(s.clock(), 10))
		}
		r.args = args
		r.cost = r.weight()
		return
	}
	var space [512]byte
	for i := range r.buckets {
		raw := ""
		if r.op != opGCRA && r.op != opHot {
			_, raw = storekey.Format("", r.buckets[i].Key)
		}
		args = append(args, string(appendRequest(space[:0], &r.buckets[i], r.priority, raw, about, r.times)))
		if i == 0 {
			args = append(args, s.place+r.known)
		}
		if i == 0 && r.op != opGCRA && r.op != opHot {
			args = append(args, r.id, r.extra)
		}
	}
	if s.clock != nil {
		args = append(args, strconv.FormatInt(s.clock(), 10))
	}
	r.args = args
	r.cost = r.weight()
}

// asked is what a take of one unit from one limit of kind bucket asks of the script.
type asked struct {
	plan     *store.Plan
	priority int8
	text     string
}

// askOne returns what such a take asks, which it keeps for the next one.
func (s *Store) askOne(b *store.BucketCost, priority int8) string {
	if a := s.asked.Load(); a != nil && a.plan == b.Plan && a.priority == priority {
		return a.text
	}
	a := &asked{b.Plan, priority, string(appendRequest(nil, b, priority, "", 0, nil))}
	s.asked.Store(a)
	return a.text
}

// guess returns an estimate of the server's clock, in Unix µs. It advances with this process's
// monotonic clock, which nobody sets.
func (s *Store) guess() int64 { return s.own() + s.offset.Load() }

// own returns this process's time, in µs.
func (s *Store) own() int64 {
	if s.clock != nil {
		return s.clock()
	}
	return s.made.UnixMicro() + time.Since(s.made).Microseconds()
}

// learn keeps the estimate close to the server's answers.
func (s *Store) learn(now int64) {
	const near = 10_000 // µs: one round trip
	if off := now - s.own(); off-s.offset.Load() > near || s.offset.Load()-off > near {
		s.offset.Store(off)
	}
}
