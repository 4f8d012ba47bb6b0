package snsnotify

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/internal/sleep"
)

// run sends what is queued until the queue is closed and empty. When ctx ends it drops the rest.
func (n *Notifier) run(ctx context.Context) {
	defer close(n.done)
	for in := range n.queue {
		err := n.Send(ctx, in)
		switch {
		case err == nil:
		case ctx.Err() != nil:
			n.opts.Logger.Error("an incident was not sent to SNS: the process ends", "incident", in.ID, "topic", n.topic)
		default:
			n.opts.Logger.Error("an incident was not sent to SNS", "incident", in.ID, "topic", n.topic, "error", err)
		}
		n.finish(err == nil)
	}
}

// Send publishes an incident, and returns when SNS has accepted it. It tries again as Options say.
// The error says what to do, if that is known. Most callers want [Notifier.Notify], which does not
// wait.
func (n *Notifier) Send(ctx context.Context, in *api.Incident) error {
	p, err := input(n.topic, in)
	if err != nil {
		n.opts.Ended(Rejected)
		return &sendError{text: "the incident cannot be written as JSON: " + err.Error(), err: err}
	}
	for i := 1; ; i++ {
		err := n.attempt(ctx, p)
		e, _ := errors.AsType[*sendError](err)
		switch {
		case err == nil:
			n.opts.Ended(Delivered)
			return nil
		case ctx.Err() != nil:
			n.opts.Ended(Dropped)
			return err
		case e != nil && e.final:
			n.opts.Ended(Rejected)
			return err
		case i == n.opts.Attempts:
			n.opts.Ended(GaveUp)
			return err
		}
		n.opts.Ended(Retried)
		if skipped, ok := n.failing.Pass(time.Now(), warnEvery, 1); ok {
			n.opts.Logger.Warn("an incident could not be sent to SNS; it is sent again", "incident", in.ID, "topic", n.topic, "error", err, "not_logged", skipped)
		}
		if !sleep.For(ctx, n.pause(i)) {
			n.opts.Ended(Dropped)
			return err
		}
	}
}

// attempt makes one attempt.
func (n *Notifier) attempt(ctx context.Context, p *sns.PublishInput) error {
	ctx, cancel := context.WithTimeout(ctx, n.opts.Timeout)
	defer cancel()
	if err := credentials(ctx, n.client.Options().Credentials); err != nil {
		return err
	}
	_, err := n.client.Publish(ctx, p, func(o *sns.Options) { o.Retryer = aws.NopRetryer{} })
	if err != nil {
		return reason(ctx, err, n.opts.Timeout)
	}
	return nil
}

// pause returns how long to wait after attempt i has failed.
func (n *Notifier) pause(i int) time.Duration {
	d := n.opts.Backoff
	for range i - 1 {
		d = min(2*d, n.opts.MaxBackoff)
	}
	d = d/2 + rand.N(d) //nolint:gosec // jitter needs no secrecy
	return min(d, n.opts.MaxBackoff)
}
