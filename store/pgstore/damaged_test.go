package pgstore_test

import (
	"errors"
	"testing"

	"github.com/drawgate/drawgate/internal/pgtest"
	"github.com/drawgate/drawgate/store"
)

// TestDamagedRow: a row that somebody has edited by hand fails the takes of its bucket only, also
// within a batch. Resetting the bucket mends it.
//
// req: A10, D2
func TestDamagedRow(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		edit   string
		served bool // it is served all the same
		used   int64
	}{
		"the record's version": {"record = set_byte(record, 0, 255)", false, 0},
		"the record's end":     {"record = substr(record, 1, length(record) - 1)", false, 0},
		"a longer record":      {`record = record || '\x00'`, false, 0},
		"no record":            {"record = ''", true, 1},
		"the notes":            {`notes = '\xffffffffffffffffffff'`, false, 0},
		"a part of a mark":     {"marks = substr(marks, 1, 11)", true, 2},
		"too many marks":       {`marks = decode(repeat('00', 24000), 'hex')`, true, 2},
		"a line of no sense":   {`line = '\x01ff00ff00'`, true, 2},
		"an empty line":        {`line = ''`, true, 2},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			server := pgtest.Shared(t)
			url := server.Schema(t)
			s, plan := open(t, url, nil), hourly(t, many)
			for _, name := range []string{"a", "k", "z"} {
				mustTake(t, s, takeOf(plan, name))
			}
			server.Do("UPDATE " + schemaOf(t, url) + ".drawgate_bucket SET " + c.edit + " WHERE key LIKE '%k'")
			batch := []store.Take{takeOf(plan, "a"), takeOf(plan, "k"), takeOf(plan, "z")}
			v := make([]store.Verdict, len(batch))
			if err := s.Take(t.Context(), batch, v); err != nil {
				t.Fatal(err)
			}
			if !v[0].Allowed || !v[2].Allowed {
				t.Errorf("the other buckets of the batch are not served: %v, %v", v[0].Fail, v[2].Fail)
			}
			if c.served {
				if got := used(t, s, plan, "k"); v[1].Fail != nil || got != c.used {
					t.Errorf("%v, and %d units are used, want %d", v[1].Fail, got, c.used)
				}
				return
			}
			e, ok := errors.AsType[*store.Error](v[1].Fail)
			if !ok || e.Fault != store.FaultBucket {
				t.Errorf("got %v, want an error of the bucket", v[1].Fail)
			}
			if _, err := takeOne(t, s, takeOf(plan, "k")); err == nil {
				t.Error("it is served on its own")
			}
			if err := s.Reset(t.Context(), []store.Key{batch[1].Buckets[0].Key}); err != nil {
				t.Fatal(err)
			}
			mustTake(t, s, takeOf(plan, "k"))
			if got := used(t, s, plan, "k"); got != 1 {
				t.Errorf("after a reset and a take %d units are used", got)
			}
		})
	}
}
