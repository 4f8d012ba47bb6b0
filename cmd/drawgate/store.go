package main

import (
	"context"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/drawgate/drawgate/config"
)

func (a *app) storeCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "store",
		Short: "Initialize a store on Redis",
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
