package guard_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/model"
)

// inLine is a store that keeps a line of those who wait, and fails on demand.
type inLine struct {
	*faulty
	records *model.Records
}

func (s *inLine) KeepsLine() bool { return true }

func (s *inLine) Withdraw(ctx context.Context, number uint64, keys []drawgate.Key) error {
	return s.call(ctx, "withdraw", false, func() error { return s.records.Withdraw(ctx, number, keys) })
}

// TestPrioritiesWaitInOrderDuringAnOutage: units are kept for some, so that those who wait stand in
// several lines, which the store orders. Without it, too, a higher priority is served before a
// lower one, whether they began to wait before the outage or during it.
//
// req: C5, D12
func TestPrioritiesWaitInOrderDuringAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		records := model.NewRecords(func() int64 { return time.Now().UnixMicro() }, true).InLine()
		s := &inLine{&faulty{Store: records}, records}
		limit := rolling(10, 10*time.Second)
		limit.Name, limit.ReservedByPriority = "a", map[int]drawgate.Share{7: {Units: 2}}
		l, err := drawgate.New(guarded(t, s, share(1)), drawgate.Policy{Name: "p", Limits: []drawgate.Limit{limit}},
			nil)
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		var mu sync.Mutex
		served := map[string][]int{}
		wait := func(key string, priority int) {
			wg.Go(func() {
				d, _, err := l.Take(t.Context(), drawgate.Request{
					Buckets: []drawgate.Ask{l.Ask(key, drawgate.Cost{N: 8})}, Priority: priority, Wait: true,
				})
				if err != nil || !d.Allowed {
					t.Errorf("%s, priority %d: %v, %v", key, priority, d.Err(), err)
				}
				mu.Lock()
				defer mu.Unlock()
				served[key] = append(served[key], priority)
			})
		}
		const each = 10
		for i := range each {
			for _, when := range []string{"before", "during"} {
				ask := l.Ask(fmt.Sprint(when, i), drawgate.Cost{N: 10})
				d, _, err := l.Take(t.Context(), drawgate.Request{Buckets: []drawgate.Ask{ask}, Priority: 9})
				if err != nil || !d.Allowed {
					t.Fatal(d.Err(), err)
				}
			}
		}
		waitAll := func(when string) {
			for i := range each {
				wait(fmt.Sprint(when, i), 0)
			}
			time.Sleep(time.Second)
			for i := range each {
				wait(fmt.Sprint(when, i), 9)
			}
			time.Sleep(time.Second)
		}
		waitAll("before")
		s.set(refuses)
		for range 4 { // it is known to be away
			if _, err := l.Allow(t.Context(), "another"); err != nil {
				t.Fatal(err)
			}
		}
		waitAll("during")
		wg.Wait()
		for key, order := range served {
			if order[0] != 9 {
				t.Errorf("%s: the order was %v", key, order)
			}
		}
		if len(served) != 2*each {
			t.Errorf("%d were served", len(served))
		}
	})
}
