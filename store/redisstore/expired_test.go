package redisstore_test

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/redisstore"
)

// crowd is a bucket of an exact limit, per hour, with an entry for each millisecond. Further limits
// are used once per entry too.
type crowd struct {
	server *redistest.Server
	store  *redisstore.Store
	conn   rueidis.Client
	key    string // the server's
	plan   *store.Plan
	clock  *fakeClock
	many   int
}

func newCrowd(tb testing.TB, many int, more ...drawgate.Limit) *crowd {
	tb.Helper()
	c := &crowd{server: redistest.Start(tb), clock: newClock(), many: many}
	c.conn = client(tb, c.server)
	keys := prefix()
	c.store = redisstore.NewWithClock(c.conn, &redisstore.Options{Prefix: keys}, c.clock.now)
	c.plan = compile(tb, "p", append([]drawgate.Limit{{
		Name: "hour", Kind: drawgate.Rolling, Window: time.Hour, Amount: int64(many), Precision: drawgate.Exact,
	}}, more...)...)
	c.key = redisstore.KeyOf(keys, store.Key{Policy: "p", Name: "k"})
	one := c.take(1)
	for j := range more {
		one.Buckets[0].N[1+j] = 1
	}
	for range many {
		c.clock.advance(time.Millisecond)
		if d := take(tb, c.store, one); !d.Allowed {
			tb.Fatal(d.Fail)
		}
	}
	return c
}

func (c *crowd) take(n ...int64) store.Take { return takeOf(c.plan, "k", n...) }

// until returns how long it takes from the newest entry on until the n oldest have expired.
func (c *crowd) until(n int) time.Duration {
	return time.Hour - time.Duration(c.many-n)*time.Millisecond
}

// watch makes the server record its commands.
func (c *crowd) watch(tb testing.TB) {
	tb.Helper()
	for _, words := range [][]string{
		{"CONFIG", "SET", "slowlog-max-len", "100000"},
		{"CONFIG", "SET", "slowlog-log-slower-than", "0"},
		{"SLOWLOG", "RESET"},
		{"CONFIG", "RESETSTAT"},
	} {
		if err := c.conn.Do(tb.Context(), c.conn.B().Arbitrary(words...).Build()).Error(); err != nil {
			tb.Fatal(words, err)
		}
	}
}

// calls returns how long each call of the script took since [crowd.watch].
func (c *crowd) calls(tb testing.TB) (took []time.Duration) {
	tb.Helper()
	log, err := c.conn.Do(tb.Context(), c.conn.B().Arbitrary("SLOWLOG", "GET", "-1").Build()).ToArray()
	if err != nil {
		tb.Fatal(err)
	}
	for _, line := range log {
		parts, err := line.ToArray()
		if err != nil || len(parts) < 4 {
			tb.Fatal(line, err)
		}
		us, err := parts[2].AsInt64()
		words, no := parts[3].AsStrSlice()
		if err != nil || no != nil {
			tb.Fatal(err, no)
		}
		if words[0] == "EVALSHA" {
			took = append(took, time.Duration(us)*time.Microsecond)
		}
	}
	return took
}

var readsAndWrites = regexp.MustCompile(`cmdstat_(?:hget|hmget|hset|hdel|pexpire):calls=(\d+)`)

// commands returns how many commands the script has called since [crowd.watch].
func (c *crowd) commands(tb testing.TB) (sum int) {
	tb.Helper()
	stats, err := c.conn.Do(tb.Context(), c.conn.B().Info().Section("commandstats").Build()).ToString()
	if err != nil {
		tb.Fatal(err)
	}
	for _, m := range readsAndWrites.FindAllStringSubmatch(stats, -1) {
		n, _ := strconv.Atoi(m[1])
		sum += n
	}
	return sum
}

// fields returns how many fields the server keeps, besides the header and the history.
func (c *crowd) fields(tb testing.TB) int {
	tb.Helper()
	n, err := c.conn.Do(tb.Context(), c.conn.B().Hlen().Key(c.key).Build()).AsInt64()
	if err != nil {
		tb.Fatal(err)
	}
	return int(n) - 2
}

// TestExpiredEntriesAreRemovedInParts: no call of the script removes more than 1,000 entries. It
// neither reads nor removes them one by one. What is granted, what is refused and how long that
// waits is as if all were removed at once.
//
// req: E7
func TestExpiredEntriesAreRemovedInParts(t *testing.T) {
	needs.NoRace(t) // one caller
	t.Parallel()
	const many, gone = 5000, 2500
	for _, tc := range []struct {
		name  string
		n     int64
		fits  bool
		calls []int // of the script, by takes one after the other
		left  []int // entries, after each
	}{
		{"it fits", 1, true, []int{1, 1, 1, 1}, []int{4000, 3000, 2500, 2500}},
		{"it fits if more are removed", 1001, true, []int{2, 1}, []int{3000, 2500}},
		{"it fits if all are removed", gone, true, []int{3}, []int{2500}},
		{"it does not fit", gone + 1, false, []int{3, 1}, []int{2499, 2499}},
		{"it never fits", many + 1, false, []int{1, 1, 1, 1}, []int{3999, 2999, 2499, 2499}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := newCrowd(t, many)
			c.clock.advance(c.until(gone))
			for i, calls := range tc.calls {
				before := peek(t, c.store, c.take(tc.n).Buckets[0])
				c.watch(t)
				d := take(t, c.store, c.take(tc.n))
				if got, commands := c.calls(t), c.commands(t); len(got) != calls || commands > 30*calls {
					t.Errorf("take %d: %d calls, %d commands; want %d calls", i, len(got), commands, calls)
				}
				if d.Allowed != tc.fits || d.Allowed != before.Allowed || d.RetryAfter != before.RetryAfter ||
					d.EarliestRetry != before.EarliestRetry {
					t.Errorf("take %d: %v, wait %v; before it a peek said %v, %v", i, d.Allowed, d.RetryAfter,
						before.Allowed, before.RetryAfter)
				}
				if left := c.fields(t); left != tc.left[i] {
					t.Errorf("take %d: %d entries are left, want %d", i, left, tc.left[i])
				}
				after := peek(t, c.store, c.take(0).Buckets[0]).States[0]
				remains := many - after.Used
				if want := before.States[0].Used + tc.n; tc.fits && after.Used != want {
					t.Errorf("take %d: then %d were used, want %d", i, after.Used, want)
				}
				for _, l := range d.First.Limits {
					if l.Remaining > remains || l.Remaining < 0 {
						t.Errorf("take %d: %d remain, want at most %d", i, l.Remaining, remains)
					}
				}
			}
		})
	}
}

// TestAllExpiredEntriesAreRemovedAtOnce, unread, if nothing else in the bucket is needed.
//
// req: E7
func TestAllExpiredEntriesAreRemovedAtOnce(t *testing.T) {
	t.Parallel()
	const many = 3000
	for _, tc := range []struct {
		name string
		held bool
		left int // fields, besides the header
	}{
		{"plain take", false, 0},
		{"reservation", true, 3}, // itself, its number and its end
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := newCrowd(t, many)
			c.clock.advance(2 * time.Hour)
			c.watch(t)
			ask := c.take(2)
			if tc.held {
				ask = held(ask, "id", time.Minute)
			}
			if d := take(t, c.store, ask); !d.Allowed {
				t.Fatal(d.Fail)
			}
			if calls, commands := len(c.calls(t)), c.commands(t); calls != 1 || commands > 10 {
				t.Errorf("%d calls, %d commands", calls, commands)
			}
			if left := c.fields(t); left != tc.left {
				t.Errorf("%d fields are left, want %d", left, tc.left)
			}
			if ttl, err := c.conn.Do(t.Context(), c.conn.B().Pttl().Key(c.key).Build()).AsInt64(); err != nil ||
				ttl < time.Hour.Milliseconds() {
				t.Errorf("the bucket lives for %d ms; %v", ttl, err)
			}
			if got := peek(t, c.store, ask.Buckets[0]); got.States[0].Used != 2 || got.Open != tc.left/3 {
				t.Errorf("%d are used, %d reservations are open", got.States[0].Used, got.Open)
			}
			if st := (store.Settlement{Op: store.OpCancel, ID: "id", Buckets: ask.Buckets}); settle(t, c.store,
				st).Gone == tc.held {
				t.Errorf("gone: %v", !tc.held)
			}
		})
	}
}

// TestExpiredEntriesBesideOthers: whatever is done with a bucket removes at most 1,000 entries of a
// limit while those of another limit, or reservations, are in use. What is used stays the same.
//
// req: E7
func TestExpiredEntriesBesideOthers(t *testing.T) {
	needs.NoRace(t) // one caller
	t.Parallel()
	const many = 2500
	c := newCrowd(t, many, drawgate.Limit{
		Name: "minute", Unit: "more", Kind: drawgate.Rolling, Window: time.Minute,
		Amount: many, Precision: drawgate.Exact,
	})
	ask := held(c.take(), "id", time.Hour)
	take(t, c.store, ask)
	c.clock.advance(2 * time.Minute)
	settled := func(st store.Settlement) bool {
		st.ID, st.Buckets = "id", ask.Buckets
		return !settle(t, c.store, st).Gone
	}
	for _, tc := range []struct {
		what string
		do   func() bool
		left int // fields, besides the header: entries, and three of the reservation
	}{
		{
			"renewal", func() bool { return settled(store.Settlement{Op: store.OpRenew, Hold: time.Hour}) },
			2*(many-1) + 3 - 1000,
		},
		{"take", func() bool { return take(t, c.store, c.take()).Allowed }, 2*(many-1) + 3 - 2000},
		{"refund", func() bool {
			return settle(t, c.store, store.Settlement{Op: store.OpRefund, Buckets: c.take(0, 7).Buckets}).Back == nil
		}, many - 1 + 3},
		{"settlement", func() bool { return settled(store.Settlement{Op: store.OpSettle}) }, many - 1},
	} {
		if !tc.do() {
			t.Error(tc.what)
		}
		if left := c.fields(t); left != tc.left {
			t.Errorf("after the %s %d fields are left, want %d", tc.what, left, tc.left)
		}
		if st := peek(t, c.store, c.take().Buckets[0]).States; st[0].Used != many || st[1].Used != 0 {
			t.Errorf("after the %s %d and %d are used", tc.what, st[0].Used, st[1].Used)
		}
	}
}

// TestExpiredEntriesOfOldLimits: a limit that only old versions of a policy have is dropped from a
// crowded bucket, but not before all of its entries are removed.
func TestExpiredEntriesOfOldLimits(t *testing.T) {
	needs.NoRace(t) // one caller
	t.Parallel()
	const many = 1500
	c := newCrowd(t, many, drawgate.Limit{
		Name: "minute", Kind: drawgate.Rolling, Window: time.Minute, Amount: many,
		Precision: drawgate.Exact,
	})
	var newer store.Take
	for version := range 3 {
		var ls []drawgate.Limit
		for j := range 6 {
			ls = append(ls, drawgate.Limit{
				Name: fmt.Sprintf("%d-%d", version, j), Kind: drawgate.Calendar,
				Every: drawgate.Month, Amount: 100,
			})
		}
		newer = takeOf(compile(t, "p", ls...), "k", 1, 1, 1, 1, 1, 1)
		take(t, c.store, newer)
	}
	c.clock.advance(2 * time.Minute)
	for i, left := range []int{2*(many-1) - 1000, many - 1} {
		take(t, c.store, newer)
		if got := c.fields(t); got != left {
			t.Errorf("after take %d %d entries are left, want %d", i, got, left)
		}
	}
}

// TestReplayWithExpiredEntries: a replay that takes its units again is decided by what is used, not
// by what has expired.
func TestReplayWithExpiredEntries(t *testing.T) {
	t.Parallel()
	clock := newClock()
	st := redisstore.NewWithClock(client(t, redistest.Start(t)), nil, clock.now).RemoveAtMost(1)
	plan := compile(t, "p", drawgate.Limit{
		Name: "few", Kind: drawgate.Rolling, Window: time.Minute, Amount: 3,
		Precision: drawgate.Exact,
	})
	ask := held(takeOf(plan, "k", 1), "id", time.Hour)
	take(t, st, ask)
	clock.advance(time.Second)
	settle(t, st, store.Settlement{
		Op: store.OpCharge, Buckets: takeOf(plan, "k", 3).Buckets,
		At: time.UnixMicro(clock.now()),
	})
	clock.advance(2 * time.Minute)
	if d := take(t, st, ask); !d.Allowed || !d.Replayed {
		t.Errorf("allowed: %v, replayed: %v", d.Allowed, d.Replayed)
	}
}

// BenchmarkExpired measures the first take after tens of thousands of entries have expired: how
// long its longest call of the script takes, and all of them, and the server's processor time. The
// first two are the least of what was seen, because whatever else runs adds to them; the last is
// the mean.
func BenchmarkExpired(b *testing.B) {
	const many = 64_000
	minute := drawgate.Limit{
		Name: "minute", Unit: "more", Kind: drawgate.Rolling, Window: time.Minute, Amount: many,
		Precision: drawgate.Exact,
	}
	hour, both := newCrowd(b, many), newCrowd(b, many, minute)
	for _, c := range []struct {
		name  string
		of    *crowd
		after time.Duration
		n     []int64
		hold  time.Duration
		fails bool
	}{
		{"gone=32000", hour, hour.until(32_000), []int64{1}, 0, false},
		{"gone=50000", hour, hour.until(50_000), []int64{1}, 0, false},
		{"gone=32000/held", hour, hour.until(32_000), []int64{1}, time.Minute, false},
		{"gone=50000/held", hour, hour.until(50_000), []int64{1}, time.Minute, false},
		{"gone=32000/room for the take", hour, hour.until(32_000), []int64{32_000}, 0, false},
		{"gone=50000/refused", hour, hour.until(50_000), []int64{50_001}, 0, true},
		{"gone=64000", hour, hour.until(many), []int64{1}, 0, false},
		{"gone=64000/held", hour, hour.until(many), []int64{1}, time.Minute, false},
		{"gone=64000/other limits in use", both, time.Minute, []int64{0, 1}, 0, false},
	} {
		b.Run(c.name, func(b *testing.B) {
			copyTo := func(from, to string) {
				cmd := c.of.conn.B().Copy().Source(from).Destination(to).Replace().Build()
				if n, err := c.of.conn.Do(b.Context(), cmd).AsInt64(); err != nil || n != 1 {
					b.Fatal(n, err)
				}
			}
			copyTo(c.of.key, "kept")
			defer copyTo("kept", c.of.key)
			defer c.of.clock.us.Store(c.of.clock.now())
			c.of.clock.advance(c.after)
			ask := c.of.take(c.n...)
			if c.hold > 0 {
				ask = held(ask, "id", c.hold)
			}
			longest, total, calls, cpu := time.Hour, time.Hour, 0, time.Duration(0)
			for b.Loop() {
				b.StopTimer()
				copyTo("kept", c.of.key)
				c.of.watch(b)
				cpu -= c.of.server.CPU()
				b.StartTimer()
				d := take(b, c.of.store, ask)
				b.StopTimer()
				cpu += c.of.server.CPU()
				if d.Allowed == c.fails {
					b.Fatal(d.Fail)
				}
				var sum time.Duration
				took := c.of.calls(b)
				for _, one := range took {
					sum += one
				}
				longest, total, calls = min(longest, slices.Max(took)), min(total, sum), len(took)
				b.StartTimer()
			}
			b.ReportMetric(float64(longest.Microseconds())/1000, "longest-ms")
			b.ReportMetric(float64(total.Microseconds())/1000, "total-ms")
			b.ReportMetric(float64(cpu.Microseconds())/1000/float64(b.N), "cpu-ms")
			b.ReportMetric(float64(calls), "calls")
		})
	}
}
