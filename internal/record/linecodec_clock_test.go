package record

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestLineAfterAStepBack: where the clock was set back, a ticket may end before the arrival that
// its waiter brings. It stays in the line with all others.
//
// req: C5
func TestLineAfterAStepBack(t *testing.T) {
	t.Parallel()
	l := &Line{Tickets: []Ticket{
		{Number: 1, Arrival: 5_000_000, End: 12_000_000, Claims: []Claim{{Limit: 1, N: 1}}},
		{Number: 2, Arrival: 60_000_000, End: 12_000_000, Claims: []Claim{{Limit: 1, N: 1}}},
	}}
	if diff := cmp.Diff(l, DecodeLine(l.Append(nil))); diff != "" {
		t.Errorf("read anew:\n%s", diff)
	}
}
