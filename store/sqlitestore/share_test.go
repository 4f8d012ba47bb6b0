package sqlitestore_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/drawgate/drawgate/store/sqlitestore"
)

// TestProcesses has several processes take from one file: together they get exactly the limit, and
// all that was granted is counted. DRAWGATE_LONG makes it 8 processes of 64 goroutines for 10 s.
//
// req: C1 D2 D11 D12 E1
func TestProcesses(t *testing.T) {
	t.Parallel()
	processes, goroutines, d, amount := 4, 16, 1500*time.Millisecond, int64(2000)
	if os.Getenv("DRAWGATE_LONG") != "" {
		processes, goroutines, d, amount = 8, 64, 10*time.Second, 20_000
	}
	zone := dayZone()
	path := dbPath(t)
	results := make(chan string, processes)
	for range processes {
		go func() {
			out, err := child(t.Context(), "share", path, strconv.Itoa(goroutines), d.String(), strconv.FormatInt(amount, 10), zone).Output()
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
	t.Logf("%d processes × %d goroutines for %v, slowest take %v", processes, goroutines, d, time.Duration(slowest)*time.Microsecond)
	t.Logf("tight: %d granted in all, %d used of %d, %d left", tightSum, tightUsed, amount, amount-tightUsed)
	t.Logf("wide: %d granted in all, %d used", wideSum, wideUsed)
}
