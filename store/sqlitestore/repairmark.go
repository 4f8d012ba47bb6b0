package sqlitestore

import (
	"errors"
	"fmt"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/record"
)

// A repaired file does not know all that was used before. So what is not known counts as used at
// the instant of the repair, and ages from then on: a rolling limit is full for a window, a
// calendar limit until its window ends, a bucket starts empty.

// The names under which a repair is stored.
const (
	metaRepairMark = "unknown"  // µs: what was used before then is not known, of buckets that have no record
	metaDoubtful   = "doubtful" // the same, of all buckets that nothing was entered in since
	metaReset      = "reset"    // µs, for each bucket that was reset after a repair: what was used before then does not matter. See resetName
)

// repairMark says what is not known of a file. Zeros: nothing.
type repairMark struct{ absent, all int64 }

// last returns the instant of the last repair, 0 if there was none.
func (u repairMark) last() int64 { return max(u.absent, u.all) }

// resetName returns the name under which it is stored that a bucket was reset.
func resetName(k drawgate.Key) string {
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

// fill enters what is not known of a bucket, as far as it may still count. It changes nothing else,
// so that it need not be stored: it is found again.
func (u repairMark) fill(b *bucket, plan *drawgate.Plan, now int64) {
	since := u.all
	if b.id == 0 && b.rec.Last == 0 {
		since = max(since, u.absent)
	}
	if since <= max(b.rec.Last, b.reset) {
		return
	}
	specs := plan.Specs(true)
	b.rec.Advance(specs, since)
	ask := [1]record.Ask{{Rec: b.rec, Specs: specs}}
	some := false
	for j := range specs {
		s := &specs[j]
		if !s.Lasts(since, now) {
			continue
		}
		ask[0].N[j] = max(0, s.Effective[record.Priorities-1]-b.rec.Usage(s, 0).Used)
		some = some || ask[0].N[j] > 0
	}
	if some {
		record.Charge(ask[:], since, since)
	}
}
