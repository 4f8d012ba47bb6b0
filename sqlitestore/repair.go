package sqlitestore

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// RepairOptions holds what a repair can do without. The zero value is the safe choice.
type RepairOptions struct {
	// Trust counts what could be read as it stands, and only buckets of which nothing could be read as used up. It admits more, sooner: at worst what was
	// used and is not in what could be read, as from a file whose -wal is lost.
	Trust bool

	// Hold counts everything as used up even if the file is whole: for one that was restored from a backup, or whose -wal was lost, which does not know
	// what was used since.
	Hold bool
}

// Repaired says what a repair did.
type Repaired struct {
	Whole bool      // the file was whole: nothing was done, unless RepairOptions.Hold was set
	Aside []string  // where the damaged files are now; nothing of them was deleted
	Since time.Time // what is not known counts as used then, and ages; zero if nothing was done

	Buckets      int // whose record could be read
	Damaged      int // whose record was there, but not whole: they count as unknown
	Reservations int // open ones that can still be settled
	Events       int // of the history

	Incomplete []string // tables that could not be read to their end

	last int64 // the latest instant that a record knows
}

// Repair puts a database in the place of one that is damaged or was deleted ([ErrDamaged]). Nobody may have it open: stop the programs that use it first.
//
// The damaged file is renamed, with its log, and what can be read of it is copied into a new one: buckets, open reservations, history. Nobody knows whether
// that is all, or the latest. So every bucket counts as used up at the instant of the repair, and comes back from then on as its limits do: a rolling limit
// after its window, a calendar limit in its next window, a bucket at its rate ([RepairOptions.Trust] does it only to those that could not be read).
// Slots of a concurrency limit that were held by reservations that could not be read are free: make sure that what held them has ended.
//
// A file that is whole is left alone. The error is a *[drawgate.StoreError]; what had been renamed by then stays renamed.
func Repair(path string, opts *RepairOptions) (*Repaired, error) {
	if opts == nil {
		opts = &RepairOptions{}
	}
	r, err := repair(path, opts, time.Now().UnixMicro())
	if err != nil {
		return nil, storeError("repair", explain(err))
	}
	return r, nil
}

func repair(path string, opts *RepairOptions, now int64) (*Repaired, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	whole, err := inspect(path)
	if err != nil {
		return nil, err
	}
	if whole {
		return mark(path, opts, now)
	}
	r := &Repaired{}
	aside, err := setAside(path, now, r)
	if err != nil {
		return nil, err
	}
	return r, rebuild(path, aside, opts, now, r)
}

// inspect reports whether the file is there and whole, and refuses one that must not be touched.
func inspect(path string) (bool, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case !info.Mode().IsRegular():
		return false, fmt.Errorf("%s is not a regular file", path)
	case info.Size() == 0:
		return false, nil
	}
	c, err := dial(path, "ro") // a damaged file is left as it is
	if err != nil {
		return false, damage(err)
	}
	err = sound(path, c)
	if cerr := c.close(); err == nil {
		err = cerr
	}
	return err == nil, damage(err)
}

// sound checks all of a file.
func sound(path string, c *conn) error {
	id, err := number(c, "application_id")
	if err == nil && id != applicationID {
		err = fmt.Errorf("%w: %s is a database of another program (its application_id is %d)", ErrForeign, path, id)
	}
	if err != nil {
		return err
	}
	found, err := c.pragma("integrity_check(1)")
	if err == nil && found != "ok" {
		err = fmt.Errorf("%w: %s", ErrDamaged, found)
	}
	return err
}

// damage returns nil for an error that says that a file is damaged, which is what a repair is for.
func damage(err error) error {
	if c := code(err); c == codeCorrupt || c == codeNotADB || errors.Is(err, ErrDamaged) {
		return nil
	}
	return err
}

// mark notes in a file that is whole that everything counts as used up, if that is wanted.
func mark(path string, opts *RepairOptions, now int64) (*Repaired, error) {
	r := &Repaired{Whole: true}
	if !opts.Hold {
		return r, nil
	}
	c, err := dial(path, "rw")
	if err != nil {
		return nil, err
	}
	err = settings(c, &Options{})
	if err == nil {
		err = r.hold(c, opts, now)
	}
	return r, errors.Join(err, c.close())
}

// hold stores that what was used before now is not known. It lies after everything that is known.
func (r *Repaired) hold(c *conn, opts *RepairOptions, now int64) error {
	last := int64(0)
	if _, err := c.rows("SELECT max(at) FROM history", func(row []driver.Value) error {
		last, _ = row[0].(int64)
		return nil
	}); err != nil {
		return err
	}
	u := unknown{absent: max(now, last, r.last) + 1}
	if !opts.Trust {
		u.all = u.absent
	}
	r.Since = time.UnixMicro(u.absent)
	return u.write(c)
}

// setAside renames the files, and returns the new name of the database; "" if there is none.
func setAside(path string, now int64, r *Repaired) (aside string, err error) {
	to := path + ".damaged-" + time.UnixMicro(now).UTC().Format("20060102T150405.000000")
	for _, end := range []string{"-wal", "-shm", ""} { // the database last: until then the store finds it damaged still
		switch err := os.Rename(path+end, to+end); {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return "", err
		}
		r.Aside = append(r.Aside, to+end)
		if end == "" {
			aside = to
		}
	}
	return aside, nil
}

// rebuild makes the new database beside path, with what can be read of the old one, and puts it there.
func rebuild(path, aside string, opts *RepairOptions, now int64, r *Repaired) error {
	o := &Options{}
	temp := path + ".repaired"
	defer func() {
		for _, end := range []string{"", "-wal", "-shm", "-journal"} {
			_ = os.Remove(temp + end) // what is left of it does no harm
		}
	}()
	c, err := dial(temp, "rwc")
	if err != nil {
		return err
	}
	err = errors.Join(settings(c, o), migrate(c))
	if err == nil && aside != "" {
		err = salvage(c, aside, r)
	}
	if err == nil {
		err = r.hold(c, opts, now)
	}
	if err = errors.Join(err, c.close()); err != nil {
		return err
	}
	if err := os.Link(temp, path); err != nil && !errors.Is(err, fs.ErrExist) { // a file system without links
		if err := os.Rename(temp, path); err != nil {
			return err
		}
	} else if err != nil {
		return fmt.Errorf("somebody has put another file at %s meanwhile: %w", path, err)
	}
	return syncDir(filepath.Dir(path))
}
