package guard_test

import (
	"context"
	"errors"
	"hash/fnv"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
)

// long enables the long forms of tests.
var long = needs.Long()

// mood is how a faulty store behaves.
type mood int

const (
	well    mood = iota
	refuses      // fails at once, nothing done
	stalls       // does not answer, nothing done
	mute         // carries out calls, and loses the answers
	slow         // answers after half a second
	late         // does not answer, and carries out calls a second later
)

var errRefused = errors.New("connection refused")

// faulty is a store that fails on demand.
type faulty struct {
	store.Store

	arrived atomic.Int64 // takes that were carried out late

	mu      sync.Mutex
	mood    mood
	err     error                                // what refuses returns; nil means errRefused
	calls   int                                  // of any kind
	blocked func(b store.BucketCost) error       // fails takes and settlements of some buckets only
	cancels int                                  // calls that cancelled
	during  func()                               // called while a call is under way
	only    func(op string, plain bool) (m mood) // overrides mood
}

func (f *faulty) set(m mood) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mood = m
}

func (f *faulty) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mood, f.err = refuses, err
}

func (f *faulty) is(m mood) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mood == m
}

// noteEnds counts how often the store was asked to end something.
func (f *faulty) noteEnds(batch []store.Settlement) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range batch {
		if batch[i].Op == store.OpCancel {
			f.cancels++
		}
	}
}

func (f *faulty) cancelled() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cancels
}

func (f *faulty) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

func (f *faulty) call(ctx context.Context, op string, plain bool, do func() error) error {
	f.mu.Lock()
	f.calls++
	m, refusal, during := f.mood, f.err, f.during
	if f.only != nil {
		m = f.only(op, plain)
	}
	f.mu.Unlock()
	if during != nil {
		during()
	}
	unavailable := func(err error) error { return &store.Error{Store: "faulty", Op: op, Err: err} }
	switch m {
	case refuses:
		if refusal != nil {
			return refusal
		}
		return unavailable(errRefused)
	case stalls:
		<-ctx.Done()
		return unavailable(ctx.Err())
	case mute:
		_ = do()
		<-ctx.Done()
		return unavailable(ctx.Err())
	case slow:
		select {
		case <-time.After(500 * time.Millisecond):
		case <-ctx.Done():
			return unavailable(ctx.Err())
		}
	case late:
		time.AfterFunc(time.Second, func() { _ = do() })
		<-ctx.Done()
		return unavailable(ctx.Err())
	case well:
	}
	return do()
}

func (f *faulty) block(b []store.BucketCost) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range b {
		if f.blocked != nil {
			if err := f.blocked(b[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *faulty) Take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	plain, inner := batch[0].ID == "", ctx
	if f.is(late) { // nobody is waiting any more when it is done
		batch, out, inner = slices.Clone(batch), make([]store.Verdict, len(out)), context.WithoutCancel(ctx)
	}
	return f.call(ctx, "take", plain, func() error {
		if err := f.Store.Take(inner, batch, out); err != nil {
			return err
		}
		if inner != ctx {
			f.arrived.Add(1)
		}
		for i := range batch {
			if err := f.block(batch[i].Buckets); err != nil {
				out[i] = store.Verdict{Fail: err}
			}
		}
		return nil
	})
}

func (f *faulty) Settle(ctx context.Context, batch []store.Settlement, out []store.Outcome) error {
	f.noteEnds(batch)
	inner := ctx
	if f.is(late) {
		batch, out, inner = slices.Clone(batch), make([]store.Outcome, len(out)), context.WithoutCancel(ctx)
	}
	return f.call(ctx, batch[0].Op.String(), false, func() error {
		if err := f.Store.Settle(inner, batch, out); err != nil {
			return err
		}
		for i := range batch {
			if err := f.block(batch[i].Buckets); err != nil {
				out[i] = store.Outcome{Err: err}
			}
		}
		return nil
	})
}

func (f *faulty) Peek(ctx context.Context, b []store.BucketCost, priority int8, out []store.State) error {
	return f.call(ctx, "peek", false, func() error { return f.Store.Peek(ctx, b, priority, out) })
}

func (f *faulty) Ping(ctx context.Context) error {
	return f.call(ctx, "ping", false, func() error { return nil })
}

// takeHeld takes r, which holds, and returns a refusal as its error.
func takeHeld(ctx context.Context, l *drawgate.Limiter, r drawgate.Request) (*drawgate.Reservation, error) {
	d, res, err := l.Take(ctx, r)
	if err == nil {
		err = d.Err()
	}
	return res, err
}

// policyOf returns the policy of a plan.
func policyOf(plan *store.Plan) drawgate.Policy {
	p := plan.Policy()
	policy := drawgate.Policy{Name: p.Name, Fallback: p.Fallback, Start: p.Start}
	for _, l := range p.Limits {
		policy.Limits = append(policy.Limits, drawgate.Limit(l))
	}
	return policy
}

func compile(tb testing.TB, p drawgate.Policy) *store.Plan {
	tb.Helper()
	plan, err := p.Compile()
	if err != nil {
		tb.Fatal(err)
	}
	return plan.Plan
}

// policy returns a plan named "p" whose limits are named by their position.
func policy(tb testing.TB, fallback drawgate.Fallback, limits ...drawgate.Limit) *store.Plan {
	tb.Helper()
	for i := range limits {
		limits[i].Name = string(rune('a' + i))
	}
	return compile(tb, drawgate.Policy{Name: "p", Limits: limits, Fallback: fallback})
}

func rolling(n int64, window time.Duration) drawgate.Limit {
	return drawgate.Limit{Kind: drawgate.Rolling, Amount: n, Window: window}
}

func leaky(n int64, window time.Duration, burst int64) drawgate.Limit {
	return drawgate.Limit{Kind: drawgate.Bucket, Amount: n, Window: window, Burst: burst}
}

func daily(n int64) drawgate.Limit {
	return drawgate.Limit{Kind: drawgate.Calendar, Amount: n, Every: drawgate.Day}
}

func slots(n int64) drawgate.Limit { return drawgate.Limit{Kind: drawgate.Concurrency, Amount: n} }

func cost(plan *store.Plan, name string, n ...int64) store.BucketCost {
	c := store.BucketCost{Key: store.Key{Policy: plan.Name(), Name: name}, Plan: plan}
	copy(c.N[:], n)
	return c
}

// send decides one take, and fails the test if that fails.
func send(tb testing.TB, s store.Store, t store.Take) store.Verdict {
	tb.Helper()
	var out [1]store.Verdict
	if err := s.Take(tb.Context(), []store.Take{t}, out[:]); err != nil {
		tb.Fatal(err)
	}
	if out[0].Fail != nil {
		tb.Fatal(out[0].Fail)
	}
	return out[0]
}

func take(tb testing.TB, s store.Store, plan *store.Plan, name string, n ...int64) store.Verdict {
	tb.Helper()
	return send(tb, s, store.Take{Buckets: []store.BucketCost{cost(plan, name, n...)}})
}

func hold(tb testing.TB, s store.Store, id string, d time.Duration, plan *store.Plan, name string,
	n ...int64,
) store.Verdict {
	tb.Helper()
	return send(tb, s, store.Take{
		ID: id, Grant: grant(id), Hold: d,
		Buckets: []store.BucketCost{cost(plan, name, n...)},
	})
}

// grant returns the grant that tests use for an ID.
func grant(id string) store.Grant {
	if id == "" {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(id))
	return store.Grant(h.Sum64())
}

// end settles, cancels, renews or charges, and returns the outcome.
func end(tb testing.TB, s store.Store, op store.Op, id string, plan *store.Plan, name string,
	n ...int64,
) store.Outcome {
	tb.Helper()
	var out [1]store.Outcome
	st := store.Settlement{
		Op: op, ID: id, Grant: grant(id), Buckets: []store.BucketCost{cost(plan, name, n...)},
		Hold: time.Hour, At: time.Now(),
	}
	if err := s.Settle(tb.Context(), []store.Settlement{st}, out[:]); err != nil {
		return store.Outcome{Err: err}
	}
	return out[0]
}

// used returns what a store says is used of a bucket's limits.
func used(tb testing.TB, s store.Store, plan *store.Plan, name string) (n []int64) {
	tb.Helper()
	var out [1]store.State
	if err := s.Peek(tb.Context(), []store.BucketCost{cost(plan, name)}, 0, out[:]); err != nil {
		tb.Fatal(err)
	}
	if out[0].Fail != nil {
		tb.Fatal(out[0].Fail)
	}
	for _, st := range out[0].States {
		n = append(n, st.Used)
	}
	return n
}

// drain takes single units of the first limit until one is refused, and returns how many it got.
func drain(tb testing.TB, s store.Store, plan *store.Plan, name string) (n int64) {
	tb.Helper()
	for take(tb, s, plan, name, 1).Allowed {
		if n++; n > 10_000 {
			tb.Fatal("10,000 units and no end")
		}
	}
	return n
}

// wantBack waits until the guard's store is available and nothing is pending.
func wantBack(tb testing.TB, g *guard.Store, within time.Duration) {
	tb.Helper()
	end := time.Now().Add(within)
	for st := g.State(); st.Unavailable || st.Pending > 0; st = g.State() {
		if time.Now().After(end) {
			tb.Fatalf("after %v: %+v, want the store back and nothing pending", within, st)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
