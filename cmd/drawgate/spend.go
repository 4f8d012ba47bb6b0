package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/client"
	"github.com/drawgate/drawgate/internal/present"
	"github.com/drawgate/drawgate/spend"
)

// spendFlags say what is wanted of what calls spent, and how it is shown.
type spendFlags struct {
	from, to, month            string
	by                         []string
	team, key, upstream, model string
	csv                        bool
	check                      []string
}

func (a *app) spendCmd() *cobra.Command {
	var f spendFlags
	cmd := &cobra.Command{
		Use:   "spend",
		Short: "Show what calls of the gateway spent, by day, team, key, upstream and model",
		Long: `Show what calls to LLM providers used and cost, as the gateways counted them in their store: all that share it, since at most 366 days. Without a day it is this month.

A call counts on the day on which it began, in the zone of the setting gateway.spend. OPEN is the most that calls which are under way can cost; a call whose process
died counts as the most that it can have used. Versions of a model count together, as they do at the provider.

With --server, name the server's address for administrators.

--check LEDGER compares the store with a ledger (the folder of the setting gateway.ledger, or one of its files; name those of all gateways). Calls whose end
is in no ledger are listed: they are under way, or their process died, and then they are in the store as what they reserved. Where a meter differs, so are calls that may
be why: they ended before their process was killed, or while the store was away, or it did not answer them.

Exit codes of --check:
  0   what was spent is what the ledgers say
  1   it differs
  64  the command line is wrong
  69  the store does not answer
  78  the ledgers cannot be read, or nothing counts what calls spend`,
		Example: `  drawgate spend
  drawgate spend --month 2026-10 --by team
  drawgate spend --from 2026-11-01 --to 2026-11-15 --team search --by day,model --csv > spend.csv
  drawgate spend --server http://` + defaultAdmin + ` --json
  drawgate spend --from 2026-11-27 --check /var/lib/drawgate/ledger`,
		Args: noArgs,
		RunE: action(func(cmd *cobra.Command, _ []string) error { return a.spend(cmd, &f) }),
	}
	cmd.Flags().StringVar(&f.from, "from", "", "the first day, such as 2026-11-01")
	cmd.Flags().StringVar(&f.to, "to", "", "the last day (default today)")
	cmd.Flags().StringVar(&f.month, "month", "", "all days of a month, such as 2026-11")
	cmd.Flags().StringSliceVar(&f.by, "by", []string{"team", "key", "upstream", "model"},
		"what rows tell apart: "+strings.Join(present.SpendFields, ", ")+`; "" for one row in all`)
	cmd.Flags().StringVar(&f.team, "team", "", `only of this team; "" for keys without one`)
	cmd.Flags().StringVar(&f.key, "key", "", "only of this virtual key, by name")
	cmd.Flags().StringVar(&f.upstream, "upstream", "", "only of this upstream")
	cmd.Flags().StringVar(&f.model, "model", "", "only of this model")
	cmd.Flags().BoolVar(&f.csv, "csv", false, "print comma-separated values")
	cmd.Flags().StringArrayVar(&f.check, "check", nil, "compare with this ledger; may be given several times")
	return cmd
}

// query returns what the flags want. A day that is not given is empty.
func (f *spendFlags) query(cmd *cobra.Command) (q client.SpendQuery, err error) {
	q = client.SpendQuery{From: f.from, To: f.to, By: slices.DeleteFunc(f.by, func(s string) bool { return s == "" })}
	for name, value := range map[string]struct {
		text string
		to   **string
	}{
		"team": {f.team, &q.Team}, "key": {f.key, &q.Key}, "upstream": {f.upstream, &q.Upstream},
		"model": {f.model, &q.Model},
	} {
		if cmd.Flags().Changed(name) {
			*value.to = &value.text
		}
	}
	if f.month == "" {
		return q, nil
	}
	first, err := time.Parse("2006-01", f.month)
	if err != nil || f.from != "" || f.to != "" {
		return q, usage("--month %s: write a month such as 2026-11, without --from and --to", f.month)
	}
	q.From, q.To = first.Format(time.DateOnly), first.AddDate(0, 1, -1).Format(time.DateOnly)
	return q, nil
}

func (a *app) spend(cmd *cobra.Command, f *spendFlags) error {
	q, err := f.query(cmd)
	if err != nil {
		return err
	}
	if f.csv && a.json {
		return usage("give either --csv or --json")
	}
	if a.tenant != "" {
		return usage("--tenant %s: keys and teams of the gateway belong to no tenant", a.tenant)
	}
	if len(f.check) > 0 {
		for _, name := range [...]string{"by", "team", "key", "upstream", "model", "csv"} {
			if cmd.Flags().Changed(name) {
				return usage("--check compares all meters of the days: leave out --%s", name)
			}
		}
		return a.checkSpend(cmd.Context(), &q, f.check)
	}
	var s api.SpendAnswer
	if a.serverURL() != "" {
		s, err = a.spendRemote(cmd.Context(), q)
	} else {
		s, err = a.spendHere(cmd.Context(), &q)
	}
	if err != nil {
		return err
	}
	switch {
	case a.json:
		a.printJSON(&s)
	case f.csv:
		writeSpendCSV(a.out, &s)
	default:
		a.printSpend(&s, &q)
	}
	return nil
}

func (a *app) spendRemote(ctx context.Context, q client.SpendQuery) (s api.SpendAnswer, err error) {
	c, err := a.client()
	if err != nil {
		return s, err
	}
	defer c.Close()
	s, err = c.Spend(ctx, q)
	if err != nil {
		err = adminError(err)
	}
	return s, err
}

// spendHere reads the meters of this process's store.
func (a *app) spendHere(ctx context.Context, q *client.SpendQuery) (none api.SpendAnswer, err error) {
	s, err := a.open(true)
	if err != nil {
		return none, err
	}
	defer s.close()
	p, err := s.spendQuery(q)
	if err != nil {
		return none, err
	}
	money, zone := s.spends()
	rows, err := spend.Read(ctx, s.opened, money, p.First, p.Last, "")
	if err != nil {
		return none, spendError(err)
	}
	return present.Spend(rows, p, zone, money), nil
}

// spends returns the unit of money, and the zone of the days.
func (s *session) spends() (money string, zone *time.Location) {
	return s.Gateway.Money(), s.Gateway.Spend.Location()
}

// spendQuery reads the days of a query.
func (s *session) spendQuery(q *client.SpendQuery) (*present.SpendQuery, error) {
	if len(s.Gateway.Upstreams) == 0 || s.empty {
		return nil, &exitError{exitConfig, errors.New("nothing counts what calls spend: the file given by --config needs the section gateway")}
	}
	_, zone := s.spends()
	p := &present.SpendQuery{By: q.By, Team: q.Team, Key: q.Key, Upstream: q.Upstream, Model: q.Model}
	p.First, p.Last = present.ThisMonth(time.Now().In(zone))
	for _, day := range [...]struct {
		flag, text string
		to         *time.Time
	}{{"--from", q.From, &p.First}, {"--to", q.To, &p.Last}} {
		if day.text == "" {
			continue
		}
		t, err := present.SpendDay(day.text)
		if err != nil {
			return nil, usage("%s: %v", day.flag, err)
		}
		*day.to = t
	}
	if err := p.Check(); err != nil {
		return nil, usage("%v", err)
	}
	return p, nil
}

func spendError(err error) error {
	if err != nil {
		return &exitError{exitUnavailable, err}
	}
	return nil
}

// spendCells returns the fields by which a row is told apart.
func spendCells(r *api.SpendRow, by []string) (cells []string) {
	for i, v := range [...]string{r.Day, r.Team, r.Key, r.Upstream, r.Model} {
		if slices.Contains(by, present.SpendFields[i]) {
			cells = append(cells, v)
		}
	}
	return cells
}

// printSpend prints a table. Columns in which nothing was used are left out.
func (a *app) printSpend(s *api.SpendAnswer, q *client.SpendQuery) {
	by := q.By
	if len(s.Rows) == 0 {
		only := ""
		if q.Team != nil || q.Key != nil || q.Upstream != nil || q.Model != nil {
			only = " of what the flags name: leave them out to see which names there are"
		}
		a.printf("nothing was spent from %s to %s (%s)%s\n", s.From, s.To, s.Zone, only)
		return
	}
	columns := spendColumns(s)
	t := tabwriter.NewWriter(a.out, 0, 8, 2, ' ', 0)
	var head []string
	for _, name := range present.SpendFields {
		if slices.Contains(by, name) {
			head = append(head, strings.ToUpper(name))
		}
	}
	for _, c := range columns {
		head = append(head, c.name)
	}
	_, _ = fmt.Fprintln(t, strings.Join(head, "\t"))
	for i := range s.Rows {
		r := &s.Rows[i]
		cells := spendCells(r, by)
		for k := range cells {
			if cells[k] = present.Escape(cells[k], ""); cells[k] == "" {
				cells[k] = "-"
			}
		}
		for _, c := range columns {
			cells = append(cells, c.cell(r))
		}
		_, _ = fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	_ = t.Flush() // nothing can be done if the output is closed
}

// spendColumn is an amount of a row.
type spendColumn struct {
	name string
	of   func(r *api.SpendRow) int64
	cost bool
}

func (c *spendColumn) cell(r *api.SpendRow) string {
	if c.cost {
		return present.Micros(c.of(r))
	}
	return strconv.FormatInt(c.of(r), 10)
}

// spendColumns returns the columns in which some row has something.
func spendColumns(s *api.SpendAnswer) []spendColumn {
	all := []spendColumn{
		{"REQUESTS", func(r *api.SpendRow) int64 { return r.Used.Requests }, false},
		{"PROMPT", func(r *api.SpendRow) int64 { return r.Used.PromptTokens }, false},
		{"ANSWER", func(r *api.SpendRow) int64 { return r.Used.AnswerTokens }, false},
		{strings.ToUpper(s.Currency), func(r *api.SpendRow) int64 { return r.Used.CostMicros }, true},
		{"UNDER WAY", func(r *api.SpendRow) int64 { return r.Open.Requests }, false},
		{"OPEN " + strings.ToUpper(s.Currency), func(r *api.SpendRow) int64 { return r.Open.CostMicros }, true},
	}
	return slices.DeleteFunc(all, func(c spendColumn) bool {
		return !slices.ContainsFunc(s.Rows, func(r api.SpendRow) bool { return c.of(&r) > 0 })
	})
}

// writeSpendCSV writes every field.
func writeSpendCSV(out io.Writer, s *api.SpendAnswer) {
	w := csv.NewWriter(out)
	_ = w.Write(append(slices.Clone(present.SpendFields), "requests", "prompt_tokens", "answer_tokens",
		"cost", "currency", "open_requests", "open_cost"))
	for i := range s.Rows {
		r := &s.Rows[i]
		cells := []string{r.Day, r.Team, r.Key, r.Upstream, r.Model}
		for k := range cells {
			cells[k] = noFormula(cells[k])
		}
		for _, n := range [...]int64{
			r.Used.Requests, r.Used.PromptTokens, r.Used.AnswerTokens,
		} {
			cells = append(cells, strconv.FormatInt(n, 10))
		}
		cost, open := "", "" // without prices it is not known
		if s.Currency != "" {
			cost, open = present.Micros(r.Used.CostMicros), present.Micros(r.Open.CostMicros)
		}
		_ = w.Write(append(cells, cost, s.Currency, strconv.FormatInt(r.Open.Requests, 10), open))
	}
	w.Flush()
}
