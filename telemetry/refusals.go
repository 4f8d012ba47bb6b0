package telemetry

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/store"
)

// Refusals keeps what was refused lately: by bucket and limit, how often and when. It keeps at most
// [api.MaxRefusals] of these, and drops the one whose last refusal is the longest ago when there is
// no room for another. A key has at most 256 bytes there, so all take less than a mebibyte. It is
// safe for concurrent use.
//
// It shows keys as they are: only administrators may see them.
type Refusals struct {
	mu      sync.Mutex
	rows    map[refusalKey]*refusalRow
	ends    refusalRow // of a ring: next is the latest, prev the oldest
	dropped bool
}

// refusalKey tells rows apart.
type refusalKey struct {
	key    drawgate.Key
	limit  string
	reason drawgate.Reason
}

type refusalRow struct {
	is         refusalKey
	about      api.Refusal
	next, prev *refusalRow
}

// NewRefusals returns an empty list.
func NewRefusals() *Refusals {
	r := &Refusals{rows: map[refusalKey]*refusalRow{}}
	r.ends.next, r.ends.prev = &r.ends, &r.ends
	return r
}

// Observer returns an observer that reports decisions to r: for [drawgate.Options.Observer]. An
// allowed take costs nothing, and another refusal of a known key does not allocate.
func (r *Refusals) Observer() *drawgate.Observer { return &drawgate.Observer{Taken: r.taken} }

func (r *Refusals) taken(e *drawgate.Taken) {
	if outcomeOf(e) != refused {
		return
	}
	d := decided(e)
	at, is := e.QueuedAt, refusalKey{reason: drawgate.Queued}
	var asked, left, most int64
	var unit string
	if d != nil && d.Reason != drawgate.Queued {
		is.reason, at = d.Reason, 0
		if l, ok := d.Refusing(); d.Reason == drawgate.Paused {
			at = pausedAt(e.Take, d)
		} else if ok {
			at, is.limit, unit = l.Bucket, l.Limit.Name, cmp.Or(l.Limit.Unit, drawgate.UnitRequests)
			asked, left, most = e.Take.Buckets[at].N[position(d, &l)], l.Remaining, l.Max
		}
	}
	is.key = e.Take.Buckets[at].Key
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	a := &r.latest(is, now).about
	a.Count++
	a.Last, a.Unit, a.Asked, a.Remaining, a.Max, a.Fallback = now, unit, asked, left, most, d != nil && d.Fallback
}

// position returns the position of a limit in its policy.
func position(d *drawgate.Decision, l *drawgate.LimitResult) (i int) {
	for r := range d.Limits() {
		if r.Bucket == l.Bucket {
			if r.Limit == l.Limit {
				return i
			}
			i++
		}
	}
	return 0
}

// pausedAt returns the position of the bucket whose pause refuses a take.
func pausedAt(t *store.Take, d *drawgate.Decision) int {
	if len(t.Buckets) == 1 {
		return 0
	}
	why, _ := errors.AsType[*drawgate.LimitedError](d.Err())
	at := slices.IndexFunc(t.Buckets, func(b store.BucketCost) bool { return why != nil && b.Key.Policy == why.Policy })
	return max(0, at)
}

// latest returns a row, which becomes the first of the ring.
func (r *Refusals) latest(is refusalKey, now time.Time) *refusalRow {
	row := r.rows[is]
	switch {
	case row != nil:
		row.prev.next, row.next.prev = row.next, row.prev
	case len(r.rows) < api.MaxRefusals:
		row = &refusalRow{}
		r.begin(row, is, now)
	default:
		row = r.ends.prev
		row.prev.next, r.ends.prev = &r.ends, row.prev
		delete(r.rows, row.is)
		r.dropped = true
		r.begin(row, is, now)
	}
	row.prev, row.next = &r.ends, r.ends.next
	row.next.prev, r.ends.next = row, row
	return row
}

// begin makes a row that of a bucket and limit. Names may be parts of a request's body, which must
// not be kept.
func (r *Refusals) begin(row *refusalRow, is refusalKey, now time.Time) {
	k := &is.key
	k.Policy, k.Tenant, k.Name = strings.Clone(k.Policy), strings.Clone(k.Tenant), strings.Clone(k.Name)
	row.is = is
	row.about = api.Refusal{
		Policy: k.Policy, Tenant: k.Tenant, Key: k.Name, Reason: api.Reason(is.reason.String()), Limit: is.limit,
		First: now.UTC(),
	}
	r.rows[is] = row
}

// List returns what was refused, the latest first, and whether older ones were dropped.
func (r *Refusals) List() (list []api.Refusal, dropped bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	list = make([]api.Refusal, 0, len(r.rows))
	for row := r.ends.next; row != &r.ends; row = row.next {
		a := row.about
		a.Last = a.Last.UTC()
		list = append(list, a)
	}
	return list, r.dropped
}
