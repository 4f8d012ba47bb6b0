package pgstore_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/pgtest"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store"
)

// TestSilentSynchronousStandby has the server wait for a standby that has stopped. A take is not
// answered as granted before the standby has it, also if its commit is looked up meanwhile: the
// standby may take the server's place.
//
// req: A10, E1
func TestSilentSynchronousStandby(t *testing.T) {
	needs.NoRace(t) // the others are for goroutines
	t.Parallel()
	primary := pgtest.Start(t)
	url, plan := primary.Schema(t), hourly(t, many)
	s := open(t, url, nil)
	mustTake(t, s, takeOf(plan, "k"))
	primary.Standby(t)
	primary.Do("ALTER SYSTEM SET synchronous_standby_names = '*'")
	primary.Do("SELECT pg_reload_conf()")
	until(t, "commits wait for the standby", func() bool {
		return primary.Do("SELECT sync_state FROM pg_stat_replication") == "sync"
	})
	mustTake(t, s, takeOf(plan, "k"))

	sender, err := strconv.Atoi(primary.Do("SELECT pid FROM pg_stat_replication"))
	if err != nil {
		t.Fatal(err)
	}
	redistest.Hang(t, sender)
	const longer = 8 * time.Second // than a transaction may take
	ctx, cancel := context.WithTimeout(t.Context(), longer)
	defer cancel()
	var v [1]store.Verdict
	err = s.Take(ctx, []store.Take{takeOf(plan, "k")}, v[:])
	if err == nil || errors.Is(err, store.ErrNothingDone) {
		t.Errorf("allowed %t, %v: want an error that does not say that nothing was done", v[0].Allowed, err)
	}

	// Somebody keeps the server from waiting, and it answers that it has committed.
	hasty := open(t, named(t, url, "hasty"), nil)
	ctx, cancel = context.WithTimeout(t.Context(), longer/4)
	defer cancel()
	var canceler sync.WaitGroup
	canceler.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
			primary.Do("SELECT pg_cancel_backend(pid) FROM pg_stat_activity " + //nolint:contextcheck // it is to be done to the end
				"WHERE application_name = 'hasty' AND wait_event = 'SyncRep'")
		}
	})
	err = hasty.Take(ctx, []store.Take{takeOf(plan, "hasty")}, v[:])
	cancel()
	canceler.Wait()
	if err == nil || errors.Is(err, store.ErrNothingDone) {
		t.Errorf("not waited for: allowed %t, %v: want an error that does not say that nothing was done", v[0].Allowed, err)
	}

	redistest.Resume(t, sender)
	until(t, "takes are granted again", func() bool {
		v, err := takeOne(t, s, takeOf(plan, "k"))
		return err == nil && v.Allowed
	})
	if n := used(t, s, plan, "k"); n != 4 {
		t.Errorf("%d units are used, want 4", n)
	}
}
