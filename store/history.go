package store

import (
	"context"
	"math"
)

// Mark is drawn when a part of a bucket's history begins (an [Epoch]). No two parts of any history
// have the same one. The zero Mark stands for what a program of an earlier version wrote.
type Mark struct {
	Generation uint64 // of the server that drew it; 0: the store could not tell
	Clock      int64  // of that server, in µs
}

// NoRecord is what a process knows of a bucket that had no record when it was last asked.
var NoRecord = Mark{Generation: math.MaxUint64, Clock: -1}

// Known is what a process knows of a bucket's history: the answer by which it judged last.
type Known struct {
	Mark Mark // the last one that was drawn then; the zero Known: the process knows nothing
	// of the server that answered; another one than Mark's: an epoch is pending, and begins with
	// the next write. A server that cannot tell answers with that of Mark: then none is pending
	Generation uint64
}

// Epoch is a part of a bucket's history.
type Epoch struct {
	Mark  Mark
	Start int64 // the instant of the last write before it, in µs of the store's clock
	Until int64 // until when what was written before it may count; not of the oldest epoch
}

// History is what a store says of one bucket's past, in a [Verdict], [Outcome] or [State], if it
// was asked to: see [Historian].
type History struct {
	Known           // what a process knows that has this answer
	Wrote   bool    // the call wrote the bucket, at Last
	Gone    bool    // of a settlement: this bucket does not have the reservation
	Unmet   bool    // a recovery was not carried out, because the bucket's last mark is another one
	Last    int64   // in each answer: the instant of the bucket's last write; 0: no record. They increase strictly
	Listed  bool    // Epochs and the fields below are set: the caller knew another mark
	Epochs  []Epoch // the oldest first; empty: there is no record
	Reset   int64   // instant of the last reset; 0: none that matters
	Paused  int64   // when the pause in force was set; 0: there is none, or it is not known
	Resumed int64   // when a pause was ended last; 0: none that matters
}

// Recovery makes a take or a charge the recovery of something that the store has lost. It is
// carried out only if the bucket's last mark is the one that is known ([History.Unmet] otherwise;
// a take is not allowed then), and once per grant.
//
// It also makes an OpPause or OpUnpause one that is made again, without such a condition: a pause
// is not set if one was ended at End or later, and an end is noted, at End, even if there is no
// pause.
type Recovery struct {
	End  int64 // of a take: the end of its hold; of a pause, or its end: when it was set, or ended, first
	From int64 // of a take: from when on its units count, if that is later than now
	// of a take: the fingerprint of the one that was lost, which may have had other buckets; 0: it
	// is this one's
	Content uint64
	Grant   Grant // of a charge: of all its parts, on each resend
	// of a charge: what was lost. Parts that are over or were forgiven by a reset are ignored. A
	// charge under the grant of a reservation that is open ends it: only the charge counts then
	Parts []Lost
}

// Lost are units of one bucket that have to be charged again.
type Lost struct {
	N           Amounts
	From, Until int64 // from when on and until when they count, in µs of the store's clock
}

// Historian is a store that may lose what it acknowledged, as Redis does in a fail-over, and that
// keeps a history per bucket, by which a process notices what is missing. Calls that name what is
// known (Take.Known, Settlement.Known and PeekKnown) are answered with a [History] per bucket.
type Historian interface {
	// KeepsHistory reports whether this store does so now.
	KeepsHistory() bool
	// PeekKnown is Peek with what is known of each bucket's history. len(known) == len(buckets).
	PeekKnown(ctx context.Context, buckets []BucketCost, priority int8, known []Known, out []State) error
}
