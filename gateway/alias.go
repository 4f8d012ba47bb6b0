package gateway

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/drawgate/drawgate/llm"
)

// Alias is a name by which callers ask for a model, behind every upstream whose profile is that of
// the model's upstream. Calls by it are those of the model in every other respect: the provider
// gets the model's name, and the model's entry counts them.
type Alias struct {
	// letters, digits and -._; no model of these upstreams may have the name
	Name string
	// the model, and the upstream that gets the calls, whichever one is in the path
	Upstream, Model string
}

const (
	aliasChars = nameChars + "."
	maxAlias   = 128 // bytes of a name
)

// alias returns the alias of a name, in any capitals, or nil: Azure passes over them.
func (c *Config) alias(name string) *Alias {
	i := slices.IndexFunc(c.Aliases, func(a Alias) bool { return strings.EqualFold(a.Name, name) })
	if i < 0 {
		return nil
	}
	return &c.Aliases[i]
}

// checkAliases returns the mistakes of aliases.
func (c *Config) checkAliases() (errs []error) {
	names := map[string]bool{}
	for i := range c.Aliases {
		a := &c.Aliases[i]
		wrong := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("gateway: alias %q: "+format, append([]any{a.Name}, args...)...))
		}
		if err := checkAlias(a.Name); err != nil {
			errs = append(errs, err)
		}
		lower := strings.ToLower(a.Name)
		if names[lower] {
			wrong("there is another one of this name")
		}
		names[lower] = true
		to := c.upstream(a.Upstream)
		switch {
		case to == nil:
			wrong("there is no upstream %q", a.Upstream)
			continue
		case to.Profile == nil:
			continue // it is reported
		case c.alias(a.Model) != nil:
			wrong("%q is an alias itself: name the model that it stands for", a.Model)
		case to.model(a.Model) == nil:
			wrong("no model of upstream %q fits %q: add one, so that it is counted", to.Name, a.Model)
		}
		if err := to.Profile.CheckModel(a.Model); err != nil {
			wrong("%w", err)
		}
		for k := range c.Upstreams {
			u := &c.Upstreams[k]
			if u.Profile != nil && u.Profile.Name == to.Profile.Name && u.has(a.Name) {
				wrong("upstream %q has a model of this name: choose another one", u.Name)
			}
		}
	}
	return errs
}

// checkAlias returns why a name cannot be that of an alias.
func checkAlias(name string) error {
	if name == "" || len(name) > maxAlias || strings.Trim(name, aliasChars) != "" || strings.Trim(name, ".") == "" {
		return fmt.Errorf("gateway: the alias %q is not made of 1 to %d letters, digits, -, . and _", name, maxAlias)
	}
	return nil
}

// has reports whether a name is that of a model: an entry fits it other than one for all models, or
// the provider is known to have such a model.
func (u *Upstream) has(name string) bool {
	name = strings.ToLower(name)
	return u.Profile.Knows(name) || slices.ContainsFunc(u.Models, func(m Model) bool {
		return m.Name != "*" && fits(strings.ToLower(m.Name), name)
	})
}

// resolve returns the call of the model that an alias stands for.
func (x *exchange) resolve(c *call, a *Alias) (*call, *refusal) {
	up := x.state.upstreams[a.Upstream]
	switch {
	case !x.key.may(a.Upstream, a.Model) && !slices.Contains(x.key.Models, a.Name):
		return nil, noModel(a.Name, c.up.config.Name)
	case up.config.Profile.Name != c.up.config.Profile.Name:
		const message = "%q stands for a model whose provider has another API than %s: use another base URL"
		return nil, &refusal{kind: llm.NotFound, message: fmt.Sprintf(message, a.Name, c.up.config.Name)}
	}
	path, body, err := c.WithModel(c.path, c.body, a.Model)
	if err != nil {
		return nil, &refusal{kind: llm.BadRequest, message: err.Error()}
	}
	x.up = up
	meant, why := x.read(up, path, body)
	if why != nil {
		return nil, why
	}
	meant.alias, meant.label = a.Name, x.called(up, a.Model)
	x.path = "/" + up.config.Name + path
	return meant, x.route(meant)
}

// called returns the name by which a caller can ask for a model: with its upstream, unless that is
// in the caller's path.
func (x *exchange) called(up *upstream, model string) string {
	if up == x.asked {
		return model
	}
	return up.config.Name + "/" + model
}

// mayUse reports whether the key of a request may make a call: of its model, or by the alias that
// the request names.
func (x *exchange) mayUse(c *call) bool {
	return c.alias != "" && slices.Contains(x.key.Models, c.alias) || x.key.may(c.up.config.Name, c.Model)
}

// name returns the name by which a caller has asked for a call's model.
func (c *call) name() string { return cmp.Or(c.alias, c.Model) }
