package taskqueue

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/rabbitmq/amqp091-go"
)

type rabbitBroker struct {
	conn  *amqp091.Connection
	raw   net.Conn // of conn
	where string   // for errors
}

func openRabbit(ctx context.Context, u *url.URL) (*rabbitBroker, error) {
	uri, err := amqp091.ParseURI(u.String())
	if err != nil {
		return nil, fmt.Errorf("%w: it is not of the form amqp://user:password@host:port/vhost", ErrURL)
	}
	r := &rabbitBroker{where: "RabbitMQ at " + net.JoinHostPort(uri.Host, fmt.Sprint(uri.Port))}
	stop := func() bool { return true }
	defer func() { stop() }()
	r.conn, err = amqp091.DialConfig(u.String(), amqp091.Config{Dial: func(network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err == nil {
			r.raw, stop = c, context.AfterFunc(ctx, func() { _ = c.Close() })
		}
		return c, err
	}})
	if err != nil && r.raw != nil {
		_ = r.raw.Close()
	}
	return r, r.failure(ctx, err)
}

// failure returns the error of a call. err may be nil.
func (r *rabbitBroker) failure(ctx context.Context, err error) error {
	said, refused := errors.AsType[*amqp091.Error](err)
	switch {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: %s did not answer in time", ErrBroker, r.where)
	case errors.Is(err, amqp091.ErrClosed):
		return fmt.Errorf("%w: %s cannot be reached: the connection was lost", ErrBroker, r.where)
	case refused && !said.Server && (said.Code == amqp091.FrameError || said.Code == amqp091.SyntaxError):
		return fmt.Errorf("%w: %s does not answer as RabbitMQ does: is it another server?", ErrBroker, r.where)
	case refused:
		return fmt.Errorf("%w: %s refused: %s (%d)", ErrBroker, r.where, said.Reason, said.Code)
	}
	return fmt.Errorf("%w: %s cannot be reached: %w", ErrBroker, r.where, err)
}

// within calls f, on a channel of its own, because a refusal closes the channel. If ctx ends the
// connection is closed, which ends every call on it.
func (r *rabbitBroker) within(ctx context.Context, f func(ch *amqp091.Channel) error) error {
	stop := context.AfterFunc(ctx, func() { _ = r.raw.Close() })
	defer stop()
	ch, err := r.conn.Channel()
	if err != nil {
		return err
	}
	defer func() { _ = ch.Close() }() // a refusal has closed it
	return f(ch)
}

// close closes the connection, in time even if the server hangs.
func (r *rabbitBroker) close() {
	_ = r.conn.CloseDeadline(time.Now().Add(cleanup)) // what is lost does not matter: nothing was sent
	_ = r.raw.Close()
}

// queues declares each queue passively, which answers how many messages are ready, and how many
// consumers there are. The other arguments do not matter then.
func (r *rabbitBroker) queues(ctx context.Context, names []string) ([]Queue, error) {
	out := []Queue{}
	for _, name := range names {
		q := Queue{Name: name}
		err := r.within(ctx, func(ch *amqp091.Channel) error {
			got, err := ch.QueueDeclarePassive(name, false, false, false, false, nil)
			if err == nil {
				q.Depth, q.Consumers = int64(got.Messages), &got.Consumers
			}
			return err
		})
		if q.Missing = missing(err); !q.Missing && err != nil {
			return nil, r.failure(ctx, err)
		}
		out = append(out, q)
	}
	return out, nil
}

// missing reports whether a queue or an exchange does not exist.
func missing(err error) bool {
	said, ok := errors.AsType[*amqp091.Error](err)
	return ok && said.Code == amqp091.NotFound
}

// ask asks all workers. Nobody says how many there are, so it waits for the whole time, unless
// there are none.
func (r *rabbitBroker) ask(ctx context.Context, q *inquiry, wait time.Duration) error {
	err := r.within(ctx, func(ch *amqp091.Channel) error {
		if err := ch.ExchangeDeclarePassive(mailbox, amqp091.ExchangeFanout, false, false, false, false,
			nil); err != nil {
			return err
		}
		answers, err := q.listen(ch)
		if err != nil {
			return err
		}
		returned := ch.NotifyReturn(make(chan amqp091.Return, len(commands)))
		for _, c := range commands {
			// Mandatory: what reaches no worker comes back.
			m := amqp091.Publishing{
				ContentType: jsonType, ContentEncoding: "utf-8",
				Headers: amqp091.Table{"clock": int32(1)}, Body: q.requests[c],
			}
			if err := ch.PublishWithContext(ctx, mailbox, "", true, false, m); err != nil {
				return err
			}
		}
		return q.await(ctx, answers, returned, wait)
	})
	switch {
	case missing(err): // there is no mailbox, because no worker has made it
		return nil
	case errors.Is(err, ErrBroker):
		return err
	}
	return r.failure(ctx, err)
}

// listen makes the queue of the answers, which ends with the channel.
func (q *inquiry) listen(ch *amqp091.Channel) (<-chan amqp091.Delivery, error) {
	if err := ch.ExchangeDeclare(replyExchange, amqp091.ExchangeDirect, false, false, false, false, nil); err != nil {
		return nil, err
	}
	if _, err := ch.QueueDeclare(q.replyQueue(), false, true, true, false, nil); err != nil {
		return nil, err
	}
	if err := ch.QueueBind(q.replyQueue(), q.id, replyExchange, false, nil); err != nil {
		return nil, err
	}
	return ch.Consume(q.replyQueue(), "", true, true, false, false, nil)
}

// await reads answers until the time is over, or a request has come back.
func (q *inquiry) await(ctx context.Context, answers <-chan amqp091.Delivery, returned <-chan amqp091.Return,
	wait time.Duration,
) error {
	over := time.NewTimer(wait)
	defer over.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-over.C:
			return nil
		case <-returned:
			return nil
		case d, ok := <-answers:
			if !ok {
				return amqp091.ErrClosed
			}
			ticket, _ := d.Headers["ticket"].(string)
			if err := q.add(ticket, d.ContentType, d.Body); err != nil {
				return err
			}
		}
	}
}
