package ledgerfile

import (
	"testing"

	"github.com/drawgate/drawgate/outbound"
)

// TestDiskIsWaitedForOnce: while the disk is waited for, lines are written, and nobody else waits.
func TestDiskIsWaitedForOnce(t *testing.T) {
	t.Parallel()
	w, err := Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	w.mu.Lock()
	w.syncing = true
	w.mu.Unlock()
	w.Observer().Called(&outbound.Event{Upstream: "u", Outcome: outbound.NotGranted})
	w.tick()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.dirty || w.timer == nil || w.n != 2 {
		t.Errorf("%d lines, dirty %v, timer %v; want 2 that are synchronized later", w.n, w.dirty, w.timer)
	}
}
