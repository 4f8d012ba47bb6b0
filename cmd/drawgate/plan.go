package main

import (
	"github.com/spf13/cobra"

	"github.com/drawgate/drawgate/engine"
)

func (a *app) planCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "plan OLD NEW",
		Short: "Show whose answers another configuration would change",
		Long: `Compare two configuration files, and show which policies, limits and rules answer differently: amounts that rise and fall, limits that start unused because
they are other ones, rules that match otherwise. Nothing is opened and nothing changes. The environment counts for both, as for the other commands.

The exit code is 0 whether they differ or not, and 78 if one of them has mistakes.`,
		Example: `  drawgate plan drawgate.yaml drawgate.new.yaml`,
		Args:    cobra.ExactArgs(2),
		RunE:    action(func(_ *cobra.Command, args []string) error { return a.plan(args[0], args[1]) }),
	}
}

// change is a line of plan as JSON.
type change struct {
	What   string `json:"what"`
	Policy string `json:"policy,omitempty"`
	Limit  string `json:"limit,omitempty"`
	Rule   string `json:"rule,omitempty"`
	Tenant string `json:"tenant,omitempty"`
	Key    string `json:"key,omitempty"`
	Field  string `json:"field,omitempty"`
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
	Unused bool   `json:"starts_unused"`
	Text   string `json:"text"`
}

func (a *app) plan(before, after string) error {
	old, err := a.compiled(before)
	if err != nil {
		return err
	}
	next, err := a.compiled(after)
	if err != nil {
		return err
	}
	list := engine.Compare(old, next)
	if a.json {
		out := []change{}
		for _, c := range list {
			out = append(out, change{string(c.What), c.Policy, c.Limit, c.Rule, c.Tenant, c.Key, c.Field, c.Before, c.After, c.Unused, c.String()})
		}
		a.printJSON(out)
		return nil
	}
	for _, c := range list {
		a.printf("%s\n", c.String())
	}
	if len(list) == 0 {
		a.printf("no answer changes\n")
	}
	return nil
}

// compiled reads a file.
func (a *app) compiled(path string) (engine.Config, error) {
	flags := a.flags
	flags.Config = path
	s, err := a.resolve(flags)
	if err != nil {
		return engine.Config{}, err
	}
	c, _, err := compile(s.Config)
	return c, err
}
