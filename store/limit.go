package store

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/drawgate/drawgate/internal/calendar"
	"github.com/drawgate/drawgate/internal/record"
)

// UnitRequests is the unit of a limit or cost that names none.
const UnitRequests = "requests"

// Bounds of what a plan may say, and a take may ask. Together they keep every intermediate value
// within 2^53, the largest integer that all stores count exactly.
const (
	MaxLimits    = 6      // limits in a plan
	MaxBuckets   = 64     // buckets in one take
	MaxOpen      = 10_000 // reservations that are open in one bucket: see ErrTooManyOpen
	MaxAmount    = 1_000_000_000_000
	MaxWindow    = 366 * 24 * time.Hour
	MinPrecision = 100
	MaxPrecision = 10_000
	MaxPriority  = 9
)

// What the arithmetic assumes of these bounds, of the kinds and of the calendar windows. Where they
// differ, this does not compile.
var (
	_ [MaxLimits]struct{}   = [record.MaxLimits]struct{}{}
	_ [MaxOpen]struct{}     = [record.MaxOpen]struct{}{}
	_ [MaxPriority]struct{} = [record.Priorities - 1]struct{}{}
	_ [Concurrency]struct{} = [record.Concurrency]struct{}{}
	_ [endOfEvery]struct{}  = [calendar.End]struct{}{}
	_ [Total]struct{}       = [calendar.Total]struct{}{}
)

// Kind says how a limit counts, and when used units become available again.
type Kind uint8

// The four kinds. The limits of package drawgate say what each admits.
const (
	Bucket      Kind = iota + 1 // rate with burst: used drains at Amount per Window
	Rolling                     // at most Amount in every interval of length Window
	Calendar                    // at most Amount per calendar window: see [Every]
	Concurrency                 // at most Amount slots held at once
)

var kindNames = map[Kind]string{Bucket: "bucket", Rolling: "rolling", Calendar: "calendar", Concurrency: "concurrency"}

// String returns the name used in configuration files.
func (k Kind) String() string { return kindNames[k] }

// Every is the length of a calendar limit's window.
type Every uint8

// The calendar windows. A week starts on Monday; a month is a real one and may start on any day
// ([Limit.Anchor]).
const (
	Minute Every = iota + 1
	Hour
	Day
	Week
	Month

	endOfEvery // one more than the last
)

// Total is a window that never ends: what was used stays used.
const Total = endOfEvery

// String returns the name used in configuration files.
func (e Every) String() string { return calendar.Unit(e).String() }

// Charge says when a unit counts.
type Charge uint8

const (
	// ChargeDefault is ChargeEnd for what is only known afterwards (output_tokens, and money: units
	// that start with usd, eur, gbp, cny or jpy), ChargeStart for everything else.
	ChargeDefault Charge = iota
	// ChargeStart counts a unit from the decision on (plus Margin). A settlement changes the
	// amount, never the time.
	ChargeStart
	// ChargeEnd counts a unit from its settlement on. Until then it is held: it counts in every
	// window and does not age.
	ChargeEnd
)

// Share is a part of an amount, in units or in per cent, whichever is not zero. Percent is used to
// four decimals.
type Share struct {
	Units   int64
	Percent float64
}

// String returns the form used in configuration files: "10" or "12.5%".
func (s Share) String() string {
	if s.Percent != 0 {
		return fmt.Sprintf("%g%%", s.Percent)
	}
	return fmt.Sprintf("%d", s.Units)
}

// of returns the share of amount, rounded up.
func (s Share) of(amount int64) int64 {
	if s.Percent == 0 {
		return s.Units
	}
	const million = 1_000_000
	ppm := int64(s.Percent*10_000 + 0.5)
	return amount/million*ppm + (amount%million*ppm+million-1)/million
}

func (s Share) check() error {
	switch {
	case s.Units < 0 || s.Percent < 0 || s.Percent >= 100 || s.Percent != s.Percent:
		return fmt.Errorf("%s is not between 0 and 100%%", s)
	case s.Units != 0 && s.Percent != 0:
		return fmt.Errorf("both %d units and %g%% are given", s.Units, s.Percent)
	}
	return nil
}

// Fallback says what a limit admits while the store is unavailable. Package guard
// carries it out.
type Fallback uint8

const (
	// FallbackDefault means the policy's fallback; for a policy it means FallbackShare if the
	// number of instances is known, and FallbackClosed otherwise.
	FallbackDefault Fallback = iota
	// FallbackClosed admits nothing, so the limit is never exceeded.
	FallbackClosed
	// FallbackShare admits this instance's share, the amount divided by the number of instances,
	// counting what the instance admitted before. A share below one unit is none.
	FallbackShare
	// FallbackOpen does not apply the limit: there is no bound on what is admitted.
	FallbackOpen
)

// String returns the name used in configuration files; "" for FallbackDefault.
func (f Fallback) String() string { return [...]string{"", "closed", "share", "open"}[min(f, 3)] }

// Start says what a process that does not know a bucket's usage may admit of its share of it while
// the store is unavailable. That is so if it has started since, or if it started so short a time
// before that it has not met the bucket. What the store has answered about the bucket is known.
type Start uint8

const (
	// StartDefault means the guard's: see the options of package guard.
	StartDefault Start = iota
	// StartClosed admits nothing of what may have been used before the process started: the share
	// counts as used at that instant.
	StartClosed
	// StartCold admits a part of the share at once, the share divided by the number of instances
	// (at least by 2), and at least one unit. The rest counts as used when the process started.
	StartCold
	// StartFull admits the whole share at once. It is for the only process that uses a store.
	StartFull
)

// String returns the name used in configuration files; "" for StartDefault.
func (s Start) String() string { return [...]string{"", "closed", "cold", "full"}[min(s, 3)] }

// Exact as a [Limit.Precision] gives every take an entry of its own.
const Exact = -1

// Limit is one limit of a plan, for stores that write it down or say its unit. The limits of
// package drawgate have the same fields, and say what they mean.
type Limit struct {
	Name   string        // required; unique in its policy; at most 64 letters, digits, '.', '-' or '_'
	Unit   string        // "" means requests
	Kind   Kind          // required
	Amount int64         // 0 to MaxAmount; 0 lets nothing pass: a take that asks for a unit gets ErrNeverFits
	Window time.Duration // Bucket: the period of Amount; Rolling: the window; 1ms to MaxWindow in whole microseconds
	Burst  int64         // Bucket: units available after a long idle period; 0 means Amount
	Every  Every         // Calendar: the window
	Zone   string        // Calendar: a name of the IANA time zone database; "" means UTC
	// Calendar, Month: the day on which it starts, 1 to 31; 0 means 1; beyond a month's length its
	// last day
	Anchor int
	// Rolling: MinPrecision to MaxPrecision, or Exact; 0 means the store's default (128; SQLite:
	// Exact)
	Precision int

	Charge Charge // when a unit counts
	// how long after the decision a unit may reach an upstream that also counts it; at most half a
	// window, and 10 min
	Margin   time.Duration
	Headroom Share // always kept unused; in a Bucket it is subtracted from both Amount and Burst
	// per priority 1 to 9: kept for takes of at least that priority, after Headroom; rounded up
	ReservedByPriority map[int]Share
	Fallback           Fallback // while the store is unavailable; FallbackDefault means the policy's
}

// unit returns the unit, by its default.
func (l *Limit) unit() string { return cmp.Or(l.Unit, UnitRequests) }

func (l *Limit) chargeEnd() bool {
	if l.Charge != ChargeDefault {
		return l.Charge == ChargeEnd
	}
	unit, _, _ := strings.Cut(l.unit(), "_")
	switch unit {
	case "usd", "eur", "gbp", "cny", "jpy":
		return true
	}
	return l.unit() == "output_tokens"
}

// identity names the state that the limit uses.
func (l *Limit) identity() uint64 {
	zone, anchor := "", 0
	if l.Kind == Calendar {
		zone = cmp.Or(l.Zone, "UTC")
		if l.Every == Month {
			anchor = max(1, l.Anchor)
		}
	}
	h := sha256.Sum256(fmt.Appendf(nil, "%q %q %d %d %d %q %d", l.Name, l.unit(), l.Kind, l.Window.Microseconds(),
		l.Every, zone, anchor))
	return max(1, binary.BigEndian.Uint64(h[:]))
}

// Check reports what is wrong with a limit, as [Policy.Compile] does for each of a policy's.
func (l Limit) Check() error {
	_, err := l.spec()
	return err
}

// spec checks a limit and makes it ready for the arithmetic.
func (l Limit) spec() (record.Spec, error) {
	s := record.Spec{
		ID: l.identity(), Kind: record.Kind(l.Kind), ChargeEnd: l.chargeEnd(),
		Window: l.Window.Microseconds(), Margin: l.Margin.Microseconds(),
	}
	if err := l.checkNames(); err != nil {
		return s, err
	}
	if err := l.checkWindow(&s); err != nil {
		return s, err
	}
	return s, l.checkAmounts(&s)
}

func (l *Limit) checkNames() error {
	for _, f := range [...]struct{ field, text string }{{"name", l.Name}, {"unit", l.unit()}} {
		if f.text == "" || len(f.text) > 64 || strings.Trim(f.text, wordChars) != "" {
			return fmt.Errorf("%s %q is not 1 to 64 letters, digits, '.', '-' or '_'", f.field, f.text)
		}
		for _, r := range f.text {
			if !strings.ContainsRune(wordChars, r) {
				return fmt.Errorf("%s %q is not 1 to 64 letters, digits, '.', '-' or '_'", f.field, f.text)
			}
		}
	}
	return nil
}

const minWindow = time.Millisecond

const wordChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_"

// checkWindow settles what the kind says of time.
func (l *Limit) checkWindow(s *record.Spec) error {
	shortest := minWindow
	switch l.Kind {
	case Bucket, Rolling:
		if l.Window < minWindow || l.Window > MaxWindow || l.Window%time.Microsecond != 0 {
			return fmt.Errorf("window %v is not between %v and %v in whole microseconds", l.Window, minWindow,
				MaxWindow)
		}
		shortest = l.Window
	case Calendar:
		zone, err := calendar.LoadZone(l.Zone)
		if err != nil {
			return err
		}
		s.Rule = calendar.Rule{Unit: calendar.Unit(l.Every), Zone: zone, Anchor: l.Anchor}
		if err := s.Rule.Validate(); err != nil {
			return err
		}
		shortest = time.Minute
	case Concurrency:
	default:
		return errors.New("the kind is missing: bucket, rolling, calendar or concurrency")
	}
	if l.Fallback > FallbackOpen {
		return fmt.Errorf("unknown fallback %d: use closed, share or open", l.Fallback)
	}
	if l.Every == Total && l.Fallback > FallbackClosed {
		return fmt.Errorf("fallback %s is not for a total, of which nothing is granted while the store is unavailable: use closed, or leave it out", l.Fallback)
	}
	if l.Kind != Calendar && (l.Every != 0 || l.Zone != "" || l.Anchor != 0) {
		return fmt.Errorf("the fields every, zone and anchor are for calendar limits, not for a %s limit", l.Kind)
	}
	if (l.Kind == Calendar || l.Kind == Concurrency) && l.Window != 0 {
		return fmt.Errorf("a %s limit has no window of its own", l.Kind)
	}
	if l.Margin < 0 || l.Kind != Concurrency && l.Margin > min(shortest/2, 10*time.Minute) ||
		l.Margin%time.Microsecond != 0 {
		return fmt.Errorf("margin %v is not between 0 and %v in whole microseconds", l.Margin,
			min(shortest/2, 10*time.Minute))
	}
	return l.checkPrecision(s)
}

// defaultPrecision is the precision of a rolling limit that names none, on stores that keep entries
// together.
const defaultPrecision = 128

func (l *Limit) checkPrecision(s *record.Spec) error {
	switch p := l.Precision; {
	case p != 0 && l.Kind != Rolling:
		return errors.New("precision is for rolling limits")
	case p == 0 && l.Kind == Rolling:
		s.Join = s.Window / defaultPrecision
	case p == 0 || p == Exact:
	case p < MinPrecision || p > MaxPrecision:
		return fmt.Errorf("precision %d is invalid: use exact, or a number between %d and %d", p, MinPrecision,
			MaxPrecision)
	default:
		s.Join = s.Window / int64(p)
	}
	return nil
}

// checkAmounts settles what takes of each priority may use.
func (l *Limit) checkAmounts(s *record.Spec) error {
	if l.Amount < 0 || l.Amount > MaxAmount {
		return fmt.Errorf("amount %d is not between 0 and %d", l.Amount, int64(MaxAmount))
	}
	if l.Burst < 0 || l.Burst > MaxAmount || l.Burst != 0 && l.Kind != Bucket {
		return fmt.Errorf("burst %d is invalid: it must be between 0 and %d, and only a bucket limit has one", l.Burst,
			int64(MaxAmount))
	}
	if err := l.Headroom.check(); err != nil {
		return fmt.Errorf("headroom: %w", err)
	}
	if l.Amount == 0 { // nothing passes: Effective stays 0
		if l.Kind == Bucket { // what was used before drains as slowly as it can
			s.Rate = 1
			s.Scale, s.Drain = record.BucketScale(s.Rate, s.Window)
		}
		return l.reserve(s, 0)
	}
	whole := l.Amount - l.Headroom.of(l.Amount)
	if whole < 1 {
		return fmt.Errorf("amount %d minus headroom %s leaves less than 1 unit: lower the headroom", l.Amount,
			l.Headroom)
	}
	if l.Kind == Bucket {
		burst := l.Amount
		if l.Burst > 0 {
			burst = l.Burst
		}
		s.Rate = whole
		s.Scale, s.Drain = record.BucketScale(s.Rate, s.Window)
		if burst > 1<<53/s.Scale {
			return fmt.Errorf("burst %d with %d per %v is too fine to be counted exactly: choose a window that %d divides, such as %v",
				burst, s.Rate, l.Window, s.Rate, roundWindow(l.Window, s.Rate))
		}
		// What may still be on its way when the next window starts is not available as burst.
		margin := int64(MaxAmount)
		if s.Margin < math.MaxInt64/s.Drain-s.Scale {
			margin = (s.Margin*s.Drain + s.Scale - 1) / s.Scale
		}
		whole = burst - l.Headroom.of(burst) - margin
		if whole < 1 {
			return fmt.Errorf("burst %d minus headroom %s and %d units for the margin %v leaves less than 1 unit: raise the burst or lower the margin", burst, l.Headroom, margin, l.Margin)
		}
	}
	return l.reserve(s, whole)
}

// roundWindow returns a window near w, in µs a multiple of rate where that is possible.
func roundWindow(w time.Duration, rate int64) time.Duration {
	us := w.Microseconds()
	if rate < us {
		us = (us + rate/2) / rate * rate
	}
	return time.Duration(us) * time.Microsecond
}

func (l *Limit) reserve(s *record.Spec, whole int64) error {
	for i := range s.Effective {
		s.Effective[i] = whole
	}
	for p, share := range l.ReservedByPriority {
		if p < 1 || p > MaxPriority {
			return fmt.Errorf("keep: priority %d is not between 1 and %d", p, MaxPriority)
		}
		if err := share.check(); err != nil {
			return fmt.Errorf("keep: %w", err)
		}
		for i := range p {
			s.Effective[i] = max(0, s.Effective[i]-share.of(whole))
		}
	}
	return nil
}
