package config

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/lease"
	"github.com/drawgate/drawgate/store/sqlitestore"
	"github.com/drawgate/drawgate/telemetry"
	"github.com/drawgate/drawgate/telemetry/cloudwatch"
	"github.com/drawgate/drawgate/telemetry/snsnotify"
)

// Runtime is a configuration in use: the store that it names, with a guard in front of it, the
// engine that decides, and the telemetry that watches both. [Open] and [Start] return one. Its
// methods are safe for concurrent use.
//
// The fields never change. Their values belong to the Runtime, which closes them.
type Runtime struct {
	Engine  *engine.Engine     // for servers; [Runtime.Use] replaces its configuration
	Store   drawgate.Store     // that Engine decides with: guarded, unless it is this process's memory
	Guard   *guard.Store       // nil where the store is this process's memory
	Metrics *telemetry.Metrics // nil where the configuration switches metrics off
	Scrape  http.Handler       // serves Metrics to Prometheus; nil without metrics, and with OpenOptions.Registerer

	Refusals *telemetry.Refusals // nil without OpenOptions.KeepRefusals

	// CloudWatch reports to Amazon CloudWatch; nil unless the configuration asks for it. A function
	// of AWS Lambda calls its Flush at the end of each invocation.
	CloudWatch *cloudwatch.Metrics

	opts     OpenOptions
	leases   bool                   // Store takes units ahead
	config   atomic.Pointer[Config] // in force
	restart  atomic.Pointer[[]string]
	warner   *telemetry.Warner
	sns      *snsnotify.Notifier               // of incidents; nil: there is no topic
	decides  atomic.Pointer[engine.Engine]     // the same as Engine, for metrics, which may be read before there is one
	watching atomic.Pointer[guard.Observer]    // what the guard tells
	counting atomic.Pointer[telemetry.Metrics] // the same as Metrics, for a store that was opened before
	flushers []func(context.Context) error     // called at the same time, by Flush
	closers  []func() error                    // called in reverse, by the first Close
	closing  sync.Once
	ending   sync.WaitGroup // closers that do not hold up the others

	using sync.Mutex // held while a configuration is put in force, so that Engine and config agree

	life   sync.Mutex // guards what follows; held while Watch begins, because Close must end what it began
	files  *Watcher   // nil: nothing is watched yet
	closed bool
	late   []error // of the closers in ending
}

// OpenOptions holds what [Open] and [Start] can do without. The zero value is ready to use.
type OpenOptions struct {
	// Tenant is the tenant of requests that name none.
	Tenant string
	// Logger gets warnings, failures of the store, and new configurations; nil discards. Only
	// [Start] leaves out the warnings of the first configuration.
	Logger *slog.Logger
	// Registerer is where the metrics are registered until Close, of one Runtime at a time; nil
	// means their own registry, which [Runtime.Scrape] serves.
	Registerer prometheus.Registerer
	// EMF receives the lines of telemetry.cloudwatch.emf; nil means the standard output.
	EMF io.Writer
	// KeepRefusals keeps the latest refusals, for [Runtime.Refusals].
	KeepRefusals bool
	// Version and Revision are of the program, for drawgate_build_info.
	Version, Revision string
}

// Open opens what the configuration file at path describes, ready to decide: an engine with its
// store, a guard and telemetry. It reads the file and the environment as [Resolve] does; path may
// be "" to use the environment alone. opts may be nil.
//
// Until Close the files are reloaded whenever they change: see [Watch]. A configuration with
// mistakes leaves the old one in force. ctx bounds only the opening.
//
// The files of envoy.configs are not loaded, because they are only for Envoy's service: drawgate
// serve loads them. A configuration that has no other policies is an error.
//
// A store that does not answer is not an error: the fallbacks of the configuration decide until it
// answers.
func Open(ctx context.Context, path string, opts *OpenOptions) (*Runtime, error) {
	c, err := Resolve(os.Environ(), Flags{Config: path})
	if err != nil {
		return nil, err
	}
	if problems := c.withoutPolicies("to switch limits off, set enabled: false"); problems != nil {
		return nil, problems
	}
	if problems := c.onlyEnvoys(); problems != nil {
		return nil, problems
	}
	r, err := Start(ctx, c, opts)
	if err != nil {
		return nil, err
	}
	r.warn(c.Warnings)
	r.Watch(context.WithoutCancel(ctx), func(c *Config) error {
		if problems := c.onlyEnvoys(); problems != nil {
			return problems
		}
		return r.Use(c)
	})
	return r, nil
}

// onlyEnvoys returns a problem if all policies are in Envoy's files, which Open does not load: an
// engine without policies would be the result.
func (c *Config) onlyEnvoys() Problems {
	if len(c.Policies) > 0 || len(c.Envoy.Configs) == 0 || c.Off {
		return nil
	}
	return Problems{c.note("envoy.configs",
		"all policies are in the files of envoy.configs, which a program does not load",
		"run drawgate serve with this configuration, or add policies; to switch limits off, set enabled: false")}
}

// Start is [Open] for a configuration that was already read. Its warnings are the caller's to show,
// and its files are not reloaded before [Runtime.Watch] is called.
func Start(ctx context.Context, c *Config, opts *OpenOptions) (*Runtime, error) {
	r := &Runtime{}
	if opts != nil {
		r.opts = *opts
	}
	if r.opts.Logger == nil {
		r.opts.Logger = slog.New(slog.DiscardHandler)
	}
	r.config.Store(c)
	r.restart.Store(&[]string{})
	if err := r.start(ctx, c); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// start opens the parts. After an error Close closes those that were opened.
func (r *Runtime) start(ctx context.Context, c *Config) error {
	if err := r.openCloudWatch(ctx, &c.Telemetry.CloudWatch); err != nil {
		return err
	}
	unavailable, err := r.openStore(ctx, c)
	if err != nil {
		return err
	}
	if err := r.observe(c); err != nil { //nolint:contextcheck // it lives longer than the opening
		return err
	}
	if err := r.publish(ctx, c); err != nil {
		return err
	}
	switch {
	case errors.Is(unavailable, sqlitestore.ErrDamaged):
		r.noticeOutage(ctx) // at once: it fails without waiting
	case unavailable != nil:
		r.ending.Go(func() { r.noticeOutage(context.WithoutCancel(ctx)) })
	}
	return r.decide(c)
}

// noticeOutage lets the guard find out that the store is unavailable. Its observer then knows it
// without a take, and no take waits for the store.
func (r *Runtime) noticeOutage(ctx context.Context) {
	for range 3 { // failures, after which the guard sends no more callers to the store
		if r.Guard.Ping(ctx) == nil || r.Guard.State().Unavailable {
			return
		}
	}
}

// Close stops watching the files, ends all waits, and closes the store. Later calls of the engine
// return [drawgate.ErrClosed]. A second Close waits for the first one and returns nil.
func (r *Runtime) Close() (err error) {
	r.closing.Do(func() { err = r.close() })
	return err
}

func (r *Runtime) close() error {
	r.life.Lock()
	files := r.files
	r.closed = true
	r.life.Unlock()
	if files != nil {
		files.Close()
	}
	var errs []error
	for _, f := range slices.Backward(r.closers) {
		errs = append(errs, f())
	}
	r.ending.Wait()
	return errors.Join(append(errs, r.late...)...)
}

// aside returns a closer that does not hold up those that are called after it, although it may wait
// for a network. Close waits for it at the end.
func (r *Runtime) aside(closer func() error) func() error {
	return func() error {
		r.ending.Go(func() {
			err := closer()
			r.life.Lock()
			defer r.life.Unlock()
			r.late = append(r.late, err)
		})
		return nil
	}
}

// Config returns the configuration in force. It must not be changed.
func (r *Runtime) Config() *Config { return r.config.Load() }

// Class returns the class of a request by its headers, which may carry an API key: see [APIKeys].
func (r *Runtime) Class(h http.Header) string { return r.config.Load().APIKeys.Class(h) }

// ClassOf is [Runtime.Class] for the entries of an Envoy descriptor: see [APIKeys.ClassOf].
func (r *Runtime) ClassOf(entries map[string]string) string {
	return r.config.Load().APIKeys.ClassOf(entries)
}

// greetTime is how long the store has to answer before a program starts without it.
const greetTime = 5 * time.Second

// openStore opens the store, with a guard in front of it unless it is in memory. unavailable says
// why the store does not answer; meanwhile the fallback decides.
func (r *Runtime) openStore(ctx context.Context, c *Config) (unavailable, err error) {
	log := r.opts.Logger
	inner, err := c.openNewStore(log, storeOptions{table: r.cloudWatchStore(), lost: r.lost, batched: r.batched, later: true}) //nolint:contextcheck // as above
	if err != nil {
		return nil, err
	}
	r.Store = inner
	r.closers = append(r.closers, inner.Close)
	if p, ok := inner.(store.Pinger); ok { // so that the first take does not wait for the first connection
		ctx, cancel := context.WithTimeout(ctx, greetTime)
		defer cancel()
		if unavailable = p.Ping(ctx); unavailable != nil {
			log.Error("the store does not answer; the program starts without it", "error", unavailable)
		}
	}
	if c.local() {
		return nil, nil
	}
	r.Guard = guard.New(inner, &guard.Options{ //nolint:contextcheck // as above
		Instances: c.SharedBy().Number, CountInstances: c.SharedBy().Auto, CountInCalls: onDynamoDB(c.Store),
		Start: c.Start, Owner: r.owner(c, inner), Timeout: c.StoreTimeout, WarnEvery: min(-1, -c.WarnEvery),
		Observer: r.guardObserver(), Logger: log, NoRecovery: c.NoRecovery,
	})
	r.Store = r.Guard.Full()
	r.closers = append(r.closers, r.Guard.Close) // before the store behind it
	if c.leased() != "" {
		l := lease.New(r.Store, nil)
		r.Store, r.leases = l.Full(), true
		r.closers = append(r.closers, l.Close)
	}
	c.logOpen(log)
	return unavailable, nil
}

// leased returns the name of a policy that is leased; "" if none is.
func (c *Config) leased() string {
	if c.Envoy.Leased && len(c.Envoy.Policies) > 0 {
		return c.Envoy.Policies[0].Name
	}
	for i := range c.Policies {
		if c.Policies[i].Leased {
			return c.Policies[i].Name
		}
	}
	return ""
}

// logOpen logs which limits are not applied during an outage.
func (c *Config) logOpen(log *slog.Logger) {
	var open []string
	for i := range c.Policies {
		p := &c.Policies[i]
		for k := range p.Limits {
			if cmp.Or(p.Limits[k].Fallback, p.Fallback) == drawgate.FallbackOpen {
				open = append(open, p.Name+"."+p.Limits[k].Name)
			}
		}
	}
	if len(open) > 0 {
		log.Info("while the store is unavailable these limits are not applied, because their fallback is open",
			"limits", strings.Join(open, ", "))
	}
}

// owner returns what reports whether policies may start full: this process alone has the store's
// file open.
func (r *Runtime) owner(c *Config, store drawgate.Store) func() bool {
	o, ok := store.(interface{ SoleOwner() bool })
	startsFull := func(p drawgate.Policy) bool { return c.StartOf(&p) == drawgate.StartFull }
	if !c.ownFile() || !ok {
		o = nil
	}
	full := c.Start == drawgate.StartFull || slices.ContainsFunc(c.Policies, startsFull)
	if full && c.ownFile() && (o == nil || !o.SoleOwner()) {
		r.opts.Logger.Warn("policies cannot start full while the file cannot be used, and start cold: " +
			"this process is not the only one that uses it, or cannot lock it")
	}
	return func() bool { return o != nil && o.SoleOwner() }
}

// decide makes the engine.
func (r *Runtime) decide(c *Config) (err error) {
	obs := r.warner.Observer()
	if r.Metrics != nil {
		obs = telemetry.Join(r.Metrics.Observer(), obs)
	}
	if r.CloudWatch != nil {
		obs = telemetry.Join(obs, r.CloudWatch.Observer())
	}
	if r.opts.KeepRefusals {
		r.Refusals = telemetry.NewRefusals()
		obs = telemetry.Join(obs, r.Refusals.Observer())
	}
	conf := c.Engine()
	r.Engine, err = engine.New(r.Store, conf, &engine.Options{
		Tenant: r.opts.Tenant, Observer: obs, Diverged: r.diverged, Logger: r.opts.Logger,
	})
	if err != nil {
		return err
	}
	r.closers = append(r.closers, r.Engine.Close)
	r.decides.Store(r.Engine)
	r.declare(&conf)
	return nil
}

// declare names the policies to the metrics.
func (r *Runtime) declare(conf *engine.Config) {
	if r.Metrics != nil {
		r.Metrics.Declare(conf.Policies...)
	}
}

func (r *Runtime) diverged(d *engine.Divergence) {
	if r.Metrics != nil {
		r.Metrics.Diverged(d)
	}
	r.warner.Diverged(d)
}
