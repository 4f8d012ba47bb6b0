package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/internal/present"
	"github.com/drawgate/drawgate/internal/similar"
	"github.com/drawgate/drawgate/taskqueue"
)

// Variables about task queues.
const (
	envBroker       = "DRAWGATE_BROKER"
	envCeleryBroker = "CELERY_BROKER_URL" // which Celery reads itself
	envMaxDepth     = "QUEUE_MAX_DEPTH"
)

// defaultCeleryQueue is the default of Celery's task_default_queue.
const defaultCeleryQueue = "celery"

func (a *app) queueCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "queue", Short: "Look at task queues of Celery and asynq", Args: noArgs,
		Long: `Look at the task queues of programs whose tasks are limited: those of Celery, on Redis or RabbitMQ, and those of asynq. See drawgate queue status --help.`,
	}
	cmd.AddCommand(a.queueStatusCmd(), a.queueMetricsCmd())
	return cmd
}

// queueFlags say which queues are shown, and from where.
type queueFlags struct {
	broker, kind string
	queues       []string
	maxDepth     int64
	wait         time.Duration
	args         bool
	depths       bool     // only depths: workers are asked only for the names of queues
	seen         []string // queues that existed before. They still do, even if the broker forgot them
	missing      []string // queues that were named and have never existed, when depths were read last
}

// define defines the flags that say which queues, and where.
func (f *queueFlags) define(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.broker, "broker", "",
		"broker: redis://HOST:PORT/DB, rediss://, amqp://HOST:PORT/VHOST or amqps:// (default $"+envBroker+", then $"+envCeleryBroker+")")
	cmd.Flags().StringArrayVar(&f.queues, "queue", nil,
		"queue; may be given several times (default: those that workers use)")
	cmd.Flags().StringVar(&f.kind, "kind", "", "celery or asynq (default: what the broker has)")
	durationVar(cmd, &f.wait, "wait", time.Second, "the most to wait for the workers' answers")
	// Errors while completing a command line are not shown to the user.
	_ = cmd.RegisterFlagCompletionFunc("kind", cobra.FixedCompletions([]string{
		string(taskqueue.Celery),
		string(taskqueue.Asynq),
	}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("queue", func(cmd *cobra.Command, _ []string, _ string) ([]string,
		cobra.ShellCompDirective,
	) {
		f.queues = nil
		st, err := f.read(cmd.Context())
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return st.names(), cobra.ShellCompDirectiveNoFileComp
	})
}

func (a *app) queueStatusCmd() *cobra.Command {
	var f queueFlags
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show how many tasks wait, and what the workers do",
		Long: `Show how many tasks wait in queues of Celery or asynq, and what Celery's workers do. Nothing is changed.

DEPTH is how many tasks wait for a worker. Tasks that a worker of Celery has fetched are not in it: they are listed with their worker, as active (running),
reserved (waiting for a free process of that worker) or scheduled (waiting for their ETA). For asynq, DEPTH is PENDING plus RETRY. Arguments of tasks are not
shown, because they may be personal data, unless --args asks for them.

Without --queue it shows the queues from which workers fetch, or "` + defaultCeleryQueue + `" if no worker answers; of asynq all queues. With --max-depth the
exit code tells a script whether it may send more tasks: 75 if a queue is deeper.

Celery's workers are asked as "celery inspect" does it, and have --wait to answer. On Redis it also says how many did not answer: a worker of the pool "solo"
does not while it runs a task. Celery's transport options sep, global_keyprefix and fanout_prefix, and another control_exchange, are not supported.

The broker's URL is as in Celery's broker_url. It often has a password: set it in $` + envBroker + ` or $` + envCeleryBroker + ` rather than on the command line,
which other users of the machine can read.

Exit codes:
  0   done, and no queue is deeper than --max-depth
  64  the command line is wrong, or a queue of --queue does not exist
  69  the broker cannot be reached, or did not answer in time
  75  a queue is deeper than --max-depth`,
		Example: `  drawgate queue status --broker redis://127.0.0.1:6379/0
  drawgate queue status --broker amqp://guest@127.0.0.1:5672// --queue celery --queue mail
  drawgate queue status --queue celery --max-depth 50 --json
  drawgate queue status --kind asynq --queue default`,
		Args: noArgs,
		RunE: action(func(cmd *cobra.Command, _ []string) error { return a.queueStatus(cmd, &f) }),
	}
	f.define(cmd)
	cmd.Flags().Int64Var(&f.maxDepth, "max-depth", 0,
		"exit with code 75 if a queue is deeper (default $"+envMaxDepth+")")
	cmd.Flags().BoolVar(&f.args, "args", false, "show the tasks' arguments, as JSON; they may be personal data")
	return cmd
}

// queueState is the state of a broker's queues, and its form as JSON.
type queueState struct {
	Broker   string             `json:"broker"`
	Kind     taskqueue.Kind     `json:"kind"`
	At       time.Time          `json:"at"`
	Queues   []taskqueue.Queue  `json:"queues"`
	Workers  []taskqueue.Worker `json:"workers,omitzero"` // of Celery
	Silent   int                `json:"silent_workers,omitempty"`
	MaxDepth *int64             `json:"max_depth,omitempty"`
	TooDeep  []string           `json:"too_deep,omitempty"`
}

// names returns the names of the queues that exist.
func (st *queueState) names() (names []string) {
	for i := range st.Queues {
		if !st.Queues[i].Missing {
			names = append(names, st.Queues[i].Name)
		}
	}
	return names
}

func (a *app) queueStatus(cmd *cobra.Command, f *queueFlags) error {
	limit, err := f.limit(cmd.Flags().Changed("max-depth"))
	if err != nil {
		return err
	}
	st, err := f.read(cmd.Context())
	if err != nil {
		return err
	}
	if st.MaxDepth = limit; limit != nil {
		for i := range st.Queues {
			if q := &st.Queues[i]; q.Depth > *limit {
				st.TooDeep = append(st.TooDeep, q.Name)
			}
		}
	}
	if a.json {
		a.printJSON(st)
	} else {
		a.printQueues(st, f.args)
	}
	code := exitOK
	for i := range st.Queues {
		if q := &st.Queues[i]; q.Missing && len(f.queues) > 0 {
			code = exitUsage
			a.warnf("there is no queue %q%s", q.Name, st.suggest(q.Name))
		}
	}
	if len(st.TooDeep) > 0 && code == exitOK {
		code = exitRefused
		a.warnf("deeper than %d: %s", *limit, strings.Join(st.TooDeep, ", "))
	}
	return done(code)
}

// limit returns the greatest depth; nil if there is none.
func (f *queueFlags) limit(given bool) (*int64, error) {
	text := os.Getenv(envMaxDepth)
	switch {
	case given && f.maxDepth < 0:
		return nil, usage("--max-depth %d is negative", f.maxDepth)
	case given:
		return &f.maxDepth, nil
	case text == "":
		return nil, nil //nolint:nilnil // no limit is no error
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return nil, usage("%s=%s is not a number of tasks", envMaxDepth, text)
	}
	return &n, nil
}

// known returns the names of queues that exist or that workers use, and others.
func (st *queueState) known(others ...string) []string {
	names := append(st.names(), others...)
	for i := range st.Workers {
		names = append(names, st.Workers[i].Queues...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// suggest completes the message that there is no queue of a name. Others may exist: only those that
// were asked for, and those of the workers, are known.
func (st *queueState) suggest(name string) string {
	known := st.known()
	if meant := similar.To(name, known, len(name)/2); meant != "" {
		return fmt.Sprintf("; did you mean %q?", meant)
	}
	var used []string
	for i := range st.Workers {
		used = append(used, st.Workers[i].Queues...)
	}
	if len(used) == 0 {
		return ""
	}
	slices.Sort(used)
	return "; the workers use " + strings.Join(slices.Compact(used), ", ")
}

// read asks the broker and the workers.
func (f *queueFlags) read(ctx context.Context) (*queueState, error) {
	url := cmp.Or(f.broker, os.Getenv(envBroker), os.Getenv(envCeleryBroker))
	switch kind := taskqueue.Kind(f.kind); {
	case url == "":
		return nil, usage("which broker? Give --broker, such as redis://127.0.0.1:6379/0, or set %s or %s", envBroker,
			envCeleryBroker)
	case kind != "" && kind != taskqueue.Celery && kind != taskqueue.Asynq:
		return nil, usage("--kind %q is neither celery nor asynq", f.kind)
	case f.wait <= 0:
		return nil, usage("--wait %v must be more than 0", f.wait)
	}
	b, err := taskqueue.Open(ctx, url)
	if err != nil {
		return nil, brokerError(err)
	}
	defer b.Close()
	st := &queueState{Broker: config.RedactURL(url), Kind: taskqueue.Kind(f.kind), At: time.Now().UTC()}
	if st.Kind == "" {
		if st.Kind, err = b.Kind(ctx); err != nil {
			return nil, brokerError(err)
		}
	}
	if st.Kind == taskqueue.Asynq {
		err = f.readAsynq(ctx, b, st)
	} else {
		err = f.readCelery(ctx, b, st)
	}
	return st, brokerError(err)
}

func (f *queueFlags) readAsynq(ctx context.Context, b *taskqueue.Broker, st *queueState) (err error) {
	names := f.queues
	if len(names) == 0 {
		if names, err = b.AsynqQueues(ctx); err != nil {
			return err
		}
	}
	st.Queues, err = b.Queues(ctx, st.Kind, names...)
	return err
}

func (f *queueFlags) readCelery(ctx context.Context, b *taskqueue.Broker, st *queueState) error {
	var w taskqueue.Workers
	var err error
	if !f.depths || len(f.queues) == 0 {
		if w, err = b.Workers(ctx, taskqueue.Inspect{Wait: f.wait, Args: f.args}); err != nil {
			return err
		}
	}
	st.Workers, st.Silent = w.Workers, w.Silent
	names, used := f.queues, st.known(f.seen...)
	switch {
	case len(names) == 0 && len(used) > 0:
		names = used
	case len(names) == 0:
		names = []string{defaultCeleryQueue}
	}
	if st.Queues, err = b.Queues(ctx, st.Kind, names...); err != nil {
		return err
	}
	for i := range st.Queues {
		if q := &st.Queues[i]; slices.Contains(used, q.Name) {
			q.Missing = false // Redis forgets a queue that is empty
		}
	}
	return nil
}

// brokerError gives an error of package taskqueue its exit code. err may be nil.
func brokerError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, taskqueue.ErrKind):
		err = &exitError{exitUsage, fmt.Errorf("%w: choose one with --kind", err)}
	case errors.Is(err, taskqueue.ErrURL):
		err = &exitError{exitUsage, err}
	case errors.Is(err, taskqueue.ErrBroker):
		err = &exitError{exitUnavailable, err}
	}
	return err
}

// printQueues prints tables: of queues, of workers, and of the workers' tasks.
func (a *app) printQueues(st *queueState, args bool) {
	a.printf("broker %s, %s\n", st.Broker, string(st.Kind))
	if len(st.Queues) == 0 {
		a.printf("there are no queues\n")
		return
	}
	t := tabwriter.NewWriter(a.out, 0, 8, 2, ' ', 0)
	switch q := &st.Queues[0]; {
	case st.Kind == taskqueue.Asynq:
		fmt.Fprintln(t, "QUEUE\tDEPTH\tPENDING\tRETRY\tSCHEDULED\tACTIVE")
	case q.Priorities != nil:
		fmt.Fprintln(t, "QUEUE\tDEPTH\tBY PRIORITY")
	default:
		fmt.Fprintln(t, "QUEUE\tDEPTH\tCONSUMERS")
	}
	for i := range st.Queues {
		fmt.Fprintln(t, queueLine(&st.Queues[i]))
	}
	_ = t.Flush() // nothing can be done if the output is closed
	if st.Kind == taskqueue.Celery {
		a.printWorkers(st, args)
	}
}

func queueLine(q *taskqueue.Queue) string {
	name := present.Escape(q.Name, "")
	switch {
	case q.Missing:
		return name + "\t-\tmissing"
	case q.States != nil:
		return fmt.Sprintf("%s\t%d\t%d\t%d\t%d\t%d", name, q.Depth, q.States.Pending, q.States.Retry,
			q.States.Scheduled, q.States.Active)
	case q.Consumers != nil:
		return fmt.Sprintf("%s\t%d\t%d", name, q.Depth, *q.Consumers)
	}
	var steps []string
	for p := range 10 {
		if n := q.Priorities[p]; n > 0 {
			steps = append(steps, fmt.Sprintf("%d: %d", p, n))
		}
	}
	return fmt.Sprintf("%s\t%d\t%s", name, q.Depth, strings.Join(steps, ", "))
}

func (a *app) printWorkers(st *queueState, args bool) {
	switch {
	case st.Silent > 0:
		a.printf("\n%s did not answer in time\n", present.Count(st.Silent, "worker"))
	case len(st.Workers) == 0:
		a.printf("\nno worker answered\n")
	}
	if len(st.Workers) == 0 {
		return
	}
	a.printf("\n")
	t := tabwriter.NewWriter(a.out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "WORKER\tQUEUES\tACTIVE\tRESERVED\tSCHEDULED")
	tasks := 0
	for i := range st.Workers {
		w := &st.Workers[i]
		tasks += len(w.Active) + len(w.Reserved) + len(w.Scheduled)
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%s\n", present.Escape(w.Name, ""),
			present.Escape(strings.Join(w.Queues, ","), ""), len(w.Active), len(w.Reserved), len(w.Scheduled),
			present.Escape(w.Error, ""))
	}
	_ = t.Flush()
	if tasks > 0 {
		printTasks(t, st, args)
	}
}

func printTasks(t *tabwriter.Writer, st *queueState, args bool) {
	fmt.Fprint(t, "\nSTATE\tTASK\tID\tWORKER\tTIME")
	if args {
		fmt.Fprint(t, "\tARGUMENTS")
	}
	fmt.Fprintln(t)
	for i := range st.Workers {
		w := &st.Workers[i]
		for _, list := range []struct {
			state string
			tasks []taskqueue.Task
		}{{"active", w.Active}, {"reserved", w.Reserved}, {"scheduled", w.Scheduled}} {
			for k := range list.tasks {
				fmt.Fprintln(t, taskLine(list.state, w, &list.tasks[k], st.At))
			}
		}
	}
	_ = t.Flush()
}

func taskLine(state string, w *taskqueue.Worker, task *taskqueue.Task, now time.Time) string {
	when := ""
	switch {
	case task.Started != nil:
		when = "for " + present.Duration(max(0, now.Sub(*task.Started)))
	case task.ETA != nil:
		when = present.Until(*task.ETA, now)
	}
	line := fmt.Sprintf("%s\t%s\t%s\t%s\t%s", state, present.Escape(task.Name, ""), present.Escape(task.ID, ""),
		present.Escape(w.Name, ""), when)
	if task.Args != nil || task.Kwargs != nil {
		line += "\t" + present.Escape(string(task.Args)+" "+string(task.Kwargs), "")
	}
	return line
}
