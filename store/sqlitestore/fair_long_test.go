//go:build long

package sqlitestore_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/drawgate/drawgate/internal/linetest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/sqlitestore"
)

// TestFairLong: who waits in eight stores on one file is served in order.
//
// req: C5
func TestFairLong(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	var stores []store.Store
	for range 8 {
		s, err := sqlitestore.Open(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		stores = append(stores, s)
	}
	linetest.Judge(t, stores, 12*time.Second)
}
