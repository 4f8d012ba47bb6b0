package main

import (
	"cmp"
	"slices"

	"github.com/spf13/cobra"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/store/guard"
)

func (a *app) boundCmd() *cobra.Command {
	var instances int
	cmd := &cobra.Command{
		Use:   "bound [FILE]",
		Short: "Show the worst-case overrun during an outage of the store",
		Long: `Show, for each limit, how many units its fallback may admit beyond the limit in the worst case: in the window in which the store becomes unavailable, in
later windows while all instances are cut off, and while only some of them are. 0 means never. If rules and overrides give a limit different amounts, the
worst of them is shown. Limits in Envoy's files are included; rates that requests carry are not. For instances that are counted (auto), --instances says how
many to assume. The store is not opened.`,
		Example: `  drawgate bound drawgate.yaml --instances 3`,
		Args:    cobra.MaximumNArgs(1),
		RunE:    action(func(_ *cobra.Command, args []string) error { return a.bound(args, instances) }),
	}
	cmd.Flags().IntVar(&instances, "instances", 0, "how many processes share the limits; with auto, how many to assume (default: what the configuration says)")
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
	s, err := a.resolveLimits(flags)
	if err != nil {
		return err
	}
	lines, err := s.bound(instances)
	if err != nil {
		return err
	}
	if a.json {
		out := []excess{}
		for _, l := range lines {
			out = append(out, excess{l.Policy, l.Limit, l.Unit, l.Mode.String(), l.Instances, l.AtLeast, l.Most, bounded(l.Share), bounded(l.Extra), bounded(l.After), bounded(l.Partly), l.String()})
		}
		a.printJSON(out)
		return nil
	}
	for i := range lines {
		a.printf("%s\n", lines[i].String())
	}
	return nil
}

// bound returns the worst case of each limit for so many instances (0: as many as the configuration
// says), over the amounts of the policies, rules and overrides, and those of Envoy's files. Limits
// that come from rates in requests are left out, because they are not known beforehand.
func (s *settings) bound(instances int) (lines []guard.Line, err error) {
	said := s.SharedBy()
	bound := func(policies []drawgate.Policy) ([]guard.Line, error) {
		return guard.Bound(policies, cmp.Or(instances, said.Number, 1))
	}
	counted := said.Auto && s.Store != config.Memory
	if counted {
		bound = func(policies []drawgate.Policy) ([]guard.Line, error) {
			return guard.BoundCounted(policies, instances, said.Number)
		}
	}
	if _, err := loadEnvoy(s.Config); err != nil {
		return nil, err
	}
	c := s.Engine()
	lists, err := c.AmountsInForce()
	if err != nil {
		return nil, err
	}
	for _, policies := range lists {
		l, err := bound(policies)
		if err != nil {
			return nil, err
		}
		lines = append(lines, l...)
	}
	shares := slices.ContainsFunc(lines, func(l guard.Line) bool { return l.Mode == drawgate.FallbackShare })
	if counted && shares && instances == 0 {
		return nil, usage("instances are counted (auto): say how many to assume, such as --instances 3")
	}
	return guard.Worst(lines), nil
}

// excess is a line of bound as JSON. null means unbounded.
type excess struct {
	Policy    string `json:"policy"`
	Limit     string `json:"limit"`
	Unit      string `json:"unit"`
	Fallback  string `json:"fallback"`
	Instances int    `json:"instances"`
	AtLeast   int    `json:"at_least,omitempty"` // instances are counted
	Most      int64  `json:"most"`
	Share     *int64 `json:"share"`
	Extra     *int64 `json:"extra"`  // in the window in which the store becomes unavailable
	Later     *int64 `json:"later"`  // in each later window, while all instances are cut off
	Partly    *int64 `json:"partly"` // in each window in which only some are cut off
	Text      string `json:"text"`
}

func bounded(n int64) *int64 {
	if n == guard.Unbounded {
		return nil
	}
	return &n
}
