package config_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/engine/rules"
)

const openFile = `
store: %q
policies: {api: {limits: [{name: rpd, rolling: 24h, amount: %d}]}}
rules: [{apply: [{policy: api, key: user}]}]
api_keys: {classes: {gold: ["sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"]}}
`

func writeOpenFile(t *testing.T, path, store string, amount int) {
	t.Helper()
	if err := os.WriteFile(path, fmt.Appendf(nil, openFile, store, amount), 0o600); err != nil {
		t.Fatal(err)
	}
}

// takesOne takes one request of ann's.
func takesOne(ctx context.Context, t *testing.T, c *config.Runtime) bool {
	t.Helper()
	res, err := c.Engine.Take(ctx, &engine.Request{Attributes: &rules.Attributes{User: "ann"}})
	if err != nil {
		t.Fatal(err)
	}
	return res.Decision.Allowed
}

// Open decides by the file, follows its changes, and keeps counts in the store that the file names.
//
// req: E3
func TestOpenDecidesByTheFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "drawgate.yaml")
	writeOpenFile(t, path, "sqlite:state.db", 1)
	c, err := config.Open(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.Guard == nil {
		t.Error("there is no guard in front of a file")
	}
	if class := c.Class(http.Header{"X-Api-Key": {"secret"}}); class != "gold" {
		t.Errorf("class %q, want gold", class)
	}
	if class := c.ClassOf(map[string]string{"x-api-key": "secret"}); class != "gold" {
		t.Errorf("class of a descriptor: %q, want gold", class)
	}
	if first, second := takesOne(t.Context(), t, c), takesOne(t.Context(), t, c); !first || second {
		t.Errorf("of an amount of 1: %v, %v, want true, false", first, second)
	}
	w := httptest.NewRecorder()
	c.Scrape.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	if !strings.Contains(w.Body.String(), `drawgate_decisions_total{outcome="allowed",policy="api"} 1`) {
		t.Errorf("the metrics do not show the decision:\n%s", w.Body)
	}
	writeOpenFile(t, path, "sqlite:state.db", 2)
	for c.Config().Policies[0].Limits[0].Amount != 2 {
		time.Sleep(time.Millisecond) // the test's deadline ends it
	}
	if !takesOne(t.Context(), t, c) {
		t.Error("a larger amount is not in force")
	}
	writeOpenFile(t, path, "sqlite:other.db", 2)
	if restart, err := c.Reload(t.Context()); err != nil || len(restart) != 1 || restart[0] != "store" {
		t.Errorf("another store: restart of %q, %v, want store", restart, err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if _, err := c.Engine.Take(t.Context(),
		&engine.Request{Attributes: &rules.Attributes{User: "ann"}}); !errors.Is(err, drawgate.ErrClosed) {
		t.Errorf("after Close: %v, want %v", err, drawgate.ErrClosed)
	}
	writeOpenFile(t, path, "sqlite:state.db", 2)
	again, err := config.Open(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if takesOne(t.Context(), t, again) {
		t.Error("what was counted is forgotten")
	}
}

// After a reload the configuration has the new values with their new places, and the old ones of
// keys that need a restart with their old places.
func TestConfigAfterAReload(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "drawgate.yaml")
	write(t, path, `store: sqlite:one.db
policies: {api: {limits: [{name: rpm, rolling: 1m, amount: 10}]}}
queue: {max_depth: 7}
server: {listen: '127.0.0.1:7000'}
telemetry: {identifiers: 5}
envoy: {windows: rolling, refunds: true}
`)
	c, err := config.Open(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	write(t, path, `# a line more
store: sqlite:two.db
policies: {api: {limits: [{name: rpm, rolling: 1m, amount: 10}]}}
rules: [{name: all, apply: [{policy: api, key: user}]}]
queue:
  max_depth: 8
  retry_delay: 9s
telemetry: {identifiers: 5}
server: {listen: '127.0.0.1:8000'}
envoy: {windows: aligned}
`)
	restart, err := c.Reload(t.Context())
	if err != nil || !slices.Equal(restart, []string{"store", "server", "envoy"}) {
		t.Fatalf("restart of %q, %v", restart, err)
	}
	conf := c.Config()
	if want := (config.Queue{MaxDepth: 8, RetryDelay: 9 * time.Second}); conf.Queue != want {
		t.Errorf("queue %+v, want %+v", conf.Queue, want)
	}
	if n := len(conf.Warnings); n == 0 || !strings.HasPrefix(conf.Warnings[n-1].OneLine(),
		path+":7:16: queue.retry_delay") {
		t.Errorf("warnings %v", conf.Warnings)
	}
	got := map[string]string{}
	for _, o := range conf.Explain() {
		got[o.Setting] = o.Value + " " + strings.TrimPrefix(o.From, path)
	}
	for setting, want := range map[string]string{
		"store":                   "sqlite://" + filepath.Join(dir, "one.db") + " :1:8",
		"policies.api.limits.rpm": "{name: rpm, rolling: 1m, amount: 10} :3:27",
		"rules.all":               "{name: all, apply: [{policy: api, key: user}]} :4:9",
		"queue.max_depth":         "8 :6:14",
		"queue.retry_delay":       "9s :7:16",
		"telemetry.identifiers":   "5 :8:26",
		"server.listen":           `"127.0.0.1:7000" :4:18`,
		"envoy.refunds":           "true :6:36",
		"envoy.windows":           "aligned :10:18",
	} {
		if got[setting] != want {
			t.Errorf("%s is %q, want %q", setting, got[setting], want)
		}
	}
	if paths := conf.RelativePaths(); len(paths) != 1 || paths[0].Value != "sqlite://"+filepath.Join(dir, "one.db") {
		t.Errorf("relative paths %v", paths)
	}
}

// hooked is a log that calls a func before it takes a warning.
type hooked struct {
	slog.Handler
	warned func()
}

func (h *hooked) Enabled(context.Context, slog.Level) bool { return true }

func (h *hooked) Handle(ctx context.Context, r slog.Record) error {
	if r.Level == slog.LevelWarn {
		h.warned()
	}
	return h.Handler.Handle(ctx, r)
}

// startOf starts a Runtime in memory with a configuration of one policy.
func startOf(t *testing.T, o *config.OpenOptions) *config.Runtime {
	t.Helper()
	c, err := config.Start(t.Context(), ofAmount(t, 1), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func ofAmount(t *testing.T, n int) *config.Config {
	t.Helper()
	c, problems := config.Parse("x",
		fmt.Appendf(nil, "warn_every: %dm\npolicies: {api: {limits: [{name: rpd, rolling: 24h, amount: %[1]d}]}}\n", n))
	if problems != nil {
		t.Fatal(problems)
	}
	return c
}

// Of two calls of Use one is the last, for the engine and for the configuration.
func TestUseByTwo(t *testing.T) {
	t.Parallel()
	var c *config.Runtime
	var again atomic.Bool
	log := slog.New(&hooked{slog.DiscardHandler, func() {
		if again.CompareAndSwap(false, true) { // the first Use warns that warn_every needs a restart
			if err := c.Use(ofAmount(t, 3)); err != nil {
				t.Error(err)
			}
		}
	}})
	c = startOf(t, &config.OpenOptions{Logger: log})
	if err := c.Use(ofAmount(t, 2)); err != nil {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		conf, engine := c.Config().Policies[0].Limits[0].Amount,
			c.Engine.Limiter("api").Plan().Policy().Limits[0].Amount
		if conf != engine {
			t.Errorf("the configuration says %d, the engine %d", conf, engine)
		}
	}
	check()
	var all sync.WaitGroup
	for i := range 50 {
		next := ofAmount(t, 10+i)
		all.Go(func() {
			if err := c.Use(next); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	check()
}

// Whoever calls Close finds everything closed after it, even if others call it at the same time.
func TestCloseBySeveral(t *testing.T) {
	t.Parallel()
	c := startOf(t, nil)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			if i%2 == 0 {
				c.Watch(t.Context(), c.Use)
				_, _ = c.Reload(t.Context())
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			if _, err := c.Engine.Take(t.Context(), &engine.Request{Asks: []engine.Ask{{
				Policy: "api",
				Key:    "k",
			}}}); !errors.Is(err, drawgate.ErrClosed) {
				t.Errorf("after Close: %v, want %v", err, drawgate.ErrClosed)
			}
			if _, err := c.Reload(t.Context()); err == nil {
				t.Error("after Close the files are watched")
			}
		})
	}
	all.Wait()
}

// Watch after Close begins nothing, since nothing would end it.
func TestWatchAfterClose(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "drawgate.yaml")
	writeOpenFile(t, path, "memory:", 1)
	opened, err := config.Open(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	started, err := config.Start(t.Context(), opened.Config(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []*config.Runtime{opened, started} {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		c.Watch(t.Context(), c.Use)
		if _, err := c.Reload(t.Context()); err == nil {
			t.Error("the files are watched")
		}
	}
}

// Reload says why nothing can be read again: nothing is watched, or Resolve did not make it.
func TestReloadOfNothing(t *testing.T) {
	t.Parallel()
	c := startOf(t, nil)
	const unwatched = "config: the files are not watched: call Watch before Reload"
	if _, err := c.Reload(t.Context()); err == nil || err.Error() != unwatched {
		t.Errorf("before Watch: %v, want %s", err, unwatched)
	}
	c.Watch(t.Context(), c.Use)
	if _, err := c.Reload(t.Context()); err == nil || !strings.HasPrefix(err.Error(),
		"config: this configuration was not made by Resolve") {
		t.Errorf("of what Parse returned: %v", err)
	}
}

// Open needs policies, because a truncated file must not let everything pass.
func TestOpenNeedsPolicies(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "drawgate.yaml")
	if err := os.WriteFile(path, []byte("store: \"memory:\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Open(t.Context(), path, nil)
	if problems, ok := errors.AsType[config.Problems](err); !ok || c != nil ||
		!strings.Contains(problems.Error(), "there are no policies") {
		t.Errorf("%v, want a problem", err)
	}
}

// Open refuses a configuration whose policies are all in Envoy's files, which it does not load, and
// such a change leaves the old one in force.
func TestOpenNeedsPoliciesOtherThanEnvoys(t *testing.T) {
	t.Parallel()
	const only = "store: \"memory:\"\nenvoy: {configs: [envoy.yaml]}\n"
	dir := t.TempDir()
	write(t, filepath.Join(dir, "envoy.yaml"),
		"domain: edge\ndescriptors: [{key: ip, rate_limit: {unit: minute, requests_per_unit: 3}}]\n")
	path := filepath.Join(dir, "drawgate.yaml")
	refused := func(err error) {
		t.Helper()
		problems, ok := errors.AsType[config.Problems](err)
		if !ok || problems[0].Line != 2 || !strings.Contains(problems.Error(),
			"all policies are in the files of envoy.configs") {
			t.Errorf("%v, want a problem of line 2", err)
		}
	}
	write(t, path, only)
	c, err := config.Open(t.Context(), path, nil)
	if refused(err); c != nil {
		t.Error("there is a Runtime")
	}
	write(t, path, only+"enabled: false\n")
	off, err := config.Open(t.Context(), path, nil)
	if err != nil {
		t.Fatalf("switched off: %v", err)
	}
	defer off.Close()
	writeOpenFile(t, path, "memory:", 1)
	if c, err = config.Open(t.Context(), path, nil); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	write(t, path, only)
	_, err = c.Reload(t.Context())
	if refused(err); len(c.Config().Policies) != 1 {
		t.Error("the policies are gone")
	}
}

// Open logs the warnings of the configuration once. Who calls Start has them, and shows them.
func TestOpenLogsWarnings(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "drawgate.yaml")
	write(t, path, "policies: {api: {limits: [{name: rpm, bucket: 1m, amount: 10}]}}\nqueue: {max_depth: 7}\n")
	var log strings.Builder
	o := &config.OpenOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))}
	c, err := config.Open(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	conf, err := c.Config(), c.Close() // nothing logs after it
	if err != nil || len(conf.Warnings) < 2 {
		t.Fatalf("%d warnings, %v", len(conf.Warnings), err)
	}
	for _, w := range conf.Warnings {
		if n := strings.Count(log.String(), strconv.Quote(w.OneLine())); n != 1 {
			t.Errorf("%s: logged %d times in\n%s", w.OneLine(), n, log.String())
		}
	}
	log.Reset()
	if c, err = config.Start(t.Context(), conf, o); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil || log.Len() > 0 {
		t.Errorf("Start logged %q, %v", log.String(), err)
	}
}

// Open says which limits an outage switches off: those of the preset of document D, for example.
//
// req: D10
func TestOpenSaysWhatAnOutageSwitchesOff(t *testing.T) {
	t.Parallel()
	text, err := config.Preset(config.MultiTier)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "drawgate.yaml")
	write(t, path, string(text))
	var log strings.Builder
	c, err := config.Open(t.Context(), path, &config.OpenOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil || !strings.Contains(log.String(),
		`limits="multi-tier.day, multi-tier.week, multi-tier.month"`) {
		t.Errorf("%v, logged %s", err, log.String())
	}
}

// The milestones of a budget that the log has are those of what calls have used, not of what they
// hold meanwhile.
//
// req: C11
func TestBudgetIsReportedByWhatIsUsed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "drawgate.yaml")
	write(t, path, "policies: {team: {limits: [{name: budget, unit: usd_micros, calendar: month, amount: 1000}]}}\n")
	for used, want := range map[int64]string{10: "", 850: "has used 80% of limit"} {
		var log strings.Builder
		c, err := config.Open(t.Context(), path, &config.OpenOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		r, err := c.Engine.Take(t.Context(), &engine.Request{
			Asks: []engine.Ask{{Policy: "team", Key: "red", Costs: []drawgate.Cost{drawgate.Units("usd_micros", 990)}}},
			Hold: time.Minute,
		})
		if err == nil {
			err = r.Settle(t.Context(), drawgate.Units("usd_micros", used))
		}
		if err = errors.Join(err, c.Close()); err != nil {
			t.Fatal(err)
		}
		text := log.String()
		if !strings.Contains(text, want) || want == "" && strings.Contains(text, "has used") ||
			strings.Contains(text, "95%") {
			t.Errorf("%d of 1000 are used: logged %q", used, text)
		}
	}
}

// Open registers its metrics with the program's own, and can do so again after Close.
func TestOpenRegistersMetrics(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "drawgate.yaml")
	writeOpenFile(t, path, "memory:", 1)
	reg := prometheus.NewRegistry()
	for i := range 2 {
		c, err := config.Open(t.Context(), path, &config.OpenOptions{Registerer: reg})
		if err != nil {
			t.Fatalf("time %d: %v", i+1, err)
		}
		takesOne(t.Context(), t, c)
		if !hasDecisions(t, reg) || c.Scrape != nil {
			t.Errorf("time %d: the registry has no metrics of decisions", i+1)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A second Runtime cannot use the same Registerer, and leaves the first one's metrics there.
func TestOpenLeavesTheMetricsOfOthers(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "drawgate.yaml")
	writeOpenFile(t, path, "memory:", 1)
	reg := prometheus.NewRegistry()
	first, err := config.Open(t.Context(), path, &config.OpenOptions{Registerer: reg})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	takesOne(t.Context(), t, first)
	second, err := config.Open(t.Context(), path, &config.OpenOptions{Registerer: reg})
	if _, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); !ok || second != nil ||
		!strings.HasPrefix(err.Error(), "config: ") {
		t.Errorf("the second: %v, %v", second, err)
	}
	if !hasDecisions(t, reg) {
		t.Error("the first one's metrics are gone")
	}
}

// hasDecisions reports whether a registry has the metric of decisions.
func hasDecisions(t *testing.T, reg prometheus.Gatherer) bool {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "drawgate_decisions_total" {
			return true
		}
	}
	return false
}

// The gauges of a policy from the environment stay when a second key is used: they are those of
// takes without a key.
//
// req: D7
func TestUsageOfTheEnvironmentsPolicyStays(t *testing.T) {
	t.Parallel()
	c, err := config.FromEnv([]string{"DRAWGATE_STORE=memory:", "RATE_LIMIT_PER_MINUTE=10", "RATE_LIMIT_PER_DAY=100"})
	if err != nil {
		t.Fatal(err)
	}
	r, err := config.Start(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	for _, key := range []string{"default", "default", "user-17"} {
		if d, err := r.Engine.Take(t.Context(), &engine.Request{Asks: []engine.Ask{{
			Policy: config.MultiTier,
			Key:    key,
		}}}); err != nil || !d.Decision.Allowed {
			t.Fatal(d, err)
		}
	}
	w := httptest.NewRecorder()
	r.Scrape.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	for _, name := range []string{"current_usage", "max_allowed", "window_reset_seconds"} {
		if n := strings.Count(w.Body.String(), "\nrate_limit_"+name+"{"); n != 5 {
			t.Errorf("rate_limit_%s has %d series, want 5 periods of the key default", name, n)
		}
	}
	if !regexp.MustCompile(`(?m)^rate_limit_current_usage\{.*period="day",policy="multi-tier"\} 2$`).
		MatchString(w.Body.String()) {
		t.Errorf("it is not the usage of default:\n%s", w.Body)
	}
}

// A file that is damaged at the start has the time of a disk once it was repaired: the guard's time
// does not change.
//
// req: A1, D10
func TestTimeForADamagedFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "q.db")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.FromEnv([]string{"DRAWGATE_STORE=sqlite://" + path, "RATE_LIMIT_PER_MINUTE=10"})
	if err != nil {
		t.Fatal(err)
	}
	r, err := config.Start(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	if got := r.Guard.TakeTime(0); got != 500*time.Millisecond {
		t.Errorf("takes have %v, want 500ms", got)
	}
}
