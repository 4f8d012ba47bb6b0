package sqlitestore_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/sqlitestore"
)

// writeDocuments writes n documents of a collection.
func writeDocuments(t *testing.T, s *sqlitestore.Store, n int) {
	t.Helper()
	for i := range n {
		d := store.Document{Name: fmt.Sprint("document ", i), Value: []byte(strings.Repeat("x", 100))}
		done, err := s.WriteDocuments(t.Context(), "c", store.Document{Name: d.Name}, []store.Document{d})
		if err != nil || !done {
			t.Fatal(done, err)
		}
	}
}

func readDocuments(t *testing.T, s *sqlitestore.Store) int {
	t.Helper()
	list, err := s.ReadDocuments(t.Context(), "c", nil)
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// TestDocumentsSurviveARestart: they are in the file, and a file that keeps none has no table for
// them, so that programs that do not know it can use it.
func TestDocumentsSurviveARestart(t *testing.T) {
	t.Parallel()
	path, c := dbPath(t), newClock()
	s := openAt(t, path, nil, c)
	if n := readDocuments(t, s); n != 0 {
		t.Errorf("%d documents in a new file", n)
	}
	const table = "sqlite_schema WHERE name = 'document'"
	if n := sqlitestore.Count(t, path, table); n != 0 {
		t.Error("a file without documents has a table for them")
	}
	writeDocuments(t, s, 3)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openAt(t, path, nil, c)
	if n := readDocuments(t, s); n != 3 {
		t.Errorf("%d of 3 documents after a restart", n)
	}
}

// TestRepairKeepsDocuments: what can be read of them is in the repaired file.
func TestRepairKeepsDocuments(t *testing.T) {
	t.Parallel()
	c, kept := newClock(), 0
	plan := compile(t, rolling(10, time.Hour))
	for seed := range uint64(6) {
		path := scribbled(t, c, plan, seed, func(s *sqlitestore.Store) { writeDocuments(t, s, 20) })
		r := repair(t, path, nil, c)
		n := readDocuments(t, openAt(t, path, nil, c))
		if damaged := strings.Contains(fmt.Sprint(r.Incomplete), "document"); n != 20 && !damaged {
			t.Errorf("%d: %d of 20 documents after a repair that found all of them: %+v", seed, n, *r)
		}
		if !r.Whole {
			kept += n
		}
	}
	if kept == 0 {
		t.Error("no document was copied from any damaged file")
	}
}
