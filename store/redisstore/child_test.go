package redisstore_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drawgate/drawgate/internal/redistest"
)

// child is a process that a test has started: this test binary, or a copy of it, as a worker. It
// ends when its standard input does.
type child struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.Closer
	read  chan struct{} // closed when all it wrote was read
}

// startChild starts a worker. What it has to do is in the environment variable env. line is called
// with each line that it writes, from one goroutine.
func startChild(t *testing.T, program, env string, spec any, line func(word string, n []int64)) *child {
	t.Helper()
	text, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	c := &child{t: t, cmd: exec.CommandContext(context.Background(), program), read: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), env+"="+string(text))
	c.cmd.Stderr = os.Stderr
	c.cmd.SysProcAttr = redistest.DieWithParent()
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { // ends with the process
		defer close(c.read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			word, rest, _ := strings.Cut(lines.Text(), " ")
			line(word, integers(rest))
		}
	}()
	t.Cleanup(func() {
		c.kill() // it has ended, unless the test failed
		_ = c.cmd.Wait()
	})
	return c
}

func integers(text string) (all []int64) {
	for field := range strings.FieldsSeq(text) {
		n, _ := strconv.ParseInt(field, 10, 64)
		all = append(all, n)
	}
	return all
}

// kill ends the process as kill -9 does, and waits until all is read that it wrote.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	<-c.read
}

// end lets the process end by itself.
func (c *child) end() {
	_ = c.stdin.Close()
	<-c.read
}

func (c *child) hang() {
	c.t.Helper()
	redistest.Hang(c.t, c.cmd.Process.Pid)
}

func (c *child) resume() {
	c.t.Helper()
	redistest.Resume(c.t, c.cmd.Process.Pid)
}

// machineClock is the wall clock as it was when the process started, and from then on its monotonic
// clock: what sets the process's own clock meanwhile does not move it.
type machineClock struct {
	start time.Time
	wall  int64 // ns, at start
}

// newMachineClock returns the clock of a process whose own clock is ahead of the machine's. A
// process may be interrupted between reading one clock and the other: the largest of many
// differences is the true one.
func newMachineClock(ahead time.Duration) machineClock {
	c := machineClock{start: time.Now()}
	for range 1000 {
		now := time.Now()
		c.wall = max(c.wall, now.UnixNano()-int64(now.Sub(c.start)))
	}
	c.wall -= int64(ahead)
	return c
}

// now returns the time in Unix µs.
func (c machineClock) now() int64 { return (c.wall + int64(time.Since(c.start))) / 1000 }

// out writes lines to the standard output, each at once.
type out struct{ mu sync.Mutex }

func (o *out) say(word string, n ...int64) {
	b := make([]byte, 0, 96)
	b = append(b, word...)
	for _, x := range n {
		b = strconv.AppendInt(append(b, ' '), x, 10)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	_, _ = os.Stdout.Write(append(b, '\n')) // whoever reads it has ended: so does this process
}

// watch writes by how many µs later than it should this process is woken, if it is much.
func (o *out) watch(ctx context.Context) {
	for ctx.Err() == nil {
		due := time.Now().Add(10 * time.Millisecond)
		time.Sleep(time.Until(due))
		if late := time.Since(due); late > 20*time.Millisecond {
			o.say("late", late.Microseconds())
		}
	}
}

// untilInputEnds returns a context that ends with the standard input.
func untilInputEnds() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return ctx
}
