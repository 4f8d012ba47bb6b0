package top

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/drawgate/drawgate/api"
)

var at = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// full has something of everything.
func full() *Snapshot {
	return &Snapshot{
		At: at,
		Health: &api.Health{
			Status: api.StatusDegraded, Store: &api.StoreHealth{Status: api.StatusOK, LatencyMS: 3}, Waiting: 3,
			UptimeMS: 65_000,
			States: []api.PolicyHealth{
				{Name: "llm", Status: api.StatusOK},
				{Name: "api", Status: api.StatusDegraded, Fallback: "share", NotApplied: []string{"day", "week"}},
			},
		},
		Usage: &api.UsageAnswer{At: at, More: true, Buckets: []api.BucketUsage{
			{Policy: "llm", Key: "team-a", Open: 2, Limits: []api.LimitUse{
				{Name: "rpm", Unit: "requests", Used: 1, Max: 10},
				{Name: "tpm", Unit: "tokens", Used: 950, Max: 1000, Held: 40},
			}},
			{
				Policy: "api", Tenant: "acme", Key: "user-17", PausedUntil: new(at.Add(time.Minute)),
				Limits: []api.LimitUse{{Name: "rate", Unit: "requests", Used: 3, Max: 4}},
			},
			{
				Policy: "api", Key: "a\x1b[31mred\nline", Open: 3, Fallback: true,
				Limits: []api.LimitUse{{Name: "rate", Unit: "requests", Used: 0, Max: 4, Debt: 2}},
			},
		}},
		Waiting: &api.WaitingAnswer{Lines: []api.WaitingLine{
			{
				Policy: "llm", Key: "team-a", Waiting: 2, LongestMS: 12_000, NextMS: 350, Reason: api.ReasonLimited,
				Limit: "rpm", Tickets: 5, Others: 3, OldestMS: 20_000,
			},
			{Policy: "api", Tenant: "acme", Key: "user-17", Waiting: 1, Reason: api.ReasonPaused},
		}},
		Refusals: &api.RefusalsAnswer{Total: 3, Refusals: []api.Refusal{
			{
				Policy: "llm", Key: "team-a", Reason: api.ReasonLimited, Limit: "tpm", Unit: "tokens", Count: 1234,
				Last: at, Asked: 60, Remaining: 50, Max: 1000,
			},
			{Policy: "api", Tenant: "acme", Key: "user-17", Reason: api.ReasonPaused, Count: 1, Last: at},
			{Policy: "api", Key: "team-a", Reason: api.ReasonUnavailable, Count: 2, Last: at},
		}},
		Upstreams: []api.Upstream{
			{
				Name: "openai", Provider: "openai", Owner: "project",
				Calls: &api.Calls{Circuit: api.CircuitOpen, RetryAfterMS: 5000, UnderWay: 1, Waiting: 2},
			},
			{Name: "gemini", Provider: "gemini", Owner: "project", Quotas: []api.Quota{{Error: &api.Problem{}}}},
		},
		Incidents: []api.Incident{{Severity: api.SeverityError, Last: at, Summary: "openai refused 3 calls\x07"}},
		LeftOut:   []string{"buckets: the access token does not allow it"},
	}
}

func view() View {
	return View{Source: "http://127.0.0.1:7879", Interval: 2 * time.Second, Width: 200, Height: 40}
}

// lines returns a frame without its styles.
func lines(v View, s *Snapshot, lost Lost) []string {
	return strings.Split(ansi.Strip(v.Frame(s, lost)), "\n")
}

// An adjustment may say that much more is used than the limit allows.
func TestBar(t *testing.T) {
	t.Parallel()
	for part, want := range map[float64]string{
		0.5: "█████░░░░░  50%", 9.99: "██████████ 999%",
		9.996: "██████████>999%", 20: "██████████>999%",
	} {
		if got := ansi.Strip(bar(part)); got != want {
			t.Errorf("%v: %q, want %q", part, got, want)
		}
	}
}

func TestFrame(t *testing.T) {
	t.Parallel()
	v := view()
	v.Height = 0
	want := `drawgate top  http://127.0.0.1:7879  2026-01-02 03:04:05Z
store ok, 3 ms   policies: 1 ok, api degraded (fallback: share; not applied: day, week)   status degraded   3 waiting   up 1m5s

USE              POLICY  LIMIT  USED                  HELD  OPEN  KEY
█████████░  95%  llm     tpm    950/1000 tokens       40    2     team-a
███████░░░  75%  api     rate   3/4 requests          0     0     user-17 of acme  paused, ends in 1m (2026-01-02 03:05:05Z)
░░░░░░░░░░   0%  api     rate   0/4 requests, 2 debt  0     3     a\x1b[31mred\nline  by fallback
there are more buckets

WAITING
2 for key team-a, the longest for 12s, next try in 350ms: limit "rpm" of policy "llm" is used up; 3 in front in other processes, 5 tickets in all, the longest for 20s
1 for key user-17, tenant acme, the longest for 0ms, next try in 0ms: policy "api" is paused for this key

REFUSED
2026-01-02 03:04:05Z  1234 for key team-a: limit "tpm" of policy "llm" (asked for 60 tokens, 50 of 1000 left)
2026-01-02 03:04:05Z  1 for key user-17, tenant acme: policy "api" is paused for this key
2026-01-02 03:04:05Z  2 for key team-a: the store was unavailable, and the fallback of policy "api" did not admit it

UPSTREAMS
openai (openai), owner project: circuit open, a call may try in 5s, 1 call under way, 2 waiting
gemini (gemini), owner project; 1 quota cannot be read

INCIDENTS
2026-01-02 03:04:05Z  error  openai refused 3 calls\a
left out: buckets: the access token does not allow it
s: sorted by use  /: filter  space: pause  q: quit  every 2s`
	if got := strings.Join(lines(v, full(), Lost{}), "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// Nothing that a key or a name contains reaches the terminal but what can be seen, and the styles
// are our own.
func TestFrameShowsNoControlCharacters(t *testing.T) {
	t.Parallel()
	v := view()
	v.Filter, v.Source = "", "http://h\x1b]0;title\x07"
	s := full()
	evil := "\x1b[2J\x9b31m\r\n\x00\u202e"
	s.Usage.Buckets[0].Policy, s.Usage.Buckets[0].Tenant, s.Usage.Buckets[0].Limits[1].Name,
		s.Usage.Buckets[0].Limits[1].Unit = evil, evil, evil, evil
	s.Waiting.Lines[0].Key, s.Waiting.Lines[0].Limit = evil, evil
	s.Refusals.Refusals[0].Key, s.Refusals.Refusals[0].Limit, s.Refusals.Refusals[0].Unit = evil, evil, evil
	s.Upstreams[0].Name, s.Upstreams[0].Calls.Circuit = evil, evil
	s.Incidents[0].Severity, s.Health.States[1].Name, s.Health.Status, s.LeftOut[0] = evil, evil, api.Status(evil), evil
	for _, editing := range []bool{false, true} {
		v.Editing = editing
		text := ansi.Strip(v.Frame(s, Lost{at, errors.New(evil)}))
		for _, r := range strings.ReplaceAll(text, "\n", "") {
			if r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u202e' {
				t.Errorf("%q is in %q", r, text)
			}
		}
	}
}

// However small the terminal is, the frame fits, and the keys are its last line.
func TestFrameFits(t *testing.T) {
	t.Parallel()
	s := full()
	for i := range 200 {
		s.Usage.Buckets = append(s.Usage.Buckets, api.BucketUsage{
			Policy: "p", Key: fmt.Sprint("界", i),
			Limits: []api.LimitUse{{Name: "l", Max: 1}},
		})
		s.Waiting.Lines = append(s.Waiting.Lines, api.WaitingLine{Policy: "p", Key: fmt.Sprint(i), Waiting: 1})
	}
	for _, size := range [][2]int{{80, 24}, {40, 50}, {200, 10}, {20, 3}, {1, 1}, {120, 300}} {
		v := view()
		v.Width, v.Height = size[0], size[1]
		got := lines(v, s, Lost{at, errors.New("connection refused")})
		if len(got) != size[1] {
			t.Errorf("%v: %d lines", size, len(got))
		}
		for _, l := range got {
			if ansi.StringWidth(l) > size[0] {
				t.Errorf("%v: %q is too wide", size, l)
			}
		}
		if last := got[len(got)-1]; size[1] > 2 && !strings.HasPrefix(last, "s: sorted by use") {
			t.Errorf("%v: the last line is %q", size, last)
		}
	}
}

// keys presses keys, and carries out what they cause.
func (m *model) keys(keys ...string) {
	for _, k := range keys {
		msg := tea.KeyPressMsg{Text: k}
		switch k {
		case "enter":
			msg = tea.KeyPressMsg{Code: tea.KeyEnter}
		case "esc":
			msg = tea.KeyPressMsg{Code: tea.KeyEscape}
		case "backspace":
			msg = tea.KeyPressMsg{Code: tea.KeyBackspace}
		case "space":
			msg = tea.KeyPressMsg{Code: tea.KeySpace, Text: " "}
		}
		m.run(m.Update(msg))
	}
}

// run carries out a command that reads. Its answer leads to one that waits, which is not awaited.
func (m *model) run(_ tea.Model, cmd tea.Cmd) {
	if cmd == nil {
		return
	}
	if msg, ok := cmd().(readMsg); ok {
		m.Update(msg)
	}
}

// looking is a model that has read for the first time.
func looking(read Reader) *model {
	m := &model{ctx: context.Background(), view: view(), read: read}
	m.run(m, m.Init())
	return m
}

func (m *model) shows(t *testing.T, want ...string) {
	t.Helper()
	text := ansi.Strip(m.View().Content)
	for _, w := range want {
		if gone, ok := strings.CutPrefix(w, "-"); ok == strings.Contains(text, gone) {
			t.Errorf("want %q in\n%s", w, text)
		}
	}
}

func TestKeysSort(t *testing.T) {
	t.Parallel()
	m := looking(func(context.Context, string) *Snapshot { return full() })
	for _, want := range []string{
		"team-a user-17 red", "red user-17 team-a", "red team-a user-17",
		"team-a user-17 red",
	} {
		text, order := m.View().Content, ""
		text, _, _ = strings.Cut(text, "WAITING")
		for range 3 {
			at, next := len(text), ""
			for _, key := range []string{"team-a", "user-17", "red"} {
				if i := strings.Index(text, key); i >= 0 && i < at && !strings.Contains(order, key) {
					at, next = i, key
				}
			}
			order = strings.TrimSpace(order + " " + next)
		}
		if order != want {
			t.Errorf("%s: got %s, want %s", m.view.Order, order, want)
		}
		m.keys("s")
	}
}

// A filter selects what is shown at once, and what is read when it is complete.
func TestKeysFilter(t *testing.T) {
	t.Parallel()
	var asked []string
	m := looking(func(_ context.Context, filter string) *Snapshot {
		asked = append(asked, filter)
		return full()
	})
	m.keys("/", "A", "c", "q", "backspace", "m", "s")
	m.shows(t, "filter: Acms", `no bucket is in use with "Acms" in its policy, tenant or key`, "-WAITING")
	m.keys("backspace")
	m.shows(t, "user-17 of acme", "1 for key user-17", "-team-a")
	m.keys("enter")
	m.shows(t, `/: filter "Acm"`)
	m.keys("/", "enter", "esc", "/", "x", "esc", "esc")
	m.shows(t, "team-a", "-filter:")
	if got := strings.Join(asked, ","); got != ",Acm," {
		t.Errorf("it asked for %q", got)
	}
}

// A paused display stays as it is, and reads nothing. What was on its way is dropped.
func TestKeysPause(t *testing.T) {
	t.Parallel()
	n := 0
	m := looking(func(context.Context, string) *Snapshot {
		n++
		s := full()
		s.Usage.Buckets[0].Key = fmt.Sprint("reading-", n)
		return s
	})
	underWay := readMsg{m.round, m.read(m.ctx, "")}
	m.keys("space")
	m.Update(underWay)
	m.shows(t, "paused", "reading-1")
	m.run(m.Update(nextMsg{m.round}))
	m.keys("/", "r", "enter")
	if n != 2 {
		t.Errorf("it read %d times", n)
	}
	m.keys("space")
	m.shows(t, "-paused  ", "reading-3")
	if _, cmd := m.Update(nextMsg{m.round - 1}); cmd != nil {
		t.Error("an outdated round goes on")
	}
	m.run(m.Update(nextMsg{m.round}))
	m.shows(t, "reading-4")
}

// While there is no answer, what was known stays, and it says since when.
func TestNoAnswer(t *testing.T) {
	t.Parallel()
	when := at
	err := errors.New("connection refused")
	m := looking(func(context.Context, string) *Snapshot {
		when = when.Add(time.Second)
		if err != nil {
			return &Snapshot{At: when, Err: err}
		}
		return full()
	})
	m.shows(t, "no answer since 2026-01-02 03:04:06Z: connection refused", "reading …")
	m.run(m.Update(nextMsg{m.round}))
	m.shows(t, "no answer since 2026-01-02 03:04:06Z")
	err = nil
	m.run(m.Update(nextMsg{m.round}))
	m.shows(t, "-no answer", "team-a")
	err = errors.New("EOF")
	m.run(m.Update(nextMsg{m.round}))
	m.shows(t, "no answer since 2026-01-02 03:04:09Z: EOF", "team-a")
}

func TestQuit(t *testing.T) {
	t.Parallel()
	for _, key := range []tea.KeyPressMsg{{Text: "q"}, {Code: 'c', Mod: tea.ModCtrl}} {
		m := looking(func(context.Context, string) *Snapshot { return full() })
		_, cmd := m.Update(key)
		if cmd == nil {
			t.Fatalf("%v does nothing", key)
		}
		if _, ok := cmd().(tea.QuitMsg); !ok {
			t.Errorf("%v does not quit", key)
		}
	}
}
