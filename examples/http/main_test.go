package main

import (
	"net/http/httptest"
	"testing"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/server"
	"github.com/drawgate/drawgate/store/memstore"
)

func TestRun(t *testing.T) {
	t.Parallel()
	store := memstore.New(nil)
	quota := drawgate.PerHour(policy, 10)
	e, err := engine.New(store, engine.Config{Policies: []engine.Policy{{Policy: quota}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.New(e, store, nil)
	if err != nil {
		t.Fatal(err)
	}
	ts := httptest.NewServer(s)
	defer ts.Close()
	if err := run(t.Context(), ts.URL); err != nil {
		t.Fatal(err)
	}
	lim, err := drawgate.New(store, quota, nil)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := lim.Status(t.Context(), "user-17"); err != nil || st.States[0].Used != 1 {
		t.Errorf("used %d, want 1; %v", st.States[0].Used, err)
	}
}
