package config

import (
	"cmp"
	"slices"
)

// Difference is a setting that stands beside policies and rules, and that two configurations have
// differently.
type Difference struct {
	Setting       string // as in [Config.Explain]: "store", "server.tls"
	Before, After string // without secrets; "default" if nothing was said
}

// Compare lists the settings beside policies and rules that differ, those that before sets first.
// What differs in secrets alone is not told.
func Compare(before, after *Config) (list []Difference) {
	old, now := before.otherSettings(), after.otherSettings()
	for _, p := range slices.Concat(old, now) {
		a, b := old.get(p.key).flow(0), now.get(p.key).flow(0)
		listed := slices.ContainsFunc(list, func(d Difference) bool { return d.Setting == p.key })
		if a != b && !listed {
			a, b = old.get(p.key).flow(shown), now.get(p.key).flow(shown)
			list = append(list, Difference{p.key, cmp.Or(a, opposite(b)), cmp.Or(b, opposite(a))})
		}
	}
	return list
}

// otherSettings returns the settings beside policies and rules that are not the defaults.
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

// get returns the value of a key; an empty one if it is not there.
func (m mapping) get(key string) node {
	if i := slices.IndexFunc(m, func(p pair) bool { return p.key == key }); i >= 0 {
		return m[i].value
	}
	return node{}
}

// opposite returns the default of a setting with another value: only what is not the default is
// listed.
func opposite(value string) string {
	switch value {
	case "true":
		return "false"
	case "false":
		return "true"
	}
	return "default"
}
