package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/internal/present"
	"github.com/drawgate/drawgate/internal/sleep"
)

// runFlags are the flags of run.
type runFlags struct {
	askFlags
	hold, grace     time.Duration
	onLost          string
	cancelOnFailure bool
}

// storeVariables hold URLs that may contain a password.
var storeVariables = []string{"DRAWGATE_STORE", "RATE_LIMIT_REDIS_URL", envBroker}

const (
	onLostTerminate = "terminate"
	onLostWarn      = "warn"
)

func (a *app) runCmd() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run [flags] -- COMMAND [ARGUMENT...]",
		Short: "Hold units while a command runs",
		Long: `Take units, hold them while a command runs, and settle them when it ends; then they count as used. If the command does not start, or if it fails and
--cancel-on-failure is given, everything is given back.

The hold is renewed as long as the command runs. If it is lost (the bucket was reset, or the store could not be reached until the hold ended), another
caller may have its units: the command and its whole process group get SIGTERM, and SIGKILL after --grace, or when the hold ends if that is earlier. If
drawgate itself is killed, the hold ends by itself, and its units count as used. On Linux the command is then killed too, but not the processes that it
has started; elsewhere it goes on.

The command does not see the environment variables that hold secrets of drawgate: ` + envToken + `, those of access tokens, those that the configuration
names for secrets, and DRAWGATE_STORE and RATE_LIMIT_REDIS_URL where they hold a password. If it needs one, pass it on: -- env NAME="$NAME" COMMAND

Signals are passed on. The command runs in a process group of its own, unless the standard input is a terminal.

Exit codes: that of the command, or
  75     not granted
  124    the command was ended because its hold was lost
  125    drawgate failed: a wrong command line or configuration, or the store cannot be reached
  126    the command could not be started
  127    the command was not found
  128+n  the command was ended by signal n`,
		Example: `  drawgate run --wait 5m -- ./train.sh
  drawgate run --policy gpt --cost tokens=5000 --label task=embed --cancel-on-failure -- ./embed.py
  drawgate run --policy builds --hold 1m -- make -j8   # a concurrency limit bounds how many builds run at the same time`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return &exitError{exitRunFailed, errors.New("run needs a command: drawgate run -- COMMAND")}
			}
			return nil
		},
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		err := a.run(cmd, &f, args)
		e, ok := errors.AsType[*exitError](err)
		if err == nil || ok && (e.err == nil || e.code == exitCannotExec || e.code == exitNotFound) {
			return err
		}
		return &exitError{exitRunFailed, err}
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return a.misread(exitRunFailed, err) })
	a.bucketFlags(cmd, &f.askFlags)
	f.take(cmd)
	durationVar(cmd, &f.hold, "hold", 30*time.Second,
		"how long the units stay held if drawgate is killed; the hold is renewed after a third of this time")
	durationVar(cmd, &f.grace, "grace", 5*time.Second, "time between SIGTERM and SIGKILL")
	cmd.Flags().StringVar(&f.onLost, "on-lost", onLostTerminate, "what to do if the hold is lost: terminate or warn")
	cmd.Flags().BoolVar(&f.cancelOnFailure, "cancel-on-failure", false, "give everything back if the command fails")
	cmd.Flags().SetInterspersed(false)
	return cmd
}

// outcome is the result of a command as JSON.
type outcome struct {
	Allowed  bool   `json:"allowed"`
	ExitCode int    `json:"exit_code"`
	Units    string `json:"units"` // settled, cancelled, gone, lost, unsettled, unlimited
	RanMS    int64  `json:"ran_ms"`

	Shadow []api.Shadow `json:"shadow,omitempty"` // policies that were evaluated but not enforced
}

func (a *app) run(cmd *cobra.Command, f *runFlags, args []string) error {
	a.out = a.errOut // the standard output belongs to the command
	if f.onLost != onLostTerminate && f.onLost != onLostWarn {
		return usage("--on-lost %q is neither terminate nor warn", f.onLost)
	}
	if f.grace < 0 {
		return usage("--grace %v is negative", f.grace)
	}
	if f.hold < drawgate.MinHold || f.hold > drawgate.MaxHold {
		return usage("--hold %v is not between %v and %v", f.hold, drawgate.MinHold, drawgate.MaxHold)
	}
	path, err := exec.LookPath(args[0])
	if err != nil {
		return startError(args[0], err) // before anything is taken
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, forwarded...)
	c := newChild(path, args, f.onLost == onLostTerminate)
	if a.serverURL() != "" {
		c.cmd.Env = childEnv(os.Environ(), nil)
		res, err := a.reserve(cmd, func(ctx context.Context) (held, error) { return a.reserveThere(ctx, cmd, f) },
			signals)
		if err != nil {
			return err
		}
		return a.supervise(cmd.Context(), f, c, res, signals)
	}
	s, err := a.open(false)
	if err != nil {
		return err
	}
	defer s.close()
	c.cmd.Env = childEnv(os.Environ(), s.Config)
	if s.empty {
		code, err := c.supervise(signals, nil, nil)
		return a.finished(outcome{Allowed: true, ExitCode: code, Units: "unlimited", RanMS: c.ran()}, err)
	}
	res, err := a.reserve(cmd, func(ctx context.Context) (held, error) { return a.reserveHere(ctx, cmd, f, s) },
		signals)
	if err != nil {
		return err
	}
	return a.supervise(cmd.Context(), f, c, res, signals)
}

// startError returns why a command cannot be started, with the exit code that shells use.
func startError(name string, err error) error {
	code := exitCannotExec
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		code = exitNotFound
	}
	return &exitError{code, fmt.Errorf("cannot run %s: %w", name, err)}
}

// reserve takes the units. A signal ends the wait.
func (a *app) reserve(cmd *cobra.Command, take func(context.Context) (held, error), signals <-chan os.Signal) (held,
	error,
) {
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	type result struct {
		res held
		err error
	}
	done := make(chan result, 1)
	go func() {
		res, err := take(ctx)
		done <- result{res, err}
	}()
	select {
	case got := <-done:
		return got.res, got.err
	case sig := <-signals:
		cancel()
		if got := <-done; got.err == nil { // granted in the same moment
			_ = got.res.Cancel(cmd.Context()) // if that fails the hold ends by itself, and its units count as used
		}
		return nil, done128(sig)
	}
}

// reserveHere takes units from a store. It prints a refusal.
func (a *app) reserveHere(ctx context.Context, cmd *cobra.Command, f *runFlags, s *session) (held, error) {
	r, err := f.request(cmd, s)
	if err != nil {
		return nil, err
	}
	r.Hold = f.hold
	ctx, cancel := f.waitContext(ctx)
	defer cancel()
	shown, end := a.showWait(ctx)
	res, err := s.engine.Take(shown, r)
	end()
	w, err := present.Result(ctx, r, &res, err)
	switch {
	case err != nil:
		return nil, err
	case !w.Allowed:
		a.refused(w)
		return nil, done(exitRefused)
	}
	return heldHere{&res, w}, nil
}

func done128(sig os.Signal) error {
	n, _ := sig.(syscall.Signal)
	return &exitError{exitSignal + int(n), nil}
}

func (a *app) refused(w api.Answer) {
	if a.json {
		a.printJSON(w)
		return
	}
	a.warnf("%s", present.Sentence(&w))
}

// supervise runs the command while its units are held, and settles them.
func (a *app) supervise(ctx context.Context, f *runFlags, c *child, res held, signals <-chan os.Signal) error {
	if w := res.answer(); !a.json && slices.ContainsFunc(w.Shadow, func(s api.Shadow) bool { return !s.Allowed }) {
		a.warnf("%s", present.Sentence(w))
	}
	hold := &holder{res: res, hold: f.hold, grace: min(f.grace, f.hold/3), lost: make(chan error, 1)}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	renewing := make(chan struct{})
	go func() { defer close(renewing); hold.keep(ctx) }()
	var lost error
	onLost := func(err error) (grace time.Duration, terminate bool) {
		lost = err
		a.warnf("the hold is lost: %s", text(err))
		return min(f.grace, time.Until(res.Deadline())), f.onLost == onLostTerminate
	}
	code, err := c.supervise(signals, hold.lost, onLost)
	stop()
	<-renewing
	out := outcome{Allowed: true, ExitCode: code, RanMS: c.ran(), Shadow: res.answer().Shadow}
	switch {
	case lost != nil:
		out.Units = "lost"
		if c.terminated {
			out.ExitCode = exitLost
		}
	case err != nil || code != 0 && f.cancelOnFailure:
		out.Units = a.settled("cancelled", "given back", hold.end(res.Cancel))
	default:
		out.Units = a.settled("settled", "settled", hold.end(res.Settle))
	}
	if res.free() {
		out.Units = "unlimited"
	}
	return a.finished(out, err)
}

// settled returns what happened to the units, and prints a warning if it is not what was intended.
func (a *app) settled(name, participle string, err error) string {
	switch {
	case err == nil:
		return name
	case errors.Is(err, drawgate.ErrGone):
		a.warnf("the units could not be %s: the hold had ended, or the bucket was reset", participle)
		return "gone"
	}
	a.warnf("the units could not be %s, so the hold ends by itself and they count as used: %s", participle, text(err))
	return "unsettled"
}

func (a *app) finished(out outcome, err error) error {
	if err != nil {
		return err
	}
	if a.json {
		a.printJSON(out)
	}
	return done(out.ExitCode)
}

// child is the running command.
type child struct {
	cmd        *exec.Cmd
	name       string
	group      bool // it has a process group of its own
	started    time.Time
	ended      time.Time
	terminated bool // by us, because its hold was lost
}

func newChild(path string, args []string, bound bool) *child {
	cmd := exec.Command(path, args[1:]...) //nolint:gosec,noctx // the user asked to run it; it may run for as long as it likes
	cmd.Args[0] = args[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	c := &child{cmd: cmd, name: args[0], group: !terminal(os.Stdin)}
	c.isolate(bound)
	return c
}

// childEnv returns the environment without the secrets of drawgate, which the command might log or
// pass on.
func childEnv(environ []string, c *config.Config) []string {
	secret := append(config.SecretVariables(c), envToken)
	return slices.DeleteFunc(environ, func(variable string) bool {
		name, value, _ := strings.Cut(variable, "=")
		is := func(s string) bool { return strings.EqualFold(s, name) } // as Windows compares names
		return slices.ContainsFunc(secret, is) || slices.ContainsFunc(storeVariables, is) &&
			config.RedactURL(value) != value
	})
}

func (c *child) ran() int64 { return c.ended.Sub(c.started).Milliseconds() }

// lookEvery is how often a process group that must end is checked.
const lookEvery = 10 * time.Millisecond

// supervise runs the command to its end and returns its exit code. An error means that it did not
// start. onLost is called with what comes from lost. It returns whether to end the command, and how
// long it and its process group have for that.
func (c *child) supervise(signals <-chan os.Signal, lost <-chan error, onLost func(error) (time.Duration, bool)) (int,
	error,
) {
	// On Linux the command gets a signal when the thread that started it ends, so that thread must
	// be there until the end.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c.started = time.Now()
	if err := c.cmd.Start(); err != nil {
		c.ended = c.started
		return 0, startError(c.name, err)
	}
	done := make(chan struct{})
	go func() {
		_ = c.cmd.Wait() // the state of the process has the result
		close(done)
	}()
	defer func() { c.ended = time.Now() }()
	var kill, look <-chan time.Time
	for killed := false; ; {
		select {
		case <-done:
			if killed || !c.terminated || !c.left() {
				return c.code(), nil
			}
			// Other processes of its group would go on working without a hold.
			done = nil
			t := time.NewTicker(lookEvery)
			defer t.Stop()
			look = t.C
		case <-look:
			if !c.left() {
				return c.code(), nil
			}
		case sig := <-signals:
			if c.group || !fromTerminal(sig) {
				c.signal(sig)
			}
		case err := <-lost:
			if grace, terminate := onLost(err); terminate {
				c.terminated = true
				c.signal(syscall.SIGTERM)
				kill = time.After(grace)
			}
		case <-kill:
			killed = true
			c.signal(syscall.SIGKILL)
			if done == nil {
				return c.code(), nil
			}
		}
	}
}

// code returns the exit code as shells do.
func (c *child) code() int {
	if n, ok := endedBy(c.cmd.ProcessState); ok {
		return exitSignal + n
	}
	return c.cmd.ProcessState.ExitCode()
}

// holder keeps a reservation open.
type holder struct {
	res         held
	hold, grace time.Duration
	lost        chan error
}

// settleTimeout bounds the settlement of a hold.
const settleTimeout = 10 * time.Second

func (h *holder) end(f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
	defer cancel()
	return f(ctx)
}

// keep renews the hold after each third of its length, until ctx ends or the hold is lost. While
// the store is unavailable it tries more often, and stops in time for the command to end before the
// hold does.
func (h *holder) keep(ctx context.Context) {
	next := h.hold / 3
	for {
		last := time.Until(h.res.Deadline()) - h.grace
		if !sleep.For(ctx, min(next, last)) {
			return
		}
		err := h.renew(ctx)
		switch {
		case err == nil:
			next = h.hold / 3
			continue
		case ctx.Err() != nil:
			return
		case errors.Is(err, drawgate.ErrGone):
			h.lost <- err
			return
		case time.Until(h.res.Deadline()) <= h.grace:
			h.lost <- fmt.Errorf("it could not be renewed in time: %w", err)
			return
		}
		next = h.hold / 20
	}
}

// renew makes one attempt, which may take as long as the hold lasts.
func (h *holder) renew(ctx context.Context) error {
	ctx, cancel := context.WithDeadline(ctx, h.res.Deadline().Add(-h.grace))
	defer cancel()
	return h.res.Renew(ctx, h.hold)
}
