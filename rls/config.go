package rls

import (
	"math"
	"slices"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
)

// Windows says how a rate of the file, "10 per minute", is counted.
type Windows uint8

const (
	// Rolling counts the last minute, whenever that began: in no interval of that length more pass
	// than the file says. It is the default.
	Rolling Windows = iota
	// Aligned counts from one full minute to the next, as envoyproxy/ratelimit does, in UTC:
	// remaining and reset are its figures, and up to twice the rate may pass around an edge. A week
	// starts on Monday, a month is a real one. Seconds, years and multiplied units, which no
	// calendar has, are Rolling ones.
	Aligned
)

// ConfigOptions says how files are read. The zero value is ready to use.
type ConfigOptions struct {
	Windows Windows
	Merge   bool // files may add to a domain that another one has begun, as with MERGE_DOMAIN_CONFIG; otherwise that is a mistake
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

// ParseConfig reads one file; name is for errors, which are a [ConfigErrors] with every mistake's
// line and column. opts may be nil.
//
// What is a mistake for envoyproxy/ratelimit is one here; so are keys at places where it would
// ignore them, and keys that are given twice.
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
	b := &builder{opts: *opts, config: &Config{domains: map[string]*domain{}, windows: opts.Windows}, names: map[string]bool{}}
	for _, f := range files {
		b.file(f)
	}
	if len(b.errs) > 0 {
		return nil, b.errs.sorted()
	}
	return b.config, nil
}

// Policies returns the limits as policies of an engine: one for each rate that is neither unlimited
// nor 0, named "rls/" and the domain and descriptors, and one named "rls", of which rates that
// requests carry are made, an [engine.Policy.Base].
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

// unlimitedRemaining is what remains of a limit that has none.
const unlimitedRemaining = math.MaxUint32
