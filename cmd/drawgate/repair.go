package main

import (
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/internal/present"
	"github.com/drawgate/drawgate/store/sqlitestore"
)

func (a *app) repairCmd() *cobra.Command {
	var o sqlitestore.RepairOptions
	cmd := &cobra.Command{
		Use:   "repair",
		Short: "Put a whole SQLite file in the place of a damaged one",
		Long: `Put a new SQLite file in the place of one that is damaged: programs do not do that by themselves, because an empty file would grant every limit once
more. Stop them first.

The damaged file is renamed, not deleted, and what can be read of it is copied. Whether that is all, nobody knows: so every bucket counts as used up now,
and comes back as its limits do, a rolling limit after its window, a calendar limit with its next one; drawgate reset lifts it for one bucket. A file that
is whole is left alone. In the place of one that was deleted --hold makes one in which everything counts as used up. A whole file that is not the one that was there, by the mark beside it
(its name with .mark), counts as used up as well. To start again with nothing used instead: drawgate reset --all.

A repair that fails changes nothing. One that was interrupted is begun anew by the next: until then the file is refused.`,
		Example: `  drawgate repair --store sqlite:///var/lib/drawgate/state.db`,
		Args:    cobra.NoArgs,
		RunE:    action(func(*cobra.Command, []string) error { return a.repair(&o) }),
	}
	cmd.Flags().BoolVar(&o.Trust, "trust", false, "count what can be read as it stands: more is admitted, sooner, and perhaps too much")
	cmd.Flags().BoolVar(&o.Hold, "hold", false, "count everything as used up even if the file is whole: it was restored from a backup, or lost its log; make it if it was deleted")
	return cmd
}

// repaired says what was done as JSON.
type repaired struct {
	Whole        bool      `json:"whole"`
	Other        bool      `json:"other,omitempty"` // not the file that the mark beside it names: held
	Aside        []string  `json:"aside,omitempty"`
	Since        time.Time `json:"since,omitzero"` // what is not known counts as used then
	Buckets      int       `json:"buckets"`
	Damaged      int       `json:"damaged"`
	Reservations int       `json:"reservations"`
	Events       int       `json:"events"`
	Incomplete   []string  `json:"incomplete,omitempty"`
}

func (a *app) repair(o *sqlitestore.RepairOptions) error {
	if o.Trust && o.Hold {
		return usage("give either --trust or --hold")
	}
	path, err := a.sqlitePath("repair")
	if err != nil {
		return err
	}
	r, err := sqlitestore.Repair(path, o)
	if err != nil {
		return err
	}
	if a.json {
		a.printJSON(repaired{r.Whole, r.Other, r.Aside, r.Since, r.Buckets, r.Damaged, r.Reservations, r.Events, r.Incomplete})
		return nil
	}
	a.printRepaired(path, o, r)
	return nil
}

// sqlitePath returns the path of the file that is to be repaired or reset.
func (a *app) sqlitePath(op string) (string, error) {
	if url := a.serverURL(); url != "" {
		return "", usage("to %s a server's file, stop the server, and do it on its machine: name the file with --store, not the server %s", op, config.RedactURL(url))
	}
	s, err := a.resolve(a.flags)
	if err != nil {
		return "", err
	}
	a.tell(&s)
	path, ok := config.SQLitePath(s.Store)
	if !ok {
		return "", usage("%s is not a SQLite file: there is nothing to %s", config.RedactURL(s.Store), op)
	}
	return filepath.Abs(path)
}

func (a *app) printRepaired(path string, o *sqlitestore.RepairOptions, r *sqlitestore.Repaired) {
	for _, f := range r.Aside {
		a.printf("the damaged file is now %s\n", f)
	}
	switch {
	case r.Other:
		a.printf("%s is whole, and is not the file that was here before\n", path)
	case r.Whole && !o.Hold:
		a.printf("%s is whole: nothing was done\n", path)
		return
	case r.Whole:
		a.printf("%s is whole\n", path)
	case len(r.Aside) == 0:
		a.printf("%s is new: there was no file\n", path)
	default:
		a.printf("%s of the damaged file could be read, %d could not; %s, %s of the history\n",
			present.Count(r.Buckets, "bucket"), r.Damaged, present.Count(r.Reservations, "open reservation"), present.Count(r.Events, "event"))
	}
	if len(r.Incomplete) > 0 {
		a.printf("could not be read to the end: %s\n", strings.Join(r.Incomplete, ", "))
	}
	if !o.Trust {
		a.printf("every bucket counts as used up since now, and comes back as its limits do\n")
	}
	a.printf("restart the programs that use it: one that has the old file open decides without it\n")
}
