//go:build unix

package main

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/internal/needs"
)

// A server with the preset of document D that is killed, and starts again while another program
// locks its file, goes on at its full rate, even if it cannot open the file. A second server does
// not: it is not the only one with the file, and starts cold. When the file is free again, it knows
// what both admitted.
//
// req: D10, D2
func TestAServerThatStartsWithALockedFileGoesOn(t *testing.T) {
	t.Parallel()
	for _, by := range needs.Cases(1,
		[2]string{"the whole file", "?_pragma=busy_timeout(60000)&_pragma=locking_mode(exclusive)&_txlock=exclusive"},
		[2]string{"a transaction", "?_pragma=busy_timeout(60000)&_txlock=immediate"},
	) {
		t.Run(by[0], func(t *testing.T) {
			t.Parallel()
			startLocked(t, by[1])
		})
	}
}

func startLocked(t *testing.T, dsn string) {
	t.Helper()
	text, err := config.Preset(config.MultiTier)
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t)
	b.write("drawgate.yaml", string(text))
	first := b.daemon()
	if a := decoded[api.Answer](first, first.public+"/v1/take", take(config.MultiTier, "k")); !a.Allowed || a.Fallback {
		t.Fatalf("with its file: %+v", a)
	}
	first.kill()
	b.env = append(b.env, "DRAWGATE_STORE_TIMEOUT=2s") // for which each asks in vain
	file := filepath.Join(b.dir, "rate_limits.db")
	db, err := sql.Open("sqlite", file+dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	again := b.daemon()
	again.shows(`drawgate_store_breaker_state{state="open"}`, 1) // nobody has asked for anything yet
	admits(t, again, "k", 20)
	second := b.daemon()
	admits(t, second, "other", 10)
	second.log.await(t, `(policies cannot start full)`)
	if err := errors.Join(tx.Rollback(), db.Close()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the file's decision", func() bool {
		return !decoded[api.Answer](again, again.public+"/v1/take", take(config.MultiTier, "k")).Fallback
	})
	if a := decoded[api.Answer](again, again.public+"/v1/take", take(config.MultiTier, "k")); a.Allowed || a.Fallback {
		t.Errorf("with its file again: %+v", a)
	}
}

// admits checks how much a server without its file admits at once.
func admits(t *testing.T, d *daemon, key string, want int) {
	t.Helper()
	n := 0
	var a api.Answer
	for a.Allowed = true; a.Allowed; n++ {
		if a = decoded[api.Answer](d, d.public+"/v1/take", take(config.MultiTier, key)); a.Allowed && !a.Fallback {
			t.Fatalf("decided by the file, which is locked: %+v", a)
		}
	}
	if n--; n < want || n > want+1 { // a long test may reach the next minute's units
		t.Errorf("%d are admitted, want %d", n, want)
	}
	if cold := want < 20; cold != strings.Contains(a.Message, "usage before this outage is unknown") {
		t.Errorf("it says %q", a.Message)
	}
}

// A server with the preset of document D goes on at its full rate without its file: deleted,
// damaged, or both found only at the next start. A second one that starts then starts cold.
//
// req: D10, D2
func TestAServerThatStartsWithoutItsFileGoesOn(t *testing.T) {
	t.Parallel()
	text, err := config.Preset(config.MultiTier)
	if err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(file string) error{
		"deleted": os.Remove,
		"damaged": func(file string) error {
			return os.WriteFile(file, []byte("this is no database, and longer than one byte"), 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.write("drawgate.yaml", string(text))
			first := b.daemon()
			if a := decoded[api.Answer](first, first.public+"/v1/take", take(config.MultiTier, "k")); !a.Allowed ||
				a.Fallback {
				t.Fatalf("with its file: %+v", a)
			}
			first.kill()
			if err := spoil(filepath.Join(b.dir, "rate_limits.db")); err != nil {
				t.Fatal(err)
			}
			again := b.daemon()
			admits(t, again, "k", 20)
			again.log.await(t, `(stays unavailable until it is repaired)`)
			second := b.daemon()
			admits(t, second, "other", 10)
			second.log.await(t, `(policies cannot start full)`)
		})
	}
}
