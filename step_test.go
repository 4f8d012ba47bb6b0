package drawgate_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
)

// withStoreTimeout returns a limiter that gives its store so much time.
func withStoreTimeout(t *testing.T, s drawgate.Store, p drawgate.Policy, d time.Duration) *drawgate.Limiter {
	t.Helper()
	l, err := drawgate.New(s, p, &drawgate.Options{StoreTimeout: d})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// TestPatientSettlements: where a store has more time than what is left of a hold, a settlement the
// answer of which is lost is sent again before the end: its excess counts once.
//
// req: A12
func TestPatientSettlements(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := remote(t)
		l := withStoreTimeout(t, s, policy(of("tokens", rolling(1000, time.Hour))), 10*time.Second)
		res := reserve(t, l, drawgate.Request{
			Buckets: []drawgate.Ask{l.Ask("k", tokens(100))},
			Hold:    drawgate.Hold{For: 10 * time.Second},
		})
		time.Sleep(5 * time.Second)
		s.script(0, loses)
		if err := res.Settle(t.Context(), tokens(130)); err != nil {
			t.Error(err)
		}
		wantUsed(t, l, "k", 130)
	})
}

// TestPatientCancellations: what a caller gave up is cancelled although a store that has much time
// did not answer to the first attempt.
func TestPatientCancellations(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := remote(t)
		l := withStoreTimeout(t, &slowTake{s, time.Millisecond}, drawgate.PerHour("hour", 10), 10*time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		s.script(0, stalls)
		if _, err := l.Reserve(ctx, "k", time.Hour); err == nil {
			t.Fatal("reserved")
		}
		time.Sleep(30 * time.Second)
		if st, err := l.Status(t.Context(), "k"); err != nil || st.Open != 0 {
			t.Errorf("%d are open, %v", st.Open, err)
		}
	})
}

// distant is a store that is far away.
type distant struct {
	drawgate.Store
	by time.Duration
}

func (s *distant) Take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	defer time.Sleep(s.by)
	return s.Store.Take(ctx, batch, out)
}

func (s *distant) Settle(ctx context.Context, batch []store.Settlement, out []store.Outcome) error {
	time.Sleep(s.by)
	return s.Store.Settle(ctx, batch, out)
}

// TestPatientAllowUpTo: the units are held until a store that has much time is told how many.
func TestPatientAllowUpTo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &distant{memory(t), 1500 * time.Millisecond}
		minute := of("tokens", rolling(4, time.Minute))
		minute.Name = "minute"
		l := withStoreTimeout(t, s, policy(of("tokens", rolling(10, time.Hour)), minute), 10*time.Second)
		if _, n, err := l.AllowUpTo(t.Context(), "k", drawgate.Tokens(7)); err != nil || n != 4 {
			t.Fatal(n, err)
		}
		wantUsed(t, l, "k", 4, 4)
	})
}

// blind is a store that does not answer who looks.
type blind struct{ drawgate.Store }

func (blind) Peek(ctx context.Context, _ []store.BucketCost, _ int8, _ []store.State) error {
	<-ctx.Done()
	return &drawgate.StoreError{Store: "blind", Op: "peek", Err: ctx.Err()}
}

// TestPatientProgress: who waits tries when a pause has ended, though a store that has much time
// does not say what it was for.
func TestPatientProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := withStoreTimeout(t, blind{memory(t)}, policy(rolling(1, time.Hour)), time.Minute)
		if err := l.Pause(t.Context(), "k", 4*time.Second, "maintenance"); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		d, err := l.Wait(drawgate.WithProgress(t.Context(), func(drawgate.Progress) {}), "k")
		if took := time.Since(began); err != nil || !d.Allowed || took > 7*time.Second {
			t.Errorf("allowed %v after %v, %v", d.Allowed, took, err)
		}
	})
}
