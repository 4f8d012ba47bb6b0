package storetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/drawgate/drawgate/store"
)

var batchCases = []testCase{
	{
		"batch in order", "takes of a batch are decided in order, each seeing what those before it took", testBatchOrder,
		true,
	},
	{
		"batch of settlements", "settlements of a batch are carried out in order, results by position", testBatchSettle,
		true,
	},
	{"one of a batch fails", "an element that fails does not keep the others from being decided", testBatchFails, true},
	{"an empty batch", "nothing is asked, nothing is answered", testBatchEmpty, true},
	{"a batch over many buckets", "several takes from several buckets: each is all or nothing", testBatchMany, true},
	{"arguments are left alone", "a store neither changes nor keeps its arguments", testArguments, true},
	{"cancelled context", "with a context that has ended, nothing is done and the error says so", testCancelled, true},
}

func testBatchOrder(e *env) {
	b, c := e.bucket("k", rolling(5, time.Hour)), e.bucket("c", leaky(3, time.Hour, 0))
	batch := []store.Take{
		{Buckets: b.costs(2)},
		{Buckets: c.costs(2)},
		{Buckets: b.costs(4)},
		{Buckets: b.costs(3)},
		{Buckets: c.costs(2)},
		{Buckets: b.costs(1)},
		{ID: "id", Hold: time.Hour, Buckets: c.costs(1)},
		{Buckets: c.costs(1)},
		{ID: "id", Hold: time.Hour, Buckets: c.costs(1)},
	}
	out := make([]store.Verdict, len(batch))
	for i := range out {
		out[i] = store.Verdict{Allowed: true, Fail: errors.New("left from before"), RetryAfter: time.Hour}
	}
	if err := e.s.Take(e.ctx(), batch, out); err != nil {
		e.Fatal(err)
	}
	for i, want := range []bool{true, true, false, true, false, false, true, false, true} {
		if ok(e, out[i]) != want || (out[i].RetryAfter > 0) == want {
			e.Errorf("take %d: %+v, want allowed %v", i, out[i], want)
		}
		if out[i].Replayed != (i == 8) {
			e.Errorf("take %d: replayed %v", i, out[i].Replayed)
		}
	}
	b.wantUsed("b", 5)
	c.wantUsed("c", 3)
}

func testBatchSettle(e *env) {
	b := e.bucket("k", rolling(100, time.Hour), slots(10))
	for i := range 5 {
		e.allowed("reserve", b.hold(fmt.Sprint(i), time.Hour, 10, 1))
	}
	renew, charge := settlement(store.OpRenew, "3", b.cost()), settlement(store.OpCharge, "", b.cost(7))
	renew.Hold, charge.At = 3*time.Hour, e.now()
	batch := []store.Settlement{
		settlement(store.OpSettle, "0", b.cost(4, 1)), settlement(store.OpSettle, "unknown", b.cost(4, 1)),
		settlement(store.OpCancel, "1", b.cost()),
		settlement(store.OpSettle, "0", b.cost(0, 0)), renew, charge, settlement(store.OpSettle, "2", b.cost(12, 1)),
		settlement(store.OpCancel, "2", b.cost()),
	}
	out := make([]store.Outcome, len(batch))
	for i := range out {
		out[i] = store.Outcome{Gone: true, End: time.Unix(1, 0), Err: errors.New("left from before")}
	}
	if err := e.s.Settle(e.ctx(), batch, out); err != nil {
		e.Fatal(err)
	}
	for i, gone := range []bool{false, true, false, true, false, false, false, true} {
		if out[i].Err != nil || out[i].Gone != gone || out[i].End.IsZero() == (i == 4) {
			e.Errorf("settlement %d: %+v, want gone %v", i, out[i], gone)
		}
	}
	b.wantUsed("4 and 12 settled, 20 open, 7 charged", 43, 2)
}

func testBatchFails(e *env) {
	b := e.bucket("k", rolling(10, time.Hour))
	e.allowed("reserve", b.hold("id", time.Hour, 1))
	batch := []store.Take{
		{Buckets: b.costs(1)},
		{ID: "id", Hold: time.Hour, Buckets: b.costs(2)},
		{Buckets: b.costs(1)},
		{Buckets: b.costs(9)},
		{Buckets: b.costs(1)},
	}
	out := make([]store.Verdict, len(batch))
	if err := e.s.Take(e.ctx(), batch, out); err != nil {
		e.Fatal(err)
	}
	for i, want := range []bool{true, false, true, false, true} {
		if out[i].Allowed != want || errors.Is(out[i].Fail, store.ErrIDReused) != (i == 1) {
			e.Errorf("take %d: allowed %v, error %v", i, out[i].Allowed, out[i].Fail)
		}
	}
	b.wantUsed("one reserved, three taken", 4)
}

func testBatchEmpty(e *env) {
	if err := e.s.Take(e.ctx(), nil, nil); err != nil {
		e.Errorf("Take: %v", err)
	}
	if err := e.s.Settle(e.ctx(), nil, nil); err != nil {
		e.Errorf("Settle: %v", err)
	}
	if err := e.s.Peek(e.ctx(), nil, 0, nil); err != nil {
		e.Errorf("Peek: %v", err)
	}
}

func testBatchMany(e *env) {
	var buckets []*bucket
	for i := range 6 {
		buckets = append(buckets, e.bucket(fmt.Sprint("k", i), rolling(3, time.Hour), leaky(100, 24*time.Hour, 0)))
	}
	var batch []store.Take
	want, used := []bool{}, make([]int64, 6)
	for i := range 40 {
		t := store.Take{Buckets: []store.BucketCost{buckets[i%6].cost(1, 1), buckets[(i*5+1)%6].cost(1, 1)}}
		if i%6 == (i*5+1)%6 {
			t.Buckets = t.Buckets[:1]
		}
		fits := used[i%6] < 3 && used[(i*5+1)%6] < 3
		if want = append(want, fits); fits {
			used[i%6]++
			if len(t.Buckets) == 2 {
				used[(i*5+1)%6]++
			}
		}
		batch = append(batch, t)
	}
	out := make([]store.Verdict, len(batch))
	if err := e.s.Take(e.ctx(), batch, out); err != nil {
		e.Fatal(err)
	}
	for i := range out {
		if ok(e, out[i]) != want[i] {
			e.Errorf("take %d: allowed %v, want %v", i, out[i].Allowed, want[i])
		}
	}
	for i, b := range buckets {
		b.wantUsed(fmt.Sprint("bucket ", i), used[i], used[i])
	}
}

func testArguments(e *env) {
	b, c := e.bucket("z", rolling(10, time.Hour), slots(5)), e.bucket("a", rolling(10, time.Hour))
	t := store.Take{
		ID: "id", Hold: time.Hour, Lease: true, Buckets: []store.BucketCost{b.cost(20, 2), c.cost(20)},
		Labels: []store.Label{{Name: "task", Value: "1"}},
	}
	t.Buckets[0].N[1] = 0 // a lease of no slots
	batch, out := []store.Take{t}, make([]store.Verdict, 1)
	before := fmt.Sprint(batch)
	if err := e.s.Take(e.ctx(), batch, out); err != nil || !out[0].Allowed {
		e.Fatalf("%v, %v", err, out[0].Fail)
	}
	if after := fmt.Sprint(batch); after != before {
		e.Errorf("take: before %s, after %s", before, after)
	}
	batch[0].Buckets[0], batch[0].Buckets[1], batch[0].ID, batch[0].Labels[0] = c.cost(1), b.cost(1), "other",
		store.Label{}
	got := out[0].Granted(0)
	out[0] = store.Verdict{}
	if got[0] != 10 {
		e.Errorf("granted %v, want 10", got)
	}
	if e.settle(settlement(store.OpSettle, "id", b.cost(3), c.cost(4))).Gone {
		e.Error("gone after the take was overwritten")
	}
	b.wantUsed("z", 3)
	c.wantUsed("a", 4)
}

func testCancelled(e *env) {
	b := e.bucket("k", rolling(10, time.Hour))
	e.allowed("reserve", b.hold("id", time.Hour, 5))
	same := e.unchanged(b)
	for what, end := range map[string]func() (context.Context, context.CancelFunc){
		"cancelled": func() (context.Context, context.CancelFunc) { return context.WithCancel(e.ctx()) },
		"deadline":  func() (context.Context, context.CancelFunc) { return context.WithTimeout(e.ctx(), -time.Second) },
	} {
		ctx, cancel := end()
		cancel()
		if err := e.s.Take(ctx, []store.Take{{Buckets: b.costs(1)}}, make([]store.Verdict, 1)); !isOver(err) {
			e.Errorf("%s: take: %v", what, err)
		}
		if err := e.s.Settle(ctx, []store.Settlement{settlement(store.OpCancel, "id", b.cost())},
			make([]store.Outcome, 1)); !isOver(err) {
			e.Errorf("%s: settle: %v", what, err)
		}
		if err := e.s.Peek(ctx, b.costs(1), 0, make([]store.State, 1)); !isOver(err) {
			e.Errorf("%s: peek: %v", what, err)
		}
	}
	same("after calls with a context that was over")
}

func isOver(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

var endCases = []testCase{
	{
		"what no store can decide",
		"amounts and priorities out of bounds are ErrInvalid, each for itself; a huge settlement counts as much as there is", testBounds, false,
	},
	{"close", "after Close every call fails with ErrClosed; Close may be called again", testClose, true},
	{
		"close under load", "calls that are running when the store is closed finish, or fail with ErrClosed",
		testCloseUnderLoad, true,
	},
}

func testClose(e *env) {
	b := e.bucket("k", rolling(10, time.Hour))
	e.allowed("reserve", b.hold("id", time.Hour, 1))
	for range 2 {
		if err := e.s.Close(); err != nil {
			e.Fatalf("Close: %v", err)
		}
		e.closed("Take", e.s.Take(e.ctx(), []store.Take{{Buckets: b.costs(1)}}, make([]store.Verdict, 1)))
		e.closed("Settle", e.s.Settle(e.ctx(), []store.Settlement{settlement(store.OpSettle, "id", b.cost(1))},
			make([]store.Outcome, 1)))
		e.closed("Peek", e.s.Peek(e.ctx(), b.costs(1), 0, make([]store.State, 1)))
		if s, ok := e.s.(store.Resetter); ok {
			e.closed("Reset", s.Reset(e.ctx(), []store.Key{b.key}))
		}
		if s, ok := e.s.(store.Lister); ok {
			e.closed("List", s.List(e.ctx(), "t", "p", func(store.Key) bool { return true }))
		}
		if s, ok := e.s.(store.Journal); ok {
			e.closed("Read", s.Read(e.ctx(), store.EventQuery{}, func(store.Event) bool { return true }))
		}
		if s, ok := e.s.(store.Pinger); ok {
			e.closed("Ping", s.Ping(e.ctx()))
		}
	}
}

func (e *env) closed(what string, err error) {
	e.Helper()
	if !errors.Is(err, store.ErrClosed) {
		e.Errorf("%s after Close: %v, want %v", what, err, store.ErrClosed)
	}
}

func testCloseUnderLoad(e *env) {
	plan := e.plan(leaky(1, time.Hour, 0))
	started := make(chan struct{}, 8)
	errs := e.start(8, func(g int) error {
		out := make([]store.Verdict, 1)
		for i := 0; ; i++ {
			if i == 20 {
				started <- struct{}{}
			}
			t := store.Take{Buckets: e.of(fmt.Sprint(g, " ", i), plan).costs(1)}
			if err := e.s.Take(e.ctx(), []store.Take{t}, out); err != nil {
				return err
			}
			if err := out[0].Fail; err != nil {
				return err
			}
			if !out[0].Allowed {
				return fmt.Errorf("take %d of %d: refused", i, g)
			}
		}
	})
	for range 8 {
		<-started
	}
	if err := e.s.Close(); err != nil {
		e.Errorf("Close: %v", err)
	}
	for range 8 {
		e.closed("a take under way", <-errs)
	}
}

// testBounds asks what a limiter does not: a store that is called by itself must not break.
func testBounds(e *env) {
	b := e.bucket("k", rolling(10, time.Hour), leaky(10, 1000*time.Hour, 0), e.month(10))
	e.allowed("reserve", b.hold("id", time.Hour, 1, 1, 1))
	for what, t := range map[string]store.Take{
		"negative":     {Buckets: b.costs(-1)},
		"priority -1":  {Buckets: b.costs(1), Priority: -1},
		"priority 10":  {Buckets: b.costs(1), Priority: 10},
		"no plan":      {Buckets: []store.BucketCost{{Key: b.key}}},
		"no bucket":    {},
		"twice":        {Buckets: append(b.costs(1), b.costs(1)...)},
		"id, no hold":  {Buckets: b.costs(1), ID: "x", Grant: 1},
		"hold, no id":  {Buckets: b.costs(1), Hold: time.Second},
		"hold is over": {Buckets: b.costs(1), ID: "x", Grant: 1, Hold: -time.Second},
		"hold of 1 ns": {Buckets: b.costs(1), ID: "x", Grant: 1, Hold: 1},
		"a long hold":  {Buckets: b.costs(1), ID: "x", Grant: 1, Hold: 100 * 366 * 24 * time.Hour},
		"a long id":    {Buckets: b.costs(1), ID: strings.Repeat("x", 1025), Grant: 1, Hold: time.Second},
		"empty plan":   {Buckets: []store.BucketCost{{Key: b.key, Plan: &store.Plan{}}}},
	} {
		if d := e.take(t); d.Allowed || !errors.Is(d.Fail, store.ErrInvalid) {
			e.Errorf("%s: allowed %v, %v; want %v", what, d.Allowed, d.Fail, store.ErrInvalid)
		}
	}
	for _, early := range []time.Time{time.Unix(0, 0), time.Unix(0, 1), time.Unix(-1, 0)} {
		if d := e.take(store.Take{
			Buckets: b.costs(1), ID: "x", Grant: 1, Hold: time.Hour,
			NotAfter: early,
		}); d.Allowed || !errors.Is(d.Fail, store.ErrTooLate) {
			e.Errorf("a take of %v: allowed %v, %v; want %v", early, d.Allowed, d.Fail, store.ErrTooLate)
		}
	}
	sets := []store.Settlement{
		{Op: 77, Buckets: b.costs(1)},
		{Op: store.OpRenew, ID: "id", Grant: 1, Hold: -time.Second, Buckets: b.costs(1)},
		{Op: store.OpCancel, ID: strings.Repeat("x", 1025), Grant: 1, Buckets: b.costs(1)},
		{Op: store.OpPause, Hold: time.Second, Reason: strings.Repeat("x", store.MaxReason+1), Buckets: b.costs(0)},
		{Op: store.OpPause, At: time.Date(50_000, 1, 1, 0, 0, 0, 0, time.UTC), Buckets: b.costs(0)},
		{Op: store.OpPause, Hold: 100 * 366 * 24 * time.Hour, Buckets: b.costs(0)},
		{Op: store.OpCharge, At: e.now(), Buckets: b.costs(-2)},
		{Op: store.OpRefund, Buckets: b.costs(-2)},
		{Op: store.OpSettle, ID: "id", Buckets: b.costs(-2)},
		{Op: store.OpCharge, At: e.now()},
	}
	out := make([]store.Outcome, len(sets))
	if err := e.s.Settle(e.ctx(), sets, out); err != nil {
		e.Fatal(err)
	}
	for i, o := range out {
		if !errors.Is(o.Err, store.ErrInvalid) {
			e.Errorf("settlement %d: %v, want %v", i, o.Err, store.ErrInvalid)
		}
	}
	looks := make([]store.State, 1)
	for _, priority := range []int8{-1, 10} {
		if err := e.s.Peek(e.ctx(), b.costs(1), priority, looks); err != nil ||
			!errors.Is(looks[0].Fail, store.ErrInvalid) {
			e.Errorf("a look at priority %d: %v, %v; want %v", priority, err, looks[0].Fail, store.ErrInvalid)
		}
	}
	b.wantUsed("nothing of it counts", 1, 1, 1)
	if !b.settle("id", math.MaxInt64, math.MaxInt64, math.MaxInt64) {
		e.Error("gone")
	}
	for i := range 3 {
		one := make([]int64, 3)
		one[i] = 1
		e.refused("after a huge settlement", b.take(one...), -1)
	}
	c := e.bucket("c", rolling(10, time.Hour), leaky(10, 1000*time.Hour, 0), e.month(10))
	huge := []store.Settlement{{Op: store.OpCharge, At: e.now(), Buckets: c.costs(1<<60, 1<<60, 1<<60)}}
	if err := e.s.Settle(e.ctx(), huge, out[:1]); err != nil || out[0].Err != nil {
		e.Fatal(err, out[0].Err)
	}
	for i := range 3 {
		one := make([]int64, 3)
		one[i] = 1
		e.refused("after a huge charge", c.take(one...), -1)
	}
	if err := e.s.Peek(e.ctx(), c.costs(1, 1, 1), 0, looks); err != nil || looks[0].Fail != nil {
		e.Errorf("after a huge charge: %v, %v", err, looks[0].Fail)
	}
}
