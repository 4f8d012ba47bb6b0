package llm_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf16"

	"pgregory.net/rapid"

	"github.com/drawgate/drawgate/llm"
)

// counted is a text with its true number of tokens by OpenAI's tokenizers.
type counted struct {
	Kind          string
	O200k, Cl100k int64
	Text          string
}

// countedTexts reads texts that the weights were not set on, written by benchmarks/cmd/tokens
// -table.
func countedTexts(t *testing.T) (list []counted) {
	t.Helper()
	text, err := os.ReadFile("testdata/tokens.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var c counted
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatal(err)
		}
		list = append(list, c)
	}
	if len(list) < 30 {
		t.Fatalf("there are %d texts", len(list))
	}
	return list
}

func chat(t *testing.T, p *llm.Profile, model, text string) *llm.Call {
	t.Helper()
	q, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, p, "/v1/chat/completions", fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":%s}]}`,
		model, q))
}

// framed is what OpenAI counts for a single message in addition to its text.
const framed = 7

// TestEstimatesAgainstTrueCounts: no more is missing, and no more too much, than what the package
// promises. The texts are short, which is harder than what benchmarks/cmd/tokens measures.
func TestEstimatesAgainstTrueCounts(t *testing.T) {
	t.Parallel()
	p := profile(t, "openai")
	for _, model := range []string{"gpt-4o", "gpt-4"} {
		ratios := map[string][]float64{}
		for _, c := range countedTexts(t) {
			want := c.O200k
			if model == "gpt-4" {
				want = c.Cl100k
			}
			want += framed
			call := chat(t, p, model, c.Text)
			if upper := p.Upper(call).Input; upper < want {
				t.Errorf("%s, %s: the upper bound is %d of %d tokens", model, c.Kind, upper, want)
			}
			ratios[c.Kind] = append(ratios[c.Kind], float64(want)/float64(new(llm.Estimator).Likely(p, call).Input))
		}
		for kind, r := range ratios {
			slices.Sort(r)
			most := 1.25
			if kind == "base64" {
				most = 1.5
			}
			if worst, median := r[len(r)-1], r[len(r)/2]; worst > most || median < 1/1.35 {
				t.Errorf("%s, %s: actual ÷ estimate is at most %.2f (want %.2f) and %.2f at the median (want 0.74)",
					model, kind, worst, most, median)
			}
		}
	}
}

// TestUpperIsABound: a text has no more tokens than bytes, whatever it is; and a prompt no more
// than its parts.
func TestUpperIsABound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		q, _ := json.Marshal(text)
		for _, c := range []struct{ profile, path, body string }{
			{"openai", "/v1/chat/completions", `{"messages":[{"content":%s}]}`},
			{"openai", "/v1/responses", `{"input":%s}`},
			{"openai", "/v1/responses", `{"instructions":"a","input":[{"type":"function_call_output","output":%s}]}`},
			{"openai", "/v1/chat/completions", `{"tools":[{"function":{"description":%s}}]}`},
			{"openai", "/v1/chat/completions", `{"messages":[{"tool_calls":[{"function":{"arguments":%s}}]}]}`},
			{"anthropic", "/v1/messages", `{"system":[{"type":"text","text":%s}]}`},
			{"anthropic", "/v1/messages", `{"messages":[{"content":[{"type":"tool_use","input":{%s:1}}]}]}`},
			{
				"anthropic", "/v1/messages",
				`{"messages":[{"content":[{"type":"tool_result","content":[{"type":"text","text":%s}]}]}]}`,
			},
			{"anthropic", "/v1/messages", `{"messages":[{"content":[{"type":"something new","data":[[%s]]}]}]}`},
			{"gemini", "/v1beta/models/g:generateContent", `{"contents":[{"parts":[{"text":%s}]}]}`},
			{
				"gemini", "/v1beta/models/g:generateContent",
				`{"system_instruction":{"parts":[{"functionResponse":{"response":{"x":%s}}}]}}`,
			},
		} {
			p, _ := llm.ByName(c.profile)
			body := fmt.Sprintf(c.body, q)
			call, err := p.Parse(http.MethodPost, c.path, nil, []byte(body))
			if err != nil {
				t.Fatalf("%s: %v", body, err)
			}
			upper := p.Upper(call).Input
			if upper < int64(len(text)) {
				t.Fatalf("%s: the bound is %d, the text has %d bytes", body, upper, len(text))
			}
			if likely := new(llm.Estimator).Likely(p, call).Input; likely < 1 || likely > upper {
				t.Fatalf("%s: %d tokens are likely, at most %d are possible", body, likely, upper)
			}
		}
	})
}

// TestCountsWhatTheTextSays: however a string is escaped, what it stands for is counted, each
// character once.
func TestCountsWhatTheTextSays(t *testing.T) {
	t.Parallel()
	p := profile(t, "openai")
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		var escaped strings.Builder
		for _, r := range text {
			q, _ := json.Marshal(string(r))
			switch units := utf16.Encode([]rune{r}); {
			case rapid.Bool().Draw(t, "escape"):
				for _, u := range units {
					fmt.Fprintf(&escaped, "\\u%04x", u)
				}
			default:
				escaped.Write(q[1 : len(q)-1])
			}
		}
		c, err := p.Parse(http.MethodPost, "/v1/chat/completions", nil,
			[]byte(`{"messages":[{"content":"`+escaped.String()+`"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		want := llm.Measure(text)
		if c.Text.Bytes != int64(len(text)) || c.Text.Runes != want.Runes || c.Text.Counts != want.Counts {
			t.Fatalf("%q as %s: %d bytes and %+v, want %d and %+v", text, escaped.String(), c.Text.Bytes, c.Text.Counts,
				len(text), want.Counts)
		}
	})
}

// TestEveryCharacterCosts: a text of any one character, many times, is not estimated at next to
// nothing.
func TestEveryCharacterCosts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := rapid.Rune().Draw(t, "character")
		m := llm.Measure(strings.Repeat(string(r), 1000))
		for _, w := range []*llm.Weights{llm.O200k(), llm.Cl100k()} {
			if n := w.Tokens(&m); n < 15 || n > float64(m.Bytes) {
				t.Fatalf("1000 times %q is %.1f tokens", r, n)
			}
		}
	})
}

// TestStructureCounts: what a tool's definition and arguments have between their texts reaches the
// model as well.
func TestStructureCounts(t *testing.T) {
	t.Parallel()
	p := profile(t, "openai")
	const schema = `{"type":"object","properties":{"a":{"type":"array","items":{"type":"string"}},"b":{"enum":["x","y",1,true,null]}},"required":["a"]}`
	c := parse(t, p, "/v1/chat/completions", `{"tools":[{"function":{"parameters":`+schema+`}}]}`)
	if c.Schemas.Bytes < int64(len(schema)) {
		t.Errorf("%d bytes are counted of a schema of %d", c.Schemas.Bytes, len(schema))
	}
	list := `["` + strings.Repeat(`x","`, 500) + `"]`
	c = parse(t, profile(t, "anthropic"), "/v1/messages",
		`{"messages":[{"content":[{"type":"tool_use","input":{"a":`+list+`}}]}]}`)
	if c.Text.Bytes < int64(len(list)) {
		t.Errorf("%d bytes are counted of arguments of %d", c.Text.Bytes, len(list))
	}
	for _, text := range []string{" ", "\t", "a", "\n"} {
		m := llm.Measure(text)
		if n := llm.O200k().Tokens(&m); n != 1 {
			t.Errorf("%q is %v tokens, want 1", text, n)
		}
	}
}

// TestUnknownSizesAreBounded: what the body does not have is at most the model's context.
func TestUnknownSizesAreBounded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		profile, path, body string
		least               int64
	}{
		{"openai", "/v1/responses", `{"model":"gpt-4o","input":"x","previous_response_id":"r"}`, 128_000},
		{
			"openai", "/v1/chat/completions",
			`{"model":"gpt-4o","messages":[{"content":[{"image_url":{"url":"https://example.com/a"}},{"image_url":{"url":"https://example.com/b"}}]}]}`, 2 * (2833 + 8*5667),
		},
		{
			"anthropic", "/v1/messages",
			`{"model":"claude-sonnet-4-5","tools":[{"type":"web_search_20250305","name":"web_search"}]}`, 1_000_000,
		},
		{
			"anthropic", "/v1/messages",
			`{"messages":[{"content":[{"type":"document","source":{"type":"file","file_id":"f"}}]}]}`, 1_000_000,
		},
		{"gemini", "/v1beta/models/g:generateContent", `{"cachedContent":"c"}`, 1_048_576},
		{
			"gemini", "/v1beta/models/g:generateContent",
			`{"contents":[{"parts":[{"fileData":{"fileUri":"https://x/y","mimeType":"video/mp4"}}]}]}`, 1_048_576,
		},
	} {
		p := profile(t, c.profile)
		if got := p.Upper(parse(t, p, c.path, c.body)).Input; got < c.least {
			t.Errorf("%s: the bound is %d, want at least %d", c.body, got, c.least)
		}
	}
}

// TestLargestOutput: what the call says counts for each answer, and otherwise what the model can.
func TestLargestOutput(t *testing.T) {
	t.Parallel()
	p := profile(t, "openai")
	for body, want := range map[string]int64{
		`{"model":"gpt-4o","max_tokens":10,"n":3}`:                       30,
		`{"model":"gpt-4o","max_tokens":10,"max_completion_tokens":70}`:  70,
		`{"model":"gpt-4o-2024-08-06","n":2}`:                            2 * 16_384,
		`{"model":"new"}`:                                                128_000,
		`{"model":"gpt-4o","max_tokens":null}`:                           16_384,
		`{"model":"gpt-4o","max_tokens":0}`:                              16_384,
		`{"model":"gpt-4o","max_tokens":-0.0,"max_completion_tokens":0}`: 16_384,
		`{"model":"gpt-4o","max_tokens":0,"max_completion_tokens":7}`:    7,
	} {
		if got := p.MaxOutput(parse(t, p, "/v1/chat/completions", body)); got != want {
			t.Errorf("%s: %d, want %d", body, got, want)
		}
	}
	for body, want := range map[string]int64{
		`{"prompt":"a","max_tokens":5,"n":2,"best_of":3}`: 15,
		`{"prompt":["a","b"],"max_tokens":5,"n":2}`:       20,
		`{"prompt":[1,2,3],"max_tokens":5}`:               5,
		`{"prompt":[[1,2],[3]],"max_tokens":5}`:           10,
	} {
		if got := p.MaxOutput(parse(t, p, "/v1/completions", body)); got != want {
			t.Errorf("%s: %d, want %d", body, got, want)
		}
	}
}

// TestLearning: estimates that are always too small grow at once, and those that are too large
// shrink after some calls; nothing that is told can move them out of their bounds.
func TestLearning(t *testing.T) {
	t.Parallel()
	p := profile(t, "openai")
	text := strings.Repeat("The river was calm that evening, and nobody spoke. ", 20)
	call := chat(t, p, "gpt-4o", text)
	var e llm.Estimator
	first := e.Likely(p, call).Input
	tell := func(n int64, times int) {
		for range times {
			e.Learn(p, call, llm.Usage{Input: n, InputKnown: true})
		}
	}
	tell(2*first, 1)
	if got := e.Likely(p, call).Input; got < 2*first-2 || got > 2*first+2 {
		t.Errorf("after one call with %d tokens the estimate is %d, before it was %d", 2*first, got, first)
	}
	other := chat(t, p, "gpt-4.1", text)
	if got := e.Likely(p, other).Input; got != first {
		t.Errorf("another family's estimate moved from %d to %d", first, got)
	}
	if got := e.Likely(p, chat(t, p, "gpt-4o", strings.Repeat("漢字", 100))).Input; got > 300 {
		t.Errorf("another kind of text is now estimated at %d tokens", got)
	}
	tell(first/2, 3)
	if got := e.Likely(p, call).Input; got < first {
		t.Errorf("after four calls the estimate shrank to %d", got)
	}
	var young llm.Estimator
	for i := range 30 {
		if got := young.Likely(p, call).Input; i < 24 && got != first || i > 24 && got > first*72/100 {
			t.Errorf("after %d calls of %d tokens the estimate is %d, at first it was %d", i, first/2, got, first)
		}
		young.Learn(p, call, llm.Usage{Input: first / 2, InputKnown: true})
	}
	tell(first/2, 600)
	if got := e.Likely(p, call).Input; got > first*72/100 {
		t.Errorf("after 600 calls of %d tokens the estimate is %d", first/2, got)
	}
	tell(1, 600)
	if got := e.Likely(p, call).Input; got < first/5 {
		t.Errorf("the estimate fell to %d of %d", got, first)
	}
	tell(1<<40, 600)
	if got, most := e.Likely(p, call).Input, p.Upper(call).Input; got > most || got < 4*first {
		t.Errorf("the estimate rose to %d; it began at %d, and the bound is %d", got, first, most)
	}
	e.Learn(p, call, llm.Usage{Input: 0})
}

// TestEstimatorIsSafe is for the race detector.
func TestEstimatorIsSafe(t *testing.T) {
	t.Parallel()
	p := profile(t, "openai")
	call := chat(t, p, "gpt-4o", strings.Repeat("word ", 100))
	var e llm.Estimator
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 100 {
				e.Learn(p, call, llm.Usage{Input: int64(100 + i), InputKnown: true})
				if n := e.Likely(p, call).Input; n < 50 || n > 500 {
					t.Errorf("%d tokens", n)
				}
			}
		})
	}
	wg.Wait()
}

// TestTokenizer: an exact count takes the place of the estimate, if it can be believed.
func TestTokenizer(t *testing.T) {
	t.Parallel()
	p := profile(t, "openai")
	var seen []string
	p.Tokenizer = func(model, text string) int {
		seen = append(seen, model+": "+text)
		return len(text)
	}
	body := `{"messages":[{"role":"user","content":"héllo"}],"model":"gpt-4o","tools":[{"function":{"name":"f"}}]}`
	c := parse(t, p, "/v1/chat/completions", body)
	if !slices.Contains(seen, "gpt-4o: héllo") || !slices.Contains(seen, "gpt-4o: f") {
		t.Errorf("the tokenizer was given %q", seen)
	}
	if c.Exact < int64(len("userhéllof")) || c.Text.Runes != int64(len("userhello")) {
		t.Errorf("exactly %d tokens; %d characters", c.Exact, c.Text.Runes)
	}
	p.Tokenizer = func(string, string) int { return -1 }
	if c = parse(t, p, "/v1/chat/completions", body); c.Exact != -1 {
		t.Errorf("a count of -1 was believed: %d", c.Exact)
	}
}

// TestNobodyLowersTheEstimatesOfOthers: what calls of one caller show, such as text in a field that
// the provider passes over, lowers estimates of that caller's calls of that model alone, and those
// no further than the profile says.
//
// req: C1
func TestNobodyLowersTheEstimatesOfOthers(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("The river was calm that evening, and nobody spoke. ", 20)
	for _, p := range llm.Profiles() {
		call := func(caller, model string) *llm.Call {
			path, body := "/v1/chat/completions",
				`{"model":"`+model+`","messages":[{"role":"user","content":"`+text+`"}]}`
			switch p.Name {
			case "anthropic":
				path = "/v1/messages"
			case "gemini":
				path, body = "/v1beta/models/"+model+":generateContent",
					`{"contents":[{"parts":[{"text":"`+text+`"}]}]}`
			}
			c := parse(t, p, path, body)
			c.Caller = caller
			return c
		}
		var e llm.Estimator
		first := e.Likely(p, call("alice", "a")).Input
		for range 600 {
			e.Learn(p, call("bob", "a"), llm.Usage{Input: 1, InputKnown: true})
		}
		for _, other := range [][2]string{{"alice", "a"}, {"bob", "b"}, {"", "a"}} {
			if got := e.Likely(p, call(other[0], other[1])).Input; got != first {
				t.Errorf("%s: the estimate of %v moved from %d to %d", p.Name, other, first, got)
			}
		}
		if got := e.Likely(p, call("bob", "a")).Input; float64(got) < 0.69*float64(first) || got > first*3/4 {
			t.Errorf("%s: bob's estimate is %d, at first it was %d", p.Name, got, first)
		}
	}
}

// TestMostIsABound: no text that was measured has as many tokens as the profile's Most says, by
// either tokenizer, and it says less than a token for each byte.
//
// req: C1
func TestMostIsABound(t *testing.T) {
	t.Parallel()
	most := llm.OpenAI().Most
	texts := append(countedTexts(t), counted{"digits", 2000, 2000, strings.Repeat("1 ", 1000)},
		counted{"tabs", 2000, 2000, strings.Repeat("1\t", 1000)},
		// Words and characters of which tokenizers know little.
		counted{"Gothic", 4000, 4000, strings.Repeat("\U00010330", 1000)},
		counted{"Cherokee", 3000, 3000, strings.Repeat("\u13a0", 1000)},
		counted{"rare Han, spaced", 4000, 4000, strings.Repeat(" \U00020001", 1000)},
		counted{"Jamo, spaced", 4000, 3000, strings.Repeat(" \u1101", 1000)},
		counted{"nonsense", 3000, 4000, strings.Repeat(" kldjw", 1000)},
		counted{"nonsense", 2000, 2000, strings.Repeat(" eagui", 1000)})
	for _, c := range texts {
		m := llm.Measure(c.Text)
		bound := most.Tokens(&m)
		if want := max(c.O200k, c.Cl100k); bound < float64(want) {
			t.Errorf("%s: at most %.0f tokens, it has %d", c.Kind, bound, want)
		}
		if strings.HasPrefix(c.Kind, "prose") && bound > 0.75*float64(len(c.Text)) {
			t.Errorf("%s: at most %.0f tokens of %d bytes, want at most three quarters", c.Kind, bound, len(c.Text))
		}
	}
}
