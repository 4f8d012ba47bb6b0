package model_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate/internal/model"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/storetest"
)

// obvious is the model as a store, in a bubble whose clock moves when everybody sleeps.
var obvious = storetest.Harness{
	New: func(*testing.T) store.Store {
		return model.New(func() int64 { return time.Now().UnixMicro() }, false)
	},
	Advance: func(_ store.Store, d time.Duration) { time.Sleep(d) },
	Wrap:    synctest.Test,
	Keeps:   true,
	Without: map[string]string{"too many open": "it looks at all reservations at each step"},
}

// TestStore: the obvious version keeps the contract of stores, so the contract asks for what the
// model says.
func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, obvious)
}

// TestEngine compares the engine with the obvious version on random scripts in which versions of a
// policy, with other rates and margins, with limits that the others do not have, take turns: every
// answer is the same. Once as they like, on an engine that keeps whatever it found; once as all
// stores are compared with an engine that keeps no more than it must.
//
// req: A5, D3, D11, E10
func TestEngine(t *testing.T) {
	t.Parallel()
	n := needs.Rounds(20, 150, 5000)
	keeping := records
	keeping.Keeps = true
	keeping.New = func(t *testing.T) store.Store {
		t.Helper()
		return model.NewRecords(func() int64 { return time.Now().UnixMicro() }, false).Keeping()
	}
	for name, engine := range map[string]storetest.Harness{"keeps all": keeping, "keeps what it must": records} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Scripts(t, engine, obvious, n)
		})
	}
}
