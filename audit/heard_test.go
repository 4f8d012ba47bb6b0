package audit_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/drawgate/drawgate/audit"
)

// TestWhatTheStoreHasHeard: where a ledger tells which ends the store has heard of, exactly the
// others are doubtful, however the process ended and however long ago that was.
func TestWhatTheStoreHasHeard(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	line := func(e audit.Event, call uint64) audit.Line {
		l := audit.Line{Event: e, Call: call, Upstream: "u", Granted: int64(call)}
		if e == audit.Reserved {
			l.Asked, l.Key = start.UnixNano(), "alice"
			l.Reserved = []audit.Amount{{Unit: "requests", N: 1}, {Unit: "prompt_tokens", N: 10}}
		}
		return l
	}
	unsure := func(call uint64) audit.Line {
		l := line(audit.Reserved, call)
		l.Fallback, l.Unsure = true, true
		return l
	}
	refused := func(call int64, unsure bool) audit.Line {
		return audit.Line{
			Event: audit.Refused, Call: uint64(call), Upstream: "u", Asked: call, Limit: "p/rpm",
			Fallback: unsure, Unsure: unsure,
		}
	}
	alive := func(heard uint64) audit.Line { return audit.Line{Event: audit.Alive, Heard: heard} }
	with := func(l audit.Line, heard uint64) audit.Line {
		l.Heard = heard
		return l
	}
	local := func(l audit.Line) audit.Line {
		l.Fallback = true
		return l
	}
	twice := func(heard uint64) audit.Line {
		return audit.Line{Event: audit.Alive, Heard: heard, Miscounted: true}
	}
	calls := []audit.Line{ // lines 2 to 7
		line(audit.Reserved, 1), line(audit.Reserved, 2), line(audit.Settled, 1), line(audit.Settled, 2),
		line(audit.Reserved, 3), line(audit.Refunded, 3),
	}
	for name, c := range map[string]struct {
		more []audit.Line
		want []uint64
	}{
		"one of three":      {[]audit.Line{alive(4)}, []uint64{2, 3}},
		"all":               {[]audit.Line{alive(5), alive(8)}, nil},
		"all, and it ended": {[]audit.Line{with(audit.Line{Event: audit.Closed}, 7)}, nil},
		"it ended and the store was away": {
			[]audit.Line{alive(5), {Event: audit.Closed}}, []uint64{3},
		},
		"one could not be told":   {[]audit.Line{line(audit.Unheard, 2), alive(8)}, []uint64{2}},
		"one could not, and ends": {[]audit.Line{line(audit.Unheard, 1), alive(8), {Event: audit.Closed}}, []uint64{1}},
		"one may count twice": {
			[]audit.Line{with(unsure(4), 7), line(audit.Settled, 4), alive(9)}, []uint64{4},
		},
		"one was given here and counts twice": {
			[]audit.Line{with(local(line(audit.Reserved, 4)), 7), line(audit.Settled, 4), twice(9), alive(10)},
			[]uint64{4},
		},
		"one was granted by the store, and settled after its hold": {
			[]audit.Line{{Event: audit.Alive, Heard: 5}, {Event: audit.Alive, Heard: 8, Miscounted: true}}, []uint64{3},
		},
		"one was, and still runs": {
			[]audit.Line{with(local(line(audit.Reserved, 4)), 7), twice(7), line(audit.Settled, 4), alive(10)},
			[]uint64{4},
		},
		"one was, before": {
			[]audit.Line{with(local(line(audit.Reserved, 4)), 7), line(audit.Settled, 4), alive(9), twice(9)}, nil,
		},
		"one was refused, and may be granted": {
			[]audit.Line{
				{Event: audit.Asked, Call: 4, Upstream: "u", Asked: 4, Key: "alice"},
				refused(4, true),
				alive(8),
			}, []uint64{4},
		},
		"one was refused": {
			[]audit.Line{
				{Event: audit.Asked, Call: 4, Upstream: "u", Asked: 4, Key: "alice"},
				refused(4, false),
				alive(8),
			}, nil,
		},
		"the line is of a new call": {
			[]audit.Line{with(line(audit.Reserved, 4), 7), line(audit.Settled, 4)},
			[]uint64{4},
		},
	} {
		dir := t.TempDir()
		open := audit.Line{N: 1, At: start.UnixNano(), Event: audit.Opened, Version: 1, Run: "run", Part: 1}
		text := open.Append(nil)
		for i, l := range append(slices.Clone(calls), c.more...) {
			l.N, l.At = uint64(i+2), start.Add(time.Duration(i)*time.Hour).UnixNano()
			text = l.Append(text)
		}
		if err := os.WriteFile(filepath.Join(dir, "ledger-run.jsonl"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := audit.Spending(t.Context(), []string{dir}, func(time.Time) string { return "2026-11-30" })
		if err != nil {
			t.Fatal(err)
		}
		var got []uint64
		for _, d := range s.Doubtful {
			if got = append(got, d.Call); d.Twice != (d.Call == 4 && slices.Contains(
				[]string{"one may count twice", "one was given here and counts twice", "one was, and still runs"}, name)) {
				t.Errorf("%s: call %d may count twice: %v", name, d.Call, d.Twice)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v are doubtful, want %v", name, got, c.want)
		}
	}
}
