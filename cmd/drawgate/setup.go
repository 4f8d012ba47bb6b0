package main

import (
	"cmp"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/internal/present"
	"github.com/drawgate/drawgate/internal/similar"
	"github.com/drawgate/drawgate/store/memstore"
)

// storeTimeout bounds a take that does not wait. A command has more time than a request to a
// server.
const storeTimeout = 5 * time.Second

// sample is the policy for trying things out, if none is configured.
var sample = drawgate.Policy{Name: "sample", Limits: []drawgate.Limit{
	{Name: "minute", Kind: drawgate.Rolling, Window: time.Minute, Amount: 10},
	{Name: "day", Kind: drawgate.Rolling, Window: 24 * time.Hour, Amount: 100},
}}

// settings is the completed configuration of a command.
type settings struct {
	*config.Config
	empty bool // limits are switched off, and there are no policies either: nothing is counted or checked
	built bool // nothing was configured: there is the sample alone
}

// noFile says what to do if the built-in sample is not what was meant.
const noFile = "no configuration is named: name a file with --config or " + config.EnvConfig +
	", or a server with --server"

// resolve reads the configuration and completes it. Without policies it adds the sample; without a
// store it uses the user's own SQLite file.
func (a *app) resolve(flags config.Flags) (settings, error) {
	c, err := config.Resolve(os.Environ(), flags)
	if err != nil {
		return settings{}, err
	}
	return completed(c, flags)
}

// resolveLimits is resolve for commands that need the limits and the store, and no keys: those of a
// server are not in every shell.
func (a *app) resolveLimits(flags config.Flags) (settings, error) {
	flags.WithoutSecrets = true
	return a.resolve(flags)
}

// unfitError is a configuration with mistakes, together with its warnings.
type unfitError struct {
	problems config.Problems
	warnings []config.Problem
}

func (e *unfitError) Error() string {
	lines := []string{e.problems.Error()}
	for _, w := range e.warnings {
		lines = append(lines, "warning: "+w.Error())
	}
	return strings.Join(lines, "\n")
}

func (e *unfitError) Unwrap() error { return e.problems }

// mistakes returns the problems and the warnings of an error, if it is about the configuration.
func mistakes(err error) (problems config.Problems, warnings []config.Problem, ok bool) {
	if e, is := errors.AsType[*unfitError](err); is {
		return e.problems, e.warnings, true
	}
	problems, ok = errors.AsType[config.Problems](err)
	return problems, nil, ok
}

// apart returns the numbers of problems and of warnings in words.
func apart(problems config.Problems, warnings []config.Problem) string {
	text := present.Count(len(problems), "problem")
	if len(warnings) > 0 {
		text += " and " + present.Count(len(warnings), "warning")
	}
	return text
}

// completed adds what is not configured.
func completed(c *config.Config, flags config.Flags) (settings, error) {
	s := settings{Config: c}
	if len(c.Policies) == 0 && len(c.Envoy.Configs) == 0 {
		err := noPolicies(flags)
		s.empty = switchedOff() || err != nil && c.Off
		if err != nil && !s.empty {
			// the warnings about the file itself
			rest := slices.DeleteFunc(c.Warnings, func(w config.Problem) bool {
				return strings.HasPrefix(w.Message,
					err.Message)
			})
			return settings{}, &unfitError{config.Problems{*err}, rest}
		}
		if !s.empty {
			c.Policies, s.built = []drawgate.Policy{sample}, true
			c.Warnings = append(c.Warnings, unnamedFiles()...)
		}
	}
	if c.Explain()[0].From != "default" {
		return s, nil
	}
	path, err := defaultPath()
	if err != nil {
		return settings{}, err
	}
	c.Store = "sqlite:" + path
	return s, nil
}

// noPolicies returns the problem if policies are missing although something was configured. Whoever
// configured something did not mean the sample. If nothing was configured it returns nil.
func noPolicies(flags config.Flags) *config.Problem {
	if path := cmp.Or(flags.Config, os.Getenv(config.EnvConfig)); path != "" {
		return &config.Problem{
			File: path, Message: "there are no policies",
			Hint: "add one, such as api: {limits: [{name: rpm, rolling: 1m, amount: 10}]}",
		}
	}
	for _, name := range config.Variables() {
		if !strings.HasPrefix(name, "DRAWGATE_") && strings.TrimSpace(os.Getenv(name)) != "" {
			return &config.Problem{
				File: "environment", Message: "there are no policies: " + name + " does not define one",
				Hint: "set a RATE_LIMIT_PER_* variable, or name a file with --config",
			}
		}
	}
	return nil
}

// unnamedFiles returns a warning about each file of this folder that looks like the configuration
// and is not read, because nothing names it.
func unnamedFiles() (list []config.Problem) {
	for _, name := range []string{"drawgate.yaml", "drawgate.yml", "drawgate.json"} {
		if _, err := os.Stat(name); err == nil {
			list = append(list, config.Problem{
				File: name, Message: "this file is not read: the built-in sample policy is in force",
				Hint: "name it with --config " + name + ", or with " + config.EnvConfig,
			})
		}
	}
	return list
}

// switchedOff reports whether the environment switches all limits off. Resolve has checked the
// variable.
func switchedOff() bool {
	return slices.Contains([]string{"false", "0", "no", "off"},
		strings.ToLower(strings.TrimSpace(os.Getenv("RATE_LIMIT_ENABLED"))))
}

// defaultPath returns the file of a user who named no store.
func defaultPath() (string, error) {
	dir, err := config.StateFolder(os.Environ())
	if err != nil {
		return "", &exitError{
			exitConfig,
			errors.New("there is no home directory to keep counts in: name a store, such as --store sqlite:drawgate.db"),
		}
	}
	return filepath.Join(dir, "drawgate.db"), nil
}

// lookAt opens the store for reading. If there is no database yet, nothing is used: it prints that,
// and returns an empty store instead.
func (a *app) lookAt(s *settings, log *slog.Logger) (drawgate.Store, error) {
	store, err := s.OpenExistingStore(log)
	if !errors.Is(err, fs.ErrNotExist) {
		return store, err
	}
	path, _ := config.SQLitePath(s.Store)
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	a.warnf("there is no database %s yet: nothing is used", path)
	return memstore.New(nil), nil
}

// session is an open store with its engine.
type session struct {
	settings
	tenant string
	engine *engine.Engine // nil: limits are off, and there are no policies
	opened drawgate.Store
}

// open opens what a command needs. A command that only reads needs the store even if the
// configuration switches all limits off. The others must pass then, whatever the store does.
func (a *app) open(looks bool) (*session, error) {
	return a.openLogging(looks, slog.New(slog.NewTextHandler(a.errOut, nil)))
}

// openLogging is open with another logger.
func (a *app) openLogging(looks bool, log *slog.Logger) (*session, error) {
	s, err := a.resolveLimits(a.flags)
	if err != nil {
		return nil, err
	}
	if s.empty {
		return &session{settings: s}, nil
	}
	a.tell(&s)
	var store drawgate.Store
	switch {
	case s.Off && !looks:
		store = memstore.New(nil)
	case s.Store == config.Memory:
		return nil, &exitError{exitConfig, errors.New(
			"the store memory: ends with this command, so nothing would be limited: name a SQLite file, a Redis server, a PostgreSQL database or a DynamoDB table with --store")}
	case looks:
		store, err = a.lookAt(&s, log)
	default:
		store, err = s.OpenStore(log)
	}
	if err != nil {
		return nil, err
	}
	e, err := a.engine(&s, store, log)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return &session{settings: s, tenant: a.tenant, engine: e, opened: store}, nil
}

// tell prints where relative paths of flags and variables lead, because another working directory
// or home means another store with its own quota. It prints nothing if the standard error is for
// JSON alone, as with run.
func (a *app) tell(s *settings) {
	if a.json && a.out == a.errOut {
		return
	}
	for _, p := range s.RelativePaths() {
		if p.Tell {
			a.warnf("%s: %s (%s)", p.Setting, p.Value, p.From)
		}
	}
}

// caution prints the warnings. Commands for people print them; commands for scripts do not.
func (a *app) caution(s *settings) {
	for _, w := range s.Warnings {
		a.warnf("warning: %s", w.OneLine())
	}
}

func (s *session) close() {
	if s.opened != nil {
		_ = s.engine.Close() // its shadows may run until then
		_ = s.opened.Close() // every decision that was answered is already durable
	}
}

// policy returns a policy's name; "" means the only one.
func (s *session) policy(name string) (string, error) {
	if names := s.names(); name == "" && len(names) == 1 {
		name = names[0]
	}
	switch {
	case s.engine.Limiter(name) != nil:
		return name, nil
	case name == "":
		return "", usage("there are several policies: name one of %s with --policy", strings.Join(s.names(), ", "))
	}
	if s.built {
		return "", usage("unknown policy %q (have: %s, which is built in): %s", name, sample.Name, noFile)
	}
	return "", usage("unknown policy %q%s", name, similar.Suggest(name, s.names()))
}

// info returns how a policy is in force.
func (s *session) info(policy string) engine.Info {
	info, _ := s.engine.Policy(policy)
	return info
}

// names returns the names of the policies. Those of Envoy's files are included only if there are no
// others.
func (s *session) names() []string {
	if names := s.configured(); len(names) > 0 {
		return names
	}
	var names []string
	for _, p := range s.engine.Policies() {
		names = append(names, p.Name)
	}
	return names
}

// configured returns the names of the policies that are not Envoy's.
func (s *settings) configured() []string {
	var names []string
	for _, p := range s.Policies {
		names = append(names, p.Name)
	}
	return names
}
