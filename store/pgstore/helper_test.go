package pgstore_test

import (
	"errors"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/pgtest"
	"github.com/drawgate/drawgate/store"
)

func planOf(tb testing.TB, policy drawgate.Policy) *store.Plan {
	tb.Helper()
	p, err := policy.Compile()
	if err != nil {
		tb.Fatal(err)
	}
	return p.Plan
}

// hourlyPolicy has so many units in an hour: more than a test lasts.
func hourlyPolicy(amount int64) drawgate.Policy {
	return drawgate.Policy{
		Name:   fmt.Sprint("hourly", amount),
		Limits: []drawgate.Limit{drawgate.RollingLimit("r", amount, time.Hour)},
	}
}

func hourly(tb testing.TB, amount int64) *store.Plan {
	tb.Helper()
	return planOf(tb, hourlyPolicy(amount))
}

// many is more than a test takes.
const many = 1_000_000_000

func takeOf(plan *store.Plan, name string) store.Take {
	b := store.BucketCost{Key: store.Key{Policy: plan.Name(), Name: name}, Plan: plan}
	b.N[0] = 1
	return store.Take{Buckets: []store.BucketCost{b}}
}

// takeOne makes a take without a deadline.
func takeOne(tb testing.TB, s store.Store, t store.Take) (store.Verdict, error) {
	tb.Helper()
	var v [1]store.Verdict
	err := s.Take(tb.Context(), []store.Take{t}, v[:])
	return v[0], errors.Join(err, v[0].Fail)
}

// mustTake takes a unit.
func mustTake(tb testing.TB, s store.Store, t store.Take) {
	tb.Helper()
	if v, err := takeOne(tb, s, t); err != nil || !v.Allowed {
		tb.Fatalf("allowed %t, %v", v.Allowed, err)
	}
}

// used returns how many units are used.
func used(tb testing.TB, s store.Store, plan *store.Plan, name string) int64 {
	tb.Helper()
	var out [1]store.State
	err := s.Peek(tb.Context(), takeOf(plan, name).Buckets, 0, out[:])
	if err := errors.Join(err, out[0].Fail); err != nil {
		tb.Fatal(err)
	}
	return out[0].States[0].Used
}

// fails checks that an error says that nothing was done, and what kind of failure it is.
func fails(tb testing.TB, err error, fault store.Fault) {
	tb.Helper()
	if e, ok := errors.AsType[*store.Error](err); !ok || e.Fault != fault || !errors.Is(err, store.ErrNothingDone) {
		tb.Errorf("got the error %v, want one of kind %v that says that nothing was done", err, fault)
	}
}

// named returns a URL whose connections a test can tell from those of others.
func named(tb testing.TB, address, name string) string {
	tb.Helper()
	u, err := url.Parse(address)
	if err != nil {
		tb.Fatal(err)
	}
	q := u.Query()
	q.Set("application_name", name)
	u.RawQuery = q.Encode()
	return u.String()
}

// until calls f until it reports true.
func until(tb testing.TB, what string, f func() bool) {
	tb.Helper()
	const patience = time.Minute
	for end := time.Now().Add(patience); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatalf("not after %v: %s", patience, what)
		}
	}
}

// waitingForLock reports whether a connection with a name waits for a lock.
func waitingForLock(s *pgtest.Server, name string) bool {
	return s.Do("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = '"+name+"'") != "0"
}

// schemaOf returns the name of a URL's schema.
func schemaOf(tb testing.TB, address string) string {
	tb.Helper()
	u, err := url.Parse(address)
	if err != nil {
		tb.Fatal(err)
	}
	return u.Query().Get("schema")
}
