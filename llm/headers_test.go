package llm_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/drawgate/drawgate/llm"
)

// TestObserved: limits are read from the headers of each provider, and nothing that is malformed is
// believed.
func TestObserved(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 15, 20, 0, 0, 0, time.UTC)
	in := now.Add
	for _, c := range []struct {
		name, profile string
		header        http.Header
		want          []llm.Observed
	}{
		{
			"OpenAI", "openai",
			headers("x-ratelimit-limit-requests", "60", "x-ratelimit-limit-tokens", "150000",
				"x-ratelimit-remaining-requests", "59", "x-ratelimit-remaining-tokens", "149984",
				"x-ratelimit-reset-requests", "1s", "x-ratelimit-reset-tokens", "6m0s"),
			[]llm.Observed{
				{Unit: "requests", Limit: 60, Remaining: 59, Step: 1, ResetAt: in(time.Second)},
				{Unit: "tokens", Limit: 150_000, Remaining: 149_984, Step: 1, ResetAt: in(6 * time.Minute)},
			},
		},
		{
			"a project's", "openai",
			headers("x-ratelimit-limit-project-tokens", "30,000", "x-ratelimit-remaining-project-tokens", "12",
				"x-ratelimit-reset-project-tokens", "120ms"),
			[]llm.Observed{{
				Unit: "tokens", Scope: "project", Limit: 30_000, Remaining: 12, Step: 1,
				ResetAt: in(120 * time.Millisecond),
			}},
		},
		{
			"resets of every form that was seen", "openai",
			headers("x-ratelimit-limit-requests", "500", "x-ratelimit-remaining-requests", "499",
				"x-ratelimit-reset-requests", "12ms", "x-ratelimit-limit-tokens", "30000",
				"x-ratelimit-remaining-tokens", "0", "x-ratelimit-reset-tokens", "1m30s"),
			[]llm.Observed{
				{Unit: "requests", Limit: 500, Remaining: 499, Step: 1, ResetAt: in(12 * time.Millisecond)},
				{Unit: "tokens", Limit: 30_000, Remaining: 0, Step: 1, ResetAt: in(90 * time.Second)},
			},
		},
		{"Azure does not know", "openai", headers("x-ratelimit-limit-requests", "-1", "x-ratelimit-remaining-requests",
			"-1", "x-ratelimit-limit-tokens", "0", "x-ratelimit-remaining-tokens", "0"), nil},
		{"only what remains", "openai", headers("x-ratelimit-remaining-tokens", "12"), nil},
		{"a limit alone", "openai", headers("x-ratelimit-limit-tokens", "12", "x-ratelimit-remaining-tokens", "-1",
			"x-ratelimit-reset-tokens", "soon"), []llm.Observed{{Unit: "tokens", Limit: 12, Remaining: -1, Step: 1}}},
		{
			"malformed", "openai", headers("x-ratelimit-limit-requests", "6e1", "x-ratelimit-limit-tokens", "1,50,000"),
			nil,
		},
		{"more than anybody has", "openai", headers("x-ratelimit-limit-tokens", "99999999999999999999"), nil},
		{"more is left than there is", "openai", headers("x-ratelimit-limit-tokens", "10",
			"x-ratelimit-remaining-tokens", "11"), []llm.Observed{{Unit: "tokens", Limit: 10, Remaining: -1, Step: 1}}},
		{
			"twice, differently", "openai", headers("x-ratelimit-limit-tokens", "10", "x-ratelimit-limit-tokens", "20"),
			nil,
		},
		{
			"twice, the same", "openai", headers("x-ratelimit-limit-tokens", "10", "x-ratelimit-limit-tokens", "10"),
			[]llm.Observed{{Unit: "tokens", Limit: 10, Remaining: -1, Step: 1}},
		},
		{
			"a reset in the past of a negative time", "openai",
			headers("x-ratelimit-limit-tokens", "10", "x-ratelimit-reset-tokens", "-5s"),
			[]llm.Observed{{Unit: "tokens", Limit: 10, Remaining: -1, Step: 1}},
		},
		{
			"a reset in years", "openai", headers("x-ratelimit-limit-tokens", "10", "x-ratelimit-reset-tokens",
				"99999h"),
			[]llm.Observed{{Unit: "tokens", Limit: 10, Remaining: -1, Step: 1}},
		},
		{
			"Anthropic", "anthropic",
			headers("anthropic-ratelimit-requests-limit", "50", "anthropic-ratelimit-requests-remaining", "49",
				"anthropic-ratelimit-requests-reset", "2026-01-15T20:00:01Z",
				"anthropic-ratelimit-input-tokens-limit", "30000", "anthropic-ratelimit-input-tokens-remaining",
				"29000", "anthropic-ratelimit-input-tokens-reset", "2026-01-15T20:00:02Z",
				"anthropic-ratelimit-output-tokens-limit", "7600", "anthropic-ratelimit-output-tokens-remaining",
				"8000", "anthropic-ratelimit-output-tokens-reset", "2026-01-15T20:00:00Z",
				"anthropic-priority-input-tokens-limit", "10000", "anthropic-priority-input-tokens-remaining", "10000"),
			[]llm.Observed{
				{Unit: "requests", Limit: 50, Remaining: 49, Step: 1, ResetAt: in(time.Second)},
				{Unit: "input_tokens", Limit: 30_000, Remaining: 29_000, Step: 1000, ResetAt: in(2 * time.Second)},
				// rounded to the nearest thousand
				{Unit: "output_tokens", Limit: 7600, Remaining: 7600, Step: 1000, ResetAt: now},
				{Unit: "input_tokens", Scope: "priority", Limit: 10_000, Remaining: 10_000, Step: 1000},
			},
		},
		{
			"Anthropic's tighter side, priority tier and fast mode", "anthropic",
			headers("anthropic-ratelimit-tokens-limit", "38000", "anthropic-ratelimit-tokens-remaining", "37000",
				"anthropic-ratelimit-tokens-reset", "2026-01-15T20:00:03Z",
				"anthropic-priority-output-tokens-limit", "5000", "anthropic-priority-output-tokens-remaining", "4000",
				"anthropic-priority-output-tokens-reset", "2026-01-15T20:00:04Z",
				"anthropic-fast-input-tokens-limit", "2000", "anthropic-fast-input-tokens-remaining", "1000",
				"anthropic-fast-input-tokens-reset", "2026-01-15T20:00:05Z",
				"anthropic-fast-output-tokens-limit", "1000", "anthropic-fast-output-tokens-remaining", "0",
				"anthropic-fast-output-tokens-reset", "2026-01-15T20:00:06Z"),
			[]llm.Observed{
				{Unit: "tokens", Limit: 38_000, Remaining: 37_000, Step: 1000, ResetAt: in(3 * time.Second)},
				{
					Unit: "output_tokens", Scope: "priority", Limit: 5000, Remaining: 4000, Step: 1000,
					ResetAt: in(4 * time.Second),
				},
				{
					Unit: "input_tokens", Scope: "fast", Limit: 2000, Remaining: 1000, Step: 1000,
					ResetAt: in(5 * time.Second),
				},
				{
					Unit: "output_tokens", Scope: "fast", Limit: 1000, Remaining: 0, Step: 1000,
					ResetAt: in(6 * time.Second),
				},
			},
		},
		{"Gemini tells none", "gemini", headers("x-ratelimit-limit-requests", "60"), nil},
	} {
		got := profile(t, c.profile).Observed(c.header, now)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", c.name, got, c.want)
		}
	}
}

// TestLearned: a learned amount only lowers what is configured, is replaced by the next one, and
// ends after a day.
func TestLearned(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 15, 20, 0, 0, 0, time.UTC)
	k := llm.LimitKey{Family: "gpt-4o", Unit: "tokens"}
	var l llm.Learned
	amount := func(after time.Duration) int64 { return l.Amount(k, 100, now.Add(after)) }
	if got := amount(0); got != 100 {
		t.Errorf("nothing is learned: %d", got)
	}
	l.Note(k, 40, now)
	if got := amount(time.Hour); got != 40 {
		t.Errorf("40 is learned: %d", got)
	}
	if got := l.Amount(llm.LimitKey{Family: "gpt-4o", Unit: "tokens", Day: true}, 100, now); got != 100 {
		t.Errorf("the amount per day is another: %d", got)
	}
	l.Note(k, 60, now.Add(time.Hour))
	l.Note(k, -1, now.Add(time.Hour))
	if got := amount(24*time.Hour + 59*time.Minute); got != 60 {
		t.Errorf("60 is learned: %d", got)
	}
	if got := amount(25 * time.Hour); got != 100 {
		t.Errorf("what was learned has ended: %d", got)
	}
	l.Note(k, 900, now)
	if got := amount(0); got != 100 {
		t.Errorf("more than what is configured: %d", got)
	}
}

// TestLearnedIsBounded: any number of owners needs bounded memory, and makes room for new limits
// once old ones have ended.
func TestLearnedIsBounded(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 15, 20, 0, 0, 0, time.UTC)
	var l llm.Learned
	key := func(i int) llm.LimitKey { return llm.LimitKey{Owner: fmt.Sprint(i), Unit: "tokens"} }
	for i := range 10_001 {
		l.Note(key(i), 5, now)
	}
	if first, last := l.Amount(key(0), 100, now), l.Amount(key(10_000), 100, now); first != 5 || last != 100 {
		t.Errorf("the first limit is %d and the last %d, want 5 and 100", first, last)
	}
	later := now.Add(25 * time.Hour)
	l.Note(key(10_000), 5, later)
	if got := l.Amount(key(10_000), 100, later); got != 5 {
		t.Errorf("there is no room after a day: %d", got)
	}
}

// TestLearnedFromTheWire: headers teach limits per minute, the tighter of the organisation's and
// the project's; refusals teach the limit that they name.
func TestLearnedFromTheWire(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 15, 20, 0, 0, 0, time.UTC)
	p := profile(t, "openai")
	c, err := p.Parse(http.MethodPost, "/v1/chat/completions",
		headers("OpenAI-Organization", "org-1", "OpenAI-Project", "proj-1"), []byte(`{"model":"gpt-4o-2024-08-06"}`))
	if err != nil {
		t.Fatal(err)
	}
	var l llm.Learned
	l.NoteObserved(p, c, p.Observed(headers("x-ratelimit-limit-tokens", "1000", "x-ratelimit-limit-project-tokens",
		"400", "x-ratelimit-limit-requests", "7"), now), now)
	k := llm.LimitKey{Owner: "org-1/proj-1", Family: "gpt-4o", Unit: "tokens"}
	if got := l.Amount(k, 5000, now); got != 400 {
		t.Errorf("%d tokens per minute, want the project's 400", got)
	}
	for _, seen := range [][]llm.Observed{
		{{Unit: "tokens", Limit: 300}, {Unit: "tokens", Scope: "project", Limit: 900}},
		{{Unit: "tokens", Scope: "project", Limit: 300}, {Unit: "tokens", Limit: 900}},
		{{Unit: "tokens", Limit: 300}, {Unit: "tokens", Scope: "priority", Limit: 200}},
	} {
		if l.NoteObserved(p, c, seen, now); l.Amount(k, 5000, now) != 300 {
			t.Errorf("%+v: %d tokens per minute, want 300", seen, l.Amount(k, 5000, now))
		}
	}
	g := profile(t, "gemini")
	gc := parse(t, g, "/v1beta/models/gemini-2.5-flash:generateContent", `{}`)
	l.NoteRefusal(gc, g.Refusal(429, nil, []byte(geminiError("x", "22s", violation(freeTier, perDay, "20"))), now), now)
	if got := l.Amount(llm.LimitKey{Family: "gemini-2.5-flash", Unit: "requests", Day: true}, 250, now); got != 20 {
		t.Errorf("%d requests per day, want 20", got)
	}
	l.NoteRefusal(gc, g.Refusal(429, nil, []byte(geminiError("x", "", violation(freeTier, perMinute, "0"))), now), now)
	if l.Offered(gc, now) {
		t.Error("a model with a limit of 0 is offered")
	}
	if got := l.Amount(llm.LimitKey{Family: "gemini-2.5-flash", Unit: "requests"}, 10, now); got != 10 {
		t.Errorf("%d requests per minute of its family", got)
	}
	if preview := parse(t, g, "/v1beta/models/gemini-2.5-flash-preview-05-20:generateContent",
		`{}`); !l.Offered(preview, now) {
		t.Error("another version of a model with a limit of 0 is not offered")
	}
	l.NoteRefusal(gc, llm.Refusal{Meaning: llm.PerMinute, Unit: "input_tokens", Limit: -1}, now)
	if got := l.Amount(llm.LimitKey{Family: "gemini-2.5-flash", Unit: "input_tokens"}, 10, now); got != 10 {
		t.Errorf("%d input tokens per minute, by a refusal that names no limit", got)
	}
	// Anthropic's tokens are whichever side is tighter now: they are no limit of their own.
	a := profile(t, "anthropic")
	ac := parse(t, a, "/v1/messages", `{"model":"claude-opus-4-1"}`)
	l.NoteObserved(a, ac, a.Observed(headers("anthropic-ratelimit-tokens-limit", "10",
		"anthropic-ratelimit-input-tokens-limit", "20"), now), now)
	if tokens, input := l.Amount(llm.LimitKey{Family: "claude-opus-4", Unit: "tokens"}, 100, now),
		l.Amount(llm.LimitKey{Family: "claude-opus-4", Unit: "input_tokens"}, 100, now); tokens != 100 || input != 20 {
		t.Errorf("%d tokens and %d input tokens, want 100 and 20", tokens, input)
	}
}
