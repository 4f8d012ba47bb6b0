package httplimit

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/admit"
	"github.com/drawgate/drawgate/internal/calendar"
)

// view is the part of a limit's description that is the same for all decisions.
type view struct {
	of     *drawgate.Limit
	limit  string // X-RateLimit-Limit
	policy string // its item of RateLimit-Policy: "per-ip";q=10;w=60
	item   string // the start of its item of RateLimit: "per-ip";r=
	most   int64  // the most that a take of the highest priority may use
	refill int64  // seconds, rounded up, in which a bucket gets one unit; 0: unknown
	slots  bool   // a concurrency limit: it has no window, and it is unknown when a slot becomes free
	total  bool   // what is used never comes back
}

// Quota units of draft-ietf-httpapi-ratelimit-headers-11, section 3.1.2. Other units are named too,
// because leaving them out would mean that requests are counted.
const unitSlots = "concurrent-requests"

// newView describes a limit; alone means that it is the only one of its policy.
func newView(r *drawgate.LimitResult, alone bool) *view {
	l, name := r.Limit, r.Policy
	if !alone {
		name += "/" + l.Name
	}
	q, most := r.Quota()
	v := &view{of: l, limit: strconv.FormatInt(q, 10), most: most, slots: l.Kind == drawgate.Concurrency}
	v.total = l.Kind == drawgate.Calendar && l.Every == drawgate.Total
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
			v.refill = max(1, admit.Seconds(time.Duration(ceilDiv(int64(l.Window), q))))
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

// windowSeconds returns the length of a limit's window in seconds, rounded up, so that a client
// that keeps to it keeps to the limit: of a calendar window the greatest length, but for changes of
// the clock. 0 means that it has none.
func windowSeconds(l *drawgate.Limit) int64 {
	switch l.Kind {
	case drawgate.Concurrency:
		return 0
	case drawgate.Calendar:
		if l.Every == drawgate.Total {
			return 0
		}
		return calendar.Unit(l.Every).Length() / 1e6
	}
	return admit.Seconds(l.Window)
}

// quote writes text as a String of RFC 9651. Bytes that are not printable ASCII, which a String
// cannot contain, are percent-encoded, and so is the per cent sign.
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

// ceilDiv returns a/b rounded up, for a ≥ 0 and b > 0.
func ceilDiv(a, b int64) int64 {
	if a <= 0 {
		return 0
	}
	return (a-1)/b + 1
}
