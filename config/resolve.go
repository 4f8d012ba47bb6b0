package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/drawgate/drawgate/engine/rules"
)

// The variables that correspond to flags.
const (
	EnvConfig = "DRAWGATE_CONFIG"       // path of the file
	EnvRules  = "RATE_LIMIT_RULES_PATH" // path of a file that contains only rules
	EnvStore  = "DRAWGATE_STORE"        // store URL
)

// Flags are the settings of a command line. An empty field is not set.
type Flags struct {
	Config string // --config: path of the file
	Rules  string // --rules: path of a file with rules alone
	Store  string // --store
	// WithoutSecrets leaves the secrets unread that only a server needs: tokens, keys, the salt and
	// the webhook's. The store's are read.
	WithoutSecrets bool
}

// Resolve combines the configuration of a program from its sources. Flags take precedence over the
// environment, the environment over the file, and the file over the defaults.
//
// The file is flags.Config, or else DRAWGATE_CONFIG, or else there is none. Rules may also be in a
// separate file, flags.Rules or else RATE_LIMIT_RULES_PATH, with policies and API keys for them.
// They come before the rules of the main file. environ is in the form of [os.Environ]. Secrets are
// looked up, unless flags says otherwise.
//
// Relative paths become absolute. A path in the file, in a variable or in a preset is relative to
// the file's folder, or to the [StateFolder] if there is no file. A path in a flag is relative to
// the working directory. See [Config.RelativePaths].
//
// The policies of the environment are added to those of the files. If both have a policy of the
// same name, the environment's replaces it as a whole, with a warning. But a policy of a preset
// that no variable sets is replaced by one of the same name in the files. The rules of presets come
// last.
//
// The error is a [Problems] with all mistakes of all sources, or the reason why a file could not be
// read.
func Resolve(environ []string, flags Flags) (*Config, error) {
	c, _, err := resolve(environ, flags)
	return c, err
}

// resolve is Resolve. After an error it also returns what it has read.
func resolve(environ []string, flags Flags) (*Config, readFiles, error) {
	env := readEnvironment(environ)
	c, problems := newConfig(), slices.Clone(env.problems)
	if path := cmp.Or(flags.Config, env.get(EnvConfig)); path != "" {
		data, err := c.read.file(path, MaxSize)
		if err != nil {
			return nil, c.read, fmt.Errorf("config: %w", err)
		}
		read := c.read
		var wrong Problems
		c, wrong = parseFile(path, data, (*decoder).file)
		c.read, c.file = read, path
		env.folder = folderOf(path)
		problems = append(append(problems, wrong...), c.locate(env.folder)...)
	} else {
		env.folder.path, env.folder.err = StateFolder(environ)
	}
	if path := cmp.Or(flags.Rules, env.get(EnvRules)); path != "" {
		data, err := c.read.file(path, MaxSize)
		if err != nil {
			return nil, c.read, fmt.Errorf("config: the rules: %w", err)
		}
		only, wrong := parseFile(path, data, (*decoder).rulesFile)
		problems = append(append(problems, wrong...), c.addRules(only)...)
	}
	c.add(env)
	if len(c.Policies) > 0 { // of the environment, or of the rules' file
		c.Warnings = slices.DeleteFunc(c.Warnings, func(p Problem) bool { return p.Message == noPolicies })
	}
	problems = append(problems, c.chooseStore(env, flags)...)
	problems = append(problems, env.settle(c)...)
	if !flags.WithoutSecrets {
		problems = append(problems, c.lookUpSecrets(env)...)
	}
	problems = append(problems, c.finish(len(problems) == 0)...)
	for _, path := range c.Envoy.Configs {
		c.read.foreign(path)
	}
	if len(problems) > 0 {
		return nil, c.read, Problems(problems.sorted())
	}
	c.warn()
	c.trim()
	environ = slices.Clone(environ)
	c.again = func() (*Config, readFiles, error) { return resolve(environ, flags) }
	return c, c.read, nil
}

// addRules adds the contents of a file of rules. Its rules come first.
func (c *Config) addRules(r *Config) (problems Problems) {
	for _, p := range r.Policies {
		if _, twice := c.Policy(p.Name); twice {
			setting := policySetting(p.Name)
			problems = append(problems, r.note(setting, fmt.Sprintf("policy %s is in %s as well", shorten(p.Name),
				c.from(setting)), "leave one of them out"))
			continue
		}
		c.Policies = append(c.Policies, p)
		c.setMode(p.Name, r.Modes[p.Name])
	}
	if c.APIKeys.Classes != nil && r.APIKeys.Classes != nil {
		problems = append(problems, r.note("api_keys", "api_keys is in "+c.from("api_keys")+" as well",
			"leave one of them out"))
	} else if r.APIKeys.Classes != nil {
		c.APIKeys = r.APIKeys
	}
	c.Rules, c.places = append(r.Rules, c.Rules...), append(r.places, c.places...)
	c.broken, c.partial = append(c.broken, r.broken...), c.partial || r.partial
	c.Warnings = append(c.Warnings, r.Warnings...)
	for setting, from := range r.origins {
		if _, taken := c.origins[setting]; !taken {
			c.origins[setting] = from
			if at, ok := r.at[setting]; ok {
				c.at[setting] = at
			}
		}
	}
	return problems
}

// stands reports whether a setting comes from a file.
func (c *Config) stands(setting string) bool {
	p, ok := c.at[setting]
	return ok && p.String() == c.origins[setting]
}

// note returns a problem or a warning about a setting, with its position.
func (c *Config) note(setting, message, hint string) Problem {
	if p := c.at[setting]; c.stands(setting) {
		return p.problem(p.at, message, hint)
	}
	return Problem{File: c.from(setting), Message: message, Hint: hint}
}

// FromEnv returns the configuration of the environment alone, without a file: see [Resolve].
func FromEnv(environ []string) (*Config, error) {
	environ = slices.DeleteFunc(slices.Clone(environ), func(s string) bool {
		return strings.HasPrefix(s, EnvConfig+"=") || strings.HasPrefix(s, EnvRules+"=")
	})
	return Resolve(environ, Flags{})
}

// add adds the environment's policies, which may replace existing ones, and appends its rules.
func (c *Config) add(env *environment) {
	for _, p := range env.policies {
		i := slices.IndexFunc(c.Policies, func(q policy) bool { return q.Name == p.Name })
		switch {
		case i < 0:
			c.Policies = append(c.Policies, p.policy)
		case len(p.asked) == 0:
			continue
		default:
			c.Warnings = append(c.Warnings, env.note("%s replaces policy %q of the file", strings.Join(p.asked, ", "),
				p.Name))
			c.Policies[i] = p.policy
		}
		c.setMode(p.Name, Mode{})
		maps.Copy(c.origins, p.origins)
	}
	for i, r := range env.rules {
		if slices.ContainsFunc(c.Rules, func(other rules.Rule) bool { return other.Name == r.Name }) {
			r.Name = "" // a rule of the file has this name
		}
		c.Rules, c.places = append(c.Rules, r), append(c.places, env.places[i])
	}
	env.misspelt(SecretVariables(c))
	c.Warnings = append(c.Warnings, env.warnings...)
}

// choice is a store that a source names.
type choice struct {
	url, from string
	relative  bool  // it named a relative path
	err       error // why that is none
}

// chooseStore chooses the store from the first of these sources: a flag, DRAWGATE_STORE, the
// variables of presets, the file, the presets in use, memory. A process has one store, so two
// different ones from equal sources are a problem.
func (c *Config) chooseStore(env *environment, flags Flags) Problems {
	redisAsked := env.redisAsked || IsRedis(c.Store)
	if url := env.get(envRedisURL); url != "" {
		if redisAsked {
			env.named = append(env.named, choice{url: url, from: "environment: " + envRedisURL})
		} else {
			c.Warnings = append(c.Warnings, env.note("%s is set, but no setting uses Redis: set %s=true or %s",
				envRedisURL, envDistributed, EnvStore))
		}
	}
	candidates := [][]choice{{here().store(choice{url: flags.Store, from: "flag --store"})}}
	inFile := choice{url: c.Store, from: c.from("store")}
	for _, equals := range [][]choice{
		{{url: env.get(EnvStore), from: "environment: " + EnvStore}},
		env.named,
		{inFile},
		env.defaults,
		{{url: Memory, from: "default"}},
	} {
		for i := range equals {
			equals[i] = env.folder.store(equals[i])
		}
		candidates = append(candidates, equals)
	}
	var problems Problems
	for _, equals := range candidates {
		equals = slices.DeleteFunc(slices.Clone(equals), func(s choice) bool { return s.url == "" })
		if len(equals) == 0 {
			continue
		}
		for _, other := range equals[1:] {
			if other.url != equals[0].url {
				problems = append(problems,
					env.note("two stores are named, %s (%s) and %s (%s), but a process has only one: set %s to choose it",
						RedactURL(equals[0].url), equals[0].from, RedactURL(other.url), other.from, EnvStore))
				return problems
			}
		}
		c.Store, c.origins["store"] = equals[0].url, equals[0].from
		if err := equals[0].err; err != nil {
			return Problems{{
				File:    equals[0].from,
				Message: fmt.Sprintf("store %s: the relative path cannot be resolved: %s", shorten(c.Store), err),
			}}
		}
		if equals[0].relative {
			c.paths = append(c.paths, RelativePath{
				Origin{"store", c.Store, equals[0].from},
				equals[0].from != inFile.from,
			})
		}
		break
	}
	if hint, err := checkStore(c.Store); err != nil {
		p := Problem{File: c.from("store"), Message: err.Error(), Hint: hint}
		problems = append(problems, p)
	}
	onRedis := IsRedis(c.Store)
	if env.distributed && !c.shared() {
		problems = append(problems, env.note("%s=true needs %s, or %s with a store that processes share",
			envDistributed, envRedisURL, EnvStore))
	}
	if env.distributed && c.shared() && c.Instances == (Instances{}) && env.get(envInstances) == "" {
		// Whoever sets the variable wants a local bucket while the store is unavailable, with the
		// whole limit in each process.
		c.Instances, c.origins["instances"] = Instances{Number: 1}, "environment: "+envDistributed
		c.Warnings = append(c.Warnings,
			env.note("while the store is unavailable each process admits the whole limit by itself; set %s=auto to share it", envInstances))
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

// note returns a problem or a warning about the environment.
func (e *environment) note(format string, args ...any) Problem {
	return Problem{File: "environment", Message: fmt.Sprintf(format, args...)}
}
