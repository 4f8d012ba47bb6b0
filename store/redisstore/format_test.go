package redisstore

import (
	"encoding/binary"
	"fmt"
	"regexp"
	"slices"
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
	// Per kind, the numbers of a request and of a limit in a header, after what all kinds have:
	// identity, kind and, in a request, flags.
	layouts = []struct {
		kind            record.Kind
		limit           drawgate.Limit
		request, header int
	}{
		{record.Bucket, drawgate.BucketLimit("l", 5, time.Second, 0), 6, 4},
		{record.Rolling, drawgate.RollingLimit("l", 5, time.Second), 5, 8},
		{record.Calendar, drawgate.CalendarLimit("l", 5, drawgate.Day, ""), 3, 5},
		{record.Concurrency, drawgate.ConcurrencyLimit("l", 5), 2, 0},
	}
	operations = []string{
		opGCRA, opHot, opTake, opSettle, opCancel, opRenew, opCharge, opPause, opUnpause, opRefund,
		opPeek,
	}
	// Per code of an answer, where the script gives it.
	answers = map[int]string{
		gotShort: "return { 0, now, head or '' }", gotAllowed: "return 1, at", gotRefused: "return 2",
		gotReplayed: "return 3, from", gotReused: "return 4",
		gotDone: "return found and 5 or 6", gotGone: "return found and 5 or 6", gotPeek: "res[1] = 7",
		gotFull: "return 8", gotWindows: "return { 9, now, asked }",
		gotOther: "return 10", gotLate: "return 11", gotKept: "return 12",
		gotMore: "return 13",
	}
)

func doubles(n int) string { return strings.Repeat("d", n) }

func TestScriptKnowsTheLayouts(t *testing.T) {
	t.Parallel()
	for _, l := range layouts {
		// How it writes a header, and reads one: at once or after identity and kind.
		want := []string{fmt.Sprintf("pack('<c8B%s', st.id, kind", doubles(l.header))}
		if l.header > 0 {
			want = append(want, fmt.Sprintf("unpack_('<%s', h, p)", doubles(l.header)))
		}
		numbers := doubles(l.request)
		if l.kind == record.Calendar {
			numbers += "H" // of the windows that follow
		}
		want = append(want, fmt.Sprintf("unpack_('<%s', b, p)", numbers))
		for _, w := range want {
			if !strings.Contains(body, w) {
				t.Errorf("%v: the script has no %s", l.kind, w)
			}
		}
	}
	if want := fmt.Sprintf("local LONGEST = %d * 24 * 3600 * 1e6",
		calendar.Longest/(24*3600*1e6)); !strings.Contains(body, want) {
		t.Errorf("the script has no %q", want)
	}
	if want := fmt.Sprintf("version ~= %d then", format); !strings.Contains(body, want) {
		t.Errorf("the script has no %q", want)
	}
	if want := fmt.Sprintf("flags > %d then", knownFlags); !strings.Contains(body, want) {
		t.Errorf("the script has no %q", want)
	}
	if want := fmt.Sprintf("kind >= %d then", 2*kindAhead); !strings.Contains(body, want) {
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
		size := 1 + 8 + 1 + 1 + 8*l.request
		if l.kind == record.Calendar {
			size += 2 + 16*int(binary.LittleEndian.Uint16(request[size:]))
		}
		if len(request) != size {
			t.Errorf("%v: a request has %d bytes, want %d", l.kind, len(request), size)
		}

		header := appendNums([]byte{format, 0}, 1, 1)
		header = append(binary.BigEndian.AppendUint64(header, 7), byte(l.kind))
		for range l.header {
			header = appendNum(header, 1)
		}
		if st, err := readHeader(string(header)); err != nil || len(st.rec.Limits) != 1 ||
			st.rec.Limits[0].Kind != l.kind {
			t.Errorf("%v: a header of %d numbers: %v", l.kind, l.header, err)
		}
		for what, bad := range map[string][]byte{
			"more": append(slices.Clip(header), 0),
			"less": header[:len(header)-1],
		} {
			if _, err := readHeader(string(bad)); err == nil {
				t.Errorf("%v: a header with one byte %s was read", l.kind, what)
			}
		}
	}
}

func TestScriptKnowsTheOperations(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, op := range operations {
		known[op] = true
		if !strings.Contains(body, "op == '"+op+"'") && !strings.Contains(body, "op ~= '"+op+"'") {
			t.Errorf("the script does not know the operation %q", op)
		}
	}
	for _, m := range regexp.MustCompile(`op [=~]= '(.)'`).FindAllStringSubmatch(body, -1) {
		if !known[m[1]] {
			t.Errorf("the store does not know the operation %q", m[1])
		}
	}
}

func TestScriptGivesTheAnswers(t *testing.T) {
	t.Parallel()
	for code, where := range answers {
		if !strings.Contains(body, where) {
			t.Errorf("answer %d: the script has no %q", code, where)
		}
	}
	for _, m := range regexp.MustCompile(`return (?:\{ )?(\d+)\b`).FindAllStringSubmatch(body, -1) {
		var code int
		if _, err := fmt.Sscan(m[1], &code); err != nil {
			t.Fatal(err)
		}
		if _, known := answers[code]; !known {
			t.Errorf("the store does not know the answer %d", code)
		}
	}
}
