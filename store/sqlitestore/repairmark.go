package sqlitestore

import (
	"errors"
	"fmt"
	"strings"

	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
)

// A repaired file does not know everything that was used before. So unknown use counts as used at
// the time of the repair, and ages from then on: a rolling limit is full for a window, a calendar
// limit until its window ends, a bucket starts empty.

// Names under which a repair is stored.
const (
	metaRepairMark = "unknown"  // µs: use before then is unknown, for buckets without a record
	metaDoubtful   = "doubtful" // µs: the same, for all buckets without an entry since
	// µs, for each bucket that was reset after a repair: use before then no longer matters. See
	// resetName.
	metaReset = "reset"
)

// repairMark holds the times before which use is unknown. Zeros: nothing is unknown.
type repairMark struct{ absent, all int64 }

// last returns the time of the last repair, or 0 if there was none.
func (u repairMark) last() int64 { return max(u.absent, u.all) }

// resetName returns the name under which the reset of a bucket is stored.
func resetName(k store.Key) string {
	return fmt.Sprintf("%s %d %d %s%s%s", metaReset, len(k.Tenant), len(k.Policy), k.Tenant, k.Policy, k.Name)
}

func readRepairMark(c *conn) (u repairMark, err error) {
	u.absent, _, err = c.number(qMeta, metaRepairMark)
	if err == nil {
		u.all, _, err = c.number(qMeta, metaDoubtful)
	}
	return u, err
}

func (u repairMark) write(c *conn) (err error) {
	if u.absent > 0 {
		_, err = c.exec(qSetMeta, metaRepairMark, u.absent)
	}
	if u.all > 0 {
		_, other := c.exec(qSetMeta, metaDoubtful, u.all)
		err = errors.Join(err, other)
	}
	return err
}

// fill enters the unknown use of a bucket, as far as it may still count. The result need not be
// stored, because it can be computed again.
func (u repairMark) fill(b *bucket, plan *store.Plan, now int64) {
	since := u.all
	if b.id == 0 && b.rec.Last == 0 {
		since = max(since, u.absent)
	}
	if since <= max(b.rec.Last, b.reset) {
		return
	}
	if strings.HasPrefix(plan.Name(), store.OwnPolicies+"credit") {
		return // what was credited is nothing that was used: as much as is known of it counts
	}
	specs := store.Internal.Specs(plan, true)
	b.rec.Advance(specs, since)
	ask := [1]record.Ask{{Rec: b.rec, Specs: specs}}
	some := false
	for j := range specs {
		s := &specs[j]
		if !s.Lasts(since, now) {
			continue
		}
		most := s.Effective[record.Priorities-1]
		if plan.Policy().Limits[j].Every == store.Total {
			most = store.MaxAmount // more may be credited later
		}
		ask[0].N[j] = max(0, most-b.rec.Usage(s, 0).Used)
		some = some || ask[0].N[j] > 0
	}
	if some {
		record.Charge(ask[:], since, since)
	}
}
