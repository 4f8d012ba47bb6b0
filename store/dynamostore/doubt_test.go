package dynamostore_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/awstest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/dynamostore"
)

// network is a connection on which a test decides what happens to each call. send carries the call
// out, as often as it is called.
type network func(op string, send func() (*http.Response, error)) (*http.Response, error)

func (n network) RoundTrip(r *http.Request) (*http.Response, error) {
	return n.over(direct).RoundTrip(r)
}

// over returns the network over another connection. Callers who leave do not cut it: what they
// have sent arrives.
func (n network) over(next http.RoundTripper) http.RoundTripper { return overlay{n, next} }

type overlay struct {
	network
	next http.RoundTripper
}

func (o overlay) RoundTrip(r *http.Request) (*http.Response, error) {
	_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	return o.network(op, func() (*http.Response, error) {
		again := r.Clone(context.WithoutCancel(r.Context()))
		again.Body = io.NopCloser(bytes.NewReader(body))
		return o.next.RoundTrip(again)
	})
}

var errLost = errors.New("read: connection reset by peer")

// loses carries a call out and loses its answer.
func loses(send func() (*http.Response, error)) (*http.Response, error) {
	if resp, err := send(); err == nil {
		_ = resp.Body.Close()
	}
	return nil, errLost
}

// empty starts a DynamoDB with a table.
func empty(t *testing.T) *awstest.Server {
	t.Helper()
	server := awstest.Dynalite(t)
	if _, _, err := dynamostore.CreateTable(t.Context(), through(server, direct), "drawgate", nil); err != nil {
		t.Fatal(err)
	}
	return server
}

// on returns a store behind a network, and one with a good connection, on the same buckets. A nil
// clock is this machine's.
func on(t *testing.T, server *awstest.Server, n network, clock func() int64) (bad, good *dynamostore.Store) {
	t.Helper()
	opts := &dynamostore.Options{Prefix: prefix()}
	open := func(r http.RoundTripper) *dynamostore.Store {
		if clock == nil {
			return dynamostore.NewWithError(through(server, r), "drawgate", opts, 0, 0)
		}
		return dynamostore.NewWithClock(through(server, r), "drawgate", opts, clock)
	}
	bad, good = open(n), open(direct)
	t.Cleanup(func() { _ = errors.Join(bad.Close(), good.Close()) })
	return bad, good
}

func bucketsOf(plan *store.Plan, n int64, names ...string) (list []store.BucketCost) {
	for _, name := range names {
		list = append(list, store.BucketCost{
			Key: store.Key{Policy: plan.Name(), Name: name}, Plan: plan,
			N: store.Amounts{n},
		})
	}
	return list
}

func take(ctx context.Context, s store.Store, t store.Take) (store.Verdict, error) {
	out := make([]store.Verdict, 1)
	err := s.Take(ctx, []store.Take{t}, out)
	return out[0], errors.Join(err, out[0].Fail)
}

func settle(ctx context.Context, s store.Store, t store.Settlement) (store.Outcome, error) {
	out := make([]store.Outcome, 1)
	err := s.Settle(ctx, []store.Settlement{t}, out)
	return out[0], errors.Join(err, out[0].Err)
}

// A proxy that sends a write twice, and answers with the second answer, does not make it count
// twice.
//
// req: A12
func TestProxyRepeatsWrites(t *testing.T) {
	t.Parallel()
	twice := func(op string, send func() (*http.Response, error)) (*http.Response, error) {
		if writes(op) {
			_, _ = loses(send)
		}
		return send()
	}
	bad, good := on(t, empty(t), twice, nil)
	plan := planOf(t, 100)
	for range 3 {
		if d, err := takeOf(t.Context(), bad, plan, "k", 10); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
	}
	if u := used(t, good, plan, "k"); u != 30 {
		t.Errorf("%d used, want 30", u)
	}
	if o, err := settle(t.Context(), bad, store.Settlement{
		Op:      store.OpRefund,
		Buckets: bucketsOf(plan, 10, "k"),
	}); err != nil {
		t.Fatal(o, err)
	}
	if u := used(t, good, plan, "k"); u != 20 {
		t.Errorf("%d used after a refund of 10 of 30, want 20", u)
	}
}

// A process sends a write and is suspended for a minute before it learns that the answer was lost.
// Meanwhile another process has used the bucket, and has dropped the mark of the write. The first
// one does not send it again: a refund would land twice.
//
// req: A12
func TestMarkIsForgotten(t *testing.T) {
	t.Parallel()
	now := atomic.Int64{}
	now.Store(time.Date(2026, 3, 28, 22, 58, 3, 0, time.UTC).UnixMicro())
	var other func()
	first := true
	asleep := func(op string, send func() (*http.Response, error)) (*http.Response, error) {
		if !writes(op) || !first {
			return send()
		}
		first = false
		_, err := loses(send)
		now.Add(time.Minute.Microseconds())
		other()
		return nil, err
	}
	bad, good := on(t, empty(t), asleep, now.Load)
	plan := planOf(t, 100)
	takeGood := func() {
		if d, err := takeOf(t.Context(), good, plan, "k", 10); err != nil || !d.Allowed {
			t.Error(d, err)
		}
	}
	other = takeGood
	for range 5 {
		takeGood()
	}
	if o, err := settle(t.Context(), bad, store.Settlement{
		Op:      store.OpRefund,
		Buckets: bucketsOf(plan, 10, "k"),
	}); !errors.Is(err, store.ErrUnknownOutcome) ||
		errors.Is(err, store.ErrNothingDone) {
		t.Errorf("the refund: %+v, %v, want an unknown outcome", o, err)
	}
	if u := used(t, good, plan, "k"); u != 50 {
		t.Errorf("%d used after 6 takes and a refund of 10, want 50", u)
	}
}

// A process is suspended between reading its clock and the write, and the answer is lost. The units
// are dated too early, so it must not use them.
//
// req: A3, A12
func TestSuspendedAndAnswerLost(t *testing.T) {
	t.Parallel()
	now := atomic.Int64{}
	now.Store(time.Date(2026, 3, 28, 22, 58, 3, 0, time.UTC).UnixMicro())
	first := true
	asleep := func(op string, send func() (*http.Response, error)) (*http.Response, error) {
		if !writes(op) || !first {
			return send()
		}
		first = false
		now.Add((10 * time.Second).Microseconds())
		return loses(send)
	}
	bad, good := on(t, empty(t), asleep, now.Load)
	plan, err := drawgate.Policy{Name: "p", Limits: []drawgate.Limit{{
		Name: "limit", Kind: drawgate.Rolling, Amount: 10,
		Window: 11 * time.Second,
	}}}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	granted := int64(0)
	if d, err := takeOf(t.Context(), bad, plan.Plan, "k", 10); err == nil && d.Allowed {
		granted += 10 // it begins to use them now
	}
	now.Add((2 * time.Second).Microseconds())
	if d, err := takeOf(t.Context(), good, plan.Plan, "k", 10); err != nil {
		t.Fatal(err)
	} else if d.Allowed {
		granted += 10
	}
	if granted > 10 {
		t.Errorf("%d units were admitted within 2 s, at most 10 are allowed in 11 s", granted)
	}
}

// A take of several buckets whose reservations cannot be cancelled does not say that nothing was
// done: then its caller would not cancel them either.
//
// req: A12
func TestUndoFails(t *testing.T) {
	t.Parallel()
	bad, good := on(t, empty(t), throttledAfter(1), nil)
	plan := planOf(t, 100)
	_, err := take(t.Context(), bad, store.Take{
		ID: "id", Grant: 7, Hold: time.Hour,
		Buckets: bucketsOf(plan, 10, "a", "b"),
	})
	if u := used(t, good, plan, "a"); u == 10 && errors.Is(err, store.ErrNothingDone) {
		t.Errorf("%d units are reserved, but the error says that nothing was done: %v", u, err)
	}
}

// throttledAfter lets some writes pass.
func throttledAfter(most int64) network {
	var puts atomic.Int64
	return func(op string, send func() (*http.Response, error)) (*http.Response, error) {
		if writes(op) && puts.Add(1) > most {
			return answer(nil, http.StatusBadRequest, exception("ThrottlingException", "too much")), nil
		}
		return send()
	}
}

// A take that is sent again, after the first sending got no further than its first bucket and could
// not take that back, is not said to be another one with its grant: its caller would be refused for
// a fault of the store. It is undecided, and what was reserved counts.
//
// req: A12
func TestSentAgainAfterHalf(t *testing.T) {
	t.Parallel()
	bad, good := on(t, empty(t), throttledAfter(1), nil)
	plan := planOf(t, 100)
	half := store.Take{ID: "id", Grant: store.NewGrant(), Hold: time.Minute, Buckets: bucketsOf(plan, 10, "a", "b")}
	if d, err := take(t.Context(), bad, half); !errors.Is(err, store.ErrUnknownOutcome) {
		t.Fatal(d, err)
	}
	d, err := take(t.Context(), good, half)
	if !errors.Is(err, store.ErrUnknownOutcome) || !errors.Is(err, store.ErrStoreUnavailable) {
		t.Errorf("sent again: %+v, %v; want that nobody knows", d, err)
	}
	if a, b := used(t, good, plan, "a"), used(t, good, plan, "b"); a != 10 || b != 0 {
		t.Errorf("%d and %d used, want what the first sending reserved: 10 and 0", a, b)
	}
}

// A plain take of several buckets is granted once the last bucket has granted.
//
// req: A3
func TestPlainTakeIsGrantedByItsLastBucket(t *testing.T) {
	t.Parallel()
	bad, good := on(t, empty(t), throttledAfter(2), nil)
	plan := planOf(t, 100)
	d, err := take(t.Context(), bad, store.Take{Buckets: bucketsOf(plan, 10, "a", "b")})
	if a, b := used(t, good, plan, "a"), used(t, good, plan, "b"); err != nil || !d.Allowed || a != 10 || b != 10 {
		t.Errorf("got %+v, %v, and %d and %d units are used, want a grant of 10 and 10", d, err, a, b)
	}
}

// A settlement of several buckets that was carried out in some does not say that nothing was done:
// then its caller would refund twice.
//
// req: A12
func TestPartOfASettlement(t *testing.T) {
	t.Parallel()
	bad, good := on(t, empty(t), throttledAfter(1), nil)
	plan := planOf(t, 100)
	buckets := bucketsOf(plan, 10, "a", "b")
	if d, err := take(t.Context(), good, store.Take{Buckets: buckets}); err != nil || !d.Allowed {
		t.Fatal(d, err)
	}
	_, err := settle(t.Context(), bad, store.Settlement{Op: store.OpRefund, Buckets: buckets})
	if a, b := used(t, good, plan, "a"), used(t, good, plan, "b"); a+b != 10 || err == nil ||
		errors.Is(err, store.ErrNothingDone) {
		t.Errorf("%d and %d units are used; the error is %v", a, b, err)
	}
}

// A caller of several buckets whose writes get no answer has its own answer when its time is over.
//
// req: A10
func TestDeadlineOfSeveralBuckets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hangs := hanging{}
		s := dynamostore.New(through(&awstest.Server{URL: "http://x"}, hangs), "drawgate", nil)
		defer func() { _ = s.Close() }()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err := take(ctx, s, store.Take{
			ID: "id", Grant: 7, Hold: time.Hour,
			Buckets: bucketsOf(planOf(t, 100), 10, "a", "b"),
		})
		if took := time.Since(began); took > time.Second || !errors.Is(err, store.ErrUnknownOutcome) ||
			errors.Is(err, store.ErrNothingDone) {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

// hanging answers reads, without items, and never writes.
type hanging struct{ slow time.Duration }

func (h hanging) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".GetItem") {
		time.Sleep(h.slow)
		resp := answer(r, http.StatusOK, "{}")
		resp.Header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
		return resp, nil
	}
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// A DynamoDB that answers slowly is not a wrong configuration: its first answers say the time only
// roughly.
//
// req: A10
func TestSlowAnswersAreNotMisconfiguration(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := dynamostore.New(through(&awstest.Server{URL: "http://x"}, hanging{slow: 1500 * time.Millisecond}),
			"drawgate", nil)
		defer func() { _ = s.Close() }()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err := takeOf(ctx, s, planOf(t, 100), "k", 1)
		if err == nil || errors.Is(err, dynamostore.ErrMisconfigured) {
			t.Errorf("a take: %v", err)
		}
		out := make([]store.State, 1)
		if err := errors.Join(s.Peek(ctx, bucketsOf(planOf(t, 100), 1, "k"), 0, out), out[0].Fail); errors.Is(err,
			dynamostore.ErrMisconfigured) {
			t.Errorf("a peek: %v", err)
		}
	})
}

// Of two settlements of several buckets that race each other one succeeds, although each of them
// comes first in one bucket.
//
// req: A3
func TestRacingSettlements(t *testing.T) {
	t.Parallel()
	plan := planOf(t, 100)
	buckets := bucketsOf(plan, 3, "a", "b")
	end := store.Settlement{Op: store.OpSettle, ID: "id", Grant: 7, Buckets: buckets}
	var mu sync.Mutex
	var other *store.Outcome
	var bad, good *dynamostore.Store
	bad, good = on(t, empty(t), func(op string, send func() (*http.Response, error)) (*http.Response, error) {
		if !writes(op) {
			return send()
		}
		mu.Lock()
		defer mu.Unlock()
		resp, err := send()
		if other == nil {
			o, err := settle(t.Context(), good, end)
			if other = &o; err != nil {
				t.Error(err)
			}
		}
		return resp, err
	}, nil)
	if d, err := take(t.Context(), good, store.Take{
		ID: "id", Grant: 7, Hold: time.Hour,
		Buckets: bucketsOf(plan, 10, "a", "b"),
	}); err != nil || !d.Allowed {
		t.Fatal(d, err)
	}
	o, err := settle(t.Context(), bad, end)
	if err != nil || o.Gone == other.Gone {
		t.Errorf("%v; one says gone %t, the other %t: want one of each", err, o.Gone, other.Gone)
	}
	if a, b := used(t, good, plan, "a"), used(t, good, plan, "b"); a != 3 || b != 3 {
		t.Errorf("%d and %d units are used, want 3 each", a, b)
	}
}

// A process is suspended between reading its clock and the write, and the write's answer does not
// say when it was carried out.
func TestSuspendedWithoutDate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := dynamostore.New(through(&awstest.Server{URL: "http://x"}, undated{}), "drawgate", nil)
		defer func() { _ = s.Close() }()
		if d, err := takeOf(t.Context(), s, planOf(t, 100), "k", 1); err == nil || d.Allowed {
			t.Errorf("got %+v, want an error", d)
		}
	})
}

// undated answers reads, without items, and writes 10 s later, without a Date.
type undated struct{}

func (undated) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".GetItem") {
		return hanging{}.RoundTrip(r)
	}
	time.Sleep(10 * time.Second)
	return answer(r, http.StatusOK, "{}"), nil
}

// Callers who give up at any point leave nothing behind but units of which they were told that they
// may be spent.
//
// req: A3, A12
func TestCallersGiveUp(t *testing.T) {
	t.Parallel()
	server, plan, opts := empty(t), planOf(t, 1_000_000), &dynamostore.Options{Prefix: prefix()}
	var mu sync.Mutex
	granted, unknown := map[string]int64{}, map[string]int64{}
	var all sync.WaitGroup
	var stores []*dynamostore.Store
	for range 2 {
		conn := &faulty{next: direct, lose: 0.1, throttle: 0.1}
		var calls atomic.Int64
		var cancels sync.Map // by number of the call before which the caller gives up
		s := dynamostore.New(through(server, network(func(_ string,
			send func() (*http.Response, error),
		) (*http.Response, error) {
			if cancel, ok := cancels.LoadAndDelete(calls.Add(1)); ok {
				cancel.(context.CancelFunc)()
			}
			return send()
		}).over(conn)), "drawgate", opts)
		for range 3 {
			all.Go(func() {
				for range 15 {
					ctx, cancel := context.WithCancel(t.Context())
					cancels.Store(calls.Load()+rand.Int64N(20), cancel)
					names := []string{"a", "b", "c"}[:1+rand.IntN(3)]
					_, err := take(ctx, s, store.Take{Buckets: bucketsOf(plan, 1, names...)})
					cancel()
					mu.Lock()
					for _, n := range names {
						if err == nil {
							granted[n]++
						} else if !errors.Is(err, store.ErrNothingDone) {
							unknown[n]++
						}
					}
					mu.Unlock()
				}
			})
		}
		stores = append(stores, s)
	}
	all.Wait()
	for _, s := range stores {
		_ = s.Close() // waits for what goes on without its callers
	}
	s := dynamostore.New(through(server, direct), "drawgate", opts)
	defer func() { _ = s.Close() }()
	for _, n := range []string{"a", "b", "c"} {
		if u := used(t, s, plan, n); u < granted[n] || u > granted[n]+unknown[n] {
			t.Errorf("%s: %d used, %d granted, and perhaps %d more", n, u, granted[n], unknown[n])
		}
	}
}
