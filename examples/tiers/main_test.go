package main

import (
	"path/filepath"
	"testing"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store/sqlitestore"
)

func TestThirdBatchDoesNotFitInTheMinute(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tasks.db")
	for range 3 {
		if err := run(t.Context(), path); err != nil {
			t.Fatal(err)
		}
	}
	store, err := sqlitestore.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	lim, err := drawgate.New(store, quota, nil)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := lim.Status(t.Context(), "batch"); err != nil || st.States[4].Used != 16 {
		t.Errorf("used %d, want 16; %v", st.States[4].Used, err)
	}
}
