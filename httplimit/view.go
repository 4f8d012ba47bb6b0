package httplimit

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/drawgate/drawgate"
)

// view is what headers say of a limit that does not change from one decision to the next.
type view struct {
	of     *drawgate.Limit
	limit  string // X-RateLimit-Limit
	policy string // its item of RateLimit-Policy: "per-ip";q=10;w=60
	item   string // the start of its item of RateLimit: "per-ip";r=
	most   int64  // what a take of the highest priority may use in all
	refill int64  // seconds, rounded up, in which a bucket gets one unit; 0: not known
	slots  bool   // a concurrency limit: it has no window, and nobody knows when a slot comes free
}

// Quota units of draft-ietf-httpapi-ratelimit-headers-11, section 3.1.2. Where a unit is none of
// these it is named all the same: leaving it out would say that requests are counted.
const unitSlots = "concurrent-requests"

// newView describes a limit; alone says that it is the only one of its policy.
func newView(r *drawgate.LimitResult, alone bool) *view {
	l, name := r.Limit, r.Policy
	if !alone {
		name += "/" + l.Name
	}
	q, most := r.Quota()
	v := &view{of: l, limit: strconv.FormatInt(q, 10), most: most, slots: l.Kind == drawgate.Concurrency}
	quoted := quote(name)
	v.item = quoted + ";r="
	v.policy = quoted + ";q=" + v.limit
	if u := unit(l); u != drawgate.UnitRequests {
		v.policy += ";qu=" + quote(u)
	}
	if w := windowSeconds(l); w > 0 {
		v.policy += ";w=" + strconv.FormatInt(w, 10)
	}
	if l.Kind == drawgate.Bucket {
		if q > 0 {
			v.refill = max(1, seconds(time.Duration(ceilDiv(int64(l.Window), q))))
		}
		if most != q {
			v.policy += ";drawgate-burst=" + strconv.FormatInt(most, 10)
		}
	}
	return v
}

// unit returns the quota unit of a limit.
func unit(l *drawgate.Limit) string {
	u := cmp.Or(l.Unit, drawgate.UnitRequests)
	if l.Kind == drawgate.Concurrency && u == drawgate.UnitRequests {
		return unitSlots
	}
	return u
}

// windowSeconds returns the length of a limit's window in seconds, rounded up, so that who keeps to
// it keeps to the limit: a day has 24 hours, a month 31 days. 0 means that it has none.
func windowSeconds(l *drawgate.Limit) int64 {
	const hour, day = 3600, 24 * 3600
	switch l.Kind {
	case drawgate.Concurrency:
		return 0
	case drawgate.Calendar:
		switch l.Every {
		case drawgate.Minute:
			return 60
		case drawgate.Hour:
			return hour
		case drawgate.Day:
			return day
		case drawgate.Week:
			return 7 * day
		}
		return 31 * day
	}
	return seconds(l.Window)
}

// quote writes text as a String of RFC 9651. What a String cannot hold, bytes that are not
// printable ASCII, is percent-encoded, and the per cent sign with it.
func quote(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(text) {
		switch c := text[i]; {
		case c < ' ' || c > '~' || c == '%':
			const digits = "0123456789ABCDEF"
			b.WriteByte('%')
			b.WriteByte(digits[c>>4])
			b.WriteByte(digits[c&15])
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// seconds rounds up.
func seconds(d time.Duration) int64 { return ceilDiv(int64(d), int64(time.Second)) }

// ceilDiv returns a/b rounded up, for a ≥ 0 and b > 0.
func ceilDiv(a, b int64) int64 {
	if a <= 0 {
		return 0
	}
	return (a-1)/b + 1
}
