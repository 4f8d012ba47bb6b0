package redisstore_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/redis/rueidis"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/model"
	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/redisstore"
)

// waiting returns a take with a ticket.
func waiting(t store.Take, number uint64) store.Take {
	t.Ticket = &store.Ticket{Number: number}
	return t
}

// withdraw removes a waiter's ticket from a bucket.
func withdraw(tb testing.TB, s *redisstore.Store, number uint64, key store.Key) {
	tb.Helper()
	if err := s.Withdraw(tb.Context(), number, []store.Key{key}); err != nil {
		tb.Fatal(err)
	}
}

// lineOf returns the line of a take's first bucket.
func lineOf(tb testing.TB, s *redisstore.Store, t store.Take) *record.Line {
	tb.Helper()
	l, err := s.Line(tb.Context(), t.Buckets[0].Key)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// oneIn returns a plan of one unit in a window.
func oneIn(tb testing.TB, name string, window time.Duration) *store.Plan {
	tb.Helper()
	return compile(tb, name, drawgate.Limit{
		Name: "r", Kind: drawgate.Rolling, Window: window, Amount: 1, Precision: drawgate.Exact,
	})
}

// TestKeyLivesAsLongAsItsLine: a line in a bucket that was never used, and one whose record is
// about to expire, live until a minute after the last ticket ends, and no key stays for ever.
//
// req: A7, C5
func TestKeyLivesAsLongAsItsLine(t *testing.T) {
	t.Parallel()
	c, clock := client(t, redistest.Start(t)), newClock()
	s := redisstore.NewWithClock(c, nil, clock.now)
	long, short := oneIn(t, "long", time.Minute), oneIn(t, "short", 50*time.Second)
	used := takeOf(long, "used", 1)
	take(t, s, used)
	clock.advance(119 * time.Second) // the record needs its key for a minute, and has it for two
	take(t, s, takeOf(short, "k", 1))
	for _, name := range []string{"unused", "used"} {
		both := takeOf(long, name, 1)
		both.Buckets = append(both.Buckets, takeOf(short, "k", 1).Buckets...)
		if d := take(t, s, waiting(both, 7)); d.Allowed || d.Arrival != clock.now() {
			t.Fatalf("%+v", d)
		}
		if l := lineOf(t, s, both); len(l.Tickets) != 1 {
			t.Fatalf("%s: the line is %+v", name, l)
		}
		ttl := pttl(t, c, redisstore.KeyOf("drawgate", both.Buckets[0].Key))
		if ttl < 64*time.Second || ttl > 66*time.Second {
			t.Errorf("%s: the key lives for %v, and its line for 5s", name, ttl)
		}
	}
}

// TestLineOutlivesItsRecord: a record that is emptied because all of its entries have expired, and
// one that is reset, leave the line as it is.
//
// req: C5
func TestLineOutlivesItsRecord(t *testing.T) {
	t.Parallel()
	c, clock := client(t, redistest.Start(t)), newClock()
	s := redisstore.NewWithClock(c, nil, clock.now)
	plan := compile(t, "p", drawgate.Limit{
		Name: "r", Kind: drawgate.Rolling, Window: 3 * time.Second, Amount: 3, Precision: drawgate.Exact,
	})
	for range 3 {
		take(t, s, takeOf(plan, "k", 1))
		clock.advance(time.Millisecond)
	}
	ask := waiting(takeOf(plan, "k", 2), 7)
	take(t, s, ask)
	want := lineOf(t, s, ask)
	if len(want.Tickets) != 1 {
		t.Fatalf("the line is %+v", want)
	}
	clock.advance(3 * time.Second)
	barge := takeOf(plan, "k", 1)
	barge.Barge = true
	if d := take(t, s, barge); !d.Allowed {
		t.Fatal("refused")
	}
	same := func(when string) {
		t.Helper()
		if diff := cmp.Diff(want, lineOf(t, s, ask), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s:\n%s", when, diff)
		}
	}
	same("after all entries had expired")
	if err := s.Reset(t.Context(), []store.Key{ask.Buckets[0].Key}); err != nil {
		t.Fatal(err)
	}
	same("after a reset")
	if d := take(t, s, takeOf(plan, "k", 2)); d.Allowed || d.Reason != store.Queued {
		t.Errorf("%+v, want it to leave its units to the ticket", d)
	}
	if d := take(t, s, ask); !d.Allowed {
		t.Errorf("the ticket's own take was refused: %v", d.Reason)
	}
}

// TestDamagedLineIsNone: bytes that cannot be read are no line, and go away.
//
// req: C5
func TestDamagedLineIsNone(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s, c := open(t, server, nil), client(t, server)
	plan, key := oneIn(t, "p", time.Minute), func(name string) string {
		return redisstore.KeyOf("drawgate", store.Key{Policy: "p", Name: name})
	}
	take(t, s, waiting(takeOf(plan, "good", 1), 1))
	if d := take(t, s, waiting(takeOf(plan, "good", 1), 2)); d.Allowed {
		t.Fatal("granted")
	}
	good, err := c.Do(t.Context(), c.B().Hget().Key(key("good")).Field("l").Build()).ToString()
	if err != nil {
		t.Fatal(err)
	}
	nan := "\x00\x00\x00\x00\x00\x00\xf8\x7f"
	for name, text := range map[string]string{
		"empty": "", "short": good[:len(good)-1], "long": good + "x", "other format": "\x02" + good[1:],
		"no number": good[:18] + nan + good[26:], "many tickets": good[:9] + "\xff" + good[10:],
		"no priority": good[:34] + "\x0a" + good[35:], "no end": good[:1] + nan + good[9:],
		"text": strings.Repeat("no line ", 9),
	} {
		for _, kind := range []string{" by a plain take", " by a waiter"} {
			name += kind
			set := c.B().Hset().Key(key(name)).FieldValue()
			damage := set.FieldValue("l", rueidis.BinaryString([]byte(text))).Build()
			if err := c.Do(t.Context(), damage).Error(); err != nil {
				t.Fatal(err)
			}
			tk := takeOf(plan, name, 1)
			if kind == " by a waiter" {
				tk = waiting(tk, 3)
			}
			if d := take(t, s, tk); !d.Allowed {
				t.Errorf("%s: refused: %v", name, d.Reason)
			}
			n, err := c.Do(t.Context(), c.B().Hstrlen().Key(key(name)).Field("l").Build()).AsInt64()
			if err != nil || n > 0 {
				t.Errorf("%s: %d bytes are left, %v", name, n, err)
			}
		}
	}
}

// TestTicketsAreBounded: of many waiters the 64 that come first have tickets, in their order.
//
// req: C5
func TestTicketsAreBounded(t *testing.T) {
	t.Parallel()
	clock := newClock()
	s := redisstore.NewWithClock(client(t, redistest.Start(t)), nil, clock.now)
	m := model.NewRecords(clock.now, false).InLine()
	ask := takeOf(oneIn(t, "p", time.Minute), "k", 1)
	rng := rand.New(rand.NewPCG(1, 2))
	take(t, s, ask)
	take(t, m, ask)
	for range 200 {
		w := waiting(ask, rng.Uint64())
		w.Ticket.Waited = time.Duration(rng.IntN(100)) * time.Second // many are equal
		w.Priority = int8(rng.IntN(10))
		got, want := take(t, s, w), take(t, m, w)
		if diff := cmp.Diff(answerOf(&want), answerOf(&got)); diff != "" {
			t.Fatalf("-engine +Redis:\n%s", diff)
		}
		if diff := cmp.Diff(m.Line(ask.Buckets[0].Key), lineOf(t, s, ask), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("-engine +Redis:\n%s", diff)
		}
	}
	if n := len(lineOf(t, s, ask).Tickets); n != record.MaxTickets {
		t.Errorf("%d tickets", n)
	}
}

// TestTheVersionBeforeKeepsLines: a program of the version before passes those who wait. It keeps
// their tickets, but for what TestTheVersionBeforeDeletesLines shows.
//
// req: C5, D6
func TestTheVersionBeforeKeepsLines(t *testing.T) {
	t.Parallel()
	is, was, _ := besideBefore(t)
	day, second := oneIn(t, "day", 24*time.Hour), oneIn(t, "second", time.Second)
	take(t, is, takeOf(second, "k", 1))
	both := takeOf(day, "unused", 1)
	both.Buckets = append(both.Buckets, takeOf(second, "k", 1).Buckets...)
	take(t, is, waiting(both, 7))
	want := lineOf(t, is, both)
	if len(want.Tickets) != 1 {
		t.Fatalf("the line is %+v", want)
	}
	if d := take(t, is, takeOf(day, "unused", 1)); d.Allowed {
		t.Error("a plain take was granted past a ticket")
	}
	if d := take(t, was, takeOf(day, "unused", 1)); !d.Allowed {
		t.Errorf("the version before refuses: %v", d.Reason)
	}
	if diff := cmp.Diff(want, lineOf(t, is, both), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("the line is another one:\n%s", diff)
	}
	if d := take(t, is, takeOf(day, "unused", 1)); d.Allowed {
		t.Error("what the version before took is not counted")
	}
}

// TestTheVersionBeforeDeletesLines: a program of the version before deletes a bucket's expired
// entries all at once, and with them a line that it does not know. A waiter's next take leaves its
// ticket anew, in the same place.
//
// req: C5, D6
func TestTheVersionBeforeDeletesLines(t *testing.T) {
	t.Parallel()
	is, was, clock := besideBefore(t)
	minute, second := compile(t, "minute", drawgate.Limit{
		Name: "r", Kind: drawgate.Rolling, Window: time.Minute, Amount: 3, Precision: drawgate.Exact,
	}), oneIn(t, "second", time.Second)
	for _, entries := range []int{1, 2} { // one is in the header, and nothing is deleted
		of := takeOf(minute, fmt.Sprint("k", entries), 1)
		for range entries {
			take(t, is, of)
			clock.advance(time.Second)
		}
		clock.advance(time.Hour)
		take(t, is, takeOf(second, "k", 1))
		both := of
		both.Buckets = append(slices.Clone(of.Buckets), takeOf(second, "k", 1).Buckets...)
		both = waiting(both, 7)
		first := take(t, is, both)
		want := lineOf(t, is, of)
		if first.Allowed || len(want.Tickets) != 1 {
			t.Fatalf("%+v, the line is %+v", first, want)
		}
		if d := take(t, was, of); !d.Allowed {
			t.Fatalf("the version before refuses: %v", d.Reason)
		}
		if n := len(lineOf(t, is, of).Tickets); n != 2-entries {
			t.Errorf("%d entries: %d tickets are left, want %d", entries, n, 2-entries)
		}
		clock.advance(100 * time.Millisecond)
		both.Ticket.Arrival = first.Arrival
		if d := take(t, is, both); d.Allowed || d.Arrival != first.Arrival {
			t.Errorf("%+v, want it to stand where it stood", d)
		}
		if l := lineOf(t, is, of); len(l.Tickets) != 1 || l.Tickets[0].Arrival != first.Arrival {
			t.Errorf("the line is %+v", l)
		}
		if used := peek(t, is, of.Buckets[0]).States[0].Used; used != 1 {
			t.Errorf("%d are used, want what the version before took", used)
		}
		clock.advance(time.Hour)
	}
}

// TestFullServerRefuses: a take that does not fit is refused by a server that takes no writes, too:
// only its ticket is missing.
//
// req: C5, E7
func TestFullServerRefuses(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s, c := open(t, server, nil), client(t, server)
	ask := takeOf(oneIn(t, "p", time.Minute), "k", 1)
	take(t, s, ask)
	if err := c.Do(t.Context(), c.B().Arbitrary("CONFIG", "SET", "maxmemory", "1").Build()).Error(); err != nil {
		t.Fatal(err)
	}
	if d := take(t, s, waiting(ask, 7)); d.Allowed || d.Reason != store.Limited || d.Arrival == 0 {
		t.Errorf("%+v", d)
	}
	if l := lineOf(t, s, ask); len(l.Tickets) > 0 {
		t.Errorf("it took %+v", l)
	}
}

// TestTicketsWhereNobodyWaits: a take with a ticket that is granted at once writes no line, also
// under a key that is a digest.
//
// req: C5
func TestTicketsWhereNobodyWaits(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s, c := open(t, server, nil), client(t, server)
	plan := day(t, 10)
	for i, name := range []string{"k", strings.Repeat("k", 300), "k", strings.Repeat("k", 300)} {
		d := take(t, s, waiting(takeOf(plan, name, 1), 7))
		if !d.Allowed || d.First.Limits[0].Remaining != int64(9-i/2) {
			t.Errorf("%+v", d)
		}
	}
	all := everything(t, c, "drawgate")
	if len(all) != 2 {
		t.Errorf("%d buckets", len(all))
	}
	for key, fields := range all {
		if _, ok := fields["l"]; ok {
			t.Errorf("%s has a line", key)
		}
		if _, ok := fields["k"]; ok != (len(key) < 200 && !strings.HasSuffix(key, ":k")) {
			t.Errorf("%s: its parts are kept: %v", key, ok)
		}
	}
}

// TestSpreadTakesStandInLine: a take of buckets in several slots leaves the units to those who came
// before it to one of them, and those who come after it leave them to it.
//
// req: C5, C12
func TestSpreadTakesStandInLine(t *testing.T) {
	t.Parallel()
	s, plan := openURL(t, redistest.StartCluster(t, false).URL(), nil), day(t, 3)
	for _, kind := range []string{"plain", "with an id", "lease"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			plan := compile(t, "day-"+kind[:4], drawgate.CalendarLimit("d", 3, drawgate.Month, ""))
			first := takeOf(plan, nameOn(plan, 1), 2)
			hold := held(first, "held", time.Hour)
			hold.Grant = store.NewGrant()
			take(t, s, hold)
			w := waiting(first, 7)
			if d := take(t, s, w); d.Allowed || len(lineOf(t, s, w).Tickets) != 1 {
				t.Fatalf("%+v", d)
			}
			// It is one's turn if the hold ends, and until then one unit is left beside the ticket.
			settle(t, s, store.Settlement{Op: store.OpCancel, ID: "held", Grant: hold.Grant, Buckets: hold.Buckets})
			two := across(plan, 2, 0, 1, 2)
			switch kind {
			case "with an id":
				two = held(two, "id", time.Hour)
			case "lease":
				two = held(two, "id", time.Hour)
				two.Lease = true
				two.Buckets = two.Buckets[:2]
				for i := range two.Buckets {
					two.Buckets[i].N[0] = 3
				}
			}
			two.Ticket = &store.Ticket{Number: 9}
			d := take(t, s, two)
			if kind == "lease" {
				if !d.Allowed || d.Granted(1)[0] != 1 {
					t.Errorf("%+v, want a lease of the unit for which nobody waits", d)
				}
				return
			}
			if d.Allowed || d.Reason != store.Queued || d.RetryAfter <= 0 || d.Arrival == 0 ||
				len(d.Standing.Before) != 1 {
				t.Errorf("%+v, want it to stand behind", d)
			}
			if used, _ := usedOn(t, s, plan); used != [3]int64{} {
				t.Errorf("%v units are used", used)
			}
			two.Ticket.Arrival = d.Arrival
			// Now the first one leaves. Two units of three come free in that bucket, and none is
			// left beside what the take over all three waits for.
			withdraw(t, s, w.Ticket.Number, w.Buckets[0].Key)
			later := takeOf(plan, nameOn(plan, 1), 2)
			later.Ticket = &store.Ticket{Number: 11}
			if d := take(t, s, later); d.Allowed || d.Reason != store.Queued {
				t.Errorf("one that came later: %+v", d)
			}
			if d := take(t, s, two); !d.Allowed {
				t.Errorf("it was refused: %v %v", d.Reason, d.Fail)
			}
			for i := range two.Buckets {
				one := store.Take{Buckets: two.Buckets[i : i+1]}
				for _, x := range lineOf(t, s, one).Tickets {
					if x.Number == 9 {
						t.Errorf("its ticket stays in bucket %d", i)
					}
				}
			}
			two.ID, two.Hold, two.Ticket, two.Barge = "", 0, nil, true
			for i := range two.Buckets {
				two.Buckets[i].N[0] = 1
			}
			if d := take(t, s, two); !d.Allowed {
				t.Errorf("one that passes was refused: %v %v", d.Reason, d.Fail)
			}
		})
	}
	placesOfSpreadTakes(t, s)
	// Withdrawals go to each slot.
	ask := across(plan, 3, 0, 1, 2)
	var keys []store.Key
	for i := range ask.Buckets {
		one := store.Take{Buckets: ask.Buckets[i : i+1]}
		take(t, s, one)
		take(t, s, waiting(one, 7))
		keys = append(keys, one.Buckets[0].Key)
	}
	if err := s.Withdraw(t.Context(), 7, keys); err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		if l, err := s.Line(t.Context(), k); err != nil || len(l.Tickets) > 0 {
			t.Errorf("%+v, %v", l, err)
		}
	}
	if err := errors.Join(s.Withdraw(t.Context(), 7, keys), s.Withdraw(t.Context(), 7, nil)); err != nil {
		t.Error(err)
	}
}

// TestSpreadTakesOfSlotsStandInLine: a reservation of slots in several slots of a cluster stands in
// line, too: who comes later leaves them to it.
//
// req: C5, C12
func TestSpreadTakesOfSlotsStandInLine(t *testing.T) {
	t.Parallel()
	s := openURL(t, redistest.StartCluster(t, false).URL(), nil)
	plan := compile(t, "slots", drawgate.ConcurrencyLimit("l", 1))
	slots := func(id string, number uint64) store.Take {
		tk := held(waiting(across(plan, 1, 0, 1), number), id, time.Hour)
		tk.Grant = store.NewGrant()
		return tk
	}
	first, second, third := slots("first", 3), slots("second", 5), slots("third", 7)
	if d := take(t, s, first); !d.Allowed {
		t.Fatalf("%+v", d)
	}
	for _, tk := range []*store.Take{&second, &third} {
		d := take(t, s, *tk)
		if d.Allowed || d.Arrival == 0 {
			t.Fatalf("%+v, want it to stand in line", d)
		}
		tk.Ticket.Arrival = d.Arrival
	}
	settle(t, s, store.Settlement{Op: store.OpCancel, ID: first.ID, Grant: first.Grant, Buckets: first.Buckets})
	if d := take(t, s, third); d.Allowed || d.Reason != store.Queued {
		t.Errorf("%+v, want it to leave the slots to who came before", d)
	}
	if d := take(t, s, second); !d.Allowed {
		t.Errorf("its turn: %v %v", d.Reason, d.Fail)
	}
}

// placesOfSpreadTakes: a take over several slots claims units in the first limit that refuses it,
// and in those before, wherever their slots are; and it gets what it waits for although others take
// one of the units at a time.
func placesOfSpreadTakes(t *testing.T, s *redisstore.Store) {
	t.Helper()
	hour := compile(t, "hour", drawgate.RollingLimit("h", 2, time.Hour))
	minute := compile(t, "minute", drawgate.RollingLimit("m", 2, time.Minute))
	for slots := range 2 { // whichever slot comes first
		long, short := takeOf(hour, nameOn(hour, slots), 1), takeOf(minute, nameOn(minute, 1-slots), 1)
		both := store.Take{
			Buckets: []store.BucketCost{short.Buckets[0], long.Buckets[0]},
			Ticket:  &store.Ticket{Number: 5},
		}
		count := func() (n [2]int) {
			return [2]int{len(lineOf(t, s, short).Tickets), len(lineOf(t, s, long).Tickets)}
		}
		hold := func(of store.Take, id string) store.Take {
			h := held(of, id, time.Hour)
			h.Buckets = slices.Clone(h.Buckets)
			h.Buckets[0].N[0], h.Grant, h.Barge = 2, store.NewGrant(), true
			if d := take(t, s, h); !d.Allowed {
				t.Fatalf("%s: %+v", id, d)
			}
			return h
		}
		cancel := func(h store.Take) {
			settle(t, s, store.Settlement{Op: store.OpCancel, ID: h.ID, Grant: h.Grant, Buckets: h.Buckets})
		}
		h := hold(long, "h")
		d := take(t, s, both)
		if n := count(); d.Allowed || n != [2]int{0, 1} {
			t.Errorf("the hour refuses, and there are %v tickets", n)
		}
		both.Ticket.Arrival = d.Arrival
		cancel(h)
		m := hold(short, "m")
		if d = take(t, s, both); d.Allowed || count() != [2]int{1, 1} {
			t.Errorf("the minute refuses, and there are %v tickets", count())
		}
		h = hold(long, "h2")
		if d = take(t, s, both); d.Allowed || count() != [2]int{0, 1} {
			t.Errorf("the hour refuses again, and there are %v tickets", count())
		}
		both.Ticket.Patience = time.Millisecond
		cancel(m)
		if d = take(t, s, both); d.Allowed && count() != [2]int{0, 0} {
			t.Errorf("without hope there are %v tickets", count())
		}
		both.Ticket.Patience = 0
		cancel(h)
		if d = take(t, s, both); !d.Allowed || count() != [2]int{0, 0} {
			t.Errorf("%+v, and then there are %v tickets", d, count())
		}
	}
}

// TestTicketsInBatches: those who wait, and those who do not, go together in a call; each waiter
// has a ticket of its own, though they ask for the same.
//
// req: C5, E10
func TestTicketsInBatches(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server, nil)
	plan := compile(t, "one", drawgate.BucketLimit("b", 1, time.Hour, 0))
	ask := takeOf(plan, "k", 1)
	take(t, s, ask)
	g := gather(t, s)
	for i := range 20 {
		g.add(func() {
			tk := ask
			if i%2 == 0 {
				tk = waiting(ask, uint64(1+i))
			}
			d := take(t, s, tk)
			if d.Allowed || (d.Arrival > 0) != (i%2 == 0) {
				t.Error(fmt.Sprint(i, d.Allowed, d.Arrival))
			}
		})
	}
	g.done()
	if n := len(lineOf(t, s, ask).Tickets); n != 10 {
		t.Errorf("%d tickets, want 10", n)
	}
}

// TestKeptUnitsPassTickets: takes that may use more pass a ticket that does not fit, as far as
// units are kept for them, in limits of each kind, and as package record has it.
//
// req: C5
func TestKeptUnitsPassTickets(t *testing.T) {
	t.Parallel()
	conn := client(t, redistest.Start(t))
	for i, l := range []drawgate.Limit{
		{Kind: drawgate.Bucket, Window: time.Hour},
		{Kind: drawgate.Rolling, Window: time.Hour, Margin: time.Second},
		{Kind: drawgate.Calendar, Every: drawgate.Minute},
		{Kind: drawgate.Concurrency},
	} {
		clock := newClock()
		s := redisstore.NewWithClock(conn, nil, clock.now)
		m := model.NewRecords(clock.now, false).InLine()
		l.Name, l.Amount = "l", 10
		l.ReservedByPriority = map[int]drawgate.Share{5: {Percent: 30}}
		plan, passed := compile(t, fmt.Sprint("p", i), l), 0
		for i := range 8 {
			tk := held(takeOf(plan, "k", 1), fmt.Sprint("id", i), 3*time.Hour)
			tk.Grant = store.NewGrant()
			switch i {
			case 0: // one less than priority 0 may use
				tk.Buckets[0].N[0] = 6
			case 1:
				tk = waiting(tk, 7)
				tk.Ticket.Waited = time.Hour // it comes before all of them
				tk.Buckets[0].N[0] = 2
			default:
				tk.Priority = 5
			}
			got, want := take(t, s, tk), take(t, m, tk)
			if diff := cmp.Diff(answerOf(&want), answerOf(&got)); diff != "" {
				t.Fatalf("%v, take %d: -engine +Redis:\n%s", l.Kind, i, diff)
			}
			line := m.Line(tk.Buckets[0].Key)
			if diff := cmp.Diff(line, lineOf(t, s, tk), cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("%v, take %d: -engine +Redis:\n%s", l.Kind, i, diff)
			}
			passed += len(line.Passed)
		}
		// In a calendar window, a ticket that does not fit into what is left claims nothing.
		if (passed > 0) != (l.Kind != drawgate.Calendar) {
			t.Errorf("%v: takes that passed a ticket are noted %d times", l.Kind, passed)
		}
	}
}

// TestManyKeptUnitsPass: more grants pass a ticket than a line tells apart, and are settled,
// renewed or cancelled; what passed is noted as package record has it.
//
// req: C5
func TestManyKeptUnitsPass(t *testing.T) {
	t.Parallel()
	clock := newClock()
	s := redisstore.NewWithClock(client(t, redistest.Start(t)), nil, clock.now)
	m := model.NewRecords(clock.now, false).InLine()
	keeps := map[int]drawgate.Share{5: {Percent: 40}}
	plan := compile(
		t, "p",
		drawgate.Limit{Name: "n", Kind: drawgate.Concurrency, Amount: 100, ReservedByPriority: keeps},
		drawgate.Limit{Name: "r", Kind: drawgate.Rolling, Window: time.Minute, Amount: 100, ReservedByPriority: keeps},
		drawgate.Limit{
			Name: "e", Kind: drawgate.Rolling, Window: time.Minute, Amount: 100, ReservedByPriority: keeps,
			Charge: drawgate.ChargeEnd,
		},
		drawgate.Limit{
			Name: "b", Kind: drawgate.Bucket, Window: time.Minute, Amount: 100, ReservedByPriority: keeps,
			Charge: drawgate.ChargeEnd,
		},
	)
	rng := rand.New(rand.NewPCG(3, 4))
	hold := func(id string, n int64) store.Take {
		tk := held(takeOf(plan, "k", 0), id, time.Duration(1+rng.Int64N(7200))*time.Second)
		tk.Grant, tk.Buckets[0].N = store.NewGrant(), store.Amounts{n, n, n, n}
		return tk
	}
	same := func(tk store.Take) store.Verdict {
		t.Helper()
		got, want := take(t, s, tk), take(t, m, tk)
		if diff := cmp.Diff(answerOf(&want), answerOf(&got)); diff != "" {
			t.Fatalf("-engine +Redis:\n%s", diff)
		}
		if diff := cmp.Diff(m.Line(tk.Buckets[0].Key), lineOf(t, s, tk), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("-engine +Redis:\n%s", diff)
		}
		return got
	}
	all := hold("all", 60)
	all.Hold = 24 * time.Hour
	same(all)
	var open []store.Take
	most, passed := 0, 0
	for i := range 300 {
		low := waiting(hold("low", 1), 7)
		low.Ticket.Waited = time.Hour
		same(low)
		tk := hold(fmt.Sprint("high", i), 1)
		tk.Priority = 5
		if d := same(tk); d.Allowed {
			open, passed = append(open, tk), passed+1
		}
		for len(open) > 30 || len(open) > 0 && rng.IntN(4) == 0 {
			k := rng.IntN(len(open))
			st := store.Settlement{
				Op: store.OpSettle, ID: open[k].ID, Grant: open[k].Grant, Buckets: slices.Clone(open[k].Buckets),
				Hold: 3 * time.Hour,
			}
			switch rng.IntN(3) {
			case 0:
				st.Op = store.OpCancel
			case 1:
				st.Op = store.OpRenew
			default:
				st.Buckets[0].N = store.Amounts{1, rng.Int64N(3), rng.Int64N(3), rng.Int64N(3)}
			}
			settle(t, s, st)
			settle(t, m, st)
			if st.Op != store.OpRenew {
				open = slices.Delete(open, k, k+1)
			}
		}
		clock.advance(time.Duration(rng.Int64N(int64(3 * time.Second))))
		for _, p := range m.Line(all.Buckets[0].Key).Passed {
			most = max(most, len(p.Units))
		}
	}
	if most != 16 || passed < 150 {
		t.Errorf("%d passed, and at most %d instants were told apart", passed, most)
	}
}

// TestShortWaysLeaveUnitsToTickets: a plain take that fits is refused while somebody waits for its
// units, by each of the ways to decide one, alone and in a batch; the same holds for a first try
// with a ticket.
//
// req: C5, E10
func TestShortWaysLeaveUnitsToTickets(t *testing.T) {
	t.Parallel()
	conn := client(t, redistest.Start(t))
	for i, l := range []drawgate.Limit{
		{Kind: drawgate.Bucket, Window: 4 * time.Second},
		{Kind: drawgate.Rolling, Window: 4 * time.Second, Precision: drawgate.Exact},
	} {
		for _, batches := range []bool{false, true} {
			clock := newClock()
			s := redisstore.NewWithClock(conn, &redisstore.Options{Prefix: prefix()}, clock.now)
			if batches {
				s.AlwaysInBatches()
			}
			l.Name, l.Amount = "l", 2
			ask := takeOf(compile(t, fmt.Sprint("p", i), l), "k", 2)
			take(t, s, ask)
			take(t, s, waiting(ask, 7))
			clock.advance(4 * time.Second)
			one := takeOf(ask.Buckets[0].Plan, "k", 1)
			for _, tk := range []store.Take{one, waiting(one, 8)} {
				if d := take(t, s, tk); d.Allowed || d.Reason != store.Queued || d.RetryAfter <= 0 {
					t.Errorf("%v, batches %v, ticket %v: %+v", l.Kind, batches, tk.Ticket != nil, d)
				}
			}
			if d := take(t, s, waiting(ask, 7)); !d.Allowed {
				t.Errorf("%v, batches %v: whose turn it is was refused: %v", l.Kind, batches, d.Reason)
			}
		}
	}
}
