package audit_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drawgate/drawgate/audit"
)

// TestSpending: calls that have ended are added up by those who made them, with what was reserved
// of units that they do not name. Those without an end are listed, also if it is not told whether
// they were granted, and those that ended in the last
// minute of a process that was killed. That is the last minute in which the store granted
// something: what ended while it was away is listed however long that was, also if the process then
// ended as it should.
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
	asked := func(call uint64, minute int) audit.Line {
		l := reserved(call, minute, "alice")
		l.Event, l.Granted = audit.Asked, 0
		return l
	}
	uncounted := reserved(3, 2, "alice") // while it was not counted what calls spend
	uncounted.Reserved = uncounted.Reserved[:2]
	without := reserved(3, 7, "bob")
	without.Fallback = true
	files := map[string][]audit.Line{
		"away": {
			reserved(1, 0, "bob"), settled(1, 0, 0, units(1, 3)), reserved(2, 5, "bob"), settled(2, 5, 5, units(1, 4)),
			without,
			settled(3, 7, 8, units(1, 5)),
			{Event: audit.Closed, At: at(9)},
		},
		"killed": {
			asked(1, 0), reserved(1, 0, "alice"), reserved(2, 0, "alice"), settled(1, 0, 5, units(1, 30)),
			reserved(3, 20, "alice"),
			settled(3, 20, 20, []audit.Amount{{Unit: "usd_micros", N: 40}}), reserved(4, 20, "bob"),
			{Event: audit.Refunded, At: at(20), Call: 4, Upstream: "u", Granted: at(20)},
			asked(5, 20), asked(6, 20), asked(7, 20),
			{Event: audit.Refused, At: at(20), Call: 5, Upstream: "u", Asked: at(20), Limit: "p/rpm"},
			{Event: audit.Refused, At: at(20), Call: 7, Upstream: "u", Asked: at(20), Limit: "unavailable"},
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
	bob := alice
	bob.Key = "bob"
	later := alice
	later.Day = "2026-12-01"
	want := map[audit.Spender]map[string]int64{
		alice: {"requests": 2, "usd_micros": 37, "prompt_tokens": 0},
		later: {"requests": 1, "usd_micros": 40, "prompt_tokens": 0},
		bob:   {"requests": 3, "usd_micros": 12, "prompt_tokens": 0},
	}
	if diff := cmp.Diff(want, got.Ended); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if u := got.Unended; len(u) != 2 || u[0].Call != 2 || u[0].Run != "killed" || u[0].Uncertain || u[1].Call != 6 ||
		!u[1].Uncertain || got.Others != 2 || got.Calls != 9 || got.Missing != 0 {
		t.Errorf("%+v", got)
	}
	var doubtful []string
	for i := range got.Doubtful {
		d := &got.Doubtful[i]
		doubtful = append(doubtful, fmt.Sprint(d.Run, " ", d.Call, " ", d.Uncertain))
	}
	if want := []string{
		"away 2 false", "away 3 true", "killed 7 true", "killed 3 false",
		"killed 4 false",
	}; !slices.Equal(doubtful, want) {
		t.Errorf("doubtful are %q, want %q", doubtful, want)
	}
	got.Between("2026-12-01", "2026-12-31")
	if diff := cmp.Diff(map[audit.Spender]map[string]int64{later: want[later]}, got.Ended); diff != "" ||
		len(got.Unended) != 1 || len(got.Doubtful) != 3 {
		t.Errorf("of December: %s, %+v", diff, got)
	}
	if _, err := audit.Spending(t.Context(), []string{filepath.Join(dir, "none")}, day); err == nil {
		t.Error("a folder that is not there is no ledger, and there is no error")
	}
}
