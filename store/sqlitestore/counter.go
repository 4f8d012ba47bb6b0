package sqlitestore

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// A database whose log was lost looks intact: it is the one from the last checkpoint, and
// everything used since would be granted again. So each transaction increments a number in the
// database, and after the commit, which is durable, the number is written into the mark as well,
// without a sync. A database whose number is lower than its mark's has lost transactions. A mark
// that is behind means nothing: the process was killed between the two, or power failed.

// markCountAt is where the number is in a mark: fixed, so that it is overwritten in place, and
// within one sector of the disk.
const markCountAt = 1024

// What follows the number: whether the transaction was durable when it was written.
const (
	countSynced   = "synced  "
	countUnsynced = "unsynced"
)

const countForm = "transactions %016x %016x %s\n" // twice, so that a number that is half written is noticed

// parseCount reads the number in a mark. It is 0 if there is none.
func parseCount(text []byte) (n int64, unsynced bool) {
	line, _, _ := bytes.Cut(text, []byte("\n"))
	f := strings.Fields(string(line))
	if len(f) != 4 || f[0] != "transactions" || f[1] != f[2] {
		return 0, false
	}
	n, err := strconv.ParseInt(f[1], 16, 64)
	if err != nil || n < 0 {
		return 0, false
	}
	return n, f[3] == countUnsynced
}

// counter writes the number of a database's transactions into its mark. A nil counter writes
// nothing.
type counter struct {
	f    *os.File
	sync string // countSynced or countUnsynced
	buf  []byte
}

// openCounter opens the mark of a database to write its number.
func openCounter(path string, s Synchronous) (*counter, error) {
	f, err := os.OpenFile(path+marked, os.O_RDWR, 0) //nolint:gosec // beside the file that the caller named
	if err != nil {
		return nil, err
	}
	c := &counter{f: f, sync: countSynced}
	if s == Normal {
		c.sync = countUnsynced
	}
	info, err := f.Stat()
	if err == nil && info.Size() < markCountAt { // it is from an older version, or new
		_, err = f.WriteAt(bytes.Repeat([]byte("\n"), int(markCountAt-info.Size())), info.Size())
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return c, nil
}

func (c *counter) close() {
	if c != nil {
		_ = c.f.Close() // an older number does no harm
	}
}

// How often, and how far apart, the mark is locked while another process writes its number into it,
// which takes microseconds. A process that was stopped in the middle must not stop the others.
const (
	countTries = 20
	countPause = 50 * time.Microsecond
)

// raise writes a number, unless the mark has a higher one already. That can only be another
// process's, so both are locked out of the time between reading and writing.
func (c *counter) raise(n int64) error {
	if c == nil {
		return nil
	}
	for try := range countTries {
		err := lockFile(c.f, true)
		if err == nil {
			defer unlockFile(c.f)
			break
		}
		if !errors.Is(err, errLocked) {
			break // there are no such locks here
		}
		if try > 0 {
			time.Sleep(countPause)
		}
	}
	var old [len(countForm) + 40]byte
	size, _ := c.f.ReadAt(old[:], markCountAt) // it ends before
	if was, _ := parseCount(old[:size]); was >= n {
		return nil
	}
	return c.set(n)
}

// set writes a number.
func (c *counter) set(n int64) error {
	c.buf = fmt.Appendf(c.buf[:0], countForm, n, n, c.sync)
	_, err := c.f.WriteAt(c.buf, markCountAt)
	return err
}

// readCommits returns how many transactions have changed a database.
func readCommits(c *conn) (int64, error) {
	n, _, err := c.number(qMeta, metaCommits)
	return n, err
}

// lost is the error for a database of which transactions are missing.
func lost(path string, n int64) error {
	return fmt.Errorf("%w: the last transactions of %s are missing (%d, as its mark %s says): its -wal was lost, or an older copy was put in its place: "+
		"put back what is missing; or count everything as used up (%s), or only trust what is there (%s), or start again with nothing used (%s)",
		ErrDamaged, path, n, path+marked, command("repair", path), command("repair --trust", path),
		command("reset --all --yes", path))
}
