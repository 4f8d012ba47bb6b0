package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/sqlitestore"
)

func (a *app) repairCmd() *cobra.Command {
	var o sqlitestore.RepairOptions
	cmd := &cobra.Command{
		Use:   "repair",
		Short: "Put a whole SQLite file in the place of a damaged one",
		Long: `Put a new SQLite file in the place of one that is damaged, replaced or was deleted: programs do not do that by themselves, because an empty file would
grant every limit once more. Stop them first.

The damaged file is renamed, not deleted, and what can be read of it is copied. Whether that is all, nobody knows: so every bucket counts as used up now,
and comes back as its limits do, a rolling limit after its window, a calendar limit with its next one. A file that is whole is left alone.`,
		Example: `  drawgate repair --store sqlite:///var/lib/drawgate/state.db`,
		Args:    cobra.NoArgs,
		RunE:    action(func(*cobra.Command, []string) error { return a.repair(&o) }),
	}
	cmd.Flags().BoolVar(&o.Trust, "trust", false, "count what can be read as it stands: more is admitted, sooner, and perhaps too much")
	cmd.Flags().BoolVar(&o.Hold, "hold", false, "count everything as used up even if the file is whole: it was restored from a backup, or lost its log")
	return cmd
}

// repaired says what was done as JSON.
type repaired struct {
	Whole        bool     `json:"whole"`
	Aside        []string `json:"aside,omitempty"`
	Buckets      int      `json:"buckets"`
	Damaged      int      `json:"damaged"`
	Reservations int      `json:"reservations"`
	Events       int      `json:"events"`
	Incomplete   []string `json:"incomplete,omitempty"`
}

func (a *app) repair(o *sqlitestore.RepairOptions) error {
	if o.Trust && o.Hold {
		return usage("give either --trust or --hold")
	}
	s, err := a.resolve(a.flags)
	if err != nil {
		return err
	}
	path, ok := config.SQLitePath(s.Store)
	if !ok {
		return usage("%s is not a SQLite file: there is nothing to repair", config.RedactURL(s.Store))
	}
	r, err := sqlitestore.Repair(path, o)
	if err != nil {
		return err
	}
	if a.json {
		a.printJSON(repaired{r.Whole, r.Aside, r.Buckets, r.Damaged, r.Reservations, r.Events, r.Incomplete})
		return nil
	}
	if r.Whole && !o.Hold {
		a.printf("%s is whole: nothing was done\n", path)
		return nil
	}
	for _, f := range r.Aside {
		a.printf("the damaged file is now %s\n", f)
	}
	a.printf("%s of the old file could be read, %d could not; %s, %s of the history\n",
		count(r.Buckets, "bucket"), r.Damaged, count(r.Reservations, "open reservation"), count(r.Events, "event"))
	if len(r.Incomplete) > 0 {
		a.printf("could not be read to the end: %s\n", strings.Join(r.Incomplete, ", "))
	}
	if !o.Trust {
		a.printf("every bucket counts as used up since now, and comes back as its limits do\n")
	}
	return nil
}
