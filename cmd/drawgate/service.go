package main

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/audit/ledgerfile"
	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/gateway"
	"github.com/drawgate/drawgate/httplimit"
	"github.com/drawgate/drawgate/incident"
	"github.com/drawgate/drawgate/rls"
	"github.com/drawgate/drawgate/server"
	"github.com/drawgate/drawgate/spend"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/virtualkey"
)

// service is what serve runs: a configuration in force, and the servers of its engine.
type service struct {
	run   *config.Runtime
	app   *app
	log   *slog.Logger
	flags *serveFlags
	names []string    // of the policies, as they were at the start
	tls   *tls.Config // of all listeners; nil: none
	http  *server.Server
	rates *rls.Config  // of Envoy's files, as they were read at the start
	envoy *rls.Service // nil: there is no listener for it

	gateway   *gateway.Handler   // nil: there is none
	keys      *virtualkey.Book   // of the store, for the gateway; nil: it keeps none
	book      *spend.Book        // of the gateway; nil: nothing counts what calls spend
	incidents *incident.Recorder // of the gateway; nil as well
	ledger    *ledgerfile.Writer // nil: there is none
}

// newService makes the parts. close closes them.
func newService(ctx context.Context, a *app, s settings, log *slog.Logger) (v *service, err error) {
	v = &service{app: a, log: log, names: s.configured()}
	if v.rates, err = loadEnvoy(s.Config); err != nil {
		return nil, err
	}
	v.skipped(v.rates)
	version, _, revision := build()
	v.run, err = config.Start(ctx, s.Config, &config.OpenOptions{
		Tenant: a.tenant, Logger: log, Version: version,
		Revision: revision, EMF: a.out, KeepRefusals: true,
	})
	if err != nil {
		return nil, err
	}
	if err := v.open(); err != nil { //nolint:contextcheck // what it makes lives longer than the opening
		return nil, errors.Join(err, v.close()) //nolint:contextcheck // it has a time limit of its own
	}
	return v, nil
}

// close closes the servers first, and then what they use.
func (v *service) close() (err error) {
	if v.http != nil {
		_ = v.http.Close() // it has no error
	}
	if v.keys != nil {
		v.keys.Close()
	}
	if v.gateway != nil {
		_ = v.gateway.Close() // it has no error
		if v.book != nil {
			v.book.Close()
		}
	}
	if v.incidents != nil {
		err = v.incidents.Close()
	}
	err = errors.Join(err, v.run.Close())
	if v.ledger != nil { // after all: calls have ended, and the store has heard of them if it can
		err = errors.Join(err, v.ledger.Close())
	}
	return err
}

// open makes the servers.
func (v *service) open() (err error) {
	c := v.run.Config()
	s := &c.Server
	opts := &server.Options{
		Tenant: v.app.tenant, Insecure: s.Insecure, ReadyAll: s.ReadyAll, Metrics: v.run.Scrape,
		Class: v.run.Class, Reload: v.run.Reload, Refusals: v.run.Refusals.List, Logger: v.log,
	}
	for _, t := range s.Tokens {
		var roles []server.Role
		for _, r := range t.Roles {
			roles = append(roles, server.Role(r))
		}
		opts.Tokens = append(opts.Tokens, server.Token{
			Name: t.Name, SHA256: t.Digest(), Roles: roles,
			Tenant: t.Tenant,
		})
	}
	if s.TLS != (config.TLS{}) {
		if v.tls, err = server.LoadTLS(server.TLSFiles{
			Cert: s.TLS.Cert, Key: s.TLS.Key, ClientCA: s.TLS.ClientCA,
			Logger: v.log,
		}); err != nil {
			return err
		}
		opts.TLS = v.tls
	}
	opts.UsageEvery = usageEvery(c.Store)
	if v.run.Guard != nil {
		instances := max(1, c.SharedBy().Number)
		opts.Fallback = func(p *drawgate.Policy, i int) drawgate.Fallback { return guard.Mode(p, i, instances) }
	}
	f := &s.ForwardAuth
	if v.openIncidents(); v.incidents != nil {
		opts.Incidents = v.incidents.List
	}
	opts.ForwardAuth = &server.ForwardAuth{
		Proxies: s.Proxies.Trusted, Unix: s.Proxies.Unix, ClientHeader: s.Proxies.Header, Status: f.Status,
		URI: f.URI, Method: f.Method, Host: f.Host, User: f.User, Class: f.Class, AllowUnavailable: f.AllowUnavailable,
		Shared:  f.Shared,
		Headers: &httplimit.HeaderOptions{Policies: f.Describe},
	}
	if m := v.run.Metrics; m != nil {
		opts.ForwardAuth.Undecided = func(reason server.Undecided) { m.ForwardAuthUndecided(string(reason)) }
	}
	if err := v.openGateway(); err != nil {
		return err
	}
	if v.gateway != nil {
		opts.Upstreams, opts.Spend, opts.Keys = v.gateway.Upstreams, v.spend, v.keys
	}
	if v.http, err = server.New(v.run.Engine, v.run.Store, opts); err != nil {
		return err
	}
	if s.GRPC == "" || s.GRPC == config.ListenOff {
		return nil
	}
	v.openEnvoy(&c.Envoy)
	return nil
}

// openEnvoy makes the rate limit service of Envoy.
func (v *service) openEnvoy(e *config.Envoy) {
	o := &rls.Options{
		Config: v.rates, Refunds: e.Refunds, StoreErrors: e.Errors, Shadow: e.Shadow, Metadata: e.Metadata,
		ShadowHeader: e.ShadowHeader, Class: v.run.ClassOf, Logger: v.log,
		LimitHeader: e.LimitHeader, RemainingHeader: e.RemainingHeader, ResetHeader: e.ResetHeader,
	}
	if v.run.Metrics != nil {
		o.Undecided = func(code codes.Code) { v.run.Metrics.EnvoyUndecided(code.String()) }
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
		o.Headers, o.LimitHeader, o.RemainingHeader, o.ResetHeader = rls.HeadersLegacy, "X-RateLimit-Limit",
			"X-RateLimit-Remaining", "X-RateLimit-Reset"
	case config.EnvoyDraft:
		o.Headers = rls.HeadersDraft
	}
	v.envoy = rls.New(v.run.Engine, o)
}

// use completes a reloaded configuration and puts it in force.
func (v *service) use(c *config.Config) error {
	next, err := completed(c, v.app.flags)
	if err != nil {
		return err
	}
	v.flags.merge(c)
	envoy, err := loadEnvoy(next.Config)
	if err != nil {
		return err
	}
	if err := v.run.Use(next.Config); err != nil {
		return err
	}
	if v.envoy != nil {
		v.envoy.Use(envoy)
	}
	if err := v.useGateway(next.Config); err != nil {
		return err
	}
	v.skipped(envoy)
	return nil
}

// skipped logs which files in the directories of Envoy's files were not read.
func (v *service) skipped(envoy *rls.Config) {
	for _, p := range notRead(envoy) {
		v.log.Info(p.Message, "path", p.File)
	}
}

// notRead returns which files in the directories of Envoy's files were not read. envoy may be nil.
func notRead(envoy *rls.Config) (list []config.Problem) {
	if envoy == nil {
		return nil
	}
	for _, s := range envoy.Skipped() {
		list = append(list, config.Problem{File: s.Path, Message: "envoy.configs: this is skipped: " + s.Why})
	}
	return list
}

// envoyFiles is what is shown of the files in the format of envoyproxy/ratelimit.
type envoyFiles struct {
	domains []string // nil: there are no files
	skipped []config.Problem
}

// checkEnvoy is loadEnvoy for commands that only show what was read.
func checkEnvoy(s *config.Config) (f envoyFiles, err error) {
	c, err := loadEnvoy(s)
	if c != nil {
		f = envoyFiles{c.Domains(), notRead(c)}
	}
	return f, err
}

// loadEnvoy reads the files in the format of envoyproxy/ratelimit, if there are any, and adds their
// policies to the configuration. Mistakes are returned as [config.Problems].
func loadEnvoy(s *config.Config) (*rls.Config, error) {
	e := &s.Envoy
	if len(e.Configs) == 0 {
		return nil, nil //nolint:nilnil // there are no files
	}
	o := &rls.ConfigOptions{Merge: e.Merge, Leased: e.Leased}
	if e.Aligned {
		o.Windows = rls.Aligned
	}
	c, err := rls.Load(e.Configs, o)
	if wrong, ok := errors.AsType[rls.ConfigErrors](err); ok {
		problems := config.Problems{}
		for _, p := range wrong {
			problems = append(problems, config.Problem{
				File: p.File, Line: p.Line, Column: p.Column,
				Message: p.Message,
			})
		}
		return nil, problems
	}
	if err != nil {
		return nil, config.Problems{{File: "envoy.configs", Message: strings.TrimPrefix(err.Error(), "rls: ")}}
	}
	e.Policies = c.Policies()
	if s.Off {
		return nil, nil //nolint:nilnil // a rate of 0 refuses without a policy
	}
	return c, nil
}

// usageEvery returns how often the buckets of a store may be read for everybody who looks; 0 means
// the server's default.
func usageEvery(store string) time.Duration {
	if strings.HasPrefix(store, "dynamodb:") { // each bucket that is read costs money
		return time.Minute
	}
	return 0
}
