package spend_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/spend"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/memstore"
)

// names of teams, keys and so on. They must not be taken for one another.
var names = []string{"", "a", "a/b", "b", "%2F", "ä ö", "/", "a\nb", strings.Repeat("long", 30)}

// counter is a store with a book and a limiter of meters.
type counter struct {
	*testing.T
	store drawgate.Store
	book  *spend.Book
	lim   *drawgate.Limiter
}

func newCounter(t *testing.T, s drawgate.Store, zone string) *counter {
	t.Helper()
	at, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	lim, err := drawgate.New(s, spend.Policy("usd_micros"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lim.Close() })
	return &counter{t, s, spend.NewBook(s, at, nil), lim}
}

// begin begins a call of at most so many units.
func (c *counter) begin(m spend.Meter, u spend.Units) (spend.Meter, *drawgate.Reservation) {
	c.Helper()
	m = c.book.Meter(c.Context(), m, time.Now())
	tenant, key := m.Bucket()
	d, r, err := c.lim.Take(c.Context(), drawgate.Request{
		Buckets: []drawgate.Ask{{Limiter: c.lim, Tenant: tenant, Key: key, Costs: costs(&u)}},
		Hold:    drawgate.Hold{For: time.Minute},
	})
	if err != nil || !d.Allowed {
		c.Fatal(d, err)
	}
	return m, r
}

func costs(u *spend.Units) []drawgate.Cost {
	return spend.Costs([]drawgate.Cost{
		drawgate.Requests(u.Requests), drawgate.Units(llm.UnitPromptTokens, u.PromptTokens),
		drawgate.Units(llm.UnitAnswerTokens, u.AnswerTokens), drawgate.Units("usd_micros", u.Micros),
	})
}

func randomUnits(rng *rand.Rand) spend.Units {
	n := func() int64 { return rng.Int64N(1_000_000) }
	return spend.Units{
		Requests: 1, PromptTokens: n(), AnswerTokens: n(), Micros: 5 * n(),
	}
}

func add(to *spend.Units, u spend.Units) {
	to.Requests += u.Requests
	to.PromptTokens += u.PromptTokens
	to.AnswerTokens += u.AnswerTokens
	to.Micros += u.Micros
}

// TestMeters: random calls over some days, of which some are settled, some cancelled, some under
// way and some never ended, are counted by their day and meter to the unit, and are there half a
// year later.
func TestMeters(t *testing.T) {
	t.Parallel()
	for seed := range uint64(5) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			c := newCounter(t, memstore.New(nil), "Europe/Berlin")
			want := map[spend.Meter]*spend.Row{}
			first := time.Now().In(time.UTC)
			var open []func()
			for range 400 {
				m := spend.Meter{
					Team: names[rng.IntN(len(names))], Key: names[rng.IntN(len(names))], Upstream: "up",
					Model: names[rng.IntN(3)],
				}
				most, used := randomUnits(rng), randomUnits(rng)
				m, r := c.begin(m, most)
				m = m.Named() // as rows have it
				row := want[m]
				if row == nil {
					row = &spend.Row{Meter: m}
					want[m] = row
				}
				switch rng.IntN(6) {
				case 0:
					if err := r.Cancel(t.Context()); err != nil {
						t.Fatal(err)
					}
				case 1: // its process dies
					add(&row.Used, most)
				case 2:
					open = append(open, func() {
						if err := r.Settle(t.Context(), costs(&used)...); err != nil {
							t.Error(err)
						}
						add(&row.Used, used)
					})
				default:
					if err := r.Settle(t.Context(), costs(&used)...); err != nil {
						t.Fatal(err)
					}
					add(&row.Used, used)
				}
				if len(open) > 3 || rng.IntN(4) == 0 {
					for _, f := range open {
						f()
					}
					open = nil
					time.Sleep(time.Duration(rng.Int64N(int64(30 * time.Minute))))
				}
			}
			for _, f := range open {
				f()
			}
			time.Sleep(180 * 24 * time.Hour)
			maps.DeleteFunc(want, func(_ spend.Meter, r *spend.Row) bool { return r.Used == spend.Units{} })
			rows, err := spend.Read(t.Context(), c.store, "usd_micros", first, first.AddDate(0, 0, 30), "")
			if err != nil {
				t.Fatal(err)
			}
			got := map[spend.Meter]*spend.Row{}
			for i := range rows {
				got[rows[i].Meter] = &rows[i]
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("seed %d: -want +got:\n%s", seed, diff)
			}
			all := spend.Sum(rows, func(m *spend.Meter) { *m = spend.Meter{} })
			var sum spend.Units
			for _, r := range want {
				add(&sum, r.Used)
			}
			if len(all) != 1 || all[0].Used != sum {
				t.Errorf("in all %+v, want %+v", all, sum)
			}
		})
	}
}

// TestUnderWay: what a call may use is open until it ends, and then what it used is counted.
func TestUnderWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCounter(t, memstore.New(nil), "UTC")
		m, r := c.begin(spend.Meter{Key: "k", Upstream: "u", Model: "m"}, spend.Units{Requests: 1, Micros: 700})
		row := func() spend.Row {
			rows, err := spend.Read(t.Context(), c.store, "usd_micros", time.Now(), time.Now(), "")
			if err != nil || len(rows) != 1 {
				t.Fatal(rows, err)
			}
			return rows[0]
		}
		if got, want := row(), (spend.Row{Meter: m, Open: spend.Units{Requests: 1, Micros: 700}}); got != want {
			t.Errorf("under way: %+v, want %+v", got, want)
		}
		if err := r.Settle(t.Context(), spend.Costs([]drawgate.Cost{drawgate.Units("usd_micros", 3)})...); err != nil {
			t.Fatal(err)
		}
		if got, want := row(), (spend.Row{Meter: m, Used: spend.Units{Requests: 1, Micros: 3}}); got != want {
			t.Errorf("ended: %+v, want %+v", got, want)
		}
	})
}

// TestDaysAreOfTheZone: a call of half past midnight in Berlin is of the new day there.
func TestDaysAreOfTheZone(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 28, 23, 30, 0, 0, time.UTC)
	for zone, want := range map[string]string{
		"UTC": "2026-11-28", "Europe/Berlin": "2026-11-29", "America/Los_Angeles": "2026-11-28",
		"Pacific/Kiritimati": "2026-11-29",
	} {
		c := newCounter(t, memstore.New(nil), zone)
		if m := c.book.Meter(t.Context(), spend.Meter{Key: "k"}, at); m.Day != want {
			t.Errorf("%s: %s, want %s", zone, m.Day, want)
		}
	}
}

// TestManyModels: callers may name any number of models, of any length: they have 200 meters a day.
func TestManyModels(t *testing.T) {
	t.Parallel()
	c := newCounter(t, memstore.New(nil), "UTC")
	now := time.Now()
	seen := map[string]bool{}
	for i := range 1000 {
		m := spend.Meter{Key: "k", Upstream: "u", Model: fmt.Sprint("model ", i%500)}
		if i == 7 {
			m.Model = strings.Repeat("m", 101)
		}
		seen[c.book.Meter(t.Context(), m, now).Model] = true
	}
	if len(seen) != spend.MaxModels+1 || !seen[spend.Other] || seen[strings.Repeat("m", 101)] {
		t.Errorf("%d models", len(seen))
	}
	if m := c.book.Meter(t.Context(), spend.Meter{Upstream: "another", Model: "model 400"},
		now); m.Model != "model 400" {
		t.Errorf("another upstream's model is %q", m.Model)
	}
	if m := c.book.Meter(t.Context(), spend.Meter{Upstream: "u", Model: "model 400"}, now.AddDate(0, 0, 1)); m.Model !=
		"model 400" {
		t.Errorf("the next day's model is %q", m.Model)
	}
}

// indexed is a store with an index that fails at times.
type indexed struct {
	drawgate.Store

	mu    sync.Mutex
	fail  bool        // guarded by mu
	tries int         // guarded by mu
	noted []store.Key // guarded by mu
}

func (s *indexed) Index(_ context.Context, _ time.Duration, keys []store.Key) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tries++
	if s.fail {
		return errors.New("not now")
	}
	s.noted = append(s.noted, keys...)
	return nil
}

func (s *indexed) works(yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = !yes
}

func (s *indexed) seen() (list []string, tries int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.noted {
		list = append(list, k.Tenant+" "+k.Name)
	}
	slices.Sort(list)
	return list, s.tries
}

// TestMetersAreNoted: each meter is noted once a day, before its first call; if that fails, calls
// go on, and it is tried again each second until it succeeds. A server that lost its data hears of
// all meters that are in use within ten minutes.
func TestMetersAreNoted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &indexed{Store: memstore.New(nil)}
		c := newCounter(t, s, "UTC")
		defer c.book.Close()
		m := spend.Meter{Key: "k", Upstream: "u", Model: "m"}
		note := func(team string) { m.Team = team; c.book.Meter(t.Context(), m, time.Now()) }
		check := func(when string, tries int, want ...string) {
			t.Helper()
			if got, n := s.seen(); !slices.Equal(got, want) || n != tries {
				t.Fatalf("%s: noted %q by %d tries, want %q by %d", when, got, n, want, tries)
			}
		}
		note("a")
		note("a")
		check("at once", 1, "2000-01-01 a/k/u/m")
		s.works(false)
		note("b")
		note("b")
		note("c")
		check("failed", 3, "2000-01-01 a/k/u/m")
		time.Sleep(2500 * time.Millisecond)
		check("tried again", 5, "2000-01-01 a/k/u/m")
		s.works(true)
		time.Sleep(time.Second)
		check("it works", 6, "2000-01-01 a/k/u/m", "2000-01-01 b/k/u/m", "2000-01-01 c/k/u/m")
		time.Sleep(time.Minute)
		note("b")
		check("a minute later", 6, "2000-01-01 a/k/u/m", "2000-01-01 b/k/u/m", "2000-01-01 c/k/u/m")
		time.Sleep(10 * time.Minute)
		note("b")
		check("ten minutes later", 7, "2000-01-01 a/k/u/m", "2000-01-01 b/k/u/m", "2000-01-01 b/k/u/m",
			"2000-01-01 c/k/u/m")
		time.Sleep(24 * time.Hour)
		note("a")
		check("a day later", 8, "2000-01-01 a/k/u/m", "2000-01-01 b/k/u/m", "2000-01-01 b/k/u/m",
			"2000-01-01 c/k/u/m", "2000-01-02 a/k/u/m")
	})
}

// TestClockThatWasAhead: a call that is dated by years ahead leaves the days after it alone.
func TestClockThatWasAhead(t *testing.T) {
	t.Parallel()
	c := newCounter(t, memstore.New(nil), "UTC")
	m := func(model string, at time.Time) string {
		return c.book.Meter(t.Context(), spend.Meter{Key: "k", Upstream: "u", Model: model}, at).Model
	}
	m("first", time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC))
	for day := range 3 {
		for i := range spend.MaxModels {
			if got := m(fmt.Sprint(day, " ", i),
				time.Date(2026, 11, 28+day, 0, 0, 0, 0, time.UTC)); got == spend.Other {
				t.Fatalf("day %d: model %d is not told apart", day, i)
			}
		}
	}
}

// TestClockThatSteps: each call counts on the day that the clock showed when it began, if that
// stepped by a day meanwhile, or back.
func TestClockThatSteps(t *testing.T) {
	t.Parallel()
	c := newCounter(t, memstore.New(nil), "UTC")
	noon := time.Now().UTC().Truncate(24 * time.Hour).Add(12 * time.Hour)
	call := func(days int) (end func()) {
		m := c.book.Meter(t.Context(), spend.Meter{Team: "t", Key: "k", Upstream: "u", Model: "m"},
			noon.AddDate(0, 0, days))
		tenant, key := m.Bucket()
		u := spend.Units{Requests: 1, Micros: 9}
		d, r, err := c.lim.Take(t.Context(), drawgate.Request{
			Buckets: []drawgate.Ask{{Limiter: c.lim, Tenant: tenant, Key: key, Costs: costs(&u)}},
			Hold:    drawgate.Hold{For: time.Minute},
		})
		if err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		return func() {
			u.Micros = 5
			if err := r.Settle(t.Context(), costs(&u)...); err != nil {
				t.Error(err)
			}
		}
	}
	ends := []func(){call(0), call(1), call(0), call(-1), call(0)}
	for _, end := range ends {
		end()
	}
	rows, err := spend.Read(t.Context(), c.store, "usd_micros", noon.AddDate(0, 0, -1), noon.AddDate(0, 0, 1), "")
	if err != nil || len(rows) != 3 {
		t.Fatalf("%+v, %v: want three days", rows, err)
	}
	for i, want := range []int64{1, 3, 1} {
		if r := &rows[i]; r.Day != noon.AddDate(0, 0, i-1).Format(time.DateOnly) ||
			r.Used != (spend.Units{Requests: want, Micros: 5 * want}) || r.Open != (spend.Units{}) {
			t.Errorf("%+v, want %d calls", r, want)
		}
	}
}

// TestNamesInKeys: any names make a key that is short enough for a bucket, and that is read again.
// Long names are cut, and stay apart.
func TestNamesInKeys(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("中", 100)
	seen := map[string]bool{}
	for _, name := range append(names, long, long+"1", "a"+strings.Repeat("中", 33), "\xff\xfe",
		strings.Repeat("\xff", 200)) {
		m := spend.Meter{Day: "2026-11-28", Team: name, Key: name, Upstream: name, Model: name}
		_, key := m.Bucket()
		if drawgate.BoundedKey(key) != key || seen[key] {
			t.Errorf("%q makes the key %q", name, key)
		}
		seen[key] = true
		c := newCounter(t, memstore.New(nil), "UTC")
		c.begin(spend.Meter{Team: name, Key: name, Upstream: name, Model: name}, spend.Units{Requests: 1})
		read := func(of string) []spend.Row {
			rows, err := spend.Read(t.Context(), c.store, "usd_micros", time.Now(), time.Now(), of)
			if err != nil {
				t.Fatal(err)
			}
			return rows
		}
		if rows := read(name); len(rows) != 1 || rows[0].Open.Requests != 1 || len(read("")) != 1 {
			t.Errorf("%q: %+v", name, rows)
		}
		if cut := m.Named().Key; cut != name && len(read(cut)) > 0 {
			t.Errorf("the key %q has what %q spent", cut, name)
		}
	}
}

// TestStoreThatCannotList: the error says so.
func TestStoreThatCannotList(t *testing.T) {
	t.Parallel()
	s := struct{ drawgate.Store }{memstore.New(nil)}
	if _, err := spend.Read(t.Context(), s, "", time.Now(), time.Now(), ""); !errors.Is(err, spend.ErrCannotList) {
		t.Error(err)
	}
}
