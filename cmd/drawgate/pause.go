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
		Short: "Let a bucket refuse every take for a time",
		Long: `Let a bucket refuse every take for a time, whoever asks, in every process that shares the store: after an upstream's 429, for example. It stops takes
only: what is held is settled, renewed and given back as ever. The pause ends by itself. Another one never makes it shorter; drawgate reset ends it, and
forgets what the bucket has used. drawgate status shows it. A server is asked at its address for administrators.`,
		Example: `  drawgate pause --policy gpt --key team-a --for 30s --reason "429 of the provider"
  drawgate pause --policy gpt --until 2026-07-01T00:00:00Z --reason maintenance`,
		Args: cobra.NoArgs,
		RunE: action(func(cmd *cobra.Command, _ []string) error { return a.pause(cmd, &f) }),
	}
	a.bucket(cmd, &f.askFlags)
	durationVar(cmd, &f.length, "for", 0, "how long (30s, 5m); at most 31 days")
	cmd.Flags().StringVar(&f.until, "until", "", "instead: until when, by the store's clock, such as 2026-07-01T00:00:00Z")
	cmd.Flags().StringVar(&f.reason, "reason", "", "why, for people: at most 256 bytes")
	return cmd
}

// pause makes the engine's form.
func (f *pauseFlags) pause() (p drawgate.Pause, err error) {
	if (f.length == 0) == (f.until == "") {
		return p, usage("for how long? Say either --for 30s or --until 2026-07-01T00:00:00Z")
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
	s, err := a.open(false) // a pause is kept, in a database that is made for it if there is none
	if err != nil {
		return err
	}
	defer s.close()
	if s.off || s.Off {
		return usage("limits are switched off: there is nothing to pause")
	}
	name, err := s.policy(f.policy)
	if err != nil {
		return err
	}
	until, err := s.engine.Pause(cmd.Context(), engine.Ask{Policy: name, Tenant: s.tenant, Key: f.key}, p)
	if err != nil {
		return err
	}
	a.paused(f.key, until)
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
	until, err := c.Pause(cmd.Context(), q)
	if err != nil {
		return adminError(err)
	}
	a.paused(f.key, until)
	return nil
}

// paused says until when a bucket is paused.
func (a *app) paused(key string, until time.Time) {
	if a.json {
		a.printJSON(api.PauseAnswer{Until: until.UTC()})
		return
	}
	a.printf("paused: key %s, until %s\n", key, present.Clock(until))
}
