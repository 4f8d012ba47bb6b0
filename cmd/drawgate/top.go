package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/client"
	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/internal/top"
)

func (a *app) topCmd() *cobra.Command {
	interval := 2 * time.Second
	var once bool
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch the limits in a terminal",
		Long: `Show in a terminal, again and again: the buckets in use, the most used first; who waits, and for what; what was refused lately, and by which limit; the
store and the policies; the circuits of a gateway's upstreams; and incidents. Nothing is spent.

With --server, its address for administrators, it shows what that server knows. What the access token does not allow is left out. Otherwise it shows the
buckets of a store: what was refused lately only a server tells, and who waits for a bucket "drawgate status" does, too.

USE is the part of a bucket's most used limit; HELD of it is held by open reservations, of which there are OPEN.

Keys: s sorts by use, by name or by open reservations; / filters by policy, tenant or key; space stops and starts; q quits.

Without a terminal, or with --once, it prints one frame. With --json it prints one snapshot.`,
		Example: `  drawgate top --server http://` + defaultAdmin + `
  drawgate top --store redis://127.0.0.1:6379/0 --config drawgate.yaml
  drawgate top --once --server http://` + defaultAdmin,
		Args: noArgs,
		RunE: action(func(cmd *cobra.Command, _ []string) error {
			if interval < minInterval {
				return usage("--interval %v is less than %v", interval, minInterval)
			}
			return a.top(cmd.Context(), interval, once)
		}),
	}
	durationVar(cmd, &interval, "interval", interval, "time between two looks")
	cmd.Flags().BoolVar(&once, "once", false, "print one frame and exit")
	return cmd
}

// minInterval is the shortest time between two looks. A server reads its buckets once a second at
// most.
const minInterval = 100 * time.Millisecond

func (a *app) top(ctx context.Context, interval time.Duration, once bool) error {
	w, err := a.watch()
	if errors.Is(err, errNothingCounted) {
		return nil
	}
	if err != nil {
		return err
	}
	defer w.close()
	if !once && !a.json && term.IsTerminal(os.Stdout.Fd()) && term.IsTerminal(os.Stdin.Fd()) {
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, topSignals()...)
		defer signal.Stop(signals)
		got, err := top.Run(ctx, top.View{Source: w.source, Store: !w.waiting, Interval: interval}, w.read, signals)
		if err == nil && got != nil {
			return done128(got)
		}
		return err
	}
	s := w.read(ctx, "")
	if s.Err != nil {
		return remoteError(s.Err)
	}
	if a.json {
		a.printJSON(s)
		return nil
	}
	v := top.View{Source: w.source, Store: !w.waiting, Width: columns(os.Stdout)}
	out := colorprofile.NewWriter(os.Stdout, os.Environ())
	_, _ = io.WriteString(out, v.Frame(s, top.Lost{})+"\n") // nothing can be done if the output is closed
	return nil
}

// topSignals returns the signals that end the display, which then restores the terminal.
func topSignals() []os.Signal {
	list := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup
		list = append(list, syscall.SIGHUP)
	}
	return list
}

// columns returns the width of a terminal. Elsewhere lines are as long as they are.
func columns(f *os.File) int {
	width, _, err := term.GetSize(f.Fd())
	if err != nil || width <= 0 {
		return 1000
	}
	return width
}

// watch is what top looks at: a server, or a store by a server in this process.
type watch struct {
	source  string
	client  *client.Client
	waiting bool // takes wait there
	close   func()
}

// watch opens it. If the limits are switched off it prints that, and returns errNothingCounted.
func (a *app) watch() (*watch, error) {
	if a.serverURL() == "" {
		return a.watchStore()
	}
	c, err := client.New(a.serverURL(), &client.Options{Token: os.Getenv(envToken), Attempts: 1})
	if err != nil {
		return nil, usage("%s", strings.TrimPrefix(err.Error(), "client: "))
	}
	return &watch{source: a.serverURL(), client: c, waiting: true, close: c.Close}, nil
}

func (a *app) watchStore() (*watch, error) {
	s, err := a.openLogging(true, slog.New(slog.DiscardHandler)) // messages would disturb the screen
	if err != nil {
		return nil, err
	}
	if s.empty {
		a.printf("%s: nothing is counted\n", s.allowedOff().Message)
		return nil, errNothingCounted
	}
	ups, err := describeGateway(&s.Gateway)
	if err != nil {
		s.close()
		return nil, err
	}
	h, end, err := s.administer(ups)
	if err != nil {
		s.close()
		return nil, err
	}
	c, err := client.New("http://drawgate", &client.Options{HTTPClient: &http.Client{Transport: h}, Attempts: 1})
	if err != nil {
		s.close()
		return nil, err
	}
	return &watch{source: config.RedactURL(s.Store), client: c, close: func() { end(); s.close() }}, nil
}

// topIncidents is how far back incidents are shown.
const topIncidents = 24 * time.Hour

// read asks for everything at once.
func (w *watch) read(ctx context.Context, filter string) *top.Snapshot {
	s := &top.Snapshot{At: time.Now().UTC()}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	list := parts{stop: cancel}
	list.ask("the store's health", func() error {
		h, err := w.client.Ready(ctx)
		if err == nil {
			s.Health = &h
		}
		return err
	})
	list.ask("buckets", func() error {
		u, err := w.client.Usage(ctx, client.UsageQuery{Match: filter})
		if err == nil {
			s.Usage = &u
		}
		return err
	})
	list.ask("upstreams", func() (err error) {
		s.Upstreams, err = w.client.Upstreams(ctx, "")
		return err
	})
	if w.waiting {
		list.ask("waiting takes", func() error {
			l, err := w.client.Waiting(ctx, "", "")
			if err == nil {
				s.Waiting = &l
			}
			return err
		})
		list.ask("refusals", func() error {
			r, err := w.client.Refusals(ctx, client.RefusalsQuery{})
			if err == nil {
				s.Refusals = &r
			}
			return err
		})
		list.ask("incidents", func() (err error) {
			s.Incidents, err = w.client.Incidents(ctx, s.At.Add(-topIncidents))
			return err
		})
	}
	s.LeftOut, s.Err = list.wait()
	if s.Err != nil {
		return &top.Snapshot{At: s.At, Err: s.Err}
	}
	if !w.waiting {
		s.LeftOut = append(s.LeftOut, "waiting takes, refusals and incidents: only a server knows them, see --server")
	}
	return s
}

// parts are requests that are made at the same time. If one of them has no answer the others end:
// some may take longer than people want to wait for a server that hangs.
type parts struct {
	wg    sync.WaitGroup
	names []string
	errs  []*error
	stop  context.CancelFunc // ends the requests
	once  sync.Once
	none  error // of the first that nobody answered; to be read when all have ended
}

func (p *parts) ask(name string, f func() error) {
	err := new(error)
	p.names, p.errs = append(p.names, name), append(p.errs, err)
	p.wg.Go(func() {
		if *err = f(); *err != nil && client.Code(*err) == "" {
			p.once.Do(func() { p.none = *err })
			p.stop()
		}
	})
}

// wait returns which parts are left out, and why. A part that nobody answered is an error.
func (p *parts) wait() (leftOut []string, err error) {
	p.wg.Wait()
	if p.none != nil {
		return nil, p.none
	}
	var reasons []string
	named := map[string][]string{} // by reason
	for i, e := range p.errs {
		switch code := client.Code(*e); {
		case *e == nil:
			continue
		case code == api.CodeNotSupported && p.names[i] == "incidents":
			continue // a server without a gateway has none
		}
		reason := reasonOf(*e)
		if named[reason] == nil {
			reasons = append(reasons, reason)
		}
		named[reason] = append(named[reason], p.names[i])
	}
	for _, reason := range reasons {
		leftOut = append(leftOut, fmt.Sprintf("%s: %s", strings.Join(named[reason], ", "), reason))
	}
	return leftOut, nil
}

// reasonOf says why a part is left out.
func reasonOf(err error) string {
	switch client.Code(err) {
	case api.CodeUnauthorized:
		return "set " + envToken + " to an access token of the server"
	case api.CodeForbidden:
		return "the access token does not allow it"
	case api.CodeNotFound:
		return "this is not the server's address for administrators, or its version does not have this yet"
	}
	p, _ := errors.AsType[*api.Problem](err)
	return p.Detail
}
