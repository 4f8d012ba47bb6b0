package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/server"
)

// printJSON prints one line of JSON.
func (a *app) printJSON(v any) {
	e := json.NewEncoder(a.out)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // of our own types; an output that is closed cannot be told
}

func (a *app) printf(format string, args ...any) { fmt.Fprintf(a.out, format, visible(args)...) }

func (a *app) warnf(format string, args ...any) {
	fmt.Fprintf(a.errOut, "drawgate: "+format+"\n", visible(args)...)
}

// visible returns arguments in which keys and names cannot tell a terminal anything: what is not
// printable is escaped as in %q. The lines of an error stay lines.
func visible(args []any) []any {
	out := slices.Clone(args)
	for i, v := range args {
		switch v := v.(type) {
		case string:
			out[i] = escape(v, "")
		case error:
			out[i] = escape(v.Error(), "\n\t")
		}
	}
	return out
}

// escape escapes all that is not printable and not in keep.
func escape(s, keep string) string {
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case strconv.IsPrint(r) || strings.ContainsRune(keep, r):
			b.WriteRune(r)
		default:
			q := strconv.Quote(s[:n])
			b.WriteString(q[1 : len(q)-1])
		}
		s = s[n:]
	}
	return b.String()
}

// answer prints what became of a take.
func (a *app) answer(w api.Answer) {
	if a.json {
		a.printJSON(w)
		return
	}
	a.printf("%s\n", sentence(&w))
}

// sentence says an answer in words.
func sentence(w *api.Answer) string {
	var parts []string
	if !w.Allowed || len(w.Limits) > 0 || len(w.Shadow) == 0 && !slices.ContainsFunc(w.Applied, func(a api.Applied) bool { return a.Disabled }) {
		parts = append(parts, enforced(w))
	}
	for i := range w.Applied {
		if a := &w.Applied[i]; a.Disabled {
			parts = append(parts, fmt.Sprintf("policy %q is switched off: it limits nothing", a.Policy))
		}
	}
	for i := range w.Shadow {
		parts = append(parts, shadowed(&w.Shadow[i]))
	}
	if !w.Allowed {
		return "refused: " + strings.Join(parts, "; ")
	}
	return "allowed: " + strings.Join(parts, "; ")
}

// enforced says what the policies that are enforced answer.
func enforced(w *api.Answer) string {
	switch {
	case w.NeverFits:
		return w.Message
	case !w.Allowed:
		return w.Message + ", at " + clock(time.Now().Add(w.RetryAfterMS.Duration()))
	case len(w.Limits) == 0:
		return cmp.Or(w.Message, "no limit in force counts this take")
	}
	tight := &w.Limits[0]
	for i := range w.Limits {
		l := &w.Limits[i]
		if float64(l.Remaining)/float64(max(1, l.Most)) < float64(tight.Remaining)/float64(max(1, tight.Most)) {
			tight = l
		}
	}
	return fmt.Sprintf("%d of %s left of limit %q of policy %q", tight.Remaining, server.Units(tight.Most, tight.Unit), tight.Name, tight.Policy)
}

// shadowed says what a policy that is not enforced would have answered.
func shadowed(s *api.Shadow) string {
	text := fmt.Sprintf("policy %q is in shadow: ", s.Policy)
	switch {
	case s.Error:
		return text + "what it would have said is not known"
	case s.Allowed:
		return text + fmt.Sprintf("it would have allowed this take, with %d left", s.Remaining)
	case s.RefusedBy == nil:
		return text + "it could never have allowed this take"
	}
	return text + fmt.Sprintf("it would have refused this take by limit %q, for %s", s.RefusedBy.Limit, server.Duration(s.RetryAfterMS.Duration()))
}

func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// until says when an instant is, for people.
func until(t, now time.Time) string {
	if !t.After(now) {
		return "now"
	}
	return fmt.Sprintf("in %s (%s)", server.Duration(t.Sub(now)), clock(t))
}

// note is a problem or warning of the configuration as JSON.
type note struct {
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

func notes(ps []config.Problem) []note {
	var all []note
	for _, p := range ps {
		all = append(all, note{p.File, p.Line, p.Column, p.Message, p.Hint})
	}
	return all
}
