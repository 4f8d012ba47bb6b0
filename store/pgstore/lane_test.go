package pgstore_test

import (
	"context"
	"sync"
	"testing"

	"github.com/drawgate/drawgate/internal/pgtest"
	"github.com/drawgate/drawgate/store/pgstore"
)

// oneLane returns a store with one transaction under way at most. One that is asked for by hold
// waits until it is told to go on.
func oneLane(t *testing.T, hold chan bool) *pgstore.Store {
	t.Helper()
	return oneLaneAt(t, pgtest.Shared(t).Schema(t), hold)
}

func oneLaneAt(t *testing.T, url string, hold chan bool) *pgstore.Store {
	t.Helper()
	o := &pgstore.Options{}
	o.Between(func(_ context.Context, step string) {
		if step != "locked" {
			return
		}
		select {
		case hold <- true:
			<-hold
		default:
		}
	})
	return open(t, url+"&pool_max_conns=2", o)
}

// together has calls carried out in one transaction, in this order, and returns their errors.
func together(t *testing.T, s *pgstore.Store, hold chan bool, calls []func() error) []error {
	t.Helper()
	var running sync.WaitGroup
	running.Go(func() { mustTake(t, s, takeOf(hourly(t, many), "first")) })
	<-hold
	errs := make([]error, len(calls))
	for i, call := range calls {
		running.Go(func() { errs[i] = call() })
		until(t, "it waits", func() bool { return s.Queued() == i+1 })
	}
	hold <- true
	running.Wait()
	return errs
}
