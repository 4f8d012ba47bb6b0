package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
)

var bookCases = []testCase{
	{
		"granted ahead",
		"a take is granted for the first instant at which it fits, if that is near enough, and counts from that instant", testAhead, false,
	},
	{"not ahead", "slots, leases and windows after the next one are not granted ahead", testNotAhead, false},
	{
		"ahead before an edge",
		"a take is granted ahead in its calendar window if the next one, which its margin reaches, has room as well",
		testAheadBeforeEdge, false,
	},
	{
		"cancelled ahead",
		"what is given back before its instant is free, except where grants for later instants rely on it",
		testCancelAhead, false,
	},
	{"bookings", "whatever is booked, cancelled and taken, no interval has more than its limit", testBookings, false},
}

// ahead takes n units now or up to most ahead. The grant can be cancelled until then.
func (b *bucket) ahead(id string, grant store.Grant, most time.Duration, n ...int64) store.Verdict {
	b.e.Helper()
	return b.e.take(store.Take{ID: id, Grant: grant, Hold: time.Millisecond, Ahead: most, Buckets: b.costs(n...)})
}

// req: A5
func testAhead(e *env) {
	b := e.bucket("k", leaky(1, time.Second, 1))
	for i := range 4 {
		d := b.ahead(fmt.Sprint(i), 1, 3*time.Second, 1)
		e.allowed(fmt.Sprint("booking ", i), d)
		if want := time.Duration(i) * time.Second; d.Delay() != want {
			e.Errorf("booking %d: in %v, want %v", i, d.Delay(), want)
		}
	}
	e.refused("further ahead", b.ahead("4", 1, 4*time.Second-tick, 1), -1)
	e.refused("now", b.take(1), 4*time.Second)
	e.advance(3 * time.Second)
	e.refused("when the last one starts", b.take(1), time.Second)
	e.advance(time.Second)
	e.allowed("a second later", b.take(1))

	r := e.bucket("rolling", rolling(2, time.Minute))
	e.allowed("two", r.take(2))
	d := r.ahead("r", 1, time.Minute, 1)
	e.allowed("when they expire", d)
	if d.Delay() != time.Minute {
		e.Errorf("in %v, want a minute", d.Delay())
	}
	e.advance(2*time.Minute - tick)
	r.wantUsed("a minute after it started, but for a tick", 1)
	e.advance(tick)
	r.wantUsed("a minute after it started", 0)
}

func testNotAhead(e *env) {
	b := e.bucket("slots", slots(1))
	e.allowed("the slot", b.hold("a", time.Minute, 1))
	e.refused("a slot ahead", b.ahead("b", 1, time.Hour, 1), -1)
	l := e.bucket("lease", leaky(1, time.Second, 1))
	e.allowed("the unit", l.take(1))
	e.refused("a lease ahead", e.take(store.Take{
		ID: "l", Hold: time.Minute, Lease: true, Ahead: time.Hour,
		Buckets: l.costs(1),
	}), -1)
	c := e.bucket("calendar", calendar(1, drawgate.Minute, "UTC"))
	e.until(nextEdge(e.now(), drawgate.Minute, "UTC", 1))
	e.allowed("this minute", c.take(1))
	d := c.ahead("c", 1, time.Hour, 1)
	e.allowed("the next one", d)
	if d.Delay() != time.Minute {
		e.Errorf("in %v, want a minute", d.Delay())
	}
	e.refused("the one after", c.ahead("d", 1, time.Hour, 1), -1)
	e.advance(time.Minute)
	e.refused("when it has come", c.take(1), time.Minute)
}

func testAheadBeforeEdge(e *env) {
	minute := calendar(10, drawgate.Minute, "UTC")
	minute.Margin = 2 * time.Second
	b := e.bucket("k", minute, leaky(1, 100*time.Millisecond, 1))
	e.until(nextEdge(e.now(), drawgate.Minute, "UTC", 1).Add(time.Minute - time.Second))
	e.allowed("four of ten in both windows", b.take(4, 1))
	d := b.ahead("a", 1, time.Minute, 6, 1)
	e.allowed("the other six", d)
	if d.Delay() != 100*time.Millisecond {
		e.Errorf("in %v, want as soon as the bucket has room", d.Delay())
	}
	e.refused("one more", b.ahead("b", 2, time.Minute, 1, 1), -1)
}

func testCancelAhead(e *env) {
	b := e.bucket("k", leaky(3, 3*time.Second, 3))
	e.allowed("all", b.take(3))
	e.allowed("first", b.ahead("a", 1, time.Minute, 3))
	e.allowed("second", b.ahead("b", 2, time.Minute, 3))
	if !b.end(store.OpCancel, "a", 1) {
		e.Error("a booking cannot be cancelled")
	}
	e.advance(6 * time.Second)
	// what was cancelled must not drain in its place
	e.refused("beside the second, which has just started", b.take(1), -1)
	c := e.bucket("last", leaky(3, 3*time.Second, 3))
	e.allowed("all", c.take(3))
	e.allowed("the only booking", c.ahead("a", 1, time.Minute, 3))
	c.end(store.OpCancel, "a", 1)
	e.advance(3 * time.Second)
	e.allowed("what was cancelled", c.take(3))
}

func testBookings(e *env) {
	n, started, ahead := e.histories(150), 0, 0
	for seed := range uint64(n) {
		h := newBookings(e, seed)
		for range 40 {
			h.step()
		}
		if text := h.over(); text != "" {
			e.Fatalf("history %d, %+v: %s", seed, h.limit, text)
		}
		for _, u := range h.uses {
			if u.n > 0 {
				started++
			}
			if u.ahead {
				ahead++
			}
		}
	}
	if started < 3*n || ahead < n/2 {
		e.Errorf("%d pieces of work, %d of them booked: it shows too little", started, ahead)
	}
}

// bookings is a random history of one bucket.
type bookings struct {
	*rand.Rand
	e     *env
	limit drawgate.Limit
	b     *bucket
	uses  []*bookedUse
}

type bookedUse struct {
	at    time.Time
	n     int64
	id    string
	ahead bool
}

func newBookings(e *env, seed uint64) *bookings {
	h := &bookings{Rand: rand.New(rand.NewPCG(seed, 78)), e: e}
	n := 2 + h.Int64N(5)
	h.limit = pickOne(h.Rand, rolling(n, 10*time.Second), joined(n, 10*time.Second, 100),
		leaky(n, 10*time.Second, 1+h.Int64N(n)), calendar(n, drawgate.Minute, "UTC"))
	h.b = e.bucket(fmt.Sprint("booked", seed), h.limit)
	return h
}

func (h *bookings) step() {
	n, most := 1+h.Int64N(3), pickOne(h.Rand, tick, time.Second, 5*time.Second, 20*time.Second, 2*time.Minute)
	switch h.IntN(6) {
	case 0:
		h.e.advance(pickOne(h.Rand, tick, 400*time.Millisecond, 3*time.Second, 9*time.Second))
	case 1, 2, 3:
		id := fmt.Sprint(len(h.uses))
		if d := h.b.ahead(id, 1, most, n); d.Allowed {
			h.uses = append(h.uses, &bookedUse{d.At().Add(d.Delay()), n, id, d.Delay() > 0})
		}
	case 4:
		d := h.e.take(store.Take{Ahead: pickOne(h.Rand, 0, 10*time.Millisecond), Buckets: h.b.costs(n)})
		if d.Allowed {
			h.uses = append(h.uses, &bookedUse{d.At().Add(d.Delay()), n, "", d.Delay() > 0})
		}
	default:
		if len(h.uses) == 0 {
			return
		}
		u := h.uses[h.IntN(len(h.uses))]
		if u.id != "" && u.n > 0 && h.e.now().Before(u.at) && h.b.end(store.OpCancel, u.id, 1) {
			u.n = 0
		}
	}
}

// over returns a description of an interval that has more than the limit allows, or "".
func (h *bookings) over() string {
	slices.SortFunc(h.uses, func(a, b *bookedUse) int { return a.at.Compare(b.at) })
	for i, from := range h.uses {
		sum := int64(0)
		for _, to := range h.uses[i:] {
			sum += to.n
			span, most := to.at.Sub(from.at), h.limit.Amount
			switch h.limit.Kind {
			case drawgate.Rolling:
				if span >= h.limit.Window {
					continue
				}
			case drawgate.Bucket:
				most = h.limit.Burst + int64(span)*h.limit.Amount/int64(h.limit.Window)
			default:
				if !from.at.Truncate(time.Minute).Equal(to.at.Truncate(time.Minute)) {
					continue
				}
			}
			if sum > most {
				return fmt.Sprintf("%d units within %v, at most %d may be", sum, span, most)
			}
		}
	}
	return ""
}
