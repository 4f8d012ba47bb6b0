package httplimit

import (
	"cmp"
	"fmt"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/admit"
	"github.com/drawgate/drawgate/store"
)

// The headers that are written, in Go's canonical form. Header names are not case-sensitive.
const (
	HeaderLimit     = "X-Ratelimit-Limit"     // units per window of the limit described: its rate, for a bucket
	HeaderRemaining = "X-Ratelimit-Remaining" // units that are left of it now
	// Unix seconds at which nothing of it is used, or its calendar window ends.
	HeaderReset     = "X-Ratelimit-Reset"
	HeaderFallback  = "X-Ratelimit-Fallback" // "true": this process decided alone, because the store was unavailable
	HeaderPolicy    = "Ratelimit-Policy"     // the limits, as structured fields
	HeaderRateLimit = "Ratelimit"            // what is left of them
	// seconds until the same request would pass; only on refusals after which waiting helps.
	HeaderRetry = "Retry-After"
)

// Fields selects the headers to write.
type Fields uint8

// The headers to choose from. Retry-After and X-RateLimit-Fallback are always written if they
// apply.
const (
	XRateLimit Fields = 1 << iota // X-RateLimit-Limit, -Remaining and -Reset
	RateLimit                     // RateLimit and RateLimit-Policy
	NoFields   Fields = 1 << 7    // neither
	AllFields         = XRateLimit | RateLimit
)

// HeaderOptions holds the optional settings of Headers. The zero value is ready to use.
type HeaderOptions struct {
	// Policies names the policies whose limits are described; empty means all in a decision.
	// Callers see what is described: a limit shared by all callers shows how busy the others are.
	Policies []string
	// Fields selects the headers; 0 means AllFields.
	Fields Fields
	// MaxBytes bounds the total size of RateLimit and RateLimit-Policy, because proxies refuse
	// answers with long headers. Limits that do not fit are left out of both, but never the limit
	// described by X-RateLimit-*. 0 means no bound.
	MaxBytes int
	// Names renames the X-RateLimit headers.
	Names HeaderNames
}

// HeaderNames has names for X-RateLimit-Limit, -Remaining and -Reset, for clients that expect other
// names. The zero value changes nothing.
type HeaderNames struct {
	Limit, Remaining, Reset string // "" stands for the usual name

	// ResetAfter writes the reset as a number of seconds from now, rounded up, instead of a Unix
	// time.
	ResetAfter bool
}

func (n *HeaderNames) check() error {
	for _, name := range [...]string{n.Limit, n.Remaining, n.Reset} {
		if strings.Trim(name, headerChars) != "" {
			return fmt.Errorf("httplimit: %q cannot be the name of a header", name)
		}
	}
	return nil
}

// headerChars are allowed in names of headers. RFC 9110 allows a few more, which nobody uses.
const headerChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"

// Headers writes decisions to headers. It is safe for concurrent use, and caches the description of
// each limit.
//
// X-RateLimit-Limit, -Remaining and -Reset describe one limit: after a refusal the one that refuses
// longest, otherwise the one with the smallest fraction remaining; a concurrency limit only if
// there is no other. RateLimit-Policy and RateLimit list all described limits. They follow
// draft-ietf-httpapi-ratelimit-headers-11: see docs/httplimit.md for the meaning of each value.
type Headers struct {
	policies []string
	fields   Fields
	maxBytes int
	names    HeaderNames          // in canonical form
	last     atomic.Pointer[view] // the most recent lookup
	views    sync.Map             // *drawgate.Limit → *view
	known    atomic.Int64
}

// mostViews bounds the cache. If policies are replaced at run time, the limits are new each time.
const mostViews = 4096

// NewHeaders returns Headers. opts may be nil.
func NewHeaders(opts *HeaderOptions) *Headers {
	if opts == nil {
		opts = &HeaderOptions{}
	}
	h := &Headers{
		policies: slices.Clone(opts.Policies), fields: opts.Fields, maxBytes: opts.MaxBytes,
		names: opts.Names,
	}
	for _, n := range [...]struct {
		name  *string
		usual string
	}{{&h.names.Limit, HeaderLimit}, {&h.names.Remaining, HeaderRemaining}, {&h.names.Reset, HeaderReset}} {
		*n.name = textproto.CanonicalMIMEHeaderKey(cmp.Or(*n.name, n.usual))
	}
	if h.fields == 0 {
		h.fields = AllFields
	}
	return h
}

// Append writes the headers of a decision to to. X-RateLimit-* and Retry-After replace existing
// values; RateLimit and RateLimit-Policy, which are lists, are added. An empty decision, or one
// without a described limit, only has the headers that it needs.
func (h *Headers) Append(to http.Header, d *drawgate.Decision) { h.append(to, d, 0) }

// append is Append without the buckets whose bits are set in hidden.
func (h *Headers) append(to http.Header, d *drawgate.Decision, hidden uint64) {
	if !d.Allowed {
		if after, ok := RetryAfter(d); ok {
			to[HeaderRetry] = []string{strconv.FormatInt(after, 10)}
		}
	}
	if d.Fallback {
		to[HeaderFallback] = []string{"true"}
	}
	if h.fields&AllFields == 0 {
		return
	}
	h.describe(to, d, hidden)
}

// line is what is said of one limit.
type line struct {
	*view
	left     int64
	part     float64       // of what may be used that is left
	window   int64         // seconds; -1: unknown
	reset    int64         // Unix seconds, or seconds from now
	refusal  time.Duration // until it would pass the take; 0 if it does
	from, to int           // position of left in the text that is written
}

func (h *Headers) describe(to http.Header, d *drawgate.Decision, hidden uint64) {
	var space [3]line // enough for most answers
	after := int64(-1)
	if !d.Allowed {
		if s, ok := RetryAfter(d); ok {
			after = s
		}
	}
	h.write(to, h.lines(space[:0], d, hidden, after))
}

// appendStatus writes what is left in the buckets of a request that was not decided.
func (h *Headers) appendStatus(to http.Header, list []drawgate.Status) {
	var lines []line
	for i := range list {
		lines = h.lines(lines, &list[i].Decision, 0, -1)
	}
	h.write(to, lines)
}

// describes reports whether the headers describe a policy's limits.
func (h *Headers) describes(policy string) bool {
	return h.fields&AllFields != 0 && (len(h.policies) == 0 || slices.Contains(h.policies, policy))
}

// lines appends a line for each limit of a decision, except for those of hidden buckets. after is
// the Retry-After of a refusal in seconds; -1: there is none.
func (h *Headers) lines(lines []line, d *drawgate.Decision, hidden uint64, after int64) []line {
	for r := range d.Limits() {
		if hidden>>r.Bucket&1 != 0 || !h.describes(r.Policy) {
			continue
		}
		v, left := h.view(d, &r), r.ResetAfter().Microseconds()
		l := line{
			view: v, left: r.Remaining, part: r.Part(), window: window(&r, v, left, after),
			reset: ceilDiv(left, micro), refusal: r.RetryAfter,
		}
		if !h.names.ResetAfter {
			l.reset = ceilDiv(r.ResetAt().UnixMicro(), micro)
		}
		lines = append(lines, l)
	}
	return lines
}

func (h *Headers) write(to http.Header, lines []line) {
	switch len(lines) {
	case 0:
	case 1:
		h.values(to, lines, &lines[0])
	default:
		best := tightest(lines)
		if h.maxBytes > 0 {
			lines, best = fitting(lines, best, h.maxBytes)
		}
		h.values(to, lines, &lines[best])
	}
}

// fitting returns the line at best and, in order, as many of the others as fit, and the new
// position of that line.
func fitting(lines []line, best, maxBytes int) (kept []line, at int) {
	left := maxBytes - lines[best].size()
	kept = lines[:0]
	for i := range lines {
		size := lines[i].size()
		switch {
		case i == best:
			at = len(kept)
		case size > left:
			continue
		default:
			left -= size
		}
		kept = append(kept, lines[i])
	}
	return kept, at
}

// size is the maximum number of bytes that a line needs in both lists.
func (l *line) size() int {
	const number = 19 // digits
	return len(l.item) + number + len(";t=") + number + len(l.policy) + 2*len(", ")
}

// rankSlots is added to the rank of concurrency limits, so that they come after all others. The
// rank of a limit is its remaining fraction, between 0 and 1.
const rankSlots = 2

// tightest returns the line of the limit that refuses longest; if none does, the one with the
// smallest fraction remaining.
func tightest(lines []line) (best int) {
	lowest := float64(rankSlots + 1)
	for i := range lines {
		l := &lines[i]
		rank := l.part
		if l.slots {
			rank += rankSlots
		}
		switch {
		case i == 0, l.refusal > lines[best].refusal, l.refusal == lines[best].refusal && rank < lowest:
			best, lowest = i, rank
		}
	}
	return best
}

// micro is the number of microseconds in a second.
const micro = 1_000_000

// window returns for how many seconds no more than what remains can be used, if nothing is used any
// more in untilReset µs; -1 if unknown. It is at most after, the Retry-After of a refusal (-1:
// there is none), as section 6 of the draft requires.
func window(r *drawgate.LimitResult, v *view, untilReset, after int64) int64 {
	if v.slots || v.total {
		return -1
	}
	t := ceilDiv(untilReset, micro)
	if r.Remaining == 0 && v.refill > 0 {
		t = min(t, v.refill)
	}
	if r.Refused() && r.RetryAfter != drawgate.Never {
		t = admit.Seconds(r.RetryAfter)
	}
	if after >= 0 {
		t = min(t, after)
	}
	return t
}

// values puts the headers into to. All values share one string and one slice: separately they would
// be ten allocations.
func (h *Headers) values(to http.Header, lines []line, best *line) {
	var space [256]byte
	text := appendItems(space[:0], lines)
	a := len(text)
	text = strconv.AppendInt(text, best.reset, 10)
	b := len(text)
	if len(lines) > 1 {
		text = appendPolicies(text, lines)
	}
	all := string(text)
	values := []string{all[:a], all[b:], best.limit, all[best.from:best.to], all[a:b]}
	if len(lines) == 1 {
		values[1] = best.policy
	}
	if h.fields&RateLimit != 0 {
		others := len(to) > 0
		to[HeaderRateLimit] = joined(to, HeaderRateLimit, values[0:1:1], others)
		to[HeaderPolicy] = joined(to, HeaderPolicy, values[1:2:2], others)
	}
	if h.fields&XRateLimit == 0 {
		return
	}
	to[h.names.Limit] = values[2:3:3]
	to[h.names.Remaining] = values[3:4:4]
	if !best.slots && !best.total {
		to[h.names.Reset] = values[4:5:5]
	}
}

// joined returns the current values of a list header, plus value. It only looks them up if others
// says that there are headers, which is rare.
func joined(to http.Header, name string, value []string, others bool) []string {
	if others {
		if old := to[name]; old != nil {
			return append(old, value...)
		}
	}
	return value
}

// appendItems appends the value of RateLimit, and records where in it the numbers for
// X-RateLimit-Remaining are.
func appendItems(text []byte, lines []line) []byte {
	for i := range lines {
		l := &lines[i]
		if i > 0 {
			text = append(text, ", "...)
		}
		text = append(text, l.item...)
		l.from = len(text)
		text = strconv.AppendInt(text, l.left, 10)
		l.to = len(text)
		if l.window >= 0 {
			text = strconv.AppendInt(append(text, ";t="...), l.window, 10)
		}
	}
	return text
}

// appendPolicies appends the value of RateLimit-Policy.
func appendPolicies(text []byte, lines []line) []byte {
	for i := range lines {
		if i > 0 {
			text = append(text, ", "...)
		}
		text = append(text, lines[i].policy...)
	}
	return text
}

// view returns the description of a limit.
func (h *Headers) view(d *drawgate.Decision, r *drawgate.LimitResult) *view {
	if v := h.last.Load(); v != nil && v.of == r.Limit {
		return v
	}
	if v, ok := h.views.Load(r.Limit); ok {
		return v.(*view)
	}
	return h.learn(*d, r.Limit)
}

// learn describes a limit of d, and caches the description.
func (h *Headers) learn(d drawgate.Decision, l *drawgate.Limit) *view {
	var v *view
	counts := limitsPerBucket(&d)
	for r := range d.Limits() {
		if r.Limit == l {
			v = newView(&r, counts[r.Bucket] == 1)
		}
	}
	if h.known.Add(1) > mostViews {
		h.views.Clear()
		h.known.Store(1)
	}
	h.views.Store(l, v)
	h.last.Store(v)
	return v
}

// limitsPerBucket returns how many limits a decision has for each bucket of the take.
func limitsPerBucket(d *drawgate.Decision) (n [store.MaxBuckets]uint8) {
	for r := range d.Limits() {
		n[r.Bucket]++
	}
	return n
}

// RetryAfter returns the number of seconds, rounded up and at least 1, after which the same request
// would pass if nothing else happened. It is false if the request is allowed, or can never pass:
// then there must not be a Retry-After.
//
// It is unknown when slots become free: their holders give them back early, or renew their holds.
// So a request that only a concurrency limit refuses may be tried again in a second, unless its
// bucket is paused.
func RetryAfter(d *drawgate.Decision) (after int64, ok bool) {
	wait, ok := admit.RetryAfter(d)
	return admit.Seconds(wait), ok
}
