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

// WriteIncidents writes incidents as a table, one line each.
func WriteIncidents(out io.Writer, list []api.Incident) {
	t := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "AT\tID\tUPSTREAM\tMODEL\tMEANING\tREFUSED\tLIKELY CAUSE")
	for i := range list {
		in := &list[i]
		Printf(t, "%s\t%s\t%s\t%s\t%s\t%d\t", Clock(in.At), in.ID, in.Upstream, cmp.Or(in.Model, "-"), in.Meaning,
			in.Count)
		Printf(t, "%s\n", cause(in))
	}
	_ = t.Flush() // nothing can be done if the output is closed
}

func cause(in *api.Incident) string {
	if len(in.Diagnosis) == 0 {
		return "-"
	}
	return in.Diagnosis[0]
}

// shownTakes is how many calls of an incident are shown, so that it fits on a screen.
const shownTakes = 15

// WriteIncident writes all that people need of an incident.
func WriteIncident(out io.Writer, in *api.Incident) {
	Printf(out, "incident %s (%s)\n%s\n\n", in.ID, in.Severity, in.Summary)
	facts(out, in)
	if len(in.Diagnosis) > 0 {
		Printf(out, "\nwhat the numbers show:\n")
		for _, d := range in.Diagnosis {
			Printf(out, "- %s\n", d)
		}
	}
	if len(in.Limits) > 0 {
		Printf(out, "\nour limits, after the refused call was granted:\n")
		t := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
		_, _ = fmt.Fprintln(t, "LIMIT\tUNIT\tAMOUNT\tMOST\tLEFT\tRESETS")
		for i := range in.Limits {
			l := &in.Limits[i]
			Printf(t, "%s\t%s\t%d\t%d\t%d\t%s\n", l.Policy+"/"+l.Name, l.Unit, l.Amount, l.Most, l.Remaining,
				Until(l.ResetAt, in.At))
		}
		_ = t.Flush() // as above
	}
	if in.Now != nil {
		Printf(out, "\nthe quota shortly after the refusal, of all processes:\n")
		WriteStatus(out, in.Now, "")
	}
	writeTakes(out, in.Takes)
}

// facts writes what is known, one line each.
func facts(out io.Writer, in *api.Incident) {
	t := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fact := func(name, text string) { Printf(t, "%s\t%s\n", name, text) }
	fact("at", Clock(in.At)+", by "+cmp.Or(in.Instance, "an unnamed process"))
	refused := Count(int(in.Count), "call")
	if in.Count > 1 {
		refused += ", the latest at " + Clock(in.Last)
	}
	fact("refused", refused)
	if in.Until != nil {
		closed := "until " + Clock(*in.Until)
		if in.NotPaused {
			closed += ", but the store could not be told"
		}
		fact("quota closed", closed)
	}
	answer := cmp.Or(in.Reason, in.Meaning)
	if in.Status != 0 {
		answer = fmt.Sprintf("%d: %s", in.Status, answer)
	}
	if in.Provider != nil && in.Provider.Name != "" {
		answer += ", " + in.Provider.Name
	}
	fact("answer", answer)
	fact("the call", estimate(&in.Call)+timing(&in.Call))
	fact("under way", Count(in.Concurrent, "call")+" of this process to the upstream, this one included")
	if m := in.Minute; m != nil {
		atLeast := ""
		if m.AtLeast {
			atLeast = "at least "
		}
		text := atLeast + Count(int(m.Calls), "call")
		if len(m.Costs) > 0 {
			text += ": " + costsText(m.Costs)
		}
		fact("minute before", text+", of this process")
	}
	_ = t.Flush() // as above
}

// timing says when a call was sent and answered.
func timing(c *api.IncidentTake) (text string) {
	if c.QueuedMS > 0 {
		text += fmt.Sprintf(", granted after %s in the queue", Duration(time.Duration(c.QueuedMS)*time.Millisecond))
	}
	if c.Sent != nil {
		text += ", sent " + apart(c.Granted, c.Sent) + " after it was granted"
	}
	if c.Sent != nil && c.Answered != nil {
		text += ", answered " + apart(*c.Sent, c.Answered) + " later"
	}
	return text
}

func writeTakes(out io.Writer, takes []api.IncidentTake) {
	if len(takes) == 0 {
		return
	}
	shown := takes[max(0, len(takes)-shownTakes):]
	Printf(out, "\nrecent calls of this process, the newest last")
	if len(shown) < len(takes) {
		Printf(out, " (%d of %d: --json has all)", len(shown), len(takes))
	}
	Printf(out, ":\n")
	t := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "GRANTED\tSENT\tANSWERED\tMODEL\tOUTCOME\tHELD\tUSED\tLEFT")
	for i := range shown {
		c := &shown[i]
		used := "-"
		if len(c.Used) > 0 {
			used = costsText(c.Used)
		}
		left := fmt.Sprintf("%d of %s", c.Remaining, c.Limit)
		if c.Limit == "" {
			left = "-"
		}
		Printf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", c.Granted.UTC().Format("15:04:05.000"), after(c.Granted, c.Sent),
			after(c.Granted, c.Answered),
			cmp.Or(c.Model, "-"), c.Outcome, estimate(c), used, left)
	}
	_ = t.Flush() // as above
}

func after(from time.Time, to *time.Time) string {
	if to == nil {
		return "-"
	}
	return "+" + apart(from, to)
}

func apart(from time.Time, to *time.Time) string { return Duration(max(0, to.Sub(from))) }

func estimate(c *api.IncidentTake) string {
	if len(c.Estimate) == 0 {
		return "1 request"
	}
	return costsText(c.Estimate)
}

// costsText formats costs, sorted by unit: "1 request, 500 tokens".
func costsText(costs api.Costs) string {
	var all []string
	for _, unit := range slices.Sorted(maps.Keys(costs)) {
		all = append(all, Units(costs[unit], unit))
	}
	return strings.Join(all, ", ")
}
