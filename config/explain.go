package config

import (
	"cmp"
	"strconv"
)

// Origin is one setting of a [Config], for people.
type Origin struct {
	Setting string // "store", "policies.api.limits.rpm", "rules.uploads", "server.listen"
	Value   string // without secrets
	// "drawgate.yaml:5:9", "environment: RATE_LIMIT_PER_DAY", "flag --store", "preset gemini-free",
	// "default"
	From string
}

// shown is how many values of a list are shown.
const shown = 20

// Explain lists the settings with their values and their sources.
func (c *Config) Explain() []Origin {
	list := []Origin{{"store", RedactURL(cmp.Or(c.Store, Memory)), c.from("store")}}
	if c.Prefix != "" {
		list = append(list, Origin{"prefix", c.Prefix, c.from("prefix")})
	}
	add := func(setting, value string) { list = append(list, Origin{setting, value, c.from(setting)}) }
	for _, p := range c.general() {
		add(p.key, p.value.flow(shown))
	}
	for i := range c.Policies {
		c.explainPolicy(i, add)
	}
	for i := range c.Rules {
		from := "default"
		if i < len(c.places) {
			from = place{c.places[i].source, c.places[i].start}.String()
			if c.places[i].from != "" {
				from = c.places[i].from
			}
		}
		value := settingsNode(ruleSettings(&c.Rules[i], nil)).flow(shown)
		list = append(list, Origin{ruleSetting(i, c.Rules[i].Name), value, from})
	}
	for _, s := range c.sections() {
		for _, p := range s.value.pairs {
			add(s.key+"."+p.key, p.value.flow(shown))
		}
	}
	return list
}

func (c *Config) explainPolicy(i int, add func(setting, value string)) {
	p := &c.Policies[i]
	m := c.Modes[p.Name]
	for k := range p.Limits {
		add(limitSetting(p.Name, p.Limits[k].Name), settingsNode(limitSettings(&p.Limits[k])).flow(shown))
	}
	for _, s := range set(policySettings(p, &m, nil)) {
		if s.key != "limits" {
			add(policySetting(p.Name)+"."+s.key, s.value.flow(shown))
		}
	}
}

func (c *Config) from(setting string) string {
	if from, ok := c.origins[setting]; ok {
		return from
	}
	return "default"
}

func policySetting(policy string) string { return "policies." + policy }

func limitSetting(policy, limit string) string { return policySetting(policy) + ".limits." + limit }

func waitSetting(policy string) string { return policySetting(policy) + ".wait" }

// ruleSetting is the name of a rule in Explain.
func ruleSetting(i int, name string) string {
	if name == "" {
		return "rules[" + strconv.Itoa(i) + "]"
	}
	return "rules." + name
}
