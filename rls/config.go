package rls

import (
	"math"
	"slices"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
)

// Windows determines how a rate of the file, such as "10 per minute", is counted.
type Windows uint8

const (
	// Rolling counts the last minute, whenever it began: no interval of that length admits more
	// than the rate. It is the default.
	Rolling Windows = iota
	// Aligned counts from one full minute to the next in UTC, as envoyproxy/ratelimit does:
	// remaining and reset are the same numbers, and up to twice the rate may pass around a
	// boundary. A week starts on Monday, and a month is a calendar month. Seconds, years and
	// multiplied units have no calendar window, and are Rolling.
	Aligned
)

// ConfigOptions controls how files are read. The zero value is ready to use.
type ConfigOptions struct {
	Windows Windows
	Merge   bool // files may add to a domain of another file, as with MERGE_DOMAIN_CONFIG; otherwise that is a mistake
	// processes decide with units that they took ahead, see [drawgate.Policy], where a rate is
	// large enough
	Leased bool
}

// Config is a checked set of rate limits in the format of envoyproxy/ratelimit: domains with trees
// of descriptors. It is immutable and safe for concurrent use. [ParseConfig] and [Load] make one;
// docs/envoy.md has the format.
type Config struct {
	domains map[string]*domain
	rules   []*Rule
	windows Windows
	skipped []Skipped
}

// ParseConfig parses one file. name is used in errors, which are a [ConfigErrors] with the line and
// column of every mistake. opts may be nil.
//
// Every mistake for envoyproxy/ratelimit is a mistake here. So are keys in places where it would
// ignore them, and duplicate keys.
func ParseConfig(name string, data []byte, opts *ConfigOptions) (*Config, error) {
	return parse([]file{{name, data}}, opts)
}

type file struct {
	name string
	data []byte
}

func parse(files []file, opts *ConfigOptions) (*Config, error) {
	if opts == nil {
		opts = &ConfigOptions{}
	}
	b := &builder{
		opts: *opts, config: &Config{domains: map[string]*domain{}, windows: opts.Windows},
		names: map[string]bool{},
	}
	for _, f := range files {
		b.file(f)
	}
	if len(b.errs) > 0 {
		return nil, b.errs.sorted()
	}
	return b.config, nil
}

// Policies returns the limits as policies of an engine: one for each rate that is neither unlimited
// nor 0, named "rls/" plus the domain and descriptors, and one named "rls", an [engine.Policy.Base]
// from which the limiters of rates in requests are made.
func (c *Config) Policies() []engine.Policy {
	list := []engine.Policy{{Policy: drawgate.PerSecond(OverridePolicy, 1), Base: true}}
	for _, r := range c.rules {
		if r.counts() {
			list = append(list, engine.Policy{Policy: r.policy, Shadow: r.Shadow})
		}
	}
	return list
}

// Domains returns the names of the domains, sorted.
func (c *Config) Domains() []string {
	names := make([]string, 0, len(c.domains))
	for name := range c.domains {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Rules returns the rates of all domains in the order of the files. They must not be changed.
func (c *Config) Rules() []*Rule { return c.rules }

// unlimitedRemaining is the remaining amount in the answer of an unlimited rate.
const unlimitedRemaining = math.MaxUint32
