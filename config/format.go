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

// modeItems are the keys of a policy other than limits and wait.
func modeItems(p *drawgate.Policy, m Mode) (b mapping) {
	b.add("fallback", p.Fallback.String())
	b.add("start", p.Start.String())
	b.node("shadow", flagNode(m.Shadow))
	b.node("disabled", flagNode(m.Disabled))
	var list node
	for _, o := range m.Overrides {
		var item mapping
		item.node("key", textNode(o.Key))
		item.node("tenant", textNode(o.Tenant))
		item.node("limits", amountsNode(o.Amounts))
		list.list = append(list.list, node{pairs: item})
	}
	b.node("overrides", list)
	return b
}

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

// formatLimit returns a limit as it is written in a file.
func formatLimit(l *drawgate.Limit) string {
	var b mapping
	b.add("name", quote(l.Name))
	if l.Unit != "" {
		b.add("unit", quote(l.Unit))
	}
	switch l.Kind {
	case drawgate.Bucket, drawgate.Rolling:
		b.add(l.Kind.String(), formatDuration(l.Window))
	case drawgate.Calendar:
		b.add(l.Kind.String(), l.Every.String())
	case drawgate.Concurrency:
		b.add(l.Kind.String(), strconv.FormatInt(l.Amount, 10))
	}
	if l.Kind != drawgate.Concurrency {
		b.add("amount", strconv.FormatInt(l.Amount, 10))
	}
	if l.Burst != 0 {
		b.add("burst", strconv.FormatInt(l.Burst, 10))
	}
	if l.Zone != "" {
		b.add("zone", quote(l.Zone))
	}
	if l.Anchor != 0 {
		b.add("anchor", strconv.Itoa(l.Anchor))
	}
	switch {
	case l.Precision == drawgate.Exact:
		b.add("precision", "exact")
	case l.Precision != 0:
		b.add("precision", strconv.Itoa(l.Precision))
	}
	switch l.Charge {
	case drawgate.ChargeStart:
		b.add("charge", "start")
	case drawgate.ChargeEnd:
		b.add("charge", "end")
	case drawgate.ChargeDefault:
	}
	if l.Margin != 0 {
		b.add("margin", formatDuration(l.Margin))
	}
	if l.Headroom != (drawgate.Share{}) {
		b.add("headroom", formatShare(l.Headroom))
	}
	if len(l.ReservedByPriority) > 0 {
		var keep mapping
		for _, p := range slices.Sorted(maps.Keys(l.ReservedByPriority)) {
			keep.add(strconv.Itoa(p), formatShare(l.ReservedByPriority[p]))
		}
		b.add("keep", keep.String())
	}
	b.add("fallback", l.Fallback.String())
	return b.String()
}

// formatWait returns the wait settings of a policy as they are written in a file, or "" if there
// are none.
func formatWait(w *drawgate.Wait) string {
	var b mapping
	if w.MaxWait != 0 {
		b.add("up_to", formatDuration(w.MaxWait))
	}
	if w.Queue != 0 {
		b.add("queue", strconv.Itoa(w.Queue))
	}
	if len(w.Backoff) > 0 {
		steps := make([]string, len(w.Backoff))
		for i, d := range w.Backoff {
			steps[i] = formatDuration(d)
		}
		b.add("backoff", "["+strings.Join(steps, ", ")+"]")
	}
	if w.Barge {
		b.add("barge", "true")
	}
	if len(b) == 0 {
		return ""
	}
	return b.String()
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

func formatShare(s drawgate.Share) string {
	if s.Percent != 0 {
		return strconv.FormatFloat(s.Percent, 'f', -1, 64) + "%"
	}
	return strconv.FormatInt(s.Units, 10)
}
