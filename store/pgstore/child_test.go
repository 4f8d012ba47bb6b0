package pgstore_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/drawgate/drawgate/internal/redistest"
)

// envChild makes this test binary a child of a test: what it has to do.
const envChild = "DRAWGATE_TEST_PG_CHILD"

// job is what a child has to do: one of these.
type job struct {
	Takes  *taker
	Holder *holder
}

// work is the main function of a child. It writes lines to its standard output, and reads them from
// its standard input.
func work(spec string) {
	var j job
	if err := json.Unmarshal([]byte(spec), &j); err != nil {
		panic(err)
	}
	in := bufio.NewReader(os.Stdin)
	listen := func() { _, _ = in.ReadString('\n') } // at its end the test has ended, and kills this process
	switch {
	case j.Takes != nil:
		j.Takes.work(listen)
	case j.Holder != nil:
		j.Holder.work(listen)
	}
}

// tell writes a line.
func tell(line ...any) { _, _ = io.WriteString(os.Stdout, fmt.Sprintln(line...)) }

// child is a process that a test has started.
type child struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Reader
}

func startChild(t *testing.T, j job) *child {
	t.Helper()
	spec, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	c := &child{t: t, cmd: exec.CommandContext(context.WithoutCancel(t.Context()), os.Args[0])}
	c.cmd.Env = append(os.Environ(), envChild+"="+string(spec))
	c.cmd.Stderr, c.cmd.SysProcAttr = os.Stderr, redistest.DieWithParent()
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.out = bufio.NewReader(out)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill() // it may have ended already
		_ = c.cmd.Wait()
	})
	return c
}

// hears returns the next line that the child writes.
func (c *child) hears() string {
	c.t.Helper()
	line, err := c.out.ReadString('\n')
	if err != nil {
		c.t.Fatalf("a child has ended: %q, %v", line, err)
	}
	return strings.TrimSuffix(line, "\n")
}

// expect waits for a line.
func (c *child) expect(want string) {
	c.t.Helper()
	if got := c.hears(); got != want {
		c.t.Fatalf("a child says %q, want %q", got, want)
	}
}

// proceed lets a child that listens go on.
func (c *child) proceed() { _, _ = io.WriteString(c.in, "go on\n") }
