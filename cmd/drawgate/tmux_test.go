//go:build unix

package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/sleep"
)

// pane is a terminal in which a shell script runs.
type pane struct {
	t      *testing.T
	socket string
}

// pane runs a script in a terminal of its own. When it has ended, the screen stays.
func (b bench) pane(width, height int, script string) *pane {
	b.t.Helper()
	needs.Program(b.t, "tmux")
	dir, err := os.MkdirTemp("", "pane") // the path of a socket must be short
	if err != nil {
		b.t.Fatal(err)
	}
	p := &pane{b.t, filepath.Join(dir, "s")}
	path := filepath.Join(b.dir, "pane.sh")
	running := filepath.Join(dir, "running") // open in all that the script starts
	if err := syscall.Mkfifo(running, 0o600); err != nil {
		b.t.Fatal(err)
	}
	ended, err := os.OpenFile(running, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		b.t.Fatal(err)
	}
	b.write("pane.sh", "exec 9>"+running+"\n"+script+"\necho \"ended with $?\"\nexec cat\n")
	cmd := p.command("-f", "/dev/null", "new-session", "-d", "-x", strconv.Itoa(width), "-y", strconv.Itoa(height),
		"sh "+path)
	cmd.Dir, cmd.Env = b.dir, slices.Concat(b.env, []string{"TERM=xterm-256color", "LC_ALL=C.UTF-8"})
	if out, err := cmd.CombinedOutput(); err != nil {
		b.t.Fatalf("%v: %s", err, out)
	}
	b.t.Cleanup(func() {
		_ = exec.Command("tmux", "-S", p.socket, "kill-server").Run() // the test's context has ended
		_, _ = io.Copy(io.Discard, ended)                             // nothing writes into the test's folder any more
		_ = ended.Close()
		_ = os.RemoveAll(dir)
	})
	return p
}

func (p *pane) command(args ...string) *exec.Cmd {
	return exec.CommandContext(p.t.Context(), "tmux", append([]string{"-S", p.socket}, args...)...)
}

func (p *pane) tmux(args ...string) string {
	p.t.Helper()
	out, err := p.command(args...).CombinedOutput()
	if err != nil {
		p.t.Fatalf("tmux %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// screen returns what the terminal shows.
func (p *pane) screen() string {
	p.t.Helper()
	return strings.TrimRight(p.tmux("capture-pane", "-p"), "\n")
}

// until waits until the screen matches.
func (p *pane) until(pattern string) string {
	p.t.Helper()
	re := regexp.MustCompile("(?m)" + pattern)
	for end := time.Now().Add(endTime); ; {
		screen := p.screen()
		if re.MatchString(screen) {
			return screen
		}
		if time.Now().After(end) {
			p.t.Fatalf("the screen never matched %s:\n%s", pattern, screen)
		}
		sleep.For(p.t.Context(), 50*time.Millisecond)
	}
}

// keys presses keys.
func (p *pane) keys(keys ...string) {
	p.t.Helper()
	p.tmux(append([]string{"send-keys"}, keys...)...)
}
