package record

import (
	"testing"
	"time"

	"github.com/drawgate/drawgate/internal/calendar"
)

func TestLasts(t *testing.T) {
	t.Parallel()
	const minute = int64(time.Minute / time.Microsecond)
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC).UnixMicro()
	bucket := Spec{Kind: Bucket, Window: minute, Rate: 60}
	bucket.Scale, bucket.Drain = BucketScale(bucket.Rate, bucket.Window)
	bucket.Effective[Priorities-1] = 30
	for name, c := range map[string]struct {
		spec Spec
		last int64 // the last µs at which it counts
	}{
		"rolling": {Spec{Kind: Rolling, Window: minute}, minute - 1},
		"bucket":  {bucket, minute/2 - 1},
		"day":     {Spec{Kind: Calendar, Rule: calendar.Rule{Unit: calendar.Day, Zone: time.UTC}}, 12*60*minute - 1},
		"slots":   {Spec{Kind: Concurrency}, -1},
	} {
		if c.last >= 0 && !c.spec.Lasts(noon, noon+c.last) || c.spec.Lasts(noon, noon+c.last+1) {
			t.Errorf("%s: it does not last for %d µs", name, c.last+1)
		}
	}
}
