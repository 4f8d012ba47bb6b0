package config_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drawgate/drawgate/config"
)

// from returns the sources of settings, without those of policies.
func from(c *config.Config) map[string]string {
	list := map[string]string{}
	for _, o := range c.Explain() {
		if !strings.HasPrefix(o.Setting, "policies.") && !strings.HasPrefix(o.Setting, "rules") {
			list[o.Setting] = o.From
		}
	}
	return list
}

// Every variable that is not about a preset's policies sets its setting.
//
// req: B8, B11, C10
func TestSettingsFromEnvironment(t *testing.T) {
	t.Parallel()
	const token = "0123456789abcdef"
	c := mustResolve(t, []string{
		"DRAWGATE_ENABLED=off", "DRAWGATE_LISTEN=0.0.0.0:1", "DRAWGATE_ADMIN_LISTEN=127.0.0.1:2",
		"DRAWGATE_GRPC_LISTEN=[::1]:3", "DRAWGATE_TLS_CERT=/c",
		"DRAWGATE_TLS_KEY=/k", "DRAWGATE_TLS_CLIENT_CA=/ca", "DRAWGATE_TRUSTED_PROXIES=10.0.0.0/8, 192.0.2.7",
		"DRAWGATE_TAKE_TOKEN=" + token,
		"DRAWGATE_READ_TOKEN=r" + token, "DRAWGATE_ADMIN_TOKEN=a" + token, "DRAWGATE_INSTANCES=3",
		"DRAWGATE_STORE_TIMEOUT=30ms", "DRAWGATE_WARN_EVERY=10m",
		"MONITORING_ENABLED=false", "QUEUE_MAX_DEPTH=60", "QUEUE_RETRY_DELAY_SECONDS=90",
		"RATE_LIMIT_RETRY_MAX_ATTEMPTS=4", "RATE_LIMIT_RETRY_BACKOFF_MULTIPLIER=2.5",
		"RATE_LIMIT_PER_DAY=5", "DRAWGATE_STORE=redis://h",
	}, config.Flags{})
	got := *c
	s := got.Server
	if !got.Off || got.Instances.Number != 3 || got.StoreTimeout != 30*time.Millisecond ||
		got.WarnEvery != 10*time.Minute || !got.Telemetry.MetricsOff {
		t.Errorf("got off=%v instances=%v store_timeout=%v warn_every=%v metrics off=%v", got.Off, got.Instances,
			got.StoreTimeout, got.WarnEvery, got.Telemetry.MetricsOff)
	}
	if want := (config.Queue{
		MaxDepth: 60, RetryDelay: 90 * time.Second, MaxAttempts: 4,
		Multiplier: 2.5,
	}); got.Queue != want {
		t.Errorf("queue %+v, want %+v", got.Queue, want)
	}
	if s.Listen != "0.0.0.0:1" || s.Admin != "127.0.0.1:2" || s.GRPC != "[::1]:3" ||
		s.TLS != (config.TLS{Cert: "/c", Key: "/k", ClientCA: "/ca"}) ||
		!slices.Equal(s.Proxies.Trusted, []netip.Prefix{
			netip.MustParsePrefix("10.0.0.0/8"),
			netip.MustParsePrefix("192.0.2.7/32"),
		}) {
		t.Errorf("server %+v", s)
	}
	for i, want := range []struct {
		role   config.Role
		secret string
	}{{config.RoleTake, token}, {config.RoleRead, "r" + token}, {config.RoleAdmin, "a" + token}} {
		if got := s.Tokens[i]; !slices.Equal(got.Roles, []config.Role{want.role}) ||
			got.Sum != sha256.Sum256([]byte(want.secret)) {
			t.Errorf("token %d is %+v", i, got)
		}
	}
	if p := c.Engine().Policies; len(p) != 1 || p[0].Name != "multi-tier" || !p[0].Disabled {
		t.Errorf("policies are %+v", p)
	}
	want := map[string]string{
		"enabled": "DRAWGATE_ENABLED", "server.listen": "DRAWGATE_LISTEN", "server.admin": "DRAWGATE_ADMIN_LISTEN",
		"server.grpc":    "DRAWGATE_GRPC_LISTEN",
		"server.proxies": "DRAWGATE_TRUSTED_PROXIES", "instances": "DRAWGATE_INSTANCES",
		"store_timeout": "DRAWGATE_STORE_TIMEOUT", "warn_every": "DRAWGATE_WARN_EVERY",
		"telemetry.metrics": "MONITORING_ENABLED", "queue.max_depth": "QUEUE_MAX_DEPTH",
		"queue.retry_delay":  "QUEUE_RETRY_DELAY_SECONDS",
		"queue.max_attempts": "RATE_LIMIT_RETRY_MAX_ATTEMPTS",
		"queue.multiplier":   "RATE_LIMIT_RETRY_BACKOFF_MULTIPLIER", "store": "DRAWGATE_STORE",
	}
	sources := from(c)
	for setting, name := range want {
		if sources[setting] != "environment: "+name {
			t.Errorf("%s is from %q, want %s", setting, sources[setting], name)
		}
	}
	if text := fmt.Sprintf("%+v %#v %s %v", c, c, c.YAML(), c.Explain()); strings.Contains(text, token) {
		t.Error("a token is shown")
	}
}

// The environment takes precedence over the file.
func TestEnvironmentOverSettingsOfTheFile(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	write(t, path, fileOf(1)+"enabled: true\ninstances: 2\nserver: {listen: '127.0.0.1:1', tokens: [{role: read, sha256: '"+strings.Repeat("0", 64)+"'}]}\n")
	c := mustResolve(t, []string{
		"DRAWGATE_LISTEN=127.0.0.1:9", "DRAWGATE_INSTANCES=",
		"DRAWGATE_TAKE_TOKEN=0123456789abcdef", "DRAWGATE_STORE=redis://h",
	}, config.Flags{Config: path})
	if c.Server.Listen != "127.0.0.1:9" || c.Instances.Number != 2 || len(c.Server.Tokens) != 2 || c.Off {
		t.Errorf("got %s", c)
	}
}

// Mistakes in the variables of settings are reported.
func TestSettingMistakesOfTheEnvironment(t *testing.T) {
	t.Parallel()
	for environ, want := range map[string]string{
		"DRAWGATE_ENABLED=maybe":                     `DRAWGATE_ENABLED="maybe" is neither true nor false`,
		"DRAWGATE_LISTEN=7878":                       `DRAWGATE_LISTEN="7878" is not an address to listen on, such as`,
		"DRAWGATE_TLS_CERT=/c":                       "DRAWGATE_TLS_CERT, DRAWGATE_TLS_KEY: TLS needs both",
		"DRAWGATE_TRUSTED_PROXIES=10.0.0.0/8,x":      `holds "x", which is neither an address nor a network`,
		"DRAWGATE_TAKE_TOKEN=hunter2":                "DRAWGATE_TAKE_TOKEN=xxxxx has fewer than 16 bytes",
		"DRAWGATE_INSTANCES=0":                       "is not between 1 and 100000",
		"DRAWGATE_INSTANCES=three":                   "is neither a whole number nor auto",
		"DRAWGATE_STORE_TIMEOUT=50":                  "is not a duration such as 50ms",
		"DRAWGATE_STORE_TIMEOUT=2m":                  "is not from 1ms to 1m",
		"MONITORING_ENABLED=2":                       "is neither true nor false",
		"QUEUE_MAX_DEPTH=-1":                         "is not between 1 and",
		"RATE_LIMIT_RETRY_BACKOFF_MULTIPLIER=0.5":    "is not a number between 1 and 100",
		"RATE_LIMIT_RULES_PATH=/missing/rules.yaml":  "the rules: open /missing/rules.yaml",
		"RATE_LIMIT_RETRY_MAX_ATTEMPTS=1e3":          "is not a whole number",
		"QUEUE_RETRY_DELAY_SECONDS=99999999":         "is not between 1 and 86400",
		"RATE_LIMIT_RETRY_BACKOFF_MULTIPLIER=1/2":    "is not a number between",
		"CIRCUIT_BREAKER_ENABLED=maybe":              "is neither true nor false",
		"CIRCUIT_BREAKER_FAILURE_THRESHOLD=0":        "is not between 1 and",
		"CIRCUIT_BREAKER_TIMEOUT=1m":                 "is not a whole number",
		"DRAWGATE_ADMIN_LISTEN=host name:1":          "is not an address",
		"DRAWGATE_GRPC_LISTEN=127.0.0.1:070":         "is not an address",
		"DRAWGATE_TRUSTED_PROXIES=http://10.0.0.0/8": "neither an address",
	} {
		_, err := config.Resolve(strings.Split(environ, "\n"), config.Flags{})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got %v, want %q", environ, err, want)
		}
	}
}

// Secrets are looked up where the file says, and are never shown.
func TestSecretsByName(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	write(t, at("token"), "\n hunter2-of-a-file \n")
	write(t, at("salt"), "hunter2-is-a-salt")
	write(t, at("drawgate.yaml"), fileOf(1)+fmt.Sprintf(`
server:
  tokens:
    - {role: take, token_env: MY_TOKEN}
    - {role: admin, token_file: %q}
telemetry:
  salt_file: %q
  webhook: {url_env: MY_HOOK, secret_env: MY_SECRET}
`, at("token"), at("salt")))
	environ := []string{
		"MY_TOKEN=hunter2-of-the-environment", "MY_SECRET=hunter2-that-signs",
		"MY_HOOK=https://hooks.example.com/hunter2",
	}
	c := mustResolve(t, environ, config.Flags{Config: at("drawgate.yaml")})
	sum := func(s string) string {
		d := sha256.Sum256([]byte(s))
		return hex.EncodeToString(d[:])
	}
	w := c.Telemetry.Webhook
	if c.Server.Tokens[0].Digest() != sum("hunter2-of-the-environment") ||
		c.Server.Tokens[1].Digest() != sum("hunter2-of-a-file") ||
		w.Secret.Reveal() != "hunter2-that-signs" || w.URL != "https://hooks.example.com/hunter2" ||
		c.Telemetry.Salt.Reveal() != "hunter2-is-a-salt" {
		t.Errorf("got %v, %v", c.Server.Tokens, w.Secret.Reveal())
	}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("a secret", "secret", w.Secret)
	text := fmt.Sprintf("%v %+v %#v", w.Secret, w.Secret, w.Secret) + log.String() + string(c.YAML()) + c.String() +
		fmt.Sprint(c.Explain())
	if strings.Contains(text, "hunter2") || !strings.Contains(text, "environment: MY_SECRET") {
		t.Errorf("a secret is shown in %s", text)
	}
}

// Of a webhook's URL only the host is shown, because the rest may be a secret.
func TestURLOfWebhookIsShownWithoutSecrets(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "drawgate.yaml")
	for url, want := range map[string]string{
		"https://h:1":                          "https://h:1",
		"https://h:1/":                         "https://h:1",
		"https://h:1/hunter2?hunter2":          "https://h:1/…",
		"https://hunter2@h:1":                  "https://xxxxx@h:1",
		"https://user:hunter2@h:1":             "https://xxxxx@h:1",
		"https://:hunter2@h:1/hunter2/hunter2": "https://xxxxx@h:1/…",
	} {
		write(t, path, fileOf(1)+fmt.Sprintf("telemetry: {webhook: {url: %q, secret_env: SECRET}}\n", url))
		c := mustResolve(t, []string{"SECRET=hunter2-that-signs"}, config.Flags{Config: path})
		text := c.String() + fmt.Sprint(c.Explain()) + fmt.Sprintf("%v %+v %#v", c, c, c)
		if !strings.Contains(text, `url: "`+want+`"`) || strings.Contains(text, "hunter2") {
			t.Errorf("%s: want %s in\n%s", url, want, text)
		}
		if c.Telemetry.Webhook.URL != url {
			t.Errorf("the URL is %s, want %s", c.Telemetry.Webhook.URL, url)
		}
	}
}

// A mistake in an access token is reported once, where it was made: in the file, whatever the
// environment adds to its tokens, or in the variable.
func TestSecretMistakesSayWhere(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	write(t, path, fileOf(1)+"server:\n  tokens: [{role: take, token_env: NOBODY_SET_THIS}]\n")
	in := regexp.QuoteMeta(path) + `:\d+:\d+: server\.tokens: the environment variable NOBODY_SET_THIS is not set`
	const short = `environment: DRAWGATE_TAKE_TOKEN=xxxxx has fewer than 16 bytes: generate a random one`
	for environ, want := range map[string]string{
		"": in, "DRAWGATE_ADMIN_TOKEN=0123456789abcdef": in,
		"NOBODY_SET_THIS=0123456789abcdef DRAWGATE_TAKE_TOKEN=hunter2": short,
		"NOBODY_SET_THIS=0123456789abcdef DRAWGATE_TAKE_TOKEN=hunter2-hunter2-\nhunter2 DRAWGATE_ADMIN_TOKEN=fedcba9876543210": "environment: DRAWGATE_TAKE_TOKEN: " +
			"server.tokens: the secret in DRAWGATE_TAKE_TOKEN has more than one line",
	} {
		_, err := config.Resolve(strings.Split(environ, " "), config.Flags{Config: path})
		problems, _ := errors.AsType[config.Problems](err)
		if len(problems) != 1 || !regexp.MustCompile("^"+want+"$").MatchString(problems[0].OneLine()) {
			t.Errorf("%q: got %q, want %s", environ, problems, want)
		}
	}
}

// A mistake in a secret is reported without showing the secret.
func TestSecretMistakes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	write(t, at("short"), "hunter2")
	write(t, at("empty"), " \n")
	write(t, at("lines"), "hunter2-hunter2-hunter2\nhunter2-hunter2-hunter2")
	write(t, at("large"), strings.Repeat("hunter2", 1000))
	for named, want := range map[string]string{
		"token_env: NOBODY_SET_THIS":       "server.tokens: the environment variable NOBODY_SET_THIS is not set",
		"token_env: SHORT":                 "the secret in SHORT has fewer than 16 bytes",
		"token_file: " + at("missing"):     at("missing") + " cannot be read: no such file",
		"token_file: " + at("short"):       "has fewer than 16 bytes",
		"token_file: " + at("empty"):       "empty is empty",
		"token_file: " + at("lines"):       "has more than one line",
		"token_file: " + at("large"):       "has more than 4096 bytes",
		"token_file: " + filepath.Dir(dir): "",
	} {
		path := at("drawgate.yaml")
		write(t, path, fileOf(1)+"server:\n  tokens: [{role: take, "+named+"}]\n")
		if _, err := config.Resolve(nil, config.Flags{Config: path, WithoutSecrets: true}); err != nil {
			t.Errorf("%s: without secrets: %v", named, err)
		}
		_, err := config.Resolve([]string{"SHORT=hunter2"}, config.Flags{Config: path})
		if _, ok := errors.AsType[config.Problems](err); !ok || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "hunter2") ||
			!strings.HasPrefix(err.Error(), path+":6:11: server.tokens: ") {
			t.Errorf("%s: got %v, want %q", named, err, want)
		}
	}
	path := at("same.yaml")
	write(t, path, fileOf(1)+"server: {tokens: [{role: take, token_env: A}, {role: read, token_env: B}]}\n")
	_, err := config.Resolve([]string{"A=hunter2-hunter2-hunter2", "B=hunter2-hunter2-hunter2"},
		config.Flags{Config: path})
	if err == nil || !strings.Contains(err.Error(), "tokens 1 and 2 are the same") ||
		strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v", err)
	}
	path = at("hook.yaml")
	write(t, path, fileOf(1)+"telemetry: {webhook: {url_env: HOOK, secret_env: SECRET}}\n")
	for _, wrong := range []string{"ftp://hunter2.example.com", "ftp://hunter2", "hunter2"} {
		_, err = config.Resolve([]string{"HOOK=" + wrong, "SECRET=0123456789abcdef"}, config.Flags{Config: path})
		if err == nil || !strings.Contains(err.Error(),
			"telemetry.webhook: the value of HOOK is not an http or https URL") ||
			strings.Contains(err.Error(), "hunter2") {
			t.Errorf("got %v", err)
		}
	}
	if c, err := config.Resolve([]string{"HOOK=http://h:1", "SECRET=0123456789abcdef"},
		config.Flags{Config: path}); err != nil || c.Telemetry.Webhook.URL != "http://h:1" {
		t.Errorf("a short URL: %v", err)
	}
}

// With the documented flags alone, limits are distributed. While Redis is unavailable each process
// goes on with the whole bucket, with a warning.
//
// req: E6, E7
func TestDistributedByFlags(t *testing.T) {
	t.Parallel()
	environ := []string{
		"ENABLE_DISTRIBUTED_RATE_LIMITING=true", "RATE_LIMIT_REDIS_URL=redis://h/0",
		"RATE_LIMIT_REDIS_PREFIX=rl",
	}
	c := mustResolve(t, environ, config.Flags{})
	p, _ := c.Policy("global")
	if c.Instances != (config.Instances{Number: 1}) || p.Fallback.String() != "share" || c.Prefix != "rl" ||
		len(c.Rules) != 1 || len(c.Warnings) == 0 {
		t.Errorf("got %v instances, %s, warnings %v", c.Instances, c, c.Warnings)
	}
	c = mustResolve(t, append(environ, "DRAWGATE_INSTANCES=4"), config.Flags{})
	if c.Instances.Number != 4 {
		t.Errorf("got %v instances, want what is said", c.Instances)
	}
}

// Every variable changes something, and none that looks like one of ours is unknown.
func TestEveryVariableHasAnEffect(t *testing.T) {
	t.Parallel()
	names := config.Variables()
	slices.Sort(names)
	if diff := cmp.Diff(names, slices.Compact(slices.Clone(names))); diff != "" {
		t.Errorf("a name is there twice: %s", diff)
	}
	for _, name := range []string{
		"RATE_LIMIT_RULES_PATH", "ENABLE_DISTRIBUTED_RATE_LIMITING", "MONITORING_ENABLED", "DRAWGATE_ENABLED",
		"DRAWGATE_LISTEN", "DRAWGATE_ADMIN_TOKEN",
		"QUEUE_MAX_DEPTH", "CIRCUIT_BREAKER_TIMEOUT",
	} {
		if !slices.Contains(names, name) {
			t.Errorf("%s is not known", name)
		}
	}
	c := mustResolve(t, []string{"DRAWGATE_LISTENS=127.0.0.1:1"}, config.Flags{})
	if len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0].Error(),
		`DRAWGATE_LISTENS is not known; did you mean "DRAWGATE_LISTEN"?`) {
		t.Errorf("got %v", c.Warnings)
	}
}
