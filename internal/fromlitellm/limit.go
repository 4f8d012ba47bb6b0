package fromlitellm

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/drawgate/drawgate/internal/pattern"
	"github.com/drawgate/drawgate/llm"
)

// money is the unit of budgets.
const money = "usd_micros"

// limit is a limit of a policy.
type limit struct {
	name   string
	unit   string // "" is requests
	window string // such as "rolling: 1m"; "" is a number of calls at once
	amount int64
	place  *value
}

// text returns the limit as the file has it. Those of a provider have a margin, and count tokens
// when a call ends.
func (l *limit) text(ofProvider bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "{name: %s", l.name)
	if l.unit != "" {
		fmt.Fprintf(&b, ", unit: %s", l.unit)
	}
	if l.window == "" {
		fmt.Fprintf(&b, ", concurrency: %d}", l.amount)
		return b.String()
	}
	fmt.Fprintf(&b, ", %s, amount: %d", l.window, l.amount)
	if ofProvider {
		b.WriteString(", margin: 2s")
	}
	if l.unit == llm.UnitTokens {
		b.WriteString(", charge: end")
	}
	return b.String() + "}"
}

// same identifies limits that are the same.
func same(limits []limit) string {
	var b strings.Builder
	for i := range limits {
		b.WriteString(limits[i].text(false))
	}
	return b.String()
}

const minute = "rolling: 1m"

// amounts are the settings of a place that become limits, by LiteLLM's names.
type amounts struct{ rpm, tpm, itpm, otpm, running string }

var (
	ofModel = amounts{"rpm", "tpm", "itpm", "otpm", "max_parallel_requests"}
	ofKey   = amounts{rpm: "rpm_limit", tpm: "tpm_limit", running: "max_parallel_requests"}
)

// limits reads the limits of a place. units are what is counted of the calls that they limit.
func (c *conversion) limits(t *table, names amounts, units []string) (list []limit) {
	add := func(key, name, unit, window string) {
		if key == "" || t.get(key) == nil {
			return
		}
		v := t.get(key)
		n, ok := v.whole()
		if !ok {
			c.leave(v, t.what+": "+key, "it is not a whole number from 0 to %d", int64(maxAmount))
			return
		}
		list = append(list, limit{name, unit, window, n, v})
	}
	add(names.rpm, "rpm", "", minute)
	for _, unit := range units {
		switch unit {
		case llm.UnitTokens:
			add(names.tpm, "tpm", unit, minute)
		case llm.UnitInputTokens:
			add(names.tpm, "tpm-input", unit, minute)
			add(names.itpm, "itpm", unit, minute)
		case llm.UnitOutputTokens:
			add(names.tpm, "tpm-output", unit, minute)
			add(names.otpm, "otpm", unit, minute)
		}
	}
	add(names.running, "running", "", "")
	for _, key := range []string{names.tpm, names.itpm, names.otpm} {
		if key != "" && t.get(key) != nil {
			c.leaveUnits(t, key, units, list)
		}
	}
	return list
}

// leaveUnits notes a number of tokens that is counted by other units here, or not at all.
func (c *conversion) leaveUnits(t *table, key string, units []string, list []limit) {
	v, counted, apart := t.get(key), false, false
	for i := range list {
		counted = counted || list[i].place == v
		apart = apart || list[i].place == v && strings.HasPrefix(list[i].name, "tpm-")
	}
	_, number := v.whole()
	switch {
	case !number:
	case !counted:
		c.leave(v, t.what+": "+key, "the provider does not count it by itself, but %s", strings.Join(units, ", "))
	case apart:
		c.leave(v, t.what+": "+key, "tokens of Anthropic's prompts and answers are counted apart, of Gemini's the "+
			"prompts alone: each is limited to this number")
	}
}

var durations = pattern.New(`^([0-9]{1,9})(mo|[smhdw])$`)

// words are LiteLLM's words for periods.
var words = map[string]string{"hourly": "1h", "daily": "1d", "weekly": "7d", "monthly": "30d"}

// longest is the longest window of a limit.
const longest = 366 * 24 * time.Hour

// window returns the window that is nearest to the time after which LiteLLM resets a budget, and
// what differs; "" and why if there is none. Of days, weeks and months LiteLLM makes those of the
// calendar (litellm_core_utils/duration_parser.py).
func window(v *value, zone string) (window, differs string) {
	if v == nil {
		return "calendar: total", ""
	}
	text := strings.ToLower(strings.TrimSpace(v.plain()))
	m := durations().FindStringSubmatch(cmp.Or(words[text], text))
	if m == nil {
		return "", "its period is not a number with s, m, h, d, w or mo"
	}
	n, _ := strconv.ParseInt(m[1], 10, 64)
	if named := calendars[m[1]+m[2]]; named != "" {
		if zone != "" {
			named += ", zone: " + quote(zone)
		}
		return "calendar: " + named, ""
	}
	unit := map[string]time.Duration{
		"s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour, "w": 7 * 24 * time.Hour,
	}[m[2]]
	if unit == 0 || n == 0 || n > int64(longest/unit) {
		return "", "no window of a limit is like its period"
	}
	return "rolling: " + m[1] + m[2], "LiteLLM resets it every " + m[1] + m[2] + ": here it is for any time of that length"
}

// calendars are periods that end with one of the calendar.
var calendars = map[string]string{
	"60s": "minute", "1m": "minute", "60m": "hour", "1h": "hour", "24h": "day", "1d": "day", "7d": "week", "1w": "week",
	"30d": "month", "1mo": "month",
}

// budgetOf reads a budget in money; nil if there is none, or it is left out.
func (c *conversion) budgetOf(t *table, rolls bool) *limit {
	v, period := t.get("max_budget"), t.get("budget_duration")
	if v == nil {
		if period != nil {
			c.leave(period, t.what+": budget_duration", "there is no max_budget beside it")
		}
		return nil
	}
	micros, ok := v.times(1_000_000)
	if !ok {
		c.leave(v, t.what+": max_budget", "it is not an amount from 0 to %d", int64(maxAmount/1_000_000))
		return nil
	}
	zone := c.zone
	w, differs := window(period, zone)
	if rolls && period != nil && strings.HasPrefix(w, "calendar: ") {
		w, differs = rolling(period.text), "LiteLLM's period begins with a call: here it is any time of that length"
	}
	if differs != "" {
		c.leave(v, t.what+": max_budget", "%s", differs)
	}
	if w == "" {
		return nil
	}
	return &limit{"budget", money, w, micros, v}
}

// rolling returns the rolling window of a period that is like one of the calendar.
func rolling(text string) string {
	text = strings.ToLower(strings.TrimSpace(text))
	if text = cmp.Or(words[text], text); text == "1mo" {
		text = "30d"
	}
	return "rolling: " + text
}
