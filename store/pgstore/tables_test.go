package pgstore_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/pgtest"
	"github.com/drawgate/drawgate/internal/syncbuffer"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/pgstore"
)

// TestNewerTables: when a newer version has changed the tables, a process of this version goes on
// with the connections that it has. It says so when it is asked whether it works, and new
// connections are refused.
//
// req: D2
func TestNewerTables(t *testing.T) {
	needs.NoRace(t) // the others are for goroutines
	t.Parallel()
	server := pgtest.Shared(t)
	url := named(t, server.Schema(t), "newer_tables")
	s, plan := open(t, url, nil), hourly(t, many)
	mustTake(t, s, takeOf(plan, "k"))
	if err := s.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	setting := schemaOf(t, url) + ".drawgate_setting"
	server.Do("UPDATE " + setting + " SET value = '2' WHERE name = 'schema'")
	refused := func(what string, err error) {
		t.Helper()
		e, ok := errors.AsType[*store.Error](err)
		if !ok || e.Fault != store.FaultConfiguration || !errors.Is(err, pgstore.ErrTables) ||
			!strings.Contains(err.Error(), "newer") {
			t.Errorf("%s: got %v, want an error of the configuration that names a newer version", what, err)
		}
	}
	mustTake(t, s, takeOf(plan, "k"))
	refused("Ping", s.Ping(t.Context()))
	_, err := takeOne(t, open(t, url, nil), takeOf(plan, "k"))
	refused("a new process", err)
	fails(t, err, store.FaultConfiguration)
	server.Do("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'newer_tables'")
	_, err = takeOne(t, s, takeOf(plan, "k"))
	refused("connecting again", err)
	fails(t, err, store.FaultConfiguration)
	server.Do("UPDATE " + setting + " SET value = '1' WHERE name = 'schema'")
	mustTake(t, s, takeOf(plan, "k"))
	if got := used(t, s, plan, "k"); got != 3 {
		t.Errorf("%d units are used, want 3", got)
	}
}

// TestTablesAreMadeMeanwhile: a connection that found no tables does not take them for gone when
// another one has made them since.
//
// req: D2
func TestTablesAreMadeMeanwhile(t *testing.T) {
	t.Parallel()
	err := takesWhileTablesAreMade(t)
	for errors.Is(err, context.DeadlineExceeded) { // the machine is so slow that the first connection gave up
		err = takesWhileTablesAreMade(t)
	}
	if err != nil {
		t.Error(err)
	}
}

// takesWhileTablesAreMade makes two takes on two connections: the second makes the tables after the
// first has seen that there are none.
func takesWhileTablesAreMade(t *testing.T) error {
	t.Helper()
	looked, made := make(chan struct{}), make(chan struct{})
	o := &pgstore.Options{}
	var later atomic.Bool
	o.Between(func(_ context.Context, step string) {
		if step == "looked" && !later.Swap(true) {
			close(looked)
			<-made
		}
	})
	s, first, plan := open(t, pgtest.Shared(t).Schema(t), o), make(chan error), hourly(t, many)
	go func() {
		_, err := takeOne(t, s, takeOf(plan, "first"))
		first <- err
	}()
	select {
	case <-looked:
	case err := <-first:
		return err
	}
	_, err := takeOne(t, s, takeOf(plan, "second"))
	close(made)
	return errors.Join(err, <-first)
}

// TestTablesAreDropped: a process that has used tables does not make them again when they are gone,
// as if nothing had been used.
func TestTablesAreDropped(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared(t)
	url := server.Schema(t)
	s, plan := open(t, url, nil), hourly(t, many)
	mustTake(t, s, takeOf(plan, "k"))
	schema := schemaOf(t, url)
	server.Do("DROP SCHEMA " + schema + " CASCADE")
	server.Do("CREATE SCHEMA " + schema)
	for range 3 { // the first one may have an old connection
		_, err := takeOne(t, s, takeOf(plan, "k"))
		fails(t, err, store.FaultConfiguration)
	}
	server.Do("CREATE TABLE " + schema + ".drawgate_bucket (key text)")
	_, err := takeOne(t, open(t, url, nil), takeOf(plan, "k"))
	fails(t, err, store.FaultConfiguration)
	server.Do("DROP TABLE " + schema + ".drawgate_bucket")
	if _, err := pgstore.CreateTables(t.Context(), url, ""); err != nil {
		t.Fatal(err)
	}
	mustTake(t, s, takeOf(plan, "k"))
}

// TestUnloggedTable: a crash empties it, which is warned of.
func TestUnloggedTable(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared(t)
	url := server.Schema(t)
	s := open(t, url, nil)
	mustTake(t, s, takeOf(hourly(t, many), "k"))
	for setting, want := range map[string]bool{"UNLOGGED": true, "LOGGED": false} {
		server.Do("ALTER TABLE " + schemaOf(t, url) + ".drawgate_bucket SET " + setting)
		f, err := s.Facts(t.Context())
		if warns := strings.Contains(strings.Join(f.Warnings(), "\n"), "unlogged"); err != nil || warns != want {
			t.Errorf("%s: warned %t, %v", setting, warns, err)
		}
	}
}

// TestClosedWhileItLooks: a store that is closed while it looks at the server's settings has
// nothing to warn of.
func TestClosedWhileItLooks(t *testing.T) {
	t.Parallel()
	var log syncbuffer.Buffer
	o := &pgstore.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}
	looks := make(chan struct{})
	o.Between(func(ctx context.Context, step string) {
		if step == "warns" {
			close(looks)
			<-ctx.Done()
		}
	})
	s := open(t, pgtest.Shared(t).Schema(t), o)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-looks
		cancel() // the connection is made all the same
	}()
	if err := s.Ping(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if strings.Contains(log.String(), "cannot be read") {
		t.Errorf("logged %s", log.String())
	}
}
