package drawgate

import (
	"cmp"
	"math"
	"time"

	"github.com/drawgate/drawgate/store"
)

// Bounds of policies and takes; package store has the others.
const (
	MaxAmount   = store.MaxAmount
	MaxPriority = store.MaxPriority
	MaxKey      = 64 << 10 // bytes of the key that a caller may give; see [BoundedKey]
	MinHold     = time.Millisecond
	MaxHold     = 31 * 24 * time.Hour
)

// Values with a meaning of their own.
const (
	UnitRequests = store.UnitRequests // the unit of a limit or cost that names none
	// Total is an [Every] without end, for a budget that does not come back: see [Limit].
	Total = store.Total
	Exact = store.Exact                  // as a [Limit.Precision]: every take has an entry of its own
	Never = time.Duration(math.MaxInt64) // the RetryAfter of a take that can never pass
)

// Kind says how a limit counts, and when used units become available again.
type Kind = store.Kind

// The four kinds. See [Limit] for what each admits.
const (
	Bucket      = store.Bucket      // rate with burst: used drains at Amount per Window
	Rolling     = store.Rolling     // at most Amount in every interval of length Window
	Calendar    = store.Calendar    // at most Amount per calendar window: see [Every]
	Concurrency = store.Concurrency // at most Amount slots held at once
)

// Every is the length of a calendar limit's window.
type Every = store.Every

// The calendar windows. A week starts on Monday; a month is a real one and may start on any day
// ([Limit.Anchor]).
const (
	Minute = store.Minute
	Hour   = store.Hour
	Day    = store.Day
	Week   = store.Week
	Month  = store.Month
)

// Charge says when a unit counts.
type Charge = store.Charge

const (
	// ChargeDefault is ChargeEnd for what is only known afterwards (output_tokens, and money: units
	// that start with usd, eur, gbp, cny or jpy), ChargeStart for everything else.
	ChargeDefault = store.ChargeDefault
	ChargeStart   = store.ChargeStart // from the decision on (plus Margin); a settlement changes only the amount
	ChargeEnd     = store.ChargeEnd   // from its settlement on; until then it counts in every window and does not age
)

// Share is a part of an amount: of its fields Units and Percent the one that is not zero. Percent
// is used to four decimals.
type Share = store.Share

// Percent is a share of p per cent, from 0 up to, but not including, 100.
func Percent(p float64) Share { return Share{Percent: p} }

// Limit is one rule: at most Amount of a unit per window.
//
//   - Bucket: in any interval T at most Burst + Amount·T/Window. A bucket with Burst = Amount
//     admits up to twice Amount in one Window.
//   - Rolling: at most Amount in every half-open interval of length Window. Takes within
//     Window/Precision of each other may be counted together until the last of them leaves it.
//   - Calendar: at most Amount in each window of the calendar of Zone, daylight saving included. A
//     Total never says ErrNeverFits: RetryAfter is centuries, and Wait needs a deadline.
//   - Concurrency: at most Amount units held at once; such a policy can only be used with
//     [Limiter.Reserve].
//
// [RollingLimit], [BucketLimit], [CalendarLimit] and [ConcurrencyLimit] make one of each kind.
// A limit's state belongs to (Name, Unit, Kind, Window or Every, Zone, Anchor): with another of
// these it is another limit, which starts unused. Everything else may change, and what is used
// stays used.
type Limit struct {
	Name      string        // required; unique in its policy; at most 64 letters, digits, '.', '-' or '_'
	Unit      string        // "" means requests
	Kind      Kind          // required
	Amount    int64         // 0 to MaxAmount; 0 lets nothing pass: a take that asks for a unit gets ErrNeverFits
	Window    time.Duration // Bucket: the period of Amount; Rolling: the window; 1ms to 366 days in whole microseconds
	Burst     int64         // Bucket: units available after a long idle period; 0 means Amount
	Every     Every         // Calendar: the window
	Zone      string        // Calendar: a name of the IANA time zone database; "" means UTC
	Anchor    int           // Calendar, Month: the day on which it starts, 1 to 31; 0 means 1; at most its last day
	Precision int           // Rolling: 100 to 10,000, or Exact; 0 means the store's default (128; SQLite: Exact)

	Charge             Charge        // when a unit counts
	Margin             time.Duration // how much later an upstream may count a unit; at most half a window, and 10 min
	Headroom           Share         // always kept unused; in a Bucket it is subtracted from both Amount and Burst
	ReservedByPriority map[int]Share // per priority 1 to 9: kept for it and higher ones, after Headroom; rounded up
	Fallback           Fallback      // while the store is unavailable; FallbackDefault means the policy's
}

// RollingLimit returns a limit of at most amount requests in every interval of length window. For
// another unit see [Limit.Of].
func RollingLimit(name string, amount int64, window time.Duration) Limit {
	return Limit{Name: name, Kind: Rolling, Amount: amount, Window: window}
}

// BucketLimit returns a limit of amount requests per period, refilled steadily, with bursts of up
// to burst (0: amount) requests after an idle time.
func BucketLimit(name string, amount int64, period time.Duration, burst int64) Limit {
	return Limit{Name: name, Kind: Bucket, Amount: amount, Window: period, Burst: burst}
}

// CalendarLimit returns a limit of at most amount requests in each calendar window, such as [Day]
// or [Month]. zone is a name of the IANA time zone database, such as "America/Los_Angeles"; ""
// means UTC.
func CalendarLimit(name string, amount int64, every Every, zone string) Limit {
	return Limit{Name: name, Kind: Calendar, Amount: amount, Every: every, Zone: zone}
}

// ConcurrencyLimit returns a limit of at most slots requests at once. Its policy needs
// [Limiter.Reserve].
func ConcurrencyLimit(name string, slots int64) Limit {
	return Limit{Name: name, Kind: Concurrency, Amount: slots}
}

// Of returns the limit with a unit other than requests.
func (l Limit) Of(unit string) Limit {
	l.Unit = unit
	return l
}

// WithHeadroom returns the limit with a part of its amount kept unused, such as [Percent](20).
func (l Limit) WithHeadroom(s Share) Limit {
	l.Headroom = s
	return l
}

// Check reports what is wrong with a limit, as [Policy.Compile] does.
func (l Limit) Check() error {
	s := store.Limit(l)
	return s.Check()
}

// unit returns the unit, by its default.
func (l *Limit) unit() string { return cmp.Or(l.Unit, UnitRequests) }

// PerSecond, PerMinute, PerHour and PerDay return a policy of one rolling limit: at most n requests
// in every interval of that length.
//
// name is the policy's, and part of every bucket's key: two limiters with one name on one store
// share their buckets, even if their amounts differ. Give each thing that is limited its own name.
func PerSecond(name string, n int64) Policy { return per(name, "second", time.Second, n) }

// PerMinute is like [PerSecond].
func PerMinute(name string, n int64) Policy { return per(name, "minute", time.Minute, n) }

// PerHour is like [PerSecond].
func PerHour(name string, n int64) Policy { return per(name, "hour", time.Hour, n) }

// PerDay is like [PerSecond]: the last 24 hours, not a calendar day.
func PerDay(name string, n int64) Policy { return per(name, "day", 24*time.Hour, n) }

func per(name, limit string, window time.Duration, n int64) Policy {
	return Policy{Name: name, Limits: []Limit{RollingLimit(limit, n, window)}}
}

// Rate returns a policy of one bucket limit: n requests per period, with bursts of up to burst.
// For its name see [PerSecond].
func Rate(name string, n int64, period time.Duration, burst int64) Policy {
	return Policy{Name: name, Limits: []Limit{BucketLimit("rate", n, period, burst)}}
}

// Unlimited returns a policy that refuses nothing in practice: it allows [MaxAmount] per second of
// each unit, of requests if none is named. Takes are decided, counted and observed as others, and
// pass while the store is unavailable if package guard is in front of it.
func Unlimited(name string, units ...string) Policy {
	if len(units) == 0 {
		units = []string{UnitRequests}
	}
	p := Policy{Name: name, Fallback: FallbackOpen}
	for _, u := range units {
		p.Limits = append(p.Limits, BucketLimit(cmp.Or(u, UnitRequests), MaxAmount, time.Second, 0).Of(u))
	}
	return p
}
