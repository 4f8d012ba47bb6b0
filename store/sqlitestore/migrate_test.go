package sqlitestore_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/sqlitestore"
)

// next is a program of the next version: its schema has one more step.
func next(t *testing.T, step string) fstest.MapFS {
	t.Helper()
	steps := fstest.MapFS{"migrations/9999.sql": {Data: []byte(step)}}
	names, err := fs.Glob(sqlitestore.Migrations(), "migrations/*.sql")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		text, err := fs.ReadFile(sqlitestore.Migrations(), name)
		if err != nil {
			t.Fatal(err)
		}
		steps[name] = &fstest.MapFile{Data: text}
	}
	return steps
}

// A step that changes a table with data in it, and one that fails when half of it is done. Neither
// can be done twice.
const (
	goodStep = `ALTER TABLE history ADD COLUMN length INTEGER; UPDATE history SET length = length(units);
		CREATE TABLE step AS SELECT count(*) AS events FROM history;`
	badStep = `CREATE TABLE step (n INTEGER); DELETE FROM history; UPDATE state SET rev = 0; UPDATE absent SET n = 1;`
)

// version1 is a file that a program of version 1 has filled, and what that program says of it.
type version1 struct {
	path   string
	clock  *clock
	plan   *store.Plan
	status store.State
	events []store.Event
}

func fillVersion1(t *testing.T) version1 {
	t.Helper()
	v := version1{path: dbPath(t), clock: newClock()}
	v.plan = compile(t, rolling(100, time.Hour), bucketLimit(100, 24*time.Hour),
		drawgate.Limit{Name: "slots", Kind: drawgate.Concurrency, Unit: "slots", Amount: 4})
	s, err := sqlitestore.OpenAt(v.path, nil, v.clock.now)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		v.clock.advance(time.Second)
		if d, err := take(t.Context(), s, v.plan, "k", 2, 1); err != nil || !d.Allowed {
			t.Fatalf("%v, %v", d.Allowed, err)
		}
	}
	held := store.Take{
		ID: "held", Hold: time.Hour, Buckets: buckets(v.plan, "k", 5, 5, 1),
		Labels: []store.Label{{Name: "task", Value: "t1"}},
	}
	if err := s.Take(t.Context(), []store.Take{held}, make([]store.Verdict, 1)); err != nil {
		t.Fatal(err)
	}
	v.status, v.events = v.ask(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if st := v.status; st.States[0].Used != 45 || st.States[2].Used != 1 || st.Open != 1 || len(v.events) != 21 {
		t.Fatalf("the file is not what it should be: %+v, %d events", st, len(v.events))
	}
	return v
}

func (v version1) ask(t *testing.T, s *sqlitestore.Store) (store.State, []store.Event) {
	t.Helper()
	out := make([]store.State, 1)
	if err := s.Peek(t.Context(), buckets(v.plan, "k", 1), 0, out); err != nil {
		t.Fatal(err)
	}
	return out[0], history(t, s, time.Time{}, time.Time{})
}

// check checks that a program says of the file what the one of version 1 said, and that it can go
// on with it.
func (v version1) check(t *testing.T, opts *sqlitestore.Options) {
	t.Helper()
	s := openAt(t, v.path, opts, v.clock)
	status, events := v.ask(t, s)
	if status.Open != v.status.Open {
		t.Errorf("%d open reservations, want %d", status.Open, v.status.Open)
	}
	if diff := cmp.Diff(v.status.States, status.States); diff != "" {
		t.Errorf("what is used (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(v.events, events); diff != "" {
		t.Errorf("the history (-before +after):\n%s", diff)
	}
	var o [1]store.Outcome
	settle := store.Settlement{Op: store.OpSettle, ID: "held", Buckets: buckets(v.plan, "k", 3, 3)}
	if err := s.Settle(t.Context(), []store.Settlement{settle}, o[:]); err != nil || o[0].Gone || o[0].Err != nil {
		t.Errorf("settling what was held before: %+v, %v", o[0], err)
	}
	if d, err := take(t.Context(), s, v.plan, "k", 57, 57); err != nil || !d.Allowed {
		t.Errorf("what was left: allowed %v, %v", d.Allowed, err)
	}
	if d, err := take(t.Context(), s, v.plan, "k", 1); err != nil || d.Allowed {
		t.Errorf("one more: allowed %v, %v", d.Allowed, err)
	}
	if events := history(t, s, time.Time{}, time.Time{}); len(events) != len(v.events)+2 {
		t.Errorf("%d events, want %d", len(events), len(v.events)+2)
	}
}

func (v version1) wantPragma(t *testing.T, text, want string) {
	t.Helper()
	if got, err := sqlitestore.Pragma(v.path, text); err != nil || got != want {
		t.Errorf("%s is %s, %v; want %s", text, got, err, want)
	}
}

// TestMigration opens a file of version 1 with a program of version 2: the step is done, what
// counted still counts, and the old program refuses the file.
//
// req: D6
func TestMigration(t *testing.T) {
	t.Parallel()
	v := fillVersion1(t)
	opts := sqlitestore.WithSchema(next(t, goodStep))
	v.check(t, opts)
	v.wantPragma(t, "user_version", "3")
	v.wantPragma(t, "integrity_check", "ok")
	if n := sqlitestore.Count(t, v.path, "history WHERE length = length(units)"); n != len(v.events) {
		t.Errorf("%d events have the new column filled, want the %d that were there", n, len(v.events))
	}
	_, err := sqlitestore.Open(v.path, nil)
	wantUnavailable(t, err, "use a newer version")
	if !errors.Is(err, sqlitestore.ErrForeign) {
		t.Errorf("got %v, want ErrForeign", err)
	}
	openAt(t, v.path, opts, v.clock) // the second time there is nothing to do
}

// TestMigrationUnderneath: a program that has the file open when a newer one brings its schema up
// to date writes no more in the old form. Nor does it repair a file of a newer version, and lose
// what it does not know.
//
// req: D6
func TestMigrationUnderneath(t *testing.T) {
	t.Parallel()
	v := fillVersion1(t)
	old := openAt(t, v.path, nil, v.clock)
	if d, err := take(t.Context(), old, v.plan, "k", 1); err != nil || !d.Allowed {
		t.Fatalf("before: allowed %v, %v", d.Allowed, err)
	}
	openAt(t, v.path, sqlitestore.WithSchema(next(t, goodStep)), v.clock)
	for range 2 {
		_, err := take(t.Context(), old, v.plan, "k", 1)
		wantUnavailable(t, err, "use a newer version")
		if !errors.Is(err, sqlitestore.ErrForeign) {
			t.Errorf("got %v, want ErrForeign", err)
		}
	}
	if _, err := sqlitestore.Repair(v.path, &sqlitestore.RepairOptions{Hold: true, Force: true}); !errors.Is(err,
		sqlitestore.ErrForeign) {
		t.Errorf("repairing a newer version: %v, want ErrForeign", err)
	}
}

// TestMigrationFails half way: the file is as it was, byte by byte, and the program of version 1
// goes on with it.
//
// req: D2 D6
func TestMigrationFails(t *testing.T) {
	t.Parallel()
	v := fillVersion1(t)
	before := content(t, v.path)
	_, err := sqlitestore.OpenAt(v.path, sqlitestore.WithSchema(next(t, badStep)), v.clock.now)
	wantUnavailable(t, err, "schema version 3")
	if err == nil || !strings.Contains(err.Error(), "no such table: absent") {
		t.Errorf("got %v, want the reason", err)
	}
	if !bytes.Equal(content(t, v.path), before) {
		t.Error("the file was changed")
	}
	v.wantPragma(t, "user_version", "2")
	v.check(t, nil)
}

// meeting is a schema of which the last step is read by all before anybody may go on.
type meeting struct {
	fs.FS
	all *sync.WaitGroup
}

func (m meeting) Open(name string) (fs.File, error) {
	if strings.HasSuffix(name, "0002.sql") {
		m.all.Done()
		m.all.Wait()
	}
	return m.FS.Open(name)
}

// TestMigrationAtOnce has several programs find a file of version 1 and begin the step at the same
// time: one does it, the others go on with what it did.
//
// req: D6
func TestMigrationAtOnce(t *testing.T) {
	t.Parallel()
	v := fillVersion1(t)
	const programs = 6
	var all, ended sync.WaitGroup
	all.Add(programs)
	opts := sqlitestore.WithSchema(meeting{next(t, goodStep), &all})
	for range programs {
		ended.Go(func() {
			s, err := sqlitestore.OpenAt(v.path, opts, v.clock.now)
			if err != nil {
				t.Error(err)
				return
			}
			if d, err := take(t.Context(), s, v.plan, "other", 1); err != nil || !d.Allowed {
				t.Errorf("with what another did: allowed %v, %v", d.Allowed, err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	ended.Wait()
	v.wantPragma(t, "user_version", "3")
	if n := sqlitestore.Count(t, v.path, "step"); n != 1 {
		t.Errorf("the step was done %d times", n)
	}
	if n := sqlitestore.Count(t, v.path, "history"); n != len(v.events)+programs {
		t.Errorf("%d events, want %d", n, len(v.events)+programs)
	}
}

// TestFileOfVersion1 opens a file that a program wrote before there were grants: what counted still
// counts, and what was held is settled without one.
func TestFileOfVersion1(t *testing.T) {
	t.Parallel()
	v := fillVersion1(t) // what the file holds, too: it was filled by the same steps
	v.path = unpacked(t, "testdata/version1.db.gz")
	v.wantPragma(t, "user_version", "1")
	v.check(t, nil)
	v.wantPragma(t, "user_version", "2")
}

// unpacked returns the path of a database that was packed.
func unpacked(t *testing.T, file string) string {
	t.Helper()
	packed, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = packed.Close() }()
	r, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	path := dbPath(t)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
