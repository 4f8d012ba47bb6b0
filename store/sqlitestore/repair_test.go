package sqlitestore_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/sqlitestore"
)

// scribbled makes a database with used buckets and open reservations, of which some pages are
// overwritten.
func scribbled(t *testing.T, c *clock, plan *store.Plan, seed uint64, more ...func(*sqlitestore.Store)) string {
	t.Helper()
	path := dbPath(t)
	s := openAt(t, path, nil, c)
	for _, f := range more {
		f(s)
	}
	var batch []store.Take
	for i := range 400 {
		name := fmt.Sprint("user-", i)
		batch = append(batch, store.Take{Buckets: buckets(plan, name, 3)},
			store.Take{ID: name, Hold: 24 * time.Hour, Buckets: buckets(plan, name, 4)})
	}
	if err := errors.Join(s.Take(t.Context(), batch, make([]store.Verdict, len(batch))), s.Close()); err != nil {
		t.Fatal(err)
	}
	b := content(t, path)
	r := rand.New(rand.NewPCG(seed, 1))
	for range 3 {
		page := 4096 * (1 + r.IntN(len(b)/4096-1))
		for i := range 4096 {
			b[page+i] = byte(r.Uint32())
		}
	}
	return write(t, path, b)
}

func repair(t *testing.T, path string, opts *sqlitestore.RepairOptions, c *clock) *sqlitestore.Repaired {
	t.Helper()
	r, err := sqlitestore.RepairAt(path, opts, c.now())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestRepairMintsNothing: whatever is lost with a damaged file, and whatever can be read of it, no
// bucket is granted in a window more than its limit, and all of it comes back when the window is
// over. The damaged file is kept.
//
// req: D2, D10
func TestRepairMintsNothing(t *testing.T) {
	t.Parallel()
	plan := compile(t, rolling(10, time.Hour), drawgate.Limit{
		Name: "d", Kind: drawgate.Calendar, Every: drawgate.Day,
		Amount: 12,
	}, bucketLimit(20, time.Hour))
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			c := newClock()
			path := scribbled(t, c, plan, seed)
			damaged := content(t, path)
			if s, err := sqlitestore.Open(path, nil); err == nil {
				s.Close()
				t.Log("this damage is not found when the file is opened")
			}
			r := repair(t, path, nil, c)
			if r.Whole {
				t.Log("it hit a page that is not used")
				return
			}
			t.Logf("%+v", *r)
			if !slices.ContainsFunc(r.Aside, func(p string) bool { return bytes.Equal(content(t, p), damaged) }) {
				t.Errorf("the damaged file is not among %q", r.Aside)
			}
			s := openAt(t, path, nil, c)
			one := func(name string) bool {
				t.Helper()
				d, err := take(t.Context(), s, plan, name, 1, 1, 1)
				if err != nil {
					t.Fatal(err)
				}
				return d.Allowed
			}
			names := []string{"user-0", "user-17", "user-399", "never seen"}
			for range 2 { // it stays so, and survives being opened again
				for _, name := range names {
					if one(name) {
						t.Errorf("%s: granted after a repair", name)
					}
					if n := used(t, s, plan, name); n < 10 {
						t.Errorf("%s: %d used of 10", name, n)
					}
				}
				s = openAt(t, path, nil, c)
			}
			found := 0
			for i := range 400 { // what could be read of reservations can be settled
				out := make([]store.Outcome, 1)
				st := store.Settlement{
					Op: store.OpCancel, ID: fmt.Sprint("user-", i),
					Buckets: buckets(plan, fmt.Sprint("user-", i)),
				}
				if err := s.Settle(t.Context(), []store.Settlement{st}, out); err != nil {
					t.Fatal(err)
				}
				if !out[0].Gone {
					found++
				}
			}
			if found != r.Reservations {
				t.Errorf("%d reservations could be settled, of %d that were read", found, r.Reservations)
			}
			c.advance(time.Hour + time.Second) // the bucket refills 20 in an hour, the window is over
			for _, name := range names {
				if one(name) {
					t.Errorf("%s: granted although the day is not over", name)
				}
			}
			c.advance(24 * time.Hour)
			for _, name := range names {
				if !one(name) {
					t.Errorf("%s: not granted on the next day", name)
				}
			}
		})
	}
}

// TestRepairOfADeletedFile: nothing is known, so everything is used, if that is what is wanted. A
// file that perhaps never existed is not made by itself.
//
// req: D2, D10
func TestRepairOfADeletedFile(t *testing.T) {
	t.Parallel()
	c, plan := newClock(), compile(t, rolling(10, time.Hour))
	path := dbPath(t)
	s := openAt(t, path, nil, c)
	if n := takes(t, s, plan, "k"); n != 10 {
		t.Fatal(n)
	}
	for _, end := range []string{"", "-wal", "-shm"} {
		_ = os.Remove(path + end)
	}
	if _, err := take(t.Context(), s, plan, "k", 1); !errors.Is(err, sqlitestore.ErrDamaged) {
		t.Errorf("%v, want ErrDamaged", err)
	}
	if _, err := sqlitestore.RepairAt(path, nil, c.now()); !errors.Is(err, os.ErrNotExist) ||
		!strings.Contains(err.Error(), "--hold") {
		t.Errorf("%v, want that there is no file", err)
	}
	wantFiles(t, path, ".mark")
	if r := repair(t, path, &sqlitestore.RepairOptions{Hold: true}, c); r.Whole || len(r.Aside) != 0 ||
		r.Since.IsZero() {
		t.Errorf("%+v", r)
	}
	wantFiles(t, path, "", ".mark")
	s = openAt(t, path, nil, c)
	for _, name := range []string{"k", "other"} {
		if n := takes(t, s, plan, name); n != 0 {
			t.Errorf("%s: %d granted", name, n)
		}
	}
	c.advance(time.Hour + time.Second)
	if n := takes(t, s, plan, "k"); n != 10 {
		t.Errorf("%d granted after a window, want 10", n)
	}
}

// TestRepairOptions: a file that is whole is left alone unless it is to be held; what could be read
// may be trusted.
func TestRepairOptions(t *testing.T) {
	t.Parallel()
	plan := compile(t, rolling(10, time.Hour))
	c := newClock()
	path := filled(t)
	before := content(t, path)
	if r := repair(t, path, nil, c); !r.Whole || !r.Since.IsZero() || !bytes.Equal(before, content(t, path)) {
		t.Errorf("a whole file: %+v", r)
	}
	if r := repair(t, path, &sqlitestore.RepairOptions{Hold: true}, c); !r.Whole || r.Since.IsZero() {
		t.Errorf("a whole file, held: %+v", r)
	}
	s := openAt(t, path, nil, c)
	if n := takes(t, s, plan, "user-1") + takes(t, s, plan, "nobody"); n != 0 {
		t.Errorf("%d granted by a file that is held", n)
	}

	const users = 1000
	c = newClock()
	path = many(t, plan, users, c)
	b := content(t, path)
	write(t, path, b[:len(b)*3/4]) // the last pages are missing
	r := repair(t, path, &sqlitestore.RepairOptions{Trust: true}, c)
	t.Logf("%+v", *r)
	s = openAt(t, path, nil, c)
	counts := map[int64]int{}
	for i := range users {
		counts[used(t, s, plan, fmt.Sprint("user-", i))]++
	}
	if r.Buckets < 100 || len(counts) > 2 || counts[1]+counts[10] != users || counts[1] != r.Buckets ||
		takes(t, s, plan, "nobody") != 0 {
		t.Errorf("used of so many: %v, %d buckets were read; want 1 of those and everything of others", counts,
			r.Buckets)
	}
}

// A file that is undamaged, and older than its mark or another one than its mark names, is accepted
// as it is if it is trusted: nothing counts as used up, neither what it has nor what it has not.
func TestTrustAcceptsAnOlderFile(t *testing.T) {
	t.Parallel()
	plan := compile(t, rolling(10, time.Hour))
	for _, other := range []bool{false, true} {
		c := newClock()
		path := dbPath(t)
		takeOne := func(name string) {
			s, err := sqlitestore.OpenAt(path, nil, c.now)
			if err != nil {
				t.Fatal(err)
			}
			_, err = take(t.Context(), s, plan, name, 3)
			if err = errors.Join(err, s.Close()); err != nil {
				t.Fatal(err)
			}
		}
		takeOne("early")
		backup := content(t, path)
		if other { // of a database that was made anew since
			for _, end := range []string{"", "-wal", "-shm", ".mark"} {
				_ = os.Remove(path + end)
			}
		}
		takeOne("late")
		for _, end := range []string{"-wal", "-shm"} {
			_ = os.Remove(path + end)
		}
		write(t, path, backup)
		if _, err := sqlitestore.OpenAt(path, nil, c.now); !errors.Is(err, sqlitestore.ErrDamaged) {
			t.Errorf("other %v: before the repair: %v, want ErrDamaged", other, err)
		}
		r := repair(t, path, &sqlitestore.RepairOptions{Trust: true}, c)
		if !r.Whole || r.Other != other || r.Lost > 0 == other || !r.Since.IsZero() {
			t.Errorf("other %v: %+v", other, r)
		}
		s := openAt(t, path, nil, c)
		for name, want := range map[string]int64{"early": 7, "late": 10, "nobody": 10} {
			if n := takes(t, s, plan, name); n != want {
				t.Errorf("other %v: %d granted to %q, want %d", other, n, name, want)
			}
		}
	}
}

// many makes a database in which so many users have used one unit.
func many(t *testing.T, plan *store.Plan, users int, c *clock) (path string) {
	t.Helper()
	path = dbPath(t)
	s, err := sqlitestore.OpenAt(path, nil, c.now)
	if err != nil {
		t.Fatal(err)
	}
	batch := make([]store.Take, users)
	for i := range batch {
		batch[i].Buckets = buckets(plan, fmt.Sprint("user-", i), 1)
	}
	if err := errors.Join(s.Take(t.Context(), batch, make([]store.Verdict, len(batch))), s.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestRepairRefuses what it must not touch.
func TestRepairRefuses(t *testing.T) {
	t.Parallel()
	c := newClock()
	foreign := execSQL(t, filled(t), "PRAGMA application_id = 7")
	before := content(t, foreign)
	for path, says := range map[string]string{foreign: "another program", t.TempDir(): "regular file"} {
		if _, err := sqlitestore.RepairAt(path, nil, c.now()); !errors.Is(err, store.ErrStoreUnavailable) ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("%v, want one that says %q", err, says)
		}
	}
	if !bytes.Equal(before, content(t, foreign)) {
		t.Error("the file was changed")
	}
	if _, err := sqlitestore.Repair(dbPath(t)+"/none/state.db", nil); err == nil {
		t.Error("a directory that is not there")
	}
}
