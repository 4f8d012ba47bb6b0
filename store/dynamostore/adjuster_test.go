package dynamostore_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/awstest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/dynamostore"
)

// TestTakesRefundsAndAdjusterAtOnce: processes take from one bucket, give units back and correct
// what is used, all at the same time: each of these counts once, and takes stay within the limit.
func TestTakesRefundsAndAdjusterAtOnce(t *testing.T) {
	t.Parallel()
	c, table := client(t, awstest.Dynalite(t))
	const amount = 60
	plan, err := drawgate.Policy{Name: "p", Limits: []drawgate.Limit{drawgate.RollingLimit("rph", amount,
		time.Hour)}}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	cost := func(n int64) []store.BucketCost {
		return []store.BucketCost{{Key: store.Key{Policy: "p", Name: "k"}, Plan: plan.Plan, N: store.Amounts{n}}}
	}
	open := func() *dynamostore.Store {
		s := dynamostore.New(c, table, nil)
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	var granted, back, charged atomic.Int64
	var all sync.WaitGroup
	work := func(f func(s *dynamostore.Store) error) {
		s := open()
		all.Go(func() {
			for range 20 {
				if err := f(s); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 4 {
		work(func(s *dynamostore.Store) error {
			d, err := take(t.Context(), s, store.Take{Buckets: cost(1)})
			if d.Allowed {
				granted.Add(1)
			}
			return err
		})
	}
	work(func(s *dynamostore.Store) error {
		o, err := settle(t.Context(), s, store.Settlement{Op: store.OpRefund, Buckets: cost(1)})
		if len(o.Back) > 0 {
			back.Add(o.Back[0][0])
		}
		return err
	})
	work(func(s *dynamostore.Store) error {
		_, err := settle(t.Context(), s, store.Settlement{Op: store.OpCharge, At: time.Now(), Buckets: cost(1)})
		charged.Add(1)
		return err
	})
	all.Wait()
	if t.Failed() {
		return
	}
	out := make([]store.State, 1)
	if err := open().Peek(t.Context(), cost(0), 0, out); err != nil || out[0].Fail != nil {
		t.Fatal(err, out[0].Fail)
	}
	if used, want := out[0].States[0].Used, granted.Load()+charged.Load()-back.Load(); used != want {
		t.Errorf("%d are used, want %d: %d granted, %d charged, %d given back", used, want, granted.Load(),
			charged.Load(), back.Load())
	}
	if n := granted.Load(); n > amount+back.Load() {
		t.Errorf("%d of %d were granted, and only %d given back", n, amount, back.Load())
	}
}
