package redisstore_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"pgregory.net/rapid"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/redisstore"
)

// This is models/recover/units.py on the script: processes take units of one bucket, whose server
// loses writes, and charge what was lost again. Unit k has 4^k units of the limit, so that what is
// used says how often each counts.

const (
	mostUnits = 18
	mostOlder = 8 // takes of the program of the version before, of 4^mostUnits units each
	amount    = 1_000_000_000_000
)

// unit is what a process was admitted.
type unit struct {
	k      int
	at     int64 // when it was admitted
	stamps []stamp
	grant  store.Grant
	fate   fate
}

// stamp names a write.
type stamp struct {
	mark store.Mark
	last int64
}

// fate is what must be in the record once all is quiet.
type fate uint8

const (
	must fate = iota
	may       // its process has ended
	not       // a reset forgave it
)

// taker is a process that takes units, and recovers those that were lost.
type taker struct {
	units []*unit
	lost  map[*unit]bool
	known store.History // by which they were judged last
	heard bool          // since something was lost
}

// charge is a message to the store.
type charge struct {
	known store.Known
	parts map[store.Grant][]*unit
}

// losing is a bucket on a server that loses writes.
type losing struct {
	*rapid.T
	c        rueidis.Client
	s, older *redisstore.Store
	clock    *fakeClock
	key      string
	bucket   store.BucketCost
	gen      uint64
	past     []map[string]string // what the bucket was after each write since the last loss
	old      []former            // servers that were superseded
	left     []uint64            // generations that it migrated away from
	procs    []*taker
	all      []*unit
	late     *charge
	olders   int
	misses   bool // a program of the version before has written: a loss may be missed
	log      []string
}

type former struct {
	gen  uint64
	past []map[string]string
}

func (l *losing) say(format string, args ...any) {
	l.log = append(l.log, fmt.Sprintf("%d: ", l.clock.now()%1e9)+fmt.Sprintf(format, args...))
}

func (l *losing) fatal(format string, args ...any) {
	l.Fatalf("%s\n%s", fmt.Sprintf(format, args...), join(l.log))
}

// saved notes what the bucket is.
func (l *losing) saved() {
	now, err := l.c.Do(context.Background(), l.c.B().Hgetall().Key(l.key).Build()).AsStrMap()
	if err != nil {
		l.Fatal(err)
	}
	if len(l.past) == 0 || !maps.Equal(l.past[len(l.past)-1], now) {
		l.past = append(l.past, now)
	}
}

// put makes the bucket what it was once, on a server with a generation.
func (l *losing) put(gen uint64, past []map[string]string) {
	ctx := context.Background()
	if err := l.c.Do(ctx, l.c.B().Del().Key(l.key).Build()).Error(); err != nil {
		l.Fatal(err)
	}
	if was := past[len(past)-1]; len(was) > 0 {
		set := l.c.B().Hset().Key(l.key).FieldValue()
		for f, v := range was {
			set = set.FieldValue(f, v)
		}
		if err := l.c.Do(ctx, set.Build()).Error(); err != nil {
			l.Fatal(err)
		}
	}
	l.gen, l.past = gen, slices.Clone(past)
	l.s.SetGeneration(gen)
	l.deafen()
}

func (l *losing) deafen() {
	for _, p := range l.procs {
		p.heard = false
	}
}

// present reports whether what has these stamps is in a record with this history.
func present(stamps []stamp, h *store.History) bool {
	starts := make([]int64, 0, len(h.Epochs)+1)
	for _, e := range h.Epochs {
		starts = append(starts, e.Start)
	}
	if len(h.Epochs) > 0 && pending(*h) {
		starts = append(starts, h.Last)
	}
	for _, st := range stamps {
		i := slices.IndexFunc(h.Epochs, func(e store.Epoch) bool { return e.Mark == st.mark })
		if i < 0 && len(h.Epochs) > 0 && h.Epochs[0].Mark == (store.Mark{}) {
			i = 0
		}
		if i >= 0 && (i+1 == len(starts) || st.last <= starts[i+1]) {
			return true
		}
	}
	return false
}

// hears judges a process's units by an answer.
func (p *taker) hears(h store.History) {
	p.heard = true
	if !h.Listed || h.Known == p.known.Known {
		return
	}
	p.known = h
	p.units = slices.DeleteFunc(p.units, func(u *unit) bool { return u.at < h.Reset })
	p.lost = map[*unit]bool{}
	grant := store.Grant(0)
	for _, u := range p.units {
		if present(u.stamps, &h) {
			continue
		}
		p.lost[u] = true
		if u.grant == 0 {
			if grant == 0 {
				grant = store.Grant(u.k + 1)
			}
			u.grant = grant
		}
	}
}

func (l *losing) take(p *taker) {
	if len(p.lost) > 0 || len(l.all) == mostUnits {
		return
	}
	u := &unit{k: len(l.all)}
	b := l.bucket
	b.N[0] = 1 << (2 * u.k)
	d := take(l.T2(), l.s, store.Take{Buckets: []store.BucketCost{b}, Known: []store.Known{p.known.Known}})
	h := d.Histories[0]
	p.hears(h)
	u.at, u.stamps = d.Now, []stamp{{h.Mark, h.Last}}
	p.units, l.all = append(p.units, u), append(l.all, u)
	l.say("take u%d: %+v", u.k, h)
}

// T2 returns the test for helpers that want a testing.TB.
func (l *losing) T2() testing.TB { return tb{TB: nil, t: l.T} }

// tb is a rapid.T as a testing.TB.
type tb struct {
	testing.TB
	t *rapid.T
}

func (b tb) Helper()                  {}
func (b tb) Context() context.Context { return context.Background() }
func (b tb) Fatal(args ...any)        { b.t.Fatal(args...) }

// hear makes a process hear an answer that writes nothing: a refusal, if something is used, or a
// look.
func (l *losing) hear(p *taker) {
	var out [1]store.State
	known := []store.Known{p.known.Known}
	if err := l.s.PeekKnown(context.Background(), []store.BucketCost{l.bucket}, 0, known, out[:]); err != nil {
		l.Fatal(err)
	}
	h := out[0].Histories[0]
	if out[0].States[0].Used > 0 {
		b := l.bucket
		b.N[0] = amount
		h = take(l.T2(), l.s, store.Take{Buckets: []store.BucketCost{b}, Known: known}).Histories[0]
	}
	l.say("hears %+v", h)
	p.hears(h)
}

// send carries out a charge. It returns the history.
func (l *losing) send(c *charge) (h store.History) {
	for _, grant := range slices.Sorted(maps.Keys(c.parts)) {
		part := store.Lost{From: l.clock.now(), Until: l.clock.now() + 3600e6}
		for _, u := range c.parts[grant] {
			part.N[0] += 1 << (2 * u.k)
			part.From = min(part.From, u.at)
		}
		h = settle(l.T2(), l.s, store.Settlement{
			Op: store.OpCharge, At: time.UnixMicro(l.clock.now()), Buckets: []store.BucketCost{l.bucket},
			Known:    []store.Known{c.known},
			Recovery: &store.Recovery{Grant: grant, Parts: []store.Lost{part}},
		}).Histories[0]
		l.say("charge under %d: %+v", grant, h)
		if h.Unmet {
			return h
		}
		// What follows is judged by the same answer: this charge may have drawn the pending mark.
		if h.Listed {
			c.known = h.Known
		}
		for _, u := range c.parts[grant] {
			u.stamps = append(u.stamps[:1:1], stamp{h.Mark, h.Last})
		}
	}
	return h
}

func (l *losing) recover(p *taker) {
	if len(p.lost) == 0 {
		return
	}
	c := &charge{known: p.known.Known, parts: map[store.Grant][]*unit{}}
	for u := range p.lost {
		c.parts[u.grant] = append(c.parts[u.grant], u)
		if len(c.parts) > 1 { // one grant per message
			delete(c.parts, u.grant)
		}
	}
	switch rapid.IntRange(0, 4).Draw(l.T, "message") {
	case 0:
		if l.late == nil {
			l.late = c
			l.say("a late charge")
		}
		return
	case 1:
		stamps := map[*unit][]stamp{}
		for _, us := range c.parts {
			for _, u := range us {
				stamps[u] = u.stamps
			}
		}
		l.send(c)
		for u, was := range stamps { // the answer is lost
			u.stamps = was
		}
		l.say("  whose answer is lost")
		return
	}
	h := l.send(c)
	if !h.Unmet {
		for _, us := range c.parts {
			for _, u := range us {
				delete(p.lost, u)
			}
		}
		if h.Listed && len(p.lost) == 0 {
			p.known = store.History{Known: h.Known}
			p.known.Known = store.Known{} // judge all by the next answer
		}
	}
	p.hears(h)
}

func (l *losing) event() {
	gens := func() uint64 { return uint64(100 + len(l.log)) }
	l.clock.us.Add(1) // a bucket is not lost and made again within a microsecond
	switch rapid.SampledFrom([]string{
		"loss", "loss", "evict", "back", "migrate", "reset", "restart", "older", "late",
	}).Draw(l.T, "event") {
	case "loss":
		n := rapid.IntRange(1, len(l.past)).Draw(l.T, "to")
		l.old = append(l.old, former{l.gen, l.past})
		l.put(gens(), l.past[:n])
		l.say("fail-over to write %d, generation %d", n, l.gen)
	case "evict":
		l.put(l.gen, []map[string]string{nil})
		l.say("evicted")
	case "back":
		if len(l.old) > 0 {
			i := rapid.IntRange(0, len(l.old)-1).Draw(l.T, "which")
			f := l.old[i]
			l.old = append(slices.Delete(l.old, i, i+1), former{l.gen, l.past})
			l.put(f.gen, f.past)
			l.say("generation %d is back", f.gen)
		}
	case "migrate":
		gen := rapid.SampledFrom(append(slices.Clone(l.left), gens())).Draw(l.T, "to")
		l.left = append(l.left, l.gen)
		l.put(gen, l.past[len(l.past)-1:])
		l.say("migrated to generation %d", gen)
	case "reset":
		if len(l.past[len(l.past)-1]) == 0 {
			return
		}
		if err := l.s.Reset(context.Background(), []store.Key{l.bucket.Key}); err != nil {
			l.Fatal(err)
		}
		for _, u := range l.all {
			if u.fate == must {
				u.fate = not
			}
		}
		l.deafen()
		l.say("reset")
	case "restart":
		i := rapid.IntRange(0, len(l.procs)-1).Draw(l.T, "who")
		for _, u := range l.procs[i].units {
			u.fate = may
		}
		l.procs[i] = &taker{heard: true}
		l.say("P%d restarts", i)
	case "older":
		if l.older != nil && l.olders < mostOlder {
			b := l.bucket
			b.N[0] = 1 << (2 * mostUnits)
			take(l.T2(), l.older, store.Take{Buckets: []store.BucketCost{b}})
			l.olders++
			l.misses = true
			l.say("the version before takes")
		}
	case "late":
		if l.late != nil {
			stamps := map[*unit][]stamp{}
			for _, us := range l.late.parts {
				for _, u := range us {
					stamps[u] = u.stamps
				}
			}
			l.say("the late charge arrives")
			l.send(l.late)
			for u, was := range stamps { // nobody hears the answer
				u.stamps = was
			}
			l.late = nil
		}
	}
}

// check checks how often each unit counts.
func (l *losing) check() {
	var out [1]store.State
	asked, knows := []store.BucketCost{l.bucket}, make([]store.Known, 1)
	if err := l.s.PeekKnown(context.Background(), asked, 0, knows, out[:]); err != nil ||
		out[0].Fail != nil {
		l.fatal("%v %v", err, out[0].Fail)
	}
	quiet := l.late == nil && !l.misses
	for _, p := range l.procs {
		quiet = quiet && p.heard && len(p.lost) == 0
	}
	used, reset := out[0].States[0].Used, out[0].Histories[0].Reset
	for _, u := range l.all {
		switch n := used >> (2 * u.k) & 3; {
		case n > 1:
			l.fatal("u%d counts %d times", u.k, n)
		case n == 0 && u.fate == must && quiet:
			l.fatal("u%d is missing", u.k)
		case n == 1 && u.fate == not && u.at < reset:
			l.fatal("u%d was forgiven, and charged", u.k)
		}
	}
}

// TestLostUnitsCountOnce: whatever the server loses, no unit counts twice; and once every process
// has had an answer and has charged what was lost, each unit of a living process counts.
func TestLostUnitsCountOnce(t *testing.T) {
	needs.NoRace(t) // one goroutine
	t.Parallel()
	before, err := os.ReadFile("testdata/script-before.lua")
	if err != nil {
		t.Fatal(err)
	}
	conn := client(t, redistest.Start(t))
	plan := compile(t, "p", drawgate.Limit{
		Name: "r", Kind: drawgate.Rolling, Window: 24 * time.Hour, Amount: amount, Precision: 128,
	})
	rapid.Check(t, func(rt *rapid.T) {
		clock, keys := newClock(), prefix()
		b := takeOf(plan, "k").Buckets[0]
		l := &losing{
			T: rt, c: conn, clock: clock, bucket: b, key: redisstore.KeyOf(keys, b.Key), gen: 1,
			s: redisstore.NewWithClock(conn, &redisstore.Options{Prefix: keys}, clock.now).Strictly(),
		}
		if rapid.IntRange(0, 3).Draw(rt, "older") == 0 {
			older := redisstore.NewWithClock(conn, &redisstore.Options{Prefix: keys, NoBatches: true}, clock.now)
			l.older = older.AsBefore(string(before))
		}
		l.s.SetGeneration(1)
		for range rapid.IntRange(1, 3).Draw(rt, "processes") {
			l.procs = append(l.procs, &taker{heard: true})
		}
		l.saved()
		for range rapid.IntRange(5, 60).Draw(rt, "steps") {
			clock.us.Add(rapid.SampledFrom([]int64{0, 1, 1000}).Draw(rt, "µs"))
			p := rapid.SampledFrom(l.procs).Draw(rt, "process")
			switch rapid.IntRange(0, 6).Draw(rt, "step") {
			case 0, 1:
				l.take(p)
			case 2:
				l.hear(p)
			case 3, 4:
				l.recover(p)
			default:
				l.event()
			}
			l.saved()
			l.check()
		}
	})
}
