package config

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/drawgate/drawgate"
)

// MaxSize is the largest file that is read, in bytes.
const MaxSize = 1 << 20

// Memory is the store of a [Config] that names none: in this process, gone with it.
const Memory = "memory:"

// Config is what a program should run with. It is checked: every policy compiles.
type Config struct {
	Store    string            // "memory:", "sqlite:relative/path", "sqlite:///absolute/path", "redis://…" or "rediss://…"; "" where a file names none
	Prefix   string            // what the keys of a shared store start with; "" means the store's default
	Policies []drawgate.Policy // in the order of the file; names are unique
	Warnings []Problem         // what is allowed and perhaps not meant

	origins map[string]string // setting → source, for Explain
}

// Policy returns the policy of that name.
func (c *Config) Policy(name string) (drawgate.Policy, bool) {
	i := slices.IndexFunc(c.Policies, func(p drawgate.Policy) bool { return p.Name == name })
	if i < 0 {
		return drawgate.Policy{}, false
	}
	return c.Policies[i], true
}

// Load reads a file. The error is a [Problems] if the file was read and is wrong.
func Load(path string) (*Config, error) {
	f, err := os.Open(path) //nolint:gosec // reading the file that the operator names is what this is for
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err != nil {
		return nil, fmt.Errorf("config: read %s: %w", path, err)
	}
	c, problems := Parse(path, data)
	if len(problems) > 0 {
		return nil, Problems(problems)
	}
	return c, nil
}

// Parse reads the contents of a file; name is what its problems call it. Config is nil if there are problems.
func Parse(name string, data []byte) (*Config, []Problem) {
	d := decoder{source: newSource(name, data), config: &Config{origins: map[string]string{}}}
	if root, ok := d.parse(data); ok {
		d.file(root)
	}
	if len(d.problems) > 0 {
		return nil, d.problems.sorted()
	}
	d.config.Warnings = d.warnings.sorted()
	return d.config, nil
}

// Origin is one setting of a [Config], for people.
type Origin struct {
	Setting string // "store", "policies.api.limits.rpm"
	Value   string // without secrets
	From    string // "drawgate.yaml:5:9", "environment: RATE_LIMIT_PER_DAY", "flag --store", "preset gemini-free", "default"
}

// Explain lists the settings, what they are and where they came from.
func (c *Config) Explain() []Origin {
	list := []Origin{{"store", RedactURL(cmp.Or(c.Store, Memory)), c.from("store")}}
	if c.Prefix != "" {
		list = append(list, Origin{"prefix", c.Prefix, c.from("prefix")})
	}
	for i := range c.Policies {
		p := &c.Policies[i]
		for k := range p.Limits {
			setting := limitSetting(p.Name, p.Limits[k].Name)
			list = append(list, Origin{setting, formatLimit(&p.Limits[k]), c.from(setting)})
		}
		if wait := formatWait(&p.Wait); wait != "" {
			list = append(list, Origin{waitSetting(p.Name), wait, c.from(waitSetting(p.Name))})
		}
	}
	return list
}

func (c *Config) from(setting string) string {
	if from, ok := c.origins[setting]; ok {
		return from
	}
	return "default"
}

func limitSetting(policy, limit string) string { return "policies." + policy + ".limits." + limit }

func waitSetting(policy string) string { return "policies." + policy + ".wait" }
