package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/internal/present"
)

func (a *app) statusCmd() *cobra.Command {
	var f askFlags
	var upstreams bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what is used and what is left",
		Long: `Show, for each limit of a bucket, what is used and what is left. Nothing is spent. Without --policy all policies are shown; as JSON, in an
array. Without --key they are shown for the key "default". If nothing is used under a key, it says which keys are in use. What counts a caller of a gateway or a server, and what is left of it, follows from the rules:
drawgate explain --attr attrs.key=NAME.

USED includes what is held. MOST is what may be used: the amount without headroom. DEBT is what was used beyond that: by
settlements and adjustments, or for up to 250ms by takes that were granted for the instant at which enough comes free.

With --upstreams it shows the quotas of the gateway's upstreams, model by model. Only a running gateway knows the states of their circuits and the calls
under way: name its address for administrators with --server.`,
		Example: `  drawgate status
  drawgate status --policy gpt --key team-a --json
  drawgate status --upstreams --server http://` + defaultAdmin,
		Args: noArgs,
		RunE: action(func(cmd *cobra.Command, _ []string) error {
			if !upstreams {
				return a.status(cmd, &f)
			}
			if cmd.Flags().Changed("policy") || cmd.Flags().Changed("key") {
				return usage("--upstreams shows the quotas of all upstreams: leave --policy and --key out")
			}
			return a.upstreams(cmd)
		}),
	}
	cmd.Flags().BoolVar(&upstreams, "upstreams", false, "show the quotas and circuits of the gateway's upstreams")
	a.bucketFlags(cmd, &f)
	cmd.Flags().Lookup("policy").Usage = "policy (default: all of them)"
	return cmd
}

func (a *app) status(cmd *cobra.Command, f *askFlags) error {
	statuses := a.statusHere
	if a.serverURL() != "" {
		statuses = a.statusRemote
	}
	all, modes, hint, err := statuses(cmd, f)
	switch {
	case errors.Is(err, errNothingCounted):
		return nil
	case err != nil:
		return err
	}
	a.printStatuses(all, f.policy != "", modes)
	if hint != "" {
		a.warnf("%s", hint)
	}
	return nil
}

// errNothingCounted says that there is no status, and that this was printed.
var errNothingCounted = errors.New("nothing is counted")

// statusHere looks at the store of this process. It also returns how the policies are in force, by
// name; which keys are in use if nothing is under this one; and errNothingCounted if the limits are
// switched off.
func (a *app) statusHere(cmd *cobra.Command, f *askFlags) (all []api.StatusAnswer, modes map[string]string, hint string,
	err error,
) {
	s, err := a.open(true)
	if err != nil {
		return nil, nil, "", err
	}
	defer s.close()
	if s.empty {
		a.statusOff(f, s.allowedOff())
		return nil, nil, "", errNothingCounted
	}
	a.caution(&s.settings)
	names := s.names()
	if f.policy != "" {
		names = []string{f.policy}
	}
	all, modes = []api.StatusAnswer{}, map[string]string{}
	for _, name := range names {
		if name, err = s.policy(name); err != nil {
			return nil, nil, "", err
		}
		w, err := s.look(cmd.Context(), name, f)
		if err != nil {
			return nil, nil, "", err
		}
		info := s.info(name)
		all, modes[name] = append(all, w), present.Mode(!info.DisabledUntil.IsZero(), info.Shadow)
	}
	if !a.json && unused(all) {
		hint = s.keysInUse(cmd.Context(), f)
	}
	return all, modes, hint, nil
}

// look reads the status of a bucket.
func (s *session) look(ctx context.Context, policy string, f *askFlags) (w api.StatusAnswer, err error) {
	ask, err := s.engine.Ask(policy, s.tenant, f.key)
	if err != nil {
		return w, err
	}
	st, err := ask.Status(ctx, f.priority)
	if err != nil {
		return w, err
	}
	w = present.Status(policy, f.key, &st)
	w.Tenant = s.tenant
	return w, nil
}

// printStatuses prints buckets: as JSON in an array, unless one was asked for. modes says how the
// policies are in force.
func (a *app) printStatuses(all []api.StatusAnswer, one bool, modes map[string]string) {
	switch {
	case a.json && one:
		a.printJSON(all[0])
		return
	case a.json:
		a.printJSON(all)
		return
	}
	for i := range all {
		if i > 0 {
			a.printf("\n")
		}
		present.WriteStatus(a.out, &all[i], modes[all[i].Policy])
	}
}

// statusOff prints that nothing is counted.
func (a *app) statusOff(f *askFlags, take api.Answer) {
	switch {
	case !a.json:
		a.printf("%s: nothing is counted\n", take.Message)
	case f.policy != "":
		a.printJSON(api.StatusAnswer{
			Policy: f.policy, Key: f.key, At: time.Now().UTC(), Take: take,
			Limits: []api.LimitStatus{},
		})
	default:
		a.warnf("%s: nothing is counted", take.Message)
		a.printf("[]\n")
	}
}

// statusRemote is statusHere by a server.
func (a *app) statusRemote(cmd *cobra.Command, f *askFlags) (all []api.StatusAnswer, modes map[string]string,
	hint string, err error,
) {
	c, err := a.client()
	if err != nil {
		return nil, nil, "", err
	}
	defer c.Close()
	names := []string{f.policy}
	all, modes = []api.StatusAnswer{}, map[string]string{}
	if f.policy == "" || !a.json {
		policies, err := c.Policies(cmd.Context())
		if err != nil {
			return nil, nil, "", remoteError(err)
		}
		if f.policy == "" {
			names = nil
		}
		for i := range policies {
			p := &policies[i]
			modes[p.Name] = present.Mode(p.DisabledUntil != nil, p.Shadow)
			if f.policy == "" {
				names = append(names, p.Name)
			}
		}
	}
	for _, name := range names {
		w, err := c.Status(cmd.Context(), api.StatusRequest{Bucket: api.Bucket{
			Policy: name, Tenant: a.tenant,
			Key: f.key,
		}})
		if err != nil {
			return nil, nil, "", remoteError(err)
		}
		all = append(all, w)
	}
	if !a.json && unused(all) {
		hint = keysInUse(cmd.Context(), c, f, a.tenant)
	}
	return all, modes, hint, nil
}
