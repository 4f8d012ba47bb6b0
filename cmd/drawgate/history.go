package main

import (
	"bufio"
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/client"
	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/internal/present"
	"github.com/drawgate/drawgate/store"
)

// historyFlags say which events are shown, and how.
type historyFlags struct {
	since, until time.Duration
	op, policy   string
	key, tenant  string
	anyKey       bool // key says nothing
	anyTenant    bool // tenant says nothing
	labels       []string
	last         int
	csv          bool
}

func (a *app) historyCmd() *cobra.Command {
	var f historyFlags
	cmd := &cobra.Command{
		Use:   "history",
		Short: "Show what was taken and settled, from the store's history",
		Long: `Show what was admitted, the oldest first: takes, what reservations that were settled have used (settle), those that were cancelled (cancel) or that nobody
ended (expire), what was used beyond an estimate (charge), and what was given back without a reservation (refund). UNITS are those that were admitted, used or
given back. Refusals are not in the history. What drawgate adjust changed is a charge or a refund with the label reason.

Only SQLite and PostgreSQL keep a history, for 35 days. The labels are those of the take: drawgate run --label, or "labels" of the HTTP API. With --server, name the
server's address for administrators.

With --json each event is one line. With --csv the first line has the names of the columns.`,
		Example: `  drawgate history --since 1h --label task=nightly
  drawgate history --since 7d --policy gpt --key team-a --op settle --csv > used.csv
  drawgate history --since 2d --until 1d --json
  drawgate history --last 20 --server http://` + defaultAdmin,
		Args: noArgs,
		RunE: action(func(cmd *cobra.Command, _ []string) error {
			f.anyKey, f.anyTenant = !cmd.Flags().Changed("key"), !cmd.Flags().Changed("tenant")
			f.tenant = a.tenant
			return a.history(cmd.Context(), &f)
		}),
	}
	durationVar(cmd, &f.since, "since", 24*time.Hour, "how far back to begin (90m, 7d)")
	durationVar(cmd, &f.until, "until", 0, "how far back to end")
	cmd.Flags().StringVar(&f.policy, "policy", "", "only those of this policy")
	cmd.Flags().StringVar(&f.key, "key", "", "only those of this key")
	cmd.Flags().StringVar(&f.op, "op", "", "only these: "+strings.Join(api.EventOps(), ", "))
	cmd.Flags().StringArrayVar(&f.labels, "label", nil,
		"NAME=VALUE: only those with this label; may be given several times")
	a.completePolicy(cmd)
	cmd.Flags().IntVar(&f.last, "last", 0, "only so many, the newest (default: all)")
	cmd.Flags().BoolVar(&f.csv, "csv", false, "print comma-separated values")
	return cmd
}

func (a *app) history(ctx context.Context, f *historyFlags) error {
	want, err := f.events()
	if err != nil {
		return err
	}
	if f.csv && a.json {
		return usage("give either --csv or --json")
	}
	read := a.historyHere
	if a.serverURL() != "" {
		read = a.historyRemote
	}
	out := bufio.NewWriter(a.out)
	w := a.historyWriter(out, f)
	some := false
	err = read(ctx, f, &want, func(e *api.Event) bool {
		some = true
		w.event(e)
		return ctx.Err() == nil
	})
	if err == nil {
		err = ctx.Err()
	}
	if err == nil || some { // a header alone would say that nothing was admitted
		w.end()
		_ = out.Flush() // nothing can be done if the output is closed
	}
	return err
}

// historyHere reads the history of this process's store.
func (a *app) historyHere(ctx context.Context, f *historyFlags, want *store.EventQuery,
	yield func(*api.Event) bool,
) error {
	s, err := a.open(true)
	if err != nil {
		return err
	}
	defer s.close()
	if s.empty {
		return usage("limits are switched off, and there are no policies: there is no history")
	}
	journal, ok := s.opened.(store.Journal)
	if _, sqlite := config.SQLitePath(s.Store); !ok && sqlite {
		return nil // there is no database yet, which was printed
	}
	if !ok {
		return usage("this store keeps no history: only SQLite and PostgreSQL do")
	}
	newest := present.Newest{Most: f.last}
	show := func(e *store.Event) bool {
		w := present.Event(e)
		return yield(&w)
	}
	err = journal.Read(ctx, *want, func(e store.Event) bool {
		if f.last == 0 {
			return show(&e)
		}
		newest.Add(&e)
		return ctx.Err() == nil
	})
	if err == nil {
		newest.All(show)
	}
	return err
}

// historyRemote reads the history of a server's store.
func (a *app) historyRemote(ctx context.Context, f *historyFlags, want *store.EventQuery,
	yield func(*api.Event) bool,
) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	defer c.Close()
	q := client.HistoryQuery{
		Since: want.From, Until: want.To, Policy: want.Policy, Op: want.Op, Tenant: want.Tenant, Key: want.Key,
		Labels: f.labels, Last: f.last,
	}
	for e, err := range c.History(ctx, q) {
		if err != nil {
			return adminError(err)
		}
		if !yield(&e) {
			break
		}
	}
	return nil
}

// events checks the flags, and returns which events they want.
func (f *historyFlags) events() (want store.EventQuery, err error) {
	switch {
	case f.since < 0 || f.until < 0:
		return want, usage("--since %v and --until %v must not be negative", f.since, f.until)
	case f.since <= f.until:
		return want, usage("--since %v is not before --until %v: nothing lies between them", f.since, f.until)
	case f.op != "" && !slices.Contains(api.EventOps(), f.op):
		return want, usage("--op %q is not one of %s", f.op, strings.Join(api.EventOps(), ", "))
	case f.last < 0 || f.last > api.MaxLast:
		return want, usage("--last %d is not between 1 and %d", f.last, api.MaxLast)
	}
	now := time.Now()
	want = store.EventQuery{From: now.Add(-f.since), Policy: f.policy, Op: f.op}
	if f.until > 0 {
		want.To = now.Add(-f.until)
	}
	if !f.anyKey {
		want.Key = &f.key
	}
	if !f.anyTenant {
		want.Tenant = &f.tenant
	}
	want.Labels, err = parseLabels(f.labels)
	return want, err
}

// historyWriter prints events.
type historyWriter interface {
	event(e *api.Event)
	end()
}

func (a *app) historyWriter(out io.Writer, f *historyFlags) historyWriter {
	switch {
	case a.json:
		return historyJSON{&app{out: out}}
	case f.csv:
		w := historyCSV{csv.NewWriter(out)}
		_ = w.Write(historyColumns)
		return w
	}
	t := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "AT\tOP\tPOLICY\tKEY\tUNITS\tLABELS\tID")
	return historyTable{t}
}

type historyJSON struct{ a *app }

func (w historyJSON) event(e *api.Event) { w.a.printJSON(e) }

func (historyJSON) end() {}

var historyColumns = []string{"at", "op", "policy", "tenant", "key", "units", "labels", "id"}

type historyCSV struct{ *csv.Writer }

func (w historyCSV) event(e *api.Event) {
	cells := []string{
		e.At.UTC().Format(time.RFC3339Nano), e.Op, e.Policy, e.Tenant, e.Key, pairs(e.Units),
		pairs(e.Labels), e.ID,
	}
	for i := range cells {
		cells[i] = noFormula(cells[i])
	}
	_ = w.Write(cells)
}

// noFormula puts an apostrophe in front of a cell that a spreadsheet would take for a formula, and
// of one that begins with an apostrophe. Anybody may have chosen a key or a label.
func noFormula(cell string) string {
	if cell == "" || !strings.ContainsRune("=@+-'\t\r\n", rune(cell[0])) {
		return cell
	}
	if _, err := strconv.ParseFloat(cell, 64); err == nil && strings.Trim(cell, "+-.0123456789") == "" {
		return cell
	}
	return "'" + cell
}

func (w historyCSV) end() { w.Flush() }

type historyTable struct{ *tabwriter.Writer }

func (w historyTable) event(e *api.Event) {
	key := e.Key
	if e.Tenant != "" {
		key = e.Tenant + "/" + key
	}
	cells := []string{present.Clock(e.At), e.Op, e.Policy, key, pairs(e.Units), pairs(e.Labels), e.ID}
	for i := range cells {
		if cells[i] = present.Escape(cells[i], ""); cells[i] == "" {
			cells[i] = "-"
		}
	}
	_, _ = fmt.Fprintln(w, strings.Join(cells, "\t"))
}

func (w historyTable) end() { _ = w.Flush() }

// pairs writes a map as NAME=VALUE, sorted by name.
func pairs[V int64 | string](m map[string]V) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		list = append(list, fmt.Sprintf("%s=%v", name, m[name]))
	}
	return strings.Join(list, " ")
}
