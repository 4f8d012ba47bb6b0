package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/client"
	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/incident"
	"github.com/drawgate/drawgate/internal/present"
)

// incidentsFlags say which incidents are shown, and from where.
type incidentsFlags struct {
	file  string
	since time.Duration
}

func (a *app) incidentsCmd() *cobra.Command {
	var f incidentsFlags
	cmd := &cobra.Command{
		Use:   "incidents",
		Short: "Show calls that a provider refused although the limits had allowed them",
		Long: `Show the incidents of a gateway: calls that the provider refused (429) although our limits had allowed them, with the likely cause.

They are read from the file of --file, from a running gateway (--server, its address for administrators), or from the file that the configuration
names (gateway.incidents, or beside the SQLite store).`,
		Example: `  drawgate incidents --config drawgate.yaml --since 24h
  drawgate incidents --server http://127.0.0.1:` + adminPort + `
  drawgate incidents --file /var/lib/drawgate/quota.db-incidents.jsonl --json`,
		Args: noArgs,
		RunE: action(func(cmd *cobra.Command, _ []string) error { return a.listIncidents(cmd.Context(), &f) }),
	}
	cmd.PersistentFlags().StringVar(&f.file, "file", "", "file to read, such as a copy of a gateway's")
	cmd.AddCommand(a.incidentsListCmd(&f), a.incidentsShowCmd(&f))
	sinceFlag(cmd, &f)
	return cmd
}

func sinceFlag(cmd *cobra.Command, f *incidentsFlags) {
	durationVar(cmd, &f.since, "since", 0, "only those of this time (24h, 7d); default all")
}

func (a *app) incidentsListCmd(f *incidentsFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "List incidents, the newest first", Args: noArgs,
		Long:    fmt.Sprintf("List incidents, the newest first. A running gateway lists the latest %d; its file has more.", api.MaxIncidents),
		Example: `  drawgate incidents list --since 7d --json`,
		RunE:    action(func(cmd *cobra.Command, _ []string) error { return a.listIncidents(cmd.Context(), f) }),
	}
	sinceFlag(cmd, f)
	return cmd
}

func (a *app) incidentsShowCmd(f *incidentsFlags) *cobra.Command {
	return &cobra.Command{
		Use: "show ID|last", Short: "Show all that is known of an incident", Args: cobra.ExactArgs(1),
		ValidArgs: []string{"last"},
		Long: `Show all that is known of an incident: what the numbers show, the limits as they were, calls under way, and recent calls. With --json
everything.`,
		Example: `  drawgate incidents show last --server http://127.0.0.1:` + adminPort + `
  drawgate incidents show 20260701T120000000Z-k3f7q2xa --config drawgate.yaml`,
		RunE: action(func(cmd *cobra.Command, args []string) error {
			return a.showIncident(cmd.Context(), f,
				args[0])
		}),
	}
}

func (a *app) listIncidents(ctx context.Context, f *incidentsFlags) error {
	if f.since < 0 {
		return usage("--since %v is negative", f.since)
	}
	var since time.Time
	if f.since > 0 {
		since = time.Now().Add(-f.since)
	}
	list, err := a.incidents(ctx, f, since)
	if err != nil {
		return err
	}
	switch {
	case a.json:
		a.printJSON(list)
	case len(list) == 0:
		a.printf("no incidents\n")
	default:
		present.WriteIncidents(a.out, list)
	}
	return nil
}

// incidents returns incidents, the newest first.
func (a *app) incidents(ctx context.Context, f *incidentsFlags, since time.Time) (list []api.Incident, err error) {
	if f.file == "" && a.serverURL() != "" {
		err = a.ask(ctx, func(ctx context.Context, c *client.Client) error {
			list, err = c.Incidents(ctx, since)
			return err
		})
		return list, err
	}
	if list, err = a.fileIncidents(f); err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(list, func(in api.Incident) bool { return in.Last.Before(since) })
	slices.Reverse(list)
	return list, nil
}

// fileIncidents reads the file, the oldest first.
func (a *app) fileIncidents(f *incidentsFlags) ([]api.Incident, error) {
	path := f.file
	if path == "" {
		s, err := a.resolveLimits(a.flags)
		if err != nil {
			return nil, err
		}
		if path = s.IncidentsFile(); path == "" {
			return nil, usage("the configuration names no file of incidents: ask the gateway with --server, or name a file with --file")
		}
	}
	list, skipped, err := incident.Read(path)
	if errors.Is(err, fs.ErrNotExist) {
		a.warnf("there is no file %s yet: the first incident creates it", path)
		return []api.Incident{}, nil
	}
	if err != nil {
		return nil, err
	}
	if skipped > 0 {
		a.warnf("%s of %s cannot be read: cut off by a full disk or the end of a process",
			present.Count(skipped, "line"), path)
	}
	return append([]api.Incident{}, list...), nil
}

func (a *app) showIncident(ctx context.Context, f *incidentsFlags, id string) error {
	in, err := a.incident(ctx, f, id)
	if err != nil {
		return err
	}
	if a.json {
		a.printJSON(in)
		return nil
	}
	present.WriteIncident(a.out, &in)
	return nil
}

func (a *app) incident(ctx context.Context, f *incidentsFlags, id string) (in api.Incident, err error) {
	if f.file == "" && a.serverURL() != "" {
		err = a.ask(ctx, func(ctx context.Context, c *client.Client) error {
			in, err = c.Incident(ctx, id)
			return err
		})
		return in, err
	}
	list, err := a.fileIncidents(f)
	if err != nil {
		return in, err
	}
	if len(list) == 0 {
		return in, usage("there are no incidents")
	}
	for _, in := range slices.Backward(list) {
		if id == "last" || in.ID == id {
			return in, nil
		}
	}
	return in, usage("there is no incident %q: drawgate incidents list shows them", id)
}

// openIncidents makes what records the gateway's incidents, if there is a gateway.
func (v *service) openIncidents() {
	c := v.run.Config()
	if c.Gateway.Listen == config.ListenOff {
		return
	}
	v.incidents = incident.New(&incident.Options{
		File: c.IncidentsFile(), Logger: v.log, Report: v.run.Incident,
		Status: v.quota,
	})
}

// quota returns the state of an upstream's quota now.
func (v *service) quota(ctx context.Context, upstream, policy string) (*api.StatusAnswer, error) {
	owner := upstream
	for _, u := range v.run.Config().Gateway.Upstreams {
		if u.Name == upstream && u.Owner != "" {
			owner = u.Owner
		}
	}
	ask, err := v.run.Engine.Ask(policy, "", owner)
	if err != nil {
		return nil, err
	}
	st, err := ask.Status(ctx, 0)
	if err != nil {
		return nil, err
	}
	return new(present.Status(policy, owner, &st)), nil
}
