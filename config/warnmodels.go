package config

import (
	"slices"
	"strings"

	"github.com/drawgate/drawgate/llm"
)

// warnModels warns about entries of an upstream's models of which it is not plain which one counts
// a call: two for the same model, or for versions of one, with different policies.
func (c *Config) warnModels(u *Upstream, p *llm.Profile) {
	families := make([]string, len(u.Models))
	for k := range u.Models {
		m := &u.Models[k]
		name := strings.ToLower(m.Model)
		pattern := strings.HasSuffix(name, "*")
		if !pattern && p.Knows(name) {
			families[k] = p.Family(name).Name
		}
		setting := modelSetting(u.Name, k) + ".model"
		like := slices.IndexFunc(u.Models[:k], func(o Model) bool {
			return o.Model == m.Model || !pattern && strings.EqualFold(o.Model, m.Model)
		})
		switch {
		case like < 0:
		case u.Models[like].Model == m.Model:
			c.warnOf(setting, "leave one of them out",
				"an earlier entry of %s is for %s as well: this one counts nothing", shorten(u.Name), shorten(m.Model))
			continue
		case u.Models[like].Policy != m.Policy:
			c.warnOf(setting, "give them the same policy, if they are one model",
				"%s and %s of %s differ in capitals only, and have different policies: where the provider takes them for "+
					"one model, callers choose which of these counts it",
				shorten(u.Models[like].Model), shorten(m.Model), shorten(u.Name))
			continue
		}
		// Without a pattern behind it, an entry counts its own name only.
		first := slices.IndexFunc(families[:k], func(f string) bool { return f != "" && f == families[k] })
		if first >= 0 && u.Models[first].Policy != m.Policy &&
			slices.ContainsFunc(u.Models[first+1:], func(o Model) bool { return strings.HasSuffix(o.Model, "*") }) {
			c.warnOf(setting, "give them the same policy, and their other versions an entry",
				"%s and %s of %s are versions of one model, which providers count together, and have different policies: "+
					"a version that has no entry is counted by the one whose name it begins with, otherwise by %[1]s",
				shorten(u.Models[first].Model), shorten(m.Model), shorten(u.Name))
		}
	}
}
