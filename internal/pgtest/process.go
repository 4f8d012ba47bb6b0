package pgtest

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/redistest"
)

// programs returns the folder of PostgreSQL's programs. Debian has one for each version, and none
// of them is on the PATH: it is the newest.
func programs(tb testing.TB) string {
	tb.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres") // the pattern is valid
	if len(found) == 0 || testing.Short() {
		return filepath.Dir(needs.Program(tb, "postgres"))
	}
	version := func(path string) int {
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path)))) // 0 for those before 10
		return n
	}
	return filepath.Dir(slices.MaxFunc(found, func(a, b string) int { return cmp.Compare(version(a), version(b)) }))
}

// newFolder makes a folder for the user who runs the programs: in memory, if there is room,
// because a server has a thousand files. It is not the test's own, whose parent only its user may
// enter.
func newFolder() (string, error) {
	dir, err := os.MkdirTemp(memory(), "pgtest")
	if err != nil {
		return "", err
	}
	if err := giveAway(dir); err != nil {
		return dir, err
	}
	return filepath.EvalSymlinks(dir)
}

// command makes a command that runs in a folder of newFolder. The programs refuse to run as root,
// so another user does it.
func command(dir, program string, args ...string) (*exec.Cmd, error) {
	attr, err := attributes()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.SysProcAttr = dir, attr
	cmd.Env = append(os.Environ(), "LC_ALL=C") // what it says is looked for
	return cmd, nil
}

// runIn runs a program to its end.
func runIn(dir, program string, args ...string) error {
	cmd, err := command(dir, program, args...)
	if err != nil {
		return err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", program, err, out)
	}
	return nil
}

// process is a program that runs until it is killed.
type process struct {
	cmd  *exec.Cmd
	out  *redistest.Output
	done chan struct{} // closed when it has ended
}

// start starts a program, and waits until it writes a text. Another test's program may have taken
// its port: only what this one writes shows that it has it. The process is nil only if nothing
// runs.
func start(dir, ready, program string, args ...string) (*process, error) {
	cmd, err := command(dir, program, args...)
	if err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, out: redistest.NewOutput(ready), done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p.out, p.out
	cmd.WaitDelay = time.Second // its children may outlive it, and keep its output open
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() { // ends with the process
		_ = cmd.Wait() // it is killed: its exit code says nothing
		close(p.done)
	}()
	select {
	case <-p.out.Shown():
		return p, nil
	case <-p.done:
		return p, fmt.Errorf("%s ended\n%s", program, p.out)
	case <-time.After(patience):
		return p, fmt.Errorf("%s does not come up\n%s", program, p.out)
	}
}

// kill ends the process, if there is one, as a crash would.
func (p *process) kill() {
	if p == nil {
		return
	}
	_ = p.cmd.Process.Kill() // it may have ended already
	<-p.done
}

// killIn kills the processes that work in a folder, and returns those that there were. Where there
// is no /proc it finds none.
func killIn(dir string) (pids []int) {
	links, _ := filepath.Glob("/proc/[0-9]*/cwd") // the pattern is valid
	for _, link := range links {
		if at, err := os.Readlink(link); err != nil || at != dir {
			continue // it has ended, or is another one
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(link)))
		if err != nil {
			continue
		}
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Kill() // it may have ended already
		}
		pids = append(pids, pid)
	}
	return pids
}
