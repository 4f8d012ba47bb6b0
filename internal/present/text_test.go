package present_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/httplimit"
	"github.com/drawgate/drawgate/internal/present"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/memstore"
)

func TestSentenceSaysWhatBecameOfATake(t *testing.T) {
	t.Parallel()
	limits := []api.Limit{
		{Policy: "gpt", Name: "rpm", Unit: "requests", Most: 10, Remaining: 9},
		{Policy: "gpt", Name: "tpm", Unit: "tokens", Most: 100, Remaining: 50},
	}
	for _, c := range []struct {
		answer api.Answer
		want   string
	}{
		{api.Answer{Allowed: true, Limits: limits}, `allowed: 50 of 100 tokens left of limit "tpm" of policy "gpt"`},
		{api.Answer{Allowed: true}, "allowed: no limit in force counts this take"},
		{
			api.Answer{Allowed: true, Applied: []api.Applied{{Policy: "gpt", Disabled: true}}},
			`allowed: policy "gpt" is switched off: it limits nothing`,
		},
		{api.Answer{NeverFits: true, Message: "this take can never fit"}, "refused: this take can never fit"},
		{
			api.Answer{Allowed: true, Shadow: []api.Shadow{{
				Policy: "new", RetryAfterMS: 1500,
				RefusedBy: &api.LimitName{Limit: "rpm"},
			}}},
			`allowed: policy "new" is in shadow: limit "rpm" would have refused this take for 1.5s`,
		},
	} {
		if got := present.Sentence(&c.answer); got != c.want {
			t.Errorf("%+v:\ngot  %s\nwant %s", c.answer, got, c.want)
		}
	}
}

// downStore is a store that is unavailable.
type downStore struct{ drawgate.Store }

func (downStore) Take(context.Context, []store.Take, []store.Verdict) error {
	return &drawgate.StoreError{Store: "down", Op: "take"}
}

// A process that was not counted before the outage has no share: nothing is left of it.
func TestRefusalWithoutAShare(t *testing.T) {
	t.Parallel()
	g := guard.New(downStore{memstore.New(nil)}, &guard.Options{CountInstances: true})
	defer g.Close()
	lim, err := drawgate.New(g, drawgate.Policy{
		Name: "api", Fallback: drawgate.FallbackShare,
		Limits: []drawgate.Limit{drawgate.RollingLimit("rps", 300, time.Second)},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	d, err := lim.Allow(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	const want = `the store is unavailable, and limit "rps" of policy "api" admits nothing in this process until it is back; try again in 1s`
	if a := present.Answer(&d); a.Reason != api.ReasonUnavailable || a.Remaining != 0 || a.Message != want {
		t.Errorf("%s, %d left: %q, want %q", a.Reason, a.Remaining, a.Message, want)
	}
}

// A refusal without the store names the limit, and how much it would have admitted.
func TestRefusalWithoutTheStore(t *testing.T) {
	t.Parallel()
	g := guard.New(downStore{memstore.New(nil)}, &guard.Options{Instances: 4, Start: drawgate.StartCold})
	defer g.Close()
	rpm, tpm := drawgate.RollingLimit("rpm", 100, time.Minute),
		drawgate.RollingLimit("tpm", 160, time.Minute).Of("tokens")
	for mode, want := range map[drawgate.Fallback]string{
		drawgate.FallbackShare:  `the store is unavailable, and limit "tpm" of policy "share" admits only 10 tokens without it; try again in 1s`,
		drawgate.FallbackClosed: `the store is unavailable, and limit "rpm" of policy "closed" admits nothing in this process until it is back; try again in 1s`,
	} {
		lim, err := drawgate.New(g, drawgate.Policy{
			Name: mode.String(), Fallback: mode,
			Limits: []drawgate.Limit{rpm, tpm},
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		d, err := lim.Allow(t.Context(), "k", drawgate.Tokens(60))
		if err != nil {
			t.Fatal(err)
		}
		if a := present.Answer(&d); a.Reason != api.ReasonUnavailable || a.Message != want {
			t.Errorf("%s: %q, want %q", a.Reason, a.Message, want)
		}
	}
}

func TestUntilNamesTheInstantAndTheWait(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	for at, want := range map[time.Time]string{
		now:                       "now",
		now.Add(-time.Hour):       "now",
		now.Add(90 * time.Second): "in 1m30s (2026-07-01 12:01:30Z)",
	} {
		if got := present.Until(at, now); got != want {
			t.Errorf("%v: got %q, want %q", at, got, want)
		}
	}
}

func TestNamesCannotControlATerminal(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	present.WriteStatus(&b, &api.StatusAnswer{
		Policy: "p", Key: "a\x1b[2J\n",
		Limits: []api.LimitStatus{{Limit: api.Limit{Name: "n\x07", Unit: "\xff"}}},
	}, "")
	for _, bad := range []string{"\x1b", "\x07", "\xff"} {
		if strings.Contains(b.String(), bad) {
			t.Errorf("the table contains %q: %q", bad, b.String())
		}
	}
	if want := `key a\x1b[2J\n,`; !strings.Contains(b.String(), want) {
		t.Errorf("got %q, want it to contain %q", b.String(), want)
	}
}

// A table says who waits in all processes.
func TestTableHasTheLine(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	present.WriteStatus(&b, &api.StatusAnswer{Policy: "p", Key: "k", Line: []api.LineEntry{
		{WaitedMS: 2000, Priority: 7, Units: map[string]int64{"rpm": 1, "tpm": 300}}, {WaitedMS: 61_000},
	}}, "")
	want := "2 takes in the line of all processes, the longest for 1m1s; the first one waits for 1 of rpm, 300 of tpm, at priority 7\n"
	if !strings.Contains(b.String(), want) {
		t.Errorf("got %q, want it to contain %q", b.String(), want)
	}
}

// TestTheTightestLimitIsTheLibrarys: an answer, its sentence and the headers name the same limit.
func TestTheTightestLimitIsTheLibrarys(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		var limits []drawgate.Limit
		for i := range rapid.IntRange(1, 4).Draw(rt, "limits") {
			l := drawgate.Limit{
				Name: fmt.Sprint("l", i), Kind: drawgate.Rolling, Window: time.Hour,
				Amount: rapid.Int64Range(10, 30).Draw(rt, "amount"),
			}
			l.Headroom.Units = rapid.Int64Range(0, 8).Draw(rt, "headroom")
			limits = append(limits, l)
		}
		store := memstore.New(nil)
		defer store.Close()
		l, err := drawgate.New(store, drawgate.Policy{Name: "p", Limits: limits}, nil)
		if err != nil {
			rt.Fatal(err)
		}
		defer l.Close()
		d, err := l.Allow(t.Context(), "k", drawgate.Requests(rapid.Int64Range(1, 2).Draw(rt, "n")))
		want, ok := d.Tightest()
		if err != nil || !ok {
			rt.Fatal(err)
		}
		a := present.Answer(&d)
		if text := present.Sentence(&a); a.Remaining != want.Remaining ||
			!strings.Contains(text, fmt.Sprintf("limit %q ", want.Limit.Name)) {
			rt.Errorf("%d left, %q, want %d left of %q", a.Remaining, text, want.Remaining, want.Limit.Name)
		}
		h := http.Header{}
		httplimit.NewHeaders(nil).Append(h, &d)
		if got := h.Get(httplimit.HeaderRemaining); got != fmt.Sprint(want.Remaining) {
			rt.Errorf("the header says %s left, want %d", got, want.Remaining)
		}
	})
}
