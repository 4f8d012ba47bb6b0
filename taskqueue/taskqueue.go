// Package taskqueue reads the state of task queues: how many tasks wait in queues of Celery, on
// Redis or on RabbitMQ, and in queues of asynq, and what Celery's workers are doing. It changes
// nothing.
//
//	b, err := taskqueue.Open(ctx, "redis://127.0.0.1:6379/0")
//	queues, err := b.Queues(ctx, taskqueue.Celery, "celery")
//	if queues[0].Depth > 50 { // too many tasks wait already
//
// Celery's transport options sep, global_keyprefix and fanout_prefix, and another control_exchange,
// are not supported: with them, queues seem to be missing, or workers silent.
package taskqueue

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Kind is a library for task queues.
type Kind string

// The kinds of queues.
const (
	Celery Kind = "celery"
	Asynq  Kind = "asynq" // only on Redis
)

// Errors that callers can tell apart. Their texts never contain a password.
var (
	// ErrURL means that the broker's URL cannot be used.
	ErrURL = errors.New("taskqueue: the broker's URL is wrong")
	// ErrBroker means that the broker cannot be reached, did not answer in time, or refused.
	ErrBroker = errors.New("taskqueue")
	// ErrKind means that the broker has queues of both kinds.
	ErrKind = errors.New("taskqueue: the broker has queues of both Celery and asynq")
)

// timeout bounds each call, for callers whose context has no earlier deadline.
const timeout = 5 * time.Second

// Queue is the state of one queue.
type Queue struct {
	Name string `json:"name"`
	// Missing means that the broker knows no such queue. Redis does not know a queue of Celery that
	// is empty, if its exchange has another name than the queue.
	Missing bool `json:"missing"`
	// Depth is how many tasks wait for a worker: of Celery those that no worker has fetched, of
	// asynq those that are pending or will be retried.
	Depth int64 `json:"depth"`

	// Priorities is Depth by priority step, from 0 to 9, without zeros: of Celery on Redis, where 0
	// is served first.
	Priorities map[int]int64 `json:"priorities,omitempty"`
	// Consumers is how many workers fetch from the queue: of RabbitMQ.
	Consumers *int `json:"consumers,omitempty"`
	// States is how many tasks are in each state: of asynq.
	States *AsynqStates `json:"states,omitempty"`
}

// AsynqStates is how many tasks of an asynq queue are in each state.
type AsynqStates struct {
	Pending   int64 `json:"pending"`   // ready to run
	Active    int64 `json:"active"`    // running
	Scheduled int64 `json:"scheduled"` // to run at a time that their sender chose
	Retry     int64 `json:"retry"`     // to run again later
}

// Workers is what Celery's workers answered.
type Workers struct {
	Workers []Worker `json:"workers"` // by name
	// Silent is how many workers are connected and did not answer in time. RabbitMQ does not say.
	Silent int `json:"silent"`
}

// Worker is a worker of Celery.
type Worker struct {
	Name   string   `json:"name"`
	Queues []string `json:"queues"` // from which it fetches tasks
	Active []Task   `json:"active"` // running
	// Reserved tasks were fetched, and wait for a free process of the worker.
	Reserved []Task `json:"reserved"`
	// Scheduled tasks were fetched, and wait for their ETA.
	Scheduled []Task `json:"scheduled"`
	// Error says what the worker did not answer; the lists lack that.
	Error string `json:"error,omitempty"`
}

// Task is a task that a worker has fetched.
type Task struct {
	ID      string     `json:"id"`
	Name    string     `json:"name"`
	Queue   string     `json:"queue"` // the routing key that it was sent with
	Started *time.Time `json:"started,omitempty"`
	ETA     *time.Time `json:"eta,omitempty"`

	// Args and Kwargs are the task's arguments: only if [Inspect] asks for them.
	Args   json.RawMessage `json:"args,omitempty"`
	Kwargs json.RawMessage `json:"kwargs,omitempty"`
}

// Broker is a connection to a broker. Redis brokers are safe for concurrent use; the others are
// not. A Broker does not connect again if its connection is lost.
type Broker struct {
	redis  *redisBroker  // nil: rabbit
	rabbit *rabbitBroker // nil: redis
}

// Open connects to the broker at a URL: redis://, rediss://, amqp:// or amqps://, as in Celery's
// broker_url. Of Celery's parameters only ssl_cert_reqs is read. Close the broker afterwards.
func Open(ctx context.Context, rawURL string) (*Broker, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, fmt.Errorf("%w: it is not of the form redis://user:password@host:port/db or amqp://user:password@host:port/vhost; characters such as / and # in a password must be percent-encoded", ErrURL)
	}
	if strings.Count(rawURL, "://") > 1 { // Celery would choose one
		return nil, fmt.Errorf("%w: it names several brokers: name one of them", ErrURL)
	}
	switch u.Scheme {
	case "redis", "rediss":
		r, err := openRedis(ctx, u)
		if err != nil {
			return nil, err
		}
		return &Broker{redis: r}, nil
	case "amqp", "amqps", "pyamqp":
		u.Scheme = strings.TrimPrefix(u.Scheme, "py") // Celery's name of its client
		r, err := openRabbit(ctx, u)
		if err != nil {
			return nil, err
		}
		return &Broker{rabbit: r}, nil
	}
	return nil, fmt.Errorf("%w: it must begin with redis://, rediss://, amqp:// or amqps://", ErrURL)
}

// Close closes the connection.
func (b *Broker) Close() {
	if b.redis != nil {
		b.redis.client.Close()
		return
	}
	b.rabbit.close()
}

// Kind finds out whose queues the broker has. The error is ErrKind if it has both. Without any it
// is Celery.
func (b *Broker) Kind(ctx context.Context) (Kind, error) {
	if b.rabbit != nil {
		return Celery, nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return b.redis.kind(ctx)
}

// AsynqQueues returns the names of all queues of asynq, in order.
func (b *Broker) AsynqQueues(ctx context.Context) ([]string, error) {
	if b.rabbit != nil {
		return nil, errAsynq
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return b.redis.asynqNames(ctx)
}

// errAsynq is the mistake of asking RabbitMQ for queues of asynq.
var errAsynq = fmt.Errorf("%w: asynq works on Redis only", ErrURL)

// Queues returns the states of queues, in the order of names.
func (b *Broker) Queues(ctx context.Context, kind Kind, names ...string) ([]Queue, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	switch {
	case b.rabbit != nil && kind == Asynq:
		return nil, errAsynq
	case b.rabbit != nil:
		return b.rabbit.queues(ctx, names)
	case kind == Asynq:
		return b.redis.asynqQueues(ctx, names)
	}
	return b.redis.celeryQueues(ctx, names)
}

// Inspect says how workers are asked.
type Inspect struct {
	Wait time.Duration // the most to wait for answers; 0 means 1s
	Args bool          // with the arguments of tasks, which may be personal data
}

const defaultWait = time.Second

// Workers asks all workers of Celery for their queues and tasks. A worker does not answer while its
// only process is busy (the pool solo), or if its remote control is switched off.
func (b *Broker) Workers(ctx context.Context, o Inspect) (Workers, error) {
	wait := cmp.Or(o.Wait, defaultWait)
	ctx, cancel := context.WithTimeout(ctx, wait+timeout)
	defer cancel()
	asked, err := newInquiry(o.Args)
	if err != nil {
		return Workers{}, err
	}
	expected := 0
	if b.rabbit != nil {
		err = b.rabbit.ask(ctx, asked, wait)
	} else {
		expected, err = b.redis.ask(ctx, asked, wait)
	}
	if err != nil {
		return Workers{}, err
	}
	all := asked.workers()
	return Workers{Workers: all, Silent: max(0, expected-len(all))}, nil
}
