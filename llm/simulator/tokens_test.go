package simulator_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/drawgate/drawgate/llm/simulator"
)

func TestCountTokens(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"":                     0,
		"the":                  1,
		" the":                 1,
		"the gate":             2,
		"  the":                2,
		"the ":                 2,
		"simulate":             2,
		"camelCase":            2,
		"HTTPServer":           2,
		"2026":                 2,
		"== --":                2,
		"=====":                3,
		"a\nb":                 3,
		"日本語":                  3,
		"привет":               3,
		"\xff\xfe":             2,
		"🙂":                    1,
		"{\"a\": 1}":           7,
		strings.Repeat(" ", 9): 2,
	} {
		if got := simulator.CountTokens(text); got != want {
			t.Errorf("%q: got %d tokens, want %d", text, got, want)
		}
	}
}

// TestTokensAreAtMostBytes: estimators can rely on it.
func TestTokensAreAtMostBytes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[ a-zA-Z0-9\n.,;:{}"-]{0,200}`),
			rapid.StringMatching(`(?s).{0,50}`)).Draw(t, "text")
		n := simulator.CountTokens(text)
		if n > len(text) || n == 0 && text != "" || n != simulator.CountTokens(text) {
			t.Fatalf("%q of %d bytes has %d tokens", text, len(text), n)
		}
		if more := simulator.CountTokens(text + "\n" + text); utf8.ValidString(text) && more > 2*n+1 {
			t.Fatalf("%q has %d tokens, and twice with a line break %d", text, n, more)
		}
	})
}

// TestAnswersHaveTheirTokens: the counter agrees with what an answer says of itself.
func TestAnswersHaveTheirTokens(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	got := post(t, s, genericPath, `{"prompt":"simulate: output=100"}`)
	text, _ := at(t, got.body, "output").(string)
	if n := simulator.CountTokens(text); n != 100 || at(t, got.body, "usage.output_tokens") != 100.0 {
		t.Errorf("the answer has %d tokens and says %v", n, at(t, got.body, "usage.output_tokens"))
	}
}

// TestOtherCounter: a test can use a tokenizer of its own.
func TestOtherCounter(t *testing.T) {
	t.Parallel()
	s := newServer(t, &simulator.Options{Tokens: func(model, text string) int { return len(model) + len(text) }})
	got := post(t, s, embedPath, `{"model":"m","input":["ab","c"]}`)
	if v := at(t, got.body, "usage.prompt_tokens"); v != 5.0 {
		t.Errorf("got %v tokens", v)
	}
}
