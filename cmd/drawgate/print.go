package main

import (
	"encoding/json"
	"fmt"
	"time"

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

func (a *app) printf(format string, args ...any) { fmt.Fprintf(a.out, format, args...) }

func (a *app) warnf(format string, args ...any) {
	fmt.Fprintf(a.errOut, "drawgate: "+format+"\n", args...)
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
	switch {
	case w.NeverFits:
		return "refused: " + w.Message
	case !w.Allowed:
		return "refused: " + w.Message + ", at " + clock(time.Now().Add(w.RetryAfterMS.Duration()))
	case len(w.Limits) == 0:
		return "allowed: " + w.Message
	}
	tight := &w.Limits[0]
	for i := range w.Limits {
		l := &w.Limits[i]
		if float64(l.Remaining)/float64(max(1, l.Most)) < float64(tight.Remaining)/float64(max(1, tight.Most)) {
			tight = l
		}
	}
	return fmt.Sprintf("allowed: %d of %d %s left of limit %q of policy %q", tight.Remaining, tight.Most, tight.Unit, tight.Name, tight.Policy)
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
