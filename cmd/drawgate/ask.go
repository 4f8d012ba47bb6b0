package main

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
)

// askFlags name buckets, and what to take from them. A command that takes nothing has only the
// flags of [app.bucketFlags].
type askFlags struct {
	policy, key string
	n           int64
	costs       []string
	buckets     []string
	priority    int
	labels      []string
	wait        time.Duration
}

// bucketFlags adds --policy and --key.
func (a *app) bucketFlags(cmd *cobra.Command, f *askFlags) {
	cmd.Flags().StringVar(&f.policy, "policy", "", "policy (default: the only one)")
	f.key = api.DefaultKey
	cmd.Flags().Var((*keyValue)(&f.key), "key", "who is counted")
	a.completePolicy(cmd)
}

// completePolicy completes the flag --policy with the names of the configuration's policies.
func (a *app) completePolicy(cmd *cobra.Command) {
	// Errors while completing a command line are not shown to the user.
	_ = cmd.RegisterFlagCompletionFunc("policy", func(*cobra.Command, []string, string) ([]string,
		cobra.ShellCompDirective,
	) {
		s, err := a.resolveLimits(a.flags)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return s.configured(), cobra.ShellCompDirectiveNoFileComp
	})
}

// amounts adds the flags that say how much, and at which priority.
func (f *askFlags) amounts(cmd *cobra.Command) {
	cmd.Flags().Int64VarP(&f.n, "requests", "n", 1, "requests to take")
	cmd.Flags().StringArrayVar(&f.costs, "cost", nil,
		"UNIT=N: units to take, such as tokens=500; may be given several times")
	cmd.Flags().IntVar(&f.priority, "priority", 0,
		"0 to 9: a limit may reserve a share for higher priorities, and waiting takes are served in this order")
}

// take adds the flags of a take.
func (f *askFlags) take(cmd *cobra.Command) {
	f.amounts(cmd)
	cmd.Flags().StringArrayVar(&f.buckets, "bucket", nil,
		"POLICY/KEY: instead of --policy and --key; may be given several times: all or nothing")
	cmd.Flags().StringArrayVar(&f.labels, "label", nil,
		"NAME=VALUE: a note for the history, such as task=embed; may be given several times")
	durationVar(cmd, &f.wait, "wait", 0,
		"wait until the take fits, for at most this long (30s, 5m); it is refused at once if it cannot fit by then")
}

// request converts the flags to a request to the engine.
func (f *askFlags) request(cmd *cobra.Command, s *session) (*engine.Request, error) {
	costs, err := f.cost(cmd.Flags().Changed("requests"))
	if err != nil {
		return nil, err
	}
	r, err := f.plain()
	if err != nil {
		return nil, err
	}
	if len(f.buckets) == 0 {
		policy, err := s.policy(f.policy)
		if err != nil {
			return nil, err
		}
		r.Asks = []engine.Ask{{Policy: policy, Tenant: s.tenant, Key: f.key, Costs: costs}}
		return r, nil
	}
	r.Asks, err = f.several(cmd, s.tenant, costs, func(policy string) (func(string) bool, error) {
		if _, err := s.policy(policy); err != nil {
			return nil, err
		}
		return func(unit string) bool { return hasUnit(s.engine.Limiter(policy), unit) }, nil
	})
	return r, err
}

// plain returns a request without its buckets.
func (f *askFlags) plain() (*engine.Request, error) {
	if f.wait < 0 {
		return nil, usage("--wait %v is negative", f.wait)
	}
	r := &engine.Request{Priority: f.priority, Wait: f.wait > 0}
	labels, err := parseLabels(f.labels)
	r.Labels = labels
	return r, err
}

// parseLabels reads the values of --label.
func parseLabels(list []string) (labels []drawgate.Label, err error) {
	for _, l := range list {
		name, value, ok := strings.Cut(l, "=")
		if !ok || name == "" {
			return nil, usage("--label %q is not of the form NAME=VALUE", l)
		}
		labels = append(labels, drawgate.Label{Name: name, Value: value})
	}
	return labels, nil
}

// several makes an ask for each bucket, with those costs whose units its policy counts. counts says
// which these are.
func (f *askFlags) several(
	cmd *cobra.Command, tenant string, costs []drawgate.Cost,
	counts func(policy string) (func(unit string) bool, error),
) (asks []engine.Ask, err error) {
	if cmd.Flags().Changed("policy") || cmd.Flags().Changed("key") {
		return nil, usage("give either --bucket, or --policy and --key")
	}
	known := make([]bool, len(costs))
	for _, b := range f.buckets {
		policy, key, ok := strings.Cut(b, "/")
		if !ok || policy == "" || key == "" {
			return nil, usage("--bucket %q is not of the form POLICY/KEY", b)
		}
		has, err := counts(policy)
		if err != nil {
			return nil, err
		}
		var mine []drawgate.Cost
		for i, c := range costs {
			if has(c.Unit) {
				known[i], mine = true, append(mine, c)
			}
		}
		asks = append(asks, engine.Ask{Policy: policy, Tenant: tenant, Key: key, Costs: mine})
	}
	if i := slices.Index(known, false); i >= 0 {
		return nil, usage("no limit of these policies counts %q", costs[i].Unit)
	}
	return asks, nil
}

func hasUnit(l *drawgate.Limiter, unit string) bool {
	return slices.ContainsFunc(l.Plan().Policy().Limits, func(l drawgate.Limit) bool {
		return l.Unit == unit || l.Unit == "" && unit == drawgate.UnitRequests
	})
}

// cost reads -n and --cost. If neither is given there are no costs, and the policy decides whether
// a take is one request.
func (f *askFlags) cost(named bool) ([]drawgate.Cost, error) {
	var all []drawgate.Cost
	if named {
		all = append(all, drawgate.Cost{Unit: drawgate.UnitRequests, N: f.n})
	}
	for _, c := range f.costs {
		unit, text, ok := strings.Cut(c, "=")
		n, err := strconv.ParseInt(text, 10, 64)
		if !ok || unit == "" || err != nil {
			return nil, usage("--cost %q is not of the form UNIT=N, such as tokens=500", c)
		}
		if named && unit == drawgate.UnitRequests {
			return nil, usage("-n %d and --cost %s both say how many requests: give one of them", f.n, c)
		}
		all = append(all, drawgate.Cost{Unit: unit, N: n})
	}
	return all, nil
}

// waitContext returns the context of a take that may wait.
func (f *askFlags) waitContext(ctx context.Context) (context.Context, context.CancelFunc) {
	if f.wait <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, f.wait, drawgate.ErrDeadline)
}
