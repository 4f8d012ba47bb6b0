// Package asynqlimit keeps tasks of asynq inside a quota: each task takes units before its handler
// runs, holds them while it runs, and settles them at its end.
//
//	lim, err := drawgate.New(store, drawgate.PerMinute("transcribe", 50), nil)
//	ask := func(context.Context, *asynq.Task) (drawgate.Request, error) {
//		return drawgate.Request{Buckets: []drawgate.Ask{lim.Ask("transcribe")}}, nil
//	}
//	limit, err := asynqlimit.New(redisClient, ask, nil)
//	mux := asynq.NewServeMux()
//	mux.Use(limit.Middleware)
//	conf := asynq.Config{RetryDelayFunc: limit.RetryDelay, IsFailure: limit.IsFailure}
//	srv := asynq.NewServerFromRedisClient(redisClient, conf)
//
// A task waits for its units in its worker, for five minutes by default. If they do not come free
// it is queued again, and runs a minute later. That does not count as a failure, and happens three
// times at most: then the task is archived, with an error that is [ErrGivenUp]. While the store is
// unavailable, tasks are queued again as often as needed.
//
// asynq archives a task that fails its last attempt, even if the error is no failure. On its last
// attempt a task therefore is not queued again, but waits on in its worker. The time-out of a task
// (30 minutes unless you set one) includes all waiting in its worker.
//
// A worker that dies returns its tasks after about a minute, as asynq does it, and its units when
// their hold ends.
//
// [Guard] refuses new tasks while their queue is too deep, or a limit has nothing left.
package asynqlimit
