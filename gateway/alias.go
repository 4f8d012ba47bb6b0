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
	// Models are the model, or the same model at several accounts: upstreams with the same profile,
	// of which one makes a call. The same caller's calls begin with the same one while it has room,
	// and another one takes over what it refuses, or cannot be sent there.
	Models []Target
}

// Target is a model of an upstream, which gets the calls, whichever upstream is in the path.
type Target struct {
	Upstream, Model string

	Weight int // for how many callers it comes first, relative to the others of its alias; 0 means 1
}

const (
	aliasChars = nameChars + "."
	maxAlias   = 128 // bytes of a name
	maxWeight  = 1000
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
		if len(a.Models) == 0 {
			wrong("it stands for no model")
		}
		for k := range a.Models {
			if err := c.checkTarget(a, k); err != nil {
				wrong("%w", err)
			}
		}
	}
	return errs
}

// checkTarget returns what is wrong with one of an alias's models.
func (c *Config) checkTarget(a *Alias, i int) error {
	t := &a.Models[i]
	to := c.upstream(t.Upstream)
	switch {
	case to == nil:
		return fmt.Errorf("there is no upstream %q", t.Upstream)
	case to.Profile == nil:
		return nil // it is reported
	case c.alias(t.Model) != nil:
		return fmt.Errorf("%q is an alias itself: name the model that it stands for", t.Model)
	case to.model(t.Model) == nil:
		return fmt.Errorf("no model of upstream %q fits %q: add one, so that it is counted", to.Name, t.Model)
	case t.Weight < 0 || t.Weight > maxWeight:
		return fmt.Errorf("the weight %d of %s/%s is not between 1 and %d", t.Weight, t.Upstream, t.Model, maxWeight)
	}
	if first := c.upstream(a.Models[0].Upstream); first != nil && first.Profile != nil &&
		first.Profile.Name != to.Profile.Name {
		return fmt.Errorf("upstream %q has the profile %q, and %q has %q: calls are not translated", to.Name,
			to.Profile.Name, first.Name, first.Profile.Name)
	}
	same := func(o Target) bool { return o.Upstream == t.Upstream && o.Model == t.Model }
	if slices.ContainsFunc(a.Models[:i], same) {
		return fmt.Errorf("it stands for %s/%s twice", t.Upstream, t.Model)
	}
	if err := to.Profile.CheckModel(t.Model); err != nil {
		return err //nolint:wrapcheck // it is the reason
	}
	for k := range c.Upstreams {
		u := &c.Upstreams[k]
		if u.Profile != nil && u.Profile.Name == to.Profile.Name && u.has(a.Name) {
			return fmt.Errorf("upstream %q has a model of this name: choose another one", u.Name)
		}
	}
	return nil
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

// resolve returns the call of the model that an alias stands for: at the first of its accounts that
// the caller may use.
func (x *exchange) resolve(c *call, a *Alias) (*call, *refusal) {
	var accounts []Target
	for _, t := range a.Models {
		if x.key.may(t.Upstream, t.Model) || slices.Contains(x.key.Models, a.Name) {
			accounts = append(accounts, t)
		}
	}
	if len(accounts) == 0 {
		return nil, noModel(a.Name, c.up.config.Name)
	}
	if x.state.upstreams[accounts[0].Upstream].config.Profile.Name != c.up.config.Profile.Name {
		const message = "%q stands for a model whose provider has another API than %s: use another base URL"
		return nil, &refusal{kind: llm.NotFound, message: fmt.Sprintf(message, a.Name, c.up.config.Name)}
	}
	if len(accounts) > 1 {
		if c.Hidden > 0 {
			const message = "the call names something that one account has stored, such as a previous response, and " +
				"%q stands for several accounts: ask for the model of one by its own name"
			return nil, &refusal{kind: llm.BadRequest, message: fmt.Sprintf(message, a.Name)}
		}
		accounts = arrange(accounts, x.key.Name+"\x00"+c.CacheName(c.body))
	}
	first := accounts[0]
	path, body, err := c.WithModel(c.path, c.body, first.Model)
	if err != nil {
		return nil, &refusal{kind: llm.BadRequest, message: err.Error()}
	}
	x.up = x.state.upstreams[first.Upstream]
	meant, why := x.read(x.up, path, body)
	if why != nil {
		return nil, why
	}
	meant.alias, meant.label, meant.others = a.Name, x.called(x.up, first.Model), accounts[1:]
	x.path = "/" + first.Upstream + path
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

// mayUseAny reports whether the key of a request may use a model of an upstream, by whatever name.
func (x *exchange) mayUseAny(upstream string) bool {
	names := x.key.Models
	return len(names) == 0 || slices.ContainsFunc(names, func(name string) bool {
		prefix, more := strings.CutSuffix(name, "*")
		if strings.HasPrefix(name, upstream+"/") || more && strings.HasPrefix(upstream+"/", prefix) {
			return true
		}
		a := x.state.aliases[name]
		return a != nil && slices.ContainsFunc(a.Models, func(t Target) bool { return t.Upstream == upstream })
	})
}

// name returns the name by which a caller has asked for a call's model.
func (c *call) name() string { return cmp.Or(c.alias, c.Model) }
