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

// RepairOptions holds the optional settings of a repair. The zero value is the safe choice.
type RepairOptions struct {
	// Trust counts everything that could be read as it is. Of a damaged file only buckets of which
	// nothing could be read count as used up; those that were never used cannot be told from them.
	// An undamaged file is accepted as it is; with Hold buckets that it does not have count as used
	// up. Trust admits more, sooner: at worst, everything used that is missing from the file, for
	// example because its -wal is lost.
	Trust bool

	// Hold counts everything as used up even if the file is undamaged. Use it for a file that was
	// restored from a backup, or whose -wal was lost, because that does not know what was used
	// since. If the mark shows the loss (see [Repaired]), that happens without Hold as well.
	//
	// A missing file is made: perhaps everything had been used in the deleted one.
	Hold bool

	// Fresh starts again with nothing used: an existing file is renamed, damaged or not, and a new
	// one takes its place. Everything that was used may be admitted once more.
	Fresh bool

	// Force repairs a file that a process has open. That process goes on with the old file until it
	// notices, so more may be admitted than the limits allow.
	Force bool

	step func() // for tests: called after each change of the directory
}

func (o *RepairOptions) changed() {
	if o.step != nil {
		o.step()
	}
}

// Repaired describes what a repair did.
type Repaired struct {
	// the file can be read completely: nothing was done, except for a hold; nothing was copied, so
	// nothing below is counted
	Whole bool
	// transactions that are missing from an undamaged file, as its mark says: it was held, unless
	// they were not synced ([Normal]), or the file is trusted
	Lost  int64
	Known bool      // the mark has a number of transactions of this file, so Lost is known
	InUse bool      // a process has the file open, and Force was set: restart it
	Other bool      // the file is not the one that its mark names: it was held, unless it is trusted
	Aside []string  // where the damaged files are now, the database first; none of them was deleted
	Since time.Time // unknown use counts as used at this time, and ages from then on; zero if nothing was done

	Buckets      int // whose record could be read
	Damaged      int // buckets with a damaged record: their use is unknown
	Reservations int // open ones that can still be settled
	Events       int // of the history

	Incomplete []string // tables that could not be read completely

	last int64 // the latest instant in any record
}

// Repair replaces a damaged database ([ErrDamaged]). No process may have it open: stop the programs
// that use it first. Otherwise the error is [ErrInUse], unless [RepairOptions.Force] is set. A
// store that has found its file to be damaged, and so never uses it again, does not count.
//
// The damaged file and its log are renamed, not changed, and what can be read is copied into a new
// file: buckets, open reservations, history. It is not known whether that is everything, or the
// latest state. So every bucket counts as used up at the time of the repair, and recovers as its
// limits do: a rolling limit after its window, a calendar limit in its next window, a bucket at its
// rate. With [RepairOptions.Trust] only buckets that could not be read count as used up;
// [Store.Reset] releases a single bucket. Slots of a concurrency limit whose reservations could not
// be read become free: make sure that their holders have ended.
//
// An undamaged file is left alone, and a missing one is an error (fs.ErrNotExist), unless
// [RepairOptions.Hold] or [RepairOptions.Fresh] is set or its log still exists. An undamaged file
// that is not the one named by its mark (see [Open]) was put there by somebody: it is held. So is
// one that has lost transactions, as the number in the mark shows.
//
// The error is a *[store.Error]. A failed repair has changed nothing. After an interrupted
// repair, [Open] refuses the file until Repair runs again, which starts over.
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
	unlock, used, err := lockForRepair(path, opts.Force)
	if err != nil {
		return nil, err
	}
	defer unlock()
	r := &Repaired{InUse: used}
	if err := resume(path, r); err != nil {
		return nil, err
	}
	m, err := readMark(path)
	if err != nil {
		return nil, err
	}
	// the mark stays right, so nothing can happen between changing it and the file
	id := cmp.Or(m.identity, newIdentity())
	commits := m.commits + 1 // of the repaired file
	readable, whole, err := inspect(path)
	switch {
	case err != nil:
	case whole && !opts.Fresh:
		r.Whole = true
		commits, err = holdWhole(path, m, id, opts, now, r)
	case !opts.Hold && !opts.Fresh && !exists(path) && !exists(path+"-wal"):
		err = fmt.Errorf("there is no file %s to repair; if it was deleted, %s: %w", path, waysOut(path),
			fs.ErrNotExist)
	default:
		err = replace(path, readable && !opts.Fresh, id, commits, opts, now, r)
	}
	if err == nil && m.there && m.identity == 0 { // it could not be read
		err = writeMark(path, id)
	}
	if err != nil {
		return nil, err
	}
	if c, failed := openCounter(path, Full); failed == nil { // an older number does no harm
		_ = c.raise(commits)
		c.close()
	}
	return r, nil
}

// resolve returns the path without symbolic links. The file may be missing.
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
		return "", fmt.Errorf("%s is a symbolic link to a file that does not exist", path)
	}
	return path, nil
}

// inspect reports whether anything can be read from the file and whether it is undamaged. It
// returns an error for a file that must not be touched.
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
	c, err := dial(path, "ro") // a damaged file is not changed
	if err != nil {
		return true, false, damage(err)
	}
	err = sound(path, c)
	if cerr := c.close(); err == nil {
		err = cerr
	}
	return true, err == nil, damage(err)
}

// sound runs all checks of a file.
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

// damage returns nil for an error that means that the file is damaged, since repairs are for such
// files.
func damage(err error) error {
	if c := code(err); c == codeCorrupt || c == codeNotADB || errors.Is(err, ErrDamaged) {
		return nil
	}
	return err
}

// holdWhole counts everything in an undamaged file as used up, if that is requested or the file is
// not the one that its mark names, or has lost transactions. If the file is trusted, it is only
// made to fit its mark. It returns the number of transactions
// that the file has afterwards.
func holdWhole(path string, m mark, id int64, opts *RepairOptions, now int64, r *Repaired) (commits int64, err error) {
	c, err := dial(path, "rw")
	if err != nil {
		return 0, err
	}
	err = settings(c, &Options{})
	own := int64(0)
	if err == nil {
		own, err = readIdentity(c)
	}
	if err == nil {
		commits, err = readCommits(c)
	}
	r.Other = m.fits(path, own) != nil
	if r.Known = m.commits > 0 && !r.Other; r.Known {
		r.Lost = max(0, m.commits-commits)
	}
	if err == nil && (opts.Hold || r.Other || r.Lost > 0 && !m.unsynced) {
		commits = max(commits, m.commits) + 1
		err = c.script("BEGIN IMMEDIATE")
		if err == nil && (opts.Hold || !opts.Trust) {
			err = r.hold(c, opts, now)
		}
		if err == nil {
			err = describe(c, id, commits)
		}
		if err == nil {
			err = c.script("COMMIT") // otherwise closing rolls it back
		}
	}
	return commits, errors.Join(err, c.close())
}

// describe stores what a mark is compared with.
func describe(c *conn, id, commits int64) error {
	_, err := c.exec(qSetMeta, metaIdentity, id)
	if err == nil {
		_, err = c.exec(qSetMeta, metaCommits, commits)
	}
	return err
}

// hold stores the repair's time as the instant before which use is unknown. It is later than every
// instant in a record.
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
