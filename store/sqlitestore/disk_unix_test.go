//go:build unix

package sqlitestore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/sqlitestore"
)

// nobody is the user that root becomes where a test is about permissions.
const nobody = 65534

// TestDiskComesBack: a disk that takes no more, and one that turns read-only while the store is
// open, are told with what to do, nothing that was granted is lost, nothing that failed is spent,
// and the store comes back by itself with the first call after the disk did.
//
// The disk is a limit on what a process of its own may write (RLIMIT_FSIZE), and one of 1 MiB that
// this process mounts. It turns read-only as a broken file system does: a write fails first, then
// nothing can be opened for writing any more; by the modes of file and directory, and by remounting
// it.
//
// req: D2, D10
func TestDiskComesBack(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"full", "modes", "mounted", "mounted full"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			onDisk(t, filepath.Join(ownDir(t), "state.db"), mode)
		})
	}
}

// TestOpenReadOnly opens a file that may not be written, by its modes and on a disk that is mounted
// read-only.
//
// req: D10
func TestOpenReadOnly(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"open modes", "open mounted"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			onDisk(t, filepath.Join(ownDir(t), "state.db"), mode)
		})
	}
}

// TestOpenLater opens a database whose disk is read-only or full, as a machine that restarts does.
// Each call fails with what to do, reading ones too, and the first one after the disk comes back
// finds what was granted before.
//
// req: D2, D10
func TestOpenLater(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"later modes", "later mounted", "later mounted full"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			onDisk(t, filepath.Join(ownDir(t), "state.db"), mode)
		})
	}
}

// ownDir returns a directory of the user that a child becomes.
func ownDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
	if os.Getuid() == 0 {
		if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chown(dir, nobody, nobody)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// onDisk runs a child whose disk fails.
func onDisk(t *testing.T, path, mode string) {
	t.Helper()
	run := func(mode string) ([]byte, error) {
		cmd := child(t.Context(), "disk", path, mode)
		cmd.Stderr = nil
		if strings.Contains(mode, "mount") {
			privately(cmd)
		}
		return cmd.CombinedOutput()
	}
	if strings.Contains(mode, "mount") {
		if out, err := run("try to mount"); err != nil {
			t.Skipf("a file system has to be mounted: run it as root, or where a user may have a user namespace (unshare -Urm): %v %s", err, out)
		}
	}
	if out, err := run(mode); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// diskChild is the process whose disk fails.
func diskChild(path string, args []string) error {
	signal.Ignore(syscall.SIGXFSZ) // as a server has to: writing fails instead
	mode, dir := args[0], filepath.Dir(path)
	switch {
	case mode == "repair":
		return repairFull(path)
	case strings.HasSuffix(mode, "modes") && os.Getuid() == 0:
		if err := errors.Join(syscall.Setgid(nobody), syscall.Setuid(nobody)); err != nil {
			return err
		}
	case strings.Contains(mode, "mount"):
		if err := mountSmall(dir); err != nil || mode == "try to mount" {
			return err
		}
	}
	if err := makeUncleaned(path); err != nil { // cleaning, in the background, would open the file again at any time
		return err
	}
	switch mode {
	case "open modes":
		return openReadOnly(path, errors.Join(os.Chmod(path, 0o400), os.Chmod(dir, 0o500)))
	case "open mounted":
		return openReadOnly(path, remount(dir, true))
	}
	s, err := sqlitestore.Open(path, nil)
	if err != nil {
		return err
	}
	d := &disk{s: s, path: path, plan: widePlan()}
	switch mode {
	case "later modes":
		return d.later(func(failing bool) error { return closedModes(path, failing) })
	case "later mounted":
		return d.later(func(failing bool) error { return remount(dir, failing) })
	case "later mounted full":
		return d.later(func(failing bool) error { return ballast(dir, failing) })
	}
	switch mode {
	case "full":
		err = d.full()
	case "mounted full":
		err = d.fullDisk()
	case "modes":
		err = d.readOnly(func(ro bool) error { return modes(path, ro) })
	case "mounted":
		err = d.readOnly(func(ro bool) error { return remount(dir, ro) })
	}
	return errors.Join(err, s.Close())
}

// openReadOnly opens a file that was made read-only, and makes one beside it.
func openReadOnly(path string, err error) error {
	if err != nil {
		return err
	}
	_, err = sqlitestore.Open(path, nil)
	if se, ok := errors.AsType[*store.Error](err); !ok || se.Fault != store.FaultConfiguration ||
		!strings.Contains(err.Error(), "written") {
		return fmt.Errorf("got %w, want an error of the configuration that says that the file cannot be written", err)
	}
	if _, err = sqlitestore.Open(path+"2", nil); !errors.Is(err, store.ErrStoreUnavailable) {
		return fmt.Errorf("another file: got %w, want ErrStoreUnavailable", err)
	}
	return nil
}

// disk is a store on a disk that fails.
type disk struct {
	s       *sqlitestore.Store
	path    string
	plan    *store.Plan
	granted int64
}

// take takes a unit with a large label.
func (d *disk) take() error {
	out := make([]store.Verdict, 1)
	tk := store.Take{Buckets: buckets(d.plan, "k", 1), Labels: []store.Label{{
		Name:  "pad",
		Value: strings.Repeat("x", 2000),
	}}}
	err := d.s.Take(context.Background(), []store.Take{tk}, out)
	if err == nil {
		err = out[0].Fail
	}
	if err == nil {
		d.granted++
	}
	return err
}

// fails checks that a take fails, and says what to do.
func (d *disk) fails(when, says string) error {
	err := d.take()
	if se, ok := errors.AsType[*store.Error](err); !ok || se.Fault != store.FaultConfiguration ||
		!strings.Contains(err.Error(), says) {
		return fmt.Errorf("%s: got %w, want an error of the configuration that says %q", when, err, says)
	}
	return nil
}

// back checks that the store has come back, with all that was granted and no more.
func (d *disk) back() error {
	if err := d.take(); err != nil {
		return fmt.Errorf("the disk is well again: %w", err)
	}
	out := make([]store.State, 1)
	if err := d.s.Peek(context.Background(), buckets(d.plan, "k", 1), 0, out); err != nil {
		return err
	}
	events := int64(0)
	err := d.s.Read(context.Background(), store.EventQuery{}, func(store.Event) bool { events++; return true })
	if used := out[0].States[0].Used; used != d.granted || events != d.granted || err != nil {
		return fmt.Errorf("%d used, %d in the history, %d granted, %w", used, events, d.granted, err)
	}
	return nil
}

func (d *disk) full() error {
	for range 3 { // a disk may be full again and again
		info, err := os.Stat(d.path)
		if err == nil {
			err = writeUpTo(info.Size() + 100<<10)
		}
		if err == nil {
			err = d.fill()
		}
		if err = errors.Join(err, d.fails("full", "disk"), writeUpTo(-1), d.back()); err != nil {
			return err
		}
	}
	return nil
}

// fullDisk fills a disk of 1 MiB, on which something else takes less room each time.
func (d *disk) fullDisk() error {
	ballast := filepath.Join(filepath.Dir(d.path), "ballast")
	for size := 512 << 10; size >= 128<<10; size /= 2 {
		err := os.WriteFile(ballast, make([]byte, size), 0o600)
		if err == nil {
			err = d.fill()
		}
		if err = errors.Join(err, d.fails("full", "disk is full"), os.Remove(ballast), d.back()); err != nil {
			return fmt.Errorf("with ballast of %d bytes: %w", size, err)
		}
	}
	return nil
}

// fill takes until nothing more fits.
func (d *disk) fill() error {
	failed := 0 // in a row: until the file itself is full, moving the log into it makes room
	for n := 0; failed < 3; n++ {
		if failed++; d.take() == nil {
			failed = 0
		}
		if n > 1000 {
			return fmt.Errorf("%d takes of 2 KB fit", n)
		}
	}
	return nil
}

// readOnly has the disk fail, turn read-only, and come back.
func (d *disk) readOnly(set func(ro bool) error) error {
	err := errors.Join(d.take(), writeUpTo(0), d.fails("a disk that takes no more", "disk"), writeUpTo(-1), set(true))
	if err != nil {
		return err
	}
	err = errors.Join(d.fails("read-only", "written"), d.fails("still read-only", "written"))
	return errors.Join(err, set(false), d.back())
}

// later closes the store, and opens it again while its disk fails.
func (d *disk) later(set func(failing bool) error) error {
	if err := errors.Join(d.take(), d.s.Close(), set(true)); err != nil {
		return err
	}
	if _, err := sqlitestore.Open(d.path, nil); !errors.Is(err, store.ErrStoreUnavailable) {
		return fmt.Errorf("without OpenLater: got %w, want ErrStoreUnavailable", err)
	}
	s, err := sqlitestore.Open(d.path, &sqlitestore.Options{OpenLater: true})
	if err != nil {
		return err
	}
	d.s = s
	list := s.List(context.Background(), "", "p", func(store.Key) bool { return true })
	if errors.Is(list, store.ErrStoreUnavailable) {
		list = nil
	} else {
		list = fmt.Errorf("listing: got %w, want ErrStoreUnavailable", list)
	}
	if !s.SoleOwner() {
		err = errors.New("it is not the sole owner")
	}
	err = errors.Join(err, list, d.fails("not open yet", "check"), d.fails("still not open", "recovers by itself"),
		set(false), d.back())
	return errors.Join(err, s.Close())
}

// closedModes is modes for a database that nobody has open, which has no log.
func closedModes(path string, ro bool) error {
	dir := filepath.Dir(path)
	if ro {
		return errors.Join(os.Chmod(path, 0o400), os.Chmod(dir, 0o500))
	}
	return errors.Join(os.Chmod(dir, 0o700), os.Chmod(path, 0o600))
}

// ballast fills a disk to the last byte, or frees it.
func ballast(dir string, full bool) error {
	path := filepath.Join(dir, "ballast")
	if !full {
		return os.Remove(path)
	}
	f, err := os.Create(path)
	for err == nil {
		_, err = f.Write(make([]byte, 512))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		return err
	}
	return f.Close()
}

// TestRepairOnAFullDisk fails, wherever the room ends, and changes nothing by it: the damaged file
// stays where it is, and is refused. With room it succeeds.
//
// req: D2, D10
func TestRepairOnAFullDisk(t *testing.T) {
	t.Parallel()
	path := filled(t)
	damaged := content(t, path)
	copy(damaged[8192:], strings.Repeat("junk", 1024))
	write(t, path, damaged)
	cmd := child(t.Context(), "disk", path, "repair")
	cmd.Stderr = nil
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if r := repair(t, path, nil, newClock()); !r.Whole {
		t.Errorf("%+v", r)
	}
}

// repairFull repairs a file with more and more room.
func repairFull(path string) error {
	before, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for size := int64(0); ; size += 20_000 {
		err := writeUpTo(size)
		if err != nil {
			return err
		}
		_, failed := sqlitestore.Repair(path, nil)
		if err := writeUpTo(-1); err != nil {
			return err
		}
		if failed == nil && size == 0 {
			return errors.New("it was repaired without any room")
		}
		if failed == nil {
			return nil
		}
		if _, err := sqlitestore.Open(path, nil); !errors.Is(err, sqlitestore.ErrDamaged) {
			return fmt.Errorf("with %d bytes: opening it: %w, want ErrDamaged", size, err)
		}
		left, err := filepath.Glob(path + ".*")
		// none of these is of a repair
		left = slices.DeleteFunc(left, func(name string) bool {
			return name == path+".mark" || name == path+".owner" ||
				name == path+".users"
		})
		if after, failed := os.ReadFile(path); err != nil || failed != nil || len(left) > 0 ||
			!bytes.Equal(before, after) {
			return fmt.Errorf("with %d bytes: %q are left, the file was changed: %v", size, left,
				!bytes.Equal(before, after))
		}
	}
}

// writeUpTo bounds the size up to which this process may write files; a negative one lifts the
// bound.
func writeUpTo(size int64) error {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &l); err != nil {
		return err
	}
	bound(&l.Cur, l.Max, size)
	return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &l)
}

// bound exists because the type of a limit is not the same everywhere.
func bound[T int64 | uint64](to *T, most T, size int64) {
	if *to = most; size >= 0 {
		*to = min(most, T(size))
	}
}

// modes takes away or gives back the permission to write a database.
func modes(path string, ro bool) error {
	file, dir := os.FileMode(0o600), os.FileMode(0o700)
	if ro {
		file, dir = 0o400, 0o500
	}
	return errors.Join(os.Chmod(filepath.Dir(path), 0o700), os.Chmod(path, file), os.Chmod(path+"-wal", file),
		os.Chmod(path+"-shm", file),
		os.Chmod(filepath.Dir(path), dir))
}
