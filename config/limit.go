package config

import (
	"slices"
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
	"bucket": drawgate.Bucket, "rolling": drawgate.Rolling, "calendar": drawgate.Calendar, "concurrency": drawgate.Concurrency,
}

// kindOnly maps keys to the only kind of limit that they are for.
var kindOnly = map[string]drawgate.Kind{
	"burst": drawgate.Bucket, "zone": drawgate.Calendar, "anchor": drawgate.Calendar, "precision": drawgate.Rolling,
}

func (d *decoder) limit(n ast.Node) *limit {
	l := &limit{start: spanOf(n), at: map[string]span{}, bad: map[string]bool{}}
	var kinds, special []entry
	// read wraps the reader of a key to record whether its value was valid.
	read := func(key string, f func(entry)) field {
		return field{key, func(e entry) {
			before := len(d.problems)
			f(e)
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
		}}
	}
	before := len(d.problems)
	seen := d.object(n, "a limit", []field{
		read("name", func(e entry) { l.Name, _ = d.text(e) }),
		read("unit", func(e entry) { l.Unit, _ = d.text(e) }),
		read("bucket", func(e entry) { l.Window = d.duration(e) }),
		read("rolling", func(e entry) { l.Window = d.duration(e) }),
		read("calendar", func(e entry) { l.Every = d.every(e) }),
		read("concurrency", func(e entry) { l.Amount = d.integer(e, 0, drawgate.MaxAmount) }),
		read("amount", func(e entry) { d.amount(l, e) }),
		read("burst", func(e entry) { l.Burst = d.integer(e, 1, drawgate.MaxAmount) }),
		read("zone", func(e entry) { l.Zone, _ = d.text(e) }),
		read("anchor", func(e entry) { l.Anchor = int(d.integer(e, 1, 31)) }),
		read("precision", func(e entry) { l.Precision = d.precision(e) }),
		read("charge", func(e entry) { l.Charge = d.charge(e) }),
		read("margin", func(e entry) { l.Margin = d.duration(e) }),
		read("headroom", func(e entry) { l.Headroom, _ = d.share(e) }),
		read("keep", func(e entry) { l.ReservedByPriority = d.keep(e) }),
		read("fallback", func(e entry) { l.Fallback = d.fallback(e) }),
	})
	if len(seen) == 0 && len(d.problems) > before {
		return l // not even a mapping
	}
	d.kind(l, kinds, special, seen)
	d.complete(l, seen)
	d.check(l)
	if len(d.problems) == before {
		d.warnAbout(l)
	}
	return l
}

// amount reads the amount. In a concurrency limit it is the value of the key "concurrency", and may
// be repeated here.
func (d *decoder) amount(l *limit, e entry) {
	before := len(d.problems)
	if n := d.integer(e, 0, drawgate.MaxAmount); len(d.problems) == before {
		l.Amount = n
	}
}

func (d *decoder) every(e entry) drawgate.Every {
	var words []string
	for u := calendar.Minute; u < calendar.End; u++ {
		words = append(words, u.String())
	}
	word := d.oneOf(e, words...)
	return drawgate.Every(1 + slices.Index(words, word)) // 0 if it is none of them
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

func (d *decoder) charge(e entry) drawgate.Charge {
	switch word := d.oneOf(e, "start", "end"); word {
	case "start":
		return drawgate.ChargeStart
	case "end":
		return drawgate.ChargeEnd
	}
	return drawgate.ChargeDefault
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
		if share, ok := d.share(entry{"keep for priority " + e.key, e.at, e.value}); ok {
			keep[int(priority)] = share
		}
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
		d.problem(at, "leave it out", "anchor is the day on which a month starts, but this limit counts per %s", l.Every)
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
