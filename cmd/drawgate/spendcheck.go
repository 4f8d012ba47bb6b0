package main

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/audit"
	"github.com/drawgate/drawgate/client"
	"github.com/drawgate/drawgate/internal/present"
	"github.com/drawgate/drawgate/spend"
)

// spendCheck is what a comparison with ledgers found.
type spendCheck struct {
	From        string        `json:"from"`
	To          string        `json:"to"`
	Calls       int64         `json:"calls"`         // of these days, in the ledgers
	OtherCalls  int64         `json:"other_calls"`   // that tell no key
	MissingLine int64         `json:"missing_lines"` // of the ledgers
	Unended     []unendedCall `json:"unended"`
	// that ended shortly before their process was killed, or while the store was away until then,
	// of meters that do not have what some of these used
	Doubtful    []unendedCall     `json:"doubtful"`
	Differences []spendDifference `json:"differences"`
}

// spendDifference is a meter that does not have what the ledgers say.
type spendDifference struct {
	Day      string         `json:"day"`
	Team     string         `json:"team"`
	Key      string         `json:"key"`
	Upstream string         `json:"upstream"`
	Model    string         `json:"model"`
	Store    api.SpendUnits `json:"store"`   // of calls that have ended, as it counted them
	Ledgers  api.SpendUnits `json:"ledgers"` // of these, as the ledgers say
	Unended  api.SpendUnits `json:"unended"` // what calls reserved whose end no ledger tells
}

// unendedCall is a call whose end no ledger tells.
type unendedCall struct {
	Run     string           `json:"run"`
	Call    uint64           `json:"call"`
	Host    string           `json:"host,omitempty"`
	Granted time.Time        `json:"granted"`
	Of      whose            `json:"of"`
	Units   map[string]int64 `json:"reserved"`
	// the store may have nothing of it: it was away, or the process was killed before it heard the
	// answer
	Uncertain bool `json:"uncertain,omitempty"`
}

// whose says which meter counts a call.
type whose struct {
	Day      string `json:"day"`
	Team     string `json:"team"`
	Key      string `json:"key"`
	Upstream string `json:"upstream"`
	Model    string `json:"model"`
}

// checkSpend compares the store with ledgers.
func (a *app) checkSpend(ctx context.Context, q *client.SpendQuery, ledgers []string) error {
	if a.serverURL() != "" {
		return usage("--check reads the store itself: leave out --server")
	}
	s, err := a.open(true)
	if err != nil {
		return err
	}
	defer s.close()
	p, err := s.spendQuery(q)
	if err != nil {
		return err
	}
	money, zone := s.spends()
	reported, err := audit.Spending(ctx, ledgers, func(t time.Time) string { return t.In(zone).Format(time.DateOnly) })
	if err != nil {
		return &exitError{exitConfig, err}
	}
	rows, err := spend.Read(ctx, s.opened, money, p.First, p.Last, "")
	if err != nil {
		return spendError(err)
	}
	c := spendCheck{
		From: p.First.Format(time.DateOnly), To: p.Last.Format(time.DateOnly), Calls: reported.Calls,
		OtherCalls:  reported.Others,
		MissingLine: reported.Missing, Unended: []unendedCall{}, Doubtful: []unendedCall{},
		Differences: []spendDifference{},
	}
	reported.Between(c.From, c.To)
	for i := range reported.Unended {
		c.Unended = append(c.Unended, unended(&reported.Unended[i]))
	}
	differ, doubtful := spend.Compare(rows, reported, money)
	for i := range reported.Doubtful {
		d := &reported.Doubtful[i]
		if doubtful[spend.Meter(d.Spender)] {
			c.Doubtful = append(c.Doubtful, unended(&d.Unended))
		}
	}
	for _, d := range differ {
		c.Differences = append(c.Differences, spendDifference{
			d.Day, d.Team, d.Key, d.Upstream, d.Model, present.SpendUnits(&d.Counted), present.SpendUnits(&d.Reported),
			present.SpendUnits(&d.Unended),
		})
	}
	if a.json {
		a.printJSON(&c)
	} else {
		a.printSpendCheck(&c)
	}
	if len(c.Differences) > 0 {
		return done(exitOver)
	}
	return nil
}

func unended(u *audit.Unended) unendedCall {
	c := unendedCall{
		Run: u.Run, Call: u.Call, Host: u.Host, Granted: u.Granted, Units: map[string]int64{},
		Of: whose(u.Spender), Uncertain: u.Uncertain,
	}
	for _, n := range u.Reserved {
		c.Units[n.Unit] += n.N
	}
	return c
}

func (a *app) printSpendCheck(c *spendCheck) {
	a.printf("from %s to %s: %d calls in the ledgers\n", c.From, c.To, c.Calls)
	if c.OtherCalls > 0 {
		a.printf("%d calls tell no key, and were left out\n", c.OtherCalls)
	}
	if c.MissingLine > 0 {
		a.printf("%d lines of the ledgers are missing: the store may have more than they say\n", c.MissingLine)
	}
	a.printCalls("whose end no ledger tells: under way, or counted as what they reserved unless the store was away",
		c.Unended)
	a.printCalls("that the store may not have heard the end of: it has what each of these used, or what it reserved, or both, or nothing",
		c.Doubtful)
	if len(c.Differences) == 0 {
		of := ""
		if len(c.Doubtful) > 0 {
			of = "for all other calls "
		}
		a.printf("%sthe store has what the ledgers say\n", of)
		return
	}
	a.printf("what the store has for %s is not what the ledgers say:\n", count(int64(len(c.Differences)), "meter"))
	t := tabwriter.NewWriter(a.out, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "  DAY\tTEAM\tKEY\tUPSTREAM\tMODEL\t\tREQUESTS\tPROMPT\tANSWER\tCOST")
	for i := range c.Differences {
		d := &c.Differences[i]
		for _, line := range [...]struct {
			what string
			u    *api.SpendUnits
		}{{"store", &d.Store}, {"ledgers", &d.Ledgers}, {"not ended", &d.Unended}} {
			_, _ = fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%s\n", d.Day, cellOf(d.Team), cellOf(d.Key),
				cellOf(d.Upstream), cellOf(d.Model), line.what, line.u.Requests, line.u.PromptTokens,
				line.u.AnswerTokens, present.Micros(line.u.CostMicros))
		}
	}
	_ = t.Flush()
}

// printCalls prints a table of calls.
func (a *app) printCalls(which string, calls []unendedCall) {
	if len(calls) == 0 {
		return
	}
	a.printf("%s %s:\n", count(int64(len(calls)), "call"), which)
	t := tabwriter.NewWriter(a.out, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "  RUN\tCALL\tGRANTED\tTEAM\tKEY\tUPSTREAM\tMODEL\tRESERVED")
	for _, u := range calls {
		reserved := pairs(u.Units)
		if u.Uncertain {
			reserved += ", or nothing"
		}
		_, _ = fmt.Fprintf(t, "  %s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\n", u.Run, u.Call, u.Granted.Format(stamp),
			cellOf(u.Of.Team), cellOf(u.Of.Key), cellOf(u.Of.Upstream), cellOf(u.Of.Model), reserved)
	}
	_ = t.Flush() // nothing can be done if the output is closed
}

// cellOf returns a name as a cell of a table.
func cellOf(name string) string {
	if name = present.Escape(name, ""); name == "" {
		return "-"
	}
	return name
}
