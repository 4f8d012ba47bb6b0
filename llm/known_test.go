package llm_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/drawgate/drawgate/llm"
)

// Beginnings of files, in base64.
const (
	aPNG   = "iVBORw0KGgoA"
	aWave  = "UklGRgAAAABXQVZF"
	aVideo = "AAAAGGZ0eXBtcDQy"
	aPDF   = "JVBERi0xLjQK"
)

// TestWhatIsNotUnderstoodCostsTheMost: tools, modalities, references to what the provider has, and
// anything that is not known, written in whatever way: the call reserves the model's whole context
// or more, or is refused where prices hold. Claims about itself do not lower what it reserves.
//
// req: B12 C1
func TestWhatIsNotUnderstoodCostsTheMost(t *testing.T) {
	t.Parallel()
	const (
		whole   = 1 // the whole context is reserved
		refused = 2 // with prices
		both    = whole | refused
	)
	gemini := func(fields string) [3]string {
		return [3]string{
			"gemini", "/v1beta/models/gemini-2.5-flash:generateContent",
			`{"contents":[{"parts":[{"text":"Hello!"}]}],` + fields + `}`,
		}
	}
	part := func(part string) [3]string {
		return [3]string{"gemini", "/v1beta/models/gemini-2.5-flash:generateContent", `{"contents":[{"parts":[` +
			part + `]}]}`}
	}
	item := func(item string) [3]string {
		return [3]string{
			"openai", "/v1/responses",
			`{"model":"gpt-5","max_output_tokens":5,"input":[{"role":"user","content":"Hello!"},` + item + `]}`,
		}
	}
	response := func(fields string) [3]string {
		return [3]string{"openai", "/v1/responses", `{"model":"gpt-5","max_output_tokens":5,"input":"Hello!",` +
			fields + `}`}
	}
	chat := func(fields string) [3]string {
		return [3]string{
			"openai", "/v1/chat/completions",
			`{"model":"gpt-5","max_completion_tokens":5,"messages":[{"role":"user","content":"Hello!"}],` + fields +
				`}`,
		}
	}
	block := func(block string) [3]string {
		return [3]string{
			"anthropic", "/v1/messages",
			`{"model":"claude-opus-4-1","max_tokens":5,"messages":[{"role":"user","content":[` + block + `]}]}`,
		}
	}
	message := func(fields string) [3]string {
		return [3]string{
			"anthropic", "/v1/messages",
			`{"model":"claude-opus-4-1","max_tokens":5,"messages":[{"role":"user","content":"Hello!"}],` + fields + `}`,
		}
	}
	result := func(inner string) string { return `{"type":"tool_result","tool_use_id":"t","content":[` + inner + `]}` }
	contexts := map[string]int64{"openai": 400_000, "anthropic": 1_000_000, "gemini": 1_048_576}
	for _, c := range []struct {
		call [3]string
		want int
	}{
		// FINDINGS of Gemini's tools and modalities.
		{gemini(`"tools":{"googleSearch":{}}`), both},
		{gemini(`"tools":[{"googleSearch":{}}]`), both},
		{gemini(`"tools":[{"google_search":{}}]`), both},
		{gemini(`"tools":[{"googleSearch":true}]`), both},
		{gemini(`"tools":[[{"googleSearch":{}}]]`), both},
		{gemini(`"tools":[{"GoogleSearch":{}}]`), both},
		{gemini(`"tools":[{"functionDeclarations":[],"enterpriseWebSearch":{}}]`), both},
		{gemini(`"tools":[{"retrieval":{}}]`), both},
		{gemini(`"tools":[{"mcpServers":[{"name":"a"}]}]`), both},
		{gemini(`"tools":[{"fileSearch":{"fileSearchStoreNames":["a"]}}]`), both},
		{gemini(`"tools":{"fileSearch":{}}`), both},
		{gemini(`"tools":["googleSearch"]`), both},
		{gemini(`"tools":"googleSearch"`), both},
		{gemini(`"tools":{"urlContext":{}}`), whole},
		{gemini(`"tools":[{"codeExecution":{}}]`), whole},
		{gemini(`"tools":{"functionDeclarations":{"name":"f","description":"d"}}`), 0},
		{gemini(`"generationConfig":{"responseModalities":["AUDIO"]}`), refused},
		{gemini(`"generationConfig":{"responseModalities":["IMAGE"]}`), refused},
		{gemini(`"generationConfig":{"responseModalities":"AUDIO"}`), both},
		{gemini(`"generationConfig":{"response_modalities":[2]}`), refused},
		{gemini(`"generationConfig":{"responseModalities":["text","TEXT"]}`), 0},
		{gemini(`"generationConfig":[{"maxOutputTokens":5}]`), both},
		{gemini(`"generationConfig":{"routingConfig":{"manualMode":{"modelName":"gemini-3-pro"}}}`), both},
		{gemini(`"continuationToken":"a"`), both},
		{gemini(`"cachedContent":"cachedContents/a"`), both},
		{part(`{"inlineData":{"mimeType":"AUDIO/wav","data":"` + aWave + `"}}`), refused},
		{part(`{"inlineData":{"mimeType":"image/png","data":"` + aWave + `"}}`), both},
		{part(`{"inlineData":{"mimeType":"image/png","data":"` + aVideo + `"}}`), both},
		{part(`{"inlineData":{"mimeType":"application/pdf","data":"` + aPNG + `"}}`), both},
		{part(`{"inlineData":{"mimeType":"IMAGE/png","data":"` + aPNG + `"}}`), 0},
		{part(`{"inlineData":{"mimeType":"application/pdf","data":"` + aPDF + `"}}`), whole},
		{part(`{"fileData":{"mimeType":"image/png","fileUri":"https://a.test/files/a"}}`), both},
		{part(`{"fileData":{"mimeType":"text/plain","fileUri":"files/a"}}`), both},
		{part(`{"inlineData":{"mimeType":"image/png","data":"` + aPNG + `","fileUri":"files/a"}}`), both},
		{part(`{"text":"a","somethingNew":{"id":"a"}}`), both},
		{part(`"text"`), both},

		// Of items that the provider has.
		{item(`{"type":"item_reference","id":"x"}`), whole},
		{item(`{"type":"item_reference","id":"x","status":"a"}`), whole},
		{item(`{"status":null,"content":null,"id":"x","type":"item_reference"}`), whole},
		{item(`{"id":"x","status":"a","phase":null}`), whole},
		{item(`{"type":null,"id":"x","a":1}`), both},
		{item(`{"type":"message","id":"x","role":"assistant","status":"completed"}`), whole},
		{item(`{"type":"message","id":"x","role":"assistant","content":[]}`), whole},
		{item(`{"type":"message","id":"x","role":"assistant","content":null,"output":"a"}`), whole},
		{item(`{"type":["message"],"id":"x","role":"user","content":"a"}`), both},
		{item(`{"type":"MESSAGE","role":"user","content":"a"}`), both},
		{item(`{"type":"something_new","id":"x","content":"a"}`), both},
		{item(`[{"type":"item_reference","id":"x"}]`), both},
		{item(`{"type":"code_interpreter_call","id":"x","container_id":"c","code":"a","outputs":[]}`), whole},
		{item(`{"role":"user","content":[{"type":"input_file","file_id":"f"}]}`), whole},
		{item(`{"role":"user","content":{"type":"input_image","file_id":"f"}}`), whole},
		{item(`{"role":"user","content":[{"type":"something_new","text":"a"}]}`), both},
		{item(`{"type":"message","id":"x","role":"assistant","content":[{"type":"output_text","text":"a"}]}`), 0},
		{item(`{"type":"function_call_output","call_id":"x","output":"a"}`), 0},
		{response(`"previous_response_id":"r"`), whole},
		{response(`"conversation":{"id":"r"}`), whole},
		{response(`"prompt":{"id":"r"}`), both},
		{response(`"instructions":[{"role":"developer","content":[{"type":"input_file","file_id":"f"}]}]`), both},
		{response(`"instructions":{"role":"developer","content":"a"}`), both},
		{response(`"instructions":["a"]`), both},
		{response(`"instructions":null`), 0},
		{response(`"instructions":"a"`), 0},
		{response(`"context_management":[{"type":"compaction"}]`), both},
		{response(`"tools":{"type":"web_search"}`), both},
		{response(`"tools":[{"type":"web_search_2025_08_26"}]`), both},
		{response(`"tools":[{"type":"namespace","name":"n","tools":[{"type":"file_search"}]}]`), both},
		{response(`"tools":[{"type":"customer_service"}]`), both},
		{response(`"tools":[{"type":"function_shell"}]`), both},
		{response(`"tools":[{"name":"f"}]`), both},
		{response(`"tools":["web_search"]`), both},
		{response(`"tools":[[{"type":"web_search"}]]`), both},
		{response(`"tools":[{"type":"mcp","server_label":"a"}]`), whole},
		{response(`"tools":[{"type":"function","name":"f","parameters":{"type":"web_search"}}]`), 0},
		{chat(`"modalities":"audio"`), both},
		{chat(`"web_search_options":{}`), both},
		{chat(`"something_new":1`), both},
		{chat(`"functions":[{"name":"f"}],"function_call":"auto"`), 0},
		{chat(`"functions":"f"`), both},
		{
			[3]string{
				"openai", "/v1/chat/completions",
				`{"model":"gpt-5","messages":[{"role":"user","content":[{"type":"file","file":{"file_id":"f"}}]}]}`,
			},
			whole,
		},
		{[3]string{"openai", "/v1/chat/completions", `{"model":"gpt-5","messages":[{"role":"user",` +
			`"content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,` + aPDF + `"}}]}]}`}, whole},
		{[3]string{"openai", "/v1/chat/completions", `{"model":"gpt-5","messages":[{"role":"user",` +
			`"content":[{"type":"image_url","image_url":{"url":"file-1"}}]}]}`}, whole},
		{[3]string{"openai", "/v1/chat/completions", `{"model":"gpt-5","messages":[{"role":"user",` +
			`"content":[{"type":"image_url","image_url":{"url":"HTTPS://a.test/b.png"}}]}]}`}, 0},
		{[3]string{"openai", "/v1/embeddings", `{"model":"text-embedding-3-small","input":[[1,2,3],[4]]}`}, 0},

		// Of Claude's blocks.
		{block(`{"type":"document","source":{"type":"file","file_id":"f"}}`), whole},
		{block(`{"type":"document","source":{"type":"file","file_id":"f","media_type":"image/png"}}`), whole},
		{block(`{"type":"image","source":{"type":"file","file_id":"f"}}`), whole},
		{block(`{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + aPDF + `"}}`), whole},
		{block(`{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + aPNG +
			`","url":"https://a.test/b"}}`), whole},
		{
			block(`{"type":"document","source":{"type":"text","media_type":"text/plain","data":"a","file_id":"f"}}`),
			whole,
		},
		{block(`{"source":{"url":"https://a.test/b","type":"url"},"type":"document"}`), whole},
		{block(`{"source":{"url":"https://a.test/b","type":"url"},"type":"image"}`), 0},
		{block(`{"source":"file_1","type":"document"}`), whole},
		{block(result(result(result(`{"type":"document","source":{"type":"url","url":"https://a.test/b"}}`)))), whole},
		{block(result(result(result(`{"type":"text","text":"a"}`)))), 0},
		{block(result(result(result(result(result(`{"type":"something_new","text":"a"}`)))))), both},
		{block(`{"type":"container_upload","file_id":"f"}`), both},
		{block(`{"type":"TEXT","text":"a"}`), both},
		{block(`{"type":"text","text":"a","file":"f"}`), both},
		// SDKs write fields that are not set, when the answers of models are sent back to them.
		{block(`{"type":"tool_use","id":"x","name":"f","input":{},"caller":null,"toolset_name":null,"zz":null}`), 0},
		{block(`{"type":"tool_use","id":"x","name":"f","input":{},"toolset_name":"t"}`), 0},
		{block(`{"type":"tool_use","id":"x","name":"f","input":{},"zz":{}}`), both},
		{block(`{"type":"tool_search_tool_result","tool_use_id":"x",` +
			`"content":{"type":"tool_search_tool_search_result","tool_references":[{"type":"tool_reference",` +
			`"tool_name":"f"}]}}`), 0},
		{message(`"zz":null`), 0},
		{message(`"zz":null,"zz":1`), both},
		{chat(`"zz": null`), 0},
		{item(`{"type":"function_call","arguments":"{}","call_id":"c","name":"f","async_":null,"namespace":null}`), 0},
		{gemini(`"zz":null,"tools":[{"enterpriseWebSearch":null}]`), 0},
		{message(`"container":"c"`), whole},
		{message(`"tools":[{"type":"web_search_20250305","name":"web_search"}]`), both},
		{message(`"tools":[{"type":"web_search_2025","name":"web_search"}]`), both},
		{message(`"tools":{"type":"web_search_20250305","name":"web_search"}`), both},
		{message(`"tools":[{"type":"bash_20250124_web_search","name":"bash"}]`), both},
		{message(`"tools":[{"name":"web_search"}]`), both},
		{message(`"tools":[{"type":"bash_20250124","name":"bash"}]`), 0},
		{message(`"mcp_servers":{"type":"url","url":"https://a.test"}`), whole},
		{message(`"context_management":{"edits":[{"type":"compact_20260112"}]}`), both},
		{message(`"context_management":{"edits":[{"type":"clear_tool_uses_20250919"}]}`), 0},
	} {
		p := profile(t, c.call[0])
		call := parse(t, p, c.call[1], c.call[2])
		e := p.Upper(call)
		_, _, err := prices(call.Model).Hold(call, e)
		f := p.Family(call.Model)
		got := 0
		if e.Input >= min(contexts[c.call[0]], f.Context) {
			got |= whole
		}
		if errors.Is(err, llm.ErrUnpriced) {
			got |= refused
		}
		if got != c.want {
			t.Errorf("%v: %d tokens are reserved and prices say %v, want %d", fmt.Sprint(c.call), e.Input, err, c.want)
		}
		if call.Unknown > 0 && e.Output < f.MaxOutput {
			t.Errorf("%v: %d tokens of output, want %d", c.call, e.Output, f.MaxOutput)
		}
	}
}
