package config

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/drawgate/drawgate"
)

// YAML returns the configuration as a file that reads back as the same, passwords included.
func (c *Config) YAML() []byte { return c.yaml(c.Store) }

// String returns the configuration as a file, without passwords.
func (c *Config) String() string { return string(c.yaml(RedactURL(c.Store))) }

func (c *Config) yaml(store string) []byte {
	var b bytes.Buffer
	if store != "" {
		fmt.Fprintf(&b, "store: %s\n", quote(store))
	}
	if c.Prefix != "" {
		fmt.Fprintf(&b, "prefix: %s\n", quote(c.Prefix))
	}
	if len(c.Policies) > 0 {
		b.WriteString("policies:\n")
	}
	for i := range c.Policies {
		p := &c.Policies[i]
		fmt.Fprintf(&b, "  %s:\n    limits:\n", quote(p.Name))
		for k := range p.Limits {
			fmt.Fprintf(&b, "      - %s\n", formatLimit(&p.Limits[k]))
		}
		if wait := formatWait(&p.Wait); wait != "" {
			fmt.Fprintf(&b, "    wait: %s\n", wait)
		}
	}
	return b.Bytes()
}

// formatLimit returns a limit as it stands in a file.
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
	if len(l.Keep) > 0 {
		var keep mapping
		for _, p := range slices.Sorted(maps.Keys(l.Keep)) {
			keep.add(strconv.Itoa(p), formatShare(l.Keep[p]))
		}
		b.add("keep", keep.String())
	}
	return b.String()
}

// formatWait returns how a policy's callers wait as it stands in a file; "" if there is nothing to say.
func formatWait(w *drawgate.Wait) string {
	var b mapping
	if w.UpTo != 0 {
		b.add("up_to", formatDuration(w.UpTo))
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

// mapping is a YAML mapping on one line.
type mapping []string

func (m *mapping) add(key, value string) { *m = append(*m, key+": "+value) }

func (m mapping) String() string { return "{" + strings.Join(m, ", ") + "}" }

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

var (
	bare     = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._/-]*$`)
	reserved = regexp.MustCompile(`(?i)^(true|false|null|yes|no|on|off|y|n)$`)
)

// quote returns s as a YAML scalar that reads as this text.
func quote(s string) string {
	if bare.MatchString(s) && !reserved.MatchString(s) {
		return s
	}
	return strconv.Quote(s)
}
