package main

import (
	"cmp"
	"slices"

	"github.com/spf13/cobra"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/pgstore"
)

func (a *app) boundCmd() *cobra.Command {
	var assume assumed
	cmd := &cobra.Command{
		Use:   "bound [FILE]",
		Short: "Show the worst-case overrun during an outage of the store",
		Long: `Show, for each limit, how many units its fallback may admit beyond the limit in the worst case: in the window in which the store becomes unavailable, in
later windows while all instances are cut off, and while only some of them are. 0 means never. If rules and overrides give a limit different amounts, the
worst of them is shown. Limits in Envoy's files are included; rates that requests carry are not. For instances that are counted (auto), --instances says how
many to assume. The store is not opened.

--starts says how many processes start in one window without being able to ask the store,
such as functions of AWS Lambda or after crashes: "start" of their policy says what each of
them admits. For a bucket they are those of the whole outage.

--losses says how many times in one window the store forgets its last answers: a PostgreSQL server with synchronous_commit=off, or a Redis server that does
not write to its disk at once, crashes, or a replica that had not received all takes the place of its server. What was forgotten may be admitted again, each
time at most the limit once.`,
		Example: `  drawgate bound drawgate.yaml --instances 3
  drawgate bound drawgate.yaml --starts 5`,
		Args: cobra.MaximumNArgs(1),
		RunE: action(func(cmd *cobra.Command, args []string) error {
			assume.counted = cmd.Flags().Changed("losses")
			return a.bound(args, assume)
		}),
	}
	number := cmd.Flags().IntVar
	number(&assume.instances, "instances", 0,
		"how many processes share the limits; with auto, how many to assume (default: what the configuration says)")
	number(&assume.starts, "starts", 0, "how many processes start while the store is unavailable")
	number(&assume.losses, "losses", 0,
		"how many times the store forgets its last answers (default 1 if the store's URL has synchronous_commit=off, otherwise 0)")
	number(&assume.returns, "returns", 1, "with --starts: how many times the store comes back within one window")
	return cmd
}

// assumed is what bound takes for granted.
type assumed struct {
	instances, starts, returns, losses int
	counted                            bool // losses are given
}

func (a *app) bound(args []string, assume assumed) error {
	flags := a.flags
	if len(args) > 0 {
		flags.Config = args[0]
	}
	for _, f := range []struct {
		name string
		n    int
	}{
		{"instances", assume.instances},
		{"starts", assume.starts},
		{"returns", assume.returns},
		{"losses", assume.losses},
	} {
		if f.n < 0 || f.n > maxAssumed {
			return usage("--%s %d is not between 0 and %d", f.name, f.n, maxAssumed)
		}
	}
	s, err := a.resolveLimits(flags)
	if err != nil {
		return err
	}
	lines, err := s.bound(assume.instances)
	if err != nil {
		return err
	}
	if !assume.counted && pgstore.MayForget(s.Store) {
		assume.losses = 1
	}
	for i := range lines {
		lines[i] = lines[i].AfterStarts(assume.starts, assume.returns).AfterLosses(assume.losses)
	}
	if a.json {
		out := []excess{}
		for _, l := range lines {
			out = append(out, excess{
				l.Policy, l.Limit, l.Unit, l.Mode.String(), l.Instances, l.AtLeast, l.Most,
				bounded(l.Share), bounded(l.Extra), bounded(l.After), bounded(l.Partly),
				l.Start.String(), l.Cold, l.Returned, l.Forgotten, l.String(),
			})
		}
		a.printJSON(out)
		return nil
	}
	for i := range lines {
		a.printf("%s\n", lines[i].String())
	}
	return nil
}

// maxAssumed is the most processes that may share a limit, and more than ever start.
const maxAssumed = 1_000_000

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
		for i := range policies {
			policies[i].Start = s.StartOf(&policies[i])
		}
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
	Start     string `json:"start,omitempty"`
	Cold      int64  `json:"cold,omitempty"`      // what a process that starts admits without knowing what was used
	Returned  int64  `json:"returned,omitempty"`  // with --starts: in addition, if the store comes back in between
	Forgotten int64  `json:"forgotten,omitempty"` // with --losses: in addition, because the store forgot it
	Text      string `json:"text"`
}

func bounded(n int64) *int64 {
	if n == guard.Unbounded {
		return nil
	}
	return &n
}
