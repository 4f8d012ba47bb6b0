package config

import (
	"cmp"
	"crypto/sha256"
	"net/netip"
	"strings"
	"time"

	"github.com/drawgate/drawgate"
)

// The variables of settings that are not about a preset's policies.
const (
	envOn           = "DRAWGATE_ENABLED"
	envListen       = "DRAWGATE_LISTEN"
	envAdmin        = "DRAWGATE_ADMIN_LISTEN"
	envGRPC         = "DRAWGATE_GRPC_LISTEN"
	envCert         = "DRAWGATE_TLS_CERT"
	envKey          = "DRAWGATE_TLS_KEY"
	envClientCA     = "DRAWGATE_TLS_CLIENT_CA"
	envProxies      = "DRAWGATE_TRUSTED_PROXIES"
	envTakeToken    = "DRAWGATE_TAKE_TOKEN"
	envReadToken    = "DRAWGATE_READ_TOKEN"  //nolint:gosec // the name of a secret
	envAdminToken   = "DRAWGATE_ADMIN_TOKEN" //nolint:gosec // the name of a secret
	envInstances    = "DRAWGATE_INSTANCES"
	envStoreTimeout = "DRAWGATE_STORE_TIMEOUT"
	envWarnEvery    = "DRAWGATE_WARN_EVERY"
	envStart        = "DRAWGATE_START"
	envMonitoring   = "MONITORING_ENABLED"
	envQueueDepth   = "QUEUE_MAX_DEPTH"
	envQueueDelay   = "QUEUE_RETRY_DELAY_SECONDS"
	envAttempts     = "RATE_LIMIT_RETRY_MAX_ATTEMPTS"
	envMultiplier   = "RATE_LIMIT_RETRY_BACKOFF_MULTIPLIER"
	envBreaker      = "CIRCUIT_BREAKER_ENABLED"
	envFailures     = "CIRCUIT_BREAKER_FAILURE_THRESHOLD"
	envRecovery     = "CIRCUIT_BREAKER_TIMEOUT"
)

// settle applies the variables of settings that a file can set as well. They take precedence over
// the file.
func (e *environment) settle(c *Config) Problems {
	before := len(e.problems)
	set := func(name, setting string, f func(value string)) {
		if value := e.get(name); value != "" {
			f(value)
			c.origins[setting] = "environment: " + name
		}
	}
	if f := &c.Server.ForwardAuth; e.httpPreset && len(f.Shared) == 0 && len(f.Describe) == 0 {
		f.Shared, f.Describe = []string{"api"}, []string{"ip"}
		c.origins["server.forward_auth"] = "preset " + HTTPAPI
	}
	set(envOn, "enabled", func(string) { c.Off = !e.boolean(envOn, true) })
	e.settleServer(c, set)
	set(envInstances, "instances", func(value string) { c.Instances = e.instances(value) })
	set(envStoreTimeout, "store_timeout", func(string) { c.StoreTimeout = e.duration(envStoreTimeout, time.Millisecond, maxTimeout) })
	set(envWarnEvery, "warn_every", func(string) { c.WarnEvery = e.duration(envWarnEvery, time.Second, maxStep) })
	set(envStart, "start", func(value string) { e.start(c, value) })
	set(envMonitoring, "telemetry.metrics", func(string) { c.Telemetry.MetricsOff = !e.boolean(envMonitoring, true) })
	set(envQueueDepth, "queue.max_depth", func(string) { c.Queue.MaxDepth = int(e.number(envQueueDepth, maxDepth)) })
	set(envQueueDelay, "queue.retry_delay", func(string) {
		c.Queue.RetryDelay = time.Duration(e.number(envQueueDelay, int64(maxStep/time.Second))) * time.Second
	})
	set(envAttempts, "queue.max_attempts", func(string) { c.Queue.MaxAttempts = int(e.number(envAttempts, maxAttempts)) })
	set(envMultiplier, "queue.multiplier", func(value string) {
		f, ok := parseMultiplier(value)
		if !ok {
			e.problem(envMultiplier, "is not a number between 1 and %d", maxMultiplier)
		}
		c.Queue.Multiplier = f
	})
	e.settleBreaker(c)
	return e.problems[before:]
}

func (e *environment) settleServer(c *Config, set func(name, setting string, f func(value string))) {
	s := &c.Server
	address := func(name string, to *string) func(string) {
		return func(value string) {
			if hint, err := checkAddress(value); err != nil {
				e.problem(name, "is not an address to listen on, %s", hint)
			}
			*to = value
		}
	}
	set(envListen, "server.listen", address(envListen, &s.Listen))
	set(envAdmin, "server.admin", address(envAdmin, &s.Admin))
	set(envGRPC, "server.grpc", address(envGRPC, &s.GRPC))
	for _, f := range []struct {
		name string
		to   *string
	}{{envCert, &s.TLS.Cert}, {envKey, &s.TLS.Key}, {envClientCA, &s.TLS.ClientCA}} {
		set(f.name, "server.tls", func(value string) {
			c.origins["server.tls"] = "environment: " + f.name
			e.problems = append(e.problems, c.put(f.to, value, "server.tls", e.folder, true)...)
		})
	}
	if len(e.set(envCert, envKey, envClientCA)) > 0 && ((s.TLS.Cert == "") != (s.TLS.Key == "") || s.TLS.ClientCA != "" && s.TLS.Cert == "") {
		e.problems = append(e.problems, e.note("%s, %s: TLS needs both the certificate and its key", envCert, envKey))
	}
	set(envProxies, "server.proxies", func(value string) { s.Proxies.Trusted = e.networks(envProxies, value) })
	for _, t := range []struct {
		name string
		role Role
	}{{envTakeToken, RoleTake}, {envReadToken, RoleRead}, {envAdminToken, RoleAdmin}} {
		set(t.name, "server.tokens", func(value string) {
			if len(value) < minSecret {
				e.problem(t.name, "has fewer than %d bytes: generate a random one", minSecret)
			}
			s.Tokens = append(s.Tokens, Token{Roles: []Role{t.role}, Secret: Secret{Env: t.name}, Sum: sha256.Sum256([]byte(value))})
		})
	}
}

// start says how all policies start, whatever the file or a preset says.
func (e *environment) start(c *Config, value string) {
	switch strings.ToLower(value) {
	case "closed":
		c.Start = drawgate.StartClosed
	case "cold":
		c.Start = drawgate.StartCold
	case "full":
		c.Start = drawgate.StartFull
	default:
		e.problem(envStart, "is none of closed, cold, full")
		return
	}
	for i := range c.Policies {
		if p := &c.Policies[i]; p.Start != drawgate.StartDefault {
			p.Start = c.Start
			c.origins[policySetting(p.Name)+".start"] = "environment: " + envStart
		}
	}
}

// networks reads networks with commas between them.
func (e *environment) networks(name, value string) (list []netip.Prefix) {
	for text := range strings.SplitSeq(value, ",") {
		text = strings.TrimSpace(text)
		p, err := netip.ParsePrefix(text)
		if a, bad := netip.ParseAddr(text); bad == nil {
			p, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
		if err != nil {
			e.problem(name, "holds %s, which is neither an address nor a network", shorten(text))
			continue
		}
		list = append(list, p.Masked())
	}
	return list
}

// number returns a variable's number, from 1 to most.
func (e *environment) number(name string, most int64) int64 {
	n, err := parseInteger(e.get(name))
	switch {
	case err != nil:
		e.problem(name, "is not a whole number")
	case n < 1 || n > most:
		e.problem(name, "is not between 1 and %d", most)
	default:
		return n
	}
	return 0
}

// duration returns a variable's duration.
func (e *environment) duration(name string, least, most time.Duration) time.Duration {
	d, err := ParseDuration(e.get(name))
	switch {
	case err != nil:
		e.problem(name, "is not a duration such as 50ms or 5m")
	case d < least || d > most:
		e.problem(name, "is not from %s to %s", formatDuration(least), formatDuration(most))
	default:
		return d
	}
	return 0
}

// settleBreaker applies the variables of the breaker around calls to an upstream to all upstreams.
func (e *environment) settleBreaker(c *Config) {
	var b Breaker
	b.Off = !e.boolean(envBreaker, true)
	if e.get(envFailures) != "" {
		b.Failures = int(e.number(envFailures, maxTries))
	}
	if e.get(envRecovery) != "" {
		b.Open = time.Duration(e.number(envRecovery, int64(maxStep/time.Second))) * time.Second
	}
	asked := e.set(envBreaker, envFailures, envRecovery)
	if len(asked) == 0 {
		return
	}
	for i := range c.Gateway.Upstreams {
		u := &c.Gateway.Upstreams[i].Breaker
		if e.get(envBreaker) != "" {
			u.Off = b.Off
		}
		u.Failures, u.Open = cmp.Or(b.Failures, u.Failures), cmp.Or(b.Open, u.Open)
		c.origins[upstreamSetting(c.Gateway.Upstreams[i].Name)+".breaker"] = "environment: " + strings.Join(asked, ", ")
	}
	if len(c.Gateway.Upstreams) == 0 && !b.Off {
		p := e.note("no effect: %s. They are about calls to an upstream, and the configuration has no gateway", strings.Join(asked, ", "))
		p.Hint = "add the section gateway to the file; the breaker in front of the store is a different one, and always on"
		c.Warnings = append(c.Warnings, p)
	}
}
