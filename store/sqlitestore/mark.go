package sqlitestore

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// A mark next to the file says that there is a database, and which one. Without it nobody could
// distinguish a deleted file, whose quotas may be used up, from one that never existed. The mark is
// made once, when the file is durable, and never removed. Only [RepairOptions.Fresh] and
// [RepairOptions.Hold] make another file that fits it. It also says how many transactions the
// database had: see counter.

// marked is the suffix of a mark's name.
const marked = ".mark"

// metaCommits is the name under which a database stores how many transactions have changed it.
const metaCommits = "commits"

// metaIdentity is the name under which a database stores the number of its mark.
const metaIdentity = "identity"

// markFirst begins the first line of a mark; the number follows it.
const markFirst = "drawgate-database "

// markRest is the rest of a mark: an explanation for people who find the file.
const markRest = `
This file belongs to the drawgate database next to it. While this file is here and the database is
missing, or is a different one, drawgate does not create an empty one: that would grant every limit
once more.

  drawgate repair --hold   creates a database in which everything counts as used up
  drawgate reset --all     starts again with nothing used
`

// waysOut returns advice about a missing database.
func waysOut(path string) string {
	return "create one in which everything counts as used up (" + command("repair --hold", path) +
		"), or start again with nothing used (" +
		command("reset --all --yes", path) + ")"
}

// command returns a command line that works on the file at path, and on no other.
func command(what, path string) string {
	if strings.HasPrefix(path, "/") { // not C:/state.db
		path = "//" + path
	}
	return "drawgate " + what + " --store sqlite:" + path
}

// mark is the content of a mark file.
type mark struct {
	there    bool
	identity int64 // 0: it cannot be read
	commits  int64 // transactions that the database had, at least; 0 if it is not known
	unsynced bool  // with [Normal], so a loss of power may have undone the last ones
}

// readMark reads the mark of the database at path.
func readMark(path string) (mark, error) {
	text, err := os.ReadFile(path + marked) //nolint:gosec // beside the file that the caller named
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENAMETOOLONG): // no mark can have this name
		return mark{}, nil
	case err != nil:
		return mark{}, err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	digits, ours := strings.CutPrefix(strings.TrimSuffix(line, "\r"), markFirst)
	if id, err := strconv.ParseInt(digits, 16, 64); ours && err == nil && id > 0 {
		m := mark{there: true, identity: id}
		if len(text) > markCountAt {
			m.commits, m.unsynced = parseCount(text[markCountAt:])
		}
		return m, nil
	}
	return mark{there: true}, nil
}

// writeMark durably records that the database at path is the one with this identity. The database
// must be durable already. A counter writes the number of its transactions. An existing readable
// mark stays: another process wrote it meanwhile.
func writeMark(path string, identity int64) error {
	dir := filepath.Dir(path)
	if err := syncDir(dir); err != nil { // the process that made the database may not have synced its name
		return err
	}
	temp := path + marked + unfinished + rand.Text()
	defer os.Remove(temp) //nolint:errcheck // a leftover does no harm
	if err := writeSynced(temp, fmt.Sprintf("%s%016x\n%s", markFirst, identity, markRest)); err != nil {
		return err
	}
	err := os.Link(temp, path+marked)
	if errors.Is(err, fs.ErrExist) {
		found, failed := readMark(path)
		if failed != nil || found.identity != 0 {
			return failed
		}
	}
	if err != nil { // one that cannot be read, or a file system without hard links
		err = os.Rename(temp, path+marked)
	}
	if err != nil {
		return err
	}
	return syncDir(dir)
}

func writeSynced(path, text string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) //nolint:gosec // beside the file that the caller named
	if err != nil {
		return err
	}
	if _, err = f.WriteString(text); err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// missing refuses to make a database at path if there was one.
func missing(path string) error {
	m, err := readMark(path)
	if err != nil || !m.there {
		return err
	}
	if _, err := os.Stat(path); err == nil {
		return nil // another process made both meanwhile, the file first
	}
	return fmt.Errorf("%w: %s is missing, and its mark (%s) says that there was a database: put it back; or %s",
		ErrDamaged, path, path+marked, waysOut(path))
}

// fits checks that a database is the one that its mark names. identity is 0 for a file that was
// made before marks existed.
func (m mark) fits(path string, identity int64) error {
	if !m.there || m.identity != 0 && m.identity == identity {
		return nil
	}
	return fmt.Errorf("%w: %s is not the database that its mark (%s) names: put that one back; or count everything as used up in this one (%s), "+
		"or start again with nothing used (%s)", ErrDamaged, path, path+marked, command("repair --hold", path),
		command("reset --all --yes", path))
}

// newIdentity returns a number that no other database has.
func newIdentity() int64 {
	for {
		var b [8]byte
		_, _ = rand.Read(b[:]) // it never fails
		if id := int64(binary.BigEndian.Uint64(b[:]) >> 1); id > 0 {
			return id
		}
	}
}

func readIdentity(c *conn) (int64, error) {
	id, _, err := c.number(qMeta, metaIdentity)
	return id, err
}

// identify returns the identity of a database. If it has none, it gets one, durably.
func identify(c *conn, o *Options) (id int64, err error) {
	if id, err = readIdentity(c); err != nil || id != 0 {
		return id, err
	}
	if _, err := c.pragma("synchronous = FULL"); err != nil { // the mark will name it
		return 0, err
	}
	if err := c.script("BEGIN IMMEDIATE"); err != nil {
		return 0, err
	}
	if id, err = readIdentity(c); err == nil && id == 0 { // unless another process has done so meanwhile
		id = newIdentity()
		_, err = c.exec(qSetMeta, metaIdentity, id)
	}
	if err != nil {
		return 0, errors.Join(err, c.script("ROLLBACK"))
	}
	if err := c.script("COMMIT"); err != nil {
		return 0, err
	}
	return id, settings(c, o)
}
