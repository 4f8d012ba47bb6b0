package main

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/server"
)

func (a *app) statusCmd() *cobra.Command {
	var f askFlags
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what is used and what is left",
		Long: `Show, for each limit of a bucket, what is used and what is left. Nothing is spent. Without --policy all policies are shown; as JSON, in an
array.

USED counts what is held, too; MOST is what may be used: the amount less headroom; DEBT is what was used beyond that.`,
		Example: `  drawgate status
  drawgate status --policy gpt --key team-a --json`,
		Args: cobra.NoArgs,
		RunE: action(func(cmd *cobra.Command, _ []string) error { return a.status(cmd, &f) }),
	}
	a.bucket(cmd, &f)
	return cmd
}

func (a *app) status(cmd *cobra.Command, f *askFlags) error {
	if a.serverURL() != "" {
		return a.statusRemote(cmd, f)
	}
	s, err := a.open()
	if err != nil {
		return err
	}
	defer s.close()
	if s.off {
		a.statusOff(f)
		return nil
	}
	a.caution(&s.settings)
	names := s.names()
	if f.policy != "" {
		names = []string{f.policy}
	}
	all := []api.StatusAnswer{}
	for _, name := range names {
		l, err := s.limiter(name)
		if err != nil {
			return err
		}
		st, err := l.Status(cmd.Context(), f.key)
		if err != nil {
			return err
		}
		all = append(all, server.Status(name, f.key, &st))
	}
	a.statuses(all, f.policy != "")
	return nil
}

// statuses prints buckets; one that was asked for by itself is no list.
func (a *app) statuses(all []api.StatusAnswer, one bool) {
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
		a.table(&all[i])
	}
}

// statusOff says that there is nothing to show.
func (a *app) statusOff(f *askFlags) {
	switch {
	case !a.json:
		a.printf("%s: nothing is counted\n", allowedOff.Message)
	case f.policy != "":
		a.printJSON(api.StatusAnswer{Policy: f.policy, Key: f.key, At: time.Now().UTC(), Take: allowedOff, Limits: []api.LimitStatus{}})
	default:
		a.warnf("%s: nothing is counted", allowedOff.Message)
		a.printf("[]\n")
	}
}

func (a *app) table(w *api.StatusAnswer) {
	a.printf("policy %s, key %s, %s\n", w.Policy, w.Key, count(w.Open, "open reservation"))
	t := tabwriter.NewWriter(a.out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "LIMIT\tUNIT\tUSED\tMOST\tLEFT\tHELD\tDEBT\tRESETS")
	for _, l := range w.Limits {
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%s\n", escape(l.Name, ""), escape(l.Unit, ""), l.Used, l.Most, l.Remaining, l.Held, l.Debt, until(l.ResetAt, w.At))
	}
	_ = t.Flush() // an output that is closed cannot be told
}

func (a *app) explainCmd() *cobra.Command {
	var f askFlags
	cmd := &cobra.Command{
		Use:   "explain",
		Short: "Say what a take would get now, and why",
		Long: `Say what a take would get now, limit by limit, and where the policy comes from. Nothing is spent. The exit code is that of the take: 75 if it
would be refused, 64 if it can never fit.`,
		Example: `  drawgate explain --policy gpt --key team-a --cost tokens=5000`,
		Args:    cobra.NoArgs,
		RunE:    action(func(cmd *cobra.Command, _ []string) error { return a.explain(cmd, &f) }),
	}
	a.bucket(cmd, &f)
	f.amounts(cmd)
	return cmd
}

func (a *app) explain(cmd *cobra.Command, f *askFlags) error {
	if a.serverURL() != "" {
		return a.explainRemote(cmd.Context(), cmd, f, nil)
	}
	s, err := a.open()
	if err != nil {
		return err
	}
	defer s.close()
	if s.off {
		a.answer(allowedOff)
		return nil
	}
	l, r, err := f.request(cmd, s)
	if err != nil {
		return err
	}
	a.caution(&s.settings)
	st, err := l.StatusAt(cmd.Context(), f.priority, r.Buckets[0])
	if err != nil {
		return err
	}
	w := server.Status(l.Plan().Name(), f.key, &st)
	if a.json {
		a.printJSON(w)
	} else {
		a.sentences(s, l.Plan(), r.Buckets[0].Costs, &w)
	}
	switch {
	case w.Take.Allowed:
		return nil
	case w.Take.NeverFits:
		return done(exitUsage)
	}
	return done(exitRefused)
}

func (a *app) sentences(s *session, plan *drawgate.Plan, costs []drawgate.Cost, w *api.StatusAnswer) {
	verdict := "would be allowed"
	switch {
	case w.Take.NeverFits:
		verdict = "can never be allowed: it asks for more than a limit grants"
	case !w.Take.Allowed:
		verdict = "would be refused, and fits " + until(w.At.Add(w.Take.RetryAfterMS.Duration()), w.At)
	}
	n, _ := plan.Amounts(costs) // they were resolved for the status already
	a.printf("A take from policy %s for key %s %s.\n", w.Policy, w.Key, verdict)
	policy := plan.Policy()
	for i, l := range w.Limits {
		a.printf("- %s: %s (%s). Used %s, left %d, asked %d: %s.\n", l.Name, server.Describe(&policy.Limits[i]), s.origin(w.Policy, l.Name),
			usedOf(&l), l.Remaining, n[i], passes(&l, w.Take.NeverFits, w.At))
	}
	a.printf("Store: %s.\n", config.RedactURL(s.Store))
}

func usedOf(l *api.LimitStatus) string {
	text := fmt.Sprintf("%d of %d", l.Used, l.Most)
	var also []string
	if l.Held > 0 {
		also = append(also, fmt.Sprintf("%d of them held", l.Held))
	}
	if l.Debt > 0 {
		also = append(also, fmt.Sprintf("a debt of %d", l.Debt))
	}
	if l.Most < l.Amount && l.Kind != drawgate.Bucket.String() {
		also = append(also, fmt.Sprintf("%d kept back", l.Amount-l.Most))
	}
	if len(also) > 0 {
		text += " (" + strings.Join(also, ", ") + ")"
	}
	return text
}

func passes(l *api.LimitStatus, never bool, now time.Time) string {
	switch {
	case !l.Refused:
		return "passes"
	case never && l.RetryAfterMS >= api.Never:
		return "can never pass"
	}
	return "refuses, would pass " + until(now.Add(l.RetryAfterMS.Duration()), now)
}

// origin says where a limit comes from.
func (s *session) origin(policy, limit string) string {
	for _, o := range s.Explain() {
		if o.Setting == "policies."+policy+".limits."+limit {
			if o.From != "default" {
				return "from " + o.From
			}
		}
	}
	return "built in"
}

func (a *app) resetCmd() *cobra.Command {
	var f askFlags
	var yes bool
	cmd := &cobra.Command{
		Use:   "reset",
		Short: "Forget what a bucket has used",
		Long: `Forget everything about a bucket: what is used, what is held. Its limits start unused, so more may be admitted than they say. Whoever holds units
of it learns that they are gone: drawgate run ends its command.`,
		Example: `  drawgate reset --policy gpt --key team-a --yes`,
		Args:    cobra.NoArgs,
		RunE:    action(func(cmd *cobra.Command, _ []string) error { return a.reset(cmd, &f, yes) }),
	}
	a.bucket(cmd, &f)
	cmd.Flags().BoolVar(&yes, "yes", false, "really do it")
	return cmd
}

func (a *app) reset(cmd *cobra.Command, f *askFlags, yes bool) error {
	if a.serverURL() != "" {
		return a.resetRemote(cmd, f, yes)
	}
	s, err := a.open()
	if err != nil {
		return err
	}
	defer s.close()
	if s.off {
		return usage("limits are switched off: there is nothing to reset")
	}
	l, err := s.limiter(f.policy)
	if err != nil {
		return err
	}
	name := l.Plan().Name()
	if !yes {
		return usage("this would forget what policy %s has counted for key %s: say --yes to do it", name, f.key)
	}
	if err := l.Reset(cmd.Context(), f.key); err != nil {
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
