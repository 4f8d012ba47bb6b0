package config

import (
	"cmp"
	"slices"
)

// Difference is a setting, other than policies and rules, that differs between two configurations.
type Difference struct {
	Setting       string // as in [Config.Explain]: "store", "server.tls"
	Before, After string // without secrets; "default" if it is not set
	Restart       bool   // a running program only takes it over at a restart, and not at a reload
}

// Compare lists the settings, other than policies and rules, that differ. Those that before sets
// come first. A difference only in secrets is not listed.
func Compare(before, after *Config) (list []Difference) {
	old, now := before.otherSettings(), after.otherSettings()
	for _, p := range slices.Concat(old, now) {
		a, b := old.get(p.key).flow(0), now.get(p.key).flow(0)
		listed := slices.ContainsFunc(list, func(d Difference) bool { return d.Setting == p.key })
		if a != b && !listed {
			a, b = old.get(p.key).flow(shown), now.get(p.key).flow(shown)
			_, restart := fixedKey(p.key)
			list = append(list, Difference{p.key, cmp.Or(a, opposite(b)), cmp.Or(b, opposite(a)), restart})
		}
	}
	return list
}

// otherSettings returns the settings, other than policies and rules, that are not the defaults.
func (c *Config) otherSettings() (b mapping) {
	b.add("store", RedactURL(cmp.Or(c.Store, Memory)))
	b.add("prefix", c.Prefix)
	b = append(b, c.general()...)
	for _, s := range c.sections() {
		for _, p := range s.value.pairs {
			b.node(s.key+"."+p.key, p.value)
		}
	}
	return b
}

// get returns the value of a key, or an empty value if the key is missing.
func (m mapping) get(key string) node {
	if i := slices.IndexFunc(m, func(p pair) bool { return p.key == key }); i >= 0 {
		return m[i].value
	}
	return node{}
}

// opposite returns the default of a setting that is listed with another value, because defaults are
// not listed.
func opposite(value string) string {
	switch value {
	case "true":
		return "false"
	case "false":
		return "true"
	}
	return "default"
}
