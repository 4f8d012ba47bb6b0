package telemetry_test

import (
	"context"
	"errors"
	"maps"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/memstore"
	"github.com/drawgate/drawgate/telemetry"
)

// rig is metrics with the limiters that they watch.
type rig struct {
	*testing.T
	m     *telemetry.Metrics
	reg   *prometheus.Registry
	store *fallible
}

// newRig makes a rig. opts may be nil; its Store is set.
func newRig(t *testing.T, opts *telemetry.Options) *rig {
	t.Helper()
	if opts == nil {
		opts = &telemetry.Options{}
	}
	r := &rig{T: t, reg: prometheus.NewPedanticRegistry(), store: &fallible{Store: memstore.New(nil)}}
	opts.Store = r.store
	var err error
	if r.m, err = telemetry.NewMetrics(r.reg, opts); err != nil {
		t.Fatal(err)
	}
	return r
}

// limiter returns a limiter that is watched.
func (r *rig) limiter(p drawgate.Policy) *drawgate.Limiter {
	r.Helper()
	l, err := drawgate.New(r.store, p, &drawgate.Options{Observer: r.m.Observer(), StoreTimeout: -1})
	if err != nil {
		r.Fatal(err)
	}
	return l
}

// want checks the value of a series; for a histogram, its number of observations. labels are names
// and values in turn; they must be all labels of the series.
func (r *rig) want(want float64, name string, labels ...string) {
	r.Helper()
	got, ok := r.value(name, labels...)
	if !ok || got != want {
		r.Errorf("%s%q is %v (%v), want %v", name, labels, got, ok, want)
	}
}

// none checks that there is no such series.
func (r *rig) none(name string, labels ...string) {
	r.Helper()
	if got, ok := r.value(name, labels...); ok {
		r.Errorf("%s%q is %v, it should not be there", name, labels, got)
	}
}

func (r *rig) value(name string, labels ...string) (float64, bool) {
	r.Helper()
	want := map[string]string{}
	for i := 0; i < len(labels); i += 2 {
		want[labels[i]] = labels[i+1]
	}
	for _, m := range r.family(name).GetMetric() {
		got := map[string]string{}
		for _, l := range m.GetLabel() {
			got[l.GetName()] = l.GetValue()
		}
		if maps.Equal(got, want) {
			return amount(m), true
		}
	}
	return 0, false
}

// family returns a metric with all its series; without any if it is not there.
func (r *rig) family(name string) *dto.MetricFamily {
	r.Helper()
	all, err := r.reg.Gather()
	if err != nil {
		r.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() == name {
			return f
		}
	}
	return nil
}

func amount(m *dto.Metric) float64 {
	switch {
	case m.GetCounter() != nil:
		return m.GetCounter().GetValue()
	case m.GetHistogram() != nil:
		return float64(m.GetHistogram().GetSampleCount())
	}
	return m.GetGauge().GetValue()
}

// fallible is a store that limiters treat as one with I/O, and that can fail.
type fallible struct {
	drawgate.Store
	down  atomic.Bool
	blind atomic.Bool // only what is used cannot be read
	peeks atomic.Int64
}

var errDown = &drawgate.StoreError{
	Store: "test", Op: "any", Err: errors.New("connection refused"),
	Fault: store.FaultTransient,
}

func (s *fallible) Take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	if s.down.Load() {
		return errDown
	}
	return s.Store.Take(ctx, batch, out)
}

func (s *fallible) Settle(ctx context.Context, batch []store.Settlement, out []store.Outcome) error {
	if s.down.Load() {
		return errDown
	}
	return s.Store.Settle(ctx, batch, out)
}

func (s *fallible) Peek(ctx context.Context, buckets []store.BucketCost, priority int8, out []store.State) error {
	s.peeks.Add(1)
	if s.down.Load() || s.blind.Load() {
		return errDown
	}
	return s.Store.Peek(ctx, buckets, priority, out)
}

// allow asks n times, whatever the answer.
func allow(t *testing.T, l *drawgate.Limiter, key string, n int) {
	t.Helper()
	for range n {
		if _, err := l.Allow(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
}

// rolling is a policy of one rolling limit.
func rolling(policy, limit string, amount int64, window time.Duration) drawgate.Policy {
	return drawgate.Policy{Name: policy, Limits: []drawgate.Limit{{
		Name: limit, Kind: drawgate.Rolling, Window: window,
		Amount: amount,
	}}}
}
