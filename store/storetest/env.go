package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
)

// env is the environment of a case, with a store of its own.
//
// Its methods may end the case, so only the case's own goroutine may call them.
type env struct {
	*testing.T
	h Harness
	s store.Store
}

// tick is the smallest step of a store's clock.
const tick = time.Microsecond

func (e *env) advance(d time.Duration) {
	e.Helper()
	if d < 0 {
		e.Fatalf("advance by %v: a case must not turn the clock back", d)
	}
	if d > 0 {
		e.h.Advance(e.s, d)
	}
}

// histories returns how many random histories a case tries, or keys, of n for a store that is not
// slow.
func (e *env) histories(n int) int {
	if e.h.Slow || testing.Short() {
		return n / 5
	}
	return n
}

// now returns the store's time.
func (e *env) now() time.Time {
	e.Helper()
	st := e.bucket("clock", rolling(1, time.Hour)).peek()
	return st.At()
}

// until advances the clock to an instant.
func (e *env) until(at time.Time) {
	e.Helper()
	e.advance(at.Sub(e.now()))
}

func (e *env) ctx() context.Context { return e.Context() }

func (e *env) compile(p drawgate.Policy) *store.Plan {
	e.Helper()
	plan, err := p.Compile()
	if err != nil {
		e.Fatal(err)
	}
	return plan.Plan
}

// plan compiles a policy named "p". Limits without a name get one.
func (e *env) plan(limits ...drawgate.Limit) *store.Plan {
	e.Helper()
	for i := range limits {
		if limits[i].Name == "" {
			limits[i].Name = fmt.Sprintf("limit%d", i)
		}
	}
	return e.compile(drawgate.Policy{Name: "p", Limits: limits})
}

// take decides any take.
func (e *env) take(t store.Take) store.Verdict {
	e.Helper()
	out := make([]store.Verdict, 1)
	if err := e.s.Take(e.ctx(), []store.Take{t}, out); err != nil {
		e.Fatalf("Take: %v", err)
	}
	return out[0]
}

// settle carries out any settlement.
func (e *env) settle(s store.Settlement) store.Outcome {
	e.Helper()
	out := make([]store.Outcome, 1)
	if err := e.s.Settle(e.ctx(), []store.Settlement{s}, out); err != nil {
		e.Fatalf("Settle: %v", err)
	}
	if out[0].Err != nil {
		e.Fatalf("%v of %q: %v", s.Op, s.ID, out[0].Err)
	}
	return out[0]
}

// bucket is one key under one policy.
type bucket struct {
	e    *env
	key  store.Key
	plan *store.Plan
}

func (e *env) bucket(name string, limits ...drawgate.Limit) *bucket {
	e.Helper()
	return e.of(name, e.plan(limits...))
}

func (e *env) of(name string, plan *store.Plan) *bucket {
	return &bucket{e: e, key: store.Key{Tenant: "t", Policy: plan.Name(), Name: name}, plan: plan}
}

// with returns the same bucket under another version of the policy.
func (b *bucket) with(limits ...drawgate.Limit) *bucket {
	b.e.Helper()
	return &bucket{e: b.e, key: b.key, plan: b.e.plan(limits...)}
}

// cost is n units per limit; limits that are not given cost nothing.
func (b *bucket) cost(n ...int64) store.BucketCost {
	c := store.BucketCost{Key: b.key, Plan: b.plan}
	copy(c.N[:], n)
	return c
}

func (b *bucket) costs(n ...int64) []store.BucketCost { return []store.BucketCost{b.cost(n...)} }

func (b *bucket) take(n ...int64) store.Verdict {
	b.e.Helper()
	return b.e.take(store.Take{Buckets: b.costs(n...)})
}

func (b *bucket) takeAt(priority int8, n ...int64) store.Verdict {
	b.e.Helper()
	return b.e.take(store.Take{Buckets: b.costs(n...), Priority: priority})
}

func (b *bucket) hold(id string, d time.Duration, n ...int64) store.Verdict {
	b.e.Helper()
	return b.e.take(store.Take{ID: id, Hold: d, Buckets: b.costs(n...)})
}

func (b *bucket) lease(id string, d time.Duration, n ...int64) store.Verdict {
	b.e.Helper()
	return b.e.take(store.Take{ID: id, Hold: d, Lease: true, Buckets: b.costs(n...)})
}

// settle reports whether the ID was open.
func (b *bucket) settle(id string, n ...int64) bool {
	b.e.Helper()
	return !b.e.settle(store.Settlement{Op: store.OpSettle, ID: id, Buckets: b.costs(n...)}).Gone
}

func (b *bucket) cancel(id string) bool {
	b.e.Helper()
	return !b.e.settle(store.Settlement{Op: store.OpCancel, ID: id, Buckets: b.costs()}).Gone
}

// renew makes a hold end in an hour.
func (b *bucket) renew(id string) store.Outcome {
	b.e.Helper()
	return b.e.settle(store.Settlement{Op: store.OpRenew, ID: id, Hold: time.Hour, Buckets: b.costs()})
}

func (b *bucket) charge(at time.Time, n ...int64) {
	b.e.Helper()
	b.e.settle(store.Settlement{Op: store.OpCharge, At: at, Buckets: b.costs(n...)})
}

func (b *bucket) peek(n ...int64) store.State {
	b.e.Helper()
	return b.peekAt(0, n...)
}

func (b *bucket) peekAt(priority int8, n ...int64) store.State {
	b.e.Helper()
	out := make([]store.State, 1)
	if err := b.e.s.Peek(b.e.ctx(), b.costs(n...), priority, out); err != nil {
		b.e.Fatalf("Peek: %v", err)
	}
	if out[0].Fail != nil {
		b.e.Fatalf("Peek: %v", out[0].Fail)
	}
	if len(out[0].States) != len(b.plan.Policy().Limits) {
		b.e.Fatalf("Peek: %d states for %d limits", len(out[0].States), len(b.plan.Policy().Limits))
	}
	return out[0]
}

// used returns what the first limit has used.
func (b *bucket) used() int64 { b.e.Helper(); return b.peek().States[0].Used }

// wantUsed checks what each limit has used.
func (b *bucket) wantUsed(when string, want ...int64) {
	b.e.Helper()
	st := b.peek()
	for i, w := range want {
		if st.States[i].Used != w {
			b.e.Errorf("%s: limit %d has used %d, want %d", when, i, st.States[i].Used, w)
		}
	}
}

// drain takes one unit after the other until it is refused, and returns how many it got.
func (b *bucket) drain() (n int64) {
	b.e.Helper()
	one := make([]int64, len(b.plan.Policy().Limits))
	for i := range one {
		one[i] = 1
	}
	for d := b.take(one...); ok(b.e, d); d = b.take(one...) {
		if n++; n > 10_000 {
			b.e.Fatal("10,000 units and no end")
		}
	}
	return n
}

// ok reports whether a take was allowed, and fails the case if the take failed.
func ok(e *env, d store.Verdict) bool {
	e.Helper()
	if d.Fail != nil {
		e.Fatalf("take: %v", d.Fail)
	}
	return d.Allowed
}

func (e *env) allowed(what string, d store.Verdict) {
	e.Helper()
	if !ok(e, d) {
		e.Fatalf("%s: refused (%v, retry-after %v), want allowed", what, d.Reason, d.RetryAfter)
	}
	if d.RetryAfter != 0 || d.EarliestRetry != 0 || d.Reason != store.Passed {
		e.Errorf("%s: allowed with retry-after %v, earliest %v, reason %v", what, d.RetryAfter, d.EarliestRetry,
			d.Reason)
	}
}

// refused checks that a take was refused, and for how long. A negative wait is not checked.
func (e *env) refused(what string, d store.Verdict, wait time.Duration) {
	e.Helper()
	if ok(e, d) {
		e.Fatalf("%s: allowed, want refused", what)
	}
	if wait >= 0 && d.RetryAfter != wait {
		e.Errorf("%s: retry-after %v, want %v", what, d.RetryAfter, wait)
	}
	if d.RetryAfter <= 0 { // a caller that waits for this would wait for ever
		e.Fatalf("%s: refused with retry-after %v", what, d.RetryAfter)
	}
	if d.EarliestRetry < 0 || d.EarliestRetry > d.RetryAfter || d.Reason != store.Limited {
		e.Errorf("%s: refused with retry-after %v, earliest %v, reason %v", what, d.RetryAfter, d.EarliestRetry,
			d.Reason)
	}
	for b := range d.Buckets() {
		if d.Granted(b) != (store.Amounts{}) {
			e.Errorf("%s: refused, and %v granted", what, d.Granted(b))
		}
	}
}

// result is what a verdict says of one limit.
type result struct {
	Bucket, Limit int
	Remaining     int64
	RetryAfter    time.Duration
	ResetAt       time.Time
}

// results returns what a verdict says of each limit. A limit that exists has an instant at which
// nothing is used.
func results(v store.Verdict) (rs []result) {
	for b := range v.Buckets() {
		for i, r := range v.Bucket(b).Limits {
			if r.ResetAt != 0 {
				rs = append(rs, result{b, i, r.Remaining, r.RetryAfter, time.UnixMicro(r.ResetAt)})
			}
		}
	}
	return rs
}

// refusing returns the result of the limit that refuses longest.
func refusing(v store.Verdict) (most result) {
	for _, r := range results(v) {
		if r.RetryAfter > most.RetryAfter {
			most = r
		}
	}
	return most
}

// The limits of the cases. Rolling limits name their precision, because the default is up to the
// store.

func rolling(n int64, window time.Duration) drawgate.Limit {
	return drawgate.Limit{Name: "rolling", Kind: drawgate.Rolling, Amount: n, Window: window, Precision: drawgate.Exact}
}

func joined(n int64, window time.Duration, precision int) drawgate.Limit {
	return drawgate.Limit{Name: "joined", Kind: drawgate.Rolling, Amount: n, Window: window, Precision: precision}
}

func leaky(n int64, window time.Duration, burst int64) drawgate.Limit {
	return drawgate.Limit{Name: "bucket", Kind: drawgate.Bucket, Amount: n, Window: window, Burst: burst}
}

func calendar(n int64, every drawgate.Every, zone string) drawgate.Limit {
	return drawgate.Limit{Name: "calendar", Kind: drawgate.Calendar, Amount: n, Every: every, Zone: zone}
}

// month returns a calendar limit whose edges are weeks away on the store's clock, so that none is
// crossed during a case on a real clock.
func (e *env) month(n int64) drawgate.Limit {
	e.Helper()
	l := calendar(n, drawgate.Month, "UTC")
	l.Anchor = (e.now().UTC().Day()+13)%28 + 1
	return l
}

func slots(n int64) drawgate.Limit {
	return drawgate.Limit{Name: "slots", Kind: drawgate.Concurrency, Amount: n}
}

// fourKinds returns limits of which nothing comes back during a case on a real clock.
func (e *env) fourKinds(n int64) []drawgate.Limit {
	return []drawgate.Limit{
		leaky(n, 1000*time.Hour, 0), rolling(n, time.Hour), joined(n, time.Hour, 100), e.month(n),
		slots(n),
	}
}
