package ledgerfile

import "testing"

// TestSettledCallsAreNotKept, however long the store does not hear of them.
func TestSettledCallsAreNotKept(t *testing.T) {
	t.Parallel()
	var s ends
	for n := range uint64(1000) {
		s.add(callName{call: n}, n+2)
		if n > 0 {
			s.settle(callName{call: n - 1})
		}
		if len(s.open) > 1 || len(s.calls) > 1 {
			t.Fatalf("%d and %d calls are kept, want 1", len(s.open), len(s.calls))
		}
	}
	s.hear(s.settled(1001))
	if s.heard != 1000 || !s.unheard() {
		t.Errorf("the store has heard of all up to %d, want 1000, and not of the last one", s.heard)
	}
}
