package llm_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/llm"
)

func units(pairs ...any) (costs []drawgate.Cost) {
	for i := 0; i < len(pairs); i += 2 {
		costs = append(costs, drawgate.Units(pairs[i].(string), int64(pairs[i+1].(int))))
	}
	return costs
}

// TestCosts: what each provider counts when a call starts and when it is over.
func TestCosts(t *testing.T) {
	t.Parallel()
	final := func(input, read, write, output int64) llm.Usage {
		return llm.Usage{
			Input: input, InputKnown: true, CacheRead: read, CacheWrite: write, Output: output,
			OutputKnown: true, Final: true,
		}
	}
	est := llm.Estimate{Input: 100, Output: 50}
	for _, c := range []struct {
		name, profile, path, body string
		used                      llm.Usage
		admitted, settled         []drawgate.Cost
	}{
		{
			"OpenAI keeps max_tokens", "openai", "/v1/chat/completions", `{"max_tokens":50}`, final(20, 0, 0, 5),
			units("requests", 1, "tokens", 150), units("requests", 1, "tokens", 50),
		},
		{
			"OpenAI counts what is true", "openai", "/v1/chat/completions", `{"max_tokens":50}`, final(120, 100, 0, 45),
			units("requests", 1, "tokens", 150), units("requests", 1, "tokens", 165),
		},
		{
			"OpenAI without max_tokens", "openai", "/v1/responses", `{"model":"gpt-4o"}`, final(20, 0, 0, 5),
			units("requests", 1, "tokens", 100+16_384), units("requests", 1, "tokens", 25),
		},
		{
			"OpenAI keeps its own estimate", "openai", "/v1/responses",
			`{"input":"` + strings.Repeat("a", 400) + `","max_output_tokens":1}`, final(20, 0, 0, 1),
			units("requests", 1, "tokens", 150), units("requests", 1, "tokens", 100),
		},
		{
			"a provider's own sum", "openai", "/v1/chat/completions", `{"max_tokens":5}`,
			llm.Usage{Input: 20, InputKnown: true, Output: 5, OutputKnown: true, Total: 90, Final: true},
			units("requests", 1, "tokens", 150), units("requests", 1, "tokens", 90),
		},
		{
			"OpenAI cut off", "openai", "/v1/chat/completions", `{"model":"gpt-4o","max_tokens":5,"stream":true}`,
			llm.Usage{Output: 30},
			units("requests", 1, "tokens", 150), units("requests", 1, "tokens", 130),
		},
		{
			"embeddings", "openai", "/v1/embeddings", `{"input":"x"}`,
			llm.Usage{Input: 8, InputKnown: true, OutputKnown: true, Final: true},
			units("requests", 1, "tokens", 100),
			units("requests", 1, "tokens", 8),
		},
		{
			"Anthropic without cache reads", "anthropic", "/v1/messages", `{"model":"claude-sonnet-4-5","max_tokens":50}`,
			final(100, 70, 20, 30), units("requests", 1, "input_tokens", 100, "output_tokens", 50),
			units("requests", 1, "input_tokens", 30, "output_tokens", 30),
		},
		{
			"Haiku 3.5 with cache reads", "anthropic", "/v1/messages",
			`{"model":"claude-3-5-haiku-latest","max_tokens":50}`, final(100, 70, 20, 30),
			units("requests", 1, "input_tokens", 100, "output_tokens", 50),
			units("requests", 1, "input_tokens", 100, "output_tokens", 30),
		},
		{
			"Anthropic cut off", "anthropic", "/v1/messages", `{"max_tokens":50,"stream":true}`,
			llm.Usage{Input: 80, InputKnown: true, Output: 500},
			units("requests", 1, "input_tokens", 100, "output_tokens", 50),
			units("requests", 1, "input_tokens", 80, "output_tokens", 50),
		},
		{
			"Anthropic told more than was asked for", "anthropic", "/v1/messages", `{"max_tokens":50}`,
			llm.Usage{Input: 80, InputKnown: true, Output: 70, OutputKnown: true},
			units("requests", 1, "input_tokens", 100, "output_tokens", 50),
			units("requests", 1, "input_tokens", 80, "output_tokens", 70),
		},
		{
			"Anthropic cut off early", "anthropic", "/v1/messages",
			`{"model":"claude-sonnet-4-5","max_tokens":50,"stream":true}`,
			llm.Usage{
				Input: 80, InputKnown: true,
				Output: 5, OutputKnown: true,
			},
			units("requests", 1, "input_tokens", 100, "output_tokens", 50),
			units("requests", 1, "input_tokens", 80, "output_tokens", 5),
		},
		{
			"a model that reasons, cut off", "openai", "/v1/chat/completions",
			`{"model":"gpt-5","max_tokens":50,"stream":true}`,
			llm.Usage{Output: 3},
			units("requests", 1, "tokens",
				150), units("requests", 1, "tokens", 150),
		},
		{
			"a model of which nothing is known, cut off", "anthropic", "/v1/messages",
			`{"model":"claude-next","max_tokens":50,"stream":true}`,
			llm.Usage{
				Input: 80, InputKnown: true,
				Output: 5,
			},
			units("requests", 1, "input_tokens", 100, "output_tokens", 50),
			units("requests", 1, "input_tokens", 80, "output_tokens", 50),
		},
		{
			"Anthropic that was asked to think, cut off", "anthropic", "/v1/messages", `{"model":"claude-sonnet-4-5",` +
				`"thinking":{"type":"enabled","budget_tokens":1024},"max_tokens":50,"stream":true}`,
			llm.Usage{
				Input:      80,
				InputKnown: true, Output: 5,
			},
			units("requests", 1, "input_tokens", 100, "output_tokens", 50),
			units("requests", 1, "input_tokens", 80, "output_tokens", 50),
		},
		{
			"Anthropic that was asked not to", "anthropic", "/v1/messages",
			`{"model":"claude-sonnet-4-5","thinking":{"type":"disabled"},"max_tokens":50,"stream":true}`,
			llm.Usage{Input: 80, InputKnown: true, Output: 5},
			units("requests", 1, "input_tokens", 100,
				"output_tokens", 50), units("requests", 1, "input_tokens", 80, "output_tokens", 5),
		},
		{
			"several answers, cut off", "openai", "/v1/chat/completions",
			`{"model":"gpt-4o","max_tokens":25,"n":2,"stream":true}`,
			llm.Usage{Output: 3},
			units("requests", 1,
				"tokens", 150), units("requests", 1, "tokens", 150),
		},
		{
			"nothing was heard", "anthropic", "/v1/messages", `{"max_tokens":50}`,
			llm.Usage{},
			units("requests", 1, "input_tokens", 100, "output_tokens", 50),
			units("requests", 1, "input_tokens", 100, "output_tokens", 50),
		},
		{
			"nothing of a stream was heard", "anthropic", "/v1/messages", `{"max_tokens":50,"stream":true}`,
			llm.Usage{},
			units("requests", 1, "input_tokens", 100, "output_tokens", 50),
			units("requests", 1, "input_tokens", 100, "output_tokens", 50),
		},
		{
			"a part of an answer was heard", "anthropic", "/v1/messages", `{"max_tokens":50}`,
			llm.Usage{Output: 7},
			units("requests", 1, "input_tokens", 100, "output_tokens", 50),
			units("requests", 1, "input_tokens", 100, "output_tokens", 50),
		},
		{
			"an answer without usage", "anthropic", "/v1/messages", `{"model":"claude-sonnet-4-5","max_tokens":50}`,
			llm.Usage{Output: 7, Ended: true},
			units("requests", 1, "input_tokens", 100, "output_tokens",
				50), units("requests", 1, "input_tokens", 100, "output_tokens", 7),
		},
		{
			"in the background", "openai", "/v1/responses", `{"model":"gpt-4o","background":true}`,
			llm.Usage{Ended: true},
			units("requests", 1, "tokens", 100+16_384), units("requests", 1, "tokens", 100+16_384),
		},
		{
			"Gemini counts the input", "gemini", "/v1beta/models/gemini-2.5-pro:generateContent", `{}`,
			final(90, 40, 0, 1000), units("requests", 1, "input_tokens", 100),
			units("requests", 1, "input_tokens", 90),
		},
		{
			"Gemini's batch", "gemini", "/v1beta/models/e:batchEmbedContents", `{"requests":[{},{},{}]}`,
			final(9, 0, 0, 0), units("requests", 3, "input_tokens", 100), units("requests", 3, "input_tokens", 9),
		},
		{"counting is free", "gemini", "/v1beta/models/gemini-2.5-pro:countTokens", `{}`, llm.Usage{}, nil, nil},
		{"listing is free", "openai", "/v1/models", ``, llm.Usage{}, nil, nil},
	} {
		p := profile(t, c.profile)
		call := parse(t, p, c.path, c.body)
		held := est
		if call.MaxOutput < 0 && c.profile == "openai" {
			held.Output = p.MaxOutput(call)
		}
		if got := p.Admission(call, held); !slices.Equal(got, c.admitted) {
			t.Errorf("%s: admitted with %v, want %v", c.name, got, c.admitted)
		}
		if got := p.Settlement(call, held, c.used); !slices.Equal(got, c.settled) {
			t.Errorf("%s: settled with %v, want %v", c.name, got, c.settled)
		}
	}
}

func TestSwitches(t *testing.T) {
	t.Parallel()
	p := profile(t, "anthropic")
	call := parse(t, p, "/v1/messages", `{"max_tokens":1000}`)
	small := llm.Estimate{Input: 10, Output: 200}
	if got := p.Admission(call, small); got[2].N != 200 {
		t.Errorf("output that is counted as it is produced: %v", got)
	}
	p.OutputAtStart = true
	if got := p.Admission(call, small); got[2].N != 1000 {
		t.Errorf("output that is counted at the start: %v", got)
	}
	if got := p.Failed(call, small); !slices.Equal(got, units("requests", 1, "input_tokens", 10, "output_tokens", 0)) {
		t.Errorf("a call that failed counts %v", got)
	}
	p.FailedInput = false
	if got := p.Failed(call, small); !slices.Equal(got, units("requests", 1, "input_tokens", 0, "output_tokens", 0)) {
		t.Errorf("a call that failed, whose input does not count, counts %v", got)
	}
	p = profile(t, "openai")
	p.CountOther = true
	if got := p.Admission(parse(t, p, "/v1/files", ``), llm.Estimate{}); !slices.Equal(got, units("requests", 1)) {
		t.Errorf("other calls count %v", got)
	}
}

// TestSettlementNeverCreditsTooMuch: reserved by the upper bound, a call is never settled with more
// than what was reserved, nor with less than what the provider counts.
func TestSettlementNeverCreditsTooMuch(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.SampledFrom([]struct{ name, path string }{
			{"openai", "/v1/chat/completions"},
			{"anthropic", "/v1/messages"},
			{"gemini", "/v1beta/models/g:generateContent"},
		}).Draw(t, "api")
		p, _ := llm.ByName(a.name)
		q, _ := json.Marshal(rapid.String().Draw(t, "text"))
		most := rapid.Int64Range(1, 5000).Draw(t, "max_tokens")
		body, _ := json.Marshal(map[string]any{
			"max_tokens": most, "generationConfig": map[string]any{"maxOutputTokens": most},
			"messages": []any{map[string]any{"content": json.RawMessage(q)}},
			"contents": []any{map[string]any{"parts": []any{map[string]any{"text": json.RawMessage(q)}}}},
		})
		c, err := p.Parse(http.MethodPost, a.path, nil, body)
		if err != nil {
			t.Fatal(err)
		}
		held := p.Upper(c)
		u := llm.Usage{
			Input: rapid.Int64Range(0, held.Input).Draw(t, "input"), InputKnown: rapid.Bool().Draw(t, "told"),
			Output: rapid.Int64Range(0, most).Draw(t, "output"), OutputKnown: rapid.Bool().Draw(t, "told output"),
		}
		u.CacheRead = rapid.Int64Range(0, u.Input).Draw(t, "read")
		u.Final = u.InputKnown && u.OutputKnown && rapid.Bool().Draw(t, "final")
		before, after := p.Admission(c, held), p.Settlement(c, held, u)
		for i := range before {
			if after[i].Unit != before[i].Unit || after[i].N > before[i].N {
				t.Fatalf("admitted with %v, settled with %v", before, after)
			}
			least := int64(0)
			switch {
			case after[i].Unit == llm.UnitTokens:
				least = most // what OpenAI counted at the start
				if u.InputKnown {
					least = max(least, u.Input+u.Output)
				}
			case after[i].Unit == llm.UnitOutputTokens:
				least = u.Output
			case after[i].Unit == llm.UnitInputTokens && !u.InputKnown:
				least = held.Input
			case after[i].Unit == llm.UnitInputTokens && a.name == "gemini":
				least = u.Input
			case after[i].Unit == llm.UnitInputTokens:
				least = u.Input - u.CacheRead
			}
			if after[i].N < least {
				t.Fatalf("settled with %v, the provider counts at least %d", after[i], least)
			}
		}
	})
}

// TestPrices: integer arithmetic, rounded up, with each kind of token at its own price.
func TestPrices(t *testing.T) {
	t.Parallel()
	p := profile(t, "anthropic")
	prices := &llm.Prices{Currency: "USD", Models: map[string]llm.Price{
		"claude-sonnet-4": {Input: 3_000_000, CacheRead: 300_000, CacheWrite: 3_750_000, Output: 15_000_000},
		"free":            {},
		"tiny":            {Input: 1},
		"huge":            {Input: llm.MaxPrice, Output: llm.MaxPrice},
	}}
	cost := func(model string, u llm.Usage) int64 {
		t.Helper()
		unit, n, err := prices.Cost(parse(t, p, "/v1/messages", `{"model":"`+model+`"}`),
			llm.Estimate{Input: 500, Output: 10}, u)
		if err != nil || unit != "usd_micros" {
			t.Fatal(unit, err)
		}
		return n
	}
	for _, c := range []struct {
		model string
		used  llm.Usage
		want  int64
	}{
		{"claude-sonnet-4-5", llm.Usage{
			Input: 1000, InputKnown: true, CacheRead: 400, CacheWrite: 100, Output: 200,
			Final: true,
		}, 500*3 + 120 + 375 + 3000},
		{"claude-sonnet-4-5", llm.Usage{Output: 1}, 1500 + 150},
		{"claude-sonnet-4-5", llm.Usage{Output: 1, Ended: true}, 1500 + 15},
		{"free", llm.Usage{Input: 1000, InputKnown: true}, 0},
		{"tiny", llm.Usage{Input: 1, InputKnown: true}, 1},
		{"tiny", llm.Usage{Input: 1_000_001, InputKnown: true}, 2},
		{
			"huge",
			llm.Usage{Input: drawgate.MaxAmount, InputKnown: true, Output: drawgate.MaxAmount},
			drawgate.MaxAmount,
		},
		{"tiny", llm.Usage{Input: -5, InputKnown: true, CacheRead: 7}, 0},
	} {
		if got := cost(c.model, c.used); got != c.want {
			t.Errorf("%s %+v: %d, want %d", c.model, c.used, got, c.want)
		}
	}
	call := parse(t, p, "/v1/messages", `{"model":"claude-sonnet-4-5"}`)
	if _, n, err := prices.Hold(call, llm.Estimate{Input: 1000, Output: 100}); err != nil || n != 3750+1500 {
		t.Errorf("hold %d %v, want all input at the price of a cache write", n, err)
	}
	call.Model, call.Family = "other", "other"
	if _, _, err := prices.Cost(call, llm.Estimate{}, llm.Usage{}); err == nil ||
		!strings.HasPrefix(err.Error(), `llm: model "other" has no price`) {
		t.Errorf("a model without a price: %v", err)
	}
	for text, want := range map[string]int64{
		"2.50": 2_500_000, "0.075": 75_000, "15": 15_000_000, "0": 0,
		".5": 500_000, "1000000": llm.MaxPrice,
	} {
		if got, err := llm.ParsePrice(text); err != nil || got != want {
			t.Errorf("%q is %d (%v), want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", ".", "1.", "-1", "1e3", "1,5", "0.0000001", "10000000", "1000001", "x"} {
		if n, err := llm.ParsePrice(text); err == nil {
			t.Errorf("%q is %d", text, n)
		}
	}
}

// TestOtherModelsAreNoVersions: a model whose name begins with that of a cheaper one is not
// counted, and does not cost, as that.
func TestOtherModelsAreNoVersions(t *testing.T) {
	t.Parallel()
	for name, others := range map[string][]string{
		"gpt-5":            {"gpt-5-pro", "gpt-5-pro-2025-10-06", "gpt-5.1", "gpt-5.3-2026-01-01", "gpt-5.4-pro"},
		"gpt-5.4":          {"gpt-5.4-pro"},
		"gpt-4":            {"gpt-4.5-preview", "gpt-4o-audio-preview-2025-06-03"},
		"gpt-4o":           {"gpt-4o-audio-preview", "gpt-4o-search-preview", "gpt-4o-mini-audio-preview"},
		"gpt-4o-mini":      {"gpt-4o-mini-audio-preview", "gpt-4o-mini-search-preview"},
		"o1":               {"o1-pro-2025-03-19", "o1-mini"},
		"o3":               {"o3-pro", "o3-mini", "o3-deep-research"},
		"gemini-2.5-flash": {"gemini-2.5-flash-image", "gemini-2.5-flash-preview-tts"},
	} {
		p := llm.OpenAI()
		if name == "gemini-2.5-flash" {
			p = llm.Gemini()
		}
		prices := llm.Prices{Currency: "usd", Models: map[string]llm.Price{name: {Input: 1, Output: 1}}}
		for _, other := range others {
			c := &llm.Call{Operation: llm.OpChat, Model: other, Family: p.Family(other).Name}
			if _, _, err := prices.Hold(c, llm.Estimate{Input: 1}); err == nil || c.Family == name {
				t.Errorf("%s is of the family %s, and costs what %s does", other, c.Family, name)
			}
		}
		if dated := p.Family(name + "-2026-01-01").Name; dated != name {
			t.Errorf("a dated version of %s is of the family %s", name, dated)
		}
	}
}

// TestPricesOfTunedModels: a fine-tuned model does not cost what the model does that it is made of.
func TestPricesOfTunedModels(t *testing.T) {
	t.Parallel()
	p := llm.OpenAI()
	c := &llm.Call{
		Operation: llm.OpChat, Model: "ft:gpt-4o-2024-08-06:acme::1",
		Family: p.Family("ft:gpt-4o-2024-08-06:acme::1").Name,
	}
	prices := llm.Prices{Currency: "usd", Models: map[string]llm.Price{"gpt-4o": {Input: 1_000_000}}}
	if _, _, err := prices.Hold(c, llm.Estimate{Input: 1}); err == nil {
		t.Error("it costs what gpt-4o does, want an error")
	}
	for _, name := range []string{"ft:gpt-4o", "ft:gpt-4o-2024-08-06", c.Model} {
		prices.Models = map[string]llm.Price{name: {Input: 3_000_000}}
		if _, micros, err := prices.Hold(c, llm.Estimate{Input: 1}); err != nil || micros != 3 {
			t.Errorf("with a price of %s: %d, %v, want 3", name, micros, err)
		}
	}
}

// TestPricesOfVariants: what a name has behind a colon may cost more than the model, and so do some
// of its versions.
func TestPricesOfVariants(t *testing.T) {
	t.Parallel()
	p := llm.OpenAI()
	for _, name := range []string{
		"openai/gpt-4o:online", "gpt-4o:online", "gpt-4o:ft-acme-2023-01-01", "openai/gpt-4o-2024-05-13",
		"chatgpt-4o-latest",
	} {
		c := &llm.Call{Operation: llm.OpChat, Model: name, Family: p.Family(name).Name}
		prices := llm.Prices{Currency: "usd", Models: map[string]llm.Price{"gpt-4o": {Input: 1_000_000}}}
		if _, _, err := prices.Hold(c, llm.Estimate{Input: 1}); err == nil {
			t.Errorf("%s costs what gpt-4o does, want an error", name)
		}
		for _, own := range []string{name, strings.TrimPrefix(name, "openai/")} {
			prices.Models = map[string]llm.Price{own: {Input: 3_000_000}}
			if _, micros, err := prices.Hold(c, llm.Estimate{Input: 1}); err != nil || micros != 3 {
				t.Errorf("with a price of %s: %d, %v, want 3", own, micros, err)
			}
		}
	}
}

// TestPricesOfOldOpus: the first versions of Opus 4 cost three times as much as later ones, and
// need prices of their own beside that of their family.
func TestPricesOfOldOpus(t *testing.T) {
	t.Parallel()
	p := llm.Anthropic()
	prices := llm.Prices{Currency: "usd", Models: map[string]llm.Price{"claude-opus-4": {Input: 5_000_000}}}
	for name, same := range map[string]bool{
		"claude-opus-4-0": false, "claude-opus-4-20250514": false, "claude-opus-4-1": false,
		"claude-opus-4-1-20250805": false, "claude-opus-4-5": true, "claude-opus-4-5-20251101": true,
		"claude-opus-4-8": true,
	} {
		c := &llm.Call{Operation: llm.OpMessages, Model: name, Family: p.Family(name).Name}
		if _, _, err := prices.Hold(c, llm.Estimate{Input: 1}); (err == nil) != same {
			t.Errorf("%s at the price of its family: %v", name, err)
		}
	}
}

// TestSearchesOfCutStreams: what a stream told first of its prompt is not all of it if the model
// searches: the results are told at the end.
func TestSearchesOfCutStreams(t *testing.T) {
	t.Parallel()
	p := profile(t, "anthropic")
	start := "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":20,\"output_tokens\":1}}}\n\n"
	end := "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"input_tokens\":9000,\"output_tokens\":5}}\n\ndata: {\"type\":\"message_stop\"}\n\n"
	held := llm.Estimate{Input: 10_000, Output: 100}
	for tool, want := range map[string][2]int64{"web_search_20250305": {10_000, 9000}, "custom": {20, 9000}} {
		c := parse(t, p, "/v1/messages", `{"stream":true,"messages":[],"tools":[{"type":"`+tool+`","name":"x"}]}`)
		for i, text := range []string{start, start + end} {
			s := read(p, c, text)
			if got := p.Settlement(c, held, s.Usage()); got[1].N != want[i] {
				t.Errorf("%s after %q: settled with %v, want %d input tokens", tool, text, got, want[i])
			}
		}
	}
}

// TestCitationsOfCutStreams: what the model quotes, and what it writes in place of the prompt, are
// output as well where nothing is told of it.
func TestCitationsOfCutStreams(t *testing.T) {
	t.Parallel()
	p := profile(t, "anthropic")
	c := parse(t, p, "/v1/messages", `{"model":"claude-sonnet-4-5","max_tokens":1000,"stream":true,"messages":[]}`)
	for delta, least := range map[string]int64{
		`{"type":"citations_delta","citation":{"type":"char_location","cited_text":"a few words","document_index":0}}`: 11,
		`{"type":"compaction_delta","content":"a few words"}`:                                                          11,
		`{"type":"signature_delta","signature":"EqoBCkgIARAB"}`:                                                        0,
	} {
		s := read(p, c, "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":20,\"output_tokens\":1}}}\n\n"+
			"data: {\"type\":\"content_block_delta\",\"delta\":"+delta+"}\n\n")
		if n := outputOf(c, p.Upper(c), s.Usage()); n < least || n > least+20 {
			t.Errorf("%s: %d tokens of output, want at least %d", delta, n, least)
		}
	}
}

// outputOf returns the tokens of output that a call is settled with.
func outputOf(c *llm.Call, held llm.Estimate, u llm.Usage) int64 {
	prices := &llm.Prices{Currency: "usd", Models: map[string]llm.Price{c.Model: {Output: 1_000_000}}}
	_, n, err := prices.Cost(c, held, u)
	if err != nil {
		return -1
	}
	return n
}

// TestAnswersInUnknownFields: the output of an answer that has no usage, and its text where nobody
// looks for it, is not free. It counts as its bytes, and never as more than was reserved.
//
// req: B12 C1
func TestAnswersInUnknownFields(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("x", 300)
	models := map[string]string{"openai": "gpt-4o", "anthropic": "claude-sonnet-4-5"}
	for name, path := range map[string]string{
		"openai": "/v1/chat/completions", "anthropic": "/v1/messages",
		"gemini": "/v1beta/models/gemini-2.0-flash:generateContent",
	} {
		for most, want := range map[string]int64{"100": 100, "1000": 325} { // the bytes of the answer
			p := profile(t, name)
			c := parse(t, p, path, `{"model":"`+models[name]+`","max_tokens":`+most+`}`)
			if name == "gemini" {
				c = parse(t, p, path, `{"generationConfig":{"maxOutputTokens":`+most+`}}`)
			}
			held := p.Upper(c)
			stream := `data: {"answer":"` + text + `"}` + "\n\n" +
				`data: {"type":"message_stop","candidates":[{"finishReason":"STOP"}]}` + "\n\ndata: [DONE]\n\n"
			if u := read(p, c, stream).Usage(); !u.Ended || outputOf(c, held, u) != held.Output {
				t.Errorf("%s, a stream of at most %s: %d tokens of output, want %d (%+v)", name, most,
					outputOf(c, held, u), held.Output, u)
			}
			u := read(p, c, `{"model":"m","answer":"`+text+`"}`).Usage()
			if n := outputOf(c, held, u); n != want {
				t.Errorf("%s, of at most %s: %d tokens of output, want %d", name, most, n, want)
			}
		}
	}
}
