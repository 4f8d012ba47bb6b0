package ledger

import (
	"slices"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/record"
)

// Now is one instant by two clocks, in µs.
type Now struct {
	Own   int64 // by this process's clock, since it started; never 0
	Store int64 // by the store's clock, as far as this process knows it
}

// at returns what the store's clock showed at an instant of this process's clock.
func (n Now) at(own int64) int64 { return n.Store - (n.Own - own) }

// Options says how a Ledger counts.
type Options struct {
	// Instances returns how many processes share the limits, and whether this one may admit its
	// share. 0 means unknown: shares are nothing, and are not recorded. It is asked at each take.
	Instances func() (n int, mayShare bool)

	// StartFull trusts that nothing was admitted before this process started.
	StartFull bool

	MaxEntries int // most buckets
	MaxHeld    int // most reservations, cancellations and callers' charges
}

// Ledger is the state. Make one with [New].
type Ledger struct {
	opts    Options
	plans   planCache
	entries table
	held    reservations
	queue   queue
	cancels map[string]*item // cancelItems by the openID of their grants
	charges int              // pending keptItems
	asks    []record.Ask
}

// New returns an empty ledger.
func New(opts Options) *Ledger {
	l := &Ledger{opts: opts, cancels: make(map[string]*item)}
	l.plans.instances = opts.Instances
	l.entries.init(max(1, opts.MaxEntries))
	l.held.init(max(1, opts.MaxHeld))
	return l
}

// Len returns the number of entries.
func (l *Ledger) Len() int { return len(l.entries.all) }

// Pending returns the number of buckets about which the store must be told something before it
// decides about them again.
func (l *Ledger) Pending() int { return l.entries.pending }

// Forget drops all that is known and pending of buckets that were reset, pauses included.
func (l *Ledger) Forget(keys []drawgate.Key) {
	for _, k := range keys {
		e := l.entries.byKey[k]
		if e == nil {
			continue
		}
		for _, it := range slices.Clone(e.items) {
			if !it.inFlight {
				l.drop(it)
			}
		}
		e.reset()
		l.entries.release(e)
	}
}

// micros returns µs as a duration.
func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// instantOf returns µs since 1970 as a time; 0 as the zero time.
func instantOf(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us)
}
