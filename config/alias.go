package config

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/drawgate/drawgate/llm"
)

// Alias is a name by which callers of the gateway ask for a model.
type Alias struct {
	Name  string
	Model string // "upstream/model"
}

var aliasNames = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)

func aliasSetting(name string) string { return "gateway.aliases." + name }

// aliases returns the value of the aliases.
func (g *Gateway) aliases() value {
	return value{
		read: func(d *decoder, e entry) {
			entries, ok := d.entries(e.value, e.key)
			if ok && (len(entries) == 0 || len(entries) > maxAliases) {
				d.missing(spanOf(e.value), "", "aliases has %d entries, not 1 to %d", len(entries), maxAliases)
			}
			for _, e := range entries {
				g.Aliases = append(g.Aliases, d.alias(e))
				d.origin(aliasSetting(e.key), spanOf(e.value))
			}
		},
		node: func() (n node) {
			for _, a := range g.Aliases {
				n.pairs = append(n.pairs, pair{quote(a.Name), textNode(a.Model)})
			}
			return n
		},
		schema: mapOf(asShort.schema).with(schema{
			"maxProperties": maxAliases, "propertyNames": matching(aliasNames),
		}),
		bounds: fmt.Sprintf("1 to %d", maxAliases),
	}
}

func (d *decoder) alias(e entry) Alias {
	if !aliasNames.MatchString(e.key) || strings.Trim(e.key, ".") == "" {
		d.problem(e.at, "such as fast", "the alias %s is not made of 1 to 128 letters, digits, -, . and _", shorten(e.key))
	}
	return Alias{e.key, asShort.read(d, e)}
}

// alias returns the alias of a name, or nil.
func (g *Gateway) alias(name string) *Alias {
	return g.aliasBy(func(alias string) bool { return alias == name })
}

// likeAlias returns the alias of a name, in any capitals, or nil.
func (g *Gateway) likeAlias(name string) *Alias {
	return g.aliasBy(func(alias string) bool { return strings.EqualFold(alias, name) })
}

func (g *Gateway) aliasBy(is func(name string) bool) *Alias {
	i := slices.IndexFunc(g.Aliases, func(a Alias) bool { return is(a.Name) })
	if i < 0 {
		return nil
	}
	return &g.Aliases[i]
}

// aliased returns the upstream and the model of "upstream/model". The upstream is nil if there is
// none of that name.
func (g *Gateway) aliased(name string) (to *Upstream, model string) {
	upstream, model, _ := strings.Cut(name, "/")
	i := slices.IndexFunc(g.Upstreams, func(u Upstream) bool { return u.Name == upstream })
	if i < 0 {
		return nil, model
	}
	return &g.Upstreams[i], model
}

// checkAliases checks what aliases name elsewhere.
func (c *Config) checkAliases() (problems Problems) {
	g := &c.Gateway
	first := map[string]string{}
	for i := range g.Aliases {
		a := &g.Aliases[i]
		lower := strings.ToLower(a.Name)
		if other := first[lower]; other != "" {
			problems = append(problems, c.note(aliasSetting(a.Name), fmt.Sprintf(
				"the aliases %s and %s differ in capitals only", shorten(other), shorten(a.Name)), "leave one of them out"))
		}
		first[lower] = a.Name
		if a.Model == "" {
			continue // it was reported
		}
		if text, hint := g.checkAlias(a); text != "" {
			problems = append(problems, c.note(aliasSetting(a.Name), text, hint))
		}
	}
	return problems
}

// checkAlias returns what is wrong with an alias, and a hint.
func (g *Gateway) checkAlias(a *Alias) (text, hint string) {
	to, model := g.aliased(a.Model)
	switch {
	case g.likeAlias(a.Model) != nil, to != nil && g.likeAlias(model) != nil:
		return fmt.Sprintf("alias %s stands for %s, which is an alias itself", shorten(a.Name), shorten(a.Model)),
			"name the model"
	case to == nil:
		var names []string
		for i := range g.Upstreams {
			names = append(names, g.Upstreams[i].Name)
		}
		hint = "write UPSTREAM/MODEL, such as " + example(names) + "/gpt-4.1-mini"
		if meant := g.meantFallback(a.Model); meant != "" {
			hint = meant
		}
		return fmt.Sprintf("alias %s stands for %s, which is of no upstream", shorten(a.Name), shorten(a.Model)), hint
	case to.model(model) == nil:
		return fmt.Sprintf("nothing counts %s, for which alias %s stands: none of the models of upstream %s fits it",
			shorten(model), shorten(a.Name), shorten(to.Name)), "add it to the models, with its policy"
	}
	p, err := to.Provider()
	if err != nil {
		return "", "" // it was reported
	}
	if err := p.CheckModel(model); err != nil {
		return fmt.Sprintf("alias %s: %s", shorten(a.Name), strings.TrimPrefix(err.Error(), "llm: ")), ""
	}
	for i := range g.Upstreams {
		if u := &g.Upstreams[i]; u.sameAPI(to) && u.has(p, a.Name) {
			return fmt.Sprintf("alias %s is also the name of a model of upstream %s", shorten(a.Name), shorten(u.Name)),
				"choose a name that is no model's, and that no entry of its models fits but \"*\""
		}
	}
	return "", ""
}

// sameAPI reports whether calls to an upstream are written as those to another one.
func (u *Upstream) sameAPI(other *Upstream) bool {
	return u.Profile == other.Profile && reflect.DeepEqual(u.Generic, other.Generic)
}

// has reports whether a name is that of a model: an entry fits it other than one for all models, or
// the provider is known to have such a model.
func (u *Upstream) has(p *llm.Profile, name string) bool {
	name = strings.ToLower(name)
	return p.Knows(name) || slices.ContainsFunc(u.Models, func(m Model) bool {
		return m.Model != "*" && fits(strings.ToLower(m.Model), name)
	})
}

// warnAliases warns about aliases of models that may not exist, or have no price.
func (c *Config) warnAliases() {
	g := &c.Gateway
	for i := range g.Aliases {
		a := &g.Aliases[i]
		to, _ := g.aliased(a.Model)
		what := "alias " + shorten(a.Name) + ": the model"
		if text, hint := g.doubtful(to, what, a.Model); text != "" {
			c.warnOf(aliasSetting(a.Name), hint, "%s", text)
		}
	}
}
