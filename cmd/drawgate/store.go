package main

import (
	"context"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/drawgate/drawgate/config"
)

func (a *app) storeCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "store",
		Short: "Initialize a store on Redis, or print its functions",
		Long: `Work on the store itself. With "store_mark: required" in the file a store on Redis is unavailable until it is initialized, and again after the server lost
its data.`,
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "init",
		Short: "Make the mark of a store on Redis, unless there is one",
		Long: `Make the mark of a store on Redis or Valkey, unless there is one: a key with a random number, PREFIX:%mark. With "store_mark: required" programs use the
store only while it has a mark.

Run it once for a new store. If the mark is missing although the store was in use, the server lost its data: everything that was used may be granted once
more after this command. Restore the data instead if you can.`,
		Example: `  drawgate store init --store redis://127.0.0.1:6379/0`,
		Args:    noArgs,
		RunE:    action(func(cmd *cobra.Command, _ []string) error { return a.initStore(cmd.Context()) }),
	})
	cmd.AddCommand(&cobra.Command{
		Use:   "functions",
		Short: "Print the library of Redis Functions, to load it by hand",
		Long: `Print the library that a store with functions=use in its URL calls (Redis from 7.0, Valkey), for FUNCTION LOAD. Load it on each primary of a cluster;
replicas get it from there. With functions=load programs load it themselves, and without either they call a script.

The library's name changes with its content, so programs of two versions may use one server. Delete the older one when nothing uses it any more:
FUNCTION LIST LIBRARYNAME 'drawgate_*', FUNCTION DELETE drawgate_...`,
		Example: `  drawgate store functions | redis-cli -x FUNCTION LOAD REPLACE`,
		Args:    noArgs,
		RunE: action(func(*cobra.Command, []string) error {
			_, err := io.WriteString(a.out, config.RedisFunctions())
			return err
		}),
	})
	return cmd
}

func (a *app) initStore(ctx context.Context) error {
	if url := a.serverURL(); url != "" {
		return usage("to initialize a server's store, name the store with --store, not the server %s",
			config.RedactURL(url))
	}
	s, err := a.resolveLimits(a.flags)
	if err != nil {
		return err
	}
	made, err := s.InitStore(ctx, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	if a.json {
		a.printJSON(struct {
			Made bool `json:"made"`
		}{made})
		return nil
	}
	if made {
		a.printf("the store has a mark now: it can be used, and nothing counts as used\n")
	} else {
		a.printf("the store has a mark: nothing was done\n")
	}
	return nil
}
