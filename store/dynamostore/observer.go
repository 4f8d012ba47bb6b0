package dynamostore

import "time"

// Observer is told what a [Store] does with its table. Each func may be nil. Callers call it,
// perhaps many at once: it must be quick and must not block. Its argument must not be kept.
type Observer struct {
	Called func(*Call) // a call of the store has ended
}

// Call is one look at a bucket, or one change of it, with all its attempts. Callers who share a
// write are one call, of the operation of the first of them. It names no bucket.
type Call struct {
	Op        string        // "take", "settle", "cancel", "renew", "charge", "refund", "pause", "unpause" or "peek"
	Attempts  int           // requests that were sent for it, one after the other; at least 1
	Conflicts int           // conditional writes that another process's write was ahead of
	Throttled int           // requests that DynamoDB refused because the table or the account is over its capacity
	Took      time.Duration // the whole call, with the pauses between attempts
	Err       error         // nil, or why there was no answer; a refusal is an answer
}

// sent counts a request that ended with err.
func (c *Call) sent(err error) {
	c.Attempts++
	if err == nil {
		return
	}
	switch classify(err) {
	case throttled:
		c.Throttled++
	case conflict:
		c.Conflicts++
	default:
	}
}
