package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/internal/credit"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/memstore"
)

// prepaid returns an engine whose policy has a prepaid budget, in money.
func prepaid(t *testing.T, s drawgate.Store, amount int64) *engine.Engine {
	t.Helper()
	e, err := engine.New(s, engine.Config{Policies: []engine.Policy{{Policy: drawgate.Policy{
		Name: "team", Limits: []drawgate.Limit{drawgate.CalendarLimit("credit", amount, drawgate.Total,
			"").Of("usd_micros")},
	}}}}, &engine.Options{Tenant: "main"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// spendOf takes from the prepaid budget of a key.
func spendOf(ctx context.Context, e *engine.Engine, key string, n int64) (drawgate.Decision, error) {
	res, err := e.Take(ctx, &engine.Request{Asks: []engine.Ask{{
		Policy: "team", Key: key, Costs: []drawgate.Cost{drawgate.Units("usd_micros", n)},
	}}})
	return res.Decision, err
}

// give credits the budget of red.
func give(t *testing.T, s drawgate.Store, id string, n int64) {
	t.Helper()
	a := credit.Account{Policy: "team", Limit: "credit", Tenant: "main", Key: "red"}
	if _, _, err := a.Give(t.Context(), s, &credit.Credit{
		ID: id, N: n, At: time.Now(), By: "somebody", Reason: "a test",
	}); err != nil {
		t.Fatal(err)
	}
}

// A prepaid budget grants what was credited to its key, and no more, in any number of years. What
// does not fit is refused, and never an error: more may be credited, which counts within seconds.
func TestPrepaid(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(nil)
		defer s.Close()
		e := prepaid(t, s, 5)
		take := func(key string, n int64, allowed bool) {
			t.Helper()
			d, err := spendOf(t.Context(), e, key, n)
			if err != nil || d.Allowed != allowed {
				t.Errorf("%d for %s: %v, %v, want %v", n, key, d.Allowed, err, allowed)
			}
			if !allowed && d.RetryAfter < drawgate.Never/2 {
				t.Errorf("it would fit in %v", d.RetryAfter)
			}
		}
		take("red", 6, false)
		take("red", 5, true) // which every key has
		take("red", 1, false)
		give(t, s, "1", 100)
		give(t, s, "1", 100)
		time.Sleep(6 * time.Second)
		take("red", 101, false)
		take("red", 60, true)
		take("blue", 6, false)
		time.Sleep(20 * 365 * 24 * time.Hour)
		take("red", 41, false)
		take("red", 40, true)
		take("red", 1, false)
		give(t, s, "2", 7)
		time.Sleep(6 * time.Second)
		take("red", 7, true)
		take("red", 1, false)
	})
}

// However many engines take from a prepaid budget while credits arrive, each of them sent several
// times, all of what was credited can be spent, and never more.
func TestPrepaidIsNeverExceeded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(nil)
		defer s.Close()
		var mu sync.Mutex
		sent, credited, spent := int64(0), int64(0), int64(0)
		var all sync.WaitGroup
		stop := make(chan struct{})
		for range 4 {
			e := prepaid(t, s, 0)
			for c := range 4 {
				all.Go(func() {
					rng := rand.New(rand.NewPCG(uint64(c), 1))
					for {
						select {
						case <-stop:
							return
						case <-time.After(time.Duration(rng.IntN(100)) * time.Millisecond):
						}
						n := 1 + rng.Int64N(50)
						d, err := spendOf(context.Background(), e, "red", n)
						mu.Lock()
						if d.Allowed {
							spent += n
						}
						if err != nil || spent > sent {
							t.Errorf("%d are spent of %d: %v", spent, sent, err)
						}
						mu.Unlock()
					}
				})
			}
		}
		for i := range 30 {
			n := int64(100 + i)
			mu.Lock()
			sent += n // it may count from here on
			mu.Unlock()
			var senders sync.WaitGroup
			for range 3 {
				senders.Go(func() { give(t, s, fmt.Sprint("credit-", i), n) })
			}
			senders.Wait()
			credited += n
			time.Sleep(time.Second)
		}
		time.Sleep(time.Minute)
		close(stop)
		all.Wait()
		if spent != credited {
			t.Errorf("%d were spent of %d", spent, credited)
		}
	})
}

// lossy is a store whose answers to takes are lost.
type lossy struct {
	drawgate.Store
	store.Lister
	lost int
}

func (s *lossy) Take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	if err := s.Store.Take(ctx, batch, out); err != nil || s.lost == 0 {
		return err
	}
	s.lost--
	return errors.New("the answer was lost")
}

// A credit of which nobody knows whether it was added is sent again, and counts once.
func TestCreditWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	for lost := range 4 {
		m := memstore.New(nil)
		defer m.Close()
		s := &lossy{m, m, lost}
		a := credit.Account{Policy: "team", Limit: "credit", Tenant: "main", Key: "red"}
		c := credit.Credit{ID: "1", N: 100, At: time.Now(), By: "somebody", Reason: "a test"}
		failed := 0
		for {
			sum, _, err := a.Give(t.Context(), s, &c)
			if err == nil && sum != 100 {
				t.Errorf("%d were credited", sum)
			}
			if err == nil {
				break
			}
			failed++
			c.At = c.At.Add(time.Second)
		}
		list, sum, err := a.List(t.Context(), s)
		if err != nil || sum != 100 || len(list) != 1 || failed == 0 && lost > 0 {
			t.Errorf("%d lost, %d failed: %d in %+v, %v", lost, failed, sum, list, err)
		}
	}
}

// A credit whose id was used for another amount is refused, and adds nothing.
func TestCreditOfAnotherAmount(t *testing.T) {
	t.Parallel()
	s := memstore.New(nil)
	defer s.Close()
	give(t, s, "1", 100)
	a := credit.Account{Policy: "team", Limit: "credit", Tenant: "main", Key: "red"}
	c := credit.Credit{ID: "1", N: 101, At: time.Now(), By: "somebody", Reason: "a test"}
	if _, _, err := a.Give(t.Context(), s, &c); !errors.Is(err, credit.ErrOther) {
		t.Errorf("got %v", err)
	}
	if list, sum, err := a.List(t.Context(), s); err != nil || sum != 100 || len(list) != 1 || list[0].N != 100 {
		t.Errorf("%d in %+v, %v", sum, list, err)
	}
}
