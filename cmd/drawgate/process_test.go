//go:build unix

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/internal/sleep"
)

// bench is a directory in which the real program runs, with only the given environment.
type bench struct {
	t       *testing.T
	dir     string
	env     []string
	program string
}

// awsEnv are credentials that any stand-in takes.
var awsEnv = []string{"AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test", "AWS_EC2_METADATA_DISABLED=true"}

func newBench(t *testing.T, env ...string) bench {
	t.Helper()
	dir := t.TempDir()
	return bench{t, dir, append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "XDG_STATE_HOME=" + dir,
		longTimeouts,
	}, env...), "drawgate"}
}

func (b bench) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(b.t.Context(), b.program, args...)
	cmd.Dir, cmd.Env = b.dir, b.env
	return cmd
}

// do runs the program to its end.
func (b bench) do(args ...string) (stdout string, code int) {
	b.t.Helper()
	out, err := b.command(args...).Output()
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		return string(out), e.ExitCode()
	} else if err != nil {
		b.t.Fatal(err)
	}
	return string(out), 0
}

func (b bench) write(name, text string) {
	b.t.Helper()
	if err := os.WriteFile(filepath.Join(b.dir, name), []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// day is the index of the limit of the sample policy that does not become free while a test runs.
const day = 1

func (b bench) status() api.StatusAnswer {
	b.t.Helper()
	out, code := b.do("status", "--json")
	var all []api.StatusAnswer
	if err := json.Unmarshal([]byte(out), &all); err != nil || code != 0 || len(all) != 1 {
		b.t.Fatalf("status: %d, %v: %s", code, err, out)
	}
	return all[0]
}

// job is a drawgate run whose command has printed that it runs.
type job struct {
	cmd *exec.Cmd
	out *bufio.Reader
	err *bytes.Buffer
}

// start runs a shell script, whose first line of output must be "ready".
func (b bench) start(script string, flags ...string) job {
	b.t.Helper()
	cmd := b.command(append(append([]string{"run"}, flags...), "--", "sh", "-c", script)...)
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	j := job{cmd, bufio.NewReader(pipe), &bytes.Buffer{}}
	cmd.Stderr = j.err
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	if line, err := j.out.ReadString('\n'); line != "ready\n" {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // then what it said is all there
		b.t.Fatalf("the command said %q: %v; %s", line, err, j.err)
	}
	return j
}

// end waits until no process has the output open any more. Then the command has ended, and
// everything that it started.
func (j job) end(t *testing.T) (rest string, code int) {
	t.Helper()
	out, err := io.ReadAll(j.out)
	if err != nil {
		t.Fatal(err)
	}
	_ = j.cmd.Wait() // the exit code says it
	return string(out), j.cmd.ProcessState.ExitCode()
}

// If drawgate is killed, what it held counts as used, and its command does not go on without a
// hold.
//
// req: A1
func TestUnitsOfAKilledProcessCountAsUsed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	j := b.start("echo ready; exec sleep 600", "-n", "4", "--hold", "15s")
	if st := b.status(); st.Open != 1 || st.Limits[day].Used != 4 {
		t.Errorf("during the hold: got %d open, %d used", st.Open, st.Limits[day].Used)
	}
	if err := j.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, code := j.end(t); code != -1 {
		t.Errorf("got exit code %d", code)
	}
	st := b.status()
	for st.Open > 0 { // until the hold ends; each look is a process
		sleep.For(t.Context(), time.Second)
		st = b.status()
	}
	if used := st.Limits[day].Used; used != 4 {
		t.Errorf("got %d used, want 4", used)
	}
}

// req: D12
func TestSlotOfAKilledProcessComesFree(t *testing.T) {
	t.Parallel()
	b := newBench(t, "DRAWGATE_CONFIG=slots.yaml")
	b.write("slots.yaml", "store: sqlite:slots.db\npolicies:\n  slots: {limits: [{name: slots, concurrency: 1}]}\n")
	j := b.start("echo ready; exec sleep 600", "--hold", "15s")
	if err := j.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	j.end(t)
	if _, code := b.do("run", "--wait", "1m", "--", "true"); code != 0 {
		t.Errorf("got exit code %d", code)
	}
}

func TestSignalsArePassedOn(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR1} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			j := b.start(`trap 'echo got; exit 7' TERM INT HUP USR1; echo ready; while :; do sleep 0.02; done`)
			if err := j.cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			if rest, code := j.end(t); rest != "got\n" || code != 7 {
				t.Errorf("it said %q and ended with %d", rest, code)
			}
			if st := b.status(); st.Open != 0 || st.Limits[day].Used != 1 {
				t.Errorf("%d open, %d used", st.Open, st.Limits[day].Used)
			}
		})
	}
}

// A signal reaches everything that the command started, and the exit code is that of a shell.
func TestSignalEndsTheWholeGroup(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	j := b.start("sleep 600 & echo ready; wait")
	if err := j.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if _, code := j.end(t); code != 128+15 {
		t.Errorf("exit code %d, want 143", code)
	}
}

func TestSignalEndsTheWait(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if _, code := b.do("take", "-n", "10"); code != 0 {
		t.Fatalf("got exit code %d", code)
	}
	cmd := b.command("run", "--wait", "10m", "--", "touch", "ran")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }() // the exit code says it
	// Nobody can see from outside that the process waits, so the signal is repeated until it ends.
	// A process that gets it before it handles signals simply ends.
	for ended := false; !ended; {
		select {
		case <-done:
			ended = true
		case <-time.After(100 * time.Millisecond):
			_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended in this moment
		}
	}
	if code := cmd.ProcessState.ExitCode(); code != 128+15 && code != -1 {
		t.Errorf("exit code %d, want 143", code)
	}
	if _, err := os.Stat(filepath.Join(b.dir, "ran")); err == nil {
		t.Error("the command ran, want it not started")
	}
	if st := b.status(); st.Limits[day].Used != 10 || st.Open != 0 {
		t.Errorf("%d used, %d open", st.Limits[day].Used, st.Open)
	}
}

// If the store becomes unavailable while a command runs, drawgate waits for it. If the hold cannot
// be renewed in time, the command is ended before the hold ends.
func TestStoreThatStaysUnavailableLosesTheHold(t *testing.T) {
	t.Parallel()
	b := newBench(t, "DRAWGATE_STORE=sqlite:counts.db")
	j := b.start("echo ready; exec sleep 600", "--hold", "15s")
	if err := os.Rename(filepath.Join(b.dir, "drawgate", "counts.db"),
		filepath.Join(b.dir, "drawgate", "away.db")); err != nil {
		t.Fatal(err)
	}
	if _, code := j.end(t); code != exitLost || !strings.Contains(j.err.String(), "could not be renewed in time") {
		t.Errorf("exit code %d: %s", code, j.err)
	}
}

// stubborn is a script that ignores SIGTERM, and prints a line if it was not killed for a long
// time.
const stubborn = `trap '' TERM; echo ready; i=0; while [ $i -lt 300 ]; do sleep 0.2; i=$((i+1)); done; echo survived`

// A command that ignores SIGTERM is killed when the hold ends, however long the grace is.
func TestCommandDoesNotOutliveItsHold(t *testing.T) {
	t.Parallel()
	b := newBench(t, "DRAWGATE_STORE=sqlite:counts.db")
	j := b.start(stubborn, "--hold", "15s", "--grace", "1h")
	if err := os.Rename(filepath.Join(b.dir, "drawgate", "counts.db"),
		filepath.Join(b.dir, "drawgate", "away.db")); err != nil {
		t.Fatal(err)
	}
	if rest, code := j.end(t); code != exitLost || rest != "" {
		t.Errorf("it said %q and ended with %d: %s", rest, code, j.err)
	}
}

// When the hold is lost, everything that the command has started is ended with it, also if it
// ignores SIGTERM. The wait ends early if all processes end by themselves.
func TestLostHoldEndsTheWholeGroup(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ script, grace, says string }{
		"killed": {"(" + stubborn + ") & wait", "200ms", ""},
		"ends by time": {
			`(trap 'sleep 0.3; echo bye; exit' TERM; echo ready; while :; do sleep 0.02; done) & wait`,
			"1h", "bye\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			j := b.start(c.script, "--hold", "15s", "--grace", c.grace)
			if out, code := b.do("reset", "--yes"); code != 0 {
				t.Fatalf("reset: %d: %s", code, out)
			}
			if rest, code := j.end(t); code != exitLost || rest != c.says {
				t.Errorf("it said %q and ended with %d: %s", rest, code, j.err)
			}
		})
	}
}

// A key may come from anywhere, so it must not be able to control the terminal of whoever looks at
// it.
func TestKeysDoNotReachTheTerminalRaw(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const key, want = "ü\x1b[2Jb\xff\u202e", `ü\x1b[2Jb\xff\u202e`
	for _, args := range [][]string{
		{"status", "--key", "\n" + key},
		{"explain", "--key", key},
		{"reset", "--key", key},
		{"status", "--policy", key},
		{"validate", key},
	} {
		out, err := b.command(args...).CombinedOutput()
		if e, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
			t.Fatal(err)
		} else if ok && e.ExitCode() < 0 {
			t.Errorf("%s: got %v, want an exit code", args[0], e)
		}
		if text := string(out); !strings.Contains(text, want) || strings.ContainsAny(text, "\x1b\u202e") ||
			strings.Contains(text, "\xff") {
			t.Errorf("%s: got %q, want it to contain %q and no control characters", args[0], text, want)
		}
	}
}
