package present

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/drawgate/drawgate/api"
)

// Instant writes an instant for people.
func Instant(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// WriteKeys writes a table of virtual keys, as they are at an instant.
func WriteKeys(w io.Writer, list []api.Key, now time.Time) {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "NAME\tTEAM\tSTATE\tMODELS\tLIMITS\tVERSION\tCHANGED\tBY")
	for i := range list {
		k := &list[i]
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\n", k.Name, orDash(k.Team), keyState(k, now),
			orDash(strings.Join(k.Models, ", ")), orDash(strings.Join(k.LimitTexts(), ", ")), k.Version,
			Instant(k.Changed), orDash(k.By))
	}
	_ = t.Flush()
}

// keyState says whether calls of a key pass, and which of its secrets end.
func keyState(k *api.Key, now time.Time) string {
	valid := func(s api.KeySecret) bool { return s.Until == nil || now.Before(*s.Until) }
	switch {
	case k.Disabled:
		return "disabled"
	case k.Expires != nil && !now.Before(*k.Expires), !slices.ContainsFunc(k.Secrets, valid):
		return "expired"
	}
	state := "valid"
	if k.Expires != nil {
		state = "until " + Instant(*k.Expires)
	}
	for _, s := range k.Secrets {
		if s.Until != nil && valid(s) {
			state += "; a secret until " + Instant(*s.Until)
		}
	}
	return state
}

// WriteKeyEvents writes a table of changes of virtual keys.
func WriteKeyEvents(w io.Writer, list []api.KeyEvent) {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "AT\tKEY\tOP\tBY\tCHANGES")
	for i := range list {
		e := &list[i]
		var changes []string
		for _, f := range e.Fields {
			changes = append(changes, fmt.Sprintf("%s: %s -> %s", f.Field, orDash(f.Before), orDash(f.After)))
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", Instant(e.At), e.Key, e.Op, orDash(e.By),
			orDash(strings.Join(changes, "; ")))
	}
	_ = t.Flush()
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
