package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/credit"
	"github.com/drawgate/drawgate/internal/money"
	"github.com/drawgate/drawgate/internal/present"
)

// creditFlags name a prepaid budget, and what is added to it.
type creditFlags struct {
	policy, limit, id, by, reason string
	isNew                         bool
}

func (a *app) keyCreditCmd() *cobra.Command {
	var f creditFlags
	cmd := &cobra.Command{
		Use:   "credit NAME AMOUNT --reason TEXT",
		Short: "Add to a prepaid budget",
		Long: `Add to a prepaid budget: a limit with "calendar: total", whose amount does not come back. NAME is the key of the bucket that counts it, as the rule says: of a
virtual key, or of a team. AMOUNT is in the unit of the limit; money is in the currency, such as 250.00, and no smaller than a millionth of it.

A NAME that no key, team, user or class of the gateway has, in the file or the store, is refused if its budget was neither credited nor used so far: it is probably
misspelt. If the rules count the budget by attr("team"), it must be a team; by attr("key"), a key. --new takes it as it is. Without a gateway in the file nobody knows which names there are.

A credit has an id. If the command fails, or nobody knows whether it succeeded, run it again with the same --id: it is added once. Servers and gateways see it within
five seconds.

Who gave it (the user who runs the command, unless --by says another name), when and why are kept in the store: see "drawgate key credits".`,
		Example: `  drawgate key credit search 250.00 --reason "invoice 4711" --id 4711
  drawgate key credit alice 1000000 --policy trial --limit tokens --reason "a trial"`,
		Args: cobra.ExactArgs(2),
		RunE: action(func(cmd *cobra.Command, args []string) error {
			if f.reason == "" {
				return usage("--reason is missing: why it is credited, for whoever reads the list")
			}
			return a.credit(cmd, &f, args[0], args[1])
		}),
	}
	a.creditFlags(cmd, &f)
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { // -5 looks like a flag
		if none, ok := errors.AsType[*pflag.NotExistError](err); ok && negative(none.GetSpecifiedShortnames()) {
			return errNegative
		}
		return plainFlagError(err)
	})
	cmd.Flags().StringVar(&f.id, "id", "", "id of the credit, which counts once (default: a random one, which is printed)")
	cmd.Flags().StringVar(&f.by, "by", "", "who credits it (default: the user who runs the command)")
	cmd.Flags().StringVar(&f.reason, "reason", "", "why, for people: at most 200 bytes")
	cmd.Flags().BoolVar(&f.isNew, "new", false, "NAME is meant, although the gateway has no key, team, user or class of that name")
	return cmd
}

func (a *app) keyCreditsCmd() *cobra.Command {
	var f creditFlags
	cmd := &cobra.Command{
		Use:   "credits NAME",
		Short: "List what was added to a prepaid budget",
		Long: `List what was added to a prepaid budget: when, by whom, how much and why, the oldest first; and what is used and left. NAME is as in "drawgate key
credit".`,
		Example: `  drawgate key credits search
  drawgate key credits alice --policy trial --limit tokens --json`,
		Args: cobra.ExactArgs(1),
		RunE: action(func(cmd *cobra.Command, args []string) error { return a.credits(cmd, &f, args[0]) }),
	}
	a.creditFlags(cmd, &f)
	return cmd
}

func (a *app) creditFlags(cmd *cobra.Command, f *creditFlags) {
	cmd.Flags().StringVar(&f.policy, "policy", "", "policy of the budget (default: the only one that has a prepaid limit)")
	cmd.Flags().StringVar(&f.limit, "limit", "", "name of the limit (default: the only prepaid one of the policy)")
	a.completePolicy(cmd)
}

// prepaid is a prepaid budget of one key, and the store that it is in.
type prepaid struct {
	*session

	account  credit.Account
	unit     string
	currency string // of money; "" for other units
}

// prepaid opens the store, and finds the budget that is meant.
func (a *app) prepaid(f *creditFlags, key string, looks bool) (*prepaid, error) {
	if a.serverURL() != "" {
		return nil, usage("credits are kept in the store: name it with --config or --store, and leave out --server and $DRAWGATE_SERVER")
	}
	if key == "" || len(key) > drawgate.MaxKey {
		return nil, usage("NAME has 1 to %d bytes", drawgate.MaxKey)
	}
	s, err := a.open(looks)
	if err != nil {
		return nil, err
	}
	p := &prepaid{session: s}
	if s.empty || s.Off {
		err = usage("limits are switched off: there is no prepaid budget")
	} else {
		err = p.find(f, key)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return p, nil
}

// find finds the limit that is meant: of the policies that have a prepaid one.
func (p *prepaid) find(f *creditFlags, key string) error {
	var have []string
	for _, info := range p.engine.Policies() {
		for i := range info.Policy.Limits {
			l := &info.Policy.Limits[i]
			if l.Every != drawgate.Total || f.policy != "" && f.policy != info.Name ||
				f.limit != "" && f.limit != l.Name {
				continue
			}
			have = append(have, info.Name+"."+l.Name)
			p.account = credit.Account{
				Policy: info.Name, Limit: l.Name, Tenant: p.tenant, Key: drawgate.BoundedKey(key),
			}
			p.unit = cmp.Or(l.Unit, drawgate.UnitRequests)
			p.currency, _ = money.Currency(p.unit)
		}
	}
	switch {
	case len(have) == 0:
		return usage("no limit with calendar: total fits: name the file that has the policy with --config (or $DRAWGATE_CONFIG), and check --policy and --limit")
	case len(have) > 1:
		return usage("there are several prepaid budgets: name one of %s with --policy and --limit", strings.Join(have, ", "))
	}
	return nil
}

// status returns what is used of the budget, and left.
func (p *prepaid) status(ctx context.Context) (used, left int64, err error) {
	ask, err := p.engine.Ask(p.account.Policy, p.account.Tenant, p.account.Key)
	if err != nil {
		return 0, 0, err
	}
	st, err := ask.Status(ctx, drawgate.MaxPriority)
	if err != nil {
		return 0, 0, err
	}
	if st.Fallback {
		return 0, 0, fmt.Errorf("%w: what is used cannot be read now", drawgate.ErrStoreUnavailable)
	}
	limits := ask.Limiter.Plan().Policy().Limits
	i := slices.IndexFunc(limits, func(l drawgate.Limit) bool { return l.Name == p.account.Limit })
	return st.States[i].Used, max(0, st.States[i].Max-st.States[i].Used), nil
}

var errNegative = usage("an amount is not negative: to take back a credit, count it as used: drawgate adjust --policy POLICY --key NAME --used N, in the unit of the limit")

// negative reports whether what follows a minus is a number.
func negative(text string) bool {
	return text != "" && (text[0] == '.' || text[0] >= '0' && text[0] <= '9')
}

// millionths is how many decimals an amount of money has.
const millionths = 6

// parse reads an amount: of money in the currency, exactly.
func (p *prepaid) parse(text string) (int64, error) {
	if positive, ok := strings.CutPrefix(text, "-"); ok && negative(positive) {
		return 0, errNegative
	}
	whole, part, point := strings.Cut(text, ".")
	decimals := 0
	if p.currency != "" {
		decimals = millionths
	}
	digits := whole + part + strings.Repeat("0", max(0, decimals-len(part)))
	notDigit := func(r rune) bool { return r < '0' || r > '9' }
	if whole == "" || point && part == "" || len(part) > decimals || strings.ContainsFunc(whole+part, notDigit) {
		if p.currency != "" {
			return 0, usage("the amount %q is not one in %s, such as 250.00, with at most %d decimals", text, p.currency, decimals)
		}
		return 0, usage("the amount %q is not a whole number of %s", text, p.unit)
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 1 || n > drawgate.MaxAmount {
		return 0, usage("the amount %q is not between %s and %s", text, p.show(1), p.show(drawgate.MaxAmount))
	}
	return n, nil
}

// show writes an amount as parse reads it, with its unit.
func (p *prepaid) show(n int64) string {
	return money.Text(n, p.unit)
}

// creditAnswer is a credit as JSON. Amounts are in the limit's unit.
type creditAnswer struct {
	Policy   string    `json:"policy"`
	Limit    string    `json:"limit"`
	Key      string    `json:"key"`
	Unit     string    `json:"unit"`
	ID       string    `json:"id"`
	Amount   int64     `json:"amount"`
	At       time.Time `json:"at"`
	By       string    `json:"by"`
	Reason   string    `json:"reason"`
	Again    bool      `json:"again"` // it was credited before: nothing was added now
	Credited int64     `json:"credited"`
	Left     int64     `json:"left"`
}

func (a *app) credit(cmd *cobra.Command, f *creditFlags, key, amount string) error {
	p, err := a.prepaid(f, key, false) // a credit is stored, so the database is created if there is none
	if err != nil {
		return err
	}
	defer p.close()
	a.caution(&p.settings)
	c := credit.Credit{ID: cmp.Or(f.id, rand.Text()), At: time.Now(), By: cmp.Or(f.by, whoami()), Reason: f.reason}
	if c.N, err = p.parse(amount); err != nil {
		return err
	}
	if !f.isNew {
		if err := p.checkName(cmd.Context(), key); err != nil {
			return err
		}
	}
	sum, again, err := p.account.Give(cmd.Context(), p.opened, &c)
	switch {
	case errors.Is(err, credit.ErrOther):
		return usage("%s (in %s): give this credit another --id", strings.TrimPrefix(err.Error(), "credit: "), p.unit)
	case errors.Is(err, credit.ErrInvalid), errors.Is(err, credit.ErrTooMuch):
		return usage("%s", strings.TrimPrefix(err.Error(), "credit: "))
	case err != nil:
		return fmt.Errorf("it is not known whether this was credited: run it again with --id %s: %w", c.ID, err)
	}
	_, left, err := p.status(cmd.Context())
	if err != nil {
		return err
	}
	if a.json {
		a.printJSON(creditAnswer{
			p.account.Policy, p.account.Limit, key, p.unit, c.ID, c.N, c.At.UTC(), c.By, c.Reason, again, sum, left,
		})
		return nil
	}
	word := "credited"
	if again {
		word = "nothing was added, because this id has been credited before:"
	}
	a.printf("%s %s to key %s of policy %s: %s credited in all, %s are left\n", word, p.show(c.N), key, p.account.Policy, p.show(sum),
		p.show(left))
	if f.id == "" {
		a.printf("id %s\n", c.ID)
	}
	return nil
}

// creditsAnswer is the list of credits as JSON.
type creditsAnswer struct {
	Policy   string         `json:"policy"`
	Limit    string         `json:"limit"`
	Key      string         `json:"key"`
	Unit     string         `json:"unit"`
	Credits  []creditListed `json:"credits"`
	Credited int64          `json:"credited"`
	Used     int64          `json:"used"`
	Left     int64          `json:"left"`
}

type creditListed struct {
	ID     string    `json:"id"`
	Amount int64     `json:"amount"`
	At     time.Time `json:"at"`
	By     string    `json:"by"`
	Reason string    `json:"reason"`
}

func (a *app) credits(cmd *cobra.Command, f *creditFlags, key string) error {
	p, err := a.prepaid(f, key, true)
	if err != nil {
		return err
	}
	defer p.close()
	list, sum, err := p.account.List(cmd.Context(), p.opened)
	if err != nil {
		return err
	}
	used, left, err := p.status(cmd.Context())
	if err != nil {
		return err
	}
	if a.json {
		out := creditsAnswer{p.account.Policy, p.account.Limit, key, p.unit, []creditListed{}, sum, used, left}
		for _, c := range list {
			out.Credits = append(out.Credits, creditListed{c.ID, c.N, c.At, c.By, c.Reason})
		}
		a.printJSON(out)
		return nil
	}
	t := tabwriter.NewWriter(a.out, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "CREDITED\tAMOUNT\tBY\tREASON\tID")
	for _, c := range list {
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", present.Clock(c.At), p.show(c.N), present.Escape(c.By, ""),
			present.Escape(c.Reason, ""), present.Escape(c.ID, ""))
	}
	_ = t.Flush() // nothing can be done if the output is closed
	a.printf("%s credited in all, %s are used, %s are left\n", p.show(sum), p.show(used), p.show(left))
	return nil
}

// whoami returns the name of the user who runs the command.
func whoami() string {
	name := os.Getenv("USER")
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	return cmp.Or(name[:min(len(name), credit.MaxBy)], "unknown")
}
