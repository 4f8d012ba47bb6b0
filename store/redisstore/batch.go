package redisstore

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
)

// Batch describes a call that carried several requests.
type Batch struct {
	Requests int
	Took     time.Duration // from sending it to its answer
}

// batch is one call for the requests of several callers, or for several of one caller.
type batch struct {
	jobs    []*job
	keys    []string
	args    []string
	groups  []alike
	buckets []uint16 // of the groups: places of keys and arguments
	weight  int      // ns for which it may keep the server busy
	room    [1]rueidis.RedisResult

	keyAt map[string]int // place in keys
	last  []int          // per key the last group with it
	argAt map[string]int // place in args

	waiting atomic.Int64 // callers that have not left
	cancel  atomic.Pointer[context.CancelFunc]
	counted atomic.Bool // its failure, by whoever counts failures
}

// alike are requests of the same bucket that ask for exactly the same: of a hot key's takes only
// the first one is sent, with their number.
type alike struct {
	op          string
	first, last *request
	n           int
	from, to    int // in batch.buckets
}

// mostHeld bounds for how long a batch keeps the server busy, in ns, according to the weights
// below: what the script needed in batches on Redis 6.2 and two cores of a virtual Xeon of 2026
// (processor time of the server by /proc, the least of three rounds).
const mostHeld = 1_000_000

// Weights of requests, in ns of the server's time.
const (
	weightPlain  = 4_000  // a plain take from one limit of kind bucket
	weightSame   = 250    // another one that asks for the same
	weightShort  = 3_000  // a plain take from one bucket, and
	weightLimit  = 2_500  // each of its limits
	weightLong   = 35_000 // any other request, and
	weightBucket = 30_000 // each of its buckets
	weightNext   = 10_000 // each waiter that it names behind it
)

// weight is what a request weighs.
func (r *request) weight() int {
	switch r.op {
	case opGCRA:
		return weightPlain
	case opHot, opWait:
		return weightShort + weightLimit*len(store.Internal.Specs(r.buckets[0].Plan, false))
	}
	w := weightLong + weightBucket*len(r.buckets)
	if r.take != nil && r.take.Ticket != nil {
		w += weightNext * len(r.take.Ticket.Next)
	}
	return w
}

// piece says how many of the first requests fit into a batch. One that is to stay with the next one
// does, even if the two are more than a batch may be.
func piece(reqs []*request) int {
	sum := 0
	for i, r := range reqs {
		if sum += r.weight(); sum <= mostHeld || i == 0 {
			continue
		}
		if !reqs[i-1].stays {
			return i
		}
		if i > 1 {
			return i - 1
		}
	}
	return len(reqs)
}

func newBatch() *batch {
	return &batch{keyAt: map[string]int{}, argAt: map[string]int{}}
}

var jobs = sync.Pool{New: func() any { return &job{ready: make(chan struct{}, 1)} }}

func newJob(op string, reqs []*request) *job {
	j := jobs.Get().(*job)
	j.op, j.reqs = op, reqs
	return j
}

// free lets others use a job that was answered.
func (j *job) free() {
	j.reqs, j.lane, j.batch, j.err, j.alone = nil, nil, nil, nil, false
	j.state.Store(gathering)
	jobs.Put(j)
}

// add adds a job, unless its caller has left. It returns false if it does not fit any more.
func (b *batch) add(j *job) bool {
	w := 0
	for _, r := range j.reqs {
		if r.op == opGCRA && b.same(r) >= 0 {
			w += weightSame
		} else {
			w += r.cost
		}
	}
	if b.weight+w > mostHeld && len(b.jobs) > 0 {
		return false
	}
	j.batch = b
	b.waiting.Add(1)
	if !j.state.CompareAndSwap(gathering, inBatch) {
		b.waiting.Add(-1)
		return true
	}
	b.weight += w
	b.jobs = append(b.jobs, j)
	for _, r := range j.reqs {
		b.put(r)
	}
	return true
}

// same returns the group that a request joins, or -1. There is none between them with the same
// bucket, so that the order of what happens to a bucket stays.
func (b *batch) same(r *request) int {
	if r.op != opGCRA && r.op != opHot {
		return -1
	}
	k, ok := b.keyAt[r.keys[0]]
	if !ok {
		return -1
	}
	i := b.last[k]
	if g := &b.groups[i]; g.op == r.op && g.n < math.MaxUint16 && g.first.args[1] == r.args[1] &&
		g.first.known == r.known {
		return i
	}
	return -1
}

func (b *batch) put(r *request) {
	r.next = nil
	if i := b.same(r); i >= 0 {
		g := &b.groups[i]
		g.last.next, g.last = r, r
		g.n++
		return
	}
	g := alike{op: r.op, first: r, last: r, n: 1, from: len(b.buckets)}
	for i, key := range r.keys {
		k, ok := b.keyAt[key]
		if !ok {
			k = len(b.keys)
			b.keyAt[key] = k
			b.keys, b.last = append(b.keys, key), append(b.last, 0)
		}
		b.last[k] = len(b.groups)
		ask := r.args[1]
		if i > 0 {
			ask = r.args[4+i]
		}
		b.buckets = append(b.buckets, uint16(k+1), b.arg(ask))
	}
	if r.op != opGCRA && r.op != opHot {
		b.buckets = append(b.buckets, b.arg(r.args[3]), b.arg(r.args[4]))
	}
	whom := uint16(0)
	if r.known != "" {
		whom = b.arg(r.known)
	}
	b.buckets = append(b.buckets, whom)
	g.to = len(b.buckets)
	b.groups = append(b.groups, g)
}

// arg returns the place of an argument of the script.
func (b *batch) arg(text string) uint16 {
	k, ok := b.argAt[text]
	if !ok {
		k = len(b.args)
		b.argAt[text] = k
		b.args = append(b.args, text)
	}
	return uint16(k + 4)
}

// request returns the batch as one call of the script.
func (b *batch) request(s *Store) *request {
	buf := make([]byte, 0, 8*len(b.groups)+2*len(b.buckets))
	for i := range b.groups {
		g := &b.groups[i]
		buf = append(buf, g.op[0])
		buf = append(binary.LittleEndian.AppendUint16(buf, uint16(g.n)), byte(len(g.first.keys)))
		for _, n := range b.buckets[g.from:g.to] {
			buf = binary.LittleEndian.AppendUint16(buf, n)
		}
	}
	args := make([]string, 0, len(b.args)+4)
	args = append(append(args, opBatch, string(buf), s.place), b.args...)
	if s.clock != nil {
		args = append(args, strconv.FormatInt(s.clock(), 10))
	}
	return &request{call: call{keys: b.keys, args: args}}
}

// requests returns how many requests the batch has.
func (b *batch) requests() (n int) {
	for i := range b.groups {
		n += b.groups[i].n
	}
	return n
}

// left notes that a caller no longer waits for an answer. A call that nobody waits for ends.
func (b *batch) left() {
	if b.waiting.Add(-1) == 0 {
		if cancel := b.cancel.Load(); cancel != nil {
			(*cancel)()
		}
	}
}

// failed marks an error of one of the callers as the batch's: together they are one failure.
func (b *batch) failed(err error) error {
	if se, ok := errors.AsType[*store.Error](err); ok {
		return store.Internal.Shared(se, &b.counted)
	}
	return err
}

// send carries out a batch, and answers its callers.
func (s *Store) send(ctx context.Context, c rueidis.Client, b *batch) {
	r, start := b.request(s), time.Now()
	err := s.hand(b, &s.run(ctx, c, []*request{r}, b.room[:])[0])
	alone := err != nil && onlyTogether(err)
	if s.batched != nil {
		s.batched(Batch{b.requests(), time.Since(start)})
	}
	for _, j := range b.jobs {
		switch {
		case alone:
			j.alone = true
		case err != nil:
			j.err = b.failed(failure(j.op, err, b.keys))
		}
		j.ready <- struct{}{}
	}
}

// errApart means that nothing was done about a batch, and that its requests have to be sent one by
// one.
var errApart = errors.New("the batch has to be taken apart")

// onlyTogether reports whether an error may be that of one of the requests alone, or of their being
// together. Nothing was done then.
func onlyTogether(err error) bool {
	if errors.Is(err, errApart) {
		return true
	}
	re, ok := rueidis.IsRedisErr(err)
	if !ok {
		return false
	}
	for _, word := range [...]string{"CROSSSLOT", "TRYAGAIN", "MOVED", "ASK"} {
		if strings.Contains(re.Error(), word) {
			return true
		}
	}
	return faultOf(re.Error()) == store.FaultBucket
}

// hand hands the requests of a batch their answers.
func (s *Store) hand(b *batch, res *rueidis.RedisResult) error {
	parts, err := res.ToArray()
	if err != nil {
		return err
	}
	if len(parts) < 3 {
		return errAnswer
	}
	code, err := parts[0].AsInt64()
	if err != nil {
		return errAnswer
	}
	now, err := parts[1].AsInt64()
	if err != nil {
		return errAnswer
	}
	s.learn(now)
	switch code {
	case gotWindows:
		return errApart
	case gotPartly:
		text, _ := parts[2].ToString()
		return errors.New(text) // of which nobody knows what was done
	case gotBatch:
	default:
		return errAnswer
	}
	short, err := parts[2].ToString()
	if err != nil {
		return errAnswer
	}
	return b.deal(reader{buf: short}, parts[3:])
}

// deal deals out the answers: per group how many of its takes were allowed and what was used
// before, or the number of answers that are among the others. If these are fewer than its requests,
// the last one is that of the rest.
func (b *batch) deal(short reader, others []rueidis.RedisMessage) error {
	for i := range b.groups {
		r := b.groups[i].first
		if kind := short.byte(); kind > 0 {
			stored := reader{buf: short.bytes(16)} // a damaged bucket's numbers are no matter of others
			used, now := stored.num(), stored.num()
			allowed, past := short.short(), ""
			if kind > 1 {
				past = short.bytes(short.short())
			}
			for ; r != nil; r = r.next {
				r.got = got{plain: true, now: now, bad: stored.bad, past: past}
				if allowed > 0 {
					allowed--
					used = min(used+r.step, maxUsed)
					r.got.allowed = true
				}
				r.got.used = used
			}
			continue
		}
		n := short.short()
		if n < 1 || n > len(others) {
			return errAnswer
		}
		for k := 0; r != nil; r = r.next {
			r.got = got{msg: &others[k]}
			k = min(k+1, n-1)
		}
		others = others[n:]
	}
	if short.bad || len(short.buf) > 0 || len(others) > 0 {
		return errAnswer
	}
	return nil
}

// maxUsed is the largest number of a record.
const maxUsed = 1<<53 - 1

// got is a request's part of a batch's answer.
type got struct {
	msg *rueidis.RedisMessage // as though it had been a call of its own
	// of a plain take from one limit of kind bucket instead:
	plain, allowed bool
	bad            bool // the record cannot be read
	used, now      int64
	past           string
}

// readAnswer reads a request's part of a batch's answer.
func (s *Store) readAnswer(r *request) error {
	if r.got.plain {
		return s.answerPlain(r)
	}
	r.msg = *r.got.msg
	return s.readMessage(r)
}

// answerPlain answers a plain take from one limit of kind bucket: what was used after it, or before
// it was refused, is the whole record.
func (s *Store) answerPlain(r *request) error {
	g, spec := &r.got, &store.Internal.Specs(r.buckets[0].Plan, false)[0]
	if g.bad {
		return errDamaged
	}
	if r.known != "" {
		h, err := readPast(g.past, r.knows[0])
		if err != nil {
			return err
		}
		h.Wrote = g.allowed
		defer func() { *r.histories = []store.History{h} }() // the verdict is set before
	}
	if !g.allowed {
		st := &stored{}
		st.rec.Last = g.now
		st.rec.Limits = append(st.oneState[:0], record.State{
			ID: spec.ID, Kind: record.Bucket, Used: g.used, At: g.now,
			Rate: spec.Rate, Window: spec.Window, Scale: spec.Scale,
		})
		return refusal(r.take, r.verdict, []*stored{st}, nil, g.now)
	}
	left := spec.Left(g.used, g.now, r.take.Priority)
	*r.verdict = store.Verdict{Allowed: true, Now: g.now}
	r.verdict.First.Limits[0] = store.Result{Remaining: left.Remaining, ResetAt: left.ResetAt}
	return nil
}
