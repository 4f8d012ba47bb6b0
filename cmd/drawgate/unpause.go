package main

import (
	"fmt"
	"os/user"

	"github.com/spf13/cobra"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/internal/present"
)

// unpauseFlags say whose pause is ended, and why.
type unpauseFlags struct {
	askFlags
	reason string
}

func (a *app) unpauseCmd() *cobra.Command {
	var f unpauseFlags
	cmd := &cobra.Command{
		Use:   "unpause",
		Short: "End a bucket's pause early",
		Long: `End the pause of a bucket, for all callers and in every process that shares the store. What the bucket has used still counts: unlike drawgate reset,
this gives nothing back. Callers that wait pass within five seconds. To shorten a pause, end it and pause the bucket again.

It looks at the bucket first, and ends the pause that it sees. If somebody pauses the bucket anew meanwhile, for example because the provider refused another
call, that pause is left, and the command ends with code 75. A process that cannot reach the store goes on honouring the pause that it knows.

drawgate history shows who ended it and why (SQLite, PostgreSQL). With --server, name the server's address for administrators.`,
		Example: `  drawgate unpause --policy gpt --key team-a --reason "it was meant to be 31 minutes"`,
		Args:    noArgs,
		RunE:    action(func(cmd *cobra.Command, _ []string) error { return a.unpause(cmd, &f) }),
	}
	a.bucketFlags(cmd, &f.askFlags)
	cmd.Flags().StringVar(&f.reason, "reason", "", "why, for people: at most 256 bytes")
	return cmd
}

// ended is what an unpause did to a bucket.
type ended struct {
	Policy string     `json:"policy"`
	Key    string     `json:"key"`
	Was    *api.Pause `json:"was,omitempty"`    // the pause that was seen
	Paused *api.Pause `json:"paused,omitempty"` // the pause that was left
}

func (a *app) unpause(cmd *cobra.Command, f *unpauseFlags) error {
	unpause := a.unpauseHere
	if a.serverURL() != "" {
		unpause = a.unpauseRemote
	}
	done, err := unpause(cmd, f)
	if err != nil {
		return err
	}
	switch {
	case a.json:
		a.printJSON(done)
	case done.Was == nil:
		a.printf("policy %s, key %s is not paused\n", done.Policy, done.Key)
	case done.Paused == nil:
		a.printf("ended: the pause of policy %s, key %s until %s", done.Policy, done.Key, present.Clock(done.Was.Until))
		if done.Was.Reason != "" {
			a.printf(": %s", done.Was.Reason)
		}
		a.printf("\n")
	}
	if done.Paused != nil {
		return &exitError{
			exitRefused,
			fmt.Errorf("key %s was paused anew meanwhile, until %s: that pause was left; drawgate status says why",
				done.Key, present.Clock(done.Paused.Until)),
		}
	}
	return nil
}

func (a *app) unpauseHere(cmd *cobra.Command, f *unpauseFlags) (out ended, err error) {
	s, err := a.open(true)
	if err != nil {
		return out, err
	}
	defer s.close()
	if s.empty {
		return out, usage("limits are switched off: there is no pause to end")
	}
	name, err := s.policy(f.policy)
	if err != nil {
		return out, err
	}
	w, err := s.look(cmd.Context(), name, &f.askFlags)
	out = ended{Policy: name, Key: f.key, Was: w.Paused}
	if err != nil || out.Was == nil {
		return out, err
	}
	p := drawgate.Pause{Until: out.Was.Until, Reason: f.reason, By: operator()}
	o, err := s.engine.Unpause(cmd.Context(), engine.Ask{Policy: name, Tenant: s.tenant, Key: f.key}, p)
	if o.Kept {
		out.Paused = &api.Pause{Until: o.Until.UTC()}
	}
	return out, err
}

func (a *app) unpauseRemote(cmd *cobra.Command, f *unpauseFlags) (out ended, err error) {
	c, err := a.client()
	if err != nil {
		return out, err
	}
	defer c.Close()
	w, err := c.Status(cmd.Context(), api.StatusRequest{Bucket: api.Bucket{
		Policy: f.policy, Tenant: a.tenant,
		Key: f.key,
	}})
	if err != nil {
		return out, adminError(err)
	}
	if out = (ended{Policy: w.Policy, Key: w.Key, Was: w.Paused}); out.Was == nil {
		return out, nil
	}
	q := api.UnpauseRequest{Policy: w.Policy, Tenant: a.tenant, Key: f.key, Until: &out.Was.Until, Reason: f.reason}
	left, err := c.Unpause(cmd.Context(), q)
	if err != nil {
		return out, adminError(err)
	}
	if left.Until != nil {
		out.Paused = &api.Pause{Until: *left.Until}
	}
	return out, nil
}

// operator names who runs the program, for the history.
func operator() string {
	u, err := user.Current()
	if err != nil {
		return ""
	}
	return u.Username
}
