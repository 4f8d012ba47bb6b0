package config

import (
	"cmp"
	"crypto/sha256"
	"net/netip"
	"strings"
	"time"

	"github.com/drawgate/drawgate"
)

// The variables that are named in several places.
const (
	envEnabled     = "RATE_LIMIT_ENABLED"
	envPer         = "RATE_LIMIT_PER_" // and a calendar window
	envStorage     = "RATE_LIMIT_STORAGE_PATH"
	envStrategy    = "RATE_LIMIT_STRATEGY"
	envConcurrency = "CONCURRENCY_LIMIT"
	envRedisURL    = "RATE_LIMIT_REDIS_URL"
	envRedisPrefix = "RATE_LIMIT_REDIS_PREFIX"
	envDistributed = "ENABLE_DISTRIBUTED_RATE_LIMITING"
	envCapacity    = "RATE_LIMIT_GLOBAL_CAPACITY"
	envRefill      = "RATE_LIMIT_GLOBAL_REFILL_PER_SEC"
	envCert        = "DRAWGATE_TLS_CERT"
	envKey         = "DRAWGATE_TLS_KEY"
	envClientCA    = "DRAWGATE_TLS_CLIENT_CA"
	envTakeToken   = "DRAWGATE_TAKE_TOKEN"
	envReadToken   = "DRAWGATE_READ_TOKEN"  //nolint:gosec // the name of a secret
	envAdminToken  = "DRAWGATE_ADMIN_TOKEN" //nolint:gosec // the name of a secret
	envInstances   = "DRAWGATE_INSTANCES"
	envStart       = "DRAWGATE_START"
	envQueueDepth  = "QUEUE_MAX_DEPTH"
	envBreaker     = "CIRCUIT_BREAKER_ENABLED"
	envFailures    = "CIRCUIT_BREAKER_FAILURE_THRESHOLD"
	envRecovery    = "CIRCUIT_BREAKER_TIMEOUT"
)

// variable is an environment variable. The table in docs/configuration.md comes from these.
type variable struct {
	name    string
	setting string // that it sets, if a file can set it as well
	// set reads the value; it is nil if the code of a preset does, or that of all breakers.
	set   func(name, value string)
	usual string // the default, in Markdown
	about string // as of a [setting]; "" if it is as the setting's
}

// heading is a row of the table without a variable.
func heading(text, about string) variable { return variable{usual: text, about: about} }

// variables returns all variables. They set e and c.
func (e *environment) variables(c *Config) []variable {
	s, q := &c.Server, &c.Queue
	return []variable{
		{name: EnvConfig, usual: none, about: "path of the file"},
		{name: EnvRules, usual: none, about: "path of a file of rules"},
		{name: EnvStore, about: "store URL; overrides everything but `--store`"},
		{"DRAWGATE_ENABLED", "enabled", e.off(&c.Off), yes, "`enabled`: `false` switches all limits off"},
		heading("the server", "overrides the file"),
		{"DRAWGATE_LISTEN", "server.listen", e.address(&s.Listen), "", ""},
		{"DRAWGATE_ADMIN_LISTEN", "server.admin", e.address(&s.Admin), "", ""},
		{"DRAWGATE_GRPC_LISTEN", "server.grpc", e.address(&s.GRPC), "", ""},
		{envCert, "server.tls", e.path(c, &s.TLS.Cert), "", "path of `server.tls.cert`"},
		{envKey, "server.tls", e.path(c, &s.TLS.Key), "", "path of `server.tls.key`"},
		{envClientCA, "server.tls", e.path(c, &s.TLS.ClientCA), "", "path of `server.tls.client_ca`"},
		{envTakeToken, "server.tokens", e.token(s, RoleTake), "", "a token with the role `take`, of at least 16 " +
			"bytes, in addition to the file's"},
		{envReadToken, "server.tokens", e.token(s, RoleRead), "", "the same, with the role `read`"},
		{envAdminToken, "server.tokens", e.token(s, RoleAdmin), "", "the same, with the role `admin`"},
		{
			"DRAWGATE_TRUSTED_PROXIES", "server.proxies", e.networks(&s.Proxies.Trusted), "",
			"`server.proxies.trusted`, separated by commas",
		},
		{envInstances, "instances", func(_, value string) { c.Instances = e.instances(value) }, "", ""},
		{"DRAWGATE_STORE_TIMEOUT", "store_timeout", e.duration(&c.StoreTimeout, time.Millisecond, maxTimeout), "", ""},
		{"DRAWGATE_WARN_EVERY", "warn_every", e.duration(&c.WarnEvery, time.Second, maxStep), "", ""},
		{envStart, "start", func(_, value string) { e.start(c, value) }, "", "`start`, of all policies: `closed`, " +
			"`cold` or `full`"},
		{"MONITORING_ENABLED", "telemetry.metrics", e.off(&c.Telemetry.MetricsOff), yes, "`telemetry.metrics`: with " +
			"`false` there is no `/metrics`; warnings still go to the log and the webhook, and `/v1/status` and " +
			"`/v1/upstreams` still answer"},
		heading("the gateway", "overrides the file, for all upstreams"),
		{name: envBreaker, usual: yes, about: "`breaker.enabled`"},
		{name: envFailures, usual: "5", about: "`breaker.failures`"},
		{name: envRecovery, usual: "60", about: "`breaker.open`, in whole seconds"},
		heading("multi-tier", ""),
		{name: envEnabled, usual: "on if a `RATE_LIMIT_PER_*` has a value", about: "switches the preset on or off; " +
			"`false` switches it off whatever else is set, and its other variables are ignored"},
		{name: envPer + "MINUTE", usual: "20", about: "limit `minute`; `0` or empty leaves the period out"},
		{name: envPer + "HOUR", usual: "100", about: "limit `hour`; likewise"},
		{name: envPer + "DAY", usual: "500", about: "limit `day`; likewise"},
		{name: envPer + "WEEK", usual: "2000", about: "limit `week`; likewise"},
		{name: envPer + "MONTH", usual: "7500", about: "limit `month`; likewise"},
		{name: envStrategy, usual: "`rolling`", about: "`rolling`: the last 60 s, 3600 s, 24 h, 7 d, 30 d, exact; " +
			"`fixed`: windows of the calendar in UTC, weeks from Monday"},
		{name: envStorage, usual: "`rate_limits.db` there", about: "the SQLite file; a relative path is in the " +
			"file's folder, or without a file in the state folder"},
		{name: envConcurrency, usual: none, about: "limit `concurrency` in addition to the others, only if set and " +
			"not 0; the policy then needs reservations"},
		heading("gemini-free", "any of the four switches it on"),
		{name: "GEMINI_FLASH_RPM_LIMIT", usual: "10 less 20 %", about: "`gemini-2.5-flash`: requests per rolling " +
			"minute. They are used in full: no headroom is taken off (the `margin` of 2s stays)"},
		{name: "GEMINI_FLASH_RPD_LIMIT", usual: "250 less 20 %", about: "requests per day in Pacific time; likewise"},
		{name: "GEMINI_PRO_RPM_LIMIT", usual: "5 less 20 %", about: "`gemini-2.5-pro`: requests per minute; likewise"},
		{name: "GEMINI_PRO_RPD_LIMIT", usual: "100 less 20 %", about: "requests per day; likewise"},
		heading("global", "either switches it on, and `ENABLE_DISTRIBUTED_RATE_LIMITING=true`"),
		{name: envCapacity, usual: "60", about: "the bucket's burst"},
		{name: envRefill, usual: "1", about: "units per second, above 0 to 1,000,000, at most six decimals"},
		{name: envDistributed, usual: "off", about: "keep the state in Redis; needs `RATE_LIMIT_REDIS_URL`, or " +
			"another store that processes share (Redis, PostgreSQL, DynamoDB). While it is unavailable each process goes on with " +
			"the whole bucket by itself (`instances: 1`, with a warning), unless `DRAWGATE_INSTANCES` or the file " +
			"says otherwise, such as `auto`"},
		heading("http-api", "any of the six switches it on"),
		{name: "IP_REQUESTS_PER_MINUTE", usual: "10", about: "policy `ip`: requests per minute"},
		{name: "IP_BURST_SIZE", usual: "5", about: "policy `ip`: the burst"},
		{name: "API_REQUESTS_PER_MINUTE", usual: "100", about: "policy `api`: requests per minute"},
		{name: "API_BURST_SIZE", usual: "20", about: "policy `api`: the burst"},
		{name: "USER_REQUESTS_PER_MINUTE", usual: "20", about: "policy `user`: requests per minute"},
		{name: "USER_BURST_SIZE", usual: "10", about: "policy `user`: the burst"},
		heading("queue", "`cfg.Queue`, for programs with a queue of tasks"),
		{envQueueDepth, "queue.max_depth", e.count(&q.MaxDepth, maxDepth), "50", "`queue.max_depth`; with `http-api` " +
			"also how many takes of `task` may wait for one key in one process: one more is refused (`queue_full`)"},
		{
			"QUEUE_RETRY_DELAY_SECONDS", "queue.retry_delay", e.seconds(&q.RetryDelay), "60",
			"`queue.retry_delay`, in whole seconds",
		},
		{"RATE_LIMIT_RETRY_MAX_ATTEMPTS", "queue.max_attempts", e.count(&q.MaxAttempts, maxAttempts), "3", ""},
		{"RATE_LIMIT_RETRY_BACKOFF_MULTIPLIER", "queue.multiplier", e.multiplier(&q.Multiplier), "2.0", ""},
		heading("Redis", ""),
		{name: envRedisURL, usual: "`gemini-free`: `redis://localhost:6379/3`", about: "the store, if Redis is asked " +
			"for by `gemini-free`, `http-api`, `ENABLE_DISTRIBUTED_RATE_LIMITING=true`, or a file whose store is " +
			"Redis"},
		{name: envRedisPrefix, about: "the prefix, if the store is Redis", usual: "that of the first of these " +
			"presets that is in use: `gemini-free`: `mb_sparrow_rl`; `global`: `rl`; `http-api`: `ratelimit`"},
	}
}

// settle applies the variables of settings that a file can set as well. They take precedence over
// the file.
func (e *environment) settle(c *Config) Problems {
	before := len(e.problems)
	if f := &c.Server.ForwardAuth; e.httpPreset && len(f.Shared) == 0 && len(f.Describe) == 0 {
		f.Shared, f.Describe = []string{"api"}, []string{"ip"}
		c.origins["server.forward_auth"] = "preset " + HTTPAPI
	}
	for _, v := range e.variables(c) {
		if value := e.get(v.name); value != "" && v.set != nil {
			c.origins[v.setting] = "environment: " + v.name
			v.set(v.name, value)
		}
	}
	t := &c.Server.TLS
	half := (t.Cert == "") != (t.Key == "") || t.ClientCA != "" && t.Cert == ""
	if half && len(e.set(envCert, envKey, envClientCA)) > 0 {
		e.problems = append(e.problems, e.note("%s, %s: TLS needs both the certificate and its key", envCert, envKey))
	}
	e.settleBreaker(c)
	return e.problems[before:]
}

// These funcs return what sets a variable of Go from one of the environment.

func (e *environment) off(to *bool) func(name, value string) {
	return func(name, _ string) { *to = !e.boolean(name, true) }
}

func (e *environment) address(to *string) func(name, value string) {
	return func(name, value string) {
		if hint, err := checkAddress(value); err != nil {
			e.problem(name, "is not an address to listen on, %s", hint)
		}
		*to = value
	}
}

func (e *environment) path(c *Config, to *string) func(name, value string) {
	return func(_, value string) {
		e.problems = append(e.problems, c.put(to, value, "server.tls", e.folder, true)...)
	}
}

func (e *environment) token(s *Server, role Role) func(name, value string) {
	return func(name, value string) {
		if len(value) < minSecret {
			e.problem(name, "has fewer than %d bytes: generate a random one", minSecret)
		}
		s.Tokens = append(s.Tokens,
			Token{Roles: []Role{role}, Secret: Secret{Env: name}, Sum: sha256.Sum256([]byte(value))})
	}
}

func (e *environment) count(to *int, most int64) func(name, value string) {
	return func(name, _ string) { *to = int(e.number(name, most)) }
}

func (e *environment) seconds(to *time.Duration) func(name, value string) {
	return func(name, _ string) { *to = time.Duration(e.number(name, int64(maxStep/time.Second))) * time.Second }
}

func (e *environment) multiplier(to *float64) func(name, value string) {
	return func(name, value string) {
		f, ok := parseMultiplier(value)
		if !ok {
			e.problem(name, "is not a number between 1 and %d", maxMultiplier)
		}
		*to = f
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
func (e *environment) networks(to *[]netip.Prefix) func(name, value string) {
	return func(name, value string) {
		*to = nil
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
			*to = append(*to, p.Masked())
		}
	}
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

// duration reads a duration from least to most.
func (e *environment) duration(to *time.Duration, least, most time.Duration) func(name, value string) {
	return func(name, value string) {
		d, err := ParseDuration(value)
		switch {
		case err != nil:
			e.problem(name, "is not a duration such as 50ms or 5m")
		case d < least || d > most:
			e.problem(name, "is not from %s to %s", formatDuration(least), formatDuration(most))
		default:
			*to = d
		}
	}
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
		p := e.note("no effect: %s. They are about calls to an upstream, and the configuration has no gateway",
			strings.Join(asked, ", "))
		p.Hint = "add the section gateway to the file; the breaker in front of the store is a different one, and always on"
		c.Warnings = append(c.Warnings, p)
	}
}
