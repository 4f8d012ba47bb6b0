package audit

import (
	"errors"
	"fmt"
	"math/bits"
	"path"
	"strings"
	"time"
)

// Window says how a limit counts over time.
type Window string

// The windows. A [Limit] of one of the first three has a Period.
const (
	Rolling Window = "rolling" // at most Amount in every interval [t, t+Period)
	Aligned Window = "aligned" // from one multiple of Period since 1970 to the next
	Bucket  Window = "bucket"  // at most Burst at once, of which Amount drains per Period
	Hour    Window = "hour"    // these of the calendar of Zone
	Day     Window = "day"
	Week    Window = "week" // from Monday
	Month   Window = "month"
)

// Limit is one rule of an upstream: at most Amount units per window.
type Limit struct {
	Name   string
	Unit   string // "" means requests
	Amount int64  // 0 to 10^12
	Window Window
	Period time.Duration  // at least a microsecond, at most 366 days; 0 means a minute
	Burst  int64          // of a bucket; 0 means Amount
	Zone   *time.Location // nil means UTC
	Anchor int            // of a month: the day on which it starts; 0 means 1
	// Margin is how long after it was granted a call is counted by the upstream at the latest. 0
	// means two seconds; negative means as late as its answer.
	Margin time.Duration
}

// defaultMargin is what presets of upstreams' limits have.
const defaultMargin = 2 * time.Second

// Quota is limits that calls share. A call is counted by the first quota that is for it.
type Quota struct {
	Name   string
	Policy string   // of calls that this policy granted; "" means any
	Models []string // of calls whose model fits one of these, in which * is any text without a slash; none means any
	Shared bool     // the models share the limits; otherwise each has its own. Owners never share any
	Limits []Limit
}

const (
	maxPeriod = 366 * 24 * time.Hour
	requests  = "requests"
)

// check returns the limit with its defaults.
func (l Limit) check() (Limit, error) {
	if l.Unit == "" {
		l.Unit = requests
	}
	if l.Zone == nil {
		l.Zone = time.UTC
	}
	if l.Margin == 0 {
		l.Margin = defaultMargin
	}
	switch l.Window {
	case Rolling, Aligned, Bucket:
		if l.Period == 0 {
			l.Period = time.Minute
		}
		if l.Period < time.Microsecond || l.Period > maxPeriod {
			return l, fmt.Errorf("limit %s: the period %v is not between 1µs and %v", l.Name, l.Period, maxPeriod)
		}
	case Hour, Day, Week, Month:
		l.Anchor = max(1, l.Anchor)
	default:
		return l, fmt.Errorf("limit %s: there is no window %q", l.Name, l.Window)
	}
	if l.Window == Bucket && l.Burst == 0 {
		l.Burst = l.Amount
	}
	if l.Amount < 0 || l.Amount > maxUnits || l.Burst < 0 || l.Burst > maxUnits {
		return l, fmt.Errorf("limit %s: amount %d and burst %d must be from 0 to %d", l.Name, l.Amount, l.Burst,
			int64(maxUnits))
	}
	if l.Window == Bucket {
		if hi, lo := bits.Mul64(uint64(l.Burst), uint64(l.parts())); hi != 0 || lo >= 1<<61 {
			return l, fmt.Errorf("limit %s: a bucket of %d units that drain by %d in %v cannot be counted exactly: give a shorter period", l.Name, l.Burst, l.Amount, l.Period)
		}
	}
	return l, nil
}

// parts is into how many parts a bucket's unit is divided, so that a whole number of them drains
// per nanosecond.
func (l *Limit) parts() int64 {
	return l.Period.Nanoseconds() / gcd(l.Period.Nanoseconds(), l.Amount)
}

// drain is how many parts of a bucket's units drain per nanosecond.
func (l *Limit) drain() int64 { return l.Amount / gcd(l.Period.Nanoseconds(), l.Amount) }

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// most is what fits into one window.
func (l *Limit) most() int64 {
	if l.Window == Bucket {
		return l.Burst
	}
	return l.Amount
}

// String describes how the limit counts: "10 requests, rolling 1m0s".
func (l *Limit) String() string {
	text := fmt.Sprintf("%d %s, %s", l.Amount, l.Unit, l.Window)
	switch l.Window {
	case Bucket:
		return fmt.Sprintf("%s %v, burst %d", text, l.Period, l.Burst)
	case Rolling, Aligned:
		return fmt.Sprintf("%s %v", text, l.Period)
	}
	return fmt.Sprintf("%s in %s", text, l.Zone)
}

// late reports whether units may count until the call has ended: whatever depends on the answer.
// The others count once, when the call arrives.
func (l *Limit) late() bool {
	return l.Unit == "output_tokens" || l.Unit == "tokens" || strings.HasSuffix(l.Unit, "_micros")
}

// check returns the quota with its limits' defaults.
func (q Quota) check() (Quota, error) {
	q.Limits = append([]Limit(nil), q.Limits...)
	for _, pattern := range q.Models {
		if _, err := path.Match(pattern, ""); err != nil {
			return q, fmt.Errorf("audit: quota %s: the model %q is not a pattern: %w", q.Name, pattern, err)
		}
	}
	var errs []error
	for i := range q.Limits {
		var err error
		if q.Limits[i], err = q.Limits[i].check(); err != nil {
			errs = append(errs, fmt.Errorf("audit: quota %s: %w", q.Name, err))
		}
	}
	return q, errors.Join(errs...)
}

// fits reports whether the quota counts calls of a model that a policy granted.
func (q *Quota) fits(policy, model string) bool {
	if q.Policy != "" && q.Policy != policy {
		return false
	}
	for _, pattern := range q.Models {
		if ok, err := path.Match(pattern, model); ok && err == nil {
			return true
		}
	}
	return len(q.Models) == 0
}
