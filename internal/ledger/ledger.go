package ledger

import (
	"slices"
	"time"

	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
)

// Now is one instant on two clocks, in µs.
type Now struct {
	Own   int64 // on this process's clock, since it started; never 0
	Store int64 // on the store's clock, as far as this process knows it
}

// at returns the store's time at an instant of this process's clock.
func (n Now) at(own int64) int64 { return n.Store - (n.Own - own) }

// Options configures a Ledger.
type Options struct {
	// Instances returns the number of processes that share the limits, and whether this one may
	// admit its share. 0 means unknown: a share is nothing, and is not recorded. It is called for
	// every take.
	Instances func() (n int, mayShare bool)

	// AtLeast is the least number of instances that is assumed, if they are counted.
	AtLeast int

	// Start is the start of policies that name none. StartDefault means StartClosed.
	Start store.Start
	// Full reports whether a policy may start full; otherwise it starts cold. nil means that it
	// may.
	Full func() bool

	// Recovers reports whether the store keeps histories of its buckets, so that what it loses is
	// recovered. nil: it does not. It is called for every call of the store.
	Recovers func() bool

	MaxEntries int // most buckets
	MaxHeld    int // most reservations, cancellations and callers' charges
}

// Ledger is the state of a guard. Make one with [New].
type Ledger struct {
	opts    Options
	plans   planCache
	entries table
	held    reservations
	queue   queue
	cancels map[string]*item // cancelItems by the openID of their grants
	charges int              // pending keptItems
	untold  int              // of these: what was used may count twice until then, and no decision said so
	wrong   uint64           // see Miscounted
	losses  int              // pending items about what the store has lost, or must learn of under a grant
	asks    []record.Ask
}

// New returns an empty ledger.
func New(opts Options) *Ledger {
	l := &Ledger{opts: opts, cancels: make(map[string]*item)}
	l.plans.instances, l.plans.atLeast, l.plans.start = opts.Instances, opts.AtLeast, opts.Start
	l.entries.init(max(1, opts.MaxEntries))
	l.held.init(max(1, opts.MaxHeld))
	return l
}

// Len returns the number of entries.
func (l *Ledger) Len() int { return len(l.entries.all) }

// Pending returns the number of buckets with pending items.
func (l *Ledger) Pending() int { return l.entries.pending }

// Undelivered reports whether the store has yet to learn of something that was given here or has
// ended, or may count it twice though no decision was Unsure.
func (l *Ledger) Undelivered() bool { return l.entries.pending > 0 || l.untold > 0 }

// Miscounted returns how often the store may have counted a reservation wrongly for good, though no
// decision was Unsure: its hold had ended there before the store heard how much was used, so that
// all of it counts; or a message opened it, was not answered, and the hold had ended before it
// could be cancelled, so that it counts beside what was used. Neither counts if the store
// remembered the hold, and corrected that.
func (l *Ledger) Miscounted() uint64 { return l.wrong }

// Recovering reports whether something is pending that the store has lost, or may have.
func (l *Ledger) Recovering() bool { return l.losses > 0 }

// Forget drops everything that is known and pending about buckets that were reset, including
// pauses.
func (l *Ledger) Forget(keys []store.Key) {
	for _, k := range keys {
		e := l.entries.byKey[k]
		if e == nil {
			continue
		}
		for _, it := range slices.Clone(e.items) {
			switch {
			case it.inFlight:
			case it.kind == endItem && len(it.entries) > 1: // the other buckets need it
				l.entries.detach(e, it)
				it.entries = slices.DeleteFunc(it.entries, func(o *entry) bool { return o == e })
			default:
				l.drop(it)
			}
		}
		e.reset()
		l.entries.release(e)
	}
}

// micros returns µs as a duration.
func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }
