package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/term"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/client"
	"github.com/drawgate/drawgate/internal/present"
)

// showWait returns a context whose takes show what they wait for, in a line of the terminal. end
// erases it, unless the terminal is stopped. If the standard error is no terminal, nothing is
// shown: it may be a log.
func (a *app) showWait(ctx context.Context) (_ context.Context, end func()) {
	f, ok := a.errOut.(*os.File)
	// whose console may not know the sequences
	if !ok || a.json || !term.IsTerminal(f.Fd()) || os.Getenv("TERM") == "dumb" || runtime.GOOS == "windows" {
		return ctx, func() {}
	}
	l := &waitLine{
		out: f, server: a.serverURL() != "", latest: make(chan api.Progress, 1), stop: make(chan struct{}),
		done: make(chan struct{}),
	}
	l.columns = func() int { return columns(f) }
	go l.run()
	ctx = drawgate.WithProgress(ctx, func(p drawgate.Progress) { l.tell(present.Progress(&p)) })
	return client.WithProgress(ctx, l.tell), l.end
}

// waitLine is a line that says what a take waits for, and counts the seconds. A terminal may be
// stopped, and must not hold up the take; so a goroutine writes.
type waitLine struct {
	out     io.Writer
	columns func() int
	server  bool // the take waits in a server's line: its place there is worth knowing
	latest  chan api.Progress
	stop    chan struct{}
	done    chan struct{}
}

// tell replaces what is not shown yet. It is called by one goroutine.
func (l *waitLine) tell(p api.Progress) {
	select {
	case <-l.latest:
	default:
	}
	l.latest <- p
}

// patience is how long the end of a wait may be held up by a terminal that is stopped: the units
// are held already.
const patience = time.Second

func (l *waitLine) end() {
	close(l.stop)
	select {
	case <-l.done:
	case <-time.After(patience):
	}
}

// eraseLine moves to the start of the line and erases it.
const eraseLine = "\r\x1b[K"

func (l *waitLine) run() {
	defer close(l.done)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var last api.Progress
	var since time.Time
	for {
		select {
		case last = <-l.latest:
			since = time.Now()
		case <-tick.C:
		case <-l.stop:
			if !since.IsZero() {
				_, _ = io.WriteString(l.out, eraseLine) // nothing can be done if the terminal is gone
			}
			return
		}
		if !since.IsZero() {
			text := ansi.Truncate(waitText(&last, time.Since(since), l.server), l.columns()-1, "…")
			_, _ = io.WriteString(l.out, eraseLine+text)
		}
	}
}

// waitText says what a take waits for, some time after that was known.
func waitText(p *api.Progress, ago time.Duration, server bool) string {
	text := "waiting"
	if waited := (time.Duration(p.WaitedMS)*time.Millisecond + ago).Truncate(time.Second); waited > 0 {
		text += " " + waited.String()
	}
	if place := p.Place + p.Others; server || p.Others > 0 {
		text += fmt.Sprintf(", place %d", place)
	}
	left := time.Duration(p.EstimateMS)*time.Millisecond - ago
	if left = (left + time.Second - 1).Truncate(time.Second); left > 0 {
		text += fmt.Sprintf(", at least %s more", present.Duration(left))
	}
	return present.Escape(text+": "+present.Obstacle(p), "")
}
