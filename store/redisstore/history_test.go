package redisstore_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/model"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/redisstore"
)

// knowing makes a take one whose answer has the history of its only bucket.
func knowing(t store.Take, known store.Known) store.Take {
	t.Known = []store.Known{known}
	return t
}

// historyOf returns the history of a bucket, to one who knows nothing.
func historyOf(tb testing.TB, s *redisstore.Store, b store.BucketCost) store.History {
	tb.Helper()
	var out [1]store.State
	if err := s.PeekKnown(context.Background(), []store.BucketCost{b}, 0, make([]store.Known, 1), out[:]); err != nil {
		tb.Fatal(err)
	}
	if out[0].Fail != nil || len(out[0].Histories) != 1 {
		tb.Fatal(out[0].Fail, out[0].Histories)
	}
	return out[0].Histories[0]
}

// pending reports whether the next write begins an epoch.
func pending(h store.History) bool { return h.Generation != h.Mark.Generation }

// TestInstantsIncrease, whatever the server's clock shows; those of a batch are one.
func TestInstantsIncrease(t *testing.T) {
	t.Parallel()
	conn := client(t, redistest.Start(t))
	for name, plan := range map[string]*store.Plan{
		"bucket": compile(t, "b", drawgate.BucketLimit("b", 1000, time.Hour, 0)),
		"two": compile(t, "t", drawgate.RollingLimit("r", 1000, time.Hour),
			drawgate.CalendarLimit("d", 1000, drawgate.Day, "UTC")),
		"slots": compile(t, "s", drawgate.RollingLimit("r", 1000, time.Hour), drawgate.ConcurrencyLimit("n", 10)),
	} {
		clock := newClock()
		s := redisstore.NewWithClock(conn, &redisstore.Options{Prefix: prefix()}, clock.now).Strictly()
		last, known := int64(0), store.Known{}
		for i := range 20 {
			switch i {
			case 5:
				clock.advance(-time.Minute)
			case 10:
				clock.advance(time.Hour)
			}
			tk := takeOf(plan, "k", 1)
			if i%3 == 0 {
				tk = held(takeOf(plan, "k", 1), "id", time.Hour)
			}
			h := take(t, s, knowing(tk, known)).Histories[0]
			if !h.Wrote || h.Last <= last {
				t.Errorf("%s: write %d at %d, after %d", name, i, h.Last, last)
			}
			last, known = h.Last, h.Known
			if i%3 == 0 {
				st := store.Settlement{Op: store.OpCancel, ID: "id", Buckets: tk.Buckets, Known: []store.Known{known}}
				h := settle(t, s, st).Histories[0]
				if !h.Wrote || h.Last <= last {
					t.Errorf("%s: cancellation %d at %d, after %d", name, i, h.Last, last)
				}
				last = h.Last
			}
		}
		s.Learn()
		g := gather(t, s)
		got := make([]store.History, 6)
		for i := range got {
			g.add(func() { got[i] = take(t, s, knowing(takeOf(plan, "k", int64(1+i/3)), known)).Histories[0] })
		}
		g.done()
		for i, h := range got {
			if !h.Wrote || h.Listed || h.Last <= last || h.Last != got[0].Last {
				t.Errorf("%s: take %d of a batch: %+v, after %d", name, i, h, last)
			}
		}
	}
}

// TestGenerations: a server that was restarted has another generation. What it has kept, the next
// write to it begins an epoch; until then answers say that one is pending. What it has lost has
// another mark.
func TestGenerations(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	s, plan := open(t, server, nil), compile(t, "p", drawgate.BucketLimit("b", 3, time.Hour, 0))
	first := take(t, s, knowing(takeOf(plan, "k", 1), store.Known{})).Histories[0]
	if !first.Listed || pending(first) || first.Generation == 0 || len(first.Epochs) != 1 {
		t.Fatalf("the first take: %+v", first)
	}
	server.Restart()
	until(t, "the store uses the server again", func() bool { return s.Ping(t.Context()) == nil })
	d := takeAgain(t, s, knowing(takeOf(plan, "k", 3), first.Known))
	refused := d.Histories[0]
	if d.Allowed || !refused.Listed || refused.Wrote || !pending(refused) || refused.Mark != first.Mark ||
		refused.Last != first.Last || len(refused.Epochs) != 1 {
		t.Errorf("a refusal after the restart: %+v, before %+v", refused, first)
	}
	if again := takeAgain(t, s, knowing(takeOf(plan, "k", 3), refused.Known)).Histories[0]; again.Listed {
		t.Errorf("a refusal of one who knows what is pending: %+v", again)
	}
	next := takeAgain(t, s, knowing(takeOf(plan, "k", 1), refused.Known)).Histories[0]
	if !next.Listed || !next.Wrote || pending(next) || len(next.Epochs) != 2 || next.Epochs[0] != first.Epochs[0] ||
		next.Epochs[1].Start != first.Last || next.Epochs[1].Mark.Generation != refused.Generation {
		t.Errorf("a take after the restart: %+v", next)
	}
	server.Do("DEL", redisstore.KeyOf("drawgate", store.Key{Policy: "p", Name: "k"}))
	lost := takeAgain(t, s, knowing(takeOf(plan, "k", 1), next.Known)).Histories[0]
	if !lost.Listed || len(lost.Epochs) != 1 || lost.Mark == next.Mark || lost.Mark.Generation != next.Mark.Generation {
		t.Errorf("a take after an eviction: %+v", lost)
	}
}

// TestPromotedReplica: a replica that is promoted has another generation, also for connections that
// were made before.
func TestPromotedReplica(t *testing.T) {
	t.Parallel()
	primary := redistest.Start(t, "--repl-diskless-sync-delay", "0")
	host, port, _ := net.SplitHostPort(primary.Addr)
	replica := redistest.Start(t, "--replicaof", host, port)
	p := redistest.NewProxy(t, primary.Addr)
	s, err := redisstore.Open("redis://"+p.Addr, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	plan := compile(t, "p", drawgate.BucketLimit("b", 10, time.Hour, 0))
	first := take(t, s, knowing(takeOf(plan, "k", 1), store.Known{})).Histories[0]
	until(t, "the replica has the take", func() bool { // Valkey counts replicas that still load
		return strings.Contains(replica.Do("INFO", "replication"), "master_link_status:up") &&
			primary.Do("WAIT", "1", "100") == "1"
	})
	p.Switch(replica.Addr)
	p.Cut()
	until(t, "the store notices that it is a replica", func() bool {
		return strings.Contains(errorText(tryTake(t.Context(), s, takeOf(plan, "k", 1))), "READONLY")
	})
	replica.Do("REPLICAOF", "NO", "ONE")
	var next store.Verdict
	until(t, "the promoted replica decides", func() bool {
		var d [1]store.Verdict
		err := s.Take(t.Context(), []store.Take{knowing(takeOf(plan, "k", 1), first.Known)}, d[:])
		next = d[0]
		return err == nil && next.Fail == nil
	})
	h := next.Histories[0]
	if !h.Listed || len(h.Epochs) != 2 || h.Epochs[0].Mark != first.Mark || h.Mark.Generation == first.Mark.Generation {
		t.Errorf("before %+v\nafter  %+v", first, h)
	}
	// All processes name it alike, whenever their connections were made.
	other := open(t, replica, nil)
	a := take(t, s, knowing(takeOf(plan, "other", 0), store.Known{})).Histories[0]
	b := take(t, other, knowing(takeOf(plan, "other", 0), store.Known{})).Histories[0]
	if a.Generation != b.Generation {
		t.Errorf("it has the generations %x and %x", a.Generation, b.Generation)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestGenerationUnknown: a server that does not say which it is begins no epoch in a record that
// has one. What was evicted has another mark all the same.
func TestGenerationUnknown(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Do("ACL", "SETUSER", "blind", "on", ">pw", "~*", "+@all", "-info")
	blind, err := redisstore.Open(strings.Replace(server.URL(), "//", "//blind:pw@", 1), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer blind.Close()
	s, plan := open(t, server, nil), compile(t, "p", drawgate.BucketLimit("b", 10, time.Hour, 0))
	b := takeOf(plan, "k", 1)
	first := take(t, blind, knowing(b, store.Known{})).Histories[0]
	if first.Mark.Generation != 0 || pending(first) || first.Known == (store.Known{}) {
		t.Errorf("without INFO: %+v", first)
	}
	second := take(t, s, knowing(b, store.Known{})).Histories[0]
	if len(second.Epochs) != 2 || second.Mark.Generation == 0 {
		t.Errorf("with INFO: %+v", second)
	}
	if h := take(t, blind, knowing(b, second.Known)).Histories[0]; h.Listed || !h.Wrote {
		t.Errorf("without INFO, in an epoch: %+v", h)
	}
	server.Do("DEL", redisstore.KeyOf("drawgate", b.Buckets[0].Key))
	h := take(t, blind, knowing(b, second.Known)).Histories[0]
	if !h.Listed || len(h.Epochs) != 1 || h.Mark == second.Mark {
		t.Errorf("evicted: %+v", h)
	}
}

// TestLifeIsNeverShorter: what was given back, or reset, leaves a record its life.
func TestLifeIsNeverShorter(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s, c := open(t, server, nil), client(t, server)
	plan := compile(t, "p", drawgate.BucketLimit("b", 10, 10*time.Hour, 0), drawgate.ConcurrencyLimit("n", 3))
	tk := held(takeOf(plan, "k", 10, 1), "id", time.Minute)
	take(t, s, tk)
	key := redisstore.KeyOf("drawgate", tk.Buckets[0].Key)
	before := pttl(t, c, key)
	want := func(what string) {
		t.Helper()
		if got := pttl(t, c, key); got < before-time.Minute || got < 10*time.Hour-time.Minute {
			t.Errorf("%s: it lives for %v, before for %v", what, got, before)
		}
	}
	settle(t, s, store.Settlement{Op: store.OpCancel, ID: "id", Buckets: tk.Buckets})
	want("cancelled")
	take(t, s, takeOf(plan, "k", 1))
	want("taken")
	if err := s.Reset(t.Context(), []store.Key{tk.Buckets[0].Key}); err != nil {
		t.Fatal(err)
	}
	want("reset")
	if h := historyOf(t, s, tk.Buckets[0]); h.Reset == 0 || len(h.Epochs) != 2 {
		t.Errorf("reset: %+v", h)
	}
}

// TestEpochsAreDropped when nothing counts that was written before the next one.
func TestEpochsAreDropped(t *testing.T) {
	t.Parallel()
	conn, clock := client(t, redistest.Start(t)), newClock()
	s := redisstore.NewWithClock(conn, &redisstore.Options{Prefix: prefix()}, clock.now)
	plan := compile(t, "p", drawgate.RollingLimit("r", 1000, time.Hour))
	b := takeOf(plan, "k", 1)
	for gen := range uint64(20) {
		s.SetGeneration(gen + 1)
		take(t, s, b)
		clock.advance(20 * time.Minute)
	}
	h := historyOf(t, s, b.Buckets[0])
	if n := len(h.Epochs); n < 4 || n > 6 {
		t.Errorf("%d epochs of 20 minutes, for units that count an hour", n)
	}
	if h.Epochs[0].Start != 0 || h.Epochs[0].Until != 0 || h.Epochs[0].Mark.Generation != 21-uint64(len(h.Epochs)) {
		t.Errorf("the oldest epoch: %+v", h.Epochs[0])
	}
	for i, e := range h.Epochs[1:] {
		if e.Start < e.Mark.Clock-21*60e6 || e.Start >= e.Mark.Clock || e.Until < e.Start+3600e6 ||
			e.Until > e.Start+5000e6 {
			t.Errorf("epoch %d: %+v", i+1, e)
		}
	}
}

// TestEndsOfEpochs: when a rate becomes lower, what was used before counts for longer, and may then
// drain between two microseconds, or not in our lives. The end of its epoch is a number of
// microseconds all the same.
func TestEndsOfEpochs(t *testing.T) {
	t.Parallel()
	conn, clock := client(t, redistest.Start(t)), newClock()
	for name, c := range map[string]struct {
		window time.Duration
		lower  int64
	}{"between two": {7 * time.Second, 3}, "in many years": {31 * 24 * time.Hour, 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redisstore.NewWithClock(conn, &redisstore.Options{Prefix: prefix()}, clock.now)
			plan := func(amount int64) *store.Plan {
				return compile(t, "p", drawgate.BucketLimit("b", amount, c.window, 3000))
			}
			before := takeOf(plan(3000), "k", 2900)
			s.SetGeneration(1)
			take(t, s, before)
			s.SetGeneration(2)
			before.Buckets[0].N[0] = 1
			take(t, s, before)
			lowered := takeOf(plan(c.lower), "k", 1)
			take(t, s, lowered)
			if h := historyOf(t, s, lowered.Buckets[0]); len(h.Epochs) != 2 || h.Epochs[1].Until <= clock.now() {
				t.Errorf("%+v", h)
			}
		})
	}
}

// turns sends each call to one of two stores on the same buckets: of this version, and of the one
// before it.
type turns struct {
	store.Store // whose turn it is
	t           *rapid.T
	is, was     store.Store
}

// draw draws whose turn it is.
func (s *turns) draw() (before bool) {
	s.Store = s.is
	if before = rapid.Bool().Draw(s.t, "by the version before"); before {
		s.Store = s.was
	}
	return before
}

// TestBesideTheVersionBefore: programs of this version and of the one before it share buckets. All
// answers are as if there was one version, whatever happens to histories.
//
// req: D6
func TestBesideTheVersionBefore(t *testing.T) {
	needs.NoRace(t) // one caller
	t.Parallel()
	before, err := os.ReadFile("testdata/script-before.lua")
	if err != nil {
		t.Fatal(err)
	}
	conn := client(t, redistest.Start(t))
	rapid.Check(t, func(t *rapid.T) {
		clock, keys := newClock(), prefix()
		opts := &redisstore.Options{Prefix: keys}
		is := redisstore.NewWithClock(conn, opts, clock.now)
		was := redisstore.NewWithClock(conn, &redisstore.Options{Prefix: keys, NoBatches: true}, clock.now)
		both := &turns{is, t, is, was.AsBefore(string(before))}
		s := &script{T: t, store: both, turns: both, clock: clock, model: model.NewRecords(clock.now, false)}
		for _, name := range []string{"p", "q"} {
			plan, err := drawgate.Policy{Name: name, Limits: someLimits(t, false)}.Compile()
			if err != nil {
				t.Skip(err)
			}
			s.plans = append(s.plans, []*store.Plan{plan.Plan})
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 10).Draw(t, "step") {
			case 0, 1, 2, 3:
				s.take()
			case 4:
				s.again()
			case 5, 6:
				s.settle()
			case 7:
				s.peek()
			case 8:
				is.SetGeneration(rapid.Uint64Range(0, 3).Draw(t, "generation"))
			default:
				s.wait()
			}
		}
		for k := range s.model.All {
			i := slices.IndexFunc(s.plans, func(of []*store.Plan) bool { return of[0].Name() == k.Policy })
			var out [1]store.State
			b := []store.BucketCost{{Key: k, Plan: s.plans[i][0]}}
			err := is.PeekKnown(context.Background(), b, 0, make([]store.Known, 1), out[:])
			if err != nil || out[0].Fail != nil {
				t.Fatal(err, out[0].Fail)
			}
		}
	})
}

// TestHistorySurvivesRemoval: a bucket whose entries are removed all at once keeps its history, and
// what was recovered.
func TestHistorySurvivesRemoval(t *testing.T) {
	t.Parallel()
	conn, clock := client(t, redistest.Start(t)), newClock()
	s := redisstore.NewWithClock(conn, &redisstore.Options{Prefix: prefix()}, clock.now)
	plan := compile(t, "p", drawgate.Limit{
		Name: "r", Kind: drawgate.Rolling, Window: time.Minute, Amount: 1000, Precision: drawgate.Exact,
	})
	b := takeOf(plan, "k", 1)
	for range 10 {
		take(t, s, b)
		clock.advance(time.Second)
	}
	before := historyOf(t, s, b.Buckets[0])
	part := store.Lost{N: store.Amounts{5}, From: clock.now(), Until: clock.now() + 3600e6}
	recoverIt := func() store.History {
		return settle(t, s, store.Settlement{
			Op: store.OpCharge, Buckets: b.Buckets, At: time.UnixMicro(clock.now()), Known: []store.Known{before.Known},
			Recovery: &store.Recovery{Grant: 7, Parts: []store.Lost{part}},
		}).Histories[0]
	}
	if h := recoverIt(); !h.Wrote || h.Unmet {
		t.Fatalf("recovered: %+v", h)
	}
	clock.advance(10 * time.Minute)
	take(t, s, b)
	if after := historyOf(t, s, b.Buckets[0]); after.Known != before.Known || len(after.Epochs) != 1 {
		t.Errorf("before %+v\nafter  %+v", before, after)
	}
	if h := recoverIt(); h.Wrote || h.Unmet {
		t.Errorf("recovered again: %+v", h)
	}
	if used := peek(t, s, b.Buckets[0]).States[0].Used; used != 1 {
		t.Errorf("%d are used, want 1", used)
	}
}

// TestReopenedByTheVersionBefore: a program of the version before ends a reservation that was
// opened again, and knows no grants. A charge under its grant counts nothing more.
func TestReopenedByTheVersionBefore(t *testing.T) {
	t.Parallel()
	before, err := os.ReadFile("testdata/script-before.lua")
	if err != nil {
		t.Fatal(err)
	}
	conn, clock, keys := client(t, redistest.Start(t)), newClock(), prefix()
	is := redisstore.NewWithClock(conn, &redisstore.Options{Prefix: keys}, clock.now)
	was := redisstore.NewWithClock(conn, &redisstore.Options{Prefix: keys, NoBatches: true}, clock.now)
	was.AsBefore(string(before))
	plan := compile(t, "p", drawgate.RollingLimit("r", 10, time.Hour))
	tk := held(takeOf(plan, "k", 2), "id", time.Hour)
	tk.Grant = 9
	tk.Recovery = &store.Recovery{End: clock.now() + 60e6}
	known := historyOf(t, is, tk.Buckets[0]).Known
	opened := take(t, is, knowing(tk, known)).Histories[0]
	if !opened.Wrote {
		t.Fatalf("opened again: %+v", opened)
	}
	if settle(t, was, store.Settlement{Op: store.OpSettle, ID: "id", Grant: 9, Buckets: tk.Buckets}).Gone {
		t.Fatal("it is gone")
	}
	part := store.Lost{N: store.Amounts{2}, From: clock.now(), Until: clock.now() + 3600e6}
	for range 2 {
		if h := settle(t, is, store.Settlement{
			Op: store.OpCharge, Buckets: tk.Buckets, At: time.UnixMicro(clock.now()),
			Known:    []store.Known{opened.Known},
			Recovery: &store.Recovery{Grant: 9, Parts: []store.Lost{part}},
		}).Histories[0]; h.Unmet {
			t.Errorf("charged: %+v", h)
		}
	}
	if used := peek(t, is, tk.Buckets[0]).States[0].Used; used != 2 {
		t.Errorf("%d are used, want 2", used)
	}
}

// TestHistoriesOverSlots: each bucket of a take over several shards has a history of its own, with
// its shard's generation.
func TestHistoriesOverSlots(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, false)
	s := openURL(t, c.URL(), nil)
	plan := compile(t, "p", drawgate.RollingLimit("r", 10, time.Hour))
	for _, id := range []string{"", "id"} {
		tk := across(plan, 2, 0, 1, 2)
		for i := range tk.Buckets {
			tk.Buckets[i].Key.Tenant = id
		}
		tk.Known = make([]store.Known, 3)
		if id != "" {
			tk = held(tk, id, time.Minute)
			tk.Grant = 5
		}
		d := take(t, s, tk)
		if !d.Allowed || len(d.Histories) != 3 {
			t.Fatalf("%+v", d)
		}
		for i, h := range d.Histories {
			if !h.Wrote || !h.Listed || len(h.Epochs) != 1 || pending(h) || h.Generation == 0 ||
				id == "" && h.Generation == d.Histories[(i+1)%3].Generation {
				t.Errorf("id %q, bucket %d: %+v", id, i, h)
			}
			tk.Known[i] = h.Known
		}
		more := across(plan, 9, 0, 1, 2)
		for i := range more.Buckets {
			more.Buckets[i].Key.Tenant = id
		}
		more.Known = tk.Known
		refused := take(t, s, more)
		if refused.Allowed || len(refused.Histories) != 3 {
			t.Fatalf("%+v", refused)
		}
		for i, h := range refused.Histories {
			if h.Wrote || h.Listed || h.Last < d.Histories[i].Last {
				t.Errorf("id %q, bucket %d, refused: %+v", id, i, h)
			}
		}
		if id == "" {
			continue
		}
		for n := range 2 {
			o := settle(t, s, store.Settlement{
				Op: store.OpCancel, ID: id, Grant: 5, Buckets: slices.Clone(tk.Buckets), Known: tk.Known,
			})
			if o.Gone != (n == 1) || len(o.Histories) != 3 {
				t.Errorf("cancellation %d: %+v", n, o)
			}
			for i, h := range o.Histories {
				if h.Gone != o.Gone || h.Wrote == o.Gone || h.Listed {
					t.Errorf("cancellation %d, bucket %d: %+v", n, i, h)
				}
			}
		}
	}
}

// TestRenamedServer: a server draws another master_replid and keeps its data. Connections from
// before and from after it do not begin epochs in turn, and those from before learn it.
func TestRenamedServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	before := open(t, server, redisstore.AskingAgain(time.Millisecond))
	old := open(t, server, nil)
	plan := compile(t, "p", drawgate.RollingLimit("r", 1000, time.Hour))
	b := takeOf(plan, "k", 1)
	first := take(t, old, knowing(b, store.Known{})).Histories[0]
	take(t, before, b)
	server.Do("REPLICAOF", "127.0.0.1", "1")
	server.Do("REPLICAOF", "NO", "ONE")
	after := open(t, server, nil)
	for range 20 {
		take(t, before, b)
		take(t, old, b)
		take(t, after, b)
	}
	h := historyOf(t, after, b.Buckets[0])
	if len(h.Epochs) != 2 || h.Generation == first.Generation {
		t.Errorf("%+v, before %+v", h, first)
	}
	if again := historyOf(t, old, b.Buckets[0]); again.Known != h.Known {
		t.Errorf("a connection from before is told %+v, want %+v", again.Known, h.Known)
	}
	until(t, "a connection asks again", func() bool { // in a record that it makes
		name := fmt.Sprint("new", time.Now().UnixNano())
		return take(t, before, knowing(takeOf(plan, name, 1), store.Known{})).Histories[0].Generation == h.Generation
	})
}

// takeAgain takes until the server answers: one of several connections may be from before its
// restart.
func takeAgain(t *testing.T, s *redisstore.Store, tk store.Take) (d store.Verdict) {
	t.Helper()
	until(t, "the server answers", func() bool {
		var out [1]store.Verdict
		err := s.Take(t.Context(), []store.Take{tk}, out[:])
		d = out[0]
		return err == nil && d.Fail == nil
	})
	return d
}
