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
		Short: "Replace a damaged SQLite file with an intact one",
		Long: `Replace a damaged SQLite file with a new one. Programs do not do this by themselves, because an empty file would grant every limit once more. Stop them
first: a file that a program has open is only repaired with --force, and such a program then admits more than the limits until you restart it.

The damaged file is renamed, not deleted, and whatever can be read of it is copied. Something may be missing, so every bucket counts as used up now. It
becomes free again as its limits allow: a rolling limit after its window, a calendar limit in its next one. drawgate reset frees one bucket immediately.
An intact file is not changed. If the file was deleted, --hold creates one in which everything counts as used up. An intact file that is not the one that
was there before, as its mark says (the file with .mark after its name), also counts as used up, and so does one whose last transactions are missing because
its -wal was lost or an older copy was put in its place. To start again with nothing used: drawgate reset --all.

A repair that fails changes nothing. If a repair was interrupted, run it again: until then programs refuse the file.`,
		Example: `  drawgate repair --store sqlite:///var/lib/drawgate/state.db`,
		Args:    noArgs,
		RunE:    action(func(*cobra.Command, []string) error { return a.repair(&o) }),
	}
	cmd.Flags().BoolVar(&o.Trust, "trust", false,
		"trust the usage that can be read, instead of counting everything as used up: more is admitted sooner, perhaps too much; of a damaged file every other bucket counts as used up")
	cmd.Flags().BoolVar(&o.Hold, "hold", false,
		"count everything as used up even if the file is intact, for example after restoring a backup; create the file if it was deleted")
	cmd.Flags().BoolVar(&o.Force, "force", false, "repair the file even though a program has it open")
	return cmd
}

// repaired is the result as JSON.
type repaired struct {
	Whole bool  `json:"whole"`
	InUse bool  `json:"in_use,omitempty"` // a program has the file open
	Lost  int64 `json:"lost,omitempty"`   // transactions that are missing from the end, as the mark says
	// the file is not the one that its mark names, so it counts as used up
	Other        bool      `json:"other,omitempty"`
	Aside        []string  `json:"aside,omitempty"`
	Since        time.Time `json:"since,omitzero"` // unknown usage counts as of this instant
	Buckets      int       `json:"buckets"`
	Damaged      int       `json:"damaged"`
	Reservations int       `json:"reservations"`
	Events       int       `json:"events"`
	Incomplete   []string  `json:"incomplete,omitempty"`
	Known        bool      `json:"known,omitempty"` // the mark has a number, so that lost is known
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
	a.warnInUse(path, r.InUse)
	if a.json {
		a.printJSON(repaired{
			r.Whole, r.InUse, r.Lost, r.Other, r.Aside, r.Since, r.Buckets, r.Damaged, r.Reservations,
			r.Events, r.Incomplete, r.Known,
		})
		return nil
	}
	a.printRepaired(path, o, r)
	return nil
}

// warnInUse warns that a program still has the old file.
func (a *app) warnInUse(path string, inUse bool) {
	if inUse {
		a.warnf("a program had %s open, or it could not be found out: restart it now, it may admit more than the limits", path)
	}
}

// sqlitePath returns the path of the file to repair or reset.
func (a *app) sqlitePath(op string) (string, error) {
	if url := a.serverURL(); url != "" {
		return "", usage("to %s a server's file, stop the server, and do it on its machine: name the file with --store, not the server %s", op, config.RedactURL(url))
	}
	s, err := a.resolveLimits(a.flags)
	if err != nil {
		return "", err
	}
	a.tell(&s)
	path, ok := config.SQLitePath(s.Store)
	if !ok {
		if config.IsRedis(s.Store) && op == "reset" {
			return "", usage("--all is for SQLite files: name the buckets, or stop all programs that use %s, flush its database, and start them", config.RedactURL(s.Store))
		}
		if config.IsPostgres(s.Store) && op == "reset" {
			return "", usage("--all is for SQLite files: name the buckets, or TRUNCATE the table whose name ends in _bucket, in %s", config.RedactURL(s.Store))
		}
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
		a.printf("%s is intact, but it is not the file that was here before\n", path)
	case r.Lost > 0 && r.Since.IsZero() && !o.Trust:
		a.printf("the last transactions of %s are missing (%d), after a loss of power or because its -wal was lost: nothing was done, because they had not been synced; "+
			"--hold counts everything as used up\n", path, r.Lost)
		return
	case r.Lost > 0:
		a.printf("the last transactions of %s are missing (%d): its -wal was lost, or an older copy was put in its place\n", path, r.Lost)
	case r.Whole && !o.Hold && !r.Known:
		a.printf("%s can be read completely: nothing was done; whether its last transactions are missing is not known, because its mark does not have their number "+
			"(--hold counts everything as used up)\n", path)
		return
	case r.Whole && !o.Hold:
		a.printf("%s is intact: nothing was done\n", path)
		return
	case r.Whole:
		a.printf("%s is intact\n", path)
	case len(r.Aside) == 0:
		a.printf("%s is new: there was no file\n", path)
	default:
		a.printf("%s of the damaged file could be read, %d could not; %s, %s of the history\n",
			present.Count(r.Buckets, "bucket"), r.Damaged, present.Count(r.Reservations, "open reservation"),
			present.Count(r.Events, "event"))
	}
	if len(r.Incomplete) > 0 {
		a.printf("could not be read to the end: %s\n", strings.Join(r.Incomplete, ", "))
	}
	switch {
	case !o.Trust:
		a.printf("every bucket counts as used up now, and becomes free again as its limits allow\n")
	case r.Whole:
		a.printf("it is accepted as it is: what was used and is missing from it may be admitted once more\n")
	default:
		a.printf("what could be read counts as it is; every other bucket, also one that nobody used, counts as used up now, and becomes free again as its limits allow\n")
	}
	a.printf("restart the programs that use it: a program that has the old file open does not see the new one\n")
}
