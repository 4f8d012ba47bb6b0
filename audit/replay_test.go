package audit_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate/audit"
)

// writeRun writes a ledger of calls that were sent at the given instants after a start, which is at
// a full minute, and answered a millisecond later. change may change the end of a call.
func writeRun(t *testing.T, dir, run string, sent []time.Duration, change func(i int, l *audit.Line)) {
	t.Helper()
	writeBoth(t, dir, run, sent, func(i int, _, end *audit.Line) {
		if change != nil {
			change(i, end)
		}
	})
}

// writeBoth is writeRun where change may change the beginning of a call too.
func writeBoth(t *testing.T, dir, run string, sent []time.Duration, change func(i int, begin, end *audit.Line)) {
	t.Helper()
	start := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	text := (&audit.Line{
		N: 1, At: start.UnixNano(), Event: audit.Opened, Version: audit.Version, Run: run,
		Part: 1,
	}).Append(nil)
	n := uint64(1)
	put := func(at time.Time, l audit.Line) {
		n++
		l.N, l.At = n, at.UnixNano()
		text = l.Append(text)
	}
	one := []audit.Amount{{Unit: "requests", N: 1}}
	for i, after := range sent {
		at, id := start.Add(after), uint64(i+1)
		begin := audit.Line{
			Event: audit.Reserved, Call: id, Upstream: "u", Granted: at.UnixNano(), Owner: "o",
			Model: "m", Reserved: one,
		}
		end := audit.Line{
			Event: audit.Settled, Call: id, Upstream: "u", Granted: at.UnixNano(), Sent: at.UnixNano(),
			Answered: at.Add(time.Millisecond).UnixNano(),
			Ended:    at.Add(time.Millisecond).UnixNano(), Outcome: "succeeded", Status: 200, Used: one,
			Reported: audit.ReportedAll,
		}
		change(i, &begin, &end)
		put(at, begin)
		put(at.Add(time.Millisecond), end)
	}
	if err := os.WriteFile(filepath.Join(dir, run+audit.Suffix), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// verdicts returns what is said of each limit, by its window.
func verdicts(t *testing.T, dir string, opts *audit.Options, limit audit.Limit) (map[audit.Window]audit.Verdict,
	*audit.Report,
) {
	t.Helper()
	r, err := audit.Replay(t.Context(), []string{dir}, []audit.Quota{{Name: "q", Limits: []audit.Limit{limit}}}, opts)
	if err != nil {
		t.Fatal(err)
	}
	all := map[audit.Window]audit.Verdict{}
	for _, l := range r.Limits {
		all[l.Window] = l.Verdict
	}
	return all, r
}

// TestClockError: two hosts' calls that are just a window apart may be less apart if their clocks
// differ.
//
// req: C1
func TestClockError(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeRun(t, dir, "A", []time.Duration{30 * time.Second}, nil)
	writeRun(t, dir, "B", []time.Duration{90*time.Second + 50*time.Millisecond}, nil)
	limit := audit.Limit{Name: "rpm", Amount: 1, Window: audit.Rolling}
	for _, c := range []struct {
		wrong time.Duration
		want  audit.Verdict
	}{{0, audit.Within}, {20 * time.Millisecond, audit.Within}, {100 * time.Millisecond, audit.Possible}} {
		got, r := verdicts(t, dir, &audit.Options{ClockError: c.wrong}, limit)
		if got[audit.Rolling] != c.want || got[audit.Aligned] != audit.Within || r.Verdict != c.want {
			t.Errorf("clocks that differ by %v: got %v and %q, want %q", c.wrong, got, r.Verdict, c.want)
		}
	}
}

// TestBothWindows: calls on both sides of a full minute are over for a provider that counts by any
// minute, and not for one that counts by the clock's.
func TestBothWindows(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeRun(t, dir, "A", []time.Duration{59 * time.Second, 61 * time.Second}, nil)
	limit := audit.Limit{Name: "rpm", Amount: 1, Window: audit.Rolling, Margin: 500 * time.Millisecond}
	for w, want := range map[audit.Window]map[audit.Window]audit.Verdict{
		"":            {audit.Rolling: audit.Over, audit.Aligned: audit.Within},
		audit.Rolling: {audit.Rolling: audit.Over},
		audit.Aligned: {audit.Aligned: audit.Within},
	} {
		got, _ := verdicts(t, dir, &audit.Options{Windows: w}, limit)
		if len(got) != len(want) || got[audit.Rolling] != want[audit.Rolling] ||
			got[audit.Aligned] != want[audit.Aligned] {
			t.Errorf("windows %q: got %v, want %v", w, got, want)
		}
	}
}

// TestRefusedThoughThereWasRoom: a refusal that the ledgers do not explain is reported, and nothing
// is within then.
func TestRefusedThoughThereWasRoom(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeRun(t, dir, "A", []time.Duration{time.Second, 2 * time.Second}, func(i int, l *audit.Line) {
		if i == 1 {
			l.Outcome, l.Status, l.Meaning, l.Unit, l.Reported = "refused", 429, "minute", "requests", ""
		}
	})
	limit := audit.Limit{Name: "rpm", Amount: 10, Window: audit.Rolling}
	got, r := verdicts(t, dir, &audit.Options{Windows: audit.Rolling}, limit)
	if got[audit.Rolling] != audit.Possible || r.Limits[0].Unexplained != 1 || r.RefusalCount != 1 ||
		len(r.Refusals) != 1 || r.Refusals[0].Meaning != "minute" {
		t.Errorf("got %v and %+v, want one refusal that nothing explains", got, r)
	}
	limit.Amount = 1
	if got, _ := verdicts(t, dir, &audit.Options{Windows: audit.Rolling}, limit); got[audit.Rolling] != audit.Over {
		t.Errorf("the provider named the limit: got %v", got)
	}
}

// TestEndWithoutBeginning: a call whose reservation is missing makes the verdict uncertain, unless
// it began before the oldest file that is left.
func TestEndWithoutBeginning(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeRun(t, dir, "A", []time.Duration{time.Second}, func(_ int, l *audit.Line) { l.Call = 9 })
	_, r := verdicts(t, dir, nil, audit.Limit{Name: "rpm", Amount: 10, Window: audit.Rolling})
	if r.Orphans != 1 || r.Unended != 1 || r.Verdict != audit.Possible {
		t.Errorf("got %d orphans, %d without an end, %q", r.Orphans, r.Unended, r.Verdict)
	}
}

// TestUnitsThatAreNotNamed: a call is one request even if only its tokens are named, units that a
// settlement does not name stay as they were reserved, and those that are named twice add up.
//
// req: C1
func TestUnitsThatAreNotNamed(t *testing.T) {
	t.Parallel()
	tokens := func(n ...int64) (list []audit.Amount) {
		list = []audit.Amount{} // nothing is named, which is not the same as nothing said
		for _, n := range n {
			list = append(list, audit.Amount{Unit: "tokens", N: n})
		}
		return list
	}
	for _, c := range []struct {
		name           string
		unit           string
		reserved, used []audit.Amount
		least, most    int64
	}{
		{"a request", "requests", tokens(8), tokens(5), 1, 1},
		{"a request of nothing", "requests", tokens(), tokens(), 1, 1},
		{"twice", "tokens", tokens(8, 8), tokens(5, 6), 11, 11},
		{"as reserved", "tokens", tokens(8, 8), tokens(), 0, 16},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			writeBoth(t, dir, "A", []time.Duration{time.Second},
				func(_ int, begin, end *audit.Line) { begin.Reserved, end.Used = c.reserved, c.used })
			_, r := verdicts(t, dir, &audit.Options{Windows: audit.Aligned},
				audit.Limit{Name: "l", Unit: c.unit, Amount: 100, Window: audit.Rolling})
			if got := r.Limits[0]; got.Least.Units != c.least || got.Total != c.most {
				t.Errorf("used at least %d, in all at most %d; want %d and %d", got.Least.Units, got.Total, c.least,
					c.most)
			}
		})
	}
}

// TestCallsOfNoPolicy: where limits belong to policies, a call that none of them granted makes the
// verdict uncertain: it used the same quota.
//
// req: C1
func TestCallsOfNoPolicy(t *testing.T) {
	t.Parallel()
	for policy, want := range map[string]audit.Verdict{
		"quota": audit.Within, "slots": audit.Within, "": audit.Possible,
		"renamed": audit.Possible,
	} {
		dir := t.TempDir()
		writeBoth(t, dir, "A", []time.Duration{time.Second, 2 * time.Second}, func(i int, begin, _ *audit.Line) {
			if begin.Policy = "quota"; i == 1 {
				begin.Policy = policy
			}
		})
		r, err := audit.Replay(t.Context(), []string{dir}, []audit.Quota{
			{Name: "quota", Policy: "quota", Limits: []audit.Limit{{Name: "rpm", Amount: 10, Window: audit.Rolling}}},
			{Name: "slots", Policy: "slots"}, // of limits that no ledger shows
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if r.Verdict != want || r.Unknown != map[audit.Verdict]int64{audit.Possible: 1}[want] {
			t.Errorf("a call of policy %q: %q, and %d are of none; want %q", policy, r.Verdict, r.Unknown, want)
		}
	}
}

// TestOtherFilesOfAFolder: files of another kind, such as a gateway's incidents, are left out of a
// folder. A file that has a ledger's name, or that the caller names, is an error.
func TestOtherFilesOfAFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	incidents := filepath.Join(dir, "quota.db-incidents"+audit.Suffix)
	write := func(path string) {
		if err := os.WriteFile(path, []byte(`{"id":"20260701T120000000Z-aaaaaaaa","at":"2026-07-01T12:00:00Z"}`+"\n"),
			0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(incidents)
	if _, err := audit.Replay(t.Context(), []string{dir}, nil, nil); err == nil ||
		!strings.Contains(err.Error(), "there is no ledger in "+dir) {
		t.Errorf("a folder without a ledger: %v", err)
	}
	writeRun(t, dir, "A", []time.Duration{time.Second}, nil)
	if r, err := audit.Replay(t.Context(), []string{dir}, nil, nil); err != nil || r.Calls != 1 {
		t.Errorf("the folder: %+v, %v; want a call", r, err)
	}
	if _, err := audit.Replay(t.Context(), []string{incidents}, nil, nil); err == nil ||
		!strings.Contains(err.Error(), "is not a file of a ledger") {
		t.Errorf("the file itself: %v", err)
	}
	write(filepath.Join(dir, audit.Prefix+"damaged"+audit.Suffix))
	if _, err := audit.Replay(t.Context(), []string{dir}, nil, nil); err == nil ||
		!strings.Contains(err.Error(), "is not a file of a ledger") {
		t.Errorf("a damaged file of a ledger: %v", err)
	}
}

// TestEarlierCopies: of a file and copies that were made before it was complete, all of it counts,
// once.
func TestEarlierCopies(t *testing.T) {
	t.Parallel()
	live := t.TempDir()
	writeRun(t, live, "A", []time.Duration{time.Second, 2 * time.Second, 3 * time.Second}, nil)
	text, err := os.ReadFile(filepath.Join(live, "A"+audit.Suffix))
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(text, []byte("\n"))
	early, later := t.TempDir(), t.TempDir()
	for dir, n := range map[string]int{early: 3, later: 5} {
		if err := os.WriteFile(filepath.Join(dir, "A"+audit.Suffix), bytes.Join(lines[:n], nil), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	quotas := []audit.Quota{{Name: "q", Limits: []audit.Limit{{Name: "rpm", Amount: 2, Window: audit.Rolling}}}}
	for _, paths := range [][]string{{live, early, later}, {early, live, later}, {later, early, live}} {
		r, err := audit.Replay(t.Context(), paths, quotas, nil)
		if err != nil {
			t.Fatal(err)
		}
		if r.Verdict != audit.Over || r.Calls != 3 || r.Damaged != 0 {
			t.Errorf("%d calls, %d damaged, %q; want 3 calls that are over", r.Calls, r.Damaged, r.Verdict)
		}
	}
}
