package sqlitestore_test

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/model"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/sqlitestore"
)

// liner is a store that keeps lines.
type liner interface {
	store.Store
	store.Resetter
	store.Liner
}

// lineStep is a call of a random script, and what must be answered.
type lineStep struct {
	rand  *rand.Rand
	plans []*store.Plan
	ref   *model.Records
	clock *clock

	arrivals map[uint64]int64   // of the waiters that were refused
	open     []store.Settlement // cancels what is open
	asked    int
	queued   int
	noted    int
}

func newLineStep(t *testing.T, seed uint64) *lineStep {
	t.Helper()
	st := &lineStep{rand: rand.New(rand.NewPCG(seed, 5)), clock: newClock(), arrivals: map[uint64]int64{}}
	st.ref = model.NewRecords(st.clock.now, true).InLine()
	some := func(least, n int64) int64 { return least + st.rand.Int64N(n) }
	for i, limits := range [][]drawgate.Limit{
		{{Name: "minute", Kind: drawgate.Rolling, Window: time.Minute, Amount: some(1, 8)}},
		{
			{Name: "slots", Kind: drawgate.Concurrency, Unit: "slots", Amount: some(1, 5)},
			{Name: "second", Kind: drawgate.Bucket, Window: time.Second, Amount: some(1, 8)},
		},
		{{Name: "hour", Kind: drawgate.Calendar, Every: drawgate.Hour, Amount: some(10, 20)}},
	} {
		for j := range limits {
			if limits[j].Kind != drawgate.Bucket {
				limits[j].ReservedByPriority = map[int]drawgate.Share{5: {Percent: 20}}
			}
		}
		p, err := drawgate.Policy{Name: fmt.Sprint("p", i), Limits: limits}.Compile()
		if err != nil {
			t.Fatal(err)
		}
		st.plans = append(st.plans, p.Plan)
	}
	return st
}

func (st *lineStep) cost() store.BucketCost {
	p := st.plans[st.rand.IntN(len(st.plans))]
	key := store.Key{Tenant: "t", Policy: p.Name(), Name: fmt.Sprint("k", st.rand.IntN(2))}
	b := store.BucketCost{Key: key, Plan: p}
	for j := range p.Policy().Limits {
		b.N[j] = st.rand.Int64N(4)
	}
	if b.N == (store.Amounts{}) {
		b.N[0] = 1
	}
	return b
}

func (st *lineStep) costs() (all []store.BucketCost) {
	for range 1 + st.rand.IntN(3) {
		b := st.cost()
		if !slices.ContainsFunc(all, func(o store.BucketCost) bool { return o.Key == b.Key }) {
			all = append(all, b)
		}
	}
	return all
}

func (st *lineStep) take() store.Take {
	t := store.Take{Buckets: st.costs(), Priority: int8(st.rand.IntN(3) * 4), Barge: st.rand.IntN(12) == 0}
	if st.rand.IntN(3) > 0 {
		st.asked++
		t.ID, t.Grant = fmt.Sprint("id", st.asked), store.NewGrant()
		t.Hold = time.Duration(1+st.rand.IntN(20)) * time.Second
		t.Lease = st.rand.IntN(8) == 0
	}
	if st.rand.IntN(4) > 0 {
		number := 1 + st.rand.Uint64N(8)
		t.Ticket = &store.Ticket{
			Number: number, Arrival: st.arrivals[number],
			Waited: time.Duration(st.rand.IntN(2000)) * time.Millisecond,
		}
		if st.rand.IntN(4) == 0 {
			t.Ticket.Patience = time.Duration(1+st.rand.IntN(5000)) * time.Millisecond
		}
		for k := range st.rand.Uint64N(3) {
			at := st.rand.IntN(len(t.Buckets))
			t.Ticket.Next = append(t.Ticket.Next, store.Next{
				Number: 100 + 10*number + k, Waited: time.Second, Priority: t.Priority, At: at, N: t.Buckets[at].N,
			})
		}
	}
	return t
}

// play makes one call of both stores, and fails if the answers differ.
func (st *lineStep) play(t *testing.T, s liner) {
	t.Helper()
	ctx := t.Context()
	st.clock.advance(time.Duration(st.rand.IntN(700)) * time.Millisecond)
	if st.rand.IntN(25) == 0 {
		st.clock.advance(6 * time.Second) // longer than a ticket lives
	}
	switch n := st.rand.IntN(20); {
	case n < 13:
		var batch []store.Take
		for range 1 + st.rand.IntN(2) {
			batch = append(batch, st.take())
		}
		got, want := make([]store.Verdict, len(batch)), make([]store.Verdict, len(batch))
		st.same(t, fmt.Sprintf("take %+v", batch), s.Take(ctx, batch, got), got, st.ref.Take(ctx, batch, want), want)
		for i := range batch {
			st.answered(&batch[i], &want[i])
		}
	case n < 16 && len(st.open) > 0:
		i := st.rand.IntN(len(st.open))
		batch := []store.Settlement{st.open[i]}
		st.open = slices.Delete(st.open, i, i+1)
		got, want := make([]store.Outcome, 1), make([]store.Outcome, 1)
		st.same(t, fmt.Sprintf("settle %+v", batch), s.Settle(ctx, batch, got), got,
			st.ref.Settle(ctx, batch, want), want)
	case n == 16:
		batch := []store.Settlement{{Op: store.OpPause, Buckets: []store.BucketCost{st.cost()}, Hold: time.Second}}
		batch[0].Buckets[0].N = store.Amounts{}
		got, want := make([]store.Outcome, 1), make([]store.Outcome, 1)
		st.same(t, "pause", s.Settle(ctx, batch, got), got, st.ref.Settle(ctx, batch, want), want)
	case n == 17:
		key := []store.Key{st.cost().Key}
		st.same(t, "reset", s.Reset(ctx, key), nil, st.ref.Reset(ctx, key), nil)
	default:
		number, keys := 1+st.rand.Uint64N(8), []store.Key{st.cost().Key, st.cost().Key}
		delete(st.arrivals, number)
		st.same(t, "withdraw", s.Withdraw(ctx, number, keys), nil, st.ref.Withdraw(ctx, number, keys), nil)
	}
}

func (st *lineStep) answered(t *store.Take, v *store.Verdict) {
	if v.Reason == store.Queued {
		st.queued++
	}
	switch {
	case v.Fail != nil:
	case v.Allowed && t.ID != "":
		op := store.OpCancel
		if st.rand.IntN(2) == 0 {
			op = store.OpSettle
		}
		bs := slices.Clone(t.Buckets)
		for i := range bs {
			bs[i].N = store.Amounts{}
		}
		st.open = append(st.open, store.Settlement{Op: op, ID: t.ID, Grant: t.Grant, Buckets: bs})
	case !v.Allowed && t.Ticket != nil:
		st.arrivals[t.Ticket.Number] = v.Arrival
		st.noted++
	}
	if v.Allowed && t.Ticket != nil {
		delete(st.arrivals, t.Ticket.Number)
	}
}

func (st *lineStep) same(t *testing.T, what string, err error, got any, failed error, want any) {
	t.Helper()
	if err != nil || failed != nil {
		t.Fatalf("%s: %v, %v", what, err, failed)
	}
	if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); g != w {
		t.Fatalf("%s:\n got %s\nwant %s", what, g, w)
	}
}

// lines compares the lines in the file with those of the reference.
func (st *lineStep) lines(t *testing.T, path string) {
	t.Helper()
	for _, p := range st.plans {
		for i := range 2 {
			key := store.Key{Tenant: "t", Policy: p.Name(), Name: fmt.Sprint("k", i)}
			got, want := sqlitestore.LineOf(t, path, key), st.ref.Line(key)
			for _, l := range []*record.Line{got, want} {
				l.Expire(st.clock.now())
			}
			if g, w := fmt.Sprint(got.Tickets, got.Passed), fmt.Sprint(want.Tickets, want.Passed); g != w {
				t.Fatalf("the line of %v:\n got %s\nwant %s", key, g, w)
			}
		}
	}
}

// TestLines compares the lines with those of the reference, on random scripts: of a store with a
// cache, of one without, of one that is opened again and again, and of two that take turns.
//
// req: C5
func TestLines(t *testing.T) {
	needs.NoRace(t) // one caller
	t.Parallel()
	n := uint64(needs.Rounds(10, 40, 1500))
	unused := uncleaned(t)
	for _, name := range []string{"cached", "written", "reopened", "in turn"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			queued, noted := 0, 0
			for seed := range n {
				st, path := newLineStep(t, seed), dbPath(t)
				write(t, path, unused)
				opts := withLongTimeout(sqlitestore.With(map[bool]int{true: 1}[name == "written"], "synchronous = OFF"))
				open := func() liner {
					s, err := sqlitestore.OpenAt(path, opts, st.clock.now)
					if err != nil {
						t.Fatal(err)
					}
					return s
				}
				stores := []liner{open()}
				if name == "in turn" {
					stores = append(stores, open())
				}
				for i := range 60 {
					if name == "reopened" && i%7 == 6 {
						if err := stores[0].Close(); err != nil {
							t.Fatal(err)
						}
						stores[0] = open()
					}
					st.play(t, stores[i%len(stores)])
					if t.Failed() {
						t.Fatalf("seed %d, step %d", seed, i)
					}
				}
				st.lines(t, path)
				for _, s := range stores {
					if err := s.Close(); err != nil {
						t.Fatal(err)
					}
				}
				queued, noted = queued+st.queued, noted+st.noted
			}
			if queued < int(n) || noted < 5*int(n) {
				t.Errorf("%d were refused because others wait, %d left a ticket: the scripts are wrong", queued, noted)
			}
		})
	}
}

// ask is a take of n units that may wait if it has a number.
func ask(t *testing.T, s store.Store, plan *store.Plan, number uint64, n int64) store.Verdict {
	t.Helper()
	out := make([]store.Verdict, 1)
	tk := store.Take{Buckets: buckets(plan, "k", n)}
	if number > 0 {
		tk.Ticket = &store.Ticket{Number: number}
	}
	if err := s.Take(t.Context(), []store.Take{tk}, out); err != nil || out[0].Fail != nil {
		t.Fatal(err, out[0].Fail)
	}
	return out[0]
}

// want checks the reason of a refusal; Passed: it must be granted.
func wantReason(t *testing.T, when string, v store.Verdict, want store.Reason) {
	t.Helper()
	if v.Reason != want || v.Allowed != (want == store.Passed) {
		t.Errorf("%s: allowed %v, %v; want %v", when, v.Allowed, v.Reason, want)
	}
}

func withdraw(t *testing.T, s store.Liner, plan *store.Plan, number uint64) {
	t.Helper()
	if err := s.Withdraw(t.Context(), number, []store.Key{buckets(plan, "k", 1)[0].Key}); err != nil {
		t.Fatal(err)
	}
}

// TestLineIsShared: two stores on one file see each other's tickets, and a third one those that
// were left before it was opened. A reset keeps the line. Nothing of it is in the database.
//
// req: C5
func TestLineIsShared(t *testing.T) {
	t.Parallel()
	path, c, plan := unswept(t), newClock(), compile(t, rolling(10, time.Minute))
	a, b := openAt(t, path, nil, c), openAt(t, path, nil, c)
	wantReason(t, "empty", ask(t, a, plan, 0, 8), store.Passed)
	v := ask(t, a, plan, 1, 5)
	wantReason(t, "too much", v, store.Limited)
	if v.Arrival != c.now() {
		t.Errorf("arrival %d, want %d", v.Arrival, c.now())
	}
	wantReason(t, "another store, behind", ask(t, b, plan, 0, 1), store.Queued)
	wantReason(t, "its own store, behind", ask(t, a, plan, 2, 1), store.Queued)
	if err := b.Reset(t.Context(), []store.Key{buckets(plan, "k", 1)[0].Key}); err != nil {
		t.Fatal(err)
	}
	wantReason(t, "after a reset", ask(t, b, plan, 0, 5), store.Queued)
	wantReason(t, "beside the tickets", ask(t, b, plan, 0, 4), store.Passed)
	wantReason(t, "its turn", ask(t, b, plan, 1, 5), store.Passed)
	wantReason(t, "the next one's turn", ask(t, openAt(t, path, nil, c), plan, 0, 1), store.Queued)
	withdraw(t, a, plan, 2)
	withdraw(t, a, plan, 7)
	wantReason(t, "withdrawn", ask(t, b, plan, 0, 1), store.Passed)

	if info, err := os.Stat(path + ".line"); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if v, err := sqlitestore.Pragma(path, "user_version"); err != nil || v != "2" {
		t.Errorf("schema version %s, %v", v, err)
	}
	if n := sqlitestore.Count(t, path, "sqlite_master WHERE type = 'table'"); n != 6 {
		t.Errorf("%d tables", n)
	}
}

// TestLineBesideTheVersionBefore: a program that knows no lines overtakes, and does nothing more.
//
// req: C5 D6
func TestLineBesideTheVersionBefore(t *testing.T) {
	t.Parallel()
	path, c, plan := unswept(t), newClock(), compile(t, rolling(10, time.Minute))
	s, old := openAt(t, path, nil, c), openAt(t, path, sqlitestore.WithoutLines(), c)
	wantReason(t, "empty", ask(t, s, plan, 0, 8), store.Passed)
	wantReason(t, "too much", ask(t, s, plan, 1, 5), store.Limited)
	wantReason(t, "behind", ask(t, s, plan, 0, 1), store.Queued)
	wantReason(t, "overtakes", ask(t, old, plan, 0, 1), store.Passed)
	if v := ask(t, old, plan, 3, 5); v.Arrival != 0 || v.Reason != store.Limited {
		t.Errorf("it keeps a line: %+v", v)
	}
	wantReason(t, "still behind", ask(t, s, plan, 0, 1), store.Queued)
	if n := used(t, s, plan, "k"); n != 9 {
		t.Errorf("%d used, want 9", n)
	}
	counted(t, path)
}

// TestLineReopened: tickets outlive their process, and the file goes when nobody waits any more and
// nobody has the database open.
//
// req: C5
func TestLineReopened(t *testing.T) {
	t.Parallel()
	path, c, plan := unswept(t), newClock(), compile(t, rolling(10, time.Minute))
	in := func(f func(s *sqlitestore.Store)) {
		t.Helper()
		s, err := sqlitestore.OpenAt(path, nil, c.now)
		if err != nil {
			t.Fatal(err)
		}
		f(s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	in(func(s *sqlitestore.Store) { ask(t, s, plan, 0, 8); ask(t, s, plan, 1, 5) })
	in(func(s *sqlitestore.Store) { wantReason(t, "opened again", ask(t, s, plan, 0, 1), store.Queued) })
	if !exists(path + ".line") {
		t.Error("the file is gone though somebody waits")
	}
	c.advance(5 * time.Second) // the longest life of a ticket
	in(func(s *sqlitestore.Store) { wantReason(t, "too old", ask(t, s, plan, 0, 1), store.Passed) })
	wantFiles(t, path, "", ".mark")
}

// TestLineOfAClockThatWasSetBack: tickets that end far from now hold up nobody.
func TestLineOfAClockThatWasSetBack(t *testing.T) {
	t.Parallel()
	path, c, plan := unswept(t), newClock(), compile(t, bucketLimit(10, time.Minute))
	s := openAt(t, path, nil, c)
	c.advance(time.Hour)
	if d, err := take(t.Context(), s, plan, "k", 10); err != nil || !d.Allowed {
		t.Fatal(d, err)
	}
	ask(t, s, plan, 1, 5)
	if err := s.Reset(t.Context(), []store.Key{buckets(plan, "k", 1)[0].Key}); err != nil {
		t.Fatal(err)
	}
	c.advance(-time.Hour)
	wantReason(t, "set back", ask(t, openAt(t, path, nil, c), plan, 0, 10), store.Passed)
}

// ruin does something to the file with the lines.
var ruin = map[string]func(t *testing.T, path string){
	"deleted":   func(t *testing.T, path string) { remove(t, path) },
	"replaced":  func(t *testing.T, path string) { remove(t, path); write(t, path, []byte("something else")) },
	"emptied":   func(t *testing.T, path string) { write(t, path, nil) },
	"short":     func(t *testing.T, path string) { write(t, path, content(t, path)[:20]) },
	"cut":       func(t *testing.T, path string) { b := content(t, path); write(t, path, b[:len(b)-12]) },
	"header":    func(t *testing.T, path string) { flip(t, path, 3) },
	"end":       func(t *testing.T, path string) { flip(t, path, 24) },
	"record":    func(t *testing.T, path string) { flip(t, path, 45) },
	"zeros":     func(t *testing.T, path string) { write(t, path, make([]byte, 4096)) },
	"directory": func(t *testing.T, path string) { remove(t, path); mkdir(t, path) },
	"link": func(t *testing.T, path string) {
		remove(t, path)
		if err := os.Symlink(write(t, path+"-victim", []byte("precious")), path); err != nil {
			t.Fatal(err)
		}
	},
}

func mkdir(t *testing.T, path string) {
	t.Helper()
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
}

// TestLineFileRuined: whatever happens to the file, takes are decided and the limits kept. It
// starts again with nobody in line, unless something is in its place that is not a file.
//
// req: C5 D2 D11
func TestLineFileRuined(t *testing.T) {
	t.Parallel()
	for name, f := range ruin {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path, c, plan := unswept(t), newClock(), compile(t, rolling(10, time.Minute))
			var log syncWriter
			a := openAt(t, path, &sqlitestore.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}, c)
			b := openAt(t, path, nil, c)
			ask(t, a, plan, 0, 8)
			for number := range uint64(3) {
				ask(t, a, plan, 1+number, 5)
				ask(t, b, plan, 4+number, 5)
			}
			wantReason(t, "before", ask(t, b, plan, 0, 1), store.Queued)
			f(t, path+".line")
			n, kept := int64(8), name != "directory" && name != "link"
			for _, s := range []*sqlitestore.Store{b, a, b, openAt(t, path, nil, c)} {
				sqlitestore.CheckLogs(s)
				if v := ask(t, s, plan, 0, 1); v.Allowed {
					n++
				}
				wantReason(t, "too much", ask(t, s, plan, 9, 5), store.Limited)
			}
			if used := used(t, a, plan, "k"); used != n || n != map[bool]int64{true: 9, false: 10}[kept] {
				t.Errorf("%d used, %d granted", used, n)
			}
			c.advance(time.Minute)
			v := ask(t, a, plan, 11, 11)
			if kept == (v.Arrival == 0) {
				t.Errorf("arrival %d", v.Arrival)
			}
			if n := strings.Count(log.String(), "overtake"); (n == 1) == kept || n > 1 {
				t.Errorf("logged %d times: %s", n, log.String())
			}
			if name == "link" && string(content(t, path+".line-victim")) != "precious" {
				t.Error("what the link names was written to")
			}
			counted(t, path)
			if ok, err := sqlitestore.Pragma(path, "integrity_check"); err != nil || ok != "ok" {
				t.Error(ok, err)
			}
		})
	}
}

// TestLineIsCleaned: tickets of those who ask no more are removed while nobody asks.
//
// req: C5
func TestLineIsCleaned(t *testing.T) {
	t.Parallel()
	path, c, plan := dbPath(t), newClock(), compile(t, rolling(1, time.Minute))
	s := openAt(t, path, nil, c)
	for i := range 700 {
		for number := range uint64(2) {
			bs := buckets(plan, fmt.Sprint(i), 1)
			tk := store.Take{Buckets: bs, Ticket: &store.Ticket{Number: 1 + number}}
			if err := s.Take(t.Context(), []store.Take{tk}, make([]store.Verdict, 1)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := len(content(t, path+".line")); n < 700*30 {
		t.Fatalf("%d bytes of lines", n)
	}
	c.advance(10 * time.Minute)
	for deadline := time.Now().Add(time.Minute); len(content(t, path+".line")) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the lines are still there")
		}
		if err := s.Ping(t.Context()); err != nil { // wakes the store, which rests for two minutes
			t.Fatal(err)
		}
	}
}

// TestLineFileStaysSmall: a log with a few lines that change all the time is written anew.
//
// req: C5
func TestLineFileStaysSmall(t *testing.T) {
	t.Parallel()
	path, c, plan := unswept(t), newClock(), compile(t, rolling(1, time.Hour))
	a, b := openAt(t, path, nil, c), openAt(t, path, nil, c)
	ask(t, a, plan, 0, 1)
	most := 0
	for i := range uint64(2500) {
		s := []*sqlitestore.Store{a, b}[i%2]
		ask(t, s, plan, 1+i%50, 1)
		c.advance(100 * time.Millisecond)
		most = max(most, len(content(t, path+".line")))
	}
	if most < 200<<10 || most > 400<<10 {
		t.Errorf("it had up to %d bytes", most)
	}
	if n := len(sqlitestore.LineOf(t, path, buckets(plan, "k", 1)[0].Key).Tickets); n != 50 {
		t.Errorf("%d tickets, want 50", n)
	}
}

// TestManyTickets: what is full displaces the latest, and everything still works.
func TestManyTickets(t *testing.T) {
	t.Parallel()
	path, c, plan := unswept(t), newClock(), compile(t, rolling(1, time.Hour))
	a, b := openAt(t, path, nil, c), openAt(t, path, nil, c)
	ask(t, a, plan, 0, 1)
	for i := range uint64(200) {
		ask(t, []*sqlitestore.Store{a, b}[i%2], plan, 1+i, 1)
		c.advance(time.Millisecond)
	}
	all := sqlitestore.LineOf(t, path, buckets(plan, "k", 1)[0].Key).Tickets
	if len(all) != record.MaxTickets || all[0].Number != 1 || all[record.MaxTickets-1].Number != record.MaxTickets {
		t.Errorf("%d tickets", len(all))
	}
}

// TestWatch: a store announces what came free early in another process, in buckets where somebody
// of its own waits, and nothing else.
//
// req: C5
func TestWatch(t *testing.T) {
	t.Parallel()
	path, c := unswept(t), newClock()
	plan := compile(t, drawgate.Limit{Name: "slots", Kind: drawgate.Concurrency, Unit: "slots", Amount: 2})
	a, b := openAt(t, path, nil, c), openAt(t, path, nil, c)
	hold := func(s *sqlitestore.Store, name, id string, number uint64) bool {
		t.Helper()
		tk := store.Take{ID: id, Grant: 1, Hold: time.Hour, Buckets: buckets(plan, name, 1)}
		if number > 0 {
			tk.Ticket = &store.Ticket{Number: number}
		}
		out := make([]store.Verdict, 1)
		if err := s.Take(t.Context(), []store.Take{tk}, out); err != nil || out[0].Fail != nil {
			t.Fatal(err, out[0].Fail)
		}
		return out[0].Allowed
	}
	cancel := func(s *sqlitestore.Store, name, id string) {
		t.Helper()
		out := make([]store.Outcome, 1)
		err := s.Settle(t.Context(), []store.Settlement{{
			Op: store.OpCancel, ID: id, Grant: 1,
			Buckets: buckets(plan, name, 0),
		}}, out)
		if err != nil || out[0].Gone {
			t.Fatal(err, out[0])
		}
	}
	keys := make(chan store.Key, 100)
	defer a.Watch(keys)()
	next := func(want string) {
		t.Helper()
		for {
			select {
			case k := <-keys:
				if k.Name == want {
					return
				}
				t.Errorf("%s was announced, want %s", k.Name, want)
			case <-time.After(time.Minute):
				t.Fatalf("%s was not announced", want)
			}
		}
	}
	for _, name := range []string{"taken", "freed", "left"} {
		hold(b, name, name+"1", 0)
	}
	hold(b, "freed", "freed2", 0)
	hold(b, "left", "left2", 0)
	if hold(b, "left", "left3", 9) || hold(a, "freed", "mine", 1) || hold(a, "left", "mine2", 2) {
		t.Fatal("granted")
	}
	hold(b, "taken", "taken2", 0) // uses more, frees nothing
	if hold(a, "taken", "mine3", 3) {
		t.Fatal("granted")
	}
	hold(b, "other", "other1", 0)
	cancel(b, "other", "other1") // nobody waits there
	cancel(b, "freed", "freed1")
	next("freed")
	if err := b.Withdraw(t.Context(), 9, []store.Key{buckets(plan, "left", 1)[0].Key}); err != nil {
		t.Fatal(err)
	}
	next("left")
	cancel(b, "left", "left1")
	next("left")
	cancel(a, "left", "left2") // its own
	next("left")
	if len(keys) > 0 {
		t.Errorf("%v was announced as well", (<-keys).Name)
	}
}

// FuzzLineFile: whatever is in the file, it is read without a panic.
func FuzzLineFile(f *testing.F) {
	f.Add([]byte("drawgate line 1\n"))
	f.Add(sqlitestore.SomeLines())
	f.Fuzz(func(t *testing.T, b []byte) {
		path := write(t, dbPath(t), nil)
		write(t, path+".line", b)
		sqlitestore.ReadLines(path)
	})
}
