package redisstore

import (
	"encoding/binary"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/calendar"
	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
)

// What Go and the script both know of the formats. The tests below hold both to it.
var (
	// Per kind, the formats of what is asked of a limit and of a limit in a header, after what all
	// kinds have.
	layouts = []struct {
		kind        record.Kind
		limit       drawgate.Limit
		ask, header string
	}{
		{record.Bucket, drawgate.BucketLimit("l", 5, time.Second, 0), "ask-bucket", "bucket"},
		{record.Rolling, drawgate.RollingLimit("l", 5, time.Second), "ask-rolling", "rolling"},
		{record.Calendar, drawgate.CalendarLimit("l", 5, drawgate.Day, ""), "ask-calendar", "calendar"},
		{record.Concurrency, drawgate.ConcurrencyLimit("l", 5), "ask-slots", ""},
	}
	operations = []string{
		opGCRA, opHot, opTake, opSettle, opCancel, opRenew, opCharge, opRecover, opPause, opUnpause,
		opRefund, opReset, opPeek, opBatch, opWait, opLeave,
	}
	// Per code of an answer, where the script gives it.
	answers = map[int]string{
		gotShort: "return { 0, now, head or '' }", gotAllowed: "return 1, at", gotRefused: "return 2",
		gotReplayed: "return 3, from", gotReused: "return 4",
		gotDone: "return found and 5 or 6", gotGone: "return found and 5 or 6", gotPeek: "res[1] = 7",
		gotFull: "return 8", gotWindows: "return { 9, now, asked }",
		gotOther: "return 10", gotLate: "return 11", gotKept: "return 12",
		gotMore: "return 13", gotBatch: "others = {}, { 14, raw, '' }", gotPartly: "return { 15, raw",
		gotTold: "return { 16, answer[2], answer, list }", gotUnmet: "withHistories({ 17, now, 0 }",
	}
)

// size returns how many bytes the named formats take, without texts of their own length.
func size(names ...string) (n int) {
	for _, name := range names {
		for _, field := range regexp.MustCompile(`([a-zA-Z])(\d*)`).FindAllStringSubmatch(formats[name], -1) {
			switch field[1] {
			case "d":
				n += 8
			case "I":
				n += 4
			case "H":
				n += 2
			case "B", "x":
				n++
			case "c":
				of, _ := strconv.Atoi(field[2])
				n += of
			}
		}
	}
	return n
}

func TestScriptKnowsTheBounds(t *testing.T) {
	t.Parallel()
	if want := fmt.Sprintf("local LONGEST = %d * 24 * 3600 * 1e6",
		calendar.Longest/(24*3600*1e6)); !strings.Contains(body(), want) {
		t.Errorf("the script has no %q", want)
	}
	if want := fmt.Sprintf("version ~= %d then", format); !strings.Contains(body(), want) {
		t.Errorf("the script has no %q", want)
	}
	if want := fmt.Sprintf("flags > %d then", knownFlags); !strings.Contains(body(), want) {
		t.Errorf("the script has no %q", want)
	}
	if want := fmt.Sprintf("kind >= %d then", 2*kindAhead); !strings.Contains(body(), want) {
		t.Errorf("the script has no %q", want)
	}
}

func TestStoreKnowsTheLayouts(t *testing.T) {
	t.Parallel()
	for _, l := range layouts {
		plan, err := drawgate.Policy{Name: "p", Limits: []drawgate.Limit{l.limit}}.Compile()
		if err != nil {
			t.Fatal(err)
		}
		bucket := store.BucketCost{Plan: plan.Plan, N: store.Amounts{1}}
		request := appendRequest(nil, &bucket, 0, "", time.Now().UnixMicro(), nil)
		want := 1 + size("limit", "flags", l.ask)
		if l.kind == record.Calendar {
			want += size("count") + size("window")*int(binary.LittleEndian.Uint16(request[want:]))
		}
		if len(request) != want {
			t.Errorf("%v: a request has %d bytes, want %d", l.kind, len(request), want)
		}

		header := appendNums([]byte{format, 0}, 1, 1)
		header = append(binary.BigEndian.AppendUint64(header, 7), byte(l.kind))
		for range size(l.header) / size("number") {
			header = appendNum(header, 1)
		}
		if len(header) != size("head", "limit", l.header) {
			t.Errorf("%v: a header has %d bytes", l.kind, len(header))
		}
		if st, err := readHeader(string(header), 1); err != nil || len(st.rec.Limits) != 1 ||
			st.rec.Limits[0].Kind != l.kind {
			t.Errorf("%v: a header of %s: %v", l.kind, l.header, err)
		}
		for what, bad := range map[string][]byte{
			"more": append(slices.Clip(header), 0),
			"less": header[:len(header)-1],
		} {
			if _, err := readHeader(string(bad), 1); err == nil {
				t.Errorf("%v: a header with one byte %s was read", l.kind, what)
			}
		}
	}
}

// TestStoreKnowsTheArguments: what the store writes and reads otherwise is as long as the script's
// formats say.
func TestStoreKnowsTheArguments(t *testing.T) {
	t.Parallel()
	plan, err := drawgate.Policy{Name: "p", Limits: []drawgate.Limit{layouts[1].limit}}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	buckets := []store.BucketCost{{Plan: plan.Plan, N: store.Amounts{1}}}
	extra := func(st store.Settlement) string {
		st.Buckets = buckets
		r := settleRequest(&st)
		if r.err != nil {
			t.Fatal(st.Op, r.err)
		}
		return r.extra
	}
	for what, got := range map[string]int{
		"take":    len(takeExtra(&store.Take{ID: "id", Hold: time.Second, Buckets: buckets}, 0, 1, 0)),
		"renew":   len(extra(store.Settlement{Op: store.OpRenew, ID: "id", Hold: time.Second})),
		"charge":  len(extra(store.Settlement{Op: store.OpCharge, At: time.Now()})),
		"pause":   len(extra(store.Settlement{Op: store.OpPause, Hold: time.Second})),
		"unpause": len(extra(store.Settlement{Op: store.OpUnpause})),
		"refund":  len(extra(store.Settlement{Op: store.OpRefund})),
	} {
		if got != size(what) {
			t.Errorf("%s: the arguments have %d bytes, want %d", what, got, size(what))
		}
	}
	header := appendNums([]byte{format, flagOpen | flagPaused}, 1, 1, 3, 1, 2, 5)
	header = append(header, 2, 0, 'n', 'o')
	header = append(binary.BigEndian.AppendUint64(header, 7), byte(record.Concurrency|kindHolds|kindAhead))
	header = appendNums(header, 1, 2, 3, 4)
	if want := size("head", "open", "paused", "limit", "held", "ahead") + len("no"); len(header) != want {
		t.Errorf("a header has %d bytes, want %d", len(header), want)
	}
	if st, err := readHeader(string(header), 1); err != nil || st.open != 3 || st.ends != 2 ||
		st.rec.Pause.Reason != "no" || st.rec.Limits[0].Held != 1 || st.rec.Limits[0].Ahead != 4 {
		t.Errorf("read as %+v, %v", st, err)
	}
}

func TestScriptKnowsTheOperations(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, op := range operations {
		known[op] = true
		if !strings.Contains(body(), "op == '"+op+"'") && !strings.Contains(body(), "op ~= '"+op+"'") {
			t.Errorf("the script does not know the operation %q", op)
		}
	}
	for _, m := range regexp.MustCompile(`op [=~]= '(.)'`).FindAllStringSubmatch(body(), -1) {
		if !known[m[1]] {
			t.Errorf("the store does not know the operation %q", m[1])
		}
	}
}

func TestScriptGivesTheAnswers(t *testing.T) {
	t.Parallel()
	for code, where := range answers {
		if !strings.Contains(body(), where) {
			t.Errorf("answer %d: the script has no %q", code, where)
		}
	}
	for _, m := range regexp.MustCompile(`return (?:\{ )?(\d+)\b`).FindAllStringSubmatch(body(), -1) {
		var code int
		if _, err := fmt.Sscan(m[1], &code); err != nil {
			t.Fatal(err)
		}
		if _, known := answers[code]; !known {
			t.Errorf("the store does not know the answer %d", code)
		}
	}
}
