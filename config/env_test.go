package config_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/internal/calendar"
)

// show writes a configuration for comparison in tests: the store, the prefix, and the limits of
// each policy.
func show(c *config.Config) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s\n", c.Store, c.Prefix)
	for _, o := range c.Explain() {
		if rest, ok := strings.CutPrefix(o.Setting, "policies."); ok && strings.Contains(rest, ".limits.") {
			policy, _, _ := strings.Cut(rest, ".limits.")
			fmt.Fprintf(&b, "%s %s\n", policy, o.Value)
		}
	}
	return b.String()
}

// variables are environment variables, and what show prints of the configuration that they make.
type variables struct{ name, environ, want string }

func fromEnv(t *testing.T, cases []variables) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := config.FromEnv(append(strings.Fields(c.environ), "XDG_STATE_HOME=/state"))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, show(got)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.environ, diff)
			}
		})
	}
}

// The variables of the preset multi-tier alone make a configuration.
//
// req: D4, D3, D1, D12, D10
func TestMultiTierFromEnvironment(t *testing.T) {
	t.Parallel()
	tiers := []struct {
		name, window string
		amount       int
		rest         string // while the store is unavailable long windows are not applied
	}{
		{"minute", "1m", 20, ""},
		{"hour", "1h", 100, ""},
		{"day", "1d", 500, ", fallback: open"},
		{"week", "7d", 2000, ", fallback: open"},
		{"month", "30d", 7500, ", fallback: open"},
	}
	// but returns the policy with other amounts than the preset's; with 0, it leaves the limit out.
	but := func(amounts map[string]int) (rolling, fixed string) {
		for _, l := range tiers {
			if n, ok := amounts[l.name]; ok {
				l.amount = n
			}
			if l.amount > 0 {
				rolling += fmt.Sprintf("multi-tier {name: %s, rolling: %s, amount: %d, precision: exact%s}\n", l.name,
					l.window, l.amount, l.rest)
				fixed += fmt.Sprintf("multi-tier {name: %s, calendar: %[1]s, amount: %d%s}\n", l.name, l.amount, l.rest)
			}
		}
		return rolling, fixed
	}
	all, fixed := but(nil)
	minute30, _ := but(map[string]int{"minute": 30})
	noMinute, _ := but(map[string]int{"minute": 0})
	short, _ := but(map[string]int{"week": 0, "month": 0})
	each, amounts := "", map[string]int{}
	for i, l := range tiers {
		each += fmt.Sprintf("RATE_LIMIT_PER_%s=%d ", strings.ToUpper(l.name), i+1)
		amounts[l.name] = i + 1
	}
	own, ownFixed := but(amounts)
	const sqlite = "sqlite:///state/drawgate/rate_limits.db \n"
	fromEnv(t, []variables{
		{"nothing", "", "memory: \n"},
		{"enabled", "RATE_LIMIT_ENABLED=true", sqlite + all},
		{"enabled in capitals", "RATE_LIMIT_ENABLED=True", sqlite + all},
		{"one limit switches on", "RATE_LIMIT_PER_MINUTE=30", sqlite + minute30},
		{"each limit", each, sqlite + own},
		{"each limit, fixed", each + "RATE_LIMIT_STRATEGY=fixed", sqlite + ownFixed},
		{"off wins", "RATE_LIMIT_ENABLED=false RATE_LIMIT_PER_MINUTE=30", "memory: \n"},
		{"off by 0", "RATE_LIMIT_ENABLED=0 RATE_LIMIT_PER_MINUTE=30", "memory: \n"},
		{"empty is unset", "RATE_LIMIT_ENABLED= RATE_LIMIT_PER_MINUTE=", "memory: \n"},
		{"0 leaves a period out", "RATE_LIMIT_PER_MINUTE=0", sqlite + noMinute},
		{
			"empty leaves a period out", "RATE_LIMIT_ENABLED=true RATE_LIMIT_PER_WEEK= RATE_LIMIT_PER_MONTH=0",
			sqlite + short,
		},
		{"rolling", "RATE_LIMIT_ENABLED=true RATE_LIMIT_STRATEGY=rolling", sqlite + all},
		{"fixed", "RATE_LIMIT_ENABLED=true RATE_LIMIT_STRATEGY=fixed", sqlite + fixed},
		{
			"absolute path", "RATE_LIMIT_ENABLED=true RATE_LIMIT_STORAGE_PATH=/app/data/rate_limits.db",
			"sqlite:///app/data/rate_limits.db \n" + all,
		},
		{
			"relative path", "RATE_LIMIT_ENABLED=true RATE_LIMIT_STORAGE_PATH=data/x.db",
			"sqlite:///state/drawgate/data/x.db \n" + all,
		},
		{
			"a path alone switches nothing on",
			"RATE_LIMIT_STORAGE_PATH=/x.db RATE_LIMIT_STRATEGY=fixed CONCURRENCY_LIMIT=5", "memory: \n",
		},
		{
			"concurrency", "RATE_LIMIT_ENABLED=true CONCURRENCY_LIMIT=5",
			sqlite + all + "multi-tier {name: concurrency, concurrency: 5}\n",
		},
		{"no concurrency", "RATE_LIMIT_ENABLED=true CONCURRENCY_LIMIT=", sqlite + all},
		{
			"the store's own variable", "RATE_LIMIT_ENABLED=true RATE_LIMIT_STORAGE_PATH=/x.db DRAWGATE_STORE=memory:",
			"memory: \n" + all,
		},
		{
			"on Redis", "RATE_LIMIT_ENABLED=true DRAWGATE_STORE=redis://h/1 RATE_LIMIT_REDIS_PREFIX=rl",
			"redis://h/1 rl\n" + all,
		},
	})
}

// Each calendar window has a variable, by which multi-tier limits it, or is named here.
func TestEveryWindowHasAVariable(t *testing.T) {
	t.Parallel()
	var without []string // words of windows
	for u := calendar.Minute; u < calendar.End; u++ {
		if slices.Contains(without, u.String()) {
			continue
		}
		variable := "RATE_LIMIT_PER_" + strings.ToUpper(u.String())
		c, err := config.FromEnv([]string{variable + "=77", "RATE_LIMIT_STRATEGY=fixed", "XDG_STATE_HOME=/state"})
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("{name: %s, calendar: %[1]s, amount: 77", u); !strings.Contains(show(c), want) ||
			len(c.Warnings) > 0 {
			t.Errorf("%s=77: %v, %s, want %s", variable, c.Warnings, show(c), want)
		}
	}
}

// req: C10, C2
func TestGeminiFromEnvironment(t *testing.T) {
	t.Parallel()
	flash := func(rpm, rpd string) string {
		return "gemini-2.5-flash {name: rpm, rolling: 1m, amount: " + rpm + "}\n" +
			"gemini-2.5-flash {name: rpd, calendar: day, amount: " + rpd + "}\n"
	}
	pro := func(rpm, rpd string) string { return strings.ReplaceAll(flash(rpm, rpd), "flash", "pro") }
	// without the headroom: what a variable says is after the margin
	with := func(n string) string { return n + ", margin: 2s, headroom: 20%" }
	day := func(n, rest string) string { return n + ", zone: America/Los_Angeles" + rest }
	const margin, redis = ", margin: 2s", "redis://localhost:6379/3 mb_sparrow_rl\n"
	fromEnv(t, []variables{
		{
			"as documented",
			"GEMINI_FLASH_RPM_LIMIT=8 GEMINI_FLASH_RPD_LIMIT=200 GEMINI_PRO_RPM_LIMIT=4 GEMINI_PRO_RPD_LIMIT=80 " +
				"RATE_LIMIT_REDIS_URL=redis://localhost:6379/3 RATE_LIMIT_REDIS_PREFIX=mb_sparrow_rl CIRCUIT_BREAKER_ENABLED=true " +
				"CIRCUIT_BREAKER_FAILURE_THRESHOLD=5 CIRCUIT_BREAKER_TIMEOUT=60 MONITORING_ENABLED=true",
			redis + flash("8"+margin, day("200", margin)) + pro("4"+margin, day("80", margin)),
		},
		{
			"one variable", "GEMINI_PRO_RPM_LIMIT=3",
			redis + flash(with("10"), day("250", margin+", headroom: 20%")) +
				pro("3"+margin, day("100", margin+", headroom: 20%")),
		},
		{
			"another Redis", "GEMINI_PRO_RPM_LIMIT=3 RATE_LIMIT_REDIS_URL=rediss://h:1/2 RATE_LIMIT_REDIS_PREFIX=x:y",
			"rediss://h:1/2 x:y\n" + flash(with("10"), day("250", margin+", headroom: 20%")) +
				pro("3"+margin, day("100", margin+", headroom: 20%")),
		},
		{"empty is unset", "GEMINI_PRO_RPM_LIMIT= CIRCUIT_BREAKER_ENABLED=", "memory: \n"},
	})
	// The required margin of 20 % gives 8/200 and 4/80.
	c, err := config.FromEnv([]string{"GEMINI_FLASH_RPM_LIMIT=8"})
	if err != nil {
		t.Fatal(err)
	}
	pro25, _ := c.Policy("gemini-2.5-pro")
	plan, err := pro25.Compile()
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int64{4, 80} {
		if got := plan.Max(i, 0); got != want {
			t.Errorf("%s: %d are effective, want %d", pro25.Limits[i].Name, got, want)
		}
	}
}

// req: E6
func TestGlobalFromEnvironment(t *testing.T) {
	t.Parallel()
	fromEnv(t, []variables{
		{"off", "ENABLE_DISTRIBUTED_RATE_LIMITING=off", "memory: \n"},
		{
			"in memory", "RATE_LIMIT_GLOBAL_CAPACITY=30",
			"memory: rl\nglobal {name: global, bucket: 1m, amount: 60, burst: 30}\n",
		},
		{
			"not distributed", "RATE_LIMIT_GLOBAL_CAPACITY=30 RATE_LIMIT_REDIS_URL=redis://h",
			"memory: rl\nglobal {name: global, bucket: 1m, amount: 60, burst: 30}\n",
		},
		{
			"distributed", "ENABLE_DISTRIBUTED_RATE_LIMITING=true RATE_LIMIT_REDIS_URL=redis://host:6379/0",
			"redis://host:6379/0 rl\nglobal {name: global, bucket: 1m, amount: 60, burst: 60}\n",
		},
		{
			"half a token a second", "RATE_LIMIT_GLOBAL_REFILL_PER_SEC=0.5",
			"memory: rl\nglobal {name: global, bucket: 1m, amount: 30, burst: 60}\n",
		},
		{
			"one an hour", "RATE_LIMIT_GLOBAL_REFILL_PER_SEC=0.0025",
			"memory: rl\nglobal {name: global, bucket: 1h, amount: 9, burst: 60}\n",
		},
		{
			"odd", "RATE_LIMIT_GLOBAL_REFILL_PER_SEC=0.333333",
			"memory: rl\nglobal {name: global, bucket: 277h46m40s, amount: 333333, burst: 60}\n",
		},
		{
			"fast", "RATE_LIMIT_GLOBAL_REFILL_PER_SEC=1000 RATE_LIMIT_GLOBAL_CAPACITY=5000",
			"memory: rl\nglobal {name: global, bucket: 1m, amount: 60000, burst: 5000}\n",
		},
		{
			"multi-tier too",
			"ENABLE_DISTRIBUTED_RATE_LIMITING=1 RATE_LIMIT_REDIS_URL=redis://h RATE_LIMIT_PER_MINUTE=1 RATE_LIMIT_PER_HOUR= RATE_LIMIT_PER_DAY= RATE_LIMIT_PER_WEEK= RATE_LIMIT_PER_MONTH=",
			"redis://h rl\nmulti-tier {name: minute, rolling: 1m, amount: 1, precision: exact}\nglobal {name: global, bucket: 1m, amount: 60, burst: 60}\n",
		},
	})
}

// req: B8, B2
func TestHTTPAPIFromEnvironment(t *testing.T) {
	t.Parallel()
	const documented = "ip {name: rate, bucket: 1m, amount: 10, burst: 5}\napi {name: rate, bucket: 1m, amount: 100, burst: 20}\n" +
		"user {name: rate, bucket: 1m, amount: 20, burst: 10}\ntask {name: rate, bucket: 1m, amount: 50, burst: 15}\n"
	fromEnv(t, []variables{
		{
			"as documented",
			"IP_REQUESTS_PER_MINUTE=10 IP_BURST_SIZE=5 API_REQUESTS_PER_MINUTE=100 API_BURST_SIZE=20 USER_REQUESTS_PER_MINUTE=20 " +
				"USER_BURST_SIZE=10 QUEUE_MAX_DEPTH=50 QUEUE_RETRY_DELAY_SECONDS=60 RATE_LIMIT_RETRY_MAX_ATTEMPTS=3 RATE_LIMIT_RETRY_BACKOFF_MULTIPLIER=2.0",
			"memory: ratelimit\n" + documented,
		},
		{
			"one variable", "API_BURST_SIZE=30 RATE_LIMIT_REDIS_URL=redis://h/1",
			"redis://h/1 ratelimit\n" + strings.Replace(documented, "burst: 20", "burst: 30", 1),
		},
		{"the queue's alone", "QUEUE_MAX_DEPTH=50", "memory: \n"},
	})
	for environ, queue := range map[string]int{"IP_BURST_SIZE=6": 50, "IP_BURST_SIZE=6 QUEUE_MAX_DEPTH=7": 7} {
		c, err := config.FromEnv(strings.Fields(environ))
		if err != nil {
			t.Fatal(err)
		}
		if p, ok := c.Policy("task"); !ok || p.Wait.MaxWait != 5*time.Minute || p.Wait.Queue != queue {
			t.Errorf("%s: a task waits up to %v and behind %d others, want 5m and %d", environ, p.Wait.MaxWait,
				p.Wait.Queue, queue)
		}
	}
}

// Variables without effect cause a warning, because whoever sets them relies on them.
//
// req: C10, B8
func TestVariablesWithoutEffect(t *testing.T) {
	t.Parallel()
	const breaker, queue = "They are about calls to an upstream, and the configuration has no gateway",
		"only programs with a task queue use it"
	for environ, want := range map[string][]string{
		"CIRCUIT_BREAKER_ENABLED=true": {"no effect: CIRCUIT_BREAKER_ENABLED. " +
			breaker},
		"CIRCUIT_BREAKER_FAILURE_THRESHOLD=5 CIRCUIT_BREAKER_TIMEOUT=60": {"no effect: CIRCUIT_BREAKER_FAILURE_THRESHOLD, CIRCUIT_BREAKER_TIMEOUT. " + breaker},
		"CIRCUIT_BREAKER_ENABLED=false CIRCUIT_BREAKER_TIMEOUT=60":       nil, // there is none, as is asked
		"QUEUE_RETRY_DELAY_SECONDS=60":                                   {"environment: QUEUE_RETRY_DELAY_SECONDS: queue.retry_delay has no effect by itself: " + queue},
		"RATE_LIMIT_RETRY_MAX_ATTEMPTS=3":                                {"queue.max_attempts has no effect by itself"},
		"RATE_LIMIT_RETRY_BACKOFF_MULTIPLIER=2.0":                        {"queue.multiplier has no effect by itself"},
		"QUEUE_MAX_DEPTH=50":                                             {"queue.max_depth has no effect by itself"},
		// it bounds how many callers wait for task
		"QUEUE_MAX_DEPTH=50 API_BURST_SIZE=20": nil,
	} {
		c, err := config.FromEnv(strings.Fields(environ))
		if err != nil {
			t.Fatal(err)
		}
		if len(c.Warnings) != len(want) || len(want) == 1 && !strings.Contains(c.Warnings[0].Error(), want[0]) {
			t.Errorf("%s: got %v, want %q", environ, c.Warnings, want)
		}
	}
}

// The variables of the breaker take precedence over the file, for all upstreams; what they do not
// set stays as it is.
//
// req: C10
func TestBreakerOfUpstreamsFromEnvironment(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	write(t, path, fileOf(1)+`
gateway:
  upstreams:
    openai: {models: [{model: "*", policy: a}], breaker: {failures: 9, successes: 4}}
    gemini: {models: [{model: "*", policy: a}], breaker: {enabled: false, open: 3s}}
  keys: [{name: a, sha256: "`+strings.Repeat("1", 64)+`"}]
`)
	for environ, want := range map[string][2]config.Breaker{
		"":                             {{Failures: 9, Successes: 4}, {Off: true, Open: 3 * time.Second}},
		"CIRCUIT_BREAKER_ENABLED=true": {{Failures: 9, Successes: 4}, {Open: 3 * time.Second}},
		"CIRCUIT_BREAKER_ENABLED=false CIRCUIT_BREAKER_TIMEOUT=60": {
			{Off: true, Failures: 9, Successes: 4, Open: time.Minute}, {Off: true, Open: time.Minute},
		},
		"CIRCUIT_BREAKER_FAILURE_THRESHOLD=5 CIRCUIT_BREAKER_TIMEOUT=7": {
			{Failures: 5, Successes: 4, Open: 7 * time.Second}, {Off: true, Failures: 5, Open: 7 * time.Second},
		},
	} {
		c := mustResolve(t, strings.Fields(environ), config.Flags{Config: path})
		for i, u := range c.Gateway.Upstreams {
			if u.Breaker != want[i] {
				t.Errorf("%s: the breaker of %s is %+v, want %+v", environ, u.Name, u.Breaker, want[i])
			}
		}
		for _, p := range c.Warnings {
			if strings.Contains(p.Error(), "no effect") {
				t.Errorf("%s: got the warning %v", environ, p)
			}
		}
	}
}

// All mistakes in the environment are reported together.
//
// req: D4, E6, C10
func TestEnvironmentMistakes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, environ string
		want          []string
	}{
		{"numbers", "RATE_LIMIT_PER_MINUTE=x RATE_LIMIT_PER_HOUR=-1 RATE_LIMIT_PER_DAY=1.5 RATE_LIMIT_PER_WEEK=99999999999999 RATE_LIMIT_PER_MONTH=0x10", []string{
			`RATE_LIMIT_PER_MINUTE="x" is not a whole number`, `RATE_LIMIT_PER_HOUR="-1" is not between 0 and`,
			`RATE_LIMIT_PER_DAY="1.5" is not a whole`,
			`RATE_LIMIT_PER_WEEK="99999999999999" is not between`, `RATE_LIMIT_PER_MONTH="0x10" is not a whole`,
		}},
		{"words", "RATE_LIMIT_ENABLED=maybe RATE_LIMIT_PER_DAY=5 RATE_LIMIT_STRATEGY=sliding ENABLE_DISTRIBUTED_RATE_LIMITING=2", []string{
			`RATE_LIMIT_ENABLED="maybe" is neither true nor false`,
			`RATE_LIMIT_STRATEGY="sliding" is neither rolling nor fixed`,
			`ENABLE_DISTRIBUTED_RATE_LIMITING="2" is neither`,
		}},
		{
			"nothing left",
			"RATE_LIMIT_ENABLED=true RATE_LIMIT_PER_MINUTE=0 RATE_LIMIT_PER_HOUR= RATE_LIMIT_PER_DAY=0 RATE_LIMIT_PER_WEEK=0 RATE_LIMIT_PER_MONTH=0",
			[]string{
				"every period is 0 or empty",
			},
		},
		{
			"gemini", "GEMINI_FLASH_RPM_LIMIT=0 GEMINI_PRO_RPD_LIMIT=ten",
			[]string{`GEMINI_FLASH_RPM_LIMIT="0" is not between 1`, `GEMINI_PRO_RPD_LIMIT="ten" is not a whole`},
		},
		{
			"refill", "RATE_LIMIT_GLOBAL_REFILL_PER_SEC=0",
			[]string{`RATE_LIMIT_GLOBAL_REFILL_PER_SEC="0" is not a number above 0`},
		},
		{"refill too fine", "RATE_LIMIT_GLOBAL_REFILL_PER_SEC=0.0000001", []string{"six decimals"}},
		{"refill in exponents", "RATE_LIMIT_GLOBAL_REFILL_PER_SEC=1/3", []string{"six decimals"}},
		{
			"capacity", "RATE_LIMIT_GLOBAL_CAPACITY=1000000000000 RATE_LIMIT_GLOBAL_REFILL_PER_SEC=0.333333",
			[]string{"RATE_LIMIT_GLOBAL_CAPACITY, RATE_LIMIT_GLOBAL_REFILL_PER_SEC: ", "too fine"},
		},
		{
			"distributed without Redis", "ENABLE_DISTRIBUTED_RATE_LIMITING=true",
			[]string{"ENABLE_DISTRIBUTED_RATE_LIMITING=true needs RATE_LIMIT_REDIS_URL"},
		},
		{
			"store", "DRAWGATE_STORE=mysql://u:hunter2@h/db",
			[]string{`DRAWGATE_STORE: store "mysql://u:xxxxx@h/db" is not of a known kind`},
		},
		{
			"Redis URL", "ENABLE_DISTRIBUTED_RATE_LIMITING=true RATE_LIMIT_REDIS_URL=hunter2",
			[]string{"environment: RATE_LIMIT_REDIS_URL: store"},
		},
		{
			"prefix", "DRAWGATE_STORE=redis://h RATE_LIMIT_REDIS_PREFIX=a*b",
			[]string{`RATE_LIMIT_REDIS_PREFIX: prefix "a*b" is not`},
		},
		{
			"two stores named",
			"RATE_LIMIT_PER_DAY=5 RATE_LIMIT_STORAGE_PATH=/x.db ENABLE_DISTRIBUTED_RATE_LIMITING=true RATE_LIMIT_REDIS_URL=redis://u:hunter2@h",
			[]string{
				"two stores are named, sqlite:///x.db (environment: RATE_LIMIT_STORAGE_PATH) and redis://u:xxxxx@h (environment: RATE_LIMIT_REDIS_URL), but a process has only one: set DRAWGATE_STORE",
			},
		},
		{
			"two presets' stores", "XDG_STATE_HOME=/state RATE_LIMIT_PER_DAY=5 GEMINI_PRO_RPD_LIMIT=5",
			[]string{"two stores are named, sqlite:///state/drawgate/rate_limits.db (preset multi-tier) and redis://localhost:6379/3 (preset gemini-free)"},
		},
		{
			"http", "IP_BURST_SIZE=0 USER_REQUESTS_PER_MINUTE=many",
			[]string{`IP_BURST_SIZE="0" is not between 1`, `USER_REQUESTS_PER_MINUTE="many" is not`},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := config.FromEnv(strings.Fields(c.environ))
			if _, ok := errors.AsType[config.Problems](err); got != nil || !ok {
				t.Fatalf("FromEnv = %v, %v, want Problems", got, err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q", err, want)
				}
			}
			if c.name != "Redis URL" && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("a password is shown in %v", err)
			}
		})
	}
}

func TestMisspeltVariableIsAWarning(t *testing.T) {
	t.Parallel()
	c, err := config.FromEnv([]string{
		"RATE_LIMIT_PER_MONT=5", "GEMINI_API_KEY=x", "RATE_LIMIT_RULES_PATH=x",
		"HOME=/x",
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Warnings) != 1 ||
		c.Warnings[0].Error() != `environment: RATE_LIMIT_PER_MONT is not known; did you mean "RATE_LIMIT_PER_MONTH"?` {
		t.Errorf("got %v", c.Warnings)
	}
	for _, name := range []string{
		"IP_REQUEST_PER_MINUTE", "USER_BURSTSIZE", "QUEUE_MAXDEPTH",
		"CIRCUIT_BREAKER_TIMEOUTS",
	} {
		c, err := config.FromEnv([]string{name + "=5"})
		if err != nil || len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0].Error(),
			name+` is not known; did you mean "`) {
			t.Errorf("%s: got %v, %v", name, c.Warnings, err)
		}
	}
	// The names of secrets are up to the file.
	path := filepath.Join(t.TempDir(), "drawgate.yaml")
	file := "telemetry: {salt_env: DRAWGATE_SALT}\npolicies: {api: {limits: [{name: rps, rolling: 1s, amount: 300}]}}\n"
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err = config.Resolve([]string{"DRAWGATE_SALT=0123456789abcdef"}, config.Flags{Config: path})
	if err != nil || len(c.Warnings) > 0 {
		t.Errorf("got %v, %v", c.Warnings, err)
	}
	// What resembles none of them would be a limit all the same.
	c, err = config.FromEnv([]string{"RATE_LIMIT_PER_FORTNIGHT=5"})
	if err != nil || len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0].Error(),
		"RATE_LIMIT_PER_FORTNIGHT is not known; the variables are RATE_LIMIT_PER_MINUTE, ") {
		t.Errorf("got %v, %v", c.Warnings, err)
	}
}

func TestVariablesWithoutEffectAreWarnings(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"CONCURRENCY_LIMIT=4", "RATE_LIMIT_STRATEGY=fixed", "RATE_LIMIT_STORAGE_PATH=x.db"} {
		for more, want := range map[string]int{
			"": 1, "RATE_LIMIT_ENABLED=true": 0, "RATE_LIMIT_ENABLED=false": 0,
			"RATE_LIMIT_PER_DAY=5": 0,
		} {
			c, err := config.FromEnv([]string{name, more})
			if err != nil {
				t.Fatal(err)
			}
			if len(c.Warnings) != want || want == 1 && !strings.Contains(c.Warnings[0].Message,
				"has no effect until RATE_LIMIT_ENABLED=true") {
				t.Errorf("%s %s: got %v", name, more, c.Warnings)
			}
		}
	}
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "drawgate.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Flags take precedence over the environment, the environment over the file, and the file over
// defaults. The source of each value is known.
func TestResolveOrder(t *testing.T) {
	t.Parallel()
	path := writeFile(t,
		"store: sqlite:file.db\nprefix: file\npolicies:\n  multi-tier:\n    limits:\n      - {name: mine, rolling: 1m, amount: 1}\n")
	bare := writeFile(t, "policies: {a: {limits: [{name: a, rolling: 1m, amount: 1}]}}")
	redis := writeFile(t, "store: redis://file\nprefix: file")
	nextTo := func(file, name string) string { return "sqlite://" + filepath.Join(filepath.Dir(file), name) }
	for _, c := range []struct {
		name, environ string
		flags         config.Flags
		want, from    string
	}{
		{"file", "", config.Flags{Config: path}, nextTo(path, "file.db"), path + ":1:8"},
		{"file by variable", "DRAWGATE_CONFIG=" + path, config.Flags{}, nextTo(path, "file.db"), path + ":1:8"},
		{
			"flag's file over the variable's", "DRAWGATE_CONFIG=/missing",
			config.Flags{Config: path},
			nextTo(path, "file.db"), path + ":1:8",
		},
		{"nobody says", "", config.Flags{Config: bare}, "memory:", "default"},
		{
			"environment over file", "DRAWGATE_STORE=sqlite:env.db",
			config.Flags{Config: path},
			nextTo(path, "env.db"),
			"environment: DRAWGATE_STORE",
		},
		{
			"preset's variable over file", "RATE_LIMIT_PER_DAY=1 RATE_LIMIT_STORAGE_PATH=p.db",
			config.Flags{Config: path},
			nextTo(path, "p.db"), "environment: RATE_LIMIT_STORAGE_PATH",
		},
		{
			"file over a preset's default", "RATE_LIMIT_PER_DAY=1",
			config.Flags{Config: path},
			nextTo(path, "file.db"),
			path + ":1:8",
		},
		{
			"preset's default over none", "RATE_LIMIT_PER_DAY=1",
			config.Flags{Config: bare},
			nextTo(bare, "rate_limits.db"), "preset multi-tier",
		},
		{
			"Redis named by the file", "RATE_LIMIT_REDIS_URL=redis://env",
			config.Flags{Config: redis},
			"redis://env",
			"environment: RATE_LIMIT_REDIS_URL",
		},
		{
			"flag over all", "DRAWGATE_STORE=sqlite:env.db",
			config.Flags{Config: path, Store: "memory:"},
			"memory:",
			"flag --store",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := config.Resolve(strings.Fields(c.environ), c.flags)
			if err != nil {
				t.Fatal(err)
			}
			if o := got.Explain()[0]; got.Store != c.want || o.Setting != "store" || o.From != c.from {
				t.Errorf("store %q from %q, want %q from %q", got.Store, o.From, c.want, c.from)
			}
		})
	}
}

func TestResolvePolicies(t *testing.T) {
	t.Parallel()
	path := writeFile(t,
		"store: redis://h\npolicies:\n  gemini-2.5-pro:\n    limits:\n      - {name: tpm, rolling: 1m, amount: 1}\n"+
			"  gemini-2.5-flash:\n    limits:\n      - {name: tpm, rolling: 1m, amount: 2}\n  mine:\n    limits:\n      - {name: rpm, rolling: 1m, amount: 3}\n")
	c, err := config.Resolve([]string{"GEMINI_PRO_RPM_LIMIT=4"}, config.Flags{Config: path})
	if err != nil {
		t.Fatal(err)
	}
	// The policy that a variable is about replaces the file's. A policy that only the preset adds
	// does not.
	want := []string{
		"policies.gemini-2.5-pro.limits.rpm from environment: GEMINI_PRO_RPM_LIMIT",
		"policies.gemini-2.5-pro.limits.rpd from preset gemini-free",
		"policies.gemini-2.5-flash.limits.tpm from " + path + ":8:9", "policies.mine.limits.rpm from " + path + ":11:9",
	}
	var got []string
	for _, o := range c.Explain() {
		if strings.Contains(o.Setting, ".limits.") {
			got = append(got, o.Setting+" from "+o.From)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if !slices.ContainsFunc(c.Warnings, func(p config.Problem) bool {
		return strings.Contains(p.Message, `GEMINI_PRO_RPM_LIMIT replaces policy "gemini-2.5-pro"`)
	}) {
		t.Errorf("no warning of the replaced policy in %v", c.Warnings)
	}
	bad := writeFile(t, "polices: {}")
	_, err = config.Resolve([]string{"RATE_LIMIT_PER_DAY=x", "DRAWGATE_STORE=x"}, config.Flags{Config: bad})
	for _, want := range []string{
		`unknown key "polices"`, `RATE_LIMIT_PER_DAY="x"`,
		`DRAWGATE_STORE: store "x" is not a URL`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if _, err := config.Resolve(nil, config.Flags{Config: "/missing/drawgate.yaml"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Resolve of a missing file = %v", err)
	}
}

// Every preset is read without problems, and has the required limits.
//
// req: C2, B2, D1, E6
func TestPresetsHaveTheRequiredLimits(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		config.GeminiTranslation: " \ngemini-translation {name: rpm, rolling: 1m, amount: 5, margin: 2s}\n" +
			"gemini-translation {name: tpm, unit: input_tokens, rolling: 1m, amount: 250000, margin: 2s}\n" +
			"gemini-translation {name: rpd, calendar: day, amount: 25, zone: America/Los_Angeles, margin: 2s, headroom: 1}\n",
		config.GeminiTranslationBucket: " \ngemini-translation-bucket {name: rpm, bucket: 1m, amount: 5, burst: 5}\n" +
			"gemini-translation-bucket {name: tpm, unit: input_tokens, bucket: 1m, amount: 250000, burst: 250000}\n" +
			"gemini-translation-bucket {name: rpd, calendar: day, amount: 25, zone: America/Los_Angeles, headroom: 1}\n",
	} {
		data, err := config.Preset(name)
		if err != nil {
			t.Fatal(err)
		}
		c, problems := config.Parse(name, data)
		if len(problems) > 0 {
			t.Fatal(config.Problems(problems))
		}
		if diff := cmp.Diff(want, show(c)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if p, _ := c.Policy(name); !slices.Equal(p.Wait.Backoff,
			[]time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second}) {
			t.Errorf("%s waits %v", name, p.Wait.Backoff)
		}
	}
	for _, name := range config.Presets() {
		data, err := config.Preset(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, problems := config.Parse(name, data); len(problems) > 0 {
			t.Error(config.Problems(problems))
		}
	}
	if _, err := config.Preset("multitier"); err == nil || !strings.Contains(err.Error(),
		`did you mean "multi-tier"?`) {
		t.Errorf("Preset(multitier) = %v", err)
	}
}

// TestVariablesOfAnotherServerAreListed: who comes from envoyproxy/ratelimit would believe that
// they have an effect.
func TestVariablesOfAnotherServerAreListed(t *testing.T) {
	t.Parallel()
	c, err := config.FromEnv([]string{
		"REDIS_URL=localhost:6379", "SHADOW_MODE=true", "RUNTIME_ROOT=/data",
		"LIMIT_LIMIT_HEADER=",
	})
	const want = "environment: variables of envoyproxy/ratelimit have no effect: RUNTIME_ROOT (here: envoy.configs), SHADOW_MODE (here: envoy.shadow), " +
		"REDIS_URL (here: store); write them as settings in the file: see docs/envoy.md"
	if err != nil || len(c.Warnings) != 1 || c.Warnings[0].Error() != want {
		t.Errorf("got %v, %v", c.Warnings, err)
	}
	if c, err = config.FromEnv([]string{"REDIS_URL=localhost:6379", "GRPC_PORT=8081"}); err != nil ||
		len(c.Warnings) > 0 {
		t.Errorf("variables that many programs have: got %v, %v", c.Warnings, err)
	}
}
