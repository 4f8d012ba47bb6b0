package config

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine/rules"
	"github.com/drawgate/drawgate/outbound"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/redisstore"
	"github.com/drawgate/drawgate/telemetry"
)

// observe sets up metrics, warnings and webhooks.
func (r *Runtime) observe(c *Config) error {
	t := &c.Telemetry
	hasher := telemetry.NewHasher([]byte(t.Salt.Reveal()))
	if t.Salt.Reveal() == "" && !c.local() && c.SharedBy() != (Instances{Number: 1}) {
		r.opts.Logger.Warn("without a common salt each server shows different hashes for the same key, and they change after a restart: " +
			"set telemetry.salt_env or telemetry.salt_file to the same secret for all, or instances to 1 if this is the only one")
	}
	if !t.MetricsOff {
		if err := r.measure(c, hasher); err != nil {
			return err
		}
	}
	sinks := []func(*telemetry.Warning){telemetry.Log(r.opts.Logger)}
	if w := &t.Webhook; w.URL != "" {
		var kinds []telemetry.Kind
		for _, k := range w.Kinds {
			kinds = append(kinds, telemetry.Kind(k))
		}
		hook, err := telemetry.NewWebhook(w.URL, []byte(w.Secret.Reveal()),
			&telemetry.WebhookOptions{
				Kinds: kinds, Milestones: w.Milestones, Logger: r.opts.Logger,
				Metrics: r.Metrics,
			})
		if err != nil {
			return err
		}
		r.closers = append(r.closers, r.aside(hook.Close))
		r.flushers = append(r.flushers, func(ctx context.Context) error {
			if err := r.warner.Flush(ctx); err != nil {
				return err
			}
			return hook.Flush(ctx)
		})
		sinks = append(sinks, hook.Warn)
	}
	r.warner = telemetry.NewWarner(&telemetry.WarnerOptions{
		Hasher: hasher, Every: t.RefusalsEvery,
		BackendEvery: c.WarnEvery, Metrics: r.Metrics, Store: r.Store,
	}, sinks...)
	r.closers = append(r.closers, r.warner.Close)
	watching := r.warner.Guard()
	if r.Metrics != nil {
		watching = telemetry.JoinGuards(r.Metrics.Guard(), watching)
	}
	r.watching.Store(telemetry.JoinGuards(watching, r.cloudWatchGuard()))
	return nil
}

// measure makes the metrics, in their own registry unless the options name one.
func (r *Runtime) measure(c *Config, hasher *telemetry.Hasher) (err error) {
	own, t := prometheus.NewRegistry(), &c.Telemetry
	if r.opts.Registerer == nil {
		own.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
		r.Scrape = telemetry.Handler(own)
	}
	o := &telemetry.Options{
		Hasher: hasher, RawIdentifiers: t.RawIdentifiers, Identifiers: t.Identifiers, Local: c.local(), Store: r.Store,
		Watch: r.watched(c),
		Plan:  r.plan, Lines: r.lines, Version: r.opts.Version, Revision: r.opts.Revision,
	}
	if r.Guard != nil {
		o.Guard, o.StoreTimeout = r.Guard.State, r.Guard.TakeTime(0)
	}
	if r.Metrics, err = telemetry.NewMetrics(own, o); err != nil {
		return err
	}
	r.counting.Store(r.Metrics)
	return r.register(own)
}

// watched returns the buckets whose usage metrics show: those that are configured, and as far as
// there is room the quotas of the gateway's upstreams, under their owners' names. Without a file,
// which could name any, those are watched that takes without a key count in.
func (r *Runtime) watched(c *Config) (list []telemetry.Watched) {
	seen := map[drawgate.Key]bool{}
	add := func(policy, tenant, key, name string) {
		k := drawgate.Key{Tenant: tenant, Policy: policy, Name: key}
		if !seen[k] && len(list) < telemetry.MaxWatched {
			list = append(list, telemetry.Watched{Policy: policy, Tenant: tenant, Key: key, Name: name})
		}
		seen[k] = true
	}
	for _, w := range c.Telemetry.Watch {
		add(w.Policy, cmp.Or(w.Tenant, r.opts.Tenant), w.Key, w.Name)
	}
	for i := range c.Gateway.Upstreams {
		u := &c.Gateway.Upstreams[i]
		owner := cmp.Or(u.Owner, u.Name)
		for k := range u.Models {
			add(u.Models[k].Policy, r.opts.Tenant, owner, owner)
		}
	}
	if c.file == "" {
		for i := range c.Policies {
			if name := c.Policies[i].Name; !c.applied(name) {
				add(name, r.opts.Tenant, api.DefaultKey, "")
			}
		}
	}
	return list
}

// applied reports whether a rule applies a policy, under keys that the rule makes.
func (c *Config) applied(policy string) bool {
	return slices.ContainsFunc(c.Rules, func(r rules.Rule) bool {
		return slices.ContainsFunc(r.Apply, func(a rules.Apply) bool { return a.Policy == policy })
	})
}

// Outbound returns an observer of calls to upstreams, for [outbound.Options] and the options of a
// gateway: it counts them in Metrics and CloudWatch, and warns when a circuit opens or closes.
func (r *Runtime) Outbound() *outbound.Observer {
	if r.Metrics == nil {
		return outbound.Join(r.warner.Outbound(), r.cloudWatchOutbound())
	}
	return outbound.Join(r.Metrics.Outbound(), r.warner.Outbound(), r.cloudWatchOutbound())
}

// register registers the metrics where the options say, until Close. Only what was registered may
// be unregistered: another Runtime's metrics have the same names.
func (r *Runtime) register(own *prometheus.Registry) error {
	reg := r.opts.Registerer
	if reg == nil {
		return nil
	}
	if err := reg.Register(own); err != nil {
		return fmt.Errorf("config: register the metrics with OpenOptions.Registerer, which only one Runtime at a time can use: %w", err)
	}
	r.closers = append(r.closers, func() error {
		reg.Unregister(own)
		return nil
	})
	return nil
}

// plan returns the policy that a key is counted under at present.
func (r *Runtime) plan(k drawgate.Key) *store.Plan {
	e := r.decides.Load()
	if e == nil {
		return nil
	}
	ask, err := e.Ask(k.Policy, k.Tenant, k.Name)
	if err != nil {
		return nil
	}
	return ask.Limiter.Plan().Plan
}

// lines returns who waits at present.
func (r *Runtime) lines() []drawgate.Line {
	if e := r.decides.Load(); e != nil {
		return e.Lines()
	}
	return nil
}

// guardObserver returns the guard's observer. It passes events on to metrics and warnings, which
// are made after the guard.
func (r *Runtime) guardObserver() *guard.Observer {
	return &guard.Observer{
		BackendError: forward(r, func(o *guard.Observer) func(*guard.BackendError) { return o.BackendError }),
		FallbackActivated: forward(r,
			func(o *guard.Observer) func(*guard.FallbackActivated) { return o.FallbackActivated }),
		Opened:  forward(r, func(o *guard.Observer) func(*guard.Opened) { return o.Opened }),
		Probed:  forward(r, func(o *guard.Observer) func(*guard.Probe) { return o.Probed }),
		Closed:  forward(r, func(o *guard.Observer) func(*guard.Closed) { return o.Closed }),
		Charged: forward(r, func(o *guard.Observer) func(*guard.Charged) { return o.Charged }),

		Recovered: forward(r, func(o *guard.Observer) func(*guard.Recovered) { return o.Recovered }),
	}
}

// lost passes it on that the store lost its data.
func (r *Runtime) lost(l redisstore.Loss) {
	forward(r, func(o *guard.Observer) func(*guard.Lost) { return o.Lost })(&guard.Lost{At: l.At, Refused: l.Refused})
}

// batched passes it on that requests went to the store together. The metrics are made after the
// store.
func (r *Runtime) batched(b redisstore.Batch) {
	if m := r.counting.Load(); m != nil {
		m.Batched(b.Requests, b.Took)
	}
}

// forward returns a func that passes an event on to the observer that exists when the event
// happens.
func forward[E any](r *Runtime, of func(*guard.Observer) func(*E)) func(*E) {
	return func(e *E) {
		if o := r.watching.Load(); o != nil {
			if f := of(o); f != nil {
				f(e)
			}
		}
	}
}
