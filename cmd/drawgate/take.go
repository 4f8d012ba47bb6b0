package main

import (
	"errors"
	"slices"

	"github.com/spf13/cobra"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/internal/present"
)

// allowedOff is the answer if limits are switched off. It names the setting.
func (s *settings) allowedOff() api.Answer {
	by := "RATE_LIMIT_ENABLED"
	if s.Off {
		by = "enabled: false"
	}
	return api.Answer{Allowed: true, Message: "limits are switched off (" + by + ")"}
}

func (a *app) takeCmd() *cobra.Command {
	var f askFlags
	cmd := &cobra.Command{
		Use:   "take",
		Short: "Take units, or be refused",
		Long: `Take units from a bucket, or from several, all or nothing. A refusal costs nothing, says which limit refused and when the take would fit, and has
the exit code 75.

With --wait, a line of the terminal says what the take waits for, until it is answered.

What is taken counts as used immediately. To give units back when work fails, or to count slots, hold them with drawgate run.

` + exitHelp,
		Example: `  drawgate take && ./call-the-api
  drawgate take --wait 1m && ./call-the-api      # wait for up to a minute
  drawgate take --policy gpt --key team-a --cost requests=1 --cost tokens=500
  drawgate take --bucket per-ip/192.0.2.1 --bucket api/global`,
		Args: noArgs,
		RunE: action(func(cmd *cobra.Command, _ []string) error { return a.take(cmd, &f) }),
	}
	a.bucketFlags(cmd, &f)
	f.take(cmd)
	return cmd
}

func (a *app) take(cmd *cobra.Command, f *askFlags) error {
	if a.serverURL() != "" {
		return a.takeRemote(cmd.Context(), cmd, f)
	}
	s, err := a.open(false)
	if err != nil {
		return err
	}
	defer s.close()
	if s.empty {
		a.answer(s.allowedOff())
		return nil
	}
	r, err := f.request(cmd, s)
	if err != nil {
		return err
	}
	ctx, cancel := f.waitContext(cmd.Context())
	defer cancel()
	shown, end := a.showWait(ctx)
	res, err := s.engine.Take(shown, r)
	end()
	if errors.Is(err, drawgate.ErrNeedsReserve) {
		return s.needsRun(&res)
	}
	w, err := present.Result(ctx, r, &res, err)
	if err != nil {
		return err
	}
	a.answer(w)
	if !w.Allowed {
		return done(exitRefused)
	}
	return nil
}

// needsRun returns an error that names the policy with slots, which nobody would give back after a
// take.
func (s *session) needsRun(res *engine.Result) error {
	i := max(0, slices.IndexFunc(res.Applied, func(a engine.Applied) bool {
		return a.Bucket >= 0 &&
			s.engine.Limiter(a.Policy).Plan().NeedsHold()
	}))
	return usage("policy %q has a concurrency limit, whose slots must be given back: use drawgate run -- COMMAND",
		res.Applied[i].Policy)
}
