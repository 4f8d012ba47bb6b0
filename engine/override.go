package engine

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/drawgate/drawgate"
)

// overrides finds the variant of a key.
type overrides struct {
	exact  map[keyOf]*variant
	starts map[keyOf]*variant // by the prefix of the key
	long   []int              // lengths of the prefixes, longest first

	given atomic.Pointer[map[string]*variant] // by key: see [Engine.GiveAmounts]
}

// keyOf is a key of a tenant, or of any tenant if that is "".
type keyOf struct{ tenant, key string }

// add adds an override.
func (o *overrides) add(c *Override, v *variant) error {
	list, key := &o.exact, c.Key
	if start, ok := strings.CutSuffix(c.Key, "*"); ok {
		list, key = &o.starts, start
		if !slices.Contains(o.long, len(start)) {
			o.long = append(o.long, len(start))
			slices.SortFunc(o.long, func(a, b int) int { return b - a })
		}
	}
	if list == &o.exact {
		key = drawgate.BoundedKey(key)
	}
	k := keyOf{c.Tenant, key}
	if _, twice := (*list)[k]; twice {
		return errors.New("the same key and tenant have two overrides")
	}
	if *list == nil {
		*list = map[keyOf]*variant{}
	}
	(*list)[k] = v
	return nil
}

// of returns the variant for a key: that of the key itself, cut ([drawgate.BoundedKey]) or not,
// then what the key was given, then that of the longest prefix, each for the tenant before that for
// any. It returns nil if there is none.
func (o *overrides) of(tenant, key string) *variant {
	if v := either(o.exact, tenant, drawgate.BoundedKey(key)); v != nil {
		return v
	}
	if given := o.given.Load(); given != nil {
		if v := (*given)[drawgate.BoundedKey(key)]; v != nil {
			return v
		}
	}
	for _, n := range o.long {
		if n > len(key) {
			continue
		}
		if v := either(o.starts, tenant, key[:n]); v != nil {
			return v
		}
	}
	return nil
}

func either(list map[keyOf]*variant, tenant, key string) *variant {
	if len(list) == 0 {
		return nil
	}
	if v := list[keyOf{tenant, key}]; v != nil {
		return v
	}
	return list[keyOf{"", key}]
}
