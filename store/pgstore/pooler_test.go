package pgstore_test

import (
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/pgtest"
	"github.com/drawgate/drawgate/internal/syncbuffer"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/pgstore"
)

// pooled returns the URL of a schema, and the same through PgBouncer, both without sslmode: these
// servers have no TLS.
func pooled(t *testing.T) (direct, pooler string) {
	t.Helper()
	server := pgtest.Shared(t)
	direct = server.Schema(t)
	pooler = server.Pooler(t, direct)
	return strings.Replace(direct, "sslmode=disable", "", 1), strings.Replace(pooler, "sslmode=disable", "", 1)
}

// TestTablesThroughAPooler makes and checks tables several times over: a pooler that keeps no
// prepared statements is no reason to drop them.
func TestTablesThroughAPooler(t *testing.T) {
	needs.NoRace(t) // the others are for goroutines
	t.Parallel()
	_, pooler := pooled(t)
	for i := range 4 {
		if made, err := pgstore.CreateTables(t.Context(), pooler, ""); err != nil || made != (i == 0) {
			t.Errorf("made %t, %v", made, err)
		}
		list, err := pgstore.CheckTables(t.Context(), pooler, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range list {
			if !f.Warning {
				t.Errorf("found %+v", f)
			}
		}
	}
}

// TestListenPastAPooler: notifications arrive if the URL names the server itself, with any sslmode
// that the server accepts; otherwise the log says that they do not.
func TestListenPastAPooler(t *testing.T) {
	t.Parallel()
	direct, pooler := pooled(t)
	_, at, _ := strings.Cut(direct, "@")
	server, _, _ := strings.Cut(at, "/")
	for url, silent := range map[string]bool{direct: true, pooler + "&listen=" + server: true, pooler: false} {
		var log syncbuffer.Buffer
		s := open(t, url, &pgstore.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		keys := make(chan store.Key, 1)
		stop := s.Watch(keys)
		until(t, "the store listens, or says that it cannot", func() bool {
			return s.Listens() || strings.Contains(log.String(), "who waits is not told at once")
		})
		if s.Listens() != silent {
			t.Errorf("%s: logged %q", url, log.String())
		}
		stop()
	}
}

// TestAnotherCheckIsNotHeard: a pooler may pass on what comes in the instant of a LISTEN, so a
// check believes only a notification of its own.
func TestAnotherCheckIsNotHeard(t *testing.T) {
	needs.NoRace(t) // the others are for goroutines
	t.Parallel()
	server := pgtest.Start(t)
	pooler := server.Pooler(t, server.URL())
	if _, err := pgstore.CreateTables(t.Context(), pooler, ""); err != nil {
		t.Fatal(err)
	}
	var checks, others sync.WaitGroup
	var done atomic.Bool
	for range 2 {
		others.Go(func() {
			for !done.Load() {
				server.Do("SELECT pg_notify('drawgate_check', n::text) FROM generate_series(1, 100) AS n")
			}
		})
	}
	for range 8 {
		checks.Go(func() {
			list, err := pgstore.CheckTables(t.Context(), pooler, "")
			if got := warned(list); err != nil || !slices.Contains(got, pgstore.CodeListen) {
				t.Errorf("warnings %q, %v", got, err)
			}
		})
	}
	checks.Wait()
	done.Store(true)
	others.Wait()
}

// TestTablesThatAreThereInPart makes what is missing.
func TestTablesThatAreThereInPart(t *testing.T) {
	needs.NoRace(t) // the others are for goroutines
	t.Parallel()
	server := pgtest.Start(t)
	url := server.Schema(t)
	s := open(t, url, nil)
	_, schema, _ := strings.Cut(url, "&schema=")
	plan := hourly(t, 1)
	mustTake(t, s, takeOf(plan, "k"))
	for _, table := range []string{"setting", "history", "document"} {
		server.Do("DROP TABLE " + schema + ".drawgate_" + table)
		if _, err := pgstore.CreateTables(t.Context(), url, ""); err != nil {
			t.Errorf("without %s: %v", table, err)
		}
		if list, err := pgstore.CheckTables(t.Context(), url, ""); err != nil || len(errorsOf(list)) > 0 {
			t.Errorf("without %s: %v, %v", table, list, err)
		}
	}
	if v, err := takeOne(t, s, takeOf(plan, "k")); err != nil || v.Allowed {
		t.Errorf("what was used is forgotten: %t, %v", v.Allowed, err)
	}
}

func errorsOf(list []pgstore.Finding) (all []pgstore.Finding) {
	for _, f := range list {
		if !f.Warning {
			all = append(all, f)
		}
	}
	return all
}
