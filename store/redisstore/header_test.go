package redisstore_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/redisstore"
)

// TestLooksByHeaders: of many buckets the script looks only at those whose header does not say
// everything, and the answers are the same. (The suite makes each look by the header, too.)
//
// req: E5
func TestLooksByHeaders(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c, clock := client(t, server), &fakeClock{}
	clock.us.Store(1_800_000_000_000_000)
	s := redisstore.NewWithClock(c, nil, clock.us.Load)
	t.Cleanup(func() { _ = s.Close() })
	plan := compile(t, "p", drawgate.Limit{
		Name: "r", Kind: drawgate.Rolling, Amount: 10, Window: time.Hour,
		Precision: drawgate.Exact,
	},
		drawgate.BucketLimit("b", 100, time.Hour, 0), drawgate.CalendarLimit("d", 100, drawgate.Day, ""))
	for _, name := range []string{"used", "older", "expired", "held", "paused", "damaged"} {
		take(t, s, takeOf(plan, name, 1, 2, 3))
	}
	clock.us.Add(time.Minute.Microseconds())
	take(t, s, takeOf(plan, "older", 1, 1, 1))
	take(t, s, held(takeOf(plan, "held", 1, 1, 1), "id", time.Hour))
	paused := takeOf(plan, "paused").Buckets
	out := make([]store.Outcome, 1)
	pause := store.Settlement{Op: store.OpPause, Hold: 3 * time.Hour, Reason: "because", Buckets: paused}
	if err := s.Settle(t.Context(), []store.Settlement{pause}, out); err != nil || out[0].Err != nil {
		t.Fatal(err, out[0].Err)
	}
	clock.us.Add(2 * time.Hour.Microseconds()) // what was used is over; the hold as well
	take(t, s, takeOf(plan, "used", 4, 5, 6))
	take(t, s, takeOf(plan, "older", 1, 1, 1))
	clock.us.Add(time.Minute.Microseconds())
	take(t, s, takeOf(plan, "older", 1, 1, 1))
	take(t, s, held(takeOf(plan, "held", 1, 1, 1), "id", time.Hour))
	var many []store.BucketCost
	for _, name := range []string{"unused", "used", "older", "expired", "held", "paused"} {
		many = append(many, takeOf(plan, name).Buckets...)
	}
	for _, b := range many { // and those of other limits
		b.Plan = compile(t, "p", drawgate.RollingLimit("other", 10, time.Hour),
			drawgate.BucketLimit("b", 10, time.Minute, 0))
		many = append(many, b)
	}
	alone := make([]store.State, len(many))
	for i := range many {
		alone[i] = peek(t, s, many[i])
	}
	if err := c.Do(t.Context(), c.B().ConfigResetstat().Build()).Error(); err != nil {
		t.Fatal(err)
	}
	got := make([]store.State, len(many))
	if err := s.Peek(t.Context(), many, 0, got); err != nil {
		t.Fatal(err)
	}
	for i := range many {
		if !reflect.DeepEqual(got[i], alone[i]) {
			t.Errorf("%s: %+v, and alone %+v", many[i].Key.Name, got[i], alone[i])
		}
	}
	stats, err := c.Do(t.Context(), c.B().Info().Section("commandstats").Build()).ToString()
	if err != nil || !strings.Contains(stats, "cmdstat_evalsha:calls=4,") {
		t.Errorf("not 4 looks of the script, at what is held and has older entries: %v\n%s", err, stats)
	}

	name := redisstore.KeyOf("drawgate", takeOf(plan, "damaged").Buckets[0].Key)
	if err := c.Do(t.Context(), c.B().Hset().Key(name).FieldValue().FieldValue("h",
		"\x02\x07").Build()).Error(); err != nil {
		t.Fatal(err)
	}
	two := []store.BucketCost{takeOf(plan, "damaged").Buckets[0], many[1]}
	if err := s.Peek(t.Context(), two, 0, got[:2]); err != nil || got[0].Fail == nil || got[1].Fail != nil {
		t.Errorf("a damaged bucket and another: %v, %v, %v", err, got[0].Fail, got[1].Fail)
	}
}
