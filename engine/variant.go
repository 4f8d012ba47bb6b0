package engine

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/similar"
)

// variant is a policy with one set of amounts. Whatever the amounts, the buckets are the policy's.
type variant struct {
	own    *drawgate.Limiter
	shadow *drawgate.Limiter // for shadows; nil if there are none of this policy
}

// limiter returns the one that is meant.
func (v *variant) limiter(shadow bool) *drawgate.Limiter {
	if shadow {
		return v.shadow
	}
	return v.own
}

// adapted returns v with the limiter that counts an ask. Shadows stay as they are.
func (v *variant) adapted(a *Ask) *variant {
	if a.Adapt == nil {
		return v
	}
	return &variant{own: a.Adapt(v.own), shadow: v.shadow}
}

// variants makes variants of a policy, each once.
type variants struct {
	base   *drawgate.Limiter
	shadow *drawgate.Limiter // what the limiters for shadows are made from; nil if none are needed
	suffix string            // of the policy part of their keys
	policy drawgate.Policy
	made   map[string]*variant
}

// with returns the variant with these amounts.
func (v *variants) with(amounts map[string]int64) (*variant, error) {
	id := fingerprint(amounts)
	if have := v.made[id]; have != nil {
		return have, nil
	}
	p, err := withAmounts(v.policy, amounts)
	if err != nil {
		return nil, err
	}
	made := &variant{}
	if made.own, err = v.base.With(p); err != nil {
		return nil, err
	}
	if v.shadow != nil {
		p.Name += v.suffix
		if made.shadow, err = v.shadow.With(p); err != nil {
			return nil, err
		}
	}
	v.made[id] = made
	return made, nil
}

// fingerprint is the same for the same amounts.
func fingerprint(amounts map[string]int64) string {
	var b []byte
	for _, name := range slices.Sorted(maps.Keys(amounts)) {
		b = fmt.Appendf(b, "%q:%d ", name, amounts[name])
	}
	return string(b)
}

// burst ends the name of a limit whose burst is meant.
const burst = ".burst"

// withAmounts returns a policy with some amounts changed.
func withAmounts(p drawgate.Policy, amounts map[string]int64) (drawgate.Policy, error) {
	p.Limits = slices.Clone(p.Limits)
	for _, name := range slices.Sorted(maps.Keys(amounts)) {
		n := amounts[name]
		if i := limit(&p, name); i >= 0 {
			p.Limits[i].Amount = n
			continue
		}
		short, ok := strings.CutSuffix(name, burst)
		i := limit(&p, short)
		switch {
		case !ok || i < 0:
			return p, fmt.Errorf("policy %q has no limit %q%s", p.Name, name, similar.Suggest(name, limitNames(&p)))
		case p.Limits[i].Kind != drawgate.Bucket:
			return p, fmt.Errorf("limit %q of policy %q is a %s limit: only a bucket has a burst", short, p.Name,
				p.Limits[i].Kind)
		case n < 1:
			return p, fmt.Errorf("%s: %d is less than 1", name, n)
		}
		p.Limits[i].Burst = n
	}
	return p, nil
}

// limit returns the position of a limit, and -1 if there is none of this name.
func limit(p *drawgate.Policy, name string) int {
	return slices.IndexFunc(p.Limits, func(l drawgate.Limit) bool { return l.Name == name })
}

func limitNames(p *drawgate.Policy) []string {
	var names []string
	for i := range p.Limits {
		names = append(names, p.Limits[i].Name)
		if p.Limits[i].Kind == drawgate.Bucket {
			names = append(names, p.Limits[i].Name+burst)
		}
	}
	return names
}
