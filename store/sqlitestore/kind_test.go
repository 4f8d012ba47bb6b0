package sqlitestore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/sqlitestore"
)

// TestKindsOfFaults: whoever decides in the store's place must know whether it passes by itself,
// whether somebody must act, and whether it is one bucket only. A ping finds out whether the file
// can be written.
//
// req: D8, D10
func TestKindsOfFaults(t *testing.T) {
	t.Parallel()
	plan := compile(t, rolling(10, time.Hour))
	for name, c := range map[string]struct {
		opts *sqlitestore.Options
		do   func(path string) error // before the file is opened
		then func(path string) error
		want store.Fault
		ping bool // works all the same
	}{
		"locked": {&sqlitestore.Options{BusyTimeout: -1}, nil, func(path string) error {
			unlock, err := sqlitestore.Lock(path)
			if err == nil {
				t.Cleanup(func() { _ = unlock() })
			}
			return err
		}, store.FaultTransient, false},
		"read-only": {sqlitestore.With(0, "query_only = ON"), nil, nil, store.FaultConfiguration, false},
		"one bucket": {nil, func(path string) error {
			return sqlitestore.Exec(path, "UPDATE state SET record = substr(record, 1, 20)")
		}, nil, store.FaultBucket, true},
		"deleted": {nil, nil, func(path string) error {
			remove(t, path)
			return nil
		}, store.FaultPermanent, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filled(t)
			if c.do != nil {
				if err := c.do(path); err != nil {
					t.Fatal(err)
				}
			}
			s, err := sqlitestore.Open(path, c.opts)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if c.then != nil {
				if err := c.then(path); err != nil {
					t.Fatal(err)
				}
			}
			_, err = take(t.Context(), s, plan, "user-1", 1)
			if se, ok := errors.AsType[*store.Error](err); !ok || se.Fault != c.want {
				t.Errorf("%v, want a fault that is %v", err, c.want)
			}
			if err := s.Ping(t.Context()); (err == nil) != c.ping {
				t.Errorf("ping: %v", err)
			}
		})
	}
}

// TestStatementThatCannotBePrepared fails, and nothing else does: a table is gone.
func TestStatementThatCannotBePrepared(t *testing.T) {
	t.Parallel()
	path := filled(t)
	s, err := sqlitestore.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	execSQL(t, path, "DROP TABLE history")
	for range 2 {
		wantUnavailable(t, s.Read(t.Context(), store.EventQuery{}, func(store.Event) bool { return true }), "history")
		_, err = take(t.Context(), s, compile(t, rolling(10, time.Hour)), "k", 1)
		wantUnavailable(t, err, "history")
	}
}
