package main

import (
	"bufio"
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/present"
)

// historyFlags say which events are shown, and how.
type historyFlags struct {
	since, until time.Duration
	op, policy   string
	key, tenant  string
	anyKey       bool // key says nothing
	anyTenant    bool // tenant says nothing
	labels       []string
	csv          bool
}

func (a *app) historyCmd() *cobra.Command {
	var f historyFlags
	cmd := &cobra.Command{
		Use:   "history",
		Short: "Show what was taken and settled, from the store's history",
		Long: `Show what was admitted, the oldest first: takes, what reservations that were settled have used (settle), those that were cancelled (cancel) or that nobody
ended (expire), what was used beyond an estimate (charge), and what was given back without a reservation (refund). UNITS are those that were admitted, used or
given back. Refusals are not in the history.

Only the SQLite store keeps a history, for 35 days. The labels are those of the take: drawgate run --label, or "labels" of the HTTP API.

With --json each event is one line. With --csv the first line has the names of the columns.`,
		Example: `  drawgate history --since 1h --label task=nightly
  drawgate history --since 7d --policy gpt --key team-a --op settle --csv > used.csv
  drawgate history --since 2d --until 1d --json`,
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
	cmd.Flags().StringVar(&f.op, "op", "", "only these: "+strings.Join(historyOps, ", "))
	cmd.Flags().StringArrayVar(&f.labels, "label", nil, "NAME=VALUE: only those with this label; may be given several times")
	a.completePolicy(cmd)
	cmd.Flags().BoolVar(&f.csv, "csv", false, "print comma-separated values")
	return cmd
}

var historyOps = []string{"take", "settle", "cancel", "charge", "refund", "expire"}

// past is an event as JSON.
type past struct {
	At     time.Time         `json:"at"`
	Op     string            `json:"op"`
	Policy string            `json:"policy"`
	Tenant string            `json:"tenant,omitempty"`
	Key    string            `json:"key"`
	ID     string            `json:"id,omitempty"`
	Units  map[string]int64  `json:"units"`
	Labels map[string]string `json:"labels,omitempty"`
}

func (a *app) history(ctx context.Context, f *historyFlags) error {
	labels, err := f.check()
	if err != nil {
		return err
	}
	if f.csv && a.json {
		return usage("give either --csv or --json")
	}
	if a.serverURL() != "" {
		return usage("a server does not show its history: run this where its SQLite file is, with --config or --store")
	}
	s, err := a.open(true)
	if err != nil {
		return err
	}
	defer s.close()
	if s.empty {
		return usage("limits are switched off, and there are no policies: there is no history")
	}
	journal, ok := s.opened.(drawgate.Journal)
	if !ok {
		return usage("this store keeps no history: only SQLite does")
	}
	now := time.Now()
	to := time.Time{}
	if f.until > 0 {
		to = now.Add(-f.until)
	}
	out := bufio.NewWriter(a.out)
	w := a.historyWriter(out, f)
	err = journal.Read(ctx, now.Add(-f.since), to, func(e drawgate.Event) bool {
		if f.wants(&e, labels) {
			w.event(&e)
		}
		return ctx.Err() == nil
	})
	w.end()
	_ = out.Flush() // nothing can be done if the output is closed
	if err == nil {
		err = ctx.Err()
	}
	return err
}

// check returns the labels that events must have.
func (f *historyFlags) check() (labels []drawgate.Label, err error) {
	switch {
	case f.since < 0 || f.until < 0:
		return nil, usage("--since %v and --until %v must not be negative", f.since, f.until)
	case f.since <= f.until:
		return nil, usage("--since %v is not before --until %v: nothing lies between them", f.since, f.until)
	case f.op != "" && !slices.Contains(historyOps, f.op):
		return nil, usage("--op %q is not one of %s", f.op, strings.Join(historyOps, ", "))
	}
	return parseLabels(f.labels)
}

// wants reports whether an event is to be shown.
func (f *historyFlags) wants(e *drawgate.Event, labels []drawgate.Label) bool {
	for _, l := range labels {
		if !slices.Contains(e.Labels, l) {
			return false
		}
	}
	return (f.policy == "" || e.Key.Policy == f.policy) && (f.anyKey || e.Key.Name == f.key) &&
		(f.anyTenant || e.Key.Tenant == f.tenant) && (f.op == "" || e.Op == f.op)
}

// historyWriter prints events.
type historyWriter interface {
	event(e *drawgate.Event)
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

func (w historyJSON) event(e *drawgate.Event) {
	p := past{At: e.At.UTC(), Op: e.Op, Policy: e.Key.Policy, Tenant: e.Key.Tenant, Key: e.Key.Name, ID: e.ID, Units: map[string]int64{}}
	for _, u := range e.Units {
		p.Units[u.Unit] = u.N
	}
	for _, l := range e.Labels {
		if p.Labels == nil {
			p.Labels = map[string]string{}
		}
		p.Labels[l.Name] = l.Value
	}
	w.a.printJSON(p)
}

func (historyJSON) end() {}

var historyColumns = []string{"at", "op", "policy", "tenant", "key", "units", "labels", "id"}

type historyCSV struct{ *csv.Writer }

func (w historyCSV) event(e *drawgate.Event) {
	_ = w.Write([]string{e.At.UTC().Format(time.RFC3339Nano), e.Op, e.Key.Policy, e.Key.Tenant, e.Key.Name, unitsText(e.Units), labelsText(e.Labels), e.ID})
}

func (w historyCSV) end() { w.Flush() }

type historyTable struct{ *tabwriter.Writer }

func (w historyTable) event(e *drawgate.Event) {
	key := e.Key.Name
	if e.Key.Tenant != "" {
		key = e.Key.Tenant + "/" + key
	}
	cells := []string{present.Clock(e.At), e.Op, e.Key.Policy, key, unitsText(e.Units), labelsText(e.Labels), e.ID}
	for i := range cells {
		if cells[i] = present.Escape(cells[i], ""); cells[i] == "" {
			cells[i] = "-"
		}
	}
	_, _ = fmt.Fprintln(w, strings.Join(cells, "\t"))
}

func (w historyTable) end() { _ = w.Flush() }

func unitsText(units []drawgate.Cost) string {
	var list []string
	for _, u := range units {
		list = append(list, u.Unit+"="+strconv.FormatInt(u.N, 10))
	}
	return strings.Join(list, " ")
}

func labelsText(labels []drawgate.Label) string {
	var list []string
	for _, l := range labels {
		list = append(list, l.Name+"="+l.Value)
	}
	return strings.Join(list, " ")
}
