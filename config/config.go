package config

import (
	"fmt"
	"slices"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/engine/rules"
	"github.com/drawgate/drawgate/internal/owned"
	"github.com/drawgate/drawgate/spend"
)

// MaxSize is the largest file that is read, in bytes.
const MaxSize = 16 << 20

// Memory is the store of a [Config] that names none. It is in this process, and is lost when the
// process ends.
const Memory = "memory:"

// Config is what a program should run with. It is checked: every policy and every rule compiles,
// and rules apply policies that there are.
//
// Fields that are not set are 0, which means the default of the code that uses them.
type Config struct {
	Off bool // everything passes and nothing is counted
	// "memory:", "sqlite:///absolute/path", "redis://…", "rediss://…", "postgres://…" or
	// "dynamodb://…"; "" where a file names none; from [Parse] also "sqlite:relative/path"
	Store string
	// what the keys of a shared store start with, or its tables on PostgreSQL; "" means the store's
	// default
	Prefix string

	MaxBuckets   int            // most buckets in use at once in the store memory:
	Instances    Instances      // how many processes share the limits, for the fallback share
	StoreTimeout time.Duration  // of a take that does not wait
	WarnEvery    time.Duration  // at most one warning per this time while the store is unavailable
	Start        drawgate.Start // how policies start that do not say it themselves; start_full: true is StartFull
	// Redis: unavailable while the server has no mark: before drawgate store init, and after it
	// lost its data
	RequireMark bool
	NoBatches   bool // Redis: each request is a call of its own
	NoRecovery  bool // Redis: what the server lost is not charged and opened again

	Policies []drawgate.Policy // in the order of the file; names are unique
	Modes    map[string]Mode   // by policy: how it is used, if it is not simply enforced
	// in the order in which they are checked: of the rules file, of the file, of the environment's
	// presets
	Rules   []rules.Rule
	APIKeys APIKeys
	Queue   Queue

	Server    Server
	Envoy     Envoy
	Telemetry Telemetry
	Gateway   Gateway

	Warnings []Problem // what is allowed but perhaps not intended

	origins map[string]string // setting → source, for Explain
	at      map[string]place  // setting → its position, if a file sets it
	places  []rulePlace       // of Rules
	broken  []string          // policies with mistakes
	partial bool              // something was left out because of a syntax error
	read    readFiles         // what was read, for Watch
	file    string            // the path of the file, for Watch
	paths   []RelativePath    // paths in use that were given as relative ones
	// resolves the same sources again, for Watch; nil after Load and Parse. It is a func so that
	// printing a Config shows no variable
	again func() (*Config, readFiles, error)
}

// Mode is how a policy is used.
type Mode struct {
	Shadow    bool              // evaluated and reported, never enforced
	Disabled  bool              // switched off from the start
	Overrides []engine.Override // other amounts for some keys
}

// setMode records how a policy is used.
func (c *Config) setMode(policy string, m Mode) {
	delete(c.Modes, policy)
	if m.plain() {
		return
	}
	if c.Modes == nil {
		c.Modes = map[string]Mode{}
	}
	c.Modes[policy] = m
}

func (m Mode) plain() bool { return !m.Shadow && !m.Disabled && len(m.Overrides) == 0 }

// Policy returns the policy of that name.
func (c *Config) Policy(name string) (drawgate.Policy, bool) {
	i := slices.IndexFunc(c.Policies, func(p drawgate.Policy) bool { return p.Name == name })
	if i < 0 {
		return drawgate.Policy{}, false
	}
	return c.Policies[i], true
}

// Engine returns the policies with their modes and the rules, for [engine.New] and
// [engine.Engine.Replace].
//
// Policies that are switched off are included as disabled, so that they can be named and switched
// on again. With Off all of them are disabled, and takes that name an unknown policy pass.
func (c *Config) Engine() engine.Config {
	e := engine.Config{Rules: slices.Clone(c.Rules), Off: c.Off && len(c.Policies) == 0}
	for _, p := range c.Policies {
		m := c.Modes[p.Name]
		e.Policies = append(e.Policies, engine.Policy{Policy: p, Shadow: m.Shadow, Disabled: c.Off ||
			m.Disabled, Overrides: m.Overrides})
	}
	if g := &c.Gateway; len(g.Upstreams) > 0 { // whether it is used is fixed at the start
		e.Policies = append(e.Policies, engine.Policy{Policy: spend.Policy(g.Money()), Base: true},
			engine.Policy{Policy: owned.Policy(), Base: true})
	}
	for _, p := range c.Envoy.Policies {
		p.Disabled = p.Disabled || c.Off
		e.Policies = append(e.Policies, p)
	}
	return e
}

// Load reads one file and ignores the environment, so secrets that the file names are not looked
// up. Relative paths in it become absolute; they are relative to the folder of path. The error is a
// [Problems] if the file was read and has mistakes.
func Load(path string) (*Config, error) {
	var read readFiles
	data, err := read.file(path, MaxSize)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	c, problems := Parse(path, data)
	if len(problems) > 0 {
		return nil, Problems(problems)
	}
	f := folderOf(path)
	store := f.store(choice{url: c.Store})
	if store.err != nil {
		return nil, fmt.Errorf("config: %w", store.err)
	}
	if c.Store = store.url; store.relative {
		c.paths = append(c.paths, RelativePath{Origin{"store", c.Store, c.from("store")}, false})
	}
	if problems := c.locate(f); len(problems) > 0 {
		return nil, problems
	}
	return c, nil
}

// Parse reads the contents of a file; problems call it name. Relative paths stay as they are.
// Config is nil if there are problems.
func Parse(name string, data []byte) (*Config, []Problem) {
	c, problems := parseFile(name, data, (*decoder).file)
	if problems = append(problems, c.finish(len(problems) == 0)...); len(problems) > 0 {
		return nil, problems.sorted()
	}
	c.warn()
	c.trim()
	return c, nil
}

// trim drops what only the checks need, because it keeps the parsed file in memory.
func (c *Config) trim() {
	for i := range c.places {
		p := &c.places[i]
		c.places[i] = rulePlace{source: p.source, from: p.from, start: p.start}
	}
}

// parseFile reads a file; top reads its outermost mapping. What depends on other files is checked
// later: see [Config.finish].
func parseFile(name string, data []byte, top func(*decoder, ast.Node)) (*Config, Problems) {
	d := decoder{source: newSource(name, data), config: newConfig()}
	if root, ok := d.parse(data); ok {
		top(&d, root)
	}
	d.config.partial = d.partial
	d.config.Warnings = d.warnings.problems(d.source)
	return d.config, d.problems.problems(d.source)
}

func newConfig() *Config { return &Config{origins: map[string]string{}, at: map[string]place{}} }
