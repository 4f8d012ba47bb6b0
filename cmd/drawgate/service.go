package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"google.golang.org/grpc/codes"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/httplimit"
	"github.com/drawgate/drawgate/rls"
	"github.com/drawgate/drawgate/server"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/sqlitestore"
	"github.com/drawgate/drawgate/telemetry"
)

// service is what serve runs: a store, what decides over it, what shows what it does, and the
// doors.
type service struct {
	app   *app
	log   *slog.Logger
	now   settings // in force
	flags *serveFlags

	store   drawgate.Store
	guarded *guard.Store // nil: the store is this process's memory
	engine  *engine.Engine
	metrics *telemetry.Metrics // nil: they are off
	warner  *telemetry.Warner
	scrape  http.Handler // nil: metrics are off
	tls     *tls.Config  // of all doors; nil: none
	http    *server.Server
	rates   *rls.Config     // of Envoy's files, as they were read at the start
	envoy   *rls.Service    // nil: there is no listener for it
	files   *config.Watcher // nil: nothing is watched yet

	keys     atomic.Pointer[config.APIKeys]
	restart  atomic.Pointer[[]string]       // what of the configuration that was read last needs a restart
	watching atomic.Pointer[guard.Observer] // what the guard tells
	closers  []func() error                 // to be called in reverse
}

// newService puts the parts together. What was opened is closed by close, after an error as well.
func newService(a *app, s settings, log *slog.Logger) (v *service, err error) {
	v = &service{app: a, log: log, now: s}
	defer func() {
		if err != nil {
			err = errors.Join(err, v.close())
		}
	}()
	inner, err := s.store(log, false)
	lost := errors.Is(err, sqlitestore.ErrDamaged) // it stays so until somebody has put it right: meanwhile the fallback decides
	if lost {
		inner, err = &lostStore{err}, nil
	}
	if err != nil {
		return v, err
	}
	v.store = inner
	v.closers = append(v.closers, inner.Close)
	v.greet(inner)
	if !s.local() {
		v.guarded = guard.New(inner, &guard.Options{
			Instances: s.SharedBy().Number, CountInstances: s.SharedBy().Auto, StartFull: s.StartFull, Timeout: s.patience(), WarnEvery: -1,
			Observer: v.watchful(), Logger: log,
		})
		v.store = v.guarded.Full()
		v.closers = append(v.closers, v.guarded.Close) // before the store behind it
	}
	if err := v.observe(); err != nil {
		return v, err
	}
	if lost {
		_ = v.guarded.Ping(context.Background()) // whoever watches the guard is told now, not with the first take
	}
	if err := v.decide(); err != nil {
		return v, err
	}
	return v, v.open()
}

// greetTime is how long the store has to answer before the server starts without it.
const greetTime = 5 * time.Second

// greet waits until the store answers, so that the first take does not have to wait for the first
// connection.
func (v *service) greet(store drawgate.Store) {
	p, ok := store.(drawgate.Pinger)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), greetTime)
	defer cancel()
	if err := p.Ping(ctx); err != nil {
		v.log.Error("the store does not answer; the server starts without it", "error", err)
	}
}

// close closes what was opened, the last first.
func (v *service) close() error {
	var errs []error
	for _, f := range slices.Backward(v.closers) {
		errs = append(errs, f())
	}
	v.closers = nil
	return errors.Join(errs...)
}

// observe sets up metrics, warnings and web calls.
func (v *service) observe() error {
	t := &v.now.Telemetry
	hasher := telemetry.NewHasher([]byte(t.Salt.Reveal()))
	if t.Salt.Reveal() == "" && !v.now.local() && v.now.SharedBy() != (config.Instances{Number: 1}) {
		v.log.Warn("without a common salt each server shows other hashes for the same key, and others again after a restart: " +
			"set telemetry.salt_env or telemetry.salt_file to the same secret for all, or instances to 1 if this is the only one")
	}
	if !t.MetricsOff {
		reg := prometheus.NewRegistry()
		version, _, revision := build()
		var watch []telemetry.Watched
		for _, w := range t.Watch {
			watch = append(watch, telemetry.Watched{Policy: w.Policy, Tenant: cmp.Or(w.Tenant, v.app.tenant), Key: w.Key, Name: w.Name})
		}
		var err error
		if v.metrics, err = telemetry.NewMetrics(reg, &telemetry.Options{
			Hasher: hasher, RawIdentifiers: t.RawIdentifiers, Identifiers: t.Identifiers, Local: v.now.local(),
			Store: v.store, Watch: watch, Plan: v.plan, Waiting: v.waiting, Guard: v.guardState(), Version: version, Revision: revision,
		}); err != nil {
			return err
		}
		reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
		v.scrape = telemetry.Handler(reg)
	}
	sinks := []func(*telemetry.Warning){telemetry.Log(v.log)}
	if w := &t.Webhook; w.URL != "" {
		var kinds []telemetry.Kind
		for _, k := range w.Kinds {
			kinds = append(kinds, telemetry.Kind(k))
		}
		hook, err := telemetry.NewWebhook(w.URL, []byte(w.Secret.Reveal()), &telemetry.WebhookOptions{Kinds: kinds, Milestones: w.Milestones, Logger: v.log, Metrics: v.metrics})
		if err != nil {
			return err
		}
		v.closers = append(v.closers, hook.Close)
		sinks = append(sinks, hook.Warn)
	}
	v.warner = telemetry.NewWarner(&telemetry.WarnerOptions{Hasher: hasher, Every: t.RefusalsEvery, BackendEvery: v.now.WarnEvery, Metrics: v.metrics}, sinks...)
	v.closers = append(v.closers, v.warner.Close)
	watching := v.warner.Guard()
	if v.metrics != nil {
		watching = telemetry.JoinGuards(v.metrics.Guard(), watching)
	}
	v.watching.Store(watching)
	return nil
}

// watchful returns what the guard tells: metrics and warnings, once they are there.
func (v *service) watchful() *guard.Observer {
	each := func(f func(*guard.Observer)) {
		if o := v.watching.Load(); o != nil {
			f(o)
		}
	}
	return &guard.Observer{
		BackendError:      func(e *guard.BackendError) { each(func(o *guard.Observer) { tell(o.BackendError, e) }) },
		FallbackActivated: func(e *guard.FallbackActivated) { each(func(o *guard.Observer) { tell(o.FallbackActivated, e) }) },
		Opened:            func(e *guard.Opened) { each(func(o *guard.Observer) { tell(o.Opened, e) }) },
		Probed:            func(e *guard.Probe) { each(func(o *guard.Observer) { tell(o.Probed, e) }) },
		Closed:            func(e *guard.Closed) { each(func(o *guard.Observer) { tell(o.Closed, e) }) },
		Charged:           func(e *guard.Charged) { each(func(o *guard.Observer) { tell(o.Charged, e) }) },
	}
}

func tell[E any](f func(*E), e *E) {
	if f != nil {
		f(e)
	}
}

// guardState returns what tells the state of the guard; nil if there is none.
func (v *service) guardState() func() guard.State {
	if v.guarded == nil {
		return nil
	}
	return v.guarded.State
}

// plan returns what a key is counted under at present.
func (v *service) plan(k drawgate.Key) *drawgate.Plan {
	if v.engine == nil {
		return nil
	}
	ask, err := v.engine.Ask(k.Policy, k.Tenant, k.Name)
	if err != nil {
		return nil
	}
	return ask.Limiter.Plan()
}

// waiting returns who waits.
func (v *service) waiting() (int, time.Duration) {
	if v.engine == nil {
		return 0, 0
	}
	return v.engine.Waiting()
}

// decide makes the engine.
func (v *service) decide() error {
	c, rates, err := compile(v.now.Config)
	if err != nil {
		return err
	}
	v.rates = rates
	v.skipped(rates)
	obs := v.warner.Observer()
	if v.metrics != nil {
		obs = telemetry.Join(v.metrics.Observer(), obs)
	}
	v.engine, err = engine.New(v.store, c, &engine.Options{
		Tenant: v.app.tenant, StoreTimeout: v.now.patience() + slack, Observer: obs, Diverged: v.diverged, Logger: v.log,
	})
	if err != nil {
		return err
	}
	v.closers = append(v.closers, v.engine.Close)
	v.applied(c)
	return nil
}

func (v *service) diverged(d *engine.Divergence) {
	if v.metrics != nil {
		v.metrics.Diverged(d)
	}
	v.warner.Diverged(d)
}

// compile returns what the engine and Envoy's service decide by.
func compile(s *config.Config) (c engine.Config, envoy *rls.Config, err error) {
	c = s.Engine()
	if len(s.Envoy.Configs) == 0 {
		return c, nil, nil
	}
	if envoy, err = loadEnvoy(&s.Envoy); err != nil {
		return c, nil, err
	}
	for _, p := range envoy.Policies() {
		p.Disabled = s.Off
		c.Policies = append(c.Policies, p)
	}
	if s.Off {
		envoy = nil // a rate of 0 refuses without a policy
	}
	return c, envoy, nil
}

// applied tells the observers what there is.
func (v *service) applied(c engine.Config) {
	if v.metrics != nil {
		v.metrics.Declare(c.Policies...)
	}
	v.keys.Store(&v.now.APIKeys)
}

// open makes the doors.
func (v *service) open() (err error) {
	s := &v.now.Server
	opts := &server.Options{Tenant: v.app.tenant, Insecure: s.Insecure, Metrics: v.scrape, Logger: v.log}
	opts.Reload = func(ctx context.Context) ([]string, error) {
		if err := v.reload(ctx); err != nil {
			return nil, err
		}
		if restart := v.restart.Load(); restart != nil {
			return *restart, nil
		}
		return nil, nil
	}
	for _, t := range s.Tokens {
		var roles []server.Role
		for _, r := range t.Roles {
			roles = append(roles, server.Role(r))
		}
		opts.Tokens = append(opts.Tokens, server.Token{Name: t.Name, SHA256: t.Digest(), Roles: roles, Tenant: t.Tenant})
	}
	if s.TLS != (config.TLS{}) {
		if v.tls, err = server.LoadTLS(server.TLSFiles{Cert: s.TLS.Cert, Key: s.TLS.Key, ClientCA: s.TLS.ClientCA, Logger: v.log}); err != nil {
			return err
		}
		opts.TLS = v.tls
	}
	opts.Class = func(h http.Header) string { return v.keys.Load().Class(h) }
	if v.guarded != nil {
		instances := max(1, v.now.SharedBy().Number)
		opts.Fallback = func(p *drawgate.Policy, i int) drawgate.Fallback { return guard.Mode(p, i, instances) }
	}
	f := &s.ForwardAuth
	opts.ForwardAuth = &server.ForwardAuth{
		Proxies: s.Proxies.Trusted, Unix: s.Proxies.Unix, ClientHeader: s.Proxies.Header, Status: f.Status,
		URI: f.URI, Method: f.Method, Host: f.Host, User: f.User, Class: f.Class, AllowAway: f.AllowAway, Shared: f.Shared,
		Headers: &httplimit.HeaderOptions{Policies: f.Describe},
	}
	if v.http, err = server.New(v.engine, v.store, opts); err != nil {
		return err
	}
	v.closers = append(v.closers, v.http.Close)
	if s.GRPC == "" || s.GRPC == config.ListenOff {
		return nil
	}
	v.openEnvoy()
	return nil
}

// openEnvoy makes the rate limit service of Envoy.
func (v *service) openEnvoy() {
	e := &v.now.Envoy
	o := &rls.Options{
		Config: v.rates, Refunds: e.Refunds, StoreErrors: e.Errors, Shadow: e.Shadow, Metadata: e.Metadata, ShadowHeader: e.ShadowHeader, Logger: v.log,
		LimitHeader: e.LimitHeader, RemainingHeader: e.RemainingHeader, ResetHeader: e.ResetHeader,
	}
	if v.metrics != nil {
		o.Undecided = func(code codes.Code) { v.metrics.EnvoyUndecided(code.String()) }
	}
	if e.OwnHits {
		o.Reports = rls.ReportOwnHits
	}
	switch e.Headers {
	case config.EnvoyNone:
		o.Headers = rls.HeadersNone
	case config.EnvoyLegacy:
		o.Headers = rls.HeadersLegacy
	case config.EnvoyX:
		o.Headers, o.LimitHeader, o.RemainingHeader, o.ResetHeader = rls.HeadersLegacy, "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"
	case config.EnvoyDraft:
		o.Headers = rls.HeadersDraft
	}
	v.envoy = rls.New(v.engine, o)
}

// reload reads the configuration again and puts it in force, if it has no mistake.
func (v *service) reload(ctx context.Context) error {
	if v.files == nil {
		return errors.New("there is no configuration file to read again")
	}
	return v.files.Reload(ctx)
}

// follow watches the files of the configuration until ctx ends.
func (v *service) follow(ctx context.Context) {
	v.files = config.Watch(ctx, v.now.Config, func(c *config.Config) error {
		next, err := completed(c, v.app.flags)
		if err == nil {
			v.flags.merge(c)
			err = v.use(&next)
		}
		if err == nil {
			v.reloaded(nil) // Failed tells the rest
		}
		return err
	}, &config.WatchOptions{Logger: v.log, Failed: func(err error) {
		v.reloaded(err)
		v.log.Warn("the new configuration is not in force; the old one is", "error", err)
	}})
}

func (v *service) reloaded(err error) {
	if v.metrics != nil {
		v.metrics.Reloaded(err)
	}
}

// use puts a configuration in force.
func (v *service) use(next *settings) error {
	c, envoy, err := compile(next.Config)
	if err != nil {
		return err
	}
	if err := v.engine.Replace(c); err != nil {
		return err
	}
	if v.envoy != nil {
		v.envoy.Use(envoy)
	}
	v.skipped(envoy)
	restart := needsRestart(v.now.Config, next.Config)
	v.restart.Store(&restart)
	for _, key := range restart {
		v.log.Warn("this change needs a restart: " + key)
	}
	for _, w := range next.Warnings {
		v.log.Warn(oneLine(w))
	}
	fresh := *v.now.Config // what is read elsewhere does not change under its reader
	fresh.Policies, fresh.Modes, fresh.Rules, fresh.APIKeys, fresh.Off = next.Policies, next.Modes, next.Rules, next.APIKeys, next.Off
	v.now.Config = &fresh
	v.applied(c)
	v.log.Info("the new configuration is in force", "policies", len(c.Listed()), "rules", len(c.Rules))
	return nil
}

// local reports whether buckets live in this process alone.
func (s *settings) local() bool { return s.Store == config.Memory }

// What a take that does not wait may take of the store, after which the fallback decides. A disk
// has moments in which it is slow.
const (
	slack        = 10 * time.Millisecond // for the answer
	patience     = 40 * time.Millisecond
	diskPatience = 500 * time.Millisecond
)

// patience returns how long the store has for a take that does not wait.
func (s *settings) patience() time.Duration {
	if _, ok := config.SQLitePath(s.Store); ok {
		return cmp.Or(s.StoreTimeout, diskPatience)
	}
	return cmp.Or(s.StoreTimeout, patience)
}

// fixed are the keys of the file of which a running server keeps the value that it started with.
var fixed = []struct {
	key   string
	value func(c *config.Config) any
}{
	{"store", func(c *config.Config) any { return c.Store }},
	{"prefix", func(c *config.Config) any { return c.Prefix }},
	{"max_buckets", func(c *config.Config) any { return c.MaxBuckets }},
	{"instances", func(c *config.Config) any { return c.Instances }},
	{"store_timeout", func(c *config.Config) any { return c.StoreTimeout }},
	{"warn_every", func(c *config.Config) any { return c.WarnEvery }},
	{"start_full", func(c *config.Config) any { return c.StartFull }},
	{"server", func(c *config.Config) any { return c.Server }},
	{"telemetry", func(c *config.Config) any { return c.Telemetry }},
	{"envoy", func(c *config.Config) any {
		e := c.Envoy
		e.Configs, e.Merge, e.Aligned = nil, false, false // what compile looks at
		return e
	}},
}

// needsRestart names what differs and is not changed while the server runs. Secrets are compared by
// value, and nothing of them is said.
func needsRestart(old, next *config.Config) (keys []string) {
	for _, f := range fixed {
		if !reflect.DeepEqual(f.value(old), f.value(next)) {
			keys = append(keys, f.key)
		}
	}
	return keys
}

// skipped logs what of the directories of Envoy's files was not read.
func (v *service) skipped(envoy *rls.Config) {
	for _, p := range notRead(envoy) {
		v.log.Info(p.Message, "path", p.File)
	}
}

// notRead says what of the directories of Envoy's files was not read. envoy may be nil.
func notRead(envoy *rls.Config) (list []config.Problem) {
	if envoy == nil {
		return nil
	}
	for _, s := range envoy.Skipped() {
		list = append(list, config.Problem{File: s.Path, Message: "envoy.configs: this is skipped: " + s.Why})
	}
	return list
}

// loadEnvoy reads the files in the format of envoyproxy/ratelimit. What is wrong is
// [config.Problems].
func loadEnvoy(e *config.Envoy) (*rls.Config, error) {
	o := &rls.ConfigOptions{Merge: e.Merge}
	if e.Aligned {
		o.Windows = rls.Aligned
	}
	c, err := rls.Load(e.Configs, o)
	if wrong, ok := errors.AsType[rls.ConfigErrors](err); ok {
		problems := config.Problems{}
		for _, p := range wrong {
			problems = append(problems, config.Problem{File: p.File, Line: p.Line, Column: p.Column, Message: p.Message})
		}
		return nil, problems
	}
	if err != nil {
		return nil, config.Problems{{File: "envoy.configs", Message: strings.TrimPrefix(err.Error(), "rls: ")}}
	}
	return c, nil
}
