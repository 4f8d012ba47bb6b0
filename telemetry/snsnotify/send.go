package snsnotify

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/internal/outbox"
)

// send sends an incident that has waited.
func (n *Notifier) send(ctx context.Context, in *api.Incident) error {
	err := n.Send(ctx, in)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		n.opts.Logger.Error("an incident was not sent to SNS: the process ends", "incident", in.ID, "topic", n.topic)
	default:
		n.opts.Logger.Error("an incident was not sent to SNS", "incident", in.ID, "topic", n.topic, "error", err)
	}
	return err
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
	attempt := func(ctx context.Context) (time.Duration, error) { return n.attempt(ctx, p) }
	return n.retry.Do(ctx, attempt, func(r outbox.Result, err error) {
		if r == outbox.Retried {
			if skipped, ok := n.failing.Pass(time.Now(), warnEvery, 1); ok {
				n.opts.Logger.Warn("an incident could not be sent to SNS; it is sent again",
					"incident", in.ID, "topic", n.topic, "error", err, "not_logged", skipped)
			}
		}
		n.opts.Ended(Result(r))
	})
}

// attempt makes one attempt, as [outbox.Retry] wants it.
func (n *Notifier) attempt(ctx context.Context, p *sns.PublishInput) (time.Duration, error) {
	if err := credentials(ctx, n.client.Options().Credentials); err != nil {
		return 0, err
	}
	_, err := n.client.Publish(ctx, p, func(o *sns.Options) { o.Retryer = aws.NopRetryer{} })
	if err == nil {
		return 0, nil
	}
	e := reason(ctx, err, n.retry.Timeout)
	if e.final {
		return outbox.Never, e
	}
	return 0, e
}
