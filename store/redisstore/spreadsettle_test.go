package redisstore

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/drawgate/drawgate/store"
)

// TestSettlementThatFailsEverywhere: what is unknown of one slot is not hidden by another one, in
// which nothing was done.
func TestSettlementThatFailsEverywhere(t *testing.T) {
	t.Parallel()
	charge := &store.Settlement{Op: store.OpCharge, Buckets: make([]store.BucketCost, 2)}
	gs := []group{{at: []int{0}}, {at: []int{1}}}
	none := reported("settle", "WRONGTYPE", nil)
	lost := storeError("settle", fmt.Errorf("%w: %w", store.ErrUnknownOutcome, context.DeadlineExceeded))
	for _, errs := range [][2]error{{none, lost}, {lost, none}} {
		o := joinOutcomes(charge, gs, []store.Outcome{{Err: errs[0]}, {Err: errs[1]}})
		if !errors.Is(o.Err, store.ErrUnknownOutcome) {
			t.Errorf("%v and %v: %v", errs[0], errs[1], o.Err)
		}
	}
}
