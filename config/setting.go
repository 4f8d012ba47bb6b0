package config

import (
	"strconv"

	"github.com/goccy/go-yaml/ast"

	"github.com/drawgate/drawgate"
)

// setting is a key of a section: what reads its value, and the value that it has, if it is set.
type setting struct {
	key  string
	read func(entry)
	node node
}

// settings reads a section. section is the name under which the positions of its settings are
// recorded; "" if that is not asked.
func (d *decoder) settings(n ast.Node, what, section string, list []setting) (seen map[string]bool) {
	fields := make([]field, len(list))
	for i := range list {
		fields[i] = field{list[i].key, list[i].read}
	}
	if section != "" {
		fields = d.noted(section, fields)
	}
	return d.object(n, what, fields)
}

// settingsNode returns what is set in a section.
func settingsNode(list []setting) node {
	var b mapping
	for i := range list {
		b.node(list[i].key, list[i].node)
	}
	return node{pairs: b}
}

// general returns the settings at the top that are not of store or policies.
func (c *Config) general() (b mapping) {
	b.node("enabled", wordNode(c.Off, "false"))
	b.node("max_buckets", numberNode(c.MaxBuckets))
	b.node("instances", c.Instances.node())
	b.node("store_timeout", durationNode(c.StoreTimeout))
	b.node("store_mark", wordNode(c.RequireMark, "required"))
	b.node("warn_every", durationNode(c.WarnEvery))
	b.node("start", wordNode(c.Start != drawgate.StartDefault, c.Start.String()))
	return b
}

// sections returns the settings that have their own mappings, without what may be a secret.
func (c *Config) sections() (b mapping) {
	var d *decoder // nothing is read
	b.node("api_keys", settingsNode(c.APIKeys.settings(d)))
	b.node("queue", settingsNode(c.Queue.settings(d)))
	b.node("server", settingsNode(c.Server.settings(d)))
	b.node("envoy", settingsNode(c.Envoy.settings(d)))
	b.node("telemetry", settingsNode(c.Telemetry.settings(d)))
	b.node("gateway", settingsNode(c.Gateway.settings(d)))
	return b
}

func percentsNode(list []int) (n node) {
	for _, p := range list {
		n.list = append(n.list, node{scalar: strconv.Itoa(p) + "%"})
	}
	return n
}
