package audit_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/drawgate/drawgate/audit"
)

func drawLine(t *rapid.T) *audit.Line {
	texts := rapid.OneOf(rapid.StringMatching(`[a-z0-9./-]{0,12}`), rapid.String(), rapid.Just("a\"b\\c\n\x00\u2028é"))
	times := rapid.Int64Range(0, 1<<62)
	amounts := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) audit.Amount {
		return audit.Amount{Unit: texts.Draw(t, "unit"), N: rapid.Int64Range(0, 1_000_000_000_000).Draw(t, "n")}
	}), -1, 4)
	l := &audit.Line{
		N: rapid.Uint64Range(1, 1<<62).Draw(t, "n"), At: rapid.Int64Range(1, 1<<62).Draw(t, "at"),
		Event:   audit.Event(rapid.StringMatching(`[a-z]{1,8}`).Draw(t, "event")),
		Version: rapid.IntRange(0, 9).Draw(t, "version"), Run: texts.Draw(t, "run"), Host: texts.Draw(t, "host"),
		Part: rapid.IntRange(0, 9).Draw(t, "part"),
		Call: rapid.Uint64Range(0, 1<<62).Draw(t, "call"), Upstream: texts.Draw(t, "upstream"),
		Granted: times.Draw(t, "granted"),
		Owner:   texts.Draw(t, "owner"), Model: texts.Draw(t, "model"), Policy: texts.Draw(t, "policy"),
		Fallback: rapid.Bool().Draw(t, "fallback"), Limit: texts.Draw(t, "limit"),
		Sent: times.Draw(t, "sent"), Answered: times.Draw(t, "answered"), Ended: times.Draw(t, "ended"),
		Outcome: texts.Draw(t, "outcome"),
		Status:  rapid.IntRange(0, 599).Draw(t, "status"), Meaning: texts.Draw(t, "meaning"),
		Unit: texts.Draw(t, "unit"), Reported: audit.Reported(texts.Draw(t, "reported")),
	}
	if rapid.Bool().Draw(t, "amounts") {
		l.Reserved, l.Used = amounts.Draw(t, "reserved"), amounts.Draw(t, "used")
	}
	return l
}

// TestLinesComeBack: what is written is read again, and is JSON.
func TestLinesComeBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := drawLine(t)
		text := want.Append(nil)
		if !json.Valid(text) {
			t.Fatalf("%s is no JSON", text)
		}
		got, err := audit.ParseLine(text)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%s: got %+v, %v, want %+v", text, got, err, want)
		}
		if _, err := audit.ParseLine(text[:rapid.IntRange(0, len(text)-2).Draw(t, "torn")]); err == nil {
			t.Fatalf("a part of %s is read as a line", text)
		}
	})
}

// TestUnknownKeysAreSkipped: a later program may write more.
func TestUnknownKeysAreSkipped(t *testing.T) {
	t.Parallel()
	l, err := audit.ParseLine([]byte(`{"n":7,"t":5,"e":"alive","new":"x\"","more":{"a":1,"b":2},"third":-3}`))
	if err != nil || l.N != 7 || l.At != 5 || l.Event != audit.Alive {
		t.Errorf("got %+v, %v", l, err)
	}
}

// FuzzParseLine: no text makes it panic, and a line that is read can be written and read again.
func FuzzParseLine(f *testing.F) {
	f.Add([]byte(`{"n":1,"t":1,"e":"open","v":1,"run":"A","host":"h","part":1}`))
	f.Add([]byte(`{"n":2,"t":2,"e":"reserved","call":1,"upstream":"u","granted":1,"reserved":{"requests":1,"tokens":20}}` + "\n"))
	f.Add([]byte(`{"n":3,"t":3,"e":"settled","call":1,"sent":2,"used":{},"reported":"all","x":"\u00e9"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		l, err := audit.ParseLine(text)
		if err != nil {
			return
		}
		again, err := audit.ParseLine(l.Append(nil))
		if err != nil || !reflect.DeepEqual(l, again) {
			t.Fatalf("%s: got %+v, then %+v, %v", text, l, again, err)
		}
	})
}

// FuzzReplay: whatever is in a file, an audit ends, and its sums fit together.
func FuzzReplay(f *testing.F) {
	f.Add([]byte(`{"n":2,"t":2000000000,"e":"reserved","call":1,"upstream":"u","granted":1900000000,"owner":"o","model":"m","reserved":{"requests":1,"tokens":20}}
{"n":3,"t":3000000000,"e":"settled","call":1,"upstream":"u","granted":1900000000,"sent":2000000000,"answered":2500000000,"ended":3000000000,"used":{"requests":1,"tokens":9},"reported":"all"}
{"n":5,"t":1,"e":"settled","call":9,"upstream":"u","outcome":"refused","meaning":"minute"}
{"n":6,"t":4000000000,"e":"reserved","call":2,"upstream":"u","granted":1,"reserved":{"tokens":1000000000000}}
{"n":7,"t":4000`))
	f.Add([]byte(`{"n":2,"t":9223372036854775807,"e":"reserved","call":1,"upstream":"u","granted":9223372036854775807}` + "\n"))
	quotas := []audit.Quota{{Name: "all", Limits: []audit.Limit{
		{Name: "rpm", Amount: 1, Window: audit.Rolling},
		{Name: "rpd", Amount: 1, Window: audit.Day},
		{Name: "bucket", Unit: "tokens", Amount: 7, Burst: 3, Window: audit.Bucket},
		{Name: "tpm", Unit: "tokens", Amount: 10, Window: audit.Month},
	}}}
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), "a"+audit.Suffix)
		header := (&audit.Line{N: 1, At: 1_000_000_000, Event: audit.Opened, Version: 1, Run: "R", Part: 1}).Append(nil)
		if err := os.WriteFile(path, append(header, text...), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := audit.Replay(t.Context(), []string{path}, quotas, nil)
		if err != nil {
			t.Fatal(err)
		}
		if r.Calls != r.Settled+r.Refunded+r.Unended {
			t.Errorf("%d calls, but %d settled, %d refunded, %d without an end", r.Calls, r.Settled, r.Refunded,
				r.Unended)
		}
	})
}
