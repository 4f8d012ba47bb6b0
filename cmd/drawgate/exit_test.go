package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
)

// Who asks again after an error must know whether the first time may have counted.
func TestAdviceTellsWhatMayHaveCounted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		op   string
		err  error
		want string
	}{
		"no answer":   {"take", context.DeadlineExceeded, "It may have counted"},
		"not sent":    {"take", fmt.Errorf("%w: %w", store.ErrNothingDone, context.DeadlineExceeded), "Nothing was decided"},
		"no store":    {"open", context.DeadlineExceeded, "Nothing was decided"},
		"only a look": {"peek", context.DeadlineExceeded, "Nothing was decided"},
	} {
		if got := advice(&drawgate.StoreError{Store: "sqlite", Op: c.op, Err: c.err}); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
