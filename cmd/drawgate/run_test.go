package main

import (
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/client"
	"github.com/drawgate/drawgate/engine"
)

// What nothing limits has no end: a command that outlives the hold that it asked for is not asked after without a pause, nor ended.
func TestNothingHeldHasNoEnd(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]held{
		"of a store":  heldHere{Result: &engine.Result{}},
		"of a server": heldThere{&client.Reservation{Answer: api.Answer{Allowed: true}}},
	} {
		if left := time.Until(h.Deadline()); left < drawgate.MaxHold/2 {
			t.Errorf("a hold %s ends in %v", name, left)
		}
		if err := h.Settle(t.Context()); err != nil || !h.free() {
			t.Errorf("a hold %s: free=%v, settled %v", name, h.free(), err)
		}
	}
}
