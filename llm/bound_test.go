package llm_test

import "testing"

// TestNothingCountsTooLittle: what a call may use is bounded, in whatever order and by whatever
// name its body says it.
//
// req: C1
func TestNothingCountsTooLittle(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, profile, path, body string
		input, output             int64 // at least
	}{
		{
			"the type of a block comes last, and the next block is a file", "anthropic", "/v1/messages",
			`{"model":"claude-opus-4-1","max_tokens":5,"messages":[{"role":"user","content":[` +
				`{"source":{"type":"base64","media_type":"image/png","data":"QUJD"},"type":"image"},` +
				`{"source":{"type":"base64","media_type":"application/pdf","data":"QUJD"},"type":"document"}]}]}`,
			1_000_000, 5,
		},
		{
			"the same of a response's input", "openai", "/v1/responses",
			`{"model":"gpt-5","max_output_tokens":5,"input":[{"role":"user","content":[` +
				`{"image_url":"https://a.test/b","type":"input_image"},{"file_url":"https://a.test/c","type":"input_file"}]}]}`,
			1_050_000, 5,
		},
		{
			"a reference to an item that the provider has", "openai", "/v1/responses",
			`{"model":"gpt-5","max_output_tokens":5,"input":[{"type":"item_reference","id":"msg_1"}]}`, 400_000, 5,
		},
		{
			"the same without its type", "openai", "/v1/responses",
			`{"model":"gpt-5","max_output_tokens":5,"input":[{"id":"msg_1"}]}`, 400_000, 5,
		},
		{
			"a screenshot by its id", "openai", "/v1/responses",
			`{"model":"gpt-5","max_output_tokens":5,"input":[{"type":"computer_call_output","output":{"type":"computer_screenshot","file_id":"file_1"}}]}`, 48_169, 5,
		},
		{
			"the largest output, as chat completions call it", "openai", "/v1/responses",
			`{"model":"gpt-5","max_tokens":5,"input":"x"}`, 1, 128_000,
		},
		{
			"the largest output, as responses call it", "openai", "/v1/chat/completions",
			`{"model":"gpt-5","max_output_tokens":5,"messages":[]}`, 1, 128_000,
		},
		{
			"media in the result of a tool", "gemini", "/v1beta/models/gemini-2.5-flash:generateContent",
			`{"contents":[{"parts":[{"functionResponse":{"name":"f","response":{},"parts":[{"fileData":{"fileUri":"https://a.test/b"}}]}}]}],"generationConfig":{"maxOutputTokens":5}}`,
			1_048_576, 5,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := profile(t, c.profile)
			if e := p.Upper(parse(t, p, c.path, c.body)); e.Input < c.input || e.Output < c.output {
				t.Errorf("%s: at most %d and %d tokens, want %d and %d or more", c.body, e.Input, e.Output, c.input,
					c.output)
			}
		})
	}
}

// TestItemsWithTheirText: an item that has an id as well as its text is no reference.
func TestItemsWithTheirText(t *testing.T) {
	t.Parallel()
	p := profile(t, "openai")
	c := parse(t, p, "/v1/responses",
		`{"input":[{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"output_text","text":"hello"}]},{"role":"user","content":"you"}]}`)
	if c.Hidden != 0 || c.Inputs != 2 || p.Upper(c).Input > 400 {
		t.Errorf("%+v", c)
	}
}

// TestResultsOfSearches: where a result of the caller's own search is from is text, and no file.
func TestResultsOfSearches(t *testing.T) {
	t.Parallel()
	p := profile(t, "anthropic")
	c := parse(t, p, "/v1/messages",
		`{"messages":[{"content":[{"type":"search_result","source":"https://a.test/b","title":"x","content":[{"type":"text","text":"hello"}]}]}]}`)
	if n := p.Upper(c).Input; n < 30 || n > 200 {
		t.Errorf("at most %d tokens: %+v", n, c)
	}
}

// TestItemsThatTheProviderHas: what an item only names counts as much as the provider may have for
// it: reasoning was part of an answer, and what a search has found may fill the context.
//
// req: C1
func TestItemsThatTheProviderHas(t *testing.T) {
	t.Parallel()
	const reasoning = `{"type":"reasoning","id":"rs_1","summary":[]}`
	p := profile(t, "openai")
	for input, want := range map[string]struct{ least, most int64 }{
		reasoning: {128_000, 129_000},
		`{"id":"rs_1","summary":[{"type":"summary_text","text":"hm"}],"encrypted_content":null,"type":"reasoning"}`: {128_000, 129_000},
		reasoning + "," + reasoning: {
			256_000,
			257_000,
		},
		// the context of gpt-5
		reasoning + "," + reasoning + "," + reasoning + "," +
			reasoning: {400_000, 401_000},
		`{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gAAAAABo"}`: {1, 1000},
		reasoning + `,{"type":"item_reference","id":"msg_1"}`: {
			400_000,
			401_000,
		},
		`{"type":"web_search_call","id":"ws_1","status":"completed","action":{}}`: {
			400_000,
			401_000,
		},
		`{"type":"function_call","id":"fc_1","call_id":"c","name":"f","arguments":"{}"}`: {1, 1000},
		reasoning + `,{"type":"message","id":"msg_1","role":"assistant","content":[{"text":"hello"}]}`: {
			128_000,
			129_000,
		},
	} {
		c := parse(t, p, "/v1/responses", `{"model":"gpt-5","input":[`+input+`]}`)
		if n := p.Upper(c).Input; n < want.least || n > want.most {
			t.Errorf("%s: at most %d tokens, want %d to %d", input, n, want.least, want.most)
		}
	}
}

// TestToolsThatTheProviderRuns: an estimate of a call with one has a whole context more, and does
// not pose as an upper bound: nobody knows how often the prompt is read.
//
// req: C1
func TestToolsThatTheProviderRuns(t *testing.T) {
	t.Parallel()
	p := profile(t, "openai")
	for tool, bound := range map[string]bool{"web_search": false, "mcp": false, "function": true} {
		c := parse(t, p, "/v1/responses", `{"model":"gpt-5","input":"Hello!","tools":[{"type":"`+tool+`","name":"f"}]}`)
		if e := p.Upper(c); e.Upper != bound || e.Input >= 400_000 == bound {
			t.Errorf("a call with the tool %s: %+v, want an upper bound: %v", tool, e, bound)
		}
	}
}
