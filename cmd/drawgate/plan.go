package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/internal/pattern"
)

func (a *app) planCmd() *cobra.Command {
	var buckets bool
	cmd := &cobra.Command{
		Use:   "plan OLD NEW",
		Short: "Show which answers another configuration would change",
		Long: `Compare two configuration files, and show which policies, limits and rules would answer differently: amounts that rise or fall, limits that start unused
because they count as new ones, rules that match differently, and other settings except those of telemetry. A line says so if a running server only takes
the change over at a restart. Nothing is opened or changed. The environment
applies to both files, as with the other commands.

With --buckets it also looks into the store, which both files must name, and lists the buckets in which a limit of NEW is used up and none of OLD is: their
next take would be refused as soon as NEW is in force. It reads each bucket of each policy, of the tenant that --tenant names. Nothing is spent.

The exit code is 0 whether they differ or not, and 78 if one of them has mistakes.`,
		Example: `  drawgate plan drawgate.yaml drawgate.new.yaml
  drawgate plan drawgate.yaml drawgate.new.yaml --buckets`,
		Args: twoFiles,
		RunE: action(func(cmd *cobra.Command, args []string) error {
			return a.plan(cmd.Context(), args[0], args[1],
				buckets)
		}),
	}
	cmd.Flags().BoolVar(&buckets, "buckets", false, "also list the buckets in the store that would be refused at once")
	return cmd
}

// twoFiles returns an error unless there are two files to compare.
func twoFiles(_ *cobra.Command, args []string) error {
	if len(args) != 2 {
		return usage("plan compares two files, not %d: give the one in force and the new one, such as drawgate plan drawgate.yaml drawgate.new.yaml", len(args))
	}
	return nil
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
	// a running server only takes it over at a restart
	Restart bool   `json:"needs_restart,omitempty"`
	Text    string `json:"text"`
}

func (a *app) plan(ctx context.Context, before, after string, buckets bool) error {
	old, was, err := a.compiled(before)
	if err != nil {
		return err
	}
	next, is, err := a.compiled(after)
	if err != nil {
		return err
	}
	list := settingChanges(config.Compare(old.Config, next.Config))
	for _, c := range engine.Compare(was, is) {
		list = append(list, change{
			string(c.What), c.Policy, c.Limit, c.Rule, c.Tenant, c.Key, c.Field, c.Before,
			c.After, c.Unused, false, c.String(),
		})
	}
	if buckets {
		refused, err := a.refusedBuckets(ctx, before, after)
		if err != nil {
			return err
		}
		list = append(list, refused...)
	}
	if a.json {
		a.printJSON(list)
		return nil
	}
	a.printChanges(list)
	if len(list) == 0 {
		a.printf("no answers change\n")
	}
	return nil
}

// silent are the settings that do not change any answer.
var silent = pattern.New(`^(queue|telemetry)\.|^warn_every$`)

// settingChanges returns the lines about settings other than policies and rules. Another store, or
// another prefix in it, means other buckets.
func settingChanges(list []config.Difference) []change {
	out := []change{}
	for _, d := range list {
		if silent().MatchString(d.Setting) {
			continue
		}
		c := change{
			What: "setting_changed", Field: d.Setting, Before: d.Before, After: d.After, Unused: d.Setting == "store" ||
				d.Setting == "prefix",
			Restart: d.Restart,
			Text:    fmt.Sprintf("%s: changed: %s → %s", d.Setting, d.Before, d.After),
		}
		var notes []string
		if c.Unused {
			notes = append(notes, "all buckets start unused")
		}
		if c.Restart {
			notes = append(notes, "needs a restart")
		}
		if notes != nil {
			c.Text += " (" + strings.Join(notes, "; ") + ")"
		}
		out = append(out, c)
	}
	return out
}

// compiled reads a file.
func (a *app) compiled(path string) (s settings, c engine.Config, err error) {
	flags := a.flags
	flags.Config = path
	if s, err = a.resolve(flags); err != nil {
		return s, c, err
	}
	_, err = loadEnvoy(s.Config)
	return s, s.Engine(), err
}
