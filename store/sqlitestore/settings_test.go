package sqlitestore_test

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate/store/sqlitestore"
)

// TestSynchronous asks the connections themselves how durable they are: the log is synced with
// every transaction unless the caller wants less, and after an error, when the connection is opened
// again, as before. (2 is FULL, 1 NORMAL: https://sqlite.org/pragma.html#pragma_synchronous.) On
// macOS a sync reaches the disk only with fullfsync.
//
// The connection that lists and reads the history may not write; but if it is closed last it moves
// the log into the file, so it has to sync as well.
//
// req: D2 D11
func TestSynchronous(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		opts *sqlitestore.Options
		want string
	}{
		{"default", nil, "2"},
		{"zero", &sqlitestore.Options{}, "2"},
		{"full", &sqlitestore.Options{Synchronous: sqlitestore.Full}, "2"},
		{"normal", &sqlitestore.Options{Synchronous: sqlitestore.Normal}, "1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "state.db")
			synctest.Test(t, func(t *testing.T) {
				s, err := sqlitestore.Open(path, c.opts)
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				plan := compile(t, rolling(10, time.Hour))
				for _, when := range []string{"opened", "opened again"} {
					synctest.Wait()
					wantPragma(t, when+", writer", "synchronous", c.want, sqlitestore.WriterPragma, s)
					wantPragma(t, when+", writer", "fullfsync", "1", sqlitestore.WriterPragma, s)
					sqlitestore.CloseConn(s)
					if _, err := take(t.Context(), s, plan, "k", 1); err != nil {
						t.Fatal(err)
					}
				}
				list(t, s, "p")
				wantPragma(t, "reader", "synchronous", "2", sqlitestore.ReaderPragma, s)
				wantPragma(t, "reader", "fullfsync", "1", sqlitestore.ReaderPragma, s)
				wantPragma(t, "reader", "query_only", "1", sqlitestore.ReaderPragma, s)
			})
		})
	}
}

func wantPragma(t *testing.T, who, text, want string, ask func(*sqlitestore.Store, string) (string, error),
	s *sqlitestore.Store,
) {
	t.Helper()
	if got, err := ask(s, text); err != nil || got != want {
		t.Errorf("%s: %s is %s, %v; want %s", who, text, got, err, want)
	}
}
