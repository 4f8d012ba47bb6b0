package main

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/engine/rules"
	"github.com/drawgate/drawgate/store/sqlitestore"
	"github.com/drawgate/drawgate/virtualkey"
)

// TestCreditedNamesOfTheStore: the names that can be credited are also those of the store's keys,
// once the file says that it keeps some.
func TestCreditedNamesOfTheStore(t *testing.T) {
	t.Parallel()
	st, err := sqlitestore.Open(filepath.Join(t.TempDir(), "state.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	book, err := virtualkey.Open(t.Context(), st, config.NewSecret, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer book.Close()
	if _, _, err := book.Create(t.Context(), "ops", "dora", api.KeySettings{Team: "blue"}); err != nil {
		t.Fatal(err)
	}
	p := &prepaid{session: &session{opened: st, settings: settings{Config: &config.Config{}}}}
	p.Gateway.Keys = []config.VirtualKey{{Name: "alice", Team: "red"}}
	for stored, want := range map[bool][]string{false: {"alice", "red"}, true: {"alice", "red", "dora", "blue"}} {
		p.Gateway.KeysIn = stored
		if names, err := p.names(t.Context()); err != nil || !slices.Equal(names, want) {
			t.Errorf("keys in the store: %t: got %q %v, want %q", stored, names, err, want)
		}
	}
	// Where rules say by what they count the budget, only such names have one.
	p.Gateway.KeysIn = true
	p.account.Policy = "prepaid"
	for by, want := range map[string][]string{
		`attr("team")`: {"red", "blue"}, `attr( 'key' )`: {"alice", "dora"}, `user`: nil, `attr("user")`: nil,
		`join(attr("team"), user)`: {"alice", "red", "dora", "blue"},
	} {
		p.Rules = []rules.Rule{{Apply: []rules.Apply{{Policy: "other", Key: "ip"}, {Policy: "prepaid", Key: by}}}}
		if names, err := p.names(t.Context()); err != nil || !slices.Equal(names, want) {
			t.Errorf("counted by %s: got %q %v, want %q", by, names, err, want)
		}
	}
}
