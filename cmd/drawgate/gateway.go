package main

import (
	"cmp"
	"crypto/tls"
	"errors"
	"log"
	"log/slog"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/audit/ledgerfile"
	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/gateway"
	"github.com/drawgate/drawgate/httplimit"
	"github.com/drawgate/drawgate/outbound"
	"github.com/drawgate/drawgate/server"
	"github.com/drawgate/drawgate/spend"
)

// defaultGateway is where the gateway listens by default.
const defaultGateway = "127.0.0.1:7881"

func (a *app) gatewayCmd() *cobra.Command {
	f := serveFlags{alone: true}
	cmd := &cobra.Command{
		Use:   "gateway",
		Short: "Proxy calls to LLM providers within their quotas",
		Long: `Proxy calls to LLM providers: programs use it by changing their SDK's base URL, and give it a virtual key in place of the provider's.
Each call is counted in the provider's quota and in the limits of its caller, and waits in the queue if it does not fit.

It needs a file with the section gateway. "drawgate serve" runs the gateway of its file as well; this command runs it alone, with the address for
administrators. The configuration is reloaded when one of its files changes, and on SIGHUP; running streams end as they began.`,
		Example: `  drawgate gateway --config drawgate.yaml
  OPENAI_BASE_URL=http://` + defaultGateway + `/openai/v1 OPENAI_API_KEY=VIRTUAL-KEY python app.py
  ANTHROPIC_BASE_URL=http://` + defaultGateway + `/anthropic ANTHROPIC_API_KEY=VIRTUAL-KEY python app.py`,
		Args: noArgs,
		RunE: action(func(cmd *cobra.Command, _ []string) error { return a.serve(cmd, &f) }),
	}
	cmd.Flags().StringVar(&f.gateway, "listen", "",
		"address for callers; port 0 chooses one (default "+defaultGateway+")")
	cmd.Flags().StringVar(&f.admin, "admin", "",
		"address for administrators, or off (default "+defaultAdmin+"; with --listen and port 0 a free port)")
	cmd.Flags().BoolVar(&f.insecure, "insecure", false,
		"let everybody who can reach the address for administrators do everything")
	durationVar(cmd, &f.timeout, "store-timeout", 0,
		"how long the store may take for a take that does not wait, before the fallback decides (default 40ms, on SQLite and PostgreSQL 500ms, on DynamoDB 1s)")
	return cmd
}

// mergeGateway applies the flags to the gateway's section, and fills in the defaults.
func (f *serveFlags) mergeGateway(c *config.Config) {
	g := &c.Gateway
	if len(g.Upstreams) == 0 {
		g.Listen = config.ListenOff
		return
	}
	usual := defaultGateway
	if freePort(c.Server.Listen) || freePort(f.gateway) {
		usual = "127.0.0.1:0"
	}
	g.Listen = cmp.Or(f.gateway, g.Listen, usual)
	if f.alone {
		c.Server.Listen = config.ListenOff
	}
}

// errNoGateway is of a command that has nothing to serve.
var errNoGateway = &exitError{exitConfig, errors.New(
	"there is no gateway to serve: name a file with --config, whose section gateway has upstreams, and a listen other than off")}

// openGateway makes the gateway, if there is one.
func (v *service) openGateway() (err error) {
	g := &v.run.Config().Gateway
	if g.Listen == config.ListenOff {
		return nil
	}
	observer := outbound.Join(v.run.Outbound(), v.incidents.Observer())
	if g.Ledger.Dir != "" {
		o := &ledgerfile.Options{Logger: v.log}
		if guard := v.run.Guard; guard != nil {
			o.Pending = func() bool { return guard.State().Undelivered }
			o.Miscounted = func() uint64 { return guard.State().Miscounted }
		}
		if v.ledger, err = ledgerfile.Open(g.Ledger.Dir, o); err != nil {
			return &exitError{exitConfig, err}
		}
		observer = outbound.Join(v.ledger.Observer(), observer)
	}
	log.SetFlags(0)                           //nolint:forbidigo // net/http takes no other logger for its transport
	log.SetOutput(&connectionLog{log: v.log}) //nolint:forbidigo // as above
	s := &v.run.Config().Server.Proxies
	proxies, err := httplimit.NewProxies(s.Trusted, &httplimit.ProxyOptions{Header: s.Header, Unix: s.Unix})
	if err != nil {
		return err
	}
	o := &gateway.Options{
		MaxBody: g.MaxBody, Bodies: g.Bodies, Wait: g.MaxWait, Drain: g.Drain, Cache: g.Cache,
		Observer: observer, Logger: v.log, Proxies: proxies,
	}
	if !g.Spend.Off {
		v.book = spend.NewBook(v.run.Store, g.Spend.Location(), v.log)
		o.Spend = v.book
	}
	if v.run.Metrics != nil {
		o.Answered, o.WrongKey = v.run.Metrics.GatewayAnswered, v.run.Metrics.GatewayWrongKey
	}
	if g.TLS != (config.TLS{}) {
		var t *tls.Config
		if t, err = server.LoadTLS(server.TLSFiles{
			Cert: g.TLS.Cert, Key: g.TLS.Key, ClientCA: g.TLS.ClientCA,
			Logger: v.log,
		}); err != nil {
			return err
		}
		o.TLS = t
	}
	conf, err := gatewayConfig(g)
	if err != nil {
		return err
	}
	if g.KeysIn {
		o.Stored = func() bool { return v.keys.Current() }
	}
	if v.gateway, err = gateway.New(v.run.Engine, conf, o); err != nil {
		return err
	}
	if err := v.openKeys(); err != nil {
		return err
	}
	if v.run.Metrics != nil {
		v.run.Metrics.WatchOutbound(v.gateway.States)
	}
	v.declareCalls(&conf)
	return nil
}

// connectionLog receives what net/http logs about connections to upstreams by itself. A line may
// quote an answer, and so the provider's key or a prompt: that part is cut off.
type connectionLog struct{ log *slog.Logger }

// Write takes one line.
func (l *connectionLog) Write(line []byte) (int, error) {
	text, _, _ := strings.Cut(strings.TrimSuffix(string(line), "\n"), " starting with ")
	l.log.Warn(text)
	return len(line), nil
}

// declareCalls names the upstreams and their models to the metrics.
func (v *service) declareCalls(conf *gateway.Config) {
	if v.run.Metrics == nil {
		return
	}
	for i := range conf.Upstreams {
		u := &conf.Upstreams[i]
		var models []string
		for j := range u.Models {
			models = append(models, u.Models[j].Name)
		}
		v.run.Metrics.DeclareCalls(u.Name, models...)
	}
}

// describeGateway lists the upstreams of a configuration, with the policies that count their
// models.
func describeGateway(g *config.Gateway) ([]api.Upstream, error) {
	conf, err := gatewayConfig(g)
	if err != nil {
		return nil, err
	}
	return conf.Describe(), nil
}

// useGateway puts the gateway's reloaded configuration in force.
func (v *service) useGateway(c *config.Config) error {
	if v.gateway == nil {
		if c.Gateway.Listen != config.ListenOff {
			v.log.Warn("this change needs a restart: gateway")
		}
		return nil
	}
	conf, err := gatewayConfig(&c.Gateway)
	if err != nil {
		return err
	}
	if err := v.gateway.Use(conf); err != nil {
		return err
	}
	if v.keys != nil {
		v.warnDoubled(&c.Gateway, func(name string) bool { return v.keys.Known(name) != nil })
	}
	v.declareCalls(&conf)
	return nil
}

// spend says how it is counted what calls spend.
func (v *service) spend() (server.Spend, bool) {
	g := &v.run.Config().Gateway
	return server.Spend{Money: g.Money(), Zone: g.Spend.Location()}, len(g.Upstreams) > 0
}

func gatewayScheme(g *config.Gateway) string {
	if g.TLS != (config.TLS{}) {
		return "https"
	}
	return "http"
}

func upstreamNames(g *config.Gateway) string {
	var names []string
	for i := range g.Upstreams {
		names = append(names, g.Upstreams[i].Name)
	}
	return strings.Join(names, ",")
}

// gatewayConfig converts the section.
func gatewayConfig(g *config.Gateway) (c gateway.Config, err error) {
	c.Prices = g.Prices.Table()
	for i := range g.Upstreams {
		u := &g.Upstreams[i]
		profile, err := u.Provider()
		if err != nil {
			return c, err
		}
		at, err := url.Parse(u.URL)
		if err != nil {
			return c, err
		}
		up := gateway.Upstream{
			Name: u.Name, Profile: profile, URL: at, Key: gateway.Secret(u.APIKey.Reveal()), KeyHeader: u.KeyHeader,
			Owner: u.Owner, Likely: u.Likely,
			Breaker: outbound.Breaker{
				Failures: u.Breaker.Failures, Open: u.Breaker.Open,
				Successes: u.Breaker.Successes,
			},
			Retries: u.Retries, Hold: u.Hold, Others: u.Others, Silence: u.Silence, Duration: u.Duration,
		}
		if u.Breaker.Off {
			up.Breaker.Failures = -1
		}
		if s := u.Stored; s.By != "" {
			up.Stored = &gateway.Stored{By: s.By, Policy: s.Policy}
		}
		for _, m := range u.Models {
			up.Models = append(up.Models, gateway.Model{
				Name: m.Model, Policy: m.Policy, Fallbacks: m.Fallbacks,
				Cache: gateway.Cache{TTL: m.Cache.TTL, Stale: m.Cache.Stale, Shared: m.Cache.Shared},
			})
		}
		c.Upstreams = append(c.Upstreams, up)
	}
	for _, a := range g.Aliases {
		alias := gateway.Alias{Name: a.Name}
		for _, m := range a.Models {
			upstream, model, _ := strings.Cut(m.Model, "/")
			alias.Models = append(alias.Models, gateway.Target{Upstream: upstream, Model: model, Weight: m.Weight})
		}
		c.Aliases = append(c.Aliases, alias)
	}
	for i := range g.Keys {
		c.Keys = append(c.Keys, gatewayKey(&g.Keys[i]))
	}
	for i := range g.Tokens {
		t := &g.Tokens[i]
		c.Tokens = append(c.Tokens, gateway.TokenIssuer{
			Issuer: t.Issuer, Name: t.Name, Audiences: t.Audiences, Algorithms: t.Algorithms, KeysURL: t.KeysURL,
			KeyClaim: t.KeyClaim, TeamClaim: t.TeamClaim, UserClaim: t.UserClaim, Key: gatewayKey(&t.Key),
		})
	}
	return c, nil
}

// gatewayKey converts a key.
func gatewayKey(k *config.VirtualKey) gateway.Key {
	key := gateway.Key{
		Name: k.Name, Sum: k.Sum, Team: k.Team, User: k.User, Class: k.Class, Expires: k.Expires,
		Disabled: k.Disabled, Priority: k.Priority, Models: k.Models, Others: k.Others, Paths: k.Paths,
		Addresses: k.Addresses,
	}
	for _, s := range k.Secrets {
		key.Secrets = append(key.Secrets, gateway.KeySecret{Sum: s.Sum, Until: s.Until})
	}
	return key
}
