package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/drawgate/drawgate/internal/fromlitellm"
	"github.com/drawgate/drawgate/internal/present"
)

// otherTool is another program, whose configuration is converted.
type otherTool struct {
	name        string
	keys, teams []string // files
	prices      string
}

const liteLLM = "litellm"

func (o *otherTool) flags(f *pflag.FlagSet) {
	f.StringVar(&o.name, "from", "", "convert the configuration of another tool: "+liteLLM)
	f.StringArrayVar(&o.keys, "keys", nil, "from litellm: `FILE` with an answer of GET /key/list?return_full_object=true; repeat it "+
		"for each page")
	f.StringArrayVar(&o.teams, "teams", nil, "from litellm: `FILE` with the answer of GET /team/list")
	f.StringVar(&o.prices, "prices", "", "from litellm: `FILE` with its prices, model_prices_and_context_window.json, without which "+
		"budgets are left out")
}

// given reports whether something is to be converted.
func (o *otherTool) given() bool {
	return o.name != "" || len(o.keys)+len(o.teams) > 0 || o.prices != ""
}

// beginFrom writes a file that is made of another tool's configuration, and prints what to do with
// it.
func (a *app) beginFrom(o *otherTool, args []string, file string, force bool) error {
	switch {
	case a.flags.Config != "":
		return usage("init writes a file: write --output %s", a.flags.Config)
	case o.name == "":
		return usage("--keys, --teams and --prices need --from %s", liteLLM)
	case o.name != liteLLM:
		return usage("nothing can be converted from %q (have: %s)", o.name, liteLLM)
	case len(args) == 0:
		return usage("name the configuration: drawgate init --from %s config.yaml", liteLLM)
	}
	in, err := o.read(args[0])
	if err != nil {
		return &exitError{exitConfig, err}
	}
	made, err := fromlitellm.Convert(in)
	if err != nil {
		return &exitError{exitConfig, err}
	}
	if err := a.put(file, made.Text, force); err != nil {
		return err
	}
	a.tellLeft(made.Left)
	if file == "-" {
		return nil
	}
	next := &starter{start: []string{"drawgate gateway --config " + starterName}}
	_, err = fmt.Fprint(a.out, present.Escape("wrote "+file+"\n"+toSet(made.Set)+next.next(file), "\n"))
	return err
}

// put writes a file, or to the standard output.
func (a *app) put(file string, text []byte, force bool) error {
	if file == "-" {
		_, err := a.out.Write(text)
		return err
	}
	return write(file, text, force)
}

// tellLeft lists what was left out.
func (a *app) tellLeft(left []fromlitellm.Note) {
	for _, n := range left {
		fmt.Fprintln(a.errOut, present.Escape(n.String(), ""))
	}
	if len(left) > 0 {
		fmt.Fprintln(a.errOut, "the file lists this too, at its end")
	}
}

// toSet lists variables that have to be set, and are not.
func toSet(list []fromlitellm.Variable) string {
	var b strings.Builder
	for _, v := range list {
		if os.Getenv(v.Name) == "" {
			fmt.Fprintf(&b, "  %s   # %s\n", v.Name, v.Why)
		}
	}
	if b.Len() == 0 {
		return ""
	}
	return "\nSet these variables first:\n" + b.String()
}

// read reads the files.
func (o *otherTool) read(name string) (in fromlitellm.Input, err error) {
	if in.Config, err = source(name); err != nil {
		return in, err
	}
	in.Include = func(other string) (fromlitellm.Source, error) {
		if !filepath.IsAbs(other) {
			other = filepath.Join(filepath.Dir(name), other)
		}
		return source(other)
	}
	for _, one := range []struct {
		names []string
		to    *[]fromlitellm.Source
	}{{o.keys, &in.Keys}, {o.teams, &in.Teams}} {
		for _, name := range one.names {
			s, err := source(name)
			if err != nil {
				return in, err
			}
			*one.to = append(*one.to, s)
		}
	}
	if o.prices != "" {
		in.Prices, err = source(o.prices)
	}
	return in, err
}

// maxSource is more than a file to convert may have.
const maxSource = 64 << 20

// source reads a file. The text of an empty one is not nil, which would mean that there is none.
func source(name string) (fromlitellm.Source, error) {
	f, err := os.Open(name) //nolint:gosec // the user names it
	if err != nil {
		return fromlitellm.Source{}, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxSource))
	return fromlitellm.Source{Name: name, Text: append([]byte{}, text...)}, errors.Join(err, f.Close())
}
