package config

import (
	"bytes"
	"strings"
)

// YAML writes a configuration as a file that must read back as the same one, passwords included.
func (c *Config) YAML() []byte {
	file := settingsNode(c.settings())
	var b bytes.Buffer
	write(&b, file, "\n")
	if w := &c.Telemetry.Webhook; w.URL != "" && w.Address == (Secret{}) { // what is shown hides a part of it
		return bytes.ReplaceAll(b.Bytes(), []byte(w.settings()[0].value.node().scalar), []byte(quote(w.URL)))
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
