package llm_test

import (
	"strings"
	"testing"

	"github.com/drawgate/drawgate/llm"
)

// TestNamesOfCalledTools: a model writes the name of each tool that it calls. A stream of the
// Responses API that is left before its end shows them in no delta.
//
// req: C1
func TestNamesOfCalledTools(t *testing.T) {
	t.Parallel()
	p := llm.OpenAI()
	c := parse(t, p, "/v1/responses", `{"model":"gpt-4.1","stream":true,"max_output_tokens":10000}`)
	name := strings.Repeat("zq7_", 16)
	added := "data: {\"type\":\"response.output_item.added\",\"item\":{\"type\":\"function_call\",\"name\":\"" + name +
		"\",\"arguments\":\"\"}}\n\n" +
		"data: {\"type\":\"response.function_call_arguments.delta\",\"delta\":\"{}\"}\n\n"
	s := read(p, c, strings.Repeat(added, 20))
	if u := s.Usage(); u.Output < 20*int64(len(name)) {
		t.Errorf("%d tokens of output, want at least those of 20 names of %d bytes", u.Output, len(name))
	}
}

// TestBudgetOfReasoning: where it is larger than max_tokens, it bounds the answer. Alone it lowers
// nothing.
//
// req: C1
func TestBudgetOfReasoning(t *testing.T) {
	t.Parallel()
	p := llm.Anthropic()
	for body, want := range map[string]int64{
		`{"model":"claude-sonnet-4-5","max_tokens":1000,"thinking":{"type":"enabled","budget_tokens":50000}}`: 50_000,
		`{"model":"claude-sonnet-4-5","max_tokens":1000,"thinking":{"type":"enabled","budget_tokens":500}}`:   1000,
		`{"model":"claude-sonnet-4-5","max_tokens":1000,"thinking":{"type":"adaptive"}}`:                      1000,
		`{"model":"claude-sonnet-4-5","thinking":{"type":"enabled","budget_tokens":500}}`:                     128_000,
	} {
		if got := p.Upper(parse(t, p, "/v1/messages", body)).Output; got != want {
			t.Errorf("%s: reserves %d, want %d", body, got, want)
		}
	}
}

// TestDocumentsInARow: of an answer that is a document in each line, the first one is not the
// whole.
//
// req: C1
func TestDocumentsInARow(t *testing.T) {
	t.Parallel()
	p := llm.OpenAI()
	c := parse(t, p, "/v1/chat/completions", `{"model":"gpt-4o","stream":true}`)
	const (
		first = `{"choices":[{"delta":{"content":"Hel"},"finish_reason":null}],"usage":{"prompt_tokens":5,"completion_tokens":1,"total_tokens":6}}` + "\n"
		last  = ` {"choices":[{"delta":{"content":"lo"},"finish_reason":"stop"}],"usage":{"prompt_tokens":50,"completion_tokens":20,"total_tokens":70}}` + "\r\n"
	)
	for _, cuts := range [][]int{nil, {len(first) - 1}, {len(first)}, {len(first) + 1}, {len(first) + 2}} {
		if u := read(p, c, first+last, cuts...).Usage(); u.Input != 50 || u.Output != 20 || !u.Final {
			t.Errorf("in pieces of %v: %+v", cuts, u)
		}
	}
	if u := read(p, c, first+first).Usage(); u.Final || u.Output < 6 {
		t.Errorf("without its end: %+v", u)
	}
}
