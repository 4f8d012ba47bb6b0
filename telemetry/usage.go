package telemetry

import (
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
)

// MaxWatched is the maximum number of buckets that are read, in one call of the store, when metrics
// are read.
const MaxWatched = 100

// freshFor is how long a reading of the store is shown again, however often metrics are read.
const freshFor = time.Second

// Watched is a bucket whose usage is shown.
type Watched struct {
	Policy, Tenant, Key string

	Name string // shows as the label "identifier", at most 128 bytes; "" means the key's hash
}

func usageDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// usage reads the watched buckets when metrics are read, so that the figures are those of that
// instant.
type usage struct {
	m                                   *Metrics
	used, most, reset, remaining, holds *prometheus.Desc
	failed                              prometheus.Counter
	turn                                chan *reading // holds the last reading; whoever takes it out may read the store
}

// reading is what the store reported about the watched buckets.
type reading struct {
	at      time.Time
	names   []string
	buckets []store.BucketCost
	states  []store.State
}

func newUsage(m *Metrics) *usage {
	bucket := []string{"period", "policy", "limit", "identifier"}
	u := &usage{
		m: m,
		used: usageDesc("rate_limit_current_usage",
			"Units that count now in a watched bucket, including those that are held. More than "+
				"`rate_limit_max_allowed` if a holder used more than its estimate.", bucket...),
		most: usageDesc("rate_limit_max_allowed",
			"The most units that may count in a watched bucket, less headroom and margin; beyond it even takes "+
				"of the highest priority are refused. For a bucket limit it is the burst.", bucket...),
		reset: usageDesc("rate_limit_window_reset_seconds",
			"Seconds until a calendar window of a watched bucket ends; for any other limit, until nothing "+
				"counts any more if nothing is taken.", bucket...),
		remaining: usageDesc("rate_limit_tokens_remaining",
			"Units left of the policy's tightest limit. If its buckets are watched: as of now, the least of "+
				"all of them. Otherwise: as of the last decision, whichever key that was for.", "scope"),
		holds: usageDesc("drawgate_bucket_open_reservations",
			"Open reservations of a watched bucket, of all processes.", "policy", "identifier"),
		failed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "drawgate_usage_read_errors_total",
			Help: "Watched buckets that could not be read.",
		}),
		turn: make(chan *reading, 1),
	}
	u.turn <- &reading{}
	return u
}

// Describe implements [prometheus.Collector].
func (u *usage) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{u.used, u.most, u.reset, u.remaining, u.holds} {
		ch <- d
	}
	u.failed.Describe(ch)
}

// Collect implements [prometheus.Collector].
func (u *usage) Collect(ch chan<- prometheus.Metric) {
	r := <-u.turn
	if time.Since(r.at) >= freshFor {
		r = u.read()
	}
	u.turn <- r
	left := map[string]int64{}
	for i := range r.states {
		u.show(ch, r, i, left)
	}
	u.m.table.each(func(p *policySeries) {
		n, watched := left[p.name]
		if !watched {
			n = p.remaining.Load()
		}
		if n >= 0 {
			ch <- prometheus.MustNewConstMetric(u.remaining, prometheus.GaugeValue, float64(n), p.name)
		}
	})
	u.failed.Collect(ch)
}

// show exports one bucket, and records in left what is left of its tightest limit.
func (u *usage) show(ch chan<- prometheus.Metric, r *reading, i int, left map[string]int64) {
	st, policy, id := &r.states[i], label(r.buckets[i].Plan.Name()), r.names[i]
	if st.Fail != nil || len(st.States) == 0 {
		return
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	tightest, least := int64(0), math.Inf(1)
	for j, l := range r.buckets[i].Plan.Policy().Limits {
		limit, is := drawgate.Limit(l), &st.First.Limits[j]
		period, name := Period(&limit), label(l.Name)
		gauge(u.used, float64(st.States[j].Used), period, policy, name, id)
		gauge(u.most, float64(st.States[j].Max), period, policy, name, id)
		gauge(u.reset, time.Duration(max(0, is.ResetAt-st.Now)*1000).Seconds(), period, policy, name, id)
		if part := float64(is.Remaining) / float64(max(1, st.States[j].Max)); part < least {
			tightest, least = is.Remaining, part
		}
	}
	gauge(u.holds, float64(st.Open), policy, id)
	if n, seen := left[policy]; !seen || tightest < n {
		left[policy] = tightest
	}
}

// read asks the store for the watched buckets.
func (u *usage) read() *reading {
	r := u.watched()
	if len(r.buckets) > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), u.m.opts.ScrapeTimeout)
		defer cancel()
		r.states = make([]store.State, len(r.buckets))
		if err := u.m.opts.Store.Peek(ctx, r.buckets, drawgate.MaxPriority, r.states); err != nil {
			r.states = nil
			u.failed.Add(float64(len(r.buckets)))
		}
		for i := range r.states {
			if r.states[i].Fail != nil {
				u.failed.Inc()
			}
		}
	}
	r.at = time.Now()
	return r
}

// watched lists the buckets to read: those that are configured, then those of policies with a
// single key.
func (u *usage) watched() *reading {
	r := &reading{}
	if u.m.opts.Store == nil {
		return r
	}
	seen := map[[2]string]bool{}
	add := func(k drawgate.Key, name string) {
		p := u.m.plan(k)
		at := [2]string{k.Policy, name}
		if p == nil || p.Name() != k.Policy || seen[at] || len(r.buckets) == MaxWatched {
			return
		}
		seen[at] = true
		r.buckets = append(r.buckets, store.BucketCost{Key: k, Plan: p})
		r.names = append(r.names, name)
	}
	named := map[drawgate.Key]bool{}
	for _, w := range u.m.opts.Watch {
		k := drawgate.Key{Tenant: w.Tenant, Policy: w.Policy, Name: drawgate.BoundedKey(w.Key)}
		named[k] = true
		if w.Name != "" {
			add(k, label(w.Name))
		} else {
			add(k, u.m.identifier(k))
		}
	}
	var single []drawgate.Key
	u.m.table.each(func(p *policySeries) {
		if k := p.only.Load(); k != nil && !p.many.Load() && !named[*k] {
			single = append(single, *k)
		}
	})
	slices.SortFunc(single, func(a, b drawgate.Key) int { return strings.Compare(a.Policy, b.Policy) })
	for _, k := range single {
		add(k, u.m.identifier(k))
	}
	return r
}

// plan returns the policy that a key is counted under; nil if there is none, or it was not seen
// yet.
func (m *Metrics) plan(k drawgate.Key) *store.Plan {
	if m.opts.Plan != nil {
		return m.opts.Plan(k)
	}
	return m.table.get(k.Policy).plan.Load()
}
