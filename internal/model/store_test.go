package model_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/model"
	"github.com/drawgate/drawgate/storetest"
)

// obvious is the model as a store, in a bubble whose clock moves when everybody sleeps.
var obvious = storetest.Harness{
	New: func(*testing.T) drawgate.Store {
		return model.New(func() int64 { return time.Now().UnixMicro() }, false)
	},
	Advance: func(_ drawgate.Store, d time.Duration) { time.Sleep(d) },
	Wrap:    synctest.Test,
	Slow:    true,
}

// TestStore: the obvious version keeps the contract of stores, so the contract asks for what the model says.
func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, obvious)
}
