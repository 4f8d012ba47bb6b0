package httplimit_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/httplimit"
)

// outcome is how a request ended, and when.
type outcome struct {
	status int
	code   httplimit.Code
	after  time.Duration
	header http.Header
}

// send begins a request, ends it at once, and returns its outcome.
func send(ctx context.Context, m *httplimit.Middleware) outcome {
	start, h := time.Now(), http.Header{}
	p := m.Begin(h, httptest.NewRequest(http.MethodGet, "/", http.NoBody).WithContext(ctx))
	o := outcome{status: http.StatusOK, after: time.Since(start), header: h}
	if p.Problem != nil {
		o.status, o.code = p.Problem.Status, p.Problem.Code
	}
	p.End() //nolint:contextcheck // it does not depend on the client
	return o
}

// A request is allowed, queued or refused. req: B7.
func TestThreeOutcomes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := one(t, &httplimit.Options{Wait: 15 * time.Second}, policy("p", bucket(10, time.Minute, 1)))
		if o := send(t.Context(), m); o.status != http.StatusOK || o.after != 0 {
			t.Errorf("allow: %+v", o)
		}
		all := make(chan outcome, 3)
		for range 3 {
			go func() { all <- send(t.Context(), m) }()
			synctest.Wait()
		}
		var waited, refused int
		for range 3 {
			o := <-all
			switch {
			case o.status == http.StatusOK && o.after >= 6*time.Second && o.after <= 13*time.Second:
				waited++
			case o.status == http.StatusTooManyRequests && o.after <= 16*time.Second &&
				o.header.Get("Retry-After") != "":
				refused++
			default:
				t.Errorf("got %+v, want it passed after a wait, or refused with Retry-After", o)
			}
		}
		if waited != 2 || refused != 1 {
			t.Errorf("%d waited, %d refused: of three, two fit within 15 s", waited, refused)
		}
	})
}

// A request that cannot pass in time is refused at once, not after its time is over.
func TestRequestThatCannotPassInTimeIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := one(t, &httplimit.Options{Wait: 15 * time.Second}, policy("p", bucket(1, time.Minute, 1)))
		send(t.Context(), m)
		if o := send(t.Context(), m); o.status != http.StatusTooManyRequests || o.after != 0 ||
			o.header.Get("Retry-After") != "60" {
			t.Errorf("got %+v, want 429 at once with Retry-After: 60", o)
		}
	})
}

// The numbers in a refusal after a wait are those of the refusal, not of the beginning of the wait.
func TestRefusalAfterAWaitHasCurrentNumbers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := one(t, &httplimit.Options{Wait: 10 * time.Second, Hold: time.Minute},
			policy("p", slots(1), rolling(2, time.Minute)))
		first := m.Begin(http.Header{}, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
		defer first.End()
		o := send(t.Context(), m)
		if o.status != http.StatusTooManyRequests || o.after != 10*time.Second || o.header.Get("Retry-After") != "1" {
			t.Errorf("got %+v, want 429 after 10 s with Retry-After: 1", o)
		}
		wantHeaders(t, o.header, "RateLimit", `"p/slots";r=0, "p/rolling";r=1;t=1`)
		time.Sleep(45 * time.Second)
		o = send(t.Context(), m) // in 5 s the rolling limit is unused
		wantHeaders(t, o.header, "RateLimit", `"p/slots";r=0, "p/rolling";r=2;t=0`)
	})
}

// A request that waits for a slot gets it when it becomes free.
func TestHeldUnitsComeInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := one(t, &httplimit.Options{Wait: time.Minute}, policy("p", slots(1)))
		first := m.Begin(http.Header{}, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
		done := make(chan outcome)
		go func() { done <- send(t.Context(), m) }()
		time.Sleep(7 * time.Second)
		if m.Waiting() != 1 {
			t.Errorf("%d wait", m.Waiting())
		}
		first.End()
		if o := <-done; o.status != http.StatusOK || o.after != 7*time.Second {
			t.Errorf("got %+v, want 200 after 7 s", o)
		}
	})
}

// The bounds of the policy apply as well: the length of its queue, and its longest wait.
func TestBoundsOfThePolicyApplyToWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := policy("p", slots(1))
		p.Wait = drawgate.Wait{Queue: 1, MaxWait: 5 * time.Second}
		m := one(t, &httplimit.Options{Wait: time.Minute}, p)
		first := m.Begin(http.Header{}, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
		defer first.End()
		done := make(chan outcome)
		go func() { done <- send(t.Context(), m) }()
		synctest.Wait()
		if o := send(t.Context(), m); o.code != httplimit.CodeQueueFull || o.after != 0 {
			t.Errorf("got %+v, want queue_full at once", o)
		}
		if o := <-done; o.status != http.StatusTooManyRequests || o.after != 5*time.Second {
			t.Errorf("got %+v, want 429 after 5 s", o)
		}
	})
}

// If the store fails during a wait, the wait ends, and the answer is a plain 503.
func TestStoreFailsWhileWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, l := newFlaky(t, policy("p", bucket(10, time.Minute, 1)))
		m := middleware(t, &httplimit.Options{Wait: time.Minute},
			httplimit.Bucket{Limiter: l, Key: httplimit.Fixed("all")})
		send(t.Context(), m)
		done := make(chan outcome)
		go func() { done <- send(t.Context(), m) }()
		synctest.Wait()
		f.down.Store(true)
		if o := <-done; o.status != http.StatusServiceUnavailable || o.code != httplimit.CodeStoreUnavailable ||
			o.after > 7*time.Second {
			t.Errorf("got %+v, want 503 store_unavailable within 7 s", o)
		}
	})
}
