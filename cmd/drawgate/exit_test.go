package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
)

// Who gets an error must know whether the command may have been carried out, before it is run
// again. (testdata/store.txtar has a store that cannot be reached.)
func TestAdviceTellsWhatMayHaveBeenDone(t *testing.T) {
	t.Parallel()
	lost := fmt.Errorf("%w: %w", store.ErrUnknownOutcome, context.DeadlineExceeded)
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"a take, no answer":  {&drawgate.StoreError{Op: "take", Err: lost}, "It may have been carried out"},
		"a reset, no answer": {&drawgate.StoreError{Op: "adjust", Err: lost}, "It may have been carried out"},
		"it gave up": {
			&drawgate.GaveUpError{MaySpend: true, Err: context.DeadlineExceeded},
			"It may have been carried out",
		},
		"it gave up a hold": {&drawgate.GaveUpError{Err: context.DeadlineExceeded}, "The store did not answer in time"},
		"a look, no answer": {&drawgate.StoreError{Op: "peek", Err: lost}, "Nothing was decided"},
		"not sent":          {&drawgate.StoreError{Op: "take", Err: context.DeadlineExceeded}, "Nothing was decided"},
	} {
		if got := advice(c.err); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
