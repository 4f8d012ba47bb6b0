package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
)

var grantCases = []testCase{
	{
		"another grant of an open id",
		"another grant of an open id is refused with ErrIDOpen, whatever it asks for; the same grant with different content is refused with ErrIDReused", testOtherGrant, false,
	},
	{
		"an earlier grant", "an earlier grant does not settle, cancel or renew a later use of its id", testEarlierGrant,
		false,
	},
	{
		"a replay after the margin",
		"a replay after the margin takes the units again: it is refused if they do not fit, and then nothing changes",
		testLateReplay, false,
	},
	{"not after", "a take that arrives too late opens nothing, and moves nothing", testNotAfter, false},
	{
		"ids used again",
		"no more is in use than the limit allows, and no slot has two holders, whatever is lost, repeated, delayed and reordered", testHistories, false,
	},
}

// granted is hold with a grant.
func (b *bucket) granted(id string, grant store.Grant, d time.Duration, n ...int64) store.Verdict {
	b.e.Helper()
	return b.e.take(store.Take{ID: id, Grant: grant, Hold: d, Buckets: b.costs(n...)})
}

// end carries out a settlement of a grant, and reports whether the grant was open.
func (b *bucket) end(op store.Op, id string, grant store.Grant, n ...int64) bool {
	b.e.Helper()
	return !b.e.settle(store.Settlement{Op: op, ID: id, Grant: grant, Hold: time.Hour, Buckets: b.costs(n...)}).Gone
}

// req: A12
func testOtherGrant(e *env) {
	b := e.bucket("k", rolling(10, time.Hour), slots(2))
	e.allowed("first", b.granted("id", 1, time.Minute, 4, 1))
	for what, c := range map[string]struct {
		grant store.Grant
		n     int64
		want  error
	}{
		"another grant":                     {2, 4, store.ErrIDOpen},
		"another grant, other content":      {2, 5, store.ErrIDOpen},
		"the same grant with other content": {1, 5, store.ErrIDReused},
	} {
		if d := b.granted("id", c.grant, time.Minute, c.n, 1); d.Allowed || !errors.Is(d.Fail, c.want) {
			e.Errorf("%s: allowed %v, error %v, want %v", what, d.Allowed, d.Fail, c.want)
		}
	}
	if d := b.granted("id", 1, time.Minute, 4, 1); !d.Allowed || !d.Replayed {
		e.Errorf("the same take: allowed %v, replayed %v, %v", d.Allowed, d.Replayed, d.Fail)
	}
	b.wantUsed("nothing more", 4, 1)
	other := e.of("other", b.plan)
	d := e.take(store.Take{
		ID: "id", Grant: 2, Hold: time.Minute,
		Buckets: []store.BucketCost{b.cost(1), other.cost(1)},
	})
	if d.Allowed || !errors.Is(d.Fail, store.ErrIDOpen) {
		e.Errorf("open in one of two buckets: allowed %v, error %v", d.Allowed, d.Fail)
	}
}

// req: A12
func testEarlierGrant(e *env) {
	b := e.bucket("job", rolling(10, time.Hour), slots(1))
	e.allowed("first use", b.granted("job-7", 1, time.Hour, 10, 1))
	if !b.end(store.OpSettle, "job-7", 1, 0, 1) {
		e.Error("the first settlement is not carried out")
	}
	e.allowed("second use", b.granted("job-7", 2, time.Hour, 10, 1))
	for _, op := range []store.Op{store.OpSettle, store.OpCancel, store.OpRenew} {
		if b.end(op, "job-7", 1, 0, 0) {
			e.Errorf("%v of the first use reaches the second", op)
		}
	}
	e.refused("a third take", b.granted("job-8", 3, time.Hour, 10, 1), -1)
	b.wantUsed("the second use", 10, 1)
	if !b.end(store.OpCancel, "job-7", 2) {
		e.Error("the second use is gone")
	}
}

func testLateReplay(e *env) {
	const margin = 2 * time.Second
	limit := rolling(10, time.Minute)
	limit.Margin = margin
	b := e.bucket("k", limit)
	e.allowed("first", b.granted("id", 1, time.Hour, 6))
	e.advance(margin)
	if d := b.granted("id", 1, time.Hour, 6); !d.Allowed || !d.Replayed {
		e.Errorf("within the margin: allowed %v, replayed %v", d.Allowed, d.Replayed)
	}
	e.advance(30 * time.Second)
	if d := b.granted("id", 1, time.Hour, 6); !d.Allowed || !d.Replayed {
		e.Errorf("units that fit again: allowed %v, replayed %v", d.Allowed, d.Replayed)
	}
	b.wantUsed("moved, not doubled", 6)
	e.advance(time.Minute - margin)
	b.wantUsed("a minute after the first answer they count: they were moved", 6)
	e.advance(4 * time.Second)
	b.wantUsed("a minute and the margin after the second", 0)
	e.allowed("others", b.take(8))
	d := b.granted("id", 1, time.Hour, 6)
	e.refused("what does not fit again", d, time.Minute+margin)
	b.wantUsed("nothing is changed", 8)
	if !b.end(store.OpCancel, "id", 1) {
		e.Error("a replay that was refused closed the reservation")
	}
}

func testNotAfter(e *env) {
	b := e.bucket("k", rolling(10, time.Minute))
	late := e.now().Add(-tick)
	if d := e.take(store.Take{ID: "id", Grant: 1, Hold: time.Hour, NotAfter: late, Buckets: b.costs(1)}); d.Allowed ||
		!errors.Is(d.Fail, store.ErrTooLate) {
		e.Errorf("allowed %v, error %v", d.Allowed, d.Fail)
	}
	b.wantUsed("a late take opens nothing", 0)
	e.allowed("in time", e.take(store.Take{
		ID: "id", Grant: 1, Hold: time.Hour, NotAfter: e.now().Add(time.Second),
		Buckets: b.costs(1),
	}))
	other := e.bucket("other", rolling(10, time.Minute))
	e.allowed("at the last instant", e.take(store.Take{
		ID: "id", Grant: 2, Hold: time.Hour, NotAfter: e.now(),
		Buckets: other.costs(1),
	}))
	e.advance(30 * time.Second)
	if d := e.take(store.Take{ID: "id", Grant: 1, Hold: time.Hour, NotAfter: late, Buckets: b.costs(1)}); d.Allowed ||
		!errors.Is(d.Fail, store.ErrTooLate) {
		e.Errorf("a late replay: allowed %v, error %v", d.Allowed, d.Fail)
	}
	e.advance(30 * time.Second)
	b.wantUsed("a late replay moves nothing", 0)
}

// Histories of callers who reuse IDs, give up, and whose messages arrive late, twice or never: 500
// in short, 20,000 with DRAWGATE_LONG.
func testHistories(e *env) {
	n := e.histories(500)
	if os.Getenv("DRAWGATE_LONG") != "" {
		n = 20_000
	}
	started := 0
	for seed := range uint64(n) {
		h := newHistory(e, seed)
		for range 40 {
			h.step()
			if h.err != "" {
				e.Fatalf("history %d: %s\n%s", seed, h.err, h.story())
			}
		}
		h.rest()
		if h.err != "" {
			e.Fatalf("history %d: %s\n%s", seed, h.err, h.story())
		}
		started += len(h.uses)
	}
	if started < 3*n {
		e.Errorf("%d units of work in %d histories: it shows too little", started, n)
	}
}

// history is some callers, and a network between them and one bucket of a store.
type history struct {
	*rand.Rand
	e       *env
	b       *bucket
	most    [2]int64 // of slots, of units
	limit   drawgate.Limit
	callers []*caller
	mail    []mail // messages that may still arrive
	uses    []*use
	grants  uint64
	log     []string
	err     string
}

// caller takes, works and settles, again and again.
type caller struct {
	id    string
	grant store.Grant
	state int
	n     int64
	hold  time.Duration
	stop  time.Time // it has stopped by then
	use   *use
}

const (
	idle  = iota
	asked // it asked, and has no answer yet
	works // it has been working since its answer
)

// use is units that were really used.
type use struct {
	at time.Time
	n  int64
}

// mail is a caller's message; from is nil if the caller does not wait for the answer.
type mail struct {
	take   *store.Take
	settle *store.Settlement
	from   *caller
}

func newHistory(e *env, seed uint64) *history {
	h := &history{Rand: rand.New(rand.NewPCG(seed, 77)), e: e}
	h.most = [2]int64{1 + h.Int64N(2), 3 + h.Int64N(5)}
	h.limit = pickOne(h.Rand, rolling(h.most[1], 10*time.Second), leaky(h.most[1], 10*time.Second, h.most[1]),
		calendar(h.most[1], drawgate.Minute, "UTC"))
	if h.limit.Kind == drawgate.Rolling && h.IntN(2) == 0 {
		h.limit.Margin = 500 * time.Millisecond
	}
	h.b = e.bucket(fmt.Sprint("history", seed), slots(h.most[0]), h.limit)
	for range 3 {
		h.callers = append(h.callers, &caller{})
	}
	return h
}

func pickOne[T any](r *rand.Rand, choices ...T) T { return choices[r.IntN(len(choices))] }

func (h *history) note(format string, a ...any) {
	h.log = append(h.log, h.e.now().Format("05.000000 ")+fmt.Sprintf(format, a...))
}

func (h *history) story() string {
	return fmt.Sprintf("%+v, slots %d\n%s", h.limit, h.most[0], join(h.log))
}

func join(lines []string) (s string) {
	for _, l := range lines {
		s += l + "\n"
	}
	return s
}

// step makes one thing happen.
func (h *history) step() {
	c := h.callers[h.IntN(len(h.callers))]
	switch h.IntN(12) {
	case 0, 1:
		h.pass(pickOne(h.Rand, tick, 300*time.Millisecond, time.Second, 3*time.Second, 11*time.Second))
	case 2, 3, 4:
		if c.state == idle {
			h.grants++
			*c = caller{
				id: pickOne(h.Rand, "a", "b"), grant: store.Grant(h.grants), state: asked, n: 1 + h.Int64N(3),
				hold: time.Duration(1+h.IntN(20)) * time.Second,
			}
		}
		fallthrough
	case 5: // the same grant is sent again
		if c.state == asked {
			h.send(mail{take: &store.Take{
				ID: c.id, Grant: c.grant, Hold: c.hold, NotAfter: h.e.now().Add(store.SendLife),
				Buckets: h.b.costs(1, c.n),
			}, from: c})
		}
	case 6:
		h.giveUp(c)
	case 7, 8:
		if c.state == works {
			used := h.Int64N(c.n + 1)
			c.use.n, c.state = used, idle
			h.send(mail{settle: &store.Settlement{
				Op: store.OpSettle, ID: c.id, Grant: c.grant,
				Buckets: h.b.costs(1, used),
			}})
		}
	case 9:
		if c.state == works {
			h.send(mail{settle: &store.Settlement{
				Op: store.OpRenew, ID: c.id, Grant: c.grant, Hold: c.hold,
				Buckets: h.b.costs(),
			}, from: c})
		}
	case 10:
		if len(h.mail) > 0 {
			h.arrive(h.mail[h.IntN(len(h.mail))])
		}
	default:
		if n := h.Int64N(3); n > 0 {
			if d := h.b.take(0, n); d.Allowed {
				h.note("somebody else takes %d", n)
				h.use(n)
			}
		}
	}
}

// giveUp lets a caller stop waiting for its answer: it cancels by its grant.
func (h *history) giveUp(c *caller) {
	if c.state == asked {
		h.note("%s %d gives up", c.id, c.grant)
		c.state = idle
		h.send(mail{settle: &store.Settlement{Op: store.OpCancel, ID: c.id, Grant: c.grant, Buckets: h.b.costs()}})
	}
}

// send gives a message to the network, which may deliver it now, later, or twice.
func (h *history) send(m mail) {
	if h.IntN(3) > 0 {
		h.mail = append(h.mail, m)
	}
	if h.IntN(4) > 0 {
		h.arrive(m)
	}
}

// arrive delivers a message; its answer may be lost.
func (h *history) arrive(m mail) {
	heard := h.IntN(5) > 0
	if m.take != nil {
		d := h.e.take(*m.take)
		h.note("take %s %d: allowed %v, replayed %v, %v, heard %v", m.take.ID, m.take.Grant, d.Allowed, d.Replayed,
			d.Fail, heard)
		if c := m.from; heard && c.grant == m.take.Grant && c.state == asked {
			if !d.Allowed {
				if h.IntN(2) == 0 { // or it asks again
					h.giveUp(c)
				}
				return
			}
			c.state, c.stop, c.use = works, d.HoldEnd(), h.use(c.n)
			h.check()
		}
		return
	}
	out := h.e.settle(*m.settle)
	h.note("%v %s %d: gone %v, heard %v", m.settle.Op, m.settle.ID, m.settle.Grant, out.Gone, heard)
	if c := m.from; heard && c != nil && c.grant == m.settle.Grant && c.state == works {
		if out.Gone {
			c.state = idle // it must stop
		} else if out.End.After(c.stop) {
			c.stop = out.End
		}
	}
}

// pass lets time pass. Callers whose hold is over have stopped by then.
func (h *history) pass(d time.Duration) {
	h.e.advance(d)
	now := h.e.now()
	for _, c := range h.callers {
		if c.state == works && !now.Before(c.stop) {
			h.note("%s %d has stopped", c.id, c.grant)
			c.state = idle
		}
	}
}

// use records units that are used from now on, and checks that the limit allows them.
func (h *history) use(n int64) *use {
	u := &use{h.e.now(), n}
	h.uses = append(h.uses, u)
	sum := int64(0)
	for _, from := range slices.Backward(h.uses) {
		sum += from.n
		span, most := u.at.Sub(from.at), h.most[1]
		switch h.limit.Kind {
		case drawgate.Rolling:
			if span >= h.limit.Window {
				return u
			}
		case drawgate.Bucket:
			most += int64(span) * h.limit.Amount / int64(h.limit.Window)
		default:
			if !from.at.Truncate(time.Minute).Equal(u.at.Truncate(time.Minute)) {
				return u
			}
		}
		if sum > most {
			h.err = fmt.Sprintf("%d units are used within %v, at most %d may be", sum, span, most)
		}
	}
	return u
}

// check counts the holders of slots.
func (h *history) check() {
	holders := int64(0)
	for _, c := range h.callers {
		if c.state == works {
			holders++
		}
	}
	if holders > h.most[0] {
		h.err = fmt.Sprintf("%d callers hold %d slots", holders, h.most[0])
	}
}

// rest lets everything end: nothing is open then, and a message that arrives later opens and gives
// back nothing.
func (h *history) rest() {
	h.pass(2 * time.Minute)
	used := h.b.peek().States[1].Used
	for _, m := range h.mail {
		h.arrive(m)
	}
	if st := h.b.peek(); st.Open != 0 || st.States[1].Used != used {
		h.err = fmt.Sprintf("%d reservations are open at the end, %d units are used that were %d", st.Open,
			st.States[1].Used, used)
	}
}
