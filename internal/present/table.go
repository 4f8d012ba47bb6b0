package present

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/drawgate/drawgate/api"
)

// Mode returns in words how a policy is in force, or "" if it is enforced.
func Mode(disabled, shadow bool) string {
	switch {
	case disabled:
		return ", switched off"
	case shadow:
		return ", in shadow"
	}
	return ""
}

// WriteStatus writes a bucket as a table. mode is what [Mode] says of its policy.
func WriteStatus(out io.Writer, w *api.StatusAnswer, mode string) {
	Printf(out, "policy %s, %s%s, %s\n", w.Policy, Owner(w.Tenant, w.Key), mode, Count(w.Open, "open reservation"))
	if line := PauseLine(w); line != "" {
		Printf(out, "%s\n", line)
	}
	if w.Waiting > 0 {
		Printf(out, "%s in this server; the first tries again in %s\n", Count(w.Waiting, "waiting take"),
			Duration(time.Duration(w.NextTryMS)*time.Millisecond))
	}
	if line := LineOf(w); line != "" {
		Printf(out, "%s\n", line)
	}
	t := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "LIMIT\tUNIT\tUSED\tMOST\tLEFT\tHELD\tDEBT\tRESETS")
	for _, l := range w.Limits {
		_, _ = fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%s\n", Escape(l.Name, ""), Escape(l.Unit, ""), l.Used,
			l.Most, l.Remaining, l.Held, l.Debt, Until(l.ResetAt, w.At))
	}
	_ = t.Flush() // nothing can be done if the output is closed
	if w.Take.Fallback {
		Printf(out, "the store cannot be reached: these are the numbers of the server's own share\n")
	}
}

// LineOf describes in one line who waits for a bucket in all processes, or returns "" if nobody
// does.
func LineOf(w *api.StatusAnswer) string {
	if w == nil || len(w.Line) == 0 {
		return ""
	}
	longest := int64(0)
	for i := range w.Line {
		longest = max(longest, w.Line[i].WaitedMS)
	}
	first := &w.Line[0]
	text := fmt.Sprintf("%s in the line of all processes, the longest for %s; the first one waits for", Count(len(w.Line), "take"),
		Duration(time.Duration(longest)*time.Millisecond))
	var units []string
	for _, l := range slices.Sorted(maps.Keys(first.Units)) {
		units = append(units, fmt.Sprintf(" %d of %s", first.Units[l], Escape(l, "")))
	}
	text += strings.Join(units, ",")
	if first.Priority > 0 {
		text += fmt.Sprintf(", at priority %d", first.Priority)
	}
	return text
}

// Owner returns the key and the tenant of a bucket in words.
func Owner(tenant, key string) string {
	text := "key " + cmp.Or(key, `""`)
	if tenant != "" {
		text += ", tenant " + tenant
	}
	return text
}

// PauseLine describes a bucket's pause in one line, or returns "" if there is none.
func PauseLine(w *api.StatusAnswer) string {
	if w == nil || w.Paused == nil {
		return ""
	}
	text := "paused, ends " + Until(w.Paused.Until, w.At)
	if w.Paused.Reason != "" {
		text += ": " + w.Paused.Reason
	}
	return text
}

// State returns in words whether a policy is enforced.
func State(p *api.Policy) string {
	switch {
	case p.DisabledUntil != nil:
		return "off until " + Clock(*p.DisabledUntil)
	case p.Shadow:
		return "shadow"
	}
	return "enforced"
}

// WritePolicies writes the policies in force as a table.
func WritePolicies(out io.Writer, list []api.Policy) {
	t := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "POLICY\tSTATE\tLIMITS")
	for i := range list {
		for k, l := range list[i].Limits {
			name, state := Escape(list[i].Name, ""), State(&list[i])
			if k > 0 {
				name, state = "", ""
			}
			_, _ = fmt.Fprintf(t, "%s\t%s\t%s: %s\n", name, state, Escape(l.Name, ""), Escape(l.Description, ""))
		}
	}
	_ = t.Flush() // nothing can be done if the output is closed
}
