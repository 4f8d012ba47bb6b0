//go:build unix

package dynamostore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/drawgate/drawgate/internal/awstest"
)

// contention lets eight processes with eight callers each ask for one bucket, and returns what they
// counted from the second second on. With lone callers each has a store of its own.
func contention(t *testing.T, server *awstest.Server, kind string, z size, lone bool, patience float64,
	d time.Duration,
) report {
	t.Helper()
	f := fleet{t: t}
	w := worker{
		URL: server.URL, Prefix: prefix(), Kinds: []string{kind}, Size: z, Items: 1, Every: 1, Stores: 1, Callers: 8,
		Most: 1, Patience: patience, Timeout: 30 * time.Second,
		Begin: time.Now().Add(2 * time.Second),
	}
	if lone {
		w.Stores, w.Callers = w.Callers, 1
	}
	w.End = w.Begin.Add(time.Second + d)
	for i := range 8 {
		f.start(i, w)
	}
	return total(f.wait())
}

// TestRefusalsOfProcesses: a bucket that is used up costs one read for each refusal, and nothing is
// written, however many ask. Callers of one process share the read.
//
// req: A2
func TestRefusalsOfProcesses(t *testing.T) {
	d := time.Second
	if long {
		d = 10 * time.Second
	} else {
		t.Parallel()
	}
	server := empty(t)
	for _, lone := range []bool{false, true} {
		r := contention(t, server, "rolling", size{Amount: 1, Window: time.Hour}, lone, 0, d)
		t.Logf("lone=%v: %d refusals of callers, %d calls of the store, %d reads, %d writes", lone, r.Refusals, r.Calls,
			r.Reads, r.Writes)
		// Some calls began in the first second. A store's first call may write and fail.
		if most := int64(64); r.Writes > most || r.Reads > r.Calls+most || r.Calls == 0 {
			t.Errorf("lone=%v: %d calls, all refused but for one, cost %d reads and %d writes", lone, r.Calls, r.Reads,
				r.Writes)
		}
	}
}

// TestContention measures how many writes a grant costs if 64 callers in eight processes ask for
// one bucket: where everything is granted, and where callers wait for what a small limit frees. How
// many conflicts there are depends on the machine, so only DRAWGATE_LONG has a bound for that;
// otherwise no write that succeeds is for nothing.
//
// req: A3, A8
func TestContention(t *testing.T) {
	const d = 10 * time.Second
	ample, tight := size{Amount: 1_000_000, Window: 10 * time.Second, Minute: 6_000_000},
		size{Amount: 100, Window: time.Second, Minute: 10_000}
	if !long {
		t.Parallel()
		if r := contention(t, empty(t), "three", ample, false, 1, time.Second); r.Writes-r.Failed > r.Grants ||
			r.Refusals > 0 {
			t.Errorf("%d grants and %d refusals with %d writes, of which %d met a conflict: each write that succeeds must carry a grant", r.Grants, r.Refusals, r.Writes, r.Failed)
		}
		return
	}
	server := empty(t)
	for _, kind := range kinds {
		most := 1.1
		if kind == "bucket" {
			most = 1.3
		}
		show := func(what string, r report) (attempts float64) {
			attempts = float64(r.Writes-r.Unanswered) / float64(max(1, r.Grants))
			t.Logf("%-7s %-35s %6d grants, %6d refusals; %6d writes (%5d met a conflict, %d sent again), %6d reads: %.2f writes a grant, %.2f reads a call",
				kind, what, r.Grants, r.Refusals, r.Writes, r.Failed, r.Unanswered, r.Reads, attempts,
				float64(r.Reads)/float64(max(1, r.Calls)))
			return attempts
		}
		if got := show("all is granted", contention(t, server, kind, ample, false, 1, d)); got > most {
			t.Errorf("%s: %.2f writes a grant, want at most %.1f", kind, got, most)
		}
		show("64 processes, all is granted", contention(t, server, kind, ample, true, 1, d))
		if kind == "minute" {
			continue // it refuses until its minute is over
		}
		what := fmt.Sprintf("%d per %v are granted", tight.Amount, tight.Window)
		show(what, contention(t, server, kind, tight, false, 1, d))
		show("64 processes, "+what, contention(t, server, kind, tight, true, 1, d))
	}
}
