package llm

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Observed is what a response's headers say about one limit.
type Observed struct {
	Unit  string // what it counts; UnitTokens may be either side of Anthropic's, whichever is tightest
	Scope string // "" for the usual limit; "project", "priority", "fast" and so on for others
	// Limit is the amount. The window is not told, and is a minute as a rule. It is at least 1.
	Limit int64
	// Remaining is what is left, or -1 if that is not known. It is a multiple of Step.
	Remaining int64
	Step      int64
	// ResetAt is when all of it is available again, not when some of it is; zero if not known.
	ResetAt time.Time
}

// maxReset is the longest time to a reset that is believed: a month.
const maxReset = 31 * 24 * time.Hour

// limitHeader names the headers of one limit: see [canonical].
//
// What they say of a limit whose scope is "" or "project" is learned as its amount per minute: see
// [Learned.NoteObserved]. A limit of another window, such as a month, or of another pool has a
// scope of its own: nothing is learned of it, and the provider's refusal says what it means that
// nothing of it is left, such as [Spend] until [Profile.nextMonth].
type limitHeader struct {
	unit, scope             string
	limit, remaining, reset string
	step                    int64
}

// Observed reads the limits in a response's headers. Whatever is malformed or contradicts itself is
// left out; a limit of 0 or -1 is Azure's way to say that it does not know.
func (p *Profile) Observed(h http.Header, now time.Time) []Observed {
	var out []Observed
	for _, l := range p.provider.limits {
		limit, ok := wireNumber(h[l.limit])
		if !ok || limit < 1 {
			continue
		}
		o := Observed{Unit: l.unit, Scope: l.scope, Limit: limit, Remaining: -1, Step: max(1, l.step)}
		// Rounding to the nearest step may show more than the limit.
		if n, ok := wireNumber(h[l.remaining]); ok && n <= limit+l.step {
			o.Remaining = min(n, limit)
		}
		o.ResetAt = wireReset(h[l.reset], now)
		out = append(out, o)
	}
	return out
}

// quotaHeaders begin the names of headers about an account's quota, at any provider.
var quotaHeaders = append([]string{"X-Ratelimit-", "Ratelimit", "X-Rate-Limit-"},
	all(func(v *provider) []string { return v.quotaHeaders })...)

// QuotaHeader reports whether a header of an answer, by its canonical name, is about the account's
// quota.
func (p *Profile) QuotaHeader(name string) bool {
	if slices.ContainsFunc(quotaHeaders, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
		return true
	}
	return slices.ContainsFunc(p.provider.limits, func(l limitHeader) bool {
		return name == l.limit || name == l.remaining || name == l.reset && name != "Retry-After"
	})
}

// canonical returns the headers of a limit with their canonical names.
func canonical(l limitHeader) limitHeader {
	for _, name := range []*string{&l.limit, &l.remaining, &l.reset} {
		*name = http.CanonicalHeaderKey(*name)
	}
	return l
}

// wireNumber reads a number that may have commas between thousands, as in 30,000. It must be told
// once, or the same each time.
func wireNumber(values []string) (int64, bool) {
	if len(values) == 0 {
		return 0, false
	}
	for _, v := range values[1:] {
		if v != values[0] {
			return 0, false
		}
	}
	text := strings.TrimSpace(values[0])
	if strings.Contains(text, ",") {
		groups := strings.Split(text, ",")
		for i, g := range groups {
			if len(g) > 3 || len(g) < 3 && i > 0 || g == "" {
				return 0, false
			}
		}
		text = strings.Join(groups, "")
	}
	if text == "" || len(text) > 13 || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n > maxAmount {
		return 0, false
	}
	return n, true
}

// wireReset reads a time to wait in Go's syntax, such as 6m0s or 120ms, a number of seconds, or an
// instant of RFC 3339. The zero time means that it is not known.
func wireReset(values []string, now time.Time) time.Time {
	if len(values) != 1 {
		return time.Time{}
	}
	text := strings.TrimSpace(values[0])
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		if at.Before(now.Add(-maxReset)) || at.After(now.Add(maxReset)) {
			return time.Time{}
		}
		return at
	}
	if d, ok := wireDuration(text); ok {
		return now.Add(d)
	}
	return time.Time{}
}

// wireDuration reads a duration in Go's syntax, or a number of seconds. It is between 0 and a
// month.
func wireDuration(text string) (time.Duration, bool) {
	if len(text) > 32 || strings.Trim(text, "0123456789.hmsµu") != "" {
		return 0, false
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		d, err = time.ParseDuration(text + "s")
	}
	return d, err == nil && d >= 0 && d <= maxReset
}

// retryAfter reads how long a response asks to wait: Retry-After-Ms in milliseconds, or Retry-After
// in seconds or as a date.
func retryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	if v := h.Values("Retry-After-Ms"); len(v) == 1 {
		if f, err := strconv.ParseFloat(strings.TrimSpace(v[0]), 64); err == nil && f >= 0 &&
			f <= float64(maxReset/time.Millisecond) {
			return time.Duration(f * float64(time.Millisecond)), true
		}
	}
	v := h.Values("Retry-After")
	if len(v) != 1 {
		return 0, false
	}
	text := strings.TrimSpace(v[0])
	if f, err := strconv.ParseFloat(text, 64); err == nil {
		if f >= 0 && f <= maxReset.Seconds() {
			return time.Duration(f * float64(time.Second)), true
		}
		return 0, false
	}
	if at, err := http.ParseTime(text); err == nil {
		if d := at.Sub(now); d <= maxReset {
			return max(0, d), true
		}
	}
	return 0, false
}
