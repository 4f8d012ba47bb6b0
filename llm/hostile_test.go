package llm_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/drawgate/drawgate/llm"
)

// TestBodiesThatCannotBeCounted: they are errors, which show nothing of the body.
func TestBodiesThatCannotBeCounted(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat(`[`, 200_000)
	for body, want := range map[string]string{
		``:                     "ends too early",
		`{`:                    "ends too early",
		`{"messages":[`:        "ends too early",
		`{"a":"secret`:         "ends too early",
		`secret`:               "not valid JSON",
		`{} {}`:                "not valid JSON",
		`{"a":1,}`:             "not valid JSON",
		`{"a" 1}`:              "not valid JSON",
		`{"a":[1,]}`:           "not valid JSON",
		`[]`:                   "not valid JSON",
		`{"a":01}`:             "not valid JSON",
		`{"a":-}`:              "not valid JSON",
		`{"a":1.}`:             "not valid JSON",
		`{"a":tru}`:            "not valid JSON",
		`{"a":NaN}`:            "not valid JSON",
		`{"a":"\x"}`:           "not valid JSON",
		`{"a":"\u12g4"}`:       "not valid JSON",
		"{\"a\":\"\n\"}":       "not valid JSON",
		`{"messages":[}`:       "not valid JSON",
		`{"messages":` + deep:  "levels deep",
		`{"x":` + deep:         "levels deep",
		"{\"a\":\"\xff\"}":     "not valid UTF-8",
		"{\"a\":\"\xe4\xb8\"}": "not valid UTF-8",
		`{"messages":[{"content":"` + "\xed\xa0\x80" + `"}]}`: "not valid UTF-8",
		`"x"`:                                   "another type",
		`{"model":"a","model":"b"}`:             "twice",
		`{"max_tokens":1,"max_tokens":1000}`:    "twice",
		`{"messages":[],"messages":["secret"]}`: "twice",
		`{"stream_options":{"include_usage":true,"include_usage":false}}`: "twice",
		`{"messages":[{"content":"a","content":"b"}]}`:                    "twice",
		`{"model":"a","Model":"b"}`:                                       "other capitals",
		`{"MAX_TOKENS":1}`:                                                "other capitals",
		`{"meſſageſ":[]}`:                                                 "other capitals",
		`{"messages":[{"Content":"x"}]}`:                                  "other capitals",
		`{"max_tokens":-1}`:                                               "negative",
		`{"max_tokens":1.5}`:                                              "fraction",
		`{"max_tokens":1e30}`:                                             "too large",
		`{"max_tokens":` + strings.Repeat("9", 41) + `}`:                  "more than 40 bytes",
		`{"max_tokens":"100"}`:                                            "another type",
		`{"max_tokens":[1]}`:                                              "another type",
		`{"n":1000000}`:                                                   "too large",
		`{"stream":"true"}`:                                               "another type",
		`{"stream_options":1}`:                                            "another type",
		`{"model":["secret"]}`:                                            "another type",
		`{"model":"` + strings.Repeat("secret", 100) + `"}`:               "more than 256 bytes",
	} {
		_, err := profile(t, "openai").Parse(http.MethodPost, "/v1/chat/completions", nil, []byte(body))
		if err == nil {
			t.Errorf("%.60q: no error, want %q", body, want)
			continue
		}
		text := err.Error()
		if !strings.Contains(text, want) || !strings.HasPrefix(text,
			"llm: the body of a chat call cannot be counted: ") || strings.Contains(text, "secret") {
			t.Errorf("%.60q: %q, want %q", body, text, want)
		}
	}
	p := profile(t, "openai")
	if _, err := p.Parse(http.MethodPost, "/v1/chat/completions", headers("Content-Encoding", "gzip"),
		[]byte(`{}`)); err == nil || !strings.Contains(err.Error(), "compressed") {
		t.Errorf("a compressed body: %v", err)
	}
	if _, err := p.Parse(http.MethodPost, "/v1/chat/completions", headers("Content-Encoding", "Identity"),
		[]byte(`{}`)); err != nil {
		t.Errorf("a body as it is: %v", err)
	}
	for _, body := range []string{`{"generationConfig":{"maxOutputTokens":1},"generation_config":{"maxOutputTokens":1000}}`, `{"generationConfig":{"maxOutputTokens":1,"max_output_tokens":1000}}`} {
		if _, err := profile(t, "gemini").Parse(http.MethodPost, "/v1beta/models/g:generateContent", nil,
			[]byte(body)); err == nil || !strings.Contains(err.Error(), "twice") {
			t.Errorf("%s: %v, want an error: both names are of one field", body, err)
		}
	}
}

// TestOddButValid: what is unusual but valid is counted.
func TestOddButValid(t *testing.T) {
	t.Parallel()
	p := profile(t, "openai")
	for body, chars := range map[string]int64{
		`{"messages" : [ {"content" : "\u0061\ud83d\ude00\n" } ] }`: 3,
		`{"messages":[{"content":"\ud83d"}]}`:                       1, // half a character
		`{"messages":[{"content":"\ud83dx\ude00"}]}`:                3,
		`{"messages":[{"content":"\ud83d\u0061"}]}`:                 2,
		`{"messages":[{"content":null}],"temperature":-1.5E-3}`:     4, // "null", as it might be shown
		`{"x":1,"x":2}`: 2, // whatever it is
		// a long key is no key that we know
		`{"messages":[{"` + strings.Repeat("k", 3000) + `":"a","content":"b"}]}`: 2,
		`{"messages":"new"}`:       3,
		`{"messages":{"new":[1]}}`: 1,
	} {
		if got := parse(t, p, "/v1/chat/completions", body).Text.Runes; got != chars {
			t.Errorf("%s: %d characters, want %d", body, got, chars)
		}
	}
}

// TestMedia: media count by their kind and size, and not as text.
func TestMedia(t *testing.T) {
	t.Parallel()
	data := strings.Repeat("QUJD", 5000)
	for _, c := range []struct {
		profile, path, body string
		kind                llm.MediaKind
		bytes, likely, most int64 // of the estimate, without what surrounds it
	}{
		{
			"openai", "/v1/chat/completions", `{"messages":[{"content":[{"type":"image_url",` +
				`"image_url":{"url":"data:image/png;base64,iVBORw0KGgoA%s","detail":"low"}}]}]}`,
			llm.Image, 15_000, 765,
			48_169,
		},
		{
			"openai", "/v1/chat/completions",
			`{"messages":[{"content":[{"type":"input_audio","input_audio":{"data":"SUQzBAAA%s","format":"mp3"}}]}]}`,
			llm.Audio, 15_000, 9, 15_000,
		},
		{
			"openai", "/v1/chat/completions",
			`{"messages":[{"content":[{"type":"file","file":{"file_data":"JVBERi0xLjQK%s","filename":"a.pdf"}}]}]}`,
			llm.File, 15_000, 300, 1_050_000,
		},
		{"openai", "/v1/responses", `{"input":[{"role":"user","content":[{"type":"input_image",` +
			`"image_url":"data:image/png;base64,iVBORw0KGgoA%s"}]}]}`, llm.Image, 15_000, 765, 48_169},
		{
			"anthropic", "/v1/messages", `{"messages":[{"content":[{"type":"tool_result","content":[{"type":"image",` +
				`"source":{"data":"iVBORw0KGgoA%s","type":"base64","media_type":"image/png"}}]}]}]}`, llm.Image, 15_000,
			1600, 4784,
		},
		{
			"gemini", "/v1beta/models/g:generateContent",
			`{"contents":[{"parts":[{"inlineData":{"data":"AAAAGGZ0eXBtcDQy%s","mimeType":"video/mp4"}}]}]}`,
			llm.Video, 15_000, 37, 1_048_576,
		},
	} {
		p := profile(t, c.profile)
		call := parse(t, p, c.path, strings.Replace(c.body, "%s", data, 1))
		m := call.Media[c.kind]
		if m.Count != 1 || m.Named != 0 || m.Bytes < c.bytes || m.Bytes > c.bytes+100 || call.Text.Bytes > 100 {
			t.Errorf("%s: %+v of %v, and %d bytes of text", c.body, m, c.kind, call.Text.Bytes)
		}
		likely, upper := new(llm.Estimator).Likely(p, call).Input, p.Upper(call).Input
		if likely < c.likely || likely > c.likely+60 || upper < c.most || upper > c.most+400 {
			t.Errorf("%s: %d to %d tokens, want about %d to %d", c.body, likely, upper, c.likely, c.most)
		}
		if c.kind.String() == "unknown" {
			t.Errorf("%d has no name", c.kind)
		}
	}
}

// TestWithUsage: the body asks for the usage, is otherwise as it was, and a body that need not be
// changed is not.
func TestWithUsage(t *testing.T) {
	t.Parallel()
	p := profile(t, "openai")
	for _, row := range [][2]string{
		{`{"stream":true}`, `{"stream_options":{"include_usage":true},"stream":true}`},
		{` { "stream" : true , "x":1e400}`, ` {"stream_options":{"include_usage":true}, "stream" : true , "x":1e400}`},
		{`{"stream":true,"stream_options":null}`, `{"stream":true,"stream_options":{"include_usage":true}}`},
		{`{"stream":true,"stream_options": {} }`, `{"stream":true,"stream_options": {"include_usage":true} }`},
		{
			`{"stream":true,"stream_options":{ "include_obfuscation":false}}`,
			`{"stream":true,"stream_options":{"include_usage":true, "include_obfuscation":false}}`,
		},
		{
			`{"stream_options":{"include_usage": false },"stream":true}`,
			`{"stream_options":{"include_usage": true },"stream":true}`,
		},
		{
			`{"stream_options":{"a":1,"include_usage":null,"b":2},"stream":true}`,
			`{"stream_options":{"a":1,"include_usage":true,"b":2},"stream":true}`,
		},
		{`{"stream":true,"stream_options":{"include_usage":true}}`, ``},
		{`{"stream":false}`, ``},
		{`{}`, ``},
	} {
		body, want := row[0], row[1]
		c := parse(t, p, "/v1/chat/completions", body)
		got, err := c.WithUsage([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		if want == "" {
			want = body
		}
		if string(got) != want {
			t.Errorf("%s becomes\n%s, want\n%s", body, got, want)
		}
		again := parse(t, p, "/v1/chat/completions", string(got))
		if again.NeedsUsage() {
			t.Errorf("%s: it still does not ask", got)
		}
		if _, err := c.WithUsage([]byte(body + " ")); c.NeedsUsage() && err == nil {
			t.Errorf("%s: another body was accepted", body)
		}
	}
}

// TestWithUsageOfAnything: on any JSON object the only change is the one flag.
func TestWithUsageOfAnything(t *testing.T) {
	t.Parallel()
	p := profile(t, "openai")
	rapid.Check(t, func(t *rapid.T) {
		m := map[string]any{"stream": true}
		for range rapid.IntRange(0, 4).Draw(t, "fields") {
			m[rapid.StringMatching(`[a-d]{1,3}`).Draw(t, "key")] = rapid.SampledFrom([]any{
				1.5, "x}", nil,
				[]any{"{", map[string]any{}},
				map[string]any{"stream_options": "x"},
			}).Draw(t, "value")
		}
		switch rapid.IntRange(0, 3).Draw(t, "options") {
		case 1:
			m["stream_options"] = nil
		case 2:
			m["stream_options"] = map[string]any{"a": 1.0}
		case 3:
			m["stream_options"] = map[string]any{"include_usage": false}
		}
		body, _ := json.MarshalIndent(m, "", rapid.SampledFrom([]string{"", "\t"}).Draw(t, "indent"))
		c, err := p.Parse(http.MethodPost, "/v1/chat/completions", nil, body)
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.WithUsage(body)
		if err != nil {
			t.Fatal(err)
		}
		options, _ := m["stream_options"].(map[string]any)
		if options == nil {
			options = map[string]any{}
		}
		options["include_usage"] = true
		m["stream_options"] = options
		want, _ := json.Marshal(m)
		var back any
		if err := json.Unmarshal(got, &back); err != nil {
			t.Fatalf("%s: %v", got, err)
		}
		if again, _ := json.Marshal(back); !bytes.Equal(again, want) {
			t.Fatalf("%s became %s", body, got)
		}
	})
}

// TestScannerAgreesWithEncodingJSON: what one of them takes for JSON, the other does as well.
func TestScannerAgreesWithEncodingJSON(t *testing.T) {
	t.Parallel()
	p := profile(t, "openai")
	rapid.Check(t, func(t *rapid.T) {
		body := `{"messages":` +
			rapid.StringMatching(`([\[\]{},:"a\\u0-9eE.+\- \n]|true|false|null|"k":|"[a-c]*"){0,12}`).
				Draw(t, "value") + `}`
		_, err := p.Parse(http.MethodPost, "/v1/chat/completions", nil, []byte(body))
		if valid := json.Valid([]byte(body)); valid != (err == nil) &&
			(err == nil || !strings.Contains(err.Error(), "twice")) {
			t.Fatalf("%s: valid %v, but %v", body, valid, err)
		}
	})
}

// TestLargeBody: a large body is read once, without building anything of its size.
func TestLargeBody(t *testing.T) { // not parallel: it counts allocations
	p := profile(t, "anthropic")
	body := []byte(`{"model":"claude-opus-4-1","max_tokens":5,"messages":[` +
		strings.Repeat(`{"role":"user","content":[{"type":"text","text":"héllo \"you\" there"}]},`, 20_000) + `{}]}`)
	n := testing.AllocsPerRun(2, func() {
		if _, err := p.Parse(http.MethodPost, "/v1/messages", nil, body); err != nil {
			t.Error(err)
		}
	})
	if n > 30_000 { // one for the type of each block
		t.Errorf("%v allocations", n)
	}
	if c := parse(t, p, "/v1/messages", string(body)); c.Messages != 20_001 {
		t.Errorf("%d messages", c.Messages)
	}
}

// TestSpellingsOfGeneric: a field of another spelling than the described one is another field, and
// one in other capitals, which some servers take for it, is an error.
//
// req: C1
func TestSpellingsOfGeneric(t *testing.T) {
	t.Parallel()
	p, err := llm.NewGeneric(llm.Generic{
		Name: "ours", Paths: []string{"/generate"}, MaxOutput: "maxTokens", Prompt: []string{"userPrompt"},
		Default: llm.Family{Context: 1000, MaxOutput: 77},
	})
	if err != nil {
		t.Fatal(err)
	}
	for body, want := range map[string]int64{
		`{"userPrompt":"a","maxTokens":5}`: 5, `{"userPrompt":"a","max_tokens":5}`: 77,
		`{"userPrompt":"a","maxtokens":5}`: -1,
		`{"userPrompt":"a","MaxTokens":5}`: -1, `{"userprompt":"a"}`: -1, `{"USERPROMPT":"a"}`: -1,
	} {
		c, err := p.Parse(http.MethodPost, "/generate", nil, []byte(body))
		switch {
		case (err != nil) != (want < 0):
			t.Errorf("%s: %v", body, err)
		case err == nil && p.Upper(c).Output != want:
			t.Errorf("%s: reserves %d, want %d", body, p.Upper(c).Output, want)
		}
	}
}

// TestGeneric: a provider that is described by paths is parsed, estimated, read and settled as the
// others are.
func TestGeneric(t *testing.T) {
	t.Parallel()
	p, err := llm.NewGeneric(llm.Generic{
		Name: "ours", Paths: []string{"/generate"}, Model: "engine", MaxOutput: "options.max", Answers: "options.count",
		Stream: "stream",
		Prompt: []string{"turns", "preamble"}, Messages: "turns.*",
		Usage: llm.GenericUsage{Input: "meta.in", Output: "meta.out", CacheRead: "meta.cached", CacheApart: true},
		Text:  []string{"text", "piece"}, Type: "event", Done: "end", Error: "error",
		Limits:  []llm.GenericLimit{{Unit: "tokens", Limit: "X-Limit", Remaining: "X-Left", Reset: "X-Reset"}},
		Default: llm.Family{Context: 1000, MaxOutput: 77},
	})
	if err != nil {
		t.Fatal(err)
	}
	c := parse(t, p, "/api/generate?x",
		`{"engine":"e1","turns":[{"text":"hello"},{"text":"you"}],"preamble":"be kind","options":{"max":9,"count":2},"stream":true,"other":"not counted"}`)
	if c.Operation != llm.OpGeneric || c.Model != "e1" || c.Messages != 2 || c.Text.Runes < 15 || c.Text.Runes > 25 ||
		p.MaxOutput(c) != 18 || !c.Stream {
		t.Errorf("%+v", c)
	}
	s := read(p, c, "data: {\"event\":\"piece\",\"piece\":\"hi\"}\n\ndata: {\"event\":\"end\",\"meta\":{\"in\":5,\"cached\":3,\"out\":2}}\n\n")
	if u := s.Usage(); !s.Ended() || u.Input != 8 || u.Output != 2 || !u.Final {
		t.Errorf("ended %v, %+v", s.Ended(), u)
	}
	now := time.Date(2026, 1, 15, 20, 0, 0, 0, time.UTC)
	h := headers("X-Limit", "100", "X-Left", "0", "X-Reset", "30")
	if seen := p.Observed(h, now); len(seen) != 1 || seen[0] != (llm.Observed{
		Unit: "tokens", Limit: 100, Step: 1,
		ResetAt: now.Add(30 * time.Second),
	}) {
		t.Errorf("observed %+v", seen)
	}
	if r := p.Refusal(http.StatusTooManyRequests, h, []byte(`{"error":{"type":"tokens"}}`),
		now); r.Meaning != llm.PerMinute || !r.ReopenAt.Equal(now.Add(30*time.Second)) {
		t.Errorf("refused with %+v", r)
	}
	if got := p.Settlement(c, llm.Estimate{Input: 50, Output: 18}, s.Usage()); !slices.Equal(got,
		units("requests", 1, "tokens", 18)) {
		t.Errorf("settled with %v", got)
	}
	if p.Counts(parse(t, p, "/models", `{}`).Operation) {
		t.Error("another path counts")
	}
	for want, g := range map[string]llm.Generic{
		"needs a Name":      {},
		"needs the Context": {Name: "x", Paths: []string{"/"}, Prompt: []string{"p"}},
		"has a key that is": {
			Name: "x", Paths: []string{"/"}, Prompt: []string{"a..b"},
			Default: llm.Family{Context: 1},
		},
		"has two meanings": {
			Name: "x", Paths: []string{"/"}, Prompt: []string{"p"}, Model: "m", MaxOutput: "m",
			Default: llm.Family{Context: 1},
		},
		"more than 32 paths": {
			Name: "x", Paths: []string{"/"}, Prompt: []string{strings.Repeat("a.", 40) + "a"},
			Default: llm.Family{Context: 1},
		},
	} {
		if _, err := llm.NewGeneric(g); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", g, err, want)
		}
	}
}
