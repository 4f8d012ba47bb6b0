package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/store/sqlitestore"
)

func (a *app) resetCmd() *cobra.Command {
	var f askFlags
	var yes, all, force bool
	cmd := &cobra.Command{
		Use:   "reset",
		Short: "Forget what a bucket has used",
		Long: `Forget everything about a bucket: what is used and what is held. Its limits start unused, so more may be admitted than they allow. A program that holds
units of it finds out that they are gone: drawgate run ends its command. With --server, name the server's address for administrators.

With --all a new SQLite file replaces whatever is at its path: a database, a damaged one, or none if it was deleted. Nothing is used then, and the history
is empty. Stop the programs that use the file first (--force replaces it nevertheless). The old file is renamed, not deleted. Everything that was used may be admitted once more; drawgate
repair --hold counts everything as used up instead.`,
		Example: `  drawgate reset --policy gpt --key team-a --yes
  drawgate reset --all --store sqlite:///var/lib/drawgate/state.db --yes`,
		Args: noArgs,
		RunE: action(func(cmd *cobra.Command, _ []string) error {
			if force && !all {
				return usage("--force is for --all")
			}
			if all {
				return a.resetAll(cmd, yes, force)
			}
			return a.reset(cmd, &f, yes)
		}),
	}
	a.bucketFlags(cmd, &f)
	cmd.Flags().BoolVar(&all, "all", false, "start again with a new SQLite file, in which nothing is used")
	cmd.Flags().BoolVar(&force, "force", false, "with --all, replace the file even though a program has it open")
	cmd.Flags().BoolVar(&yes, "yes", false, "confirm that the data may be lost")
	return cmd
}

func (a *app) reset(cmd *cobra.Command, f *askFlags, yes bool) error {
	if a.serverURL() != "" {
		return a.resetRemote(cmd, f, yes)
	}
	s, err := a.open(true)
	if err != nil {
		return err
	}
	defer s.close()
	if s.empty {
		return usage("limits are switched off: there is nothing to reset")
	}
	name, err := s.policy(f.policy)
	if err != nil {
		return err
	}
	if !yes {
		return usage("this would forget what policy %s has counted for key %s: add --yes to confirm", name, f.key)
	}
	if err := s.forget(cmd.Context(), name, f.key); err != nil {
		return err
	}
	if a.json {
		a.printJSON(struct {
			Reset  bool   `json:"reset"`
			Policy string `json:"policy"`
			Key    string `json:"key"`
		}{true, name, f.key})
		return nil
	}
	a.printf("reset: policy %s, key %s\n", name, f.key)
	return nil
}

// forget resets a bucket, and also the bucket in which rules in shadow count.
func (s *session) forget(ctx context.Context, policy, key string) error {
	l := s.engine.Limiter(policy)
	if err := l.Reset(ctx, key); err != nil {
		return err
	}
	shadow := l.Plan().Policy()
	shadow.Name += engine.ShadowSuffix
	l, err := l.With(shadow)
	if err != nil {
		return err
	}
	return l.Reset(ctx, key)
}

func (a *app) resetRemote(cmd *cobra.Command, f *askFlags, yes bool) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	defer c.Close()
	if !yes {
		return usage("this would forget what the server has counted for key %s: add --yes to confirm", f.key)
	}
	n, err := c.Reset(cmd.Context(), api.ResetRequest{Policy: f.policy, Tenant: a.tenant, Key: f.key})
	if err != nil {
		return adminError(err)
	}
	if a.json {
		a.printJSON(api.ResetAnswer{Reset: n})
		return nil
	}
	a.printf("reset: key %s\n", f.key)
	return nil
}

// resetAll replaces whatever is at the path with a new database.
func (a *app) resetAll(cmd *cobra.Command, yes, force bool) error {
	for _, flag := range []string{"policy", "key"} {
		if cmd.Flags().Changed(flag) {
			return usage("give either --all or --%s", flag)
		}
	}
	path, err := a.sqlitePath("reset")
	if err != nil {
		return err
	}
	if !yes {
		return usage("this would forget everything that %s has counted: add --yes to confirm", path)
	}
	r, err := sqlitestore.Repair(path, &sqlitestore.RepairOptions{Fresh: true, Force: force})
	if err != nil {
		return err
	}
	a.warnInUse(path, r.InUse)
	if a.json {
		a.printJSON(struct {
			Reset bool     `json:"reset"`
			Path  string   `json:"path"`
			Aside []string `json:"aside,omitempty"`
		}{true, path, r.Aside})
		return nil
	}
	for _, f := range r.Aside {
		a.printf("the old file is now %s\n", f)
	}
	a.printf("%s is new: nothing is used\n", path)
	a.printf("restart the programs that use it: a program that has the old file open does not see the new one\n")
	return nil
}
