package main

import (
	"github.com/spf13/cobra"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
)

// adjustFlags say what a limit has used, and how that is known.
type adjustFlags struct {
	askFlags
	limit, reason string
	used          int64
}

func (a *app) adjustCmd() *cobra.Command {
	var f adjustFlags
	cmd := &cobra.Command{
		Use:   "adjust --used N --reason TEXT",
		Short: "Correct what a limit has used",
		Long: `Correct what one limit of a bucket has used: to what the provider's console says, for example, or to what was used this month before Drawgate was there.

The difference to what is used now is counted, or given back, in one step; what others take at the same time counts in addition. More than the limit may be
given: takes then wait until it has been worked off. What open reservations hold is not given back, and slots of a concurrency limit cannot be adjusted: they
are counted by who holds them. A limit may be exceeded by what is given back, if it was used after all.

The reason is kept in the history (SQLite, PostgreSQL), as a label of a charge or of a refund. drawgate status shows what is used. With --server, name the server's
address for administrators.`,
		Example: `  drawgate adjust --policy gemini --limit day --used 180 --reason "the console says 180"
  drawgate adjust --policy gpt --key team-a --limit tokens --used 0 --reason "a test that nobody pays for"`,
		Args: noArgs,
		RunE: action(func(cmd *cobra.Command, _ []string) error {
			switch {
			case !cmd.Flags().Changed("used"):
				return usage("--used is missing: what the limit has used from now on")
			case f.reason == "":
				return usage("--reason is missing: how you know what was used, for whoever reads the history")
			}
			return a.adjust(cmd, &f)
		}),
	}
	a.bucketFlags(cmd, &f.askFlags)
	cmd.Flags().StringVar(&f.limit, "limit", "", "name of the limit (default: the only one that can be adjusted)")
	cmd.Flags().Int64Var(&f.used, "used", 0, "what the limit has used from now on")
	cmd.Flags().StringVar(&f.reason, "reason", "", "why, for people: at most 256 bytes")
	return cmd
}

func (a *app) adjust(cmd *cobra.Command, f *adjustFlags) error {
	adjust := a.adjustHere
	if a.serverURL() != "" {
		adjust = a.adjustRemote
	}
	done, err := adjust(cmd, f)
	if err != nil {
		return err
	}
	if a.json {
		a.printJSON(done)
		return nil
	}
	a.printf("policy %s, limit %s, key %s: %d used, was %d\n", done.Policy, done.Limit, f.key, done.Used, done.Was)
	if done.Debt > 0 {
		a.printf("that is %d more than the limit: nothing is granted until this debt has been worked off\n", done.Debt)
	}
	if done.Used > f.used {
		a.warnf("%d of these were not given back: open reservations hold them until they are settled, or their window has ended meanwhile", done.Used-f.used)
	}
	return nil
}

func (a *app) adjustHere(cmd *cobra.Command, f *adjustFlags) (out api.AdjustAnswer, err error) {
	s, err := a.open(false) // an adjustment is stored, so the database is created if there is none
	if err != nil {
		return out, err
	}
	defer s.close()
	if s.empty || s.Off {
		return out, usage("limits are switched off: there is nothing to adjust")
	}
	a.caution(&s.settings)
	name, err := s.policy(f.policy)
	if err != nil {
		return out, err
	}
	done, err := s.engine.Adjust(cmd.Context(), engine.Ask{Policy: name, Tenant: s.tenant, Key: f.key}, f.limit, f.used,
		f.reason)
	return api.AdjustAnswer{Policy: name, Limit: done.Limit, Was: done.Was, Used: done.Used, Debt: done.Debt}, err
}

func (a *app) adjustRemote(cmd *cobra.Command, f *adjustFlags) (out api.AdjustAnswer, err error) {
	c, err := a.client()
	if err != nil {
		return out, err
	}
	defer c.Close()
	out, err = c.Adjust(cmd.Context(), api.AdjustRequest{
		Policy: f.policy, Tenant: a.tenant, Key: f.key, Limit: f.limit,
		Used: &f.used, Reason: f.reason,
	})
	return out, adminError(err)
}
