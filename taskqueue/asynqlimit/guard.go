package asynqlimit

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/drawgate/drawgate"
)

const defaultMaxDepth = 50

// Guard sends tasks to their queue if it is not too deep. It is safe for concurrent use.
type Guard struct {
	redis    redis.UniversalClient
	client   *asynq.Client
	limiter  *drawgate.Limiter
	maxDepth int64
}

// NewGuard returns a Guard that refuses tasks while more than maxDepth wait in their queue; 0 means
// 50 (QUEUE_MAX_DEPTH), and less counts as 1. If limiter is not nil, a task also takes one request
// of it, with the queue's name as the key, and is refused if none is left. The client is of the
// Redis server of asynq.
func NewGuard(client redis.UniversalClient, limiter *drawgate.Limiter, maxDepth int) *Guard {
	return &Guard{
		redis: client, client: asynq.NewClientFromRedisClient(client), limiter: limiter,
		maxDepth: int64(max(1, cmp.Or(maxDepth, defaultMaxDepth))),
	}
}

// TooDeepError is the refusal of a task whose queue is too deep.
type TooDeepError struct {
	Queue      string
	Depth, Max int64
}

// Error implements error.
func (e *TooDeepError) Error() string {
	return fmt.Sprintf("asynqlimit: queue %q has %d tasks that wait, and at most %d may: send the task later", e.Queue,
		e.Depth, e.Max)
}

// Depth returns how many tasks of a queue wait: those that are pending or will be retried. Tasks
// that are scheduled for later do not count.
func (g *Guard) Depth(ctx context.Context, queue string) (int64, error) {
	prefix := "asynq:{" + queue + "}:"
	p := g.redis.Pipeline()
	pending, retry := p.LLen(ctx, prefix+"pending"), p.ZCard(ctx, prefix+"retry")
	if _, err := p.Exec(ctx); err != nil {
		return 0, fmt.Errorf("asynqlimit: the depth of queue %q cannot be read: %w", queue, err)
	}
	return pending.Val() + retry.Val(), nil
}

// Enqueue sends a task to a queue. A refusal is a *TooDeepError, or a *drawgate.LimitedError, which
// says when to try again; the task was not sent then. A task that asynq refuses, such as one whose
// id is there already, has taken its request all the same.
//
// Callers that send at the same time may exceed the depth by as many tasks as there are callers.
func (g *Guard) Enqueue(ctx context.Context, queue string, task *asynq.Task, opts ...asynq.Option) (*asynq.TaskInfo,
	error,
) {
	depth, err := g.Depth(ctx, queue)
	if err != nil {
		return nil, err
	}
	if depth > g.maxDepth {
		return nil, &TooDeepError{Queue: queue, Depth: depth, Max: g.maxDepth}
	}
	if g.limiter != nil {
		d, err := g.limiter.Allow(ctx, queue)
		if err == nil {
			err = d.Err()
		}
		if err != nil {
			return nil, err
		}
	}
	return g.client.EnqueueContext(ctx, task, slices.Concat(opts, []asynq.Option{asynq.Queue(queue)})...)
}
