package drawgate_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
)

// TestRefund gives back the units that are named, or one request.
func TestRefund(t *testing.T) {
	t.Parallel()
	l := local(t, policy(of("requests", rolling(10, time.Hour)), of("tokens", rolling(100, time.Hour))))
	for range 4 {
		if d, err := l.Allow(t.Context(), "k", drawgate.Cost{Unit: "tokens", N: 20}); err != nil || !d.Allowed {
			t.Fatal(d.Err(), err)
		}
	}
	for i, costs := range [][]drawgate.Cost{
		nil,
		{{Unit: "tokens", N: 5}},
		{{Unit: "requests", N: 2}, {Unit: "tokens", N: 1}},
	} {
		if err := l.Ask("k", costs...).Refund(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := [][]int64{{3, 80}, {3, 75}, {1, 74}}[i]
		wantUsed(t, l, "k", want...)
	}
	o := with(t, l, drawgate.Policy{Name: "q", Limits: []drawgate.Limit{rolling(1, time.Hour)}})
	take(t, o, "k", 1)
	if err := o.Ask("k").Refund(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantUsed(t, o, "k", 0)
	wantUsed(t, l, "k", 1, 74)
}

// TestRefundMistakes are errors, and give nothing back.
func TestRefundMistakes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := remote(t)
		l := over(t, s, policy(rolling(10, time.Hour)))
		take(t, l, "k", 5)
		wantErr(t, l.Ask("k", drawgate.Cost{Unit: "coins", N: 1}).Refund(t.Context()), drawgate.ErrUnknownUnit)
		wantErr(t, l.Ask("k", drawgate.Cost{N: -1}).Refund(t.Context()), drawgate.ErrInvalid)
		wantErr(t, l.Ask(string(make([]byte, drawgate.MaxKey+1))).Refund(t.Context()), drawgate.ErrInvalid)
		wantErr(t, drawgate.Ask{Key: "k"}.Refund(t.Context()), drawgate.ErrInvalid)
		tokens := with(t, l, policy(of("tokens", rolling(10, time.Hour))))
		wantErr(t, tokens.Ask("k").Refund(t.Context()), drawgate.ErrUnknownUnit) // there is no request to give back
		if n := s.settles.Load(); n != 0 {
			t.Errorf("the store was asked %d times", n)
		}
		wantUsed(t, l, "k", 5)
	})
}

// TestRefundIsSentOnce: it has no id, so that a second one would give back twice.
func TestRefundIsSentOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, f := range []fault{fails, drops} {
			s := remote(t)
			l := over(t, s, policy(rolling(10, time.Hour)))
			take(t, l, "k", 5)
			s.script(0, f)
			err := l.Ask("k", drawgate.Cost{N: 2}).Refund(t.Context())
			if !errors.Is(err, drawgate.ErrStoreUnavailable) || s.settles.Load() != 1 {
				t.Errorf("error %v after %d calls, want one that is ErrStoreUnavailable, once", err, s.settles.Load())
			}
			wantUsed(t, l, "k", map[fault]int64{fails: 5, drops: 3}[f])
		}
	})
}

// TestRefundWakes: who waits in this process tries at once.
func TestRefundWakes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := over(t, remote(t), policy(rolling(1, time.Hour)))
		take(t, l, "k", 1)
		start, done := time.Now(), make(chan error)
		go func() {
			_, err := l.Wait(t.Context(), "k")
			done <- err
		}()
		time.Sleep(time.Minute)
		if err := l.Ask("k").Refund(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		wantTook(t, start, time.Minute, time.Second)
	})
}

// TestRefundIsObserved with what it gave back.
func TestRefundIsObserved(t *testing.T) {
	t.Parallel()
	var settled []drawgate.Settled
	l, err := drawgate.New(memory(t), policy(rolling(10, time.Hour)), &drawgate.Options{Observer: &drawgate.Observer{
		Settled: func(e *drawgate.Settled) { settled = append(settled, *e) },
	}})
	if err != nil {
		t.Fatal(err)
	}
	take(t, l, "k", 3)
	if err := l.Ask("k", drawgate.Cost{N: 5}).Refund(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(settled) != 1 || settled[0].Settlement.Op.String() != "refund" || settled[0].Outcome.Back[0][0] != 3 {
		t.Errorf("told %+v, want a refund of 3", settled)
	}
}
