package memstore_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/memstore"
	"github.com/drawgate/drawgate/storetest"
)

// inBubble runs every case in a bubble of its own, whose clock moves when everybody sleeps.
var inBubble = storetest.Harness{
	New: func(t *testing.T) drawgate.Store {
		s := memstore.New(nil)
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
		return s
	},
	Advance: func(_ drawgate.Store, d time.Duration) { time.Sleep(d) },
	Wrap:    synctest.Test,
}

func TestStore(t *testing.T) { storetest.Run(t, inBubble) }

// TestRealTime runs the cases that need no other clock on the real one.
func TestRealTime(t *testing.T) { storetest.Run(t, storetest.Harness{New: inBubble.New}) }
