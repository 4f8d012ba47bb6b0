package snsnotify

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sns"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/internal/outbox"
	"github.com/drawgate/drawgate/internal/sampler"
)

const (
	defaultQueue = 100
	warnEvery    = time.Minute
)

// Options holds what a [Notifier] can do without. The zero value is ready to use.
type Options struct {
	// Queue is the maximum number of waiting incidents: 0 means 100. What does not fit is dropped,
	// counted and logged.
	Queue int
	// Timeout bounds one attempt: 0 means 5 seconds.
	Timeout time.Duration
	// Attempts is the maximum number of times that one incident is sent: 0 means 8.
	Attempts int
	// Backoff is the mean pause after the first attempt that fails; it doubles with each further
	// one up to MaxBackoff. 0 means one second and one minute. Each pause is random, between half
	// and one and a half times the mean.
	Backoff, MaxBackoff time.Duration
	// CloseTimeout is how long Close goes on sending: 0 means 5 seconds, negative means not at all.
	CloseTimeout time.Duration
	// Logger gets the incidents that were not sent, and why; nil discards.
	Logger *slog.Logger
	// Ended is told how each attempt ended, and of each incident that was dropped, for counters. It
	// must not block. It may be nil.
	Ended func(Result)
}

// Result is how an attempt to send a message ended.
type Result string

// The results.
const (
	Delivered = Result(outbox.Delivered) // SNS has accepted it
	Retried   = Result(outbox.Retried)   // it failed, and another attempt follows
	Rejected  = Result(outbox.Rejected)  // sending it again would not help
	GaveUp    = Result(outbox.GaveUp)    // the last attempt failed
	Dropped   = Result(outbox.Dropped)   // it was not sent: the queue was full, or the process ended
)

// Notifier publishes incidents to a topic, one after the other, in order, from a bounded queue.
//
// A message that SNS does not accept because of an outage or throttling is sent again, with growing
// pauses. So subscribers may get it twice, with the same id in it. It is safe for concurrent use.
type Notifier struct {
	opts      Options
	client    *sns.Client
	topic     string
	closeIdle func() // nil: the client is the caller's

	retry outbox.Retry
	box   *outbox.Outbox[*api.Incident]

	full, failing sampler.Sampler // of the log
}

// New returns a Notifier that publishes to a topic with the caller's client, whose own retries are
// not used. opts may be nil. It must be closed.
func New(client *sns.Client, topic string, opts *Options) (*Notifier, error) {
	if _, ok := RegionOf(topic); !ok {
		return nil, errARN
	}
	n := &Notifier{client: client, topic: topic}
	if opts != nil {
		n.opts = *opts
	}
	n.opts.defaults()
	n.retry = outbox.Retry{
		Timeout: n.opts.Timeout, Attempts: n.opts.Attempts, Backoff: n.opts.Backoff, MaxBackoff: n.opts.MaxBackoff,
	}.WithDefaults()
	n.box = outbox.New(n.opts.Queue, n.send)
	return n, nil
}

func (o *Options) defaults() {
	o.Queue = outbox.Positive(o.Queue, defaultQueue)
	o.CloseTimeout = cmp.Or(o.CloseTimeout, outbox.DefaultClose)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Ended == nil {
		o.Ended = func(Result) {}
	}
}

// Notify queues an incident: for the option Report of package incident. It never waits. The
// incident must not be changed any more.
func (n *Notifier) Notify(in *api.Incident) {
	if _, err := n.box.Add(in); err == nil {
		return
	}
	n.opts.Ended(Dropped)
	if skipped, ok := n.full.Pass(time.Now(), warnEvery, 1); ok {
		n.opts.Logger.Error("an incident was not sent to SNS: too many are waiting, or the process ends", "incident",
			in.ID, "topic", n.topic, "not_logged", skipped)
	}
}

// Flush waits until the incidents that Notify was given before were sent. The error says how many
// could not be sent, since the last Flush; or it is ctx's, and those that wait are sent later.
func (n *Notifier) Flush(ctx context.Context) error {
	lost, err := n.box.Flush(ctx)
	if err != nil {
		return fmt.Errorf("snsnotify: not all incidents were sent yet: %w", err)
	}
	return lostError(lost)
}

func lostError(n int) error {
	if n == 0 {
		return nil
	}
	return fmt.Errorf("snsnotify: incidents that were not sent: %d; see the log", n)
}

// Close accepts no more incidents, sends those that wait for up to CloseTimeout, and ends. The
// error says how many were not sent.
func (n *Notifier) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), n.opts.CloseTimeout)
	defer cancel()
	lost, _ := n.box.Close(ctx)
	if n.closeIdle != nil {
		n.closeIdle()
	}
	return lostError(lost)
}
