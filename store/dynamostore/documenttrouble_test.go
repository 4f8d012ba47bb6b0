package dynamostore_test

import (
	"errors"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	cwtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/dynamostore"
	"github.com/drawgate/drawgate/store/guard"
	cw "github.com/drawgate/drawgate/telemetry/cloudwatch"
)

// guarded is an instance with the fallback of the preset, one of two, that reports to CloudWatch.
type guarded struct {
	*instance
	guard    *guard.Store
	metric   metricReader
	failures atomic.Int64 // attempts on DynamoDB that failed
	opened   chan int64   // how many of them there were when it stopped asking DynamoDB
}

func (c *cloud) guarded(t *testing.T, prefix string, timeout time.Duration) *guarded {
	t.Helper()
	m, metric := c.metrics(t, prefix)
	g := &guarded{instance: c.process(t, prefix, m.Store()), metric: metric, opened: make(chan int64, 10)}
	observer := m.Guard()
	tell := observer.Opened
	observer.BackendError = func(*guard.BackendError) { g.failures.Add(1) }
	observer.Opened = func(e *guard.Opened) {
		g.opened <- g.failures.Load()
		tell(e)
	}
	g.guard = guard.New(g.store, &guard.Options{Instances: 2, Timeout: timeout, Observer: observer})
	t.Cleanup(func() { _ = g.guard.Close() })
	g.limit(g.guard.Full(), &drawgate.Options{StoreTimeout: timeout + 10*time.Millisecond, Observer: m.Observer()})
	return g
}

// req: A10
func fallBack(t *testing.T, c *cloud, prefix string) {
	t.Helper()
	outage(t, c, prefix, func(string, *http.Request, func() (*http.Response, error)) (*http.Response, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	})
}

// req: A10
func fallBackFromLatency(t *testing.T, c *cloud, prefix string) {
	t.Helper()
	outage(t, c, prefix, func(_ string, r *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		select {
		case <-time.After(10 * time.Second):
			return send()
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	})
}

// outage takes the store away from one of two instances, and gives it back.
func outage(t *testing.T, c *cloud, prefix string, cause trouble) {
	t.Helper()
	in := c.guarded(t, prefix, 40*time.Millisecond)
	other := c.instance(t, prefix)
	in.must(1_000)
	in.wire.troubled(cause)
	admitted := int64(0)
	for range 3 { // translation goes on from the first attempt that fails
		time.Sleep(30 * time.Second)
		if d := in.acquire(1_000); !d.Allowed || !d.Fallback {
			t.Fatalf("without DynamoDB: allowed %v, by the fallback %v, %v", d.Allowed, d.Fallback, d.Err())
		}
		admitted++
	}
	if !in.guard.State().Unavailable {
		t.Fatal("DynamoDB is still asked after three attempts that failed")
	}
	if n := <-in.opened; n != 3 {
		t.Errorf("DynamoDB was given up after %d attempts that failed, want 3", n)
	}
	// The limit of this instance alone: half of each of the policy's.
	for in.acquire(1_000).Allowed {
		if admitted++; admitted > 100 {
			t.Fatal("no limit")
		}
	}
	if admitted > 3+2 {
		t.Errorf("%d were admitted in an outage, of which 3 in 90 s and more than 2 at once", admitted)
	}
	if d := in.acquire(1_000); d.Reason != store.Limited || !d.Fallback {
		t.Errorf("beyond the share: %v, by the fallback %v", d.Reason, d.Fallback)
	}
	time.Sleep(30 * time.Second)
	if !in.acquire(1_000).Allowed {
		t.Error("the share is not refilled")
	}
	admitted++
	if n := *in.metric(cw.FallbackActivated, cwtypes.StandardUnitCount).Sum; n != 1 {
		t.Errorf("%s was emitted %v times, want once", cw.FallbackActivated, n)
	}
	// DynamoDB is back: it decides again, and knows what was admitted without it.
	in.wire.troubled(nil)
	time.Sleep(20 * time.Second)
	if in.guard.State().Unavailable {
		t.Fatal("DynamoDB is back, and not asked")
	}
	in.must(1_000)
	if used := 24 - other.left()[rpd]; used != 1+admitted+1 {
		t.Errorf("the other instance sees %d requests of the day, want %d", used, 1+admitted+1)
	}
	if n := *in.metric(cw.FallbackActivated, cwtypes.StandardUnitCount).Sum; n != 1 {
		t.Errorf("%s was emitted %v times, want once", cw.FallbackActivated, n)
	}
}

// The alarm is in the template deploy/aws, whose tests read it back: it watches the metric that
// this scenario counts.
//
// req: A11
func throttling(t *testing.T, c *cloud, prefix string) {
	t.Helper()
	in := c.guarded(t, prefix, time.Second)
	in.must(1_000)
	before := len(in.wire.sent(""))
	left := 2
	in.wire.troubled(func(_ string, r *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		if left == 0 {
			return send()
		}
		left--
		return answer(r, http.StatusBadRequest, exception("ProvisionedThroughputExceededException", "too much")), nil
	})
	in.must(1_000) // after two retries
	if n := len(in.wire.sent("")) - before; n != 3 || in.guard.State().Err != nil {
		t.Errorf("%d requests, want 3; %v", n, in.guard.State().Err)
	}
	before, left = len(in.wire.sent("")), 100
	time.Sleep(30 * time.Second)
	d := in.acquire(1_000)
	if !d.Allowed || !d.Fallback {
		t.Errorf("throttled: allowed %v, by the fallback %v, %v", d.Allowed, d.Fallback, d.Err())
	}
	in.mu.Lock()
	call := in.calls[len(in.calls)-1]
	in.mu.Unlock()
	if call.Op != "take" || call.Attempts != 5 || call.Throttled != 5 ||
		!errors.Is(call.Err, dynamostore.ErrThrottled) {
		t.Fatalf("the call was %+v, want 5 attempts", call)
	}
	sent := in.wire.sent("")[before:][:5] // what follows is for the charge of what the fallback admitted
	most := 20 * time.Millisecond
	for i := range sent[1:] {
		if gap := sent[i+1].at.Sub(sent[i].at); gap < most/2 || gap > most {
			t.Errorf("pause %d is %v, want %v to %v", i+1, gap, most/2, most)
		}
		most *= 2
	}
	if n := *in.metric(cw.StoreThrottled, cwtypes.StandardUnitCount).Sum; n != 7 {
		t.Errorf("%s is %v, want 7", cw.StoreThrottled, n)
	}
	if n := *in.metric(cw.FallbackActivated, cwtypes.StandardUnitCount).Sum; n != 1 {
		t.Errorf("%s is %v, want 1", cw.FallbackActivated, n)
	}
}

// req: A12
func transientErrors(t *testing.T, c *cloud, prefix string) {
	t.Helper()
	in := c.guarded(t, prefix, time.Second)
	in.must(1_000)
	// once lets the next write fail, perhaps after it was carried out.
	once := func(landed bool) {
		failed := false
		in.wire.troubled(func(op string, r *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
			if op != "PutItem" || failed {
				return send()
			}
			failed = true
			if landed {
				if resp, err := send(); err != nil || resp.StatusCode != http.StatusOK {
					t.Errorf("the write did not land: %v", err)
				}
			}
			return answer(r, http.StatusServiceUnavailable, exception("ServiceUnavailable", "later")), nil
		})
	}
	var pauses []time.Duration
	for i := range 8 {
		landed := i%2 == 1
		time.Sleep(time.Minute) // the minute is full again
		before := len(in.wire.sent(""))
		once(landed)
		if d := in.acquire(3_750); !d.Allowed || d.Fallback {
			t.Fatalf("allowed %v, by the fallback %v, %v", d.Allowed, d.Fallback, d.Err())
		}
		if got := in.row().tokens["tpm"]; got != 250_000-3_750 {
			t.Errorf("landed %v: the item has %d tokens, want 246,250: the same amount, once", landed, got)
		}
		var puts []sentRequest
		sent := in.wire.sent("")[before:]
		for j, s := range sent {
			if s.op == "PutItem" {
				puts = append(puts, s)
				if len(puts) == 1 {
					pauses = append(pauses, sent[j+1].at.Sub(s.at))
				}
			}
		}
		if want := map[bool]int{false: 2, true: 1}[landed]; len(puts) != want {
			t.Errorf("landed %v: it was written %d times, want %d", landed, len(puts), want)
		}
	}
	if got, want := 24-in.left()[rpd], int64(1+8); got != want {
		t.Errorf("%d requests of the day are used, want %d", got, want)
	}
	slices.Sort(pauses)
	if first, last := pauses[0], pauses[len(pauses)-1]; first < 10*time.Millisecond || last > 20*time.Millisecond ||
		first == last {
		t.Errorf("the pauses before the retries are %v, want 10 to 20 ms, at random", pauses)
	}
	if st := in.guard.State(); st.Unavailable || st.Decided != 0 {
		t.Errorf("the guard decided %d takes", st.Decided)
	}
}
