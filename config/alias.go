package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/drawgate/drawgate/internal/pattern"
	"github.com/drawgate/drawgate/llm"
)

// Alias is a name by which callers of the gateway ask for a model.
type Alias struct {
	Name   string
	Models []AliasModel // more than one: the same model at several accounts
}

// AliasModel is one of the models that an alias stands for.
type AliasModel struct {
	Model  string // "upstream/model"
	Weight int    // how often it comes first, relative to the others; 0 means 1
}

var aliasNames = pattern.New(`^[A-Za-z0-9._-]{1,128}$`)

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
				n.pairs = append(n.pairs, pair{quote(a.Name), asAliasModels.node(a.Models)})
			}
			return n
		},
		schema: mapOf(asAliasModels.schema).with(schema{
			"maxProperties": maxAliases, "propertyNames": matching(aliasNames),
		}),
		bounds: fmt.Sprintf("1 to %d", maxAliases),
	}
}

func (d *decoder) alias(e entry) Alias {
	if !aliasNames().MatchString(e.key) || strings.Trim(e.key, ".") == "" {
		d.problem(e.at, "such as fast", "the alias %s is not made of 1 to 128 letters, digits, -, . and _", shorten(e.key))
	}
	return Alias{e.key, asAliasModels.read(d, e)}
}

// asAliasModels is the form of one model, or of a list of models that may have weights.
var asAliasModels = form[[]AliasModel]{
	read: (*decoder).aliasModels,
	node: func(list []AliasModel) (n node) {
		if len(list) == 1 && list[0].Weight == 0 {
			return textNode(list[0].Model)
		}
		for _, m := range list {
			n.list = append(n.list, m.node())
		}
		return n
	},
	schema: schema{"anyOf": []schema{
		asShort.schema, listOf(schema{"anyOf": []schema{asShort.schema, aliasModelSection.schema()}}, maxFallbacks),
	}},
}

var aliasModelSection = &section[AliasModel]{
	name: "aliasModel", what: "a model of an alias", settings: (*AliasModel).settings,
	lacks: "a model of an alias needs model", hint: "such as {model: openai/gpt-4.1, weight: 2}",
}

func (m *AliasModel) settings() []setting {
	return []setting{
		{"model", asShort.to(&m.Model), required, "`UPSTREAM/MODEL`"},
		{"weight", number[int](1, maxWeight).to(&m.Weight), "1", "for how many callers it comes first, relative to " +
			"the other accounts"},
	}
}

func (d *decoder) aliasModels(e entry) (list []AliasModel) {
	if _, several := e.value.(*ast.SequenceNode); !several {
		if model := asShort.read(d, e); model != "" {
			list = append(list, AliasModel{Model: model})
		}
		return list
	}
	items, _ := d.list(e, maxFallbacks)
	for _, n := range items {
		var m AliasModel
		item := entry{e.key, spanOf(n), n}
		switch n.(type) {
		case *ast.MappingNode, *ast.MappingValueNode:
			aliasModelSection.read(d, item, &m)
		default:
			m.Model = asShort.read(d, item)
		}
		if m.Model != "" {
			list = append(list, m)
		}
	}
	return list
}

func (m AliasModel) node() node {
	if m.Weight == 0 {
		return textNode(m.Model)
	}
	return aliasModelSection.node(m)
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
		for i := range a.Models {
			if text, hint := g.checkAlias(a, i); text != "" {
				problems = append(problems, c.note(aliasSetting(a.Name), text, hint))
			}
		}
	}
	return problems
}

// checkAlias returns what is wrong with one of an alias's models, and a hint.
func (g *Gateway) checkAlias(a *Alias, i int) (text, hint string) {
	name := a.Models[i].Model
	to, model := g.aliased(name)
	first, _ := g.aliased(a.Models[0].Model)
	switch {
	case g.likeAlias(name) != nil, to != nil && g.likeAlias(model) != nil:
		return fmt.Sprintf("alias %s stands for %s, which is an alias itself", shorten(a.Name), shorten(name)),
			"name the model"
	case to == nil:
		var names []string
		for i := range g.Upstreams {
			names = append(names, g.Upstreams[i].Name)
		}
		hint = "write UPSTREAM/MODEL, such as " + example(names) + "/gpt-4.1-mini"
		if meant := g.meantFallback(name); meant != "" {
			hint = meant
		}
		return fmt.Sprintf("alias %s stands for %s, which is of no upstream", shorten(a.Name), shorten(name)), hint
	case to.model(model) == nil:
		return fmt.Sprintf("nothing counts %s, for which alias %s stands: none of the models of upstream %s fits it",
			shorten(model), shorten(a.Name), shorten(to.Name)), "add it to the models, with its policy"
	case first != nil && !first.sameAPI(to):
		return fmt.Sprintf("alias %s stands for models of upstreams with different profiles: calls are not translated",
			shorten(a.Name)), "choose upstreams of the same profile"
	case slices.ContainsFunc(a.Models[:i], func(m AliasModel) bool { return m.Model == name }):
		return fmt.Sprintf("alias %s stands for %s twice", shorten(a.Name), shorten(name)), "give it weight: 2"
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
		for _, m := range a.Models {
			to, _ := g.aliased(m.Model)
			what := "alias " + shorten(a.Name) + ": the model"
			if text, hint := g.doubtful(to, what, m.Model); text != "" {
				c.warnOf(aliasSetting(a.Name), hint, "%s", text)
			}
		}
	}
}
