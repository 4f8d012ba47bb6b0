package main

import (
	"encoding/json"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/internal/present"
)

// printJSON prints one line of JSON.
func (a *app) printJSON(v any) {
	e := json.NewEncoder(a.out)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // our types can always be encoded; nothing can be done if the output is closed
}

func (a *app) printf(format string, args ...any) { present.Printf(a.out, format, args...) }

func (a *app) warnf(format string, args ...any) {
	present.Printf(a.errOut, "drawgate: "+format+"\n", args...)
}

// answer prints the answer to a take.
func (a *app) answer(w api.Answer) {
	if a.json {
		a.printJSON(w)
		return
	}
	a.printf("%s\n", present.Sentence(&w))
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
