package config

import (
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/drawgate/drawgate"
)

// The variables, as the presets' users know them.
const (
	envEnabled     = "RATE_LIMIT_ENABLED"
	envPer         = "RATE_LIMIT_PER_" // MINUTE, HOUR, DAY, WEEK, MONTH
	envStorage     = "RATE_LIMIT_STORAGE_PATH"
	envStrategy    = "RATE_LIMIT_STRATEGY"
	envConcurrency = "CONCURRENCY_LIMIT"
	envRedisURL    = "RATE_LIMIT_REDIS_URL"
	envRedisPrefix = "RATE_LIMIT_REDIS_PREFIX"
	envDistributed = "ENABLE_DISTRIBUTED_RATE_LIMITING"
	envCapacity    = "RATE_LIMIT_GLOBAL_CAPACITY"
	envRefill      = "RATE_LIMIT_GLOBAL_REFILL_PER_SEC"
)

// variables are all names that are known, those without effect in this package included: other packages read them.
var variables = []string{
	EnvConfig, EnvStore,
	envEnabled, envPer + "MINUTE", envPer + "HOUR", envPer + "DAY", envPer + "WEEK", envPer + "MONTH", envStorage, envStrategy, envConcurrency,
	"GEMINI_FLASH_RPM_LIMIT", "GEMINI_FLASH_RPD_LIMIT", "GEMINI_PRO_RPM_LIMIT", "GEMINI_PRO_RPD_LIMIT", envRedisURL, envRedisPrefix,
	envDistributed, envCapacity, envRefill,
	"IP_REQUESTS_PER_MINUTE", "IP_BURST_SIZE", "API_REQUESTS_PER_MINUTE", "API_BURST_SIZE", "USER_REQUESTS_PER_MINUTE", "USER_BURST_SIZE",
	"QUEUE_MAX_DEPTH", "QUEUE_RETRY_DELAY_SECONDS", "RATE_LIMIT_RETRY_MAX_ATTEMPTS", "RATE_LIMIT_RETRY_BACKOFF_MULTIPLIER",
	"CIRCUIT_BREAKER_ENABLED", "CIRCUIT_BREAKER_FAILURE_THRESHOLD", "CIRCUIT_BREAKER_TIMEOUT", "MONITORING_ENABLED", "RATE_LIMIT_RULES_PATH",
}

// Variables returns the names of all environment variables that are known.
func Variables() []string { return slices.Clone(variables) }

type policy = drawgate.Policy

// envPolicy is a policy of a preset as the environment has it.
type envPolicy struct {
	policy

	asked   []string // the variables that are about it; none: its preset brings it along
	origins map[string]string
}

// environment is what the variables say.
type environment struct {
	vars map[string]string

	policies    []envPolicy
	problems    Problems
	warnings    Problems
	named       []choice // stores that variables name
	defaults    []choice // stores that the presets in use start from
	prefix      choice   // the prefix that a preset in use starts from
	redisAsked  bool     // a preset or a variable asks for Redis
	distributed bool     // ENABLE_DISTRIBUTED_RATE_LIMITING=true
}

func readEnvironment(environ []string) *environment {
	e := &environment{vars: map[string]string{}}
	for _, s := range environ {
		if name, value, ok := strings.Cut(s, "="); ok {
			e.vars[name] = strings.TrimSpace(value)
		}
	}
	e.distributed = e.boolean(envDistributed, false)
	e.redisAsked = e.distributed
	e.multiTier()
	e.geminiFree()
	e.global()
	e.httpAPI()
	e.misspelt()
	return e
}

// get returns a variable; an empty one is as good as unset, unless said otherwise.
func (e *environment) get(name string) string { return e.vars[name] }

func (e *environment) problem(name, format string, args ...any) {
	e.problems = append(e.problems, e.note("%s=%s %s", name, e.show(name), fmt.Sprintf(format, args...)))
}

func (e *environment) show(name string) string { return shorten(e.vars[name]) }

// set returns those of the names that have a value.
func (e *environment) set(names ...string) []string {
	return slices.DeleteFunc(names, func(n string) bool { return e.vars[n] == "" })
}

func (e *environment) boolean(name string, otherwise bool) bool {
	switch strings.ToLower(e.get(name)) {
	case "":
		return otherwise
	case "true", "1", "yes", "on":
		return true
	case "false", "0", "no", "off":
		return false
	}
	e.problem(name, "is neither true nor false")
	return otherwise
}

// amount returns the variable's number, from least to most, and whether there is one.
func (e *environment) amount(name string, least int64) (int64, bool) {
	if e.get(name) == "" {
		return 0, false
	}
	n, err := parseInteger(e.get(name))
	switch {
	case err != nil:
		e.problem(name, "is not a whole number")
		return 0, false
	case n < least || n > drawgate.MaxAmount:
		e.problem(name, "is not between %d and %d", least, int64(drawgate.MaxAmount))
		return 0, false
	}
	return n, true
}

// use starts from a preset's policies, store and prefix.
func (e *environment) use(name string) map[string]*envPolicy {
	c, problems := preset(name)
	if c == nil {
		e.problems = append(e.problems, problems...)
		return nil
	}
	policies := map[string]*envPolicy{}
	for i := range c.Policies {
		p := envPolicy{policy: c.Policies[i], origins: map[string]string{}}
		maps.Copy(p.origins, c.origins)
		maps.DeleteFunc(p.origins, func(setting, _ string) bool { return !strings.HasPrefix(setting, "policies."+p.Name+".") })
		policies[p.Name] = &p
	}
	if c.Store != Memory {
		e.defaults = append(e.defaults, choice{c.Store, "preset " + name})
	}
	if c.Prefix != "" && e.prefix.url == "" {
		e.prefix = choice{c.Prefix, "preset " + name}
	}
	return policies
}

// add takes a policy over, with the warnings that a file with it would give.
func (e *environment) add(p *envPolicy) {
	if len(p.Limits) == 0 {
		return
	}
	if _, err := p.Compile(); err != nil {
		e.problems = append(e.problems, e.note("%s: %s", strings.Join(p.asked, ", "), strings.ReplaceAll(err.Error(), "drawgate: ", "")))
		return
	}
	for i := range p.Limits {
		for _, c := range cautions(&p.Limits[i]) {
			e.warnings = append(e.warnings, Problem{File: "environment", Message: "policy " + p.Name + ": " + c.message, Hint: c.hint})
		}
	}
	e.policies = append(e.policies, *p)
}

// from notes that a variable says a limit.
func (p *envPolicy) from(limit, variable string) {
	if !slices.Contains(p.asked, variable) {
		p.asked = append(p.asked, variable)
	}
	setting := limitSetting(p.Name, limit)
	if before := p.origins[setting]; strings.HasPrefix(before, "environment: ") {
		p.origins[setting] = before + ", " + variable
		return
	}
	p.origins[setting] = "environment: " + variable
}

// multiTier reads the preset multi-tier: limits per minute, hour, day, week and month.
func (e *environment) multiTier() {
	per := []string{envPer + "MINUTE", envPer + "HOUR", envPer + "DAY", envPer + "WEEK", envPer + "MONTH"}
	asked := e.set(slices.Clone(per)...)
	if !e.boolean(envEnabled, len(asked) > 0) {
		e.idle(asked)
		return
	}
	p := e.use(MultiTier)[MultiTier]
	if p == nil {
		return
	}
	p.asked = append(e.set(envEnabled), asked...)
	wrong := len(e.problems)
	fixed := e.strategy()
	var limits []drawgate.Limit
	for i, l := range p.Limits {
		n, ok := e.amount(per[i], 0)
		_, present := e.vars[per[i]]
		switch {
		case ok && n > 0:
			l.Amount = n
			p.from(l.Name, per[i])
		case present: // 0 or empty: this period is not limited
			continue
		}
		if fixed {
			l = drawgate.Limit{Name: l.Name, Kind: drawgate.Calendar, Every: drawgate.Minute + drawgate.Every(i), Amount: l.Amount}
		}
		limits = append(limits, l)
	}
	if len(limits) == 0 && len(e.problems) == wrong {
		e.problems = append(e.problems, e.note("%s…: every period is 0 or empty, nothing would be limited; to switch off set %s=false", envPer, envEnabled))
	}
	if n, ok := e.amount(envConcurrency, 0); ok && n > 0 {
		limits = append(limits, drawgate.Limit{Name: "concurrency", Kind: drawgate.Concurrency, Amount: n})
		p.from("concurrency", envConcurrency)
	}
	p.Limits = limits
	e.add(p)
	if path := e.get(envStorage); path != "" {
		e.named = append(e.named, choice{sqliteURL(path), "environment: " + envStorage})
	}
}

// idle warns of variables that say how to limit where nothing says that anything is to be limited.
func (e *environment) idle(asked []string) {
	if len(asked) > 0 || e.get(envEnabled) != "" {
		return // it was switched off, which is no oversight
	}
	for _, name := range e.set(envConcurrency, envStrategy, envStorage) {
		e.warnings = append(e.warnings, e.note("%s has no effect until %s=true or a %s* variable is set", name, envEnabled, envPer))
	}
}

// strategy reports whether the windows are those of the calendar.
func (e *environment) strategy() bool {
	switch strings.ToLower(e.get(envStrategy)) {
	case "", "rolling":
		return false
	case "fixed":
		return true
	}
	e.problem(envStrategy, "is neither rolling nor fixed")
	return false
}

func sqliteURL(path string) string {
	if strings.HasPrefix(path, "/") {
		return "sqlite://" + path
	}
	return "sqlite:" + path
}

// geminiFree reads the preset gemini-free. What a variable says is after the margin, so no headroom is taken from it.
func (e *environment) geminiFree() {
	models := []struct{ variable, policy string }{{"FLASH", "gemini-2.5-flash"}, {"PRO", "gemini-2.5-pro"}}
	limits := []string{"rpm", "rpd"}
	name := func(model, limit string) string { return "GEMINI_" + model + "_" + strings.ToUpper(limit) + "_LIMIT" }
	if len(e.set(name("FLASH", "rpm"), name("FLASH", "rpd"), name("PRO", "rpm"), name("PRO", "rpd"))) == 0 {
		return
	}
	e.redisAsked = true
	policies := e.use(GeminiFree)
	for _, m := range models {
		p := policies[m.policy]
		if p == nil {
			continue
		}
		for i, limit := range limits {
			if n, ok := e.amount(name(m.variable, limit), 1); ok {
				p.Limits[i].Amount, p.Limits[i].Headroom = n, drawgate.Share{}
				p.from(limit, name(m.variable, limit))
			}
		}
		e.add(p)
	}
}

// global reads the preset global: one bucket.
func (e *environment) global() {
	asked := e.set(envCapacity, envRefill)
	if len(asked) == 0 && !e.distributed {
		return
	}
	p := e.use(Global)[Global]
	if p == nil {
		return
	}
	if e.distributed {
		p.asked = []string{envDistributed}
	}
	l := &p.Limits[0]
	if n, ok := e.amount(envCapacity, 1); ok {
		l.Burst = n
		p.from(l.Name, envCapacity)
	}
	if e.get(envRefill) != "" {
		amount, window, err := perSecond(e.get(envRefill))
		if err != nil {
			e.problem(envRefill, "%s", err)
			return
		}
		l.Amount, l.Window = amount, window
		p.from(l.Name, envRefill)
	}
	e.add(p)
}

var decimals = regexp.MustCompile(`^[0-9]{1,7}(\.[0-9]{1,6})?$`)

// perSecond returns a rate per second as a whole number per period, without rounding. The period is a minute where that is possible, so
// that a change of the rate seldom changes the limit's identity.
func perSecond(text string) (amount int64, period time.Duration, err error) {
	rate, ok := new(big.Rat).SetString(text)
	if !decimals.MatchString(text) || !ok || rate.Sign() <= 0 || rate.Cmp(big.NewRat(1_000_000, 1)) > 0 {
		return 0, 0, fmt.Errorf("is not a number above 0 and up to 1000000 with at most six decimals")
	}
	for _, period := range []time.Duration{time.Minute, time.Hour} {
		if n := new(big.Rat).Mul(rate, big.NewRat(int64(period/time.Second), 1)); n.IsInt() {
			return n.Num().Int64(), period, nil
		}
	}
	const million = 1_000_000 // six decimals are whole per million seconds
	return new(big.Rat).Mul(rate, big.NewRat(million, 1)).Num().Int64(), million * time.Second, nil
}

// httpAPI reads the preset http-api: per address, for the whole API, and per user. The task limit comes along.
func (e *environment) httpAPI() {
	scopes := []string{"ip", "api", "user"}
	rate := func(scope string) string { return strings.ToUpper(scope) + "_REQUESTS_PER_MINUTE" }
	burst := func(scope string) string { return strings.ToUpper(scope) + "_BURST_SIZE" }
	asked := 0
	for _, s := range scopes {
		asked += len(e.set(rate(s), burst(s)))
	}
	if asked == 0 {
		return
	}
	e.redisAsked = true
	policies := e.use(HTTPAPI)
	for _, s := range append(scopes, "task") {
		p := policies[s]
		if p == nil {
			continue
		}
		l := &p.Limits[0]
		if n, ok := e.amount(rate(s), 1); ok && s != "task" {
			l.Amount = n
			p.from(l.Name, rate(s))
		}
		if n, ok := e.amount(burst(s), 1); ok && s != "task" {
			l.Burst = n
			p.from(l.Name, burst(s))
		}
		e.add(p)
	}
}

// misspelt warns of variables that look like one of ours and are not: a limit that is not set is worse than one that fails to start.
func (e *environment) misspelt() {
	for _, name := range slices.Sorted(maps.Keys(e.vars)) {
		if !strings.HasPrefix(name, "RATE_LIMIT_") && !strings.HasPrefix(name, "GEMINI_") || slices.Contains(variables, name) {
			continue
		}
		if hint, _ := didYouMean(name, variables); hint != "" {
			e.warnings = append(e.warnings, Problem{File: "environment", Message: fmt.Sprintf("%s is not known", name), Hint: hint})
		}
	}
}
