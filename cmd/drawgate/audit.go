package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/drawgate/drawgate/audit"
	"github.com/drawgate/drawgate/internal/present"
)

// auditFlags say by which limits ledgers are judged.
type auditFlags struct {
	preset, quotas, windows string
	limits                  []string
	margin, clockError      time.Duration
	marginSet               bool
}

func (a *app) auditCmd() *cobra.Command {
	var f auditFlags
	cmd := &cobra.Command{
		Use:   "audit [LEDGER...]",
		Short: "Judge from a gateway's ledger whether the providers' limits were kept",
		Long: `Count again what gateways asked of their providers, with other code than the one that granted it, and judge each limit of the providers. A LEDGER is
the folder of the setting gateway.ledger, or one of its files; name those of all gateways that share a quota, so that they are counted together. Without a LEDGER it
is the folder that the file (--config) names.

The limits are those of the policies that the gateway's models name in the file (--config), without their headroom; or those that drawgate simulate
enforces (--preset, --quotas). --limit changes one of them.

When a call counts at the provider is only known to lie between the instant at which it was sent and its answer, or the end of the limit's margin. So
for every window there is a least and a most that can have been used in it:

  within          in no window can more have been used than the limit allows
  possibly over   in some window more may have been used, but that is not certain
  over            in some window more was used or asked for; or the provider refused a call by this limit

A rolling limit is judged by every window of its length, and by those that are aligned to the clock, each on a line of its own.

Exit codes:
  0   every limit is within
  1   some limit is over
  2   some limit is possibly over, or lines of the ledger are missing, or no limit counts any call, or calls were granted by other policies
  64  the command line is wrong
  78  the limits or the ledger cannot be read`,
		Example: `  drawgate audit --config drawgate.yaml /var/lib/drawgate/ledger
  drawgate audit --preset gemini-free --limit gemini-2.5-flash/rpd=20 gateway-1/ gateway-2/ --clock-error 100ms
  drawgate audit --config drawgate.yaml --limit gpt/rpm=500 --json ledger/`,
		Args: cobra.ArbitraryArgs,
		RunE: action(func(cmd *cobra.Command, args []string) error {
			f.marginSet = cmd.Flags().Changed("margin")
			return a.audit(cmd.Context(), args, &f)
		}),
	}
	cmd.Flags().StringVar(&f.preset, "preset", "",
		"judge by the limits of a preset of drawgate simulate, instead of the file's")
	cmd.Flags().StringVar(&f.quotas, "quotas", "",
		"judge by the limits of a JSON file of drawgate simulate, instead of the file's")
	cmd.Flags().StringArrayVar(&f.limits, "limit", nil,
		"change the amount of a limit, as POLICY/LIMIT=AMOUNT, or QUOTA/LIMIT=AMOUNT of a preset; may be repeated")
	cmd.Flags().StringVar(&f.windows, "windows", "",
		"judge rolling limits only by rolling or only by aligned windows (default both)")
	durationVar(cmd, &f.margin, "margin", 0,
		"how long after it was granted a call is counted at the latest; 0: as late as its answer (default: the limit's margin in the file, otherwise 2s)")
	durationVar(cmd, &f.clockError, "clock-error", 0, "by how much the clocks of gateways and providers can differ")
	return cmd
}

func (a *app) audit(ctx context.Context, ledgers []string, f *auditFlags) error {
	quotas, err := a.auditQuotas(f)
	if err != nil {
		return err
	}
	if len(ledgers) == 0 {
		if ledgers, err = a.configuredLedger(); err != nil {
			return err
		}
	}
	if f.clockError < 0 || f.margin < 0 {
		return usage("--clock-error %v and --margin %v must not be negative", f.clockError, f.margin)
	}
	if f.windows != "" && f.windows != string(audit.Rolling) && f.windows != string(audit.Aligned) {
		return usage("--windows %s is neither rolling nor aligned", f.windows)
	}
	r, err := audit.Replay(ctx, ledgers, quotas, &audit.Options{
		ClockError: f.clockError,
		Windows:    audit.Window(f.windows),
	})
	if err != nil {
		return &exitError{exitConfig, err}
	}
	if a.json {
		a.printJSON(r)
	} else {
		a.printAudit(r)
	}
	switch {
	case r.Verdict == audit.Over:
		return done(exitOver)
	case r.Verdict == audit.Possible, len(r.Limits) == 0 && r.Calls > 0:
		return done(exitUnclear)
	}
	return nil
}

// changeLimits applies --limit to quotas.
func (f *auditFlags) changeLimits(quotas []audit.Quota) error {
	var names []string
	for _, q := range quotas {
		for _, l := range q.Limits {
			names = append(names, q.Name+"/"+l.Name)
		}
	}
	for _, text := range f.limits {
		name, value, _ := strings.Cut(text, "=")
		amount, err := strconv.ParseInt(value, 10, 64)
		if err != nil || amount < 0 {
			return usage("--limit %s: write it as POLICY/LIMIT=AMOUNT, such as gpt/rpm=500", text)
		}
		if !slices.Contains(names, name) {
			return usage("--limit %s: there is no such limit (have: %s)", text, strings.Join(names, ", "))
		}
		for i := range quotas {
			for k := range quotas[i].Limits {
				if l := &quotas[i].Limits[k]; quotas[i].Name+"/"+l.Name == name {
					if l.Burst == l.Amount {
						l.Burst = 0 // as the amount
					}
					l.Amount = amount
				}
			}
		}
	}
	return nil
}

// stamp is how instants are printed.
const stamp = "2006-01-02 15:04:05.000"

// printAudit prints what was found.
func (a *app) printAudit(r *audit.Report) {
	var hosts []string
	for _, run := range r.Runs {
		hosts = append(hosts, cmp.Or(run.Host, run.ID))
	}
	slices.Sort(hosts)
	a.printf("%s on %s, %s to %s UTC, %s\n", present.Count(len(r.Runs), "run"),
		strings.Join(slices.Compact(hosts), ", "), r.From.UTC().Format(stamp), r.Until.UTC().Format(stamp),
		count(r.Lines, "line"))
	a.printf("%s granted: %d settled, %d refunded, %d without an end; %d refused here, %d by a provider\n",
		count(r.Calls, "call"), r.Settled, r.Refunded, r.Unended, r.Refused, r.RefusalCount)
	for _, l := range r.Limits {
		a.printLimit(&l)
	}
	for _, x := range r.Refusals {
		a.printf("refused by the provider at %s: %s of %s, status %d, %s\n", x.At.UTC().Format(stamp), x.Model, x.Owner,
			x.Status, strings.TrimSpace(x.Meaning+" "+x.Unit))
	}
	for _, g := range r.Gaps {
		a.printf("gap: %s of run %s missing, %s to %s\n", count(g.Lines, "line"), g.Run, g.From.UTC().Format(stamp),
			g.Until.UTC().Format(stamp))
	}
	for _, gap := range []struct {
		n          int64
		noun, what string
	}{
		{r.Damaged, "line", "damaged"},
		{r.Orphans, "call", "ended without a beginning"},
		{r.Late, "call", "out of order: a clock was set back"},
		{r.Unknown, "call", "granted by none of these policies: limits were switched off, or a policy was renamed"},
	} {
		if gap.n > 0 {
			a.printf("gap: %s %s\n", count(gap.n, gap.noun), gap.what)
		}
	}
	if n := r.Uncounted - r.Unknown; n > 0 {
		a.printf("%s of models that none of the limits counts\n", count(n, "call"))
	}
	if len(r.Limits) == 0 && r.Calls > 0 {
		a.printf("no limit was judged: are these the limits of this ledger's gateway?\n")
		return
	}
	a.printf("%s\n", r.Verdict)
}

func count(n int64, noun string) string { return present.Count(int(n), noun) }

// printedEpisodes is how many episodes are printed per limit. --json has more.
const printedEpisodes = 5

func (a *app) printLimit(l *audit.LimitReport) {
	name := l.Owner + " " + l.Quota
	if l.Model != "" && l.Model != l.Quota {
		name += " " + l.Model
	}
	a.printf("%s/%s (%s): %s", name, l.Limit, l.Counts, l.Verdict)
	if l.Most.Units > 0 {
		a.printf("; worst window %s, %s to %s", between(l.Least.Units, l.Most.Units), l.Most.From.UTC().Format(stamp),
			l.Most.Until.UTC().Format(stamp))
	}
	if l.Allowed > 0 {
		a.printf("; %.1f%% of what whole windows allow was used", 100*l.Share)
	}
	if l.Refused > 0 {
		a.printf("; the provider refused %s", count(l.Refused, "call"))
	}
	if l.Unexplained > 0 {
		a.printf(", %d of them with room left by the ledger: does somebody else use this quota, or is the limit lower?",
			l.Unexplained)
	}
	a.printf("\n")
	for i, e := range l.Over {
		if i == printedEpisodes {
			a.printf("  and %d more times\n", l.Episodes-int64(i))
			break
		}
		how := "perhaps "
		if e.Certain {
			how = ""
		}
		a.printf("  %s%s, %s to %s\n", how, between(e.Least, e.Most), e.From.UTC().Format(stamp),
			e.Until.UTC().Format(stamp))
	}
}

// between is a number that is not known exactly.
func between(least, most int64) string {
	if least == most {
		return strconv.FormatInt(most, 10)
	}
	return fmt.Sprintf("%d to %d", least, most)
}
