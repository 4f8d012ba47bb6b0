package fromlitellm

import (
	"slices"
	"strings"

	"github.com/drawgate/drawgate/internal/pattern"
	"github.com/drawgate/drawgate/llm"
)

// maxFallbacks is the most fallbacks of a model, and the most accounts of an alias.
const maxFallbacks = 8

// name finds out how callers ask for each model_name.
func (c *conversion) name() {
	for _, d := range c.deployments {
		g := c.byName[d.group]
		if g == nil {
			g = &group{value: d.value, name: d.group}
			c.byName[d.group] = g
			c.groups = append(c.groups, g)
		}
		g.access = append(g.access, d.access...)
		c.join(g, d)
	}
	for _, g := range c.groups {
		c.nameGroup(g)
	}
}

// join adds a deployment to its group, if callers can reach it as the others.
func (c *conversion) join(g *group, d *deployment) {
	e := d.entry
	if i := slices.Index(g.entries, e); i >= 0 {
		g.weights[i] += c.weight(g, d)
		return
	}
	why := ""
	switch {
	case len(g.entries) == 0:
	case !sameAPI(g.entries[0], e):
		why = "calls of " + g.entries[0].up.name + " are written in another way, and calls are not translated"
	case isPattern(e.model):
		why = "a pattern cannot stand for several accounts"
	case len(g.entries) == maxFallbacks:
		why = "a name can stand for 8 accounts"
	}
	if why != "" {
		c.leave(d.value, "model "+show(d.group), "%s: callers reach this one at /%s, as %s", why, e.up.name, show(e.model))
		return
	}
	g.entries, g.weights = append(g.entries, e), append(g.weights, c.weight(g, d))
}

// sameAPI reports whether one call can be sent to both.
func sameAPI(a, b *entry) bool { return a.up.profile == b.up.profile && a.up.v1 == b.up.v1 }

func isPattern(name string) bool { return strings.HasSuffix(name, "*") }

// nameGroup gives a group an alias if its name is not that of its model.
func (c *conversion) nameGroup(g *group) {
	first := g.entries[0]
	own := slices.IndexFunc(g.entries, func(e *entry) bool { return e.model == g.name })
	why := c.noAlias(g.name, g.entries)
	what := "model " + show(g.name)
	switch {
	case isPattern(first.model) || isPattern(g.name):
		if g.name != first.model {
			c.leave(g.value, what, "callers write the model's own name, at /%s: %s", first.up.name, show(first.model))
		}
		return
	case own >= 0:
		g.entries[0], g.entries[own] = g.entries[own], first
		g.weights[0], g.weights[own] = g.weights[own], g.weights[0]
	case why == "":
		g.alias = g.name
		c.aliases = append(c.aliases, &alias{g.name, g.entries, g.weights})
		return
	default:
		c.leave(g.value, what, "%s: callers write %s, at /%s", why, show(first.model), first.up.name)
	}
	if len(g.entries) > 1 {
		c.leave(g.value, what, "its accounts do not share the load: the first one is used while it has room, then the others")
		for _, e := range g.entries[1:] {
			c.fallback(g.entries[0], e, g.value)
		}
	}
}

var aliasNames = pattern.New(`^[A-Za-z0-9._-]{1,128}$`)

// noAlias says why a name cannot be an alias of models; "" if it can.
func (c *conversion) noAlias(name string, entries []*entry) string {
	if len(c.aliases) == maxAliases {
		return "there are too many names"
	}
	if !aliasNames().MatchString(name) || strings.Trim(name, ".") == "" {
		return "a name is made of letters, digits, -, . and _"
	}
	for _, a := range c.aliases {
		if strings.EqualFold(a.name, name) {
			return "the name differs from another one in capitals only"
		}
	}
	lower := strings.ToLower(name)
	for _, u := range c.upstreams {
		for _, e := range u.entries {
			prefix, pattern := strings.CutSuffix(strings.ToLower(e.model), "*")
			if prefix == lower || pattern && prefix != "" && strings.HasPrefix(lower, prefix) {
				return "the name is that of a model of " + u.name
			}
		}
	}
	p, ok := llm.ByName(entries[0].up.profile)
	if !ok || p.Knows(lower) {
		return "the name is that of a model of " + entries[0].up.profile
	}
	for _, e := range entries {
		if isPattern(e.model) {
			return "a name cannot stand for a pattern"
		}
		if p.CheckModel(e.model) != nil {
			return "a path cannot have the name of " + show(e.model)
		}
	}
	return ""
}

// groupAliases reads model_group_alias: {"gpt-4": "gpt-4o"}, or {"gpt-4": {model: gpt-4o, hidden:
// true}}. What is hidden is not listed there; no alias is listed here.
func (c *conversion) groupAliases(v *value) {
	if v == nil {
		return
	}
	for _, p := range v.keys {
		to := p.plain()
		if p.kind == isTable {
			to = p.get("model").plain()
		}
		what := "model_group_alias " + show(p.key)
		g := c.byName[to]
		if g == nil {
			c.leave(p.value, what, "no model that is here has the name %s", show(to))
			continue
		}
		if why := c.noAlias(p.key, g.entries); why != "" {
			c.leave(p.value, what, "%s: callers write %s", why, show(g.callers()))
			continue
		}
		c.aliases = append(c.aliases, &alias{p.key, g.entries, g.weights})
		c.byName[p.key] = &group{value: p.value, name: p.key, entries: g.entries, weights: g.weights, alias: p.key}
	}
}

// callers returns the name that callers of a group write.
func (g *group) callers() string {
	if g.alias != "" {
		return g.alias
	}
	return g.entries[0].model
}

// fallbacks reads lists of fallbacks: [{"gpt-4o": ["gpt-4o-mini"]}].
func (c *conversion) fallbacks(lists []*value) {
	for _, list := range lists {
		for _, item := range list.list {
			for _, p := range item.keys {
				c.fallbacksOf(p)
			}
		}
	}
}

func (c *conversion) fallbacksOf(p pair) {
	what := "fallbacks of " + show(p.key)
	from := c.byName[p.key]
	if from == nil {
		c.leave(p.value, what, "no model that is here has this name")
		return
	}
	for _, to := range p.list {
		g := c.byName[to.plain()]
		switch {
		case g == nil:
			c.leave(p.value, what, "no model that is here has the name %s", show(to.plain()))
			continue
		case !sameAPI(from.entries[0], g.entries[0]):
			c.leave(p.value, what, "calls of %s are written in another way, and calls are not translated", show(to.plain()))
			continue
		}
		for _, e := range from.entries {
			for _, other := range g.entries {
				c.fallback(e, other, p.value)
			}
		}
	}
}

// fallback makes a model the next fallback of another one.
func (c *conversion) fallback(of, to *entry, at *value) {
	what := "fallbacks of " + show(of.model)
	name := to.target()
	switch {
	case of == to || slices.Contains(of.fallbacks, name):
	case isPattern(to.model):
		c.leave(at, what, "%s is a pattern, and a fallback is one model", show(name))
	case len(of.fallbacks) == maxFallbacks:
		c.leave(at, what, "the most are %d", maxFallbacks)
	default:
		of.fallbacks = append(of.fallbacks, name)
	}
}

// allowed returns what a key may use that LiteLLM allows a model_name, or a pattern of them; none
// if nothing that is here has such a name.
func (c *conversion) allowed(name string) (list []string) {
	if g := c.byName[name]; g != nil {
		return g.patterns()
	}
	for _, g := range c.groups {
		if slices.Contains(g.access, name) {
			list = append(list, g.patterns()...)
		}
	}
	if prefix, ok := strings.CutSuffix(name, "*"); ok {
		for _, g := range c.groups {
			if strings.HasPrefix(g.name, prefix) {
				list = append(list, g.patterns()...)
			}
		}
		return list
	}
	for _, g := range c.groups { // a model of a pattern
		prefix, ok := strings.CutSuffix(g.name, "*")
		behind, all := strings.CutSuffix(g.entries[0].model, "*")
		if ok && all && strings.HasPrefix(name, prefix) && modelNames().MatchString(name) {
			list = append(list, g.entries[0].up.name+"/"+behind+strings.TrimPrefix(name, prefix))
		}
	}
	return list
}

// patterns returns what a key may use that may use a group.
func (g *group) patterns() (list []string) {
	if g.alias != "" {
		return []string{g.alias}
	}
	for _, e := range g.entries {
		list = append(list, e.target())
	}
	return list
}
