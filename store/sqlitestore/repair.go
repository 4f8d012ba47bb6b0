package sqlitestore

import (
	"cmp"
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
	// Trust counts what could be read as it stands, and only buckets of which nothing could be read
	// as used up. It admits more, sooner: at worst what was used and is not in what could be read,
	// as from a file whose -wal is lost.
	Trust bool

	// Hold counts everything as used up even if the file is whole: for one that was restored from a
	// backup, or whose -wal was lost, which does not know what was used since.
	//
	// A file that is not there is made: in a deleted file everything had perhaps been used.
	Hold bool

	// Fresh starts again with nothing used: whatever is there is renamed, whole or not, and a new
	// file takes its place. Everything that was used may be admitted once more.
	Fresh bool

	step func() // for tests: called after each change of the directory
}

func (o *RepairOptions) changed() {
	if o.step != nil {
		o.step()
	}
}

// Repaired says what a repair did.
type Repaired struct {
	Whole bool      // the file was whole: nothing was done, unless it was held; nothing was copied, so nothing below is counted
	Other bool      // the file is another one than the mark beside it names: it was held
	Aside []string  // where the damaged files are now, the database first; nothing of them was deleted
	Since time.Time // what is not known counts as used then, and ages; zero if nothing was done

	Buckets      int // whose record could be read
	Damaged      int // whose record was there, but not whole: they count as unknown
	Reservations int // open ones that can still be settled
	Events       int // of the history

	Incomplete []string // tables that could not be read to their end

	last int64 // the latest instant that a record knows
}

// Repair puts a database in the place of one that is damaged ([ErrDamaged]). Nobody may have it
// open: stop the programs that use it first.
//
// The damaged file keeps its bytes under another name, with its log, and what can be read of it is
// copied into a new one: buckets, open reservations, history. Nobody knows whether that is all, or
// the latest. So every bucket counts as used up at the instant of the repair, and comes back from
// then on as its limits do: a rolling limit after its window, a calendar limit in its next window,
// a bucket at its rate ([RepairOptions.Trust] does it only to those that could not be read;
// [Store.Reset] lifts it from one). Slots of a concurrency limit that were held by reservations
// that could not be read are free: make sure that what held them has ended.
//
// A file that is whole is left alone, and one that is not there is an error (fs.ErrNotExist),
// unless [RepairOptions.Hold] or [RepairOptions.Fresh] is set or its log is still there. One that
// is whole, and not the one that the mark beside it names (see [Open]), was put there: it is held.
//
// The error is a *[drawgate.StoreError]. A repair that failed has changed nothing. One that was
// interrupted at any point has left a file that [Open] refuses, until the next repair, which begins
// anew.
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
	path, err := resolve(path)
	if err != nil {
		return nil, err
	}
	r := &Repaired{}
	if err := resume(path, r); err != nil {
		return nil, err
	}
	m, err := readMark(path)
	if err != nil {
		return nil, err
	}
	id := cmp.Or(m.identity, newIdentity()) // the mark stays right, so that nothing can happen between changing that and the file
	readable, whole, err := inspect(path)
	switch {
	case err != nil:
	case whole && !opts.Fresh:
		r.Whole = true
		err = holdWhole(path, m, id, opts, now, r)
	case !opts.Hold && !opts.Fresh && !exists(path) && !exists(path+"-wal"):
		err = fmt.Errorf("there is no file %s to repair; if it was deleted, %s: %w", path, waysOut(path), fs.ErrNotExist)
	default:
		err = replace(path, readable && !opts.Fresh, id, opts, now, r)
	}
	if err == nil && m.there && m.identity == 0 { // it could not be read
		err = writeMark(path, id)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// resolve returns the path without symbolic links, of a file that may be missing.
func resolve(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	found, err := filepath.EvalSymlinks(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return found, err
	}
	if exists(path) {
		return "", fmt.Errorf("%s is a symbolic link to a file that is not there", path)
	}
	return path, nil
}

// inspect reports whether something may be read of the file and whether it is whole, and refuses
// one that must not be touched.
func inspect(path string) (readable, whole bool, err error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, false, nil
	case err != nil:
		return false, false, err
	case !info.Mode().IsRegular():
		return false, false, fmt.Errorf("%s is not a regular file", path)
	case info.Size() <= empty: // SQLite would delete its log
		return false, false, nil
	}
	c, err := dial(path, "ro") // a damaged file is left as it is
	if err != nil {
		return true, false, damage(err)
	}
	err = sound(path, c)
	if cerr := c.close(); err == nil {
		err = cerr
	}
	return true, err == nil, damage(err)
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
	if _, _, err := outdated(c, &Options{}); err != nil {
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

// holdWhole notes in a file that is whole that everything counts as used up, if that is wanted or
// the file is not the one that its mark names.
func holdWhole(path string, m mark, id int64, opts *RepairOptions, now int64, r *Repaired) error {
	c, err := dial(path, "rw")
	if err != nil {
		return err
	}
	err = settings(c, &Options{})
	own := int64(0)
	if err == nil {
		own, err = readIdentity(c)
	}
	r.Other = m.fits(path, own) != nil
	if err == nil && (opts.Hold || r.Other) {
		err = c.script("BEGIN IMMEDIATE")
		if err == nil {
			err = r.hold(c, opts, now)
		}
		if err == nil {
			_, err = c.exec(qSetMeta, metaIdentity, id)
		}
		if err == nil {
			err = c.script("COMMIT") // otherwise closing takes it back
		}
	}
	return errors.Join(err, c.close())
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
	u := repairMark{absent: max(now, last, r.last) + 1}
	if !opts.Trust {
		u.all = u.absent
	}
	r.Since = time.UnixMicro(u.absent)
	return u.write(c)
}
