// Package drawgate keeps any number of processes inside one quota.
//
// A [Policy] is a named set of limits; a bucket is the state of one policy for one key; a take asks
// for units from one or several buckets and is granted all of them or none. Callers use
// [Limiter.Allow] (now), [Limiter.Wait] (in the queue, until a deadline) or [Limiter.Reserve]
// (held, then settled with what was really used). Buckets live in a [Store]: in memory, in SQLite,
// in Redis.
//
//	lim, err := drawgate.New(memstore.New(nil), drawgate.PerMinute("login", 10), nil)
//	d, err := lim.Allow(ctx, "user-17")
//	if !d.Allowed { // d.RetryAfter says when
//
// docs/semantics.md says what is promised, and what each kind of limit admits. Package store is for
// those who write a [Store] or call one themselves.
package drawgate
