// Package fromlitellm converts a configuration of LiteLLM's proxy to one of Drawgate.
//
// It is written for LiteLLM 1.108.7. Whatever it does not convert is a [Note] in the result, with
// its line and the reason: nothing is left out in silence. No secret of the file is copied: the
// result names environment variables in place of them, and no text of the result or of an error
// quotes a value that may be one.
package fromlitellm

import (
	"fmt"
	"slices"
	"strings"
)

// Source is a file.
type Source struct {
	Name string // for messages
	Text []byte
}

// Input is what is converted.
type Input struct {
	Config Source
	// Include reads a file that the configuration includes. Without it each of them is left out.
	Include func(name string) (Source, error)

	// Answers of LiteLLM's API, which has what the configuration does not: each page of GET
	// /key/list?return_full_object=true, and GET /team/list.
	Keys, Teams []Source

	// Prices is LiteLLM's table of prices, model_prices_and_context_window.json. Without a text
	// only the prices in the configuration are known.
	Prices Source
}

// Result is a configuration of Drawgate.
type Result struct {
	Text []byte
	Set  []Variable // what has to be set before it is used, in the order of the file
	Left []Note     // what was left out, or differs, in the order of the files
}

// Variable is an environment variable that the configuration reads.
type Variable struct {
	Name string
	Why  string // what it holds, and where that is now
}

// Note says what was not converted as it is.
type Note struct {
	File  string
	Line  int // 0: the place has none
	What  string
	Why   string
	Times int // how often the same was found; the place is that of the first
}

// String returns the note as a line.
func (n Note) String() string {
	place := n.File
	if n.Line > 0 {
		place += fmt.Sprintf(":%d", n.Line)
	}
	text := place + ": " + n.What + ": " + n.Why
	if n.Times > 1 {
		text += fmt.Sprintf(" (%d times)", n.Times)
	}
	return text
}

// Error says why a file cannot be converted at all.
type Error struct {
	File         string
	Line, Column int // 0: of the whole file
	Message      string
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return e.File + ": " + e.Message
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Message)
}

// conversion is one configuration on its way.
type conversion struct {
	in    Input
	left  []Note
	notes map[[2]string]int // where in left a note with this What and Why is

	set       []Variable
	variables map[string]bool // the names in set, and those that the file names itself
	given     map[string]*value

	deployments []*deployment
	upstreams   []*upstream
	groups      []*group
	byName      map[string]*group
	aliases     []*alias
	prices      *prices

	callers *callers
	store   string
	retries int               // for every upstream; -1: not set
	timeout string            // as retries; "" is not set
	zone    string            // of calendars; "" is UTC
	budget  *limit            // of the whole proxy
	more    []*value          // fallbacks outside of router_settings
	priced  map[string]*price // nil if prices are left out
}

// Convert converts a configuration. The error is an [*Error]: the text cannot be read, or is not
// a configuration of LiteLLM's proxy.
func Convert(in Input) (*Result, error) {
	c := &conversion{
		in: in, notes: map[[2]string]int{}, variables: map[string]bool{}, given: map[string]*value{},
		byName: map[string]*group{}, retries: -1, store: "sqlite:drawgate.db",
	}
	sections, err := c.sections()
	if err != nil {
		return nil, err
	}
	if c.prices, err = readPrices(in.Prices); err != nil {
		return nil, err
	}
	for _, v := range sections {
		c.named(v)
	}
	c.environment(sections["environment_variables"])
	c.proxySettings(sections["litellm_settings"])
	routes := c.routerSettings(sections["router_settings"])
	if err := c.modelList(sections["model_list"]); err != nil {
		return nil, err
	}
	c.name()
	c.groupAliases(routes.aliases)
	c.fallbacks(routes.fallbacks)
	if c.callers, err = c.readCallers(); err != nil {
		return nil, err
	}
	c.masterKey(sections["general_settings"])
	c.money()
	text := c.write()
	if len(text) > maxText {
		return nil, &Error{File: in.Config.Name, Message: fmt.Sprintf("converted it has %d bytes, more than the %d that a "+
			"file can have", len(text), maxText)}
	}
	return &Result{Text: text, Set: c.set, Left: c.sorted()}, nil
}

// leave notes what is left out.
func (c *conversion) leave(v *value, what, why string, args ...any) {
	why = fmt.Sprintf(why, args...)
	if i, again := c.notes[[2]string{what, why}]; again {
		c.left[i].Times++
		return
	}
	c.notes[[2]string{what, why}] = len(c.left)
	c.left = append(c.left, Note{v.file, v.line, what, why, 1})
}

// named notes the variables that a value names, so that no secret gets the name of another one.
func (c *conversion) named(v *value) {
	if name, ok := v.fromEnvironment(); ok {
		c.variables[name] = true
	}
	for _, item := range v.list {
		c.named(item)
	}
	for _, p := range v.keys {
		c.named(p.value)
	}
}

// variable returns the name of an environment variable for a secret, and notes that it has to be
// set. The name is one that nothing else has yet: NAME, NAME_2 and so on.
func (c *conversion) variable(name, why string, args ...any) string {
	name = unused(variableName(name), "_", c.variables)
	c.need(name, fmt.Sprintf(why, args...))
	return name
}

// need notes that a variable has to be set.
func (c *conversion) need(name, why string) {
	c.variables[name] = true
	if !slices.ContainsFunc(c.set, func(v Variable) bool { return v.Name == name }) {
		c.set = append(c.set, Variable{name, why})
	}
}

// unused returns name, or name with a number behind it, which is not taken.
func unused(name, between string, taken map[string]bool) string {
	for i, one := 2, name; ; i++ {
		if !taken[name] {
			return name
		}
		name = fmt.Sprintf("%s%s%d", one, between, i)
	}
}

// variableName makes a name of a variable of a text.
func variableName(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, text)
}
