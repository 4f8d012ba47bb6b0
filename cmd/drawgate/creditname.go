package main

import (
	"context"
	"slices"
	"strings"

	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/internal/similar"
	"github.com/drawgate/drawgate/virtualkey"
)

// checkName returns an error for a name that is probably misspelt: nothing in the file and the
// store has it, and its budget was neither credited nor used so far.
func (p *prepaid) checkName(ctx context.Context, name string) error {
	if open(&p.Gateway, name) {
		return nil
	}
	names, err := p.names(ctx)
	if err != nil || len(names) == 0 || slices.Contains(names, name) {
		return err
	}
	given, _, err := p.account.List(ctx, p.opened)
	if err != nil || len(given) > 0 {
		return err
	}
	if used, _, err := p.status(ctx); err != nil || used > 0 {
		return err
	}
	by := p.countedBy()
	if len(by) == 0 {
		by = kinds
	}
	what := strings.Join(by, ", ")
	if i := len(by) - 1; i > 0 {
		what = strings.Join(by[:i], ", ") + " or " + by[i]
	}
	return usage("nothing was credited: no %s of the gateway is called %q (if it is meant, add --new)%s",
		what, name, similar.Suggest(name, names))
}

// kinds are what names are of.
var kinds = []string{"key", "team", "user", "class"}

// countedBy returns the kinds of names by which rules apply the policy of the budget; none if it is
// not known, because no rule does, or by something else.
func (p *prepaid) countedBy() (by []string) {
	form := strings.NewReplacer(" ", "", "\t", "", "\n", "", "'", `"`)
	for i := range p.Rules {
		for _, a := range p.Rules[i].Apply {
			if a.Policy != p.account.Policy {
				continue
			}
			is := slices.IndexFunc(kinds, func(kind string) bool {
				expr := form.Replace(a.Key)
				return expr == kind && kind != "key" && kind != "team" || expr == `attr("`+kind+`")` && kind != "class"
			})
			if is < 0 {
				return nil
			}
			if !slices.Contains(by, kinds[is]) {
				by = append(by, kinds[is])
			}
		}
	}
	return by
}

// open reports whether tokens may have a name that is neither in the file nor in the store.
func open(g *config.Gateway, name string) bool {
	return slices.ContainsFunc(g.Tokens, func(t config.TokenIssuer) bool {
		return t.TeamClaim != "" || t.UserClaim != "" || strings.Contains(name, "#")
	})
}

// names returns what the gateway's keys are called, and their teams, users and classes, which are
// what rules usually count by: those by which rules count the budget, if that is known. None if
// there is no gateway.
func (p *prepaid) names(ctx context.Context) (names []string, err error) {
	g := &p.Gateway
	added := map[string]bool{"": true}
	by := p.countedBy()
	add := func(list ...string) { // as kinds
		for i, name := range list {
			if !added[name] && (len(by) == 0 || slices.Contains(by, kinds[i])) {
				added[name], names = true, append(names, name)
			}
		}
	}
	for i := range g.Keys {
		k := &g.Keys[i]
		add(k.Name, k.Team, k.User, k.Class)
	}
	for i := range g.Tokens {
		k := &g.Tokens[i].Key
		add("", k.Team, k.User, k.Class)
	}
	if !g.KeysIn {
		return names, nil
	}
	book, err := virtualkey.Open(ctx, p.opened, config.NewSecret, nil)
	if err != nil {
		return nil, err
	}
	defer book.Close()
	list, err := book.List(ctx)
	for _, k := range list {
		add(k.Name, k.Team, k.User, k.Class)
	}
	return names, err
}
