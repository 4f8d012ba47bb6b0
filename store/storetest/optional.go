package storetest

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"reflect"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
)

var optionalCases = []testCase{
	{"reset", "a reset bucket is unused, its reservations gone, and others are left alone", testReset, false},
	{"list", "every bucket in use is listed once, under its tenant and policy", testList, false},
	{"index", "every noted bucket of a policy of our own is listed", testIndex, true},
	{"list stops", "a listing ends when yield returns false", testListStops, true},
	{
		"journal", "every admitted take is in the history, in order, with its units and labels; refusals are not",
		testJournal, false,
	},
	{"journal of reservations", "what became of reservations is in the history as well", testJournalOps, false},
	{
		"journal from and to", "a read covers the instants from its start up to, but not including, its end",
		testJournalRange, false,
	},
	{
		"journal of some events", "a read with any conditions yields what a read of all has that meets them",
		testJournalQuery, false,
	},
	{"ping", "a store that can decide answers a ping", testPing, true},
	{
		"watch", "watchers may receive what was given back; a store never waits for them, and stops when asked", testWatch,
		true,
	},
}

// optional returns the store as one that implements an interface which a store may lack.
func optional[T any](e *env) (s T, implemented bool) {
	if s, implemented = e.s.(T); !implemented {
		e.Logf("the store is no %v: there was nothing to check", reflect.TypeFor[T]())
	}
	return s, implemented
}

func testReset(e *env) {
	s, implemented := optional[store.Resetter](e)
	if !implemented {
		return
	}
	b, other, gcra := e.bucket("k", rolling(10, time.Hour), slots(2), calendar(10, drawgate.Month, "UTC")),
		e.bucket("other", rolling(10, time.Hour)), e.bucket("lean", leaky(10, time.Hour, 0))
	e.allowed("take", b.hold("id", time.Hour, 10, 2, 10))
	e.allowed("take", other.take(10))
	e.allowed("take", gcra.take(10))
	never := e.bucket("never used", rolling(10, time.Hour))
	if err := s.Reset(e.ctx(), []store.Key{b.key, gcra.key, never.key}); err != nil {
		e.Fatal(err)
	}
	b.wantUsed("reset", 0, 0, 0)
	gcra.wantUsed("reset", 0)
	other.wantUsed("another bucket", 10)
	if st := b.peek(); st.Open != 0 {
		e.Errorf("%d open after a reset", st.Open)
	}
	e.allowed("take", b.take(1, 0, 1))
	if b.settle("id", 0, 0, 0) || b.cancel("id") || !b.renew("id").Gone {
		e.Error("a reservation survived the reset")
	}
	b.wantUsed("after settling what was reset", 1, 0, 1)
	e.advance(2 * time.Hour)
	b.wantUsed("after the hold's end", 0, 0, 1)
	e.allowed("the id is free", b.hold("id", time.Hour, 10, 2, 9))
	if err := s.Reset(e.ctx(), nil); err != nil {
		e.Errorf("reset of nothing: %v", err)
	}
}

func testList(e *env) {
	s, implemented := optional[store.Lister](e)
	if !implemented {
		return
	}
	list := func(tenant, policy string) (got []string) {
		e.Helper()
		err := s.List(e.ctx(), tenant, policy, func(k store.Key) bool {
			if k.Tenant != tenant || k.Policy != policy {
				e.Errorf("%+v among those of tenant %q, policy %q", k, tenant, policy)
			}
			got = append(got, k.Name)
			return true
		})
		if err != nil {
			e.Fatal(err)
		}
		sort.Strings(got)
		return got
	}
	plan, gcra := e.plan(rolling(10, time.Hour)), e.compile(drawgate.Policy{
		Name:   "lean",
		Limits: []drawgate.Limit{leaky(10, time.Hour, 0)},
	})
	if got := list("t", "p"); len(got) != 0 {
		e.Errorf("an empty store lists %q", got)
	}
	want := names()
	for _, n := range want {
		e.allowed(n, e.of(n, plan).take(1))
	}
	foreign := e.of("foreign", plan)
	foreign.key.Tenant = "t2"
	e.allowed("another tenant", foreign.take(1))
	e.allowed("another policy", e.of("l", gcra).take(1))
	held := e.of("held", gcra)
	e.allowed("held", held.hold("id", 5*time.Hour, 1))
	e.of("peeked", plan).peek(1)
	sort.Strings(want)
	if got := list("t", "p"); !slices.Equal(got, want) {
		e.Errorf("listed %.300q, want %.300q", got, want)
	}
	if got := list("t2", "p"); !slices.Equal(got, []string{"foreign"}) {
		e.Errorf("another tenant: %.300q", got)
	}
	if got := list("t", "lean"); !slices.Equal(got, []string{"held", "l"}) {
		e.Errorf("another policy: %.300q", got)
	}
	if got := list("t", "none"); len(got) != 0 {
		e.Errorf("a policy that nobody used: %.300q", got)
	}
	e.advance(2 * time.Hour)
	e.allowed("one is used again", e.of("a", plan).take(1))
	if got := list("t", "p"); !slices.Equal(got, []string{"a"}) {
		e.Errorf("only a is in use: listed %.300q", got)
	}
	if got := list("t", "lean"); !slices.Equal(got, []string{"held"}) {
		e.Errorf("only what is held is in use: listed %.300q", got)
	}
	if got := list("", "p"); len(got) != 0 {
		e.Errorf("the tenant without a name: listed %.300q", got)
	}
}

func testListStops(e *env) {
	s, implemented := optional[store.Lister](e)
	if !implemented {
		return
	}
	plan := e.plan(rolling(10, time.Hour))
	for i := range 50 {
		e.allowed("take", e.of(fmt.Sprint(i), plan).take(1))
	}
	n := 0
	if err := s.List(e.ctx(), "t", "p", func(store.Key) bool { n++; return n < 7 }); err != nil || n != 7 {
		e.Errorf("%d keys, error %v; want 7", n, err)
	}
}

// testIndex: buckets of a policy of our own are listed once they are noted. Their names are plain
// text.
func testIndex(e *env) {
	s, implemented := optional[store.Lister](e)
	if !implemented {
		return
	}
	x, noted := e.s.(store.Indexer)
	plan := e.compile(drawgate.Policy{Name: store.OwnPolicies + "p", Limits: []drawgate.Limit{rolling(10, time.Hour)}})
	want := map[string][]string{}
	for i, name := range names() {
		if name = url.PathEscape(name); name == "" || len(name) > 400 {
			continue
		}
		b := e.of(name, plan)
		b.key.Tenant = fmt.Sprint("day ", i%3)
		for range 2 { // by two processes
			if noted {
				if err := x.Index(e.ctx(), time.Hour, []store.Key{b.key}); err != nil {
					e.Fatal(err)
				}
			}
		}
		e.allowed(name, b.take(1))
		want[b.key.Tenant] = append(want[b.key.Tenant], name)
	}
	for tenant, names := range want {
		var got []string
		err := s.List(e.ctx(), tenant, plan.Name(), func(k store.Key) bool {
			got = append(got, k.Name)
			return true
		})
		slices.Sort(got)
		slices.Sort(names)
		names = slices.Compact(names)
		if err != nil || !slices.Equal(got, names) {
			e.Errorf("%s: listed %.300q, %v; want %.300q", tenant, got, err, names)
		}
	}
	n := 0
	if err := s.List(e.ctx(), "day 0", plan.Name(), func(store.Key) bool { n++; return false }); err != nil || n != 1 {
		e.Errorf("%d keys, error %v; want 1", n, err)
	}
	if _, ok := e.s.(store.Journal); ok {
		for _, ev := range e.events(time.Time{}, e.now().Add(time.Hour)) {
			if ev.Key.Policy == plan.Name() {
				e.Errorf("the history has %+v", ev)
				break
			}
		}
	}
	if err := s.List(e.ctx(), "no day", plan.Name(), func(store.Key) bool { n++; return true }); err != nil || n != 1 {
		e.Errorf("a day without buckets lists %d, %v", n-1, err)
	}
}

// events returns the history of an interval.
func (e *env) events(from, to time.Time) (all []store.Event) {
	e.Helper()
	if err := e.s.(store.Journal).Read(e.ctx(), store.EventQuery{From: from, To: to},
		func(ev store.Event) bool { all = append(all, ev); return true }); err != nil {
		e.Fatal(err)
	}
	for i := 1; i < len(all); i++ {
		if all[i].At.Before(all[i-1].At) {
			e.Errorf("event %d at %v, before the one before it", i, all[i].At)
		}
	}
	return all
}

// unitsOf formats the units of an event in the order of their names, without those that are 0.
func unitsOf(ev store.Event) string {
	sums := map[string]int64{}
	for _, c := range ev.Units {
		sums[c.Unit] += c.N
	}
	var parts []string
	for unit, n := range sums {
		if n != 0 {
			parts = append(parts, fmt.Sprintf("%s=%d", unit, n))
		}
	}
	sort.Strings(parts)
	return strings.Join(parts, " ")
}

// req: D5
func testJournal(e *env) {
	if _, implemented := optional[store.Journal](e); !implemented {
		return
	}
	tokens := leaky(100, time.Hour, 0)
	tokens.Unit = "tokens"
	b, c := e.bucket("k\x00\xff", rolling(10, time.Hour), tokens), e.bucket("other", calendar(3, drawgate.Month, "UTC"))
	start := e.now()
	var want []string
	for i := range 20 {
		t := store.Take{
			Labels:  []store.Label{{Name: "type", Value: "export"}, {Name: "id", Value: fmt.Sprint(i)}},
			Buckets: b.costs(1, int64(i)),
		}
		if i%4 == 1 {
			t.Buckets = append(t.Buckets, c.cost(1))
		}
		if i%4 == 2 {
			t.ID, t.Hold = fmt.Sprint("id", i), time.Hour
		}
		if d := e.take(t); ok(e, d) {
			for k, units := range []string{fmt.Sprintf("requests=1 tokens=%d", i), "requests=1"}[:len(t.Buckets)] {
				if i == 0 && k == 0 {
					units = "requests=1"
				}
				want = append(want, fmt.Sprintf("%d %s %q %q %s %v", d.At().UnixMicro(), "take", t.ID,
					t.Buckets[k].Key.Name, units, t.Labels))
			}
		}
		e.advance(time.Second)
	}
	var got []string
	for _, ev := range e.events(start, e.now()) {
		if ev.Key.Tenant != "t" || ev.Key.Policy != "p" {
			e.Errorf("key %+v", ev.Key)
		}
		got = append(got, fmt.Sprintf("%d %s %q %q %s %v", ev.At.UnixMicro(), ev.Op, ev.ID, ev.Key.Name, unitsOf(ev),
			ev.Labels))
	}
	if len(want) < 10 || len(want) > 19 {
		e.Fatalf("%d admitted: the case is wrong", len(want))
	}
	if !slices.Equal(got, want) {
		e.Errorf("history:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func testJournalOps(e *env) {
	if _, implemented := optional[store.Journal](e); !implemented {
		return
	}
	b := e.bucket("k", rolling(100, time.Hour))
	start := e.now()
	for _, id := range []string{"settled", "cancelled", "ended"} {
		e.allowed("reserve", b.hold(id, 10*time.Second, 5))
		e.advance(time.Millisecond)
	}
	b.settle("settled", 3)
	e.advance(time.Millisecond)
	b.cancel("cancelled")
	e.advance(time.Millisecond)
	b.settle("unknown", 3)
	b.charge(e.now(), 7)
	e.advance(time.Millisecond)
	b.refund(2)
	e.of("unused", b.plan).refund(2)
	because := []store.Label{{Name: "reason", Value: "the console says so"}}
	e.settle(store.Settlement{Op: store.OpCharge, At: e.now(), Buckets: b.costs(4), Labels: because})
	e.settle(store.Settlement{Op: store.OpRefund, Buckets: b.costs(1), Labels: because})
	by := []store.Label{{Name: "by", Value: "ann"}}
	paused := e.settle(store.Settlement{
		Op: store.OpPause, Hold: time.Hour, Reason: "429", Labels: by,
		Buckets: b.costs(),
	}).End
	e.settle(store.Settlement{Op: store.OpPause, Hold: time.Minute, Reason: "shorter", Buckets: b.costs()})
	e.settle(store.Settlement{
		Op: store.OpUnpause, At: paused.Add(tick), Reason: "of another pause",
		Buckets: b.costs(),
	})
	e.settle(store.Settlement{Op: store.OpUnpause, At: paused, Reason: "a mistake", Labels: by, Buckets: b.costs()})
	e.settle(store.Settlement{Op: store.OpUnpause, At: paused, Reason: "again", Buckets: b.costs()})
	until := "until: " + paused.UTC().Format(time.RFC3339Nano)
	e.advance(time.Minute)
	e.allowed("somebody looks", b.take(1))
	e.advance(tick)
	var got []string
	for _, ev := range e.events(start, e.now()) {
		line := []string{fmt.Sprintf("%s %s %s", ev.Op, ev.ID, unitsOf(ev))}
		for _, l := range ev.Labels {
			line = append(line, l.Name+": "+l.Value)
		}
		got = append(got, strings.Join(line, " "))
	}
	sort.Strings(got)
	want := []string{
		"cancel cancelled ", "charge  requests=4 reason: the console says so", "charge  requests=7",
		"expire ended requests=5",
		"pause   by: ann " + until + " reason: 429", "refund  requests=1 reason: the console says so",
		"refund  requests=2", "settle settled requests=3",
		"take  requests=1", "take cancelled requests=5", "take ended requests=5", "take settled requests=5",
		"unpause   by: ann " + until + " reason: a mistake",
	}
	if !slices.Equal(got, want) {
		e.Errorf("history %q, want %q", got, want)
	}
}

func testJournalRange(e *env) {
	if _, implemented := optional[store.Journal](e); !implemented {
		return
	}
	b := e.bucket("k", rolling(100, time.Hour))
	start := e.now()
	for range 10 {
		e.allowed("take", b.take(1))
		e.advance(time.Second)
	}
	if n := len(e.events(start.Add(2*time.Second), start.Add(5*time.Second))); n != 3 {
		e.Errorf("%d events in [2 s, 5 s), want 3", n)
	}
	n := 0
	if err := e.s.(store.Journal).Read(e.ctx(), store.EventQuery{From: start, To: e.now()},
		func(store.Event) bool { n++; return n < 4 }); err != nil || n != 4 {
		e.Errorf("%d events, error %v; want 4", n, err)
	}
}

// testJournalQuery compares what a store yields of its history with what matches of all of it. Some
// names and values are parts of others.
//
// req: D5
func testJournalQuery(e *env) {
	j, implemented := optional[store.Journal](e)
	if !implemented {
		return
	}
	names, start := []string{"a", "ab", "b=a", "", "\x00\xff"}, e.now()
	plan := e.plan(rolling(1000, time.Hour))
	other := e.compile(drawgate.Policy{Name: "other", Limits: []drawgate.Limit{{
		Name: "l", Kind: drawgate.Rolling,
		Amount: 1000, Window: time.Hour,
	}}})
	buckets := []*bucket{e.of("a", plan), e.of("ab", plan), e.of("a", other)}
	pick := rand.New(rand.NewPCG(1, 2))
	labels := func(most int) (out []store.Label) {
		for _, k := range pick.Perm(len(names))[:pick.IntN(most+1)] {
			out = append(out, store.Label{Name: "n" + names[k], Value: names[pick.IntN(len(names))]})
		}
		return out
	}
	for i := range 100 {
		b := buckets[pick.IntN(len(buckets))]
		switch pick.IntN(3) {
		case 0:
			e.settle(store.Settlement{Op: store.OpCharge, At: e.now(), Buckets: b.costs(1), Labels: labels(2)})
		default:
			t := store.Take{Labels: labels(3), Buckets: b.costs(1)}
			if i%5 == 0 {
				t.ID, t.Hold = fmt.Sprint("id", i), time.Hour
			}
			e.allowed("take", e.take(t))
		}
		e.advance(time.Second)
	}
	all, found := e.events(start, e.now()), 0
	for range 300 {
		q := store.EventQuery{From: start.Add(time.Duration(pick.IntN(60)) * time.Second), Labels: labels(2)}
		q.To = q.From.Add(time.Duration(1+pick.IntN(100)) * time.Second)
		if pick.IntN(3) == 0 {
			q.Policy = []string{"p", "other", "nobody's"}[pick.IntN(3)]
		}
		if pick.IntN(3) == 0 {
			q.Op = []string{"take", "charge", "cancel", "nothing"}[pick.IntN(4)]
		}
		if pick.IntN(3) == 0 {
			q.Key = &[]string{"a", "ab", ""}[pick.IntN(3)]
		}
		if pick.IntN(3) == 0 {
			q.Tenant = &[]string{"t", ""}[pick.IntN(2)]
		}
		var got, want []store.Event
		if err := j.Read(e.ctx(), q, func(ev store.Event) bool { got = append(got, ev); return true }); err != nil {
			e.Fatal(err)
		}
		for i := range all {
			if q.Match(&all[i]) {
				want = append(want, all[i])
			}
		}
		found += len(want)
		if !reflect.DeepEqual(got, want) {
			e.Fatalf("%+v: got\n%v\nwant\n%v", q, got, want)
		}
	}
	if len(all) != 100 || found < 300 {
		e.Errorf("%d events, %d found: the case is wrong", len(all), found)
	}
}

func testPing(e *env) {
	if s, implemented := optional[store.Pinger](e); implemented {
		if err := s.Ping(e.ctx()); err != nil {
			e.Error(err)
		}
	}
}

func testWatch(e *env) {
	s, implemented := optional[store.Watcher](e)
	if !implemented {
		return
	}
	b := e.bucket("k", slots(1))
	blocked, stopped := make(chan store.Key), make(chan store.Key, 100)
	defer s.Watch(blocked)()
	s.Watch(stopped)()
	for i := range 20 {
		e.allowed("take", b.hold(fmt.Sprint(i), time.Hour, 1))
		if !b.cancel(fmt.Sprint(i)) {
			e.Error("gone")
		}
	}
	if len(stopped) != 0 {
		e.Errorf("%d keys after stop", len(stopped))
	}
}
