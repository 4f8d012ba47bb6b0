//go:build long

package redisstore_test

import (
	"testing"
	"time"

	"github.com/drawgate/drawgate/internal/linetest"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store"
)

// TestFairLong: who waits in eight stores on one server is served in order.
//
// req: C5
func TestFairLong(t *testing.T) {
	server := redistest.Start(t)
	var stores []store.Store
	for range 8 {
		stores = append(stores, open(t, server, nil))
	}
	linetest.Judge(t, stores, 12*time.Second)
}
