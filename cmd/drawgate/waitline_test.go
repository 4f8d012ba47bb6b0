//go:build unix

package main

import (
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/internal/sleep"
)

// A command that waits says on a terminal what for, and how long; then the line is gone.
//
// req: U13
func TestWaitIsShownOnATerminal(t *testing.T) {
	t.Parallel()
	b := newBench(t, "DRAWGATE_CONFIG=slots.yaml")
	b.write("slots.yaml", "store: sqlite:slots.db\npolicies:\n  builds: {limits: [{name: at-once, concurrency: 1}]}\n")
	j := b.start("echo ready; exec sleep 600", "--hold", "1h")
	p := b.pane(100, 10, "echo before; drawgate run --wait 10m -- echo it runs")
	p.until(`^waiting \d+s: open reservations hold limit "at-once" of policy "builds"$`)
	// Another process is in front of it.
	b.pane(40, 10, "drawgate run --wait 10m -- echo narrow").until(`^waiting \d+s, place 2: open reserv\w*…$`)
	if err := j.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, code := b.do("reset", "--yes"); code != 0 {
		t.Errorf("reset: %d", code)
	}
	want := "before\nit runs\nended with 0"
	if got := p.until(`^ended with 0$`); !strings.Contains(got, want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A terminal that is stopped does not hold up who has waited.
func TestWaitLineOnAStoppedTerminal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		terminal, writer := io.Pipe() // nobody reads
		l := &waitLine{
			out: writer, columns: func() int { return 80 }, latest: make(chan api.Progress, 1),
			stop: make(chan struct{}), done: make(chan struct{}),
		}
		go l.run()
		l.tell(api.Progress{Reason: "limited"})
		synctest.Wait()
		l.end()
		select {
		case <-l.done:
			t.Error("nothing was written")
		default:
		}
		_ = terminal.Close()
		<-l.done
	})
}

// In a server's line the place is worth knowing. A log gets nothing.
//
// req: U13
func TestWaitInAServersLine(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.write("drawgate.yaml", "store: 'memory:'\npolicies:\n  builds: {limits: [{name: at-once, concurrency: 1}]}\n")
	d := b.daemon()
	b.env = append(b.env, "DRAWGATE_SERVER="+d.admin)
	j := b.start("echo ready; exec sleep 600", "--hold", "1h")
	first := b.pane(100, 10, "drawgate run --wait 10m -- sh -c 'echo first; read line'")
	first.until(`^waiting( \d+s)?, place 1: open reservations hold limit "at-once" of policy "builds"$`)
	quiet := b.command("run", "--wait", "10m", "--", "echo", "quiet")
	log := &strings.Builder{}
	quiet.Stderr = log
	if err := quiet.Start(); err != nil {
		t.Fatal(err)
	}
	for decoded[api.Health](d, d.admin+"/readyz", nil).Waiting < 2 {
		sleep.For(t.Context(), 10*time.Millisecond)
	}
	last := b.pane(100, 10, "drawgate run --wait 10m -- echo last")
	last.until(`^waiting( \d+s)?, place 3: `)
	if err := j.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	j.end(t)
	if _, code := b.do("reset", "--yes"); code != 0 {
		t.Errorf("reset: %d", code)
	}
	first.until(`^first$`)
	last.until(`^waiting( \d+s)?, place 2: `)
	first.keys("Enter")
	if got := last.until(`^ended with 0$`); !strings.HasPrefix(got, "last\n") {
		t.Errorf("got %s", got)
	}
	if err := quiet.Wait(); err != nil || log.Len() > 0 {
		t.Errorf("%v: %s", err, log)
	}
}

func TestWaitText(t *testing.T) {
	t.Parallel()
	limited := api.Progress{
		Place: 2, Reason: api.ReasonLimited, Policy: "gpt", Limit: "rpm", EstimateMS: 12_000,
		WaitedMS: 900,
	}
	for _, c := range []struct {
		p      api.Progress
		ago    time.Duration
		server bool
		want   string
	}{
		{limited, 0, false, `waiting, at least 12s more: limit "rpm" of policy "gpt" is used up`},
		{
			limited, 2100 * time.Millisecond, true,
			`waiting 3s, place 2, at least 10s more: limit "rpm" of policy "gpt" is used up`,
		},
		{limited, 20 * time.Second, true, `waiting 20s, place 2: limit "rpm" of policy "gpt" is used up`},
		{
			api.Progress{Reason: api.ReasonHeld, Policy: "gpt", Limit: "rpm"},
			0, false,
			`waiting: open reservations hold limit "rpm" of policy "gpt"`,
		},
		{
			api.Progress{Reason: api.ReasonPaused, Policy: "gpt", Pause: "a\x1b[31m", EstimateMS: 7_200_000},
			0, false,
			`waiting, at least 2h more: policy "gpt" is paused for this key (a\x1b[31m)`,
		},
		{
			api.Progress{Reason: api.ReasonQueued, Policy: "gpt"},
			0, false,
			`waiting: others are in front, for policy "gpt"`,
		},
		{
			api.Progress{Reason: api.ReasonUnavailable, Policy: "gpt", Limit: "rpm"},
			0, false,
			`waiting: the store is unavailable, and policy "gpt" has no share left`,
		},
	} {
		if got := waitText(&c.p, c.ago, c.server); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}
