package sqlitestore_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/sqlitestore"
)

// scripted is one store or the reference, as a random script sees it.
type scripted interface {
	take(t *store.Take) string
	settle(s *store.Settlement) string
	peek(b *store.BucketCost) string
}

// reference decides with plain records, as the arithmetic says.
type reference struct {
	recs map[store.Key]*record.Record
	now  func() int64
}

func (r *reference) of(bs []store.BucketCost) (recs []*record.Record) {
	for i := range bs {
		if r.recs[bs[i].Key] == nil {
			r.recs[bs[i].Key] = &record.Record{}
		}
		recs = append(recs, r.recs[bs[i].Key])
	}
	return recs
}

func (r *reference) take(t *store.Take) string {
	d := store.Internal.Decide(t, r.of(t.Buckets), true, r.now())
	return say(&d)
}

func (r *reference) settle(s *store.Settlement) string {
	return fmt.Sprint(store.Internal.Apply(s, r.of(s.Buckets), true, r.now()))
}

func (r *reference) peek(b *store.BucketCost) string {
	st := store.Internal.Describe(b, r.of([]store.BucketCost{*b})[0], nil, 0, true, r.now())
	return say(&st.Verdict) + fmt.Sprint(st.States, st.Open)
}

// stored asks a store.
type stored struct {
	*rapid.T
	s *sqlitestore.Store
}

func (r stored) take(t *store.Take) string {
	var out [1]store.Verdict
	if err := r.s.Take(r.Context(), []store.Take{*t}, out[:]); err != nil {
		r.Fatal(err)
	}
	return say(&out[0])
}

func (r stored) settle(s *store.Settlement) string {
	var out [1]store.Outcome
	if err := r.s.Settle(r.Context(), []store.Settlement{*s}, out[:]); err != nil {
		r.Fatal(err)
	}
	return fmt.Sprint(out[0])
}

func (r stored) peek(b *store.BucketCost) string {
	var out [1]store.State
	if err := r.s.Peek(r.Context(), []store.BucketCost{*b}, 0, out[:]); err != nil {
		r.Fatal(err)
	}
	return say(&out[0].Verdict) + fmt.Sprint(out[0].States, out[0].Open)
}

// say writes a decision out.
func say(d *store.Verdict) string {
	text := fmt.Sprint(d.Allowed, d.Replayed, d.Reason, d.RetryAfter, d.EarliestRetry, d.Fail, d.At(), d.HoldEnd(),
		d.Granted(0))
	return text + fmt.Sprint(d.First, d.Rest)
}

// TestRestart runs random scripts, over several buckets and every kind of limit, on two stores of
// one file, which are closed and opened again at any point and forget what they have cached: every
// answer is what the arithmetic says without a store.
//
// req: D1 D2 D3 D11 E1
func TestRestart(t *testing.T) {
	t.Parallel()
	plan := compile(t,
		drawgate.Limit{Name: "rate", Kind: drawgate.Bucket, Window: time.Minute, Amount: 30},
		drawgate.Limit{Name: "exact", Kind: drawgate.Rolling, Window: time.Minute, Amount: 20},
		drawgate.Limit{Name: "joined", Kind: drawgate.Rolling, Window: time.Hour, Amount: 200, Precision: 100},
		drawgate.Limit{Name: "day", Kind: drawgate.Calendar, Every: drawgate.Day, Amount: 500},
		drawgate.Limit{Name: "slots", Kind: drawgate.Concurrency, Unit: "slots", Amount: 4},
		drawgate.Limit{Name: "cost", Kind: drawgate.Rolling, Window: time.Hour, Unit: "usd_micros", Amount: 400},
	)
	run, path := 0, dbPath(t)
	rapid.Check(t, func(rt *rapid.T) {
		if run++; enough(run) {
			return
		}
		c := newClock()
		opts := sqlitestore.With(rapid.SampledFrom([]int{0, 1, 2500}).Draw(rt, "cache"), "synchronous = OFF")
		var stores [2]*sqlitestore.Store
		reopen := func(i int) {
			if stores[i] != nil {
				if err := stores[i].Close(); err != nil {
					rt.Fatal(err)
				}
			}
			var err error
			if stores[i], err = sqlitestore.OpenAt(path, withLongTimeout(opts), c.now); err != nil {
				rt.Fatal(err)
			}
		}
		reopen(0)
		reopen(1)
		defer func() {
			stores[0].Close()
			stores[1].Close()
		}()
		ref := &reference{recs: map[store.Key]*record.Record{}, now: c.now}
		for i := range rapid.IntRange(1, 40).Draw(rt, "steps") {
			if rapid.IntRange(0, 9).Draw(rt, "reopen") == 0 {
				reopen(rapid.IntRange(0, 1).Draw(rt, "which"))
			}
			c.advance(time.Duration(rapid.SampledFrom([]int64{0, 0, 1, 1e6, 7e6, 61e6, 3601e6}).Draw(rt,
				"wait")) * time.Microsecond)
			s := stored{rt, stores[rapid.IntRange(0, 1).Draw(rt, "store")]}
			got, want := step(rt, plan, fmt.Sprint(run, " "), i, s, ref)
			if got != want {
				rt.Fatalf("step %d:\n got %s\nwant %s", i, got, want)
			}
		}
	})
}

// enough reports whether a property that needs the disk was tried often enough.
func enough(run int) bool { return needs.Race && run > 10 || testing.Short() && run > 20 }

// step asks the same of both.
func step(rt *rapid.T, plan *store.Plan, prefix string, i int, s, ref scripted) (got, want string) {
	n := rapid.Int64Range(0, 12).Draw(rt, "n")
	bs := buckets(plan, prefix+rapid.SampledFrom([]string{"a", "b", "\x00\xff"}).Draw(rt, "key"), n, n)
	id := fmt.Sprint(rapid.IntRange(max(0, i-6), i).Draw(rt, "id"))
	op := rapid.IntRange(0, 7).Draw(rt, "op")
	if op < 5 && rapid.Bool().Draw(rt, "two") {
		bs = append(bs, buckets(plan, prefix+"c", 1, 1, 1)...)
	}
	st := store.Settlement{ID: id, Buckets: bs}
	switch op {
	case 0, 1:
		t := store.Take{Buckets: bs}
		return s.take(&t), ref.take(&t)
	case 2, 3:
		for k := range bs {
			bs[k].N[4], bs[k].N[5] = 1, 3
		}
		t := store.Take{ID: id, Hold: 10 * time.Second, Buckets: bs, Lease: op == 3}
		if op == 3 {
			for k := range bs {
				bs[k].N = store.Amounts{5, 5, 5, 5}
			}
		}
		return s.take(&t), ref.take(&t)
	case 4:
		st.Op = store.OpSettle
		for k := range bs {
			bs[k].N = store.Amounts{n, store.KeepEstimate, n, n, store.KeepEstimate, n}
		}
	case 5:
		st.Op = store.OpCancel
	case 6:
		st.Op, st.Hold = store.OpRenew, time.Minute
	case 7:
		return s.peek(&bs[0]), ref.peek(&bs[0])
	}
	return s.settle(&st), ref.settle(&st)
}

// TestClean lives for 40 days: old history and buckets of which nothing is used any more are
// deleted, what still counts is not. Only the long form keeps the file open all day, where one pass
// after the other finds nothing to do.
//
// req: A7 A9 D6 D11
func TestClean(t *testing.T) {
	needs.NoRace(t) // some thousand passes
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(dir, "state.db")
		s, err := sqlitestore.Open(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		short, long := compile(t, rolling(5, time.Hour)), compile(t, rolling(5, 60*24*time.Hour))
		start := time.Now()
		for day := range 40 {
			batch := make([]store.Take, 0, 800)
			most := 20
			if day == 1 {
				most = 700 // more than one step of cleaning
			}
			for i := range most {
				batch = append(batch, store.Take{Buckets: buckets(short, fmt.Sprint(day, "-", i), 1)})
			}
			batch = append(batch, store.Take{
				Buckets: buckets(short, fmt.Sprint("held ", day), 1), ID: "x",
				Hold: time.Hour,
			})
			if day < 2 {
				batch = append(batch, store.Take{Buckets: buckets(long, "long", 1)})
			}
			out := make([]store.Verdict, len(batch))
			if err := s.Take(t.Context(), batch, out); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Hour)
			if needs.Long() {
				time.Sleep(21 * time.Hour)
			} else {
				s = reopened(t, s, path, 21*time.Hour)
			}
			time.Sleep(time.Hour)
		}
		synctest.Wait()
		events := history(t, s, time.Time{}, time.Time{})
		if oldest := time.Since(events[0].At); oldest < 34*24*time.Hour || oldest > 37*24*time.Hour {
			t.Errorf("the oldest event is %v old, want 35 to 36 days", oldest)
		}
		if n := len(events); n < 34*22 || n > 37*22 {
			t.Errorf("%d events", n)
		}
		var expired int
		for _, e := range events {
			if e.Op == "expire" && e.ID == "x" && len(e.Units) == 1 {
				expired++
			}
		}
		if expired < 33 {
			t.Errorf("%d holds ended in the history", expired)
		}
		if n := used(t, s, long, "long"); n != 2 {
			t.Errorf("%d used over 60 days, want 2: what counts does not depend on the history", n)
		}
		keys := list(t, s, "p")
		if !slices.Equal(keys, []string{"long"}) {
			t.Errorf("in use: %d keys", len(keys))
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		for _, table := range []string{"state", "key", "entry", "open"} {
			if n := sqlitestore.Count(t, path, table); n > 2*21+2 {
				t.Errorf("%d rows are left in %s after %v", n, table, time.Since(start))
			}
		}
	})
}

// reopened closes a file, and opens it again some time later.
func reopened(t *testing.T, s *sqlitestore.Store, path string, later time.Duration) *sqlitestore.Store {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(later)
	s, err := sqlitestore.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestExpiredIsAbsent leaves buckets of every kind until nothing of them is used any more, in a
// file that is not cleaned: each is still there, and counts as one that never was, to the last
// unit.
//
// req: A7 A9
func TestExpiredIsAbsent(t *testing.T) {
	t.Parallel()
	path := dbPath(t)
	write(t, path, uncleaned(t))
	c := newClock()
	plan := compile(t, rolling(5, time.Hour), bucketLimit(5, time.Minute),
		drawgate.Limit{Name: "day", Kind: drawgate.Calendar, Every: drawgate.Day, Amount: 5},
		drawgate.Limit{Name: "slots", Kind: drawgate.Concurrency, Unit: "slots", Amount: 5})
	all := []int64{5, 5, 5, 5}
	held := store.Take{ID: "held", Hold: time.Minute, Buckets: buckets(plan, "held", all...)}
	s := openAt(t, path, nil, c)
	if err := s.Take(t.Context(), []store.Take{held}, make([]store.Verdict, 1)); err != nil {
		t.Fatal(err)
	}
	if d, err := take(t.Context(), s, plan, "taken", all[:3]...); err != nil || !d.Allowed {
		t.Fatalf("%v, %v", d.Allowed, err)
	}
	if got := list(t, s, "p"); len(got) != 2 {
		t.Errorf("in use: %q", got)
	}
	c.advance(7 * 24 * time.Hour)
	// one that knows the buckets, and one that reads them
	for _, st := range []*sqlitestore.Store{s, openAt(t, path, nil, c)} {
		if n := sqlitestore.Count(t, path, "state"); n != 2 {
			t.Fatalf("%d buckets are in the file, want 2", n)
		}
		if names := list(t, st, "p"); names != nil {
			t.Errorf("in use: %q", names)
		}
		got := make([]store.State, 3)
		of := slices.Concat(buckets(plan, "never", 1), buckets(plan, "held", 1), buckets(plan, "taken", 1))
		if err := st.Peek(t.Context(), of, 0, got); err != nil {
			t.Fatal(err)
		}
		for i := 1; i < 3; i++ {
			if diff := cmp.Diff(got[0].States, got[i].States); diff != "" || got[i].Open != 0 {
				t.Errorf("%s, %d open (-never +expired):\n%s", of[i].Key.Name, got[i].Open, diff)
			}
		}
	}
	for _, name := range []string{"held", "taken"} {
		if d, err := take(t.Context(), s, plan, name, all[:3]...); err != nil || !d.Allowed {
			t.Errorf("all of %s again: %v, %v", name, d.Allowed, err)
		}
	}
}

func list(t *testing.T, s *sqlitestore.Store, policy string) (names []string) {
	t.Helper()
	err := s.List(t.Context(), "t", policy, func(k store.Key) bool {
		names = append(names, k.Name)
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

func TestListPages(t *testing.T) {
	t.Parallel()
	c := newClock()
	s := openAt(t, dbPath(t), nil, c)
	plan := compile(t, rolling(5, time.Hour))
	var want []string
	batch := []store.Take{{Buckets: buckets(plan, "", 1)}}
	want = append(want, "")
	for i := range 700 {
		want = append(want, fmt.Sprint("user-", i))
		batch = append(batch, store.Take{Buckets: buckets(plan, want[i+1], 1)})
	}
	batch = append(batch, store.Take{Buckets: buckets(plan, "ended", 1), ID: "x", Hold: time.Minute})
	if err := s.Take(t.Context(), batch, make([]store.Verdict, len(batch))); err != nil {
		t.Fatal(err)
	}
	slices.Sort(want)
	if got := list(t, s, "p"); !slices.Equal(got, append([]string{"", "ended"}, want[1:]...)) {
		t.Errorf("got %d names, want %d", len(got), len(want)+1)
	}
	if got := list(t, s, "other"); got != nil {
		t.Errorf("got %q of another policy", got)
	}
	c.advance(time.Hour)
	if got := list(t, s, "p"); got != nil {
		t.Errorf("%d in use after the window", len(got))
	}
}

// TestReadRange reads any part of a history: exactly the events in it, in order.
//
// req: D6
func TestReadRange(t *testing.T) {
	t.Parallel()
	c := newClock()
	s := openAt(t, dbPath(t), sqlitestore.With(0, "synchronous = OFF"), c)
	plan := compile(t, bucketLimit(1_000_000, time.Second))
	start := time.UnixMicro(c.now())
	var all []time.Time
	batch, out := make([]store.Take, 25), make([]store.Verdict, 25)
	for i := range batch {
		batch[i].Buckets = buckets(plan, "k", 1)
	}
	for i := range 200 { // more rows than are searched at a time
		c.advance(time.Duration(i) * time.Second)
		if err := s.Take(t.Context(), batch, out); err != nil {
			t.Fatal(err)
		}
		all = append(all, slices.Repeat([]time.Time{time.UnixMicro(c.now())}, len(batch))...)
	}
	length, run := all[len(all)-1].Sub(start), 0
	rapid.Check(t, func(rt *rapid.T) {
		if run++; enough(run) {
			return
		}
		from := start.Add(time.Duration(rapid.Int64Range(-1e9, int64(length)).Draw(rt, "from")))
		to := from.Add(time.Duration(rapid.Int64Range(0, int64(length)).Draw(rt, "length")))
		if rapid.Bool().Draw(rt, "exact") {
			from, to = all[rapid.IntRange(0, len(all)-1).Draw(rt, "a")],
				all[rapid.IntRange(0, len(all)-1).Draw(rt, "b")]
		}
		var want, got []time.Time
		for _, at := range all {
			if !at.Before(from) && at.Before(to) {
				want = append(want, at)
			}
		}
		for _, e := range history(t, s, from, to) {
			got = append(got, e.At)
		}
		if !slices.EqualFunc(want, got, time.Time.Equal) {
			rt.Fatalf("[%v, %v): %d events, want %d", from, to, len(got), len(want))
		}
	})
}

// TestHistoryOff keeps no history.
func TestHistoryOff(t *testing.T) {
	t.Parallel()
	s := openAt(t, dbPath(t), &sqlitestore.Options{HistoryFor: -1}, newClock())
	if n := takes(t, s, compile(t, rolling(5, time.Hour)), "k"); n != 5 {
		t.Errorf("%d granted, want 5", n)
	}
	if n := len(history(t, s, time.Time{}, time.Time{})); n != 0 {
		t.Errorf("%d events, want none", n)
	}
}

// TestClockBack sets the clock back, in one process and across a restart: nothing is granted twice.
//
// req: D2 E1
func TestClockBack(t *testing.T) {
	t.Parallel()
	path, c := dbPath(t), newClock()
	plan := compile(t, drawgate.Limit{Name: "h", Kind: drawgate.Calendar, Every: drawgate.Hour, Amount: 3},
		rolling(3, time.Minute))
	s := openAt(t, path, nil, c)
	for i := range int64(3) {
		if d, err := take(t.Context(), s, plan, "k", 1, 1); err != nil || !d.Allowed {
			t.Fatalf("take %d: %v, %v", i, d.Allowed, err)
		}
	}
	for _, back := range []time.Duration{time.Second, time.Hour, 400 * 24 * time.Hour} {
		c.advance(-back)
		again := openAt(t, path, nil, c)
		for _, store := range []*sqlitestore.Store{s, again} {
			if d, err := take(t.Context(), store, plan, "k", 1, 1); err != nil || d.Allowed {
				t.Errorf("set back by %v: %v, %v", back, d.Allowed, err)
			}
		}
	}
}

// TestBubble has the store in a bubble: nothing moves while nobody asks, and no goroutine is left
// after Close.
func TestBubble(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, err := sqlitestore.Open(filepath.Join(dir, "state.db"), nil)
		if err != nil {
			t.Fatal(err)
		}
		plan := compile(t, rolling(5, time.Hour))
		for range 3 {
			if n := takes(t, s, plan, "k"); n != 5 {
				t.Errorf("%d granted, want 5", n)
			}
			time.Sleep(time.Hour)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestSchema shows that the file can be read with other tools, and that a second start changes
// nothing.
//
// req: D6
func TestSchema(t *testing.T) {
	t.Parallel()
	path := filled(t)
	for pragma, want := range map[string]string{
		"user_version": "2", "application_id": "1146242903",
		"journal_mode": "wal", "integrity_check": "ok",
	} {
		if got, err := sqlitestore.Pragma(path, pragma); err != nil || got != want {
			t.Errorf("%s: got %q, %v; want %q", pragma, got, err, want)
		}
	}
	if n := sqlitestore.Count(t, path, "history"); n != 300 {
		t.Errorf("%d rows in the history, want 300", n)
	}
	left, err := filepath.Glob(path + "*")
	if err != nil || !slices.Equal(left, []string{path, path + ".mark", path + ".owner", path + ".users"}) {
		t.Errorf("left beside the file: %q, %v", strings.Join(left, " "), err)
	}
}

// TestHistoryOrder shows that the history has the order of the takes of a batch, plain and held
// ones.
//
// req: D5 D6
func TestHistoryOrder(t *testing.T) {
	t.Parallel()
	s := openAt(t, dbPath(t), nil, newClock())
	plan := compile(t, rolling(1000, time.Hour))
	var batch []store.Take
	for i := range 100 {
		tk := store.Take{Buckets: buckets(plan, fmt.Sprint(i), 1)}
		if i%20 == 17 {
			tk.ID, tk.Hold, tk.Labels = fmt.Sprint("id ", i), time.Minute,
				[]store.Label{{Name: "task", Value: fmt.Sprint(i)}}
		}
		batch = append(batch, tk)
	}
	if err := s.Take(t.Context(), batch, make([]store.Verdict, len(batch))); err != nil {
		t.Fatal(err)
	}
	events := history(t, s, time.Time{}, time.Time{})
	if len(events) != len(batch) {
		t.Fatalf("%d events, want %d", len(events), len(batch))
	}
	for i, e := range events {
		if e.Key != batch[i].Buckets[0].Key || e.ID != batch[i].ID || !slices.Equal(e.Labels, batch[i].Labels) ||
			fmt.Sprint(e.Units) != "[{requests 1}]" {
			t.Errorf("event %d is %+v", i, e)
		}
	}
}
