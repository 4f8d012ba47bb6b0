package audit_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drawgate/drawgate/audit"
)

// TestSpending: calls that have ended are added up by those who made them, with what was reserved
// of units that they do not name. Those without an end are listed, and those that ended in the last
// minute of a process that was killed.
func TestSpending(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start := time.Date(2026, 11, 30, 23, 50, 0, 0, time.UTC)
	at := func(minute int) int64 { return start.Add(time.Duration(minute) * time.Minute).UnixNano() }
	units := func(requests, micros int64) []audit.Amount {
		return []audit.Amount{{Unit: "requests", N: requests}, {Unit: "usd_micros", N: micros}, {Unit: "prompt_tokens"}}
	}
	reserved := func(call uint64, minute int, key string) audit.Line {
		return audit.Line{
			Event: audit.Reserved, At: at(minute), Call: call, Upstream: "u", Granted: at(minute), Asked: at(minute),
			Key: key, Team: "red", Model: "m", Reserved: units(1, 100),
		}
	}
	settled := func(call uint64, granted, minute int, used []audit.Amount) audit.Line {
		return audit.Line{
			Event: audit.Settled, At: at(minute), Call: call, Upstream: "u", Granted: at(granted), Sent: at(granted),
			Ended: at(minute), Used: used,
		}
	}
	uncounted := reserved(3, 2, "alice") // while it was not counted what calls spend
	uncounted.Reserved = uncounted.Reserved[:2]
	files := map[string][]audit.Line{
		"killed": {
			reserved(1, 0, "alice"), reserved(2, 0, "alice"), settled(1, 0, 5, units(1, 30)), reserved(3, 20, "alice"),
			settled(3, 20, 20, []audit.Amount{{Unit: "usd_micros", N: 40}}), reserved(4, 20, "bob"),
			{Event: audit.Refunded, At: at(20), Call: 4, Upstream: "u", Granted: at(20)},
		},
		"closed": {
			reserved(1, 1, "alice"), settled(1, 1, 1, units(1, 7)), reserved(2, 2, ""), settled(2, 2, 2, units(1, 9)),
			uncounted, settled(3, 2, 2, nil),
			{Event: audit.Closed, At: at(2)},
		},
	}
	for run, lines := range files {
		open := audit.Line{N: 1, At: at(0), Event: audit.Opened, Version: 1, Run: run, Part: 1}
		text := open.Append(nil)
		for i, l := range lines {
			l.N = uint64(i + 2)
			text = l.Append(text)
		}
		if err := os.WriteFile(filepath.Join(dir, "ledger-"+run+".jsonl"), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	day := func(t time.Time) string { return t.UTC().Format(time.DateOnly) }
	got, err := audit.Spending(t.Context(), []string{dir}, day)
	if err != nil {
		t.Fatal(err)
	}
	alice := audit.Spender{Day: "2026-11-30", Team: "red", Key: "alice", Upstream: "u", Model: "m"}
	later := alice
	later.Day = "2026-12-01"
	want := map[audit.Spender]map[string]int64{
		alice: {"requests": 2, "usd_micros": 37, "prompt_tokens": 0},
		later: {"requests": 1, "usd_micros": 40, "prompt_tokens": 0},
	}
	if diff := cmp.Diff(want, got.Ended); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if len(got.Unended) != 1 || got.Unended[0].Call != 2 || got.Unended[0].Run != "killed" || got.Others != 2 ||
		got.Calls != 5 || got.Missing != 0 {
		t.Errorf("%+v", got)
	}
	if len(got.Doubtful) != 2 || got.Doubtful[0].Call != 3 || got.Doubtful[1].Call != 4 {
		t.Errorf("doubtful are %+v, want calls 3 and 4", got.Doubtful)
	}
	got.Between("2026-12-01", "2026-12-31")
	if diff := cmp.Diff(map[audit.Spender]map[string]int64{later: want[later]}, got.Ended); diff != "" ||
		len(got.Unended) != 0 || len(got.Doubtful) != 2 {
		t.Errorf("of December: %s, %+v", diff, got)
	}
	if _, err := audit.Spending(t.Context(), []string{filepath.Join(dir, "none")}, day); err == nil {
		t.Error("a folder that is not there is no ledger, and there is no error")
	}
}
