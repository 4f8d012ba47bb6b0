package main

import (
	"github.com/spf13/cobra"

	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/guard"
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
	engine.Change
	Text string `json:"text"`
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
			out = append(out, change{c, c.String()})
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

func (a *app) boundCmd() *cobra.Command {
	var instances int
	cmd := &cobra.Command{
		Use:   "bound [FILE]",
		Short: "Say what may be admitted too much while the store is away",
		Long: `Say for each limit what its fallback may admit beyond it while the store is away, in the worst case: in the window in which the store goes away, in
later ones while all instances are cut off, and while only some of them are. 0 is never. Nothing is opened.`,
		Example: `  drawgate bound drawgate.yaml --instances 3`,
		Args:    cobra.MaximumNArgs(1),
		RunE:    action(func(_ *cobra.Command, args []string) error { return a.bound(args, instances) }),
	}
	cmd.Flags().IntVar(&instances, "instances", 0, "how many processes share the limits (default: what the configuration says; 1 on SQLite)")
	return cmd
}

func (a *app) bound(args []string, instances int) error {
	flags := a.flags
	if len(args) > 0 {
		flags.Config = args[0]
	}
	if instances < 0 {
		return usage("--instances %d is negative", instances)
	}
	s, err := a.resolve(flags)
	if err != nil {
		return err
	}
	if instances == 0 {
		instances = s.instances()
	}
	if s.Store == config.Memory {
		instances = max(1, instances)
	}
	lines, err := guard.Bound(s.Policies, instances)
	if err != nil {
		return err
	}
	if a.json {
		a.printJSON(lines)
		return nil
	}
	for i := range lines {
		a.printf("%s\n", lines[i].String())
	}
	return nil
}
