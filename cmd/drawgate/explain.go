package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/internal/failure"
	"github.com/drawgate/drawgate/internal/present"
)

func (a *app) explainCmd() *cobra.Command {
	var f askFlags
	var attrs []string
	cmd := &cobra.Command{
		Use:   "explain",
		Short: "Show what a take would get now, and why",
		Long: `Show what a take would get now, limit by limit, and where the policy comes from. Nothing is spent. The exit code is that of the take: 75 if it
would be refused, 64 if it can never fit.

With --attr the rules choose the policies and keys by the attributes of a request, so you can try rules before a server uses them. NAME is one of
` + strings.Join(attributeNames, ", ") + `, or headers.NAME for a header, or attrs.NAME for an attribute of your own.`,
		Example: `  drawgate explain --policy gpt --key team-a --cost tokens=5000
  drawgate explain --config new.yaml --attr method=GET --attr path=/v1/x --attr ip=192.0.2.1 --attr headers.X-Api-Key=k`,
		Args: noArgs,
		RunE: action(func(cmd *cobra.Command, _ []string) error {
			if len(attrs) > 0 {
				return a.explainByRules(cmd, &f, attrs)
			}
			return a.explain(cmd, &f)
		}),
	}
	a.bucketFlags(cmd, &f)
	f.amounts(cmd)
	cmd.Flags().StringArrayVar(&attrs, "attr", nil,
		"NAME=VALUE: an attribute of the request, instead of --policy and --key; may be given several times")
	return cmd
}

func (a *app) explain(cmd *cobra.Command, f *askFlags) error {
	if a.serverURL() != "" {
		return a.explainRemote(cmd, f)
	}
	s, err := a.open(true)
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
	a.caution(&s.settings)
	var failed error
	w, err := present.Explain(cmd.Context(), s.engine, r, f.priority, func(err error) *api.Problem {
		failed = err
		return present.Problem(err)
	})
	switch {
	case err != nil:
		return err
	case failed != nil && !w.Allowed && !a.json:
		return failed
	case failure.Of(failed) == failure.Unavailable:
		a.warnf("%s", text(failed)) // the answer does not contain it
	}
	if !a.json {
		return a.sentences(s, &r.Asks[0], &w)
	}
	a.printJSON(w)
	return done(verdictOf(&w))
}

// sentences prints the answer to an ask, limit by limit.
func (a *app) sentences(s *session, asked *engine.Ask, w *api.ExplainAnswer) error {
	ask, err := s.engine.Ask(asked.Policy, asked.Tenant, asked.Key)
	if err != nil {
		return err
	}
	e := &w.Applied[0]
	a.printf("A take from policy %s for %s %s.\n", e.Policy, present.Owner(e.Tenant, e.Key), present.WouldBe(e))
	if line := present.PauseLine(e.Status); line != "" {
		a.printf("- %s\n", line)
	}
	if line := present.LineOf(e.Status); line != "" {
		a.printf("- %s\n", line)
	}
	if e.Status != nil {
		a.limits(s, ask.Limiter.Plan(), asked.Costs, e.Status)
	}
	a.printf("Store: %s.\n", config.RedactURL(s.Store))
	return done(verdictOf(w))
}

// limits prints the state of a policy's limits.
func (a *app) limits(s *session, plan *drawgate.Plan, costs []drawgate.Cost, w *api.StatusAnswer) {
	n, _ := plan.Amounts(costs) // they were resolved for the status already
	policy := plan.Policy()
	for i := range w.Limits {
		l := &w.Limits[i]
		a.printf("- %s: %s (%s). Used %s, left %d, asked %d: %s.\n", l.Name, present.Describe(&policy.Limits[i]),
			s.origin(&policy, i),
			present.Used(l), l.Remaining, n[i], present.Passes(l, w.Take.NeverFits, w.At))
	}
}

// origin returns where limit i of a policy comes from. p has the amounts of the key.
func (s *session) origin(p *drawgate.Policy, i int) string {
	limit := &p.Limits[i]
	from := "built in"
	for _, o := range s.Explain() {
		if o.Setting == "policies."+p.Name+".limits."+limit.Name && o.From != "default" {
			from = "from " + o.From
		}
	}
	if plain := &s.engine.Limiter(p.Name).Plan().Policy().Limits[i]; plain.Amount != limit.Amount ||
		plain.Burst != limit.Burst {
		from += ", overridden for this key"
	}
	return from
}

// explainRemote prints what the limits of a server would answer to a take.
func (a *app) explainRemote(cmd *cobra.Command, f *askFlags) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	defer c.Close()
	t, err := f.wire(cmd.Context(), cmd, a, c)
	if err != nil {
		return err
	}
	w, err := c.Explain(cmd.Context(), api.ExplainRequest{Bucket: t.Bucket, Priority: f.priority})
	return a.explanation(&w, err)
}

// explanation prints an explanation, and returns its exit code.
func (a *app) explanation(w *api.ExplainAnswer, err error) error {
	if err != nil {
		return remoteError(err)
	}
	if a.json {
		a.printJSON(w)
	} else {
		present.WriteExplanation(a.out, w)
	}
	return done(verdictOf(w))
}

// verdictOf returns the exit code of the take that is explained.
func verdictOf(w *api.ExplainAnswer) int {
	if w.Allowed {
		return exitOK
	}
	code := exitRefused
	for i := range w.Applied {
		switch e := &w.Applied[i]; {
		case e.Bucket == nil: // this policy does not decide
		case e.Error != nil:
			return exitCode(remoteError(e.Error))
		case e.Status.Take.NeverFits:
			code = exitUsage
		}
	}
	return code
}
