package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The variables that say what a file or a flag can say.
const (
	EnvConfig = "DRAWGATE_CONFIG" // path of the file
	EnvStore  = "DRAWGATE_STORE"  // store URL
)

// Flags is what a command line may say. An empty field says nothing.
type Flags struct {
	Config string // --config: path of the file
	Store  string // --store
}

// Resolve puts together what a program runs with: defaults, over them a file, over it the environment, over that the flags.
//
// The file is flags.Config, or else DRAWGATE_CONFIG, or else there is none. environ is in the form of [os.Environ]. The environment's
// policies stand beside the file's. Where both have a policy of the same name the environment's replaces it whole, with a warning; but a
// policy that a preset merely brings along, without a variable about it, gives way to the file's.
//
// The error is a [Problems] with all mistakes of all sources, or says why the file could not be read.
func Resolve(environ []string, flags Flags) (*Config, error) {
	env := readEnvironment(environ)
	c := &Config{origins: map[string]string{}}
	problems := env.problems
	if path := cmp.Or(flags.Config, env.get(EnvConfig)); path != "" {
		file, err := Load(path)
		if p, ok := errors.AsType[Problems](err); ok {
			problems = append(problems, p...)
		} else if err != nil {
			return nil, err
		}
		if file != nil {
			c = file
		}
	}
	c.add(env)
	if len(c.Policies) > 0 { // the environment's
		c.Warnings = slices.DeleteFunc(c.Warnings, func(p Problem) bool { return p.Message == noPolicies })
	}
	problems = append(problems, c.chooseStore(env, flags)...)
	if len(problems) > 0 {
		return nil, problems
	}
	return c, nil
}

// FromEnv returns what the environment alone says, without a file: see [Resolve].
func FromEnv(environ []string) (*Config, error) {
	environ = slices.DeleteFunc(slices.Clone(environ), func(s string) bool { return strings.HasPrefix(s, EnvConfig+"=") })
	return Resolve(environ, Flags{})
}

// add puts the environment's policies beside or in place of those that are there.
func (c *Config) add(env *environment) {
	for _, p := range env.policies {
		i := slices.IndexFunc(c.Policies, func(q policy) bool { return q.Name == p.Name })
		switch {
		case i < 0:
			c.Policies = append(c.Policies, p.policy)
		case len(p.asked) == 0:
			continue
		default:
			c.Warnings = append(c.Warnings, env.note("%s replaces policy %q of the file", strings.Join(p.asked, ", "), p.Name))
			c.Policies[i] = p.policy
		}
		maps.Copy(c.origins, p.origins)
	}
	c.Warnings = append(c.Warnings, env.warnings...)
}

// choice is a store that a source names, and how it came to.
type choice struct{ url, from string }

// chooseStore settles the store: a flag, else DRAWGATE_STORE, else what the variables of the presets name, else the file's, else what the
// presets that are in use start from, else memory. One process has one store, so two different ones from equal sources are a problem.
func (c *Config) chooseStore(env *environment, flags Flags) Problems {
	redisAsked := env.redisAsked || strings.HasPrefix(c.Store, "redis")
	if url := env.get(envRedisURL); url != "" {
		if redisAsked {
			env.named = append(env.named, choice{url, "environment: " + envRedisURL})
		} else {
			c.Warnings = append(c.Warnings, env.note("%s is set, but nothing asks for Redis: set %s=true or %s", envRedisURL, envDistributed, EnvStore))
		}
	}
	candidates := [][]choice{{{flags.Store, "flag --store"}}, {{env.get(EnvStore), "environment: " + EnvStore}}, env.named}
	if c.Store != "" {
		candidates = append(candidates, []choice{{c.Store, c.from("store")}})
	}
	candidates = append(candidates, env.defaults, []choice{{Memory, "default"}})
	var problems Problems
	for _, equals := range candidates {
		equals = slices.DeleteFunc(slices.Clone(equals), func(s choice) bool { return s.url == "" })
		if len(equals) == 0 {
			continue
		}
		for _, other := range equals[1:] {
			if other.url != equals[0].url {
				problems = append(problems, env.note("two stores are named, %s (%s) and %s (%s): one process has one, set %s",
					RedactURL(equals[0].url), equals[0].from, RedactURL(other.url), other.from, EnvStore))
				return problems
			}
		}
		c.Store, c.origins["store"] = equals[0].url, equals[0].from
		break
	}
	if hint, err := checkStore(c.Store); err != nil {
		p := Problem{File: c.from("store"), Message: err.Error(), Hint: hint}
		problems = append(problems, p)
	}
	onRedis := strings.HasPrefix(c.Store, "redis")
	if env.distributed && !onRedis {
		problems = append(problems, env.note("%s=true needs %s", envDistributed, envRedisURL))
	}
	c.choosePrefix(env, onRedis)
	return append(problems, env.checkPrefix()...)
}

func (c *Config) choosePrefix(env *environment, onRedis bool) {
	switch prefix := env.get(envRedisPrefix); {
	case prefix != "" && onRedis:
		c.Prefix, c.origins["prefix"] = prefix, "environment: "+envRedisPrefix
	case c.Prefix == "" && env.prefix.url != "":
		c.Prefix, c.origins["prefix"] = env.prefix.url, env.prefix.from
	}
}

func (e *environment) checkPrefix() Problems {
	if prefix := e.get(envRedisPrefix); prefix != "" {
		if err := checkPrefix(prefix); err != nil {
			return Problems{e.note("%s: %s", envRedisPrefix, err)}
		}
	}
	return nil
}

// note is a problem or a warning about the environment.
func (e *environment) note(format string, args ...any) Problem {
	return Problem{File: "environment", Message: fmt.Sprintf(format, args...)}
}
