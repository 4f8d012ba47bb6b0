package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/drawgate/drawgate"
)

// String returns the settings, one a line, without passwords.
func (c *Config) String() string {
	var b strings.Builder
	for _, o := range c.Explain() {
		b.WriteString(o.Setting + ": " + o.Value + "\n")
	}
	return b.String()
}

// GoString is String, for %#v.
func (c *Config) GoString() string { return c.String() }

// amountsNode returns other amounts as a file has them: {rpm: 100, rate: {amount: 100, burst: 30}}.
func amountsNode(amounts map[string]int64) node {
	limits := map[string]mapping{}
	for _, name := range slices.Sorted(maps.Keys(amounts)) {
		if limit, ok := strings.CutSuffix(name, burstOf("")); ok {
			m := limits[limit]
			m.node("burst", numberNode(amounts[name]))
			limits[limit] = m
			continue
		}
		m := limits[name]
		m.add("amount", strconv.FormatInt(amounts[name], 10))
		limits[name] = m
	}
	var list mapping
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		if m := limits[name]; len(m) == 1 && m[0].key == "amount" {
			list.node(quote(name), m[0].value)
		} else {
			list.node(quote(name), node{pairs: m})
		}
	}
	return node{pairs: list}
}

// formatDuration is the inverse of ParseDuration.
func formatDuration(d time.Duration) string {
	const day = 24 * time.Hour
	if d >= day && d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func shareNode(s drawgate.Share) (n node) {
	if s != (drawgate.Share{}) {
		n.scalar = formatShare(s)
	}
	return n
}

func formatShare(s drawgate.Share) string {
	if s.Percent != 0 {
		return strconv.FormatFloat(s.Percent, 'f', -1, 64) + "%"
	}
	return strconv.FormatInt(s.Units, 10)
}
