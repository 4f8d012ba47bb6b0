package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/internal/present"
)

// pauseFlags say how long a bucket is paused, and why.
type pauseFlags struct {
	askFlags
	length        time.Duration
	until, reason string
}

func (a *app) pauseCmd() *cobra.Command {
	var f pauseFlags
	cmd := &cobra.Command{
		Use:   "pause",
		Short: "Make a bucket refuse every take for a time",
		Long: `Make a bucket refuse every take for a time, for all callers and in every process that shares the store: after an upstream's 429, for example. Only
takes are refused; what is held can still be settled, renewed and given back. The pause ends by itself, and a second pause never shortens it:
drawgate unpause ends it early. drawgate status shows it, and drawgate history who made it and why (SQLite, PostgreSQL). With --server, name the server's address
for administrators.`,
		Example: `  drawgate pause --policy gpt --key team-a --for 30s --reason "429 of the provider"
  drawgate pause --policy gpt --until 2026-07-01T00:00:00Z --reason maintenance`,
		Args: noArgs,
		RunE: action(func(cmd *cobra.Command, _ []string) error { return a.pause(cmd, &f) }),
	}
	a.bucketFlags(cmd, &f.askFlags)
	durationVar(cmd, &f.length, "for", 0, "how long (30s, 5m); at most 31 days")
	cmd.Flags().StringVar(&f.until, "until", "",
		"end of the pause, according to the store's clock, instead of --for; such as 2026-07-01T00:00:00Z")
	cmd.Flags().StringVar(&f.reason, "reason", "", "why, for people: at most 256 bytes")
	return cmd
}

// pause converts the flags to a pause for the engine.
func (f *pauseFlags) pause() (p drawgate.Pause, err error) {
	if (f.length == 0) == (f.until == "") {
		return p, usage("the length of the pause is missing: use --for 30s or --until 2026-07-01T00:00:00Z")
	}
	p = drawgate.Pause{For: f.length, Reason: f.reason}
	if f.until != "" {
		if p.Until, err = time.Parse(time.RFC3339, f.until); err != nil {
			return p, usage("--until %q is not an instant such as 2026-07-01T00:00:00Z", f.until)
		}
	}
	return p, nil
}

func (a *app) pause(cmd *cobra.Command, f *pauseFlags) error {
	p, err := f.pause()
	if err != nil {
		return err
	}
	if a.serverURL() != "" {
		return a.pauseRemote(cmd, f, p)
	}
	s, err := a.open(false) // a pause is stored, so the database is created if there is none
	if err != nil {
		return err
	}
	defer s.close()
	if s.empty || s.Off {
		return usage("limits are switched off: there is nothing to pause")
	}
	name, err := s.policy(f.policy)
	if err != nil {
		return err
	}
	p.By = operator()
	out, err := s.engine.Pause(cmd.Context(), engine.Ask{Policy: name, Tenant: s.tenant, Key: f.key}, p)
	if err != nil {
		return err
	}
	a.paused(f, present.Pause(&out))
	return nil
}

func (a *app) pauseRemote(cmd *cobra.Command, f *pauseFlags, p drawgate.Pause) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	defer c.Close()
	q := api.PauseRequest{Policy: f.policy, Tenant: a.tenant, Key: f.key, Reason: f.reason}
	if q.ForMS = p.For.Milliseconds(); q.ForMS == 0 {
		q.Until = &p.Until
	}
	out, err := c.Pause(cmd.Context(), q)
	if err != nil {
		return adminError(err)
	}
	a.paused(f, out)
	return nil
}

// paused prints until when a bucket is paused.
func (a *app) paused(f *pauseFlags, p api.PauseAnswer) {
	switch {
	case a.json:
		a.printJSON(p)
	case p.Kept:
		a.printf("nothing was changed: key %s is already paused for longer, until %s\n", f.key, present.Clock(p.Until))
		a.printf("to shorten that pause, end it first with drawgate unpause\n")
	default:
		a.printf("paused: key %s, until %s\n", f.key, present.Clock(p.Until))
	}
}
