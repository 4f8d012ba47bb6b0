package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine/rules"
)

// Variables returns the names of all environment variables that are known.
func Variables() (names []string) {
	for _, v := range (&environment{}).variables(&Config{}) {
		if v.name != "" {
			names = append(names, v.name)
		}
	}
	return names
}

type policy = drawgate.Policy

// envPolicy is a policy of a preset as the environment sets it.
type envPolicy struct {
	policy

	asked   []string // the variables about it; none if only its preset adds it
	origins map[string]string
}

// environment is the configuration that the variables make.
type environment struct {
	vars map[string]string

	policies    []envPolicy
	rules       []rules.Rule // of presets in use
	places      []rulePlace
	problems    Problems
	warnings    Problems
	named       []choice // stores that variables name
	defaults    []choice // stores that the presets in use start from
	prefix      choice   // the prefix that a preset in use starts from
	folder      folder   // what relative paths are relative to
	httpPreset  bool     // the preset http-api is in use
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
	e.otherServer()
	return e
}

// get returns a variable. An empty variable counts as unset, unless said otherwise.
func (e *environment) get(name string) string { return e.vars[name] }

func (e *environment) problem(name, format string, args ...any) {
	e.problems = append(e.problems, e.note("%s=%s %s", name, e.show(name), fmt.Sprintf(format, args...)))
}

func (e *environment) show(name string) string {
	if strings.HasSuffix(name, "_TOKEN") {
		return redacted
	}
	return shorten(e.vars[name])
}

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

// use takes a preset's policies, store and prefix as the starting point.
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
		maps.DeleteFunc(p.origins, func(setting, _ string) bool {
			return !strings.HasPrefix(setting,
				"policies."+p.Name+".")
		})
		policies[p.Name] = &p
	}
	if c.Store != Memory {
		e.defaults = append(e.defaults, choice{url: c.Store, from: "preset " + name})
	}
	if c.Prefix != "" && e.prefix.url == "" {
		e.prefix = choice{url: c.Prefix, from: "preset " + name}
	}
	e.rules, e.places = append(e.rules, c.Rules...), append(e.places, c.places...)
	return policies
}

// add adds a policy, with the warnings that it would cause in a file.
func (e *environment) add(p *envPolicy) {
	if len(p.Limits) == 0 {
		return
	}
	if _, err := p.Compile(); err != nil {
		e.problems = append(e.problems, e.note("%s: %s", strings.Join(p.asked, ", "),
			strings.ReplaceAll(err.Error(), "drawgate: ", "")))
		return
	}
	for i := range p.Limits {
		for _, c := range cautions(&p.Limits[i]) {
			e.warnings = append(e.warnings, Problem{
				File: "environment", Message: "policy " + p.Name + ": " + c.message,
				Hint: c.hint,
			})
		}
	}
	e.policies = append(e.policies, *p)
}

// from records that a variable sets a limit.
func (p *envPolicy) from(limit, variable string) {
	p.origin(limitSetting(p.Name, limit), variable)
}

// origin records that a variable sets a setting.
func (p *envPolicy) origin(setting, variable string) {
	if !slices.Contains(p.asked, variable) {
		p.asked = append(p.asked, variable)
	}
	if before := p.origins[setting]; strings.HasPrefix(before, "environment: ") {
		p.origins[setting] = before + ", " + variable
		return
	}
	p.origins[setting] = "environment: " + variable
}

func isOurs(name string) bool {
	return slices.ContainsFunc([]string{
		"RATE_LIMIT_", "GEMINI_", "DRAWGATE_", "IP_RE", "IP_BURST", "API_RE", "API_BURST", "USER_RE", "USER_BURST",
		"QUEUE_MAX", "QUEUE_RETRY", "CIRCUIT_BREAKER_",
	}, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// prefixed returns the names that begin with a prefix.
func prefixed(names []string, prefix string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !strings.HasPrefix(n, prefix) })
}

// onlyInFile are variables that one would expect, but do not exist.
var onlyInFile = map[string]string{
	"DRAWGATE_FALLBACK":    "set fallback of a policy in the file",
	"DRAWGATE_STORE_MARK":  "set store_mark in the file",
	"DRAWGATE_PREFIX":      "set prefix in the file",
	"DRAWGATE_MAX_BUCKETS": "set max_buckets in the file",
	"RATE_LIMIT_START":     "did you mean \"DRAWGATE_START\"?",
}

// misspelt warns of variables that look like one of ours but are not: of any that would be a limit.
// A limit that is silently not set is worse than a program that fails to start. secrets are those
// that the configuration names itself, such as telemetry.salt_env.
func (e *environment) misspelt(secrets []string) {
	variables := Variables()
	for _, name := range slices.Sorted(maps.Keys(e.vars)) {
		if !isOurs(name) || slices.Contains(variables, name) || slices.Contains(secrets, name) {
			continue
		}
		hint, _ := didYouMean(name, variables)
		if hint == "" && strings.HasPrefix(name, envPer) {
			hint = "the variables are " + strings.Join(prefixed(variables, envPer), ", ")
		}
		if hint == "" {
			hint = onlyInFile[name]
		}
		if hint != "" {
			e.warnings = append(e.warnings, Problem{
				File: "environment", Message: fmt.Sprintf("%s is not known", name),
				Hint: hint,
			})
		}
	}
}
