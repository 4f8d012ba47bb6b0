package telemetry

import (
	"testing"

	"github.com/drawgate/drawgate/store"
)

// TestEveryStepHasItsOperation: none that changes a reservation or a pause is counted as other.
func TestEveryStepHasItsOperation(t *testing.T) {
	t.Parallel()
	for op := store.OpSettle; op.String() != store.Op(0).String(); op++ {
		if got := ops[opOf(op.String())]; got != op.String() {
			t.Errorf("%v is counted as %q", op, got)
		}
	}
}
