package sqlitestore_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/store/sqlitestore"
)

// TestProcesses has several processes take from one file: together they get exactly the limit, and
// all that was granted is counted. DRAWGATE_LONG makes it 8 processes of 64 goroutines for 10 s.
//
// req: C1 D2 D11 D12 E1
func TestProcesses(t *testing.T) {
	t.Parallel()
	processes, goroutines, d, amount := 4, 16, 1500*time.Millisecond, int64(2000)
	switch {
	case testing.Short():
		d, amount = d/3, amount/4
	case needs.Long():
		processes, goroutines, d, amount = 8, 64, 10*time.Second, 20_000
	}
	zone := dayZone()
	path := dbPath(t)
	results := make(chan string, processes)
	for range processes {
		go func() {
			out, err := child(t.Context(), "share", path, strconv.Itoa(goroutines), d.String(),
				strconv.FormatInt(amount, 10), zone).Output()
			if err != nil {
				out = fmt.Append(nil, "failed: ", err)
			}
			results <- string(out)
		}()
	}
	var tightSum, wideSum, slowest int64
	for range processes {
		var a, b, c int64
		if text := <-results; true {
			if _, err := fmt.Sscan(text, &a, &b, &c); err != nil {
				t.Fatalf("a process said %q", text)
			}
		}
		tightSum, wideSum, slowest = tightSum+a, wideSum+b, max(slowest, c)
	}
	s, err := sqlitestore.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	tight := dayPlan(amount, zone)
	wide := widePlan()
	tightUsed, wideUsed := used(t, s, tight, "k"), used(t, s, wide, "k")
	if tightUsed != tightSum || tightUsed != amount {
		t.Errorf("tight: %d used, %d granted, want %d", tightUsed, tightSum, amount)
	}
	if wideUsed != wideSum {
		t.Errorf("wide: %d used, %d granted", wideUsed, wideSum)
	}
	if n := int64(len(history(t, s, time.Time{}, time.Time{}))); n != tightSum+wideSum {
		t.Errorf("%d takes in the history, %d granted", n, tightSum+wideSum)
	}
	t.Logf("%d processes × %d goroutines for %v, slowest take %v", processes, goroutines, d,
		time.Duration(slowest)*time.Microsecond)
	t.Logf("tight: %d granted in all, %d used of %d, %d left", tightSum, tightUsed, amount, amount-tightUsed)
	t.Logf("wide: %d granted in all, %d used", wideSum, wideUsed)
}

// TestOnlyNewEntriesAreReadAgain: after another process has added entries, a store reads these, and
// not all that it knows: an entry that somebody changed without a trace stays as it was. It reads
// all of them once it cannot know what was changed, as after the writing of an older program.
//
// req: D11
func TestOnlyNewEntriesAreReadAgain(t *testing.T) {
	t.Parallel()
	limit := rolling(1000, time.Hour)
	limit.Precision = drawgate.Exact
	path, c, plan := dbPath(t), newClock(), compile(t, limit)
	a, b := openAt(t, path, nil, c), openAt(t, path, nil, c)
	add := func(s *sqlitestore.Store, n int64) {
		t.Helper()
		c.advance(time.Second)
		if d, err := take(t.Context(), s, plan, "k", n); err != nil || !d.Allowed {
			t.Fatalf("%v, %v", d.Fail, err)
		}
	}
	want := func(when string, s *sqlitestore.Store, n int64) {
		t.Helper()
		if got := used(t, s, plan, "k"); got != n {
			t.Errorf("%s: %d used, want %d", when, got, n)
		}
	}
	sql := func(text string) {
		t.Helper()
		if err := sqlitestore.Exec(path, text); err != nil {
			t.Fatal(err)
		}
	}
	add(a, 1)
	add(a, 2)
	want("another store", b, 1+2)
	sql("UPDATE entry SET n = n + 100 WHERE first = (SELECT min(first) FROM entry)")
	add(b, 4)
	add(b, 8)
	want("entries were added", a, 1+2+4+8)
	sql("UPDATE state SET rev = rev + (1 << 40)")
	want("an older program wrote", a, 101+2+4+8)
}
