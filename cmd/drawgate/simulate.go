package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/llm/simulator"
)

// simulateFlags take precedence over the file.
type simulateFlags struct {
	listen, preset, config, windows, zone, faults string
	limits                                        []string
	seed                                          uint64
	travel                                        time.Duration
	report                                        bool
}

const defaultSimulate = "127.0.0.1:4010"

func (a *app) simulateCmd() *cobra.Command {
	var f simulateFlags
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Behave like LLM providers, with their quotas",
		Long: `Answer like LLM providers, enforce quotas by their rules, and record which calls found a limit full. No call leaves this machine.
Point a client at it by its base URL only:

  OpenAI      base_url=http://` + defaultSimulate + `/v1
  Anthropic   base_url=http://` + defaultSimulate + `
  Gemini      base_url=http://` + defaultSimulate + `
  others      POST http://` + defaultSimulate + `/generic/anything, with a JSON object

Each provider is also behind its name (` + strings.Join(llm.Names(), ", ") + `), as in http://` + defaultSimulate + `/openai/v1.

A line of the prompt says what to answer: "simulate: output=200 delay=50ms chunk=20ms". More words: size (words in a chunk), thoughts, cache_read,
cache_write, fault, after and stall.

GET /simulator/ledger has every call, and GET /simulator/report the worst window of every limit. POST /simulator/reset forgets them, and
POST /simulator/faults lets something go wrong with the next calls.

Presets: ` + strings.Join(simulator.Presets(), ", ") + `.
Faults: ` + faultNames() + `.`,
		Example: `  drawgate simulate --preset free --report
  drawgate simulate --preset gemini-free --limit gemini-2.5-flash/rpd=20 --windows aligned
  drawgate simulate --faults overload=0.01,latency=0.1:2s --seed 7
  curl -d '{"model":"gpt-4.1","messages":[{"role":"user","content":"simulate: output=5"}]}' http://` + defaultSimulate + `/v1/chat/completions
  curl -d '{"kind":"cut","after":2}' http://` + defaultSimulate + `/simulator/faults`,
		Args: noArgs,
		RunE: action(func(cmd *cobra.Command, _ []string) error { return a.simulate(cmd, &f) }),
	}
	cmd.Flags().StringVar(&f.listen, "listen", defaultSimulate, "address; port 0 chooses one")
	cmd.Flags().StringVar(&f.preset, "preset", "", "quotas to enforce (default none: nothing is refused)")
	cmd.Flags().StringVar(&f.config, "config", "", "JSON file of the simulator: see docs/simulator.md")
	cmd.Flags().StringArrayVar(&f.limits, "limit", nil,
		"change the amount of a limit, as QUOTA/LIMIT=AMOUNT; may be repeated")
	cmd.Flags().StringVar(&f.windows, "windows", "", "count minutes rolling or aligned (default: what the quotas say)")
	cmd.Flags().StringVar(&f.zone, "zone", "", "time zone of days (default: what the quotas say)")
	cmd.Flags().StringVar(&f.faults, "faults", "",
		"faults by rate, as KIND=RATE or KIND=RATE:DELAY, separated by commas")
	cmd.Flags().Uint64Var(&f.seed, "seed", 0, "which calls the faults hit: the same seed, the same faults")
	durationVar(cmd, &f.travel, "travel", 0,
		"the longest time until a call arrives; how long each one takes depends on the seed")
	cmd.Flags().BoolVar(&f.report, "report", false, "print a report at the end")
	return cmd
}

func faultNames() string {
	var names []string
	for _, k := range simulator.FaultKinds() {
		names = append(names, string(k))
	}
	return strings.Join(names, ", ")
}

// options returns the simulator's options, by the file and the flags.
func (f *simulateFlags) options() (*simulator.Options, error) {
	c := &simulator.Config{}
	if f.config != "" {
		text, err := os.ReadFile(f.config)
		if err != nil {
			return nil, &exitError{exitConfig, err}
		}
		if c, err = simulator.ParseConfig(text); err != nil {
			return nil, &exitError{exitConfig, fmt.Errorf("%s: %w", f.config, err)}
		}
	}
	if f.preset != "" {
		c.Preset = f.preset
	}
	if c.Limits == nil {
		c.Limits = map[string]int64{}
	}
	for _, text := range f.limits {
		name, value, _ := strings.Cut(text, "=")
		amount, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return nil, usage("--limit %s: write it as QUOTA/LIMIT=AMOUNT, such as gemini-2.5-flash/rpd=20", text)
		}
		c.Limits[name] = amount
	}
	if f.windows != "" {
		c.Windows = simulator.Window(f.windows)
	}
	if f.zone != "" {
		c.Zone = f.zone
	}
	if f.faults != "" {
		faults, err := simulator.ParseRates(f.faults)
		if err != nil {
			return nil, usage("--faults: %w", err)
		}
		c.Faults = append(c.Faults, faults...)
	}
	if f.seed != 0 {
		c.Seed = f.seed
	}
	if f.travel != 0 {
		c.Travel = simulator.Duration(f.travel)
	}
	o, err := c.Options()
	if err != nil {
		return nil, &exitError{exitConfig, err}
	}
	return o, nil
}

func (a *app) simulate(cmd *cobra.Command, f *simulateFlags) error {
	o, err := f.options()
	if err != nil {
		return err
	}
	sim, err := simulator.New(o)
	if err != nil {
		return &exitError{exitConfig, err}
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.listen)
	if err != nil {
		return listenError("--listen", f.listen, "", err)
	}
	log := a.logger()
	log.Info("listening on http://"+ln.Addr().String(), "quotas", strings.Join(quotaNames(o.Quotas), ","))
	if err := serveSimulator(ctx, ln, sim); err != nil {
		return err
	}
	log.Info("stopped")
	if f.report {
		a.printReport(sim.Report(time.Time{}))
	}
	return nil
}

func quotaNames(quotas []simulator.Quota) (names []string) {
	for _, q := range quotas {
		names = append(names, q.Name)
	}
	return names
}

// headerTime is how long a client may take for the header of a request.
const headerTime = 30 * time.Second

// serveSimulator serves until ctx ends. Calls that are running then may end within [stopTime].
func serveSimulator(ctx context.Context, ln net.Listener, h http.Handler) error {
	s := &http.Server{Handler: h, ReadHeaderTimeout: headerTime}
	done := make(chan error, 1)
	go func() { done <- s.Serve(ln) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	if err := s.Shutdown(stopping); err != nil {
		_ = s.Close() // what still runs, such as a stream without an end, is cut off
	}
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// printReport prints what was used of each limit.
func (a *app) printReport(r simulator.Report) {
	if a.json {
		a.printJSON(r)
		return
	}
	a.printf("%d calls: %d admitted, %d violations\n", r.Calls, r.Admitted, r.Violations)
	var outcomes []string
	for o, n := range r.Outcomes {
		outcomes = append(outcomes, fmt.Sprintf("%s %d", o, n))
	}
	if slices.Sort(outcomes); len(outcomes) > 0 {
		a.printf("outcomes: %s\n", strings.Join(outcomes, ", "))
	}
	for _, l := range r.Limits {
		name := l.Quota + "/" + l.Limit
		if l.Model != "" && l.Model != l.Quota {
			name = l.Quota + " " + l.Model + "/" + l.Limit
		}
		most := l.Amount
		if l.Window == simulator.Bucket {
			most = l.Burst
		}
		a.printf("%s: worst %s %d of %d %s", name, l.Window, l.Worst, most, l.Dimension)
		if l.Over > 0 {
			a.printf(", %d OVER", l.Over)
		}
		if l.Allowed > 0 {
			a.printf("; %.1f%% of what it allows was used", 100*l.Share)
		}
		if l.Refused > 0 {
			a.printf("; %d calls found it full", l.Refused)
		}
		a.printf("\n")
	}
	if r.Dropped > 0 {
		a.printf("%d calls are not in the ledger any more, and not in these limits\n", r.Dropped)
	}
}
