package config

import (
	"bytes"
	"strings"
)

// YAML writes a configuration as a file that must read back as the same one, passwords included.
func (c *Config) YAML() []byte {
	var file, policies mapping
	var list node
	file.node("store", textNode(c.Store))
	file.node("prefix", textNode(c.Prefix))
	file = append(file, c.general()...)
	for i := range c.Policies {
		p := &c.Policies[i]
		var limits node
		for k := range p.Limits {
			limits.list = append(limits.list, node{scalar: formatLimit(&p.Limits[k])})
		}
		var policy mapping
		policy.node("limits", limits)
		policy.add("wait", formatWait(&p.Wait))
		policies.node(quote(p.Name), node{pairs: append(policy, modeItems(p, c.Modes[p.Name])...)})
	}
	file.node("policies", node{pairs: policies})
	for i := range c.Rules {
		list.list = append(list.list, node{pairs: ruleItems(&c.Rules[i])})
	}
	file.node("rules", list)
	file = append(file, c.sections()...)
	var b bytes.Buffer
	write(&b, node{pairs: file}, "\n")
	if w := &c.Telemetry.Webhook; w.URL != "" && w.Address == (Secret{}) { // what is shown hides a part of it
		return bytes.ReplaceAll(b.Bytes(), []byte(w.settings(nil)[0].node.scalar), []byte(quote(w.URL)))
	}
	return b.Bytes()
}

// write writes a value in block style; line begins a line.
func write(b *bytes.Buffer, n node, line string) {
	for _, v := range n.list {
		b.WriteString(line + "-")
		write(b, v, line+"  ")
	}
	for _, p := range n.pairs {
		b.WriteString(line + p.key + ":")
		write(b, p.value, line+"  ")
	}
	b.WriteString(strings.TrimRight(" "+n.scalar, " "))
}
