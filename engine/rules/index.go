package rules

import (
	"maps"
	"net/http"
	"slices"
	"strings"
)

// index finds the rules whose conditions on single attributes hold. For each attribute it has the
// set of rules that a value satisfies; the rules in all of the sets match. Attributes that no rule
// uses have no set.
type index struct {
	all     bitset
	method  *field
	path    *paths
	host    *field
	route   *field
	user    *field
	class   *field
	ip      *networks
	headers []namedField
	attrs   []namedField
}

type namedField struct {
	name string
	*field
}

// pair is a condition on a header or attribute that few rules use. It is only evaluated if the rest
// of the rule matches.
type pair struct {
	name, cond string
	header     bool
}

// few is the largest number of such rules.
const few = 4

func newIndex(list []rule) *index {
	n := len(list)
	x := &index{all: newBitset(n)}
	for i := range list {
		x.all.add(i)
	}
	get := func(host bool, f func(*Match) string) *field {
		if !slices.ContainsFunc(list, func(r rule) bool { return f(&r.Match) != "" }) {
			return nil
		}
		d := newField(n)
		d.host = host
		for i := range list {
			d.add(i, f(&list[i].Match))
		}
		return d
	}
	x.host = get(true, func(m *Match) string { return strings.ToLower(m.Host) })
	x.route = get(false, func(m *Match) string { return m.Route })
	x.user = get(false, func(m *Match) string { return m.User })
	x.class = get(false, func(m *Match) string { return m.Class })
	x.methods(list)
	x.rest(list)
	x.headers = pairs(list, true)
	x.attrs = pairs(list, false)
	return x
}

func (x *index) methods(list []rule) {
	if !slices.ContainsFunc(list, func(r rule) bool { return len(r.Match.Methods) > 0 }) {
		return
	}
	x.method = newField(len(list))
	for i := range list {
		if len(list[i].Match.Methods) == 0 {
			x.method.free.add(i)
		}
		for _, m := range list[i].Match.Methods {
			x.method.add(i, strings.ToUpper(m))
		}
	}
}

// rest indexes paths and networks.
func (x *index) rest(list []rule) {
	if slices.ContainsFunc(list, func(r rule) bool { return r.Match.Path != "" }) {
		x.path = newPaths(len(list))
		for i := range list {
			x.path.add(i, list[i].Match.Path)
		}
	}
	if slices.ContainsFunc(list, func(r rule) bool { return len(r.Match.IPs) > 0 }) {
		x.ip = newNetworks(len(list))
		for i := range list {
			x.ip.add(i, list[i].Match.IPs)
		}
	}
}

// pairs indexes the headers, or the other attributes, that more than a few rules use, and leaves
// the other conditions to the rules.
func pairs(list []rule, header bool) (fields []namedField) {
	conds := make([]map[string]string, len(list))
	count := map[string]int{}
	for i := range list {
		conds[i] = list[i].Match.Attrs
		if header {
			conds[i] = canonical(list[i].Match.Headers)
		}
		for name, cond := range conds[i] {
			if cond != "" {
				count[name]++
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(count)) {
		if count[name] <= few {
			for i := range list {
				if cond := conds[i][name]; cond != "" {
					list[i].pairs = append(list[i].pairs, pair{name, cond, header})
				}
			}
			continue
		}
		f := newField(len(list))
		for i := range list {
			f.add(i, conds[i][name])
		}
		fields = append(fields, namedField{name, f})
	}
	return fields
}

func canonical(h map[string]string) map[string]string {
	c := make(map[string]string, len(h))
	for k, v := range h {
		c[http.CanonicalHeaderKey(k)] = v
	}
	return c
}

// candidates sets b to the rules that may match q. Pairs, schedules and expressions must still be
// checked. scratch has the length of b.
func (x *index) candidates(q *request, b, scratch bitset) {
	copy(b, x.all)
	and := func(f *field, v string) {
		if f != nil {
			f.holding(v, scratch)
			b.and(scratch)
		}
	}
	and(x.method, q.method)
	and(x.host, q.host)
	and(x.route, q.Route)
	and(x.user, q.User)
	and(x.class, q.Class)
	if x.path != nil {
		x.path.holding(q.path, scratch)
		b.and(scratch)
	}
	if x.ip != nil {
		x.ip.holding(q.ip, scratch)
		b.and(scratch)
	}
	for i := range x.headers {
		and(x.headers[i].field, q.header(x.headers[i].name))
	}
	for i := range x.attrs {
		and(x.attrs[i].field, q.Extra[x.attrs[i].name])
	}
}

// pairsHold reports whether the conditions that are not indexed hold.
func (q *request) pairsHold(list []pair) bool {
	for i := range list {
		p := &list[i]
		var v string
		if p.header {
			v = q.header(p.name)
		} else {
			v = q.Extra[p.name]
		}
		if !holds(p.cond, v) {
			return false
		}
	}
	return true
}
