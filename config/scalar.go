package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/pattern"
)

// text reads a string that is not empty.
func (d *decoder) text(e entry) (string, bool) {
	switch n := e.value.(type) {
	case *ast.StringNode:
		if n.Value != "" {
			return n.Value, true
		}
		d.problem(spanOf(n), "give it a value, or leave it out if it has a default", "%s is empty", e.key)
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		d.problem(spanOf(n), fmt.Sprintf("put it in quotes: %q", n.GetToken().Value), "%s must be a string, not %s",
			e.key, describe(n))
	default:
		d.problem(spanOf(n), "", "%s must be a string, not %s", e.key, describe(n))
	}
	return "", false
}

// anyText is text for readers that need not know whether it is one.
func (d *decoder) anyText(e entry) string {
	text, _ := d.text(e)
	return text
}

// oneOf reads one of a few words. Any other value is reported, and the result is "".
func (d *decoder) oneOf(e entry, words ...string) string {
	if n, ok := e.value.(*ast.StringNode); ok {
		for _, w := range words {
			if n.Value == w {
				return w
			}
		}
		hint, _ := didYouMean(n.Value, words)
		d.problem(spanOf(n), hint, "%s %s is not one of %s", e.key, shorten(n.Value), strings.Join(words, ", "))
		return ""
	}
	d.problem(spanOf(e.value), "", "%s must be one of %s, not %s", e.key, strings.Join(words, ", "), describe(e.value))
	return ""
}

func (d *decoder) boolean(e entry) bool {
	if n, ok := e.value.(*ast.BoolNode); ok {
		return n.Value
	}
	d.problem(spanOf(e.value), "", "%s must be true or false, not %s", e.key, describe(e.value))
	return false
}

// integer reads a whole number between least and most. Any other value is reported, and the result
// is 0.
func (d *decoder) integer(e entry, least, most int64) int64 {
	n, ok := e.value.(*ast.IntegerNode)
	if !ok {
		hint := ""
		if s, isText := e.value.(*ast.StringNode); isText && integers().MatchString(s.Value) {
			// without quotes: the parser treats a number that is too large as a text
			if s.Token.Type == token.StringType {
				d.problem(spanOf(s), "", "%s %s is not between %d and %d", e.key, s.Value, least, most)
				return 0
			}
			hint = "write it without quotes"
		}
		d.problem(spanOf(e.value), hint, "%s must be a whole number, not %s", e.key, describe(e.value))
		return 0
	}
	i, err := parseInteger(n.GetToken().Value)
	switch {
	case err != nil:
		d.problem(spanOf(n), "", "%s: %s", e.key, err)
		return 0
	case i < least || i > most:
		d.problem(spanOf(n), "", "%s %d is not between %d and %d", e.key, i, least, most)
		return 0
	}
	return i
}

var integers = pattern.New(`^[+-]?(0|[1-9][0-9]*(_[0-9]+)*)$`)

// parseInteger reads a decimal number. Groups of digits may be separated by '_'. Other bases are
// errors, and so are leading zeros, which could mean one.
func parseInteger(s string) (int64, error) {
	if !integers().MatchString(s) {
		return 0, fmt.Errorf("%s is not a whole decimal number", shorten(s))
	}
	i, err := strconv.ParseInt(strings.ReplaceAll(s, "_", ""), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s is too large", shorten(s))
	}
	return i, nil
}

// duration reads a duration. Any other value is reported, and the result is 0.
func (d *decoder) duration(e entry) time.Duration {
	switch n := e.value.(type) {
	case *ast.StringNode:
		t, err := ParseDuration(n.Value)
		if err != nil {
			d.problem(spanOf(n), "", "%s: %s", e.key, err)
		}
		return t
	case *ast.IntegerNode:
		if n.GetToken().Value == "0" {
			return 0
		}
		d.problem(spanOf(n), fmt.Sprintf("such as %ss or %[1]sm", n.GetToken().Value), "%s %s has no unit", e.key,
			n.GetToken().Value)
	default:
		d.problem(spanOf(n), "such as 90s, 1m or 7d", "%s must be a duration, not %s", e.key, describe(n))
	}
	return 0
}

var (
	durations = pattern.New(`^([0-9]+(\.[0-9]+)?(ns|us|µs|μs|ms|s|m|h|d|w))+$`)
	parts     = pattern.New(`([0-9.]+)([a-zµμ]+)`)
)

// ParseDuration reads a duration as Go writes it ("1h30m", "250ms"), and also with d for 24 hours
// and w for 7 days ("7d", "1d12h"). It has no sign.
func ParseDuration(s string) (time.Duration, error) {
	if s == "0" {
		return 0, nil
	}
	if !durations().MatchString(s) {
		return 0, fmt.Errorf("%s is not a duration such as 90s, 1m, 12h or 7d", shorten(s))
	}
	var sum time.Duration
	for _, m := range parts().FindAllStringSubmatch(s, -1) {
		number, unit, times := m[1], m[2], int64(1)
		switch unit {
		case "d":
			unit, times = "h", 24
		case "w":
			unit, times = "h", 7*24
		}
		part, err := time.ParseDuration(number + unit)
		if err != nil || part > (math.MaxInt64-sum)/time.Duration(times) {
			return 0, fmt.Errorf("%s is too long", shorten(s))
		}
		sum += part * time.Duration(times)
	}
	return sum, nil
}

var instants = pattern.New(`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})$`)

// instant reads an instant of RFC 3339 in the years 2000 to 9999, in UTC. Any other value is
// reported, and the result is zero.
func (d *decoder) instant(e entry) (t time.Time) {
	const hint = "such as 2027-01-31T00:00:00Z, or 2027-01-31T00:00:00+01:00"
	n, ok := e.value.(*ast.StringNode)
	if !ok {
		d.problem(spanOf(e.value), hint, "%s must be an instant of RFC 3339, not %s", e.key, describe(e.value))
		return t
	}
	at, err := time.Parse(time.RFC3339, n.Value)
	at = at.UTC()
	if err != nil || !instants().MatchString(n.Value) || at.Year() < 2000 || at.Year() > 9999 {
		d.problem(spanOf(n), hint, "%s: %s is not an instant of RFC 3339 in the years 2000 to 9999", e.key,
			shorten(n.Value))
		return t
	}
	return at
}

var percents = pattern.New(`^(0|[1-9][0-9]*)(\.[0-9]{1,4})?%$`)

// between reads a duration from least to most.
func (d *decoder) between(e entry, least, most time.Duration) time.Duration {
	t := d.duration(e)
	if t < least || t > most {
		d.rangeProblem(e, e.key, "", fmt.Sprintf("from %s to %s", formatDuration(least), formatDuration(most)))
	}
	return t
}

// share reads a number of units, or a percentage.
func (d *decoder) share(e entry) (s drawgate.Share) {
	switch n := e.value.(type) {
	case *ast.IntegerNode:
		s.Units = d.integer(e, 0, drawgate.MaxAmount)
	case *ast.FloatNode:
		hint := ""
		if f, err := strconv.ParseFloat(n.GetToken().Value, 64); err == nil && f > 0 && f < 1 {
			hint = fmt.Sprintf("write %g%%", math.Round(f*1e6)/1e4)
		}
		d.problem(spanOf(n), hint, "%s %s is neither a whole number of units nor a percentage", e.key,
			n.GetToken().Value)
	case *ast.StringNode:
		percent, err := strconv.ParseFloat(strings.TrimSuffix(n.Value, "%"), 64)
		switch {
		case !percents().MatchString(n.Value) || err != nil:
			d.problem(spanOf(n), "such as 10 or 12.5%",
				"%s %s is neither a whole number of units nor a percentage with at most four decimals", e.key,
				shorten(n.Value))
		case percent >= 100:
			d.problem(spanOf(n), "", "%s %s is not less than 100%%: nothing would be left", e.key, n.Value)
		default:
			s.Percent = percent
		}
	default:
		d.problem(spanOf(n), "such as 10 or 12.5%", "%s must be a number of units or a percentage, not %s", e.key,
			describe(n))
	}
	return s
}

// list reads a list of 1 to most values.
func (d *decoder) list(e entry, most int) ([]ast.Node, bool) {
	n, ok := e.value.(*ast.SequenceNode)
	switch {
	case !ok:
		d.problem(spanOf(e.value), "", "%s must be a list, not %s", e.key, describe(e.value))
	case len(n.Values) == 0:
		d.missing(spanOf(n), "leave it out", "%s is empty", e.key)
	case len(n.Values) > most:
		d.problem(spanOf(n), "", "%s has %d values, more than %d", e.key, len(n.Values), most)
	default:
		return n.Values, true
	}
	return nil, false
}

// texts reads a text, or a list of texts.
func (d *decoder) texts(e entry, most int, read func(entry)) {
	if _, ok := e.value.(*ast.SequenceNode); !ok {
		read(e)
		return
	}
	items, _ := d.list(e, most)
	for _, n := range items {
		read(entry{e.key, spanOf(n), n})
	}
}
