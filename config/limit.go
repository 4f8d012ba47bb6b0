package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/calendar"
	"github.com/drawgate/drawgate/store"
)

// limit is a limit while it is read.
type limit struct {
	drawgate.Limit

	start span
	at    map[string]span // position of the value of each valid key; "kind" for the key that sets the kind
	bad   map[string]bool // keys whose value was refused
}

var kindKeys = map[string]drawgate.Kind{
	"bucket": drawgate.Bucket, "rolling": drawgate.Rolling, "calendar": drawgate.Calendar,
	"concurrency": drawgate.Concurrency,
}

// kindOnly maps keys to the only kind of limit that they are for.
var kindOnly = map[string]drawgate.Kind{
	"burst": drawgate.Bucket, "zone": drawgate.Calendar, "anchor": drawgate.Calendar, "precision": drawgate.Rolling,
}

func (d *decoder) limit(n ast.Node) *limit {
	l := &limit{start: spanOf(n), at: map[string]span{}, bad: map[string]bool{}}
	var kinds, special []entry
	before := len(d.problems)
	// The func records which values are valid.
	seen := d.object(n, "a limit", limitSettings(&l.Limit), func(s *setting, e entry) {
		before, key := len(d.problems), s.key
		s.value.read(d, e)
		if _, ok := kindKeys[key]; ok {
			kinds = append(kinds, e)
			key = "kind"
		}
		if _, ok := kindOnly[key]; ok {
			special = append(special, e)
		}
		if len(d.problems) > before {
			l.bad[key] = true
		} else {
			l.at[key] = spanOf(e.value)
		}
	})
	if len(seen) == 0 && len(d.problems) > before {
		return l // not even a mapping
	}
	d.kind(l, kinds, special, seen)
	d.complete(l, seen)
	d.check(l)
	if l.Every == drawgate.Total && l.Fallback == drawgate.FallbackDefault {
		l.Fallback = drawgate.FallbackClosed
	}
	if len(d.problems) == before {
		d.warnAbout(l)
	}
	return l
}

var limitSection = &section[drawgate.Limit]{
	name: "limit", what: "a limit", settings: limitSettings,
	more: schema{
		"oneOf": append(need("concurrency"), schema{"required": []string{"bucket", "amount"}},
			schema{"required": []string{"rolling", "amount"}}, schema{"required": []string{"calendar", "amount"}}),
		"dependentRequired": schema{
			"burst": []string{"bucket"}, "zone": []string{"calendar"},
			"anchor": []string{"calendar"}, "precision": []string{"rolling"},
		},
	},
}

// limitSettings returns the settings of a limit. The library checks the values: see
// [decoder.check].
func limitSettings(l *drawgate.Limit) []setting {
	// of is the value of a key that only limits of some kinds have.
	of := func(v value, is func(drawgate.Kind) bool) value {
		all := v.node
		v.node = func() (n node) {
			if is(l.Kind) {
				n = all()
			}
			return n
		}
		return v
	}
	kind := func(v value, kind drawgate.Kind) value {
		return of(v, func(k drawgate.Kind) bool { return k == kind })
	}
	name := bounded(textBy((*decoder).anyText, schema{"pattern": "^[A-Za-z0-9._-]{1,64}$"}), "1 to 64 letters, digits, `.` `-` `_`")
	window := bounded(asDuration, "1ms to 366d")
	zone := textBy((*decoder).anyText, schema{"examples": []string{"America/Los_Angeles"}})
	return []setting{
		{"name", name.to(&l.Name), required, "what messages and metrics call it, such as `rpm`. A limit with another " +
			"name is another limit, which starts unused"},
		{"unit", name.to(&l.Unit), "`requests`", "what is counted: `requests`, `input_tokens`, `output_tokens`, " +
			"`usd_micros`, or a word of your own"},
		{"bucket", kind(window.to(&l.Window), drawgate.Bucket), "", "kind: a rate with burst; the value is the " +
			"period in which `amount` units come back. In any time T at most burst + amount · T ÷ period, so with " +
			"burst = amount up to twice the amount in one period"},
		{"rolling", kind(window.to(&l.Window), drawgate.Rolling), "", "kind: a hard cap: at most `amount` in every " +
			"interval of this length, wherever it starts; `1d` is the last 24 hours. The right kind for an " +
			"upstream's quota"},
		{"calendar", kind(asEvery.to(&l.Every), drawgate.Calendar), "", "kind: at most `amount` per `minute`, " +
			"`hour`, `day`, `week` (from Monday) or `month` of the calendar in `zone`; `total`: at most `amount` in " +
			"all, for ever, and what was [credited](spend.md#prepaid-budgets) to the key"},
		{"concurrency", kind(asAmount.to(&l.Amount), drawgate.Concurrency), "", "kind: at most this many units are " +
			"held at once; the policy then needs reservations"},
		{
			"amount", of(asAmount.to(&l.Amount), func(k drawgate.Kind) bool { return k != drawgate.Concurrency }),
			"required, unless `concurrency` says it", "units per window. In a concurrency limit the value of " +
				"`concurrency` is the amount, which may be repeated here. With 0 nothing passes: a take that asks " +
				"for one of its units is `never_fits`",
		},
		{"burst", asCount.to(&l.Burst), "`amount`", "bucket: units available at once after an idle period"},
		{"zone", zone.to(&l.Zone), "`UTC`", "calendar: a name from the IANA time zone database; daylight saving time " +
			"is respected"},
		{"anchor", number[int](1, 31).to(&l.Anchor), "1", "calendar month: the day on which the month starts; if a " +
			"month does not have that day, its last day"},
		{"precision", asPrecision.to(&l.Precision), "128; SQLite: `exact`", "rolling: takes within window ÷ " +
			"precision of each other may be counted together, on the safe side; `exact`: never"},
		{
			"charge", numbered[drawgate.Charge]("start", "end").to(&l.Charge),
			"`end` for `output_tokens` and money, else `start`", "when a unit counts: `start` (at the decision) or " +
				"`end` (when settled; held until then)",
		},
		{
			"margin", bounded(asDuration, "at most half a window and 10m; of a calendar window 30s").to(&l.Margin), "0",
			"how long after the decision a unit may reach an upstream that also counts it. 2s suits an upstream API",
		},
		{"headroom", bounded(asShare, "must leave 1 unit").to(&l.Headroom), "0", "a share that is always kept unused: " +
			"units, or a percentage of the amount (rounded up); for a bucket it is taken off amount and burst"},
		{"keep", asKeep.to(&l.ReservedByPriority), "", "for priorities 1 to 9 a share, after the headroom, that " +
			"lower priorities must leave: `{7: 10%}` leaves a tenth to priorities 7, 8 and 9"},
		{"fallback", asFallback.to(&l.Fallback), "the policy's", "what this limit admits while the store is " +
			"unavailable, as in the policy"},
	}
}

var asEvery = numbered[drawgate.Every](append(everyWords(), drawgate.Total.String())...)

func everyWords() (list []string) {
	for u := calendar.Minute; u < calendar.End; u++ {
		list = append(list, u.String())
	}
	return list
}

var asPrecision = form[int]{
	read: (*decoder).precision, bounds: fmt.Sprintf("%d to %d, `exact`", store.MinPrecision, store.MaxPrecision),
	node: func(p int) node {
		if p == drawgate.Exact {
			return node{scalar: "exact"}
		}
		return numberNode(p)
	},
	schema: schema{"anyOf": []schema{
		number[int](store.MinPrecision, store.MaxPrecision).schema, {"const": "exact"},
	}},
}

var asKeep = form[map[int]drawgate.Share]{
	read: (*decoder).keep,
	node: func(keep map[int]drawgate.Share) (n node) {
		for _, p := range slices.Sorted(maps.Keys(keep)) {
			n.pairs = append(n.pairs, pair{strconv.Itoa(p), node{scalar: formatShare(keep[p])}})
		}
		return n
	},
	schema: mapOf(asShare.schema).with(schema{"propertyNames": schema{"pattern": "^[1-9]$"}}),
}

func (d *decoder) precision(e entry) int {
	if _, ok := e.value.(*ast.IntegerNode); ok {
		return int(d.integer(e, store.MinPrecision, store.MaxPrecision))
	}
	if n, ok := e.value.(*ast.StringNode); ok && n.Value == "exact" {
		return drawgate.Exact
	}
	d.problem(spanOf(e.value), "", "precision must be exact or a whole number from %d to %d, not %s",
		store.MinPrecision, store.MaxPrecision, describe(e.value))
	return 0
}

func (d *decoder) keep(e entry) map[int]drawgate.Share {
	entries, ok := d.entries(e.value, "keep")
	if ok && len(entries) == 0 {
		d.problem(spanOf(e.value), "such as {7: 10%}", "keep is empty")
	}
	keep := map[int]drawgate.Share{}
	for _, e := range entries {
		priority, err := parseInteger(e.key)
		if err != nil || priority < 1 || priority > drawgate.MaxPriority {
			d.problem(e.at, "", "keep: %s is not a priority from 1 to %d", shorten(e.key), drawgate.MaxPriority)
			continue
		}
		keep[int(priority)] = d.share(entry{"keep for priority " + e.key, e.at, e.value})
	}
	return keep
}

// kind determines the kind of the limit, of which there must be exactly one, and reports keys that
// are for another kind.
func (d *decoder) kind(l *limit, kinds, special []entry, seen map[string]bool) {
	if len(kinds) == 0 {
		if !seen["bucket"] && !seen["rolling"] && !seen["calendar"] && !seen["concurrency"] {
			d.missing(l.start, aboutKinds, "the limit has no kind")
		}
		return
	}
	l.Kind = kindKeys[kinds[0].key]
	for _, e := range kinds[1:] {
		d.problem(e.at, aboutKinds, "the limit has two kinds, %s and %s", kinds[0].key, e.key)
	}
	if len(kinds) > 1 {
		for _, e := range special { // they may be right for one of the two kinds
			l.bad[e.key] = true
		}
		return
	}
	for _, e := range special {
		if want := kindOnly[e.key]; l.Kind != want {
			d.problem(e.at, "", "%s is for %s limits, but this is a %s limit", e.key, want, l.Kind)
			l.bad[e.key] = true
		}
	}
	if at, given := l.at["anchor"]; given && l.Kind == drawgate.Calendar && l.Every != 0 && l.Every != drawgate.Month {
		d.problem(at, "leave it out", "anchor is the day on which a month starts, but this limit counts per %s",
			l.Every)
		l.bad["anchor"] = true
	}
	if l.Kind == drawgate.Concurrency {
		d.slots(l, kinds[0])
	}
}

// slots makes sure that a concurrency limit has only one amount.
func (d *decoder) slots(l *limit, e entry) {
	n, ok := e.value.(*ast.IntegerNode)
	if !ok || l.bad["kind"] {
		return
	}
	slots, _ := parseInteger(n.GetToken().Value)
	if at, also := l.at["amount"]; also && l.Amount != slots {
		d.problem(at, "leave one of them out", "amount %d contradicts concurrency %d", l.Amount, slots)
	}
	l.Amount = slots
}

func (d *decoder) complete(l *limit, seen map[string]bool) {
	if !seen["name"] {
		d.missing(l.start, "such as name: rpm", "the limit has no name")
	}
	if !seen["amount"] && !seen["concurrency"] && l.Kind != 0 {
		d.missing(l.start, "", "the limit has no amount")
	}
}

// neutral sets a key to a value that cannot be wrong. The order matters: if two keys do not fit
// together, the first one in this list is reported.
var neutral = []struct {
	key string
	set func(*drawgate.Limit)
}{
	{"name", func(l *drawgate.Limit) { l.Name = "x" }},
	{"unit", func(l *drawgate.Limit) { l.Unit = "" }},
	{"zone", func(l *drawgate.Limit) { l.Zone = "" }},
	{"anchor", func(l *drawgate.Limit) { l.Anchor = 0 }},
	{"precision", func(l *drawgate.Limit) { l.Precision = 0 }},
	{"margin", func(l *drawgate.Limit) { l.Margin = 0 }},
	{"keep", func(l *drawgate.Limit) { l.ReservedByPriority = nil }},
	{"headroom", func(l *drawgate.Limit) { l.Headroom = drawgate.Share{} }},
	{"burst", func(l *drawgate.Limit) { l.Burst = 0 }},
	{"fallback", func(l *drawgate.Limit) { l.Fallback = drawgate.FallbackDefault }},
	{"kind", func(l *drawgate.Limit) {
		l.Margin, l.Burst, l.Anchor = 0, 0, 0 // their validity depends on the window
		switch l.Kind {
		case drawgate.Bucket, drawgate.Rolling:
			l.Window = time.Minute
		case drawgate.Calendar:
			l.Every = drawgate.Day
		default:
			l.Amount = 1
		}
	}},
	{"amount", func(l *drawgate.Limit) {
		l.Amount, l.Headroom, l.Burst, l.ReservedByPriority = 1, drawgate.Share{}, 0, nil
	}},
}

// check reports the library's errors about the limit, each at the value that causes it. That is the
// value without which the error disappears or changes. Such values are neutralised one by one until
// no error is left.
func (d *decoder) check(l *limit) {
	try := l.Limit
	for _, n := range neutral {
		_, given := l.at[n.key]
		if l.bad[n.key] || !given && (n.key == "name" || n.key == "amount" && l.Kind != drawgate.Concurrency) {
			n.set(&try)
		}
	}
	switch l.Kind {
	case 0:
		try.Kind, try.Window = drawgate.Rolling, time.Minute
		try.Burst, try.Zone, try.Anchor = 0, "", 0
	case drawgate.Calendar, drawgate.Concurrency:
		try.Window = 0 // two kinds were given
	default:
		try.Every = 0
	}
	for range neutral {
		err := try.Check()
		if err == nil {
			return
		}
		key, rest := blame(l, try, err)
		at, ok := l.at[key]
		if !ok {
			d.problem(l.start, "", "%s", plain(err))
			return
		}
		d.problem(at, "", "%s", plain(err))
		try = rest
	}
}

func plain(err error) string { return strings.TrimPrefix(err.Error(), "calendar: ") }

// blame returns the key that causes err, and the limit without it.
func blame(l *limit, try drawgate.Limit, err error) (key string, rest drawgate.Limit) {
	for _, n := range neutral {
		if _, given := l.at[n.key]; !given {
			continue
		}
		without := try
		n.set(&without)
		other := without.Check()
		if other == nil {
			return n.key, without
		}
		if key == "" && other.Error() != err.Error() {
			key, rest = n.key, without
		}
	}
	return key, rest
}

// warnAbout warns of what works but is perhaps not intended.
func (d *decoder) warnAbout(l *limit) {
	for _, c := range cautions(&l.Limit) {
		at, ok := l.at[c.key]
		if !ok {
			at = l.at["kind"]
		}
		d.warn(at, c.hint, "%s", c.message)
	}
}
