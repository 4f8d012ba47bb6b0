//go:build unix

package incident_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/drawgate/drawgate/incident"
)

const childVar = "DRAWGATE_INCIDENT_CHILD"

// TestMain runs a child if its variable says which.
func TestMain(m *testing.M) {
	children := map[string]func(path string) error{
		"write": writeChild, "limit": limitChild, "disk": diskChild,
		"try to mount": tryChild,
	}
	if f := children[os.Getenv(childVar)]; f != nil {
		if err := f(os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func child(ctx context.Context, kind, path string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], path)
	cmd.Env = append(os.Environ(), childVar+"="+kind)
	return cmd
}

// writeChild writes incidents until it is killed, and names those that are on the disk.
func writeChild(path string) error {
	for n := 0; ; n++ {
		in := numbered(n)
		in.Summary = strings.Repeat("long ", 1000)
		if err := incident.Append(path, 8<<20, in); err != nil {
			return err
		}
		fmt.Println(in.ID)
	}
}

// TestKilledWhileWriting: whatever was written before a kill -9 is there, and the next process goes
// on behind it.
//
// req: A14
func TestKilledWhileWriting(t *testing.T) {
	t.Parallel()
	for round := range 10 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "f")
			cmd := child(t.Context(), "write", path)
			pipe, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var acknowledged []string
			for s := bufio.NewScanner(pipe); s.Scan(); {
				if acknowledged = append(acknowledged, s.Text()); len(acknowledged) == 10+7*round {
					if err := cmd.Process.Kill(); err != nil {
						t.Error(err)
					}
				}
			}
			_ = cmd.Wait() // it was killed
			if err := incident.Append(path, 8<<20, numbered(99_999)); err != nil {
				t.Fatal(err)
			}
			list, skipped, err := incident.Read(path)
			if err != nil || skipped > 1 {
				t.Fatalf("%d lines were skipped, %v", skipped, err)
			}
			got := ids(list)
			if len(acknowledged) < 10+7*round || !slices.Equal(acknowledged, got[:len(acknowledged)]) ||
				got[len(got)-1] != "i99999" {
				t.Errorf("got %v, want %v, perhaps one more, and i99999", got, acknowledged)
			}
		})
	}
}

// TestFullDisk: an incident that does not fit on the disk is an error, leaves nothing behind that
// harms the others, and can be written once there is room. The disk is a limit on what a process
// may write, and a small one that is mounted.
//
// req: A14
func TestFullDisk(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"limit", "disk"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			run := func(kind string) ([]byte, error) {
				cmd := child(t.Context(), kind, filepath.Join(t.TempDir(), "f"))
				if kind != "limit" {
					privately(cmd)
				}
				return cmd.CombinedOutput()
			}
			if kind == "disk" {
				if out, err := run("try to mount"); err != nil {
					t.Skipf("a file system has to be mounted: run it as root, or where a user may have a user namespace (unshare -Urm): %v %s", err, out)
				}
			}
			if out, err := run(kind); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

func tryChild(path string) error { return mountSmall(filepath.Dir(path)) }

// limitChild may write only so much to a file.
func limitChild(path string) error {
	signal.Ignore(syscall.SIGXFSZ)
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		return err
	}
	set := func(most uint64) error {
		return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: min(most, old.Max), Max: old.Max})
	}
	if err := set(20_000); err != nil {
		return err
	}
	return full(path, syscall.EFBIG, func() error { return set(old.Max) })
}

// diskChild has a disk of 1 MiB.
func diskChild(path string) error {
	if err := mountSmall(filepath.Dir(path)); err != nil {
		return err
	}
	ballast := path + ".ballast"
	if err := os.WriteFile(ballast, make([]byte, 1<<20-40_000), 0o600); err != nil {
		return err
	}
	return full(path, syscall.ENOSPC, func() error { return os.Remove(ballast) })
}

// full writes incidents until the disk is full, makes room, and writes one more.
func full(path string, want error, room func() error) error {
	written := 0
	for ; ; written++ {
		in := numbered(written)
		in.Summary = strings.Repeat("long ", 1000)
		if err := incident.Append(path, 8<<20, in); errors.Is(err, want) {
			break
		} else if err != nil || written > 1000 {
			return fmt.Errorf("after %d: got %w, want %w", written, err, want)
		}
	}
	before, skipped, err := incident.Read(path)
	if err != nil || written == 0 || len(before) != written || skipped != 0 {
		return fmt.Errorf("while the disk is full: %d of %d incidents, %d skipped, %w", len(before), written, skipped,
			err)
	}
	if err := errors.Join(room(), incident.Append(path, 8<<20, numbered(written))); err != nil {
		return err
	}
	after, skipped, err := incident.Read(path)
	if err != nil || len(after) != written+1 || skipped != 0 {
		return fmt.Errorf("with room again: %d of %d incidents, %d skipped, %w", len(after), written+1, skipped, err)
	}
	return nil
}
