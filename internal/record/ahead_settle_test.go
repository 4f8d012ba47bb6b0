package record_test

import (
	"testing"

	"github.com/drawgate/drawgate/internal/record"
)

// TestSettleBeforeUnitsAhead: units that were granted ahead fit the bucket at their instant,
// whatever is given back before.
func TestSettleBeforeUnitsAhead(t *testing.T) {
	t.Parallel()
	r, specs, now := &record.Record{}, blurred(60, 0), int64(1_800_000_000_000_000) // one unit drains per second
	take := func(tk record.Take) record.Verdict {
		return record.Decide([]record.Ask{{Rec: r, Specs: specs, N: record.Amounts{60}}}, &tk, now)
	}
	if v := take(record.Take{ID: "a", Grant: 1, Hold: 600_000_000}); !v.Allowed {
		t.Fatal("the first take is refused")
	}
	v := take(record.Take{Ahead: 60_000_000})
	if !v.Allowed || v.Start != now+60_000_000 {
		t.Fatalf("got %+v, want a grant in a minute", v)
	}
	now += 30_000_000
	record.Settle([]record.Ask{{Rec: r, Specs: specs}}, "a", 1, true, now)
	now += 30_000_000
	asks := []record.Ask{{Rec: r, Specs: specs, N: record.Amounts{1}}}
	if record.Decide(asks, &record.Take{}, now).Allowed {
		t.Error("one more unit is granted at the instant of a full bucket")
	}
}
