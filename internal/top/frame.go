package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/internal/present"
)

// Order says how buckets are sorted.
type Order int

// The orders.
const (
	ByUse  Order = iota // the largest part of a limit first
	ByName              // by policy, tenant and key
	ByOpen              // the most open reservations first
	orders
)

// String returns what the buckets are sorted by, in words.
func (o Order) String() string { return [...]string{"use", "name", "open reservations"}[o] }

// View says how a snapshot is drawn.
type View struct {
	Source   string        // what is shown: a server's address, or a store
	Store    bool          // it is a store, in which nobody waits
	Interval time.Duration // 0: it is drawn once, and there are no keys
	Width    int           // columns
	Height   int           // lines; 0: as many as there are
	Order    Order
	Filter   string // shows only buckets and lines with this text
	Editing  bool   // the filter is being written
	Paused   bool
}

// rows is how many rows those sections have at most that are not about buckets, if the height is
// bounded.
const rows = 5

// Styles. A terminal that shows no colours ignores them.
var (
	bold  = ansi.NewStyle().Bold()
	faint = ansi.NewStyle().Faint()
	ok    = ansi.NewStyle().ForegroundColor(ansi.Green)
	warm  = ansi.NewStyle().ForegroundColor(ansi.Yellow)
	hot   = ansi.NewStyle().ForegroundColor(ansi.Red)
)

// Frame draws a snapshot, which is nil until there is one. lost says since when there is no answer,
// and why; lost.Err is nil if there is one.
func (v *View) Frame(s *Snapshot, lost Lost) string {
	head := []string{v.title(s)}
	if lost.Err != nil {
		head = append(head, hot.Styled(fmt.Sprintf("no answer since %s: %s", present.Clock(lost.Since),
			visible(lost.Err.Error()))))
	}
	if s == nil {
		return v.join(append(head, "", faint.Styled("reading …")), v.foot(nil))
	}
	head = append(head, v.health(s.Health), "")
	var rest []string
	for _, section := range [][]string{v.waiting(s), v.refusals(s), upstreams(s.Upstreams), incidents(s.Incidents)} {
		if len(section) > 0 {
			rest = append(append(rest, ""), v.shorten(section)...)
		}
	}
	foot := v.foot(s)
	room := -1
	if v.Height > 0 {
		room = max(3, v.Height-len(head)-len(rest)-len(foot))
	}
	return v.join(slices.Concat(head, v.buckets(s.Usage, room), rest), foot)
}

// Lost says since when there is no answer.
type Lost struct {
	Since time.Time
	Err   error
}

// join cuts lines to the size of the terminal, and puts the foot at its end.
func (v *View) join(lines, foot []string) string {
	if v.Height > 0 {
		room := max(0, v.Height-len(foot))
		lines = lines[:min(len(lines), room)]
		for len(lines) < room {
			lines = append(lines, "")
		}
	}
	lines = append(lines, foot...)
	if v.Height > 0 {
		lines = lines[:min(len(lines), v.Height)]
	}
	for i, l := range lines {
		lines[i] = strings.TrimRight(ansi.Truncate(l, v.Width, "…"), " ")
	}
	return strings.Join(lines, "\n")
}

// shorten returns the first rows of a section, whose first line is its title.
func (v *View) shorten(section []string) []string {
	if more := len(section) - 1 - rows; v.Height > 0 && more > 0 {
		return append(section[:rows:rows], faint.Styled(fmt.Sprintf("and %d more", more+1)))
	}
	return section
}

func (v *View) title(s *Snapshot) string {
	text := bold.Styled("drawgate top") + "  " + visible(v.Source)
	if s != nil {
		text += "  " + present.Clock(s.At)
	}
	if v.Paused {
		text += "  " + warm.Styled("paused")
	}
	return text
}

// foot returns the last lines: what is left out, and the keys.
func (v *View) foot(s *Snapshot) (lines []string) {
	if s != nil {
		for _, text := range s.LeftOut {
			lines = append(lines, faint.Styled("left out: "+visible(text)))
		}
	}
	switch {
	case v.Interval == 0:
		return lines
	case v.Editing:
		return append(lines, "filter: "+visible(v.Filter)+"▏  "+faint.Styled("enter: apply  esc: none"))
	}
	keys := fmt.Sprintf("s: sorted by %s  /: filter", v.Order)
	if v.Filter != "" {
		keys += fmt.Sprintf(" %q", v.Filter)
	}
	return append(lines, faint.Styled(keys+fmt.Sprintf("  space: pause  q: quit  every %s",
		present.Duration(v.Interval))))
}

// health describes the store and the policies in one line.
func (v *View) health(h *api.Health) string {
	if h == nil {
		return faint.Styled("the health is not known")
	}
	var parts []string
	if h.Store != nil {
		text := fmt.Sprintf("store %s, %d ms", h.Store.Status, h.Store.LatencyMS)
		if h.Store.Status == api.StatusOK {
			text = ok.Styled(text)
		} else {
			text = hot.Styled("store unavailable")
		}
		parts = append(parts, text)
	}
	if len(h.States) > 0 {
		parts = append(parts, policies(h.States))
	}
	if h.Status != api.StatusOK {
		parts = append(parts, hot.Styled("status "+visible(string(h.Status))))
	}
	if !v.Store {
		parts = append(parts, fmt.Sprintf("%d waiting", h.Waiting), "up "+millis(h.UptimeMS))
	}
	return strings.Join(parts, "   ")
}

// policies says how many policies are decided as usual, and names the others.
func policies(list []api.PolicyHealth) string {
	good, others := 0, ""
	for _, p := range list {
		if p.Status == api.StatusOK {
			good++
		} else {
			others += warm.Styled(fmt.Sprintf(", %s %s", visible(p.Name), visible(string(p.Status))) + decidedBy(&p))
		}
	}
	return fmt.Sprintf("policies: %d ok", good) + others
}

// decidedBy says what decides about a policy while the store is unavailable.
func decidedBy(p *api.PolicyHealth) string {
	switch {
	case p.Status != api.StatusDegraded || p.Fallback == "":
		return ""
	case len(p.NotApplied) > 0:
		return fmt.Sprintf(" (fallback: %s; not applied: %s)", visible(p.Fallback),
			visible(strings.Join(p.NotApplied, ", ")))
	}
	return fmt.Sprintf(" (fallback: %s)", visible(p.Fallback))
}

// buckets draws the buckets, in at most room lines; -1 is no bound.
func (v *View) buckets(u *api.UsageAnswer, room int) []string {
	if u == nil {
		return nil
	}
	list := slices.DeleteFunc(slices.Clone(u.Buckets), func(b api.BucketUsage) bool {
		return !v.has(b.Policy, b.Tenant,
			b.Key)
	})
	switch v.Order {
	case ByName:
		slices.SortStableFunc(list, func(a, b api.BucketUsage) int {
			return cmp.Or(strings.Compare(a.Policy, b.Policy), strings.Compare(a.Tenant, b.Tenant),
				strings.Compare(a.Key, b.Key))
		})
	case ByOpen:
		slices.SortStableFunc(list, func(a, b api.BucketUsage) int { return cmp.Compare(b.Open, a.Open) })
	}
	more := u.More
	if room >= 0 && len(list) > max(1, room-2) {
		list, more = list[:max(1, room-2)], true
	}
	if len(list) == 0 {
		text := "no bucket is in use"
		if v.Filter != "" {
			text += fmt.Sprintf(" with %q in its policy, tenant or key", v.Filter)
		}
		return []string{faint.Styled(text)}
	}
	table := [][]string{{"USE", "POLICY", "LIMIT", "USED", "HELD", "OPEN", "KEY"}}
	for i := range list {
		table = append(table, row(&list[i], u.At))
	}
	lines := columns(table)
	if more {
		text := "there are more buckets"
		if u.Partial {
			text += ", and not all of them were read"
		}
		lines = append(lines, faint.Styled(text))
	}
	return lines
}

// row describes a bucket by the limit that is used most.
func row(b *api.BucketUsage, now time.Time) []string {
	var top api.LimitUse
	most := -1.0
	for _, l := range b.Limits {
		if part := use(&l); part > most {
			top, most = l, part
		}
	}
	key := visible(cmp.Or(b.Key, `""`))
	if b.Tenant != "" {
		key += faint.Styled(" of " + visible(b.Tenant))
	}
	if b.PausedUntil != nil {
		key += warm.Styled("  paused, ends " + present.Until(*b.PausedUntil, now))
	}
	if b.Fallback {
		key += warm.Styled("  by fallback")
	}
	used := fmt.Sprintf("%d/%d %s", top.Used, top.Max, visible(top.Unit))
	if top.Debt > 0 {
		used += hot.Styled(fmt.Sprintf(", %d debt", top.Debt))
	}
	return []string{
		bar(most), visible(b.Policy), visible(top.Name), used, fmt.Sprint(top.Held), fmt.Sprint(b.Open),
		key,
	}
}

// use returns which part of a limit is used.
func use(l *api.LimitUse) float64 { return float64(l.Used) / float64(max(1, l.Max)) }

// barWidth is the width of a full bar, in columns.
const barWidth = 10

// bar draws a part.
func bar(part float64) string {
	full := int(min(1, max(0, part)) * barWidth)
	style := ok
	switch {
	case part >= 0.9:
		style = hot
	case part >= 0.7:
		style = warm
	}
	text := fmt.Sprintf(" %3.0f%%", 100*part)
	if part >= 9.995 { // by an adjustment, for example
		text = ">999%"
	}
	return style.Styled(strings.Repeat("█", full)) + faint.Styled(strings.Repeat("░", barWidth-full)) + text
}

// widest is how wide a column may be, except for the last one.
const widest = 24

// columns aligns the cells of a table, whose first row is its head.
func columns(table [][]string) (lines []string) {
	last := len(table[0]) - 1
	widths := make([]int, last)
	for _, cells := range table {
		for i := range widths {
			widths[i] = min(widest, max(widths[i], ansi.StringWidth(cells[i])))
		}
	}
	for k, cells := range table {
		line := ""
		for i, w := range widths {
			cell := ansi.Truncate(cells[i], w, "…")
			line += cell + strings.Repeat(" ", w-ansi.StringWidth(cell)+2)
		}
		if line += cells[last]; k == 0 {
			line = bold.Styled(line)
		}
		lines = append(lines, line)
	}
	return lines
}

// waiting draws who waits, below a title.
func (v *View) waiting(s *Snapshot) (lines []string) {
	if s.Waiting == nil {
		return nil
	}
	for i := range s.Waiting.Lines {
		l := &s.Waiting.Lines[i]
		if !v.has(l.Policy, l.Tenant, l.Key) {
			continue
		}
		lines = append(lines, fmt.Sprintf("%d for %s, the longest for %s, next try in %s: %s",
			l.Waiting, visible(present.Owner(l.Tenant, l.Key)), millis(l.LongestMS), millis(l.NextMS),
			visible(present.LineObstacle(l))))
		if line := present.LineWait(l); line != "" {
			lines[len(lines)-1] += "; " + line
		}
	}
	return titled("WAITING", lines)
}

// refusals draws what was refused lately, the latest first, below a title.
func (v *View) refusals(s *Snapshot) (lines []string) {
	if s.Refusals == nil {
		return nil
	}
	for i := range s.Refusals.Refusals {
		r := &s.Refusals.Refusals[i]
		if v.has(r.Policy, r.Tenant, r.Key) {
			lines = append(lines, fmt.Sprintf("%s  %d for %s: %s", present.Clock(r.Last), r.Count,
				visible(present.Owner(r.Tenant, r.Key)), visible(present.RefusalLine(r))))
		}
	}
	return titled("REFUSED", lines)
}

// upstreams draws upstreams and their circuits.
func upstreams(list []api.Upstream) (lines []string) {
	for i := range list {
		u := &list[i]
		text, unread := visible(present.UpstreamLine(u)), 0
		if c := u.Calls; c != nil && c.Circuit != api.CircuitClosed {
			text = hot.Styled(text)
		}
		for k := range u.Quotas {
			if u.Quotas[k].Error != nil {
				unread++
			}
		}
		if unread > 0 {
			text += warm.Styled(fmt.Sprintf("; %s cannot be read", present.Count(unread, "quota")))
		}
		lines = append(lines, text)
		if u.Calls != nil {
			for k := range u.Calls.Circuits {
				lines = append(lines, hot.Styled(visible("  "+present.CircuitLine(&u.Calls.Circuits[k]))))
			}
		}
	}
	return titled("UPSTREAMS", lines)
}

// incidents draws incidents.
func incidents(list []api.Incident) (lines []string) {
	for i := range list {
		in := &list[i]
		style := warm
		if in.Severity == api.SeverityError {
			style = hot
		}
		lines = append(lines, fmt.Sprintf("%s  %s  %s", present.Clock(in.Last), style.Styled(visible(in.Severity)),
			visible(in.Summary)))
	}
	return titled("INCIDENTS", lines)
}

// titled puts a title above lines, if there are any.
func titled(title string, lines []string) []string {
	if len(lines) == 0 {
		return nil
	}
	return append([]string{bold.Styled(title)}, lines...)
}

// has reports whether the filter's text is in one of some names.
func (v *View) has(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		return strings.Contains(strings.ToLower(name),
			strings.ToLower(v.Filter))
	})
}

func millis(ms int64) string { return present.Duration(time.Duration(ms) * time.Millisecond) }

// visible escapes what could control the terminal.
func visible(s string) string { return present.Escape(s, "") }
