package config

import (
	"strconv"

	"github.com/goccy/go-yaml/ast"
)

// Instances says how many processes share the limits, for the fallback share. The zero value means
// not configured: see [Config.SharedBy].
type Instances struct {
	Auto   bool // they are counted in the store
	Number int  // how many; with Auto the minimum to assume, or 0
}

// SharedBy returns how many processes share the limits while the store is unavailable: the
// configured number, or else Auto for a store that several machines may use, and 1 for any other
// store.
func (c *Config) SharedBy() Instances {
	switch {
	case c.Instances != Instances{}:
		return c.Instances
	case c.shared():
		return Instances{Auto: true}
	}
	return Instances{Number: 1}
}

const auto = "auto"

var asInstances = form[Instances]{
	read: (*decoder).instances, node: Instances.node, bounds: number[int](1, maxInstances).bounds,
	schema: schema{"anyOf": []schema{
		number[int](1, maxInstances).schema,
		{"const": auto},
		define("instances", nil, func() []setting { return new(Instances).settings() }),
	}},
}

func (n *Instances) settings() []setting {
	count := asFlag
	count.schema = schema{"const": true}
	return []setting{
		{auto, count.to(&n.Auto), required, "`true`: count the processes in the store"},
		{"at_least", number[int](1, maxInstances).to(&n.Number), none, "the minimum to assume, however few are " +
			"counted"},
	}
}

// instances reads a number, auto, or a mapping of auto and at_least.
func (d *decoder) instances(e entry) (n Instances) {
	switch v := e.value.(type) {
	case *ast.StringNode:
		if v.Value == auto {
			n.Auto = true
			return n
		}
		if !integers().MatchString(v.Value) {
			hint, _ := didYouMean(v.Value, []string{auto})
			d.problem(spanOf(v), hint, "%s %s is neither a number nor auto", e.key, shorten(v.Value))
			return n
		}
	case *ast.MappingNode, *ast.MappingValueNode:
		d.object(v, e.key, n.settings(), nil)
		if !n.Auto {
			d.missing(spanOf(v), "write instances: {auto: true, at_least: 3}, or the number alone",
				"%s is a mapping without auto: true", e.key)
		}
		return n
	}
	n.Number = int(d.integer(e, 1, maxInstances))
	return n
}

// instances reads the variable: a number, or auto.
func (e *environment) instances(value string) (n Instances) {
	if value == auto {
		return Instances{Auto: true}
	}
	if !integers().MatchString(value) {
		e.problem(envInstances, "is neither a whole number nor auto")
		return n
	}
	return Instances{Number: int(e.number(envInstances, maxInstances))}
}

// node returns the value as it is written in a file.
func (n Instances) node() node {
	switch {
	case !n.Auto && n.Number == 0:
		return node{}
	case !n.Auto:
		return node{scalar: strconv.Itoa(n.Number)}
	case n.Number == 0:
		return node{scalar: auto}
	}
	return settingsNode(n.settings())
}
