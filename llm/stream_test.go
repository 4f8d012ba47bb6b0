package llm_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/drawgate/drawgate/llm"
)

// answers are what providers send, and what is to be read in them.
var answers = []struct {
	name, profile, path, request string
	answer                       string
	want                         llm.Usage
	ended                        bool
	delivered                    int64 // bytes
}{
	{
		"a chat", "openai", "/v1/chat/completions", `{"model":"gpt-4o"}`,
		`{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":"Hello!"},"finish_reason":"stop"}],"usage":{"prompt_tokens":19,"completion_tokens":10,"total_tokens":29,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":3}}}`,
		llm.Usage{
			Input: 19, InputKnown: true, CacheRead: 4, Output: 10, OutputKnown: true, Reasoning: 3, Total: 29,
			Final: true,
		},
		true, 6,
	},
	{
		"a chat whose reasoning is beside its output", "openai", "/v1/chat/completions", `{"model":"grok-4"}`,
		`{"choices":[{"message":{"content":"Hello!"},"finish_reason":"stop"}],"usage":{"prompt_tokens":32,"completion_tokens":9,"total_tokens":135,"completion_tokens_details":{"reasoning_tokens":94}}}`,
		llm.Usage{Input: 32, InputKnown: true, Output: 103, OutputKnown: true, Reasoning: 94, Total: 135, Final: true},
		true, 6,
	},
	{
		"a chat whose total has more than its parts", "openai", "/v1/chat/completions", `{"model":"gemini-2.5-pro"}`,
		`{"choices":[{"message":{"content":"Hello!"},"finish_reason":"stop"}],"usage":{"prompt_tokens":8,"completion_tokens":10,"total_tokens":520}}`,
		llm.Usage{Input: 8, InputKnown: true, Output: 512, OutputKnown: true, Total: 520, Final: true},
		true, 6,
	},
	{
		"a chat that tells no total", "openai", "/v1/chat/completions", `{"model":"grok-4"}`,
		`{"choices":[{"message":{"content":"Hello!"},"finish_reason":"stop"}],"usage":{"prompt_tokens":32,"completion_tokens":9,"completion_tokens_details":{"reasoning_tokens":94}}}`,
		llm.Usage{Input: 32, InputKnown: true, Output: 103, OutputKnown: true, Reasoning: 94, Final: true},
		true, 6,
	},
	{
		"a chat in pieces", "openai", "/v1/chat/completions",
		`{"model":"gpt-4o","stream":true,"stream_options":{"include_usage":true}}`,
		"data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}],\"usage\":null}\n\n" +
			"data: {\"choices\":[{\"delta\":{\"content\":\"Hel\\u006co\"},\"finish_reason\":null}],\"usage\":null,\"obfuscation\":\"abcdefgh\"}\n\n" +
			"data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":null}\n\n" +
			"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":2,\"total_tokens\":7}}\n\ndata: [DONE]\n\n",
		llm.Usage{Input: 5, InputKnown: true, Output: 2, OutputKnown: true, Total: 7, Final: true},
		true, 5,
	},
	{
		"a chat that is cut off", "openai", "/v1/chat/completions", `{"model":"gpt-4o","stream":true}`,
		"data: {\"choices\":[{\"delta\":{\"content\":\"Hello\"},\"finish_reason\":null}],\"usage\":null}\r\n\r\ndata: {\"choices\":[{\"delta\":{\"content\":\" wor",
		llm.Usage{Output: 11},
		false, 9,
	},
	{
		"a server that fills in zeros", "openai", "/v1/responses", `{"model":"gpt-5"}`,
		`{"output":[{"content":[{"text":"Hello"}]}],"error":null,"status":"completed","usage":{"input_tokens":0,"output_tokens":0,"total_tokens":0}}`,
		llm.Usage{Output: 139}, // the answer's bytes
		true, 5,
	},
	{
		"a stream that does not tell its usage", "openai", "/v1/chat/completions", `{"model":"gpt-4o","stream":true}`,
		"data: {\"choices\":[{\"delta\":{\"content\":\"Hello\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
		llm.Usage{Output: 6},
		true, 5,
	},
	{
		"a server that tells the usage so far, cut off", "openai", "/v1/chat/completions",
		`{"model":"gpt-4o","stream":true}`,
		"data: {\"choices\":[{\"delta\":{\"content\":\"Hello\"},\"finish_reason\":null}],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":1,\"total_tokens\":6}}\n\n",
		llm.Usage{Input: 5, InputKnown: true, Output: 6, OutputKnown: true, Total: 6},
		false, 5,
	},
	{
		"responses in pieces", "openai", "/v1/responses", `{"model":"gpt-5","stream":true}`,
		": comment\nevent: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"usage\":null,\"error\":null}}\n\n" +
			"event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"Hi\"}\n\n" +
			"event: response.output_text.done\ndata: {\"type\":\"response.output_text.done\",\"text\":\"Hi\"}\n\n" +
			"event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"output\":[{\"content\":[{\"text\":\"Hi\"}]}],\"error\":null,\"usage\":{\"input_tokens\":37,\"input_tokens_details\":{\"cached_tokens\":30},\"output_tokens\":11,\"output_tokens_details\":{\"reasoning_tokens\":9},\"total_tokens\":48}}}\n\n",
		llm.Usage{
			Input: 37, InputKnown: true, CacheRead: 30, Output: 11, OutputKnown: true, Reasoning: 9, Total: 48,
			Final: true,
		},
		true, 2,
	},
	{
		"embeddings", "openai", "/v1/embeddings", `{"model":"text-embedding-3-small","input":"x"}`,
		`{"data":[{"embedding":[0.1,-2e-3]}],"usage":{"prompt_tokens":8,"total_tokens":8}}`,
		llm.Usage{Input: 8, InputKnown: true, OutputKnown: true, Total: 8, Final: true},
		true, 0,
	},
	{
		"a message", "anthropic", "/v1/messages", `{"model":"claude-sonnet-4-5","max_tokens":100}`,
		`{"type":"message","content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"Hi!"},{"type":"tool_use","name":"f","input":{"a":"b"}}],"stop_reason":"end_turn","usage":{"input_tokens":10,"cache_creation_input_tokens":20,"cache_read_input_tokens":30,"output_tokens":7}}`,
		llm.Usage{
			Input: 60, InputKnown: true, CacheRead: 30, CacheWrite: 20, Output: 7, OutputKnown: true,
			Final: true,
		},
		true, 7,
	},
	{
		"a message after compaction, whose usage is told apart", "anthropic", "/v1/messages",
		`{"model":"claude-opus-4-8","max_tokens":100}`,
		`{"type":"message","content":[{"type":"text","text":"Hi!"}],"stop_reason":"end_turn","usage":{"input_tokens":23,"output_tokens":10,` +
			`"iterations":[{"type":"compaction","input_tokens":180,"cache_read_input_tokens":7,"output_tokens":35},{"type":"message","input_tokens":23,"output_tokens":10}]}}`,
		llm.Usage{Input: 210, InputKnown: true, CacheRead: 7, Output: 45, OutputKnown: true, Final: true},
		true, 3,
	},
	{
		"a message in pieces", "anthropic", "/v1/messages",
		`{"model":"claude-sonnet-4-5","max_tokens":100,"stream":true}`,
		"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"stop_reason\":null,\"usage\":{\"input_tokens\":25,\"cache_read_input_tokens\":0,\"output_tokens\":1}}}\n\n" +
			"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"Hello\"}}\n\n" +
			"event: ping\ndata: {\"type\": \"ping\"}\n\n" +
			"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":null},\"usage\":{\"output_tokens\":9}}\n\n" +
			"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":15}}\n\n" +
			"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
		llm.Usage{Input: 25, InputKnown: true, Output: 15, OutputKnown: true, Final: true},
		true, 5,
	},
	{
		"a message that is cut off", "anthropic", "/v1/messages",
		`{"model":"claude-sonnet-4-5","max_tokens":100,"stream":true}`,
		"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":25,\"output_tokens\":1}}}\n\n" +
			"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"Hello\"}}\n\n",
		llm.Usage{Input: 25, InputKnown: true, Output: 6, OutputKnown: true},
		false, 5,
	},
	{
		"a message that is cut off, with more letters than it may have tokens", "anthropic", "/v1/messages",
		`{"model":"claude-sonnet-4-5","max_tokens":4,"stream":true}`,
		"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":25,\"output_tokens\":1}}}\n\n" +
			"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"Hello\"}}\n\n",
		llm.Usage{Input: 25, InputKnown: true, Output: 4, OutputKnown: true},
		false, 5,
	},
	{
		"a message that is cut off after more tokens than it may have", "anthropic", "/v1/messages",
		`{"model":"claude-sonnet-4-5","max_tokens":4,"stream":true}`,
		"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":25,\"output_tokens\":9}}}\n\n" +
			"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"Hello\"}}\n\n",
		llm.Usage{Input: 25, InputKnown: true, Output: 9, OutputKnown: true},
		false, 5,
	},
	{
		"a generation", "gemini", "/v1beta/models/gemini-2.5-flash:generateContent", `{}`,
		`{"candidates":[{"content":{"parts":[{"text":"Hi"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":10,"cachedContentTokenCount":4,"candidatesTokenCount":3,"thoughtsTokenCount":20,"toolUsePromptTokenCount":5,"totalTokenCount":38}}`,
		llm.Usage{
			Input: 15, InputKnown: true, CacheRead: 4, Output: 23, OutputKnown: true, Reasoning: 20, Total: 38,
			Final: true,
		},
		true, 2,
	},
	{
		"a generation in events", "gemini", "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse", `{}`,
		"data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"Hi\"}]}}],\"usageMetadata\":{\"promptTokenCount\":10,\"candidatesTokenCount\":1,\"totalTokenCount\":11}}\r\n\r\n" +
			"data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\" you\"}]},\"finishReason\":\"STOP\"}],\"usageMetadata\":{\"promptTokenCount\":10,\"candidatesTokenCount\":3,\"totalTokenCount\":13}}\r\n\r\n",
		llm.Usage{Input: 10, InputKnown: true, Output: 3, OutputKnown: true, Total: 13, Final: true},
		true, 6,
	},
	{
		"a generation in an array", "gemini", "/v1beta/models/gemini-2.5-flash:streamGenerateContent", `{}`,
		"[{\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"Hi\"}]}}],\"usageMetadata\":{\"promptTokenCount\":10,\"candidatesTokenCount\":1,\"totalTokenCount\":11}}\n,\r\n" +
			"{\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"]\"}]},\"finishReason\":\"STOP\"}],\"usageMetadata\":{\"promptTokenCount\":10,\"candidatesTokenCount\":2,\"totalTokenCount\":12}}\n]\n",
		llm.Usage{Input: 10, InputKnown: true, Output: 2, OutputKnown: true, Total: 12, Final: true},
		true, 3,
	},
	{
		"a message that is cut off, with more bytes than the tokens that it may have", "anthropic", "/v1/messages",
		`{"max_tokens":4,"stream":true}`,
		"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":25,\"output_tokens\":1}}}\n\n" +
			"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"Hello, world\"}}\n\n",
		llm.Usage{Input: 25, InputKnown: true, Output: 4, OutputKnown: true},
		false, 12,
	},
	{
		"a message that is cut off after more than it may have was told", "anthropic", "/v1/messages",
		`{"max_tokens":4,"stream":true}`,
		"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":25,\"output_tokens\":9}}}\n\n",
		llm.Usage{Input: 25, InputKnown: true, Output: 9, OutputKnown: true},
		false, 0,
	},
	{
		"a generation that is cut off", "gemini", "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse", `{}`,
		"data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"Hi\"}]}}],\"usageMetadata\":{\"promptTokenCount\":10,\"candidatesTokenCount\":1,\"totalTokenCount\":11}}\r\n\r\n",
		llm.Usage{Input: 10, InputKnown: true, Output: 3, OutputKnown: true, Total: 11, SoFar: true},
		false, 2,
	},
	{
		"a blocked prompt", "gemini", "/v1beta/models/gemini-2.5-flash:generateContent", `{}`,
		`{"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":10,"totalTokenCount":10}}`,
		llm.Usage{Input: 10, InputKnown: true, Total: 10, Final: true},
		true, 0,
	},
	{
		"an event stream with all its oddities", "openai", "/v1/chat/completions", `{"stream":true}`,
		"\xef\xbb\xbf: hello\rid: 1\rretry\rdata\rdata:{\"choices\":[{\"delta\":{\"content\":\"a\\t\\/\\b\\f\\r\\\"\"}}],\rdata: \"x\":1}\r\r" +
			"a field with a name that is longer than any that we know: x\ndata: not JSON\n\ndata: {\"choices\":[{\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":7}}\n\ndata:[DONE]\n",
		llm.Usage{Input: 5, InputKnown: true, Output: 7, OutputKnown: true, Final: true},
		true, 7,
	},
	{
		"data over several lines", "openai", "/v1/chat/completions", `{"stream":true}`,
		"data: {\"usage\":\r\ndata: {\"prompt_tokens\":5,\r\ndata: \"completion_tokens\":7},\"choices\":[{\"finish_reason\":\"stop\"}]}\r\n\r\n",
		llm.Usage{Input: 5, InputKnown: true, Output: 7, OutputKnown: true, Final: true},
		false, 0,
	},
	{
		"numbers that are no numbers of tokens", "openai", "/v1/chat/completions", `{"model":"gpt-4o"}`,
		`{"choices":[{"message":{"content":"Hello"}}],"usage":{"prompt_tokens":-3,"completion_tokens":1e99,"total_tokens":"7"}}`,
		llm.Usage{Output: 118},
		true, 5,
	},
	{
		"an output of 0 for text", "openai", "/v1/chat/completions", `{"model":"gpt-4o"}`,
		`{"choices":[{"message":{"content":"Hello"}}],"usage":{"prompt_tokens":3,"completion_tokens":0}}`,
		llm.Usage{Input: 3, InputKnown: true, Output: 6},
		true, 5,
	},
}

// read gives an answer to a stream in pieces that end at cuts.
func read(p *llm.Profile, c *llm.Call, answer string, cuts ...int) *llm.Stream {
	s := p.NewStream(c)
	from := 0
	for _, cut := range cuts {
		s.Write([]byte(answer[from:cut]))
		from = cut
	}
	s.Write([]byte(answer[from:]))
	s.Close()
	return s
}

func TestUsageOfAnswers(t *testing.T) {
	t.Parallel()
	for _, a := range answers {
		p := profile(t, a.profile)
		s := read(p, parse(t, p, a.path, a.request), a.answer)
		want := a.want
		want.Ended = a.ended
		if got := s.Usage(); got != want {
			t.Errorf("%s:\ngot  %+v\nwant %+v", a.name, got, want)
		}
		if s.Ended() != a.ended || s.Delivered().Bytes != a.delivered {
			t.Errorf("%s: ended %v and delivered %d bytes, want %v and %d", a.name, s.Ended(), s.Delivered().Bytes,
				a.ended, a.delivered)
		}
		if r, ok := s.Refusal(time.Now()); ok {
			t.Errorf("%s: it is a refusal: %+v", a.name, r)
		}
	}
}

// TestPiecesDoNotMatter: whatever pieces an answer comes in, the same is read, at each point.
func TestPiecesDoNotMatter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.SampledFrom(answers).Draw(t, "answer")
		p, _ := llm.ByName(a.profile)
		c, err := p.Parse(http.MethodPost, a.path, nil, []byte(a.request))
		if err != nil {
			t.Fatal(err)
		}
		text := a.answer[:rapid.IntRange(0, len(a.answer)).Draw(t, "cut off at")]
		var cuts []int
		for at := 0; at < len(text); {
			at = min(at+rapid.IntRange(1, 40).Draw(t, "piece"), len(text))
			cuts = append(cuts, at)
		}
		one, many := read(p, c, text), read(p, c, text, cuts...)
		if one.Usage() != many.Usage() || one.Ended() != many.Ended() || one.Delivered() != many.Delivered() {
			t.Fatalf("%q: in one piece %+v, in pieces %+v", text, one.Usage(), many.Usage())
		}
	})
}

// TestErrorInsideStream: an error after the status 200 is a refusal, and the answer has not come to
// its end.
func TestErrorInsideStream(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		profile, path, answer string
		want                  llm.Meaning
	}{
		{
			"anthropic", "/v1/messages",
			"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n", llm.Overload,
		},
		{
			"anthropic", "/v1/messages",
			"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"rate_limit_error\",\"message\":\"limit of 30,000 input tokens per minute\"}}\n\n", llm.PerMinute,
		},
		{
			"anthropic", "/v1/messages",
			"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"Internal\"}}\n\n",
			llm.Transient,
		},
		{
			"openai", "/v1/chat/completions",
			"data: {\"error\":{\"message\":\"Rate limit reached\",\"type\":\"tokens\",\"code\":\"rate_limit_exceeded\"}}\n\n", llm.PerMinute,
		},
		{
			"openai", "/v1/chat/completions",
			"data: {\"error\":{\"message\":\"x\",\"type\":\"server_error\",\"code\":null}}\n\ndata: [DONE]\n\n",
			llm.Transient,
		},
		{
			"openai", "/v1/responses", "data: {\"type\":\"error\",\"code\":\"insufficient_quota\",\"message\":\"x\"}\n\n",
			llm.Credit,
		},
		{
			"openai", "/v1/responses",
			"data: {\"type\":\"response.failed\",\"response\":{\"error\":{\"code\":\"rate_limit_exceeded\",\"message\":\"x\"}}}\n\n", llm.PerMinute,
		},
		{
			"gemini", "/v1beta/models/g:streamGenerateContent",
			"[{\"error\":{\"code\":429,\"status\":\"RESOURCE_EXHAUSTED\",\"message\":\"x\",\"details\":[{\"@type\":\"type.googleapis.com/google.rpc.QuotaFailure\",\"violations\":[{\"quotaId\":\"GenerateRequestsPerDayPerProjectPerModel-FreeTier\"}]}]}}\n]", llm.PerDay,
		},
		{"gemini", "/v1beta/models/g:streamGenerateContent", "data: {\"error\":{\"code\":503}}\n\n", llm.Overload},
		{
			"gemini", "/v1beta/models/g:streamGenerateContent",
			"data: {\"error\":{\"code\":503,\"status\":\"UNAVAILABLE\",\"message\":\"The model is overloaded.\"}}\n\n",
			llm.Overload,
		},
	} {
		p := profile(t, c.profile)
		s := read(p, parse(t, p, c.path, `{"stream":true}`), c.answer)
		if r, ok := s.Refusal(now); !ok || r.Meaning != c.want {
			t.Errorf("%s: refusal %v %v, want %v", c.answer, ok, r.Meaning, c.want)
		}
		if s.Ended() || s.Usage().Final {
			t.Errorf("%s: it ended properly", c.answer)
		}
	}
}

// TestStreamKeepsNothing: a stream of any length, with lines of any length, needs no more memory
// than a short one.
func TestStreamKeepsNothing(t *testing.T) { // not parallel: it counts allocations
	p := profile(t, "openai")
	s := p.NewStream(parse(t, p, "/v1/chat/completions", `{"stream":true}`))
	piece := []byte(strings.Repeat("abcdefgh", 1024))
	s.Write([]byte(`data: {"choices":[{"delta":{"content":"`))
	s.Write(piece)
	if n := testing.AllocsPerRun(200, func() { s.Write(piece) }); n > 0.5 {
		t.Errorf("%v allocations per piece of a line that does not end", n)
	}
	if got := s.Delivered().Bytes; got < 200*int64(len(piece)) {
		t.Errorf("%d bytes were counted", got)
	}
	s.Write([]byte("\"},\"finish_reason\":\"length\"}]}\n\ndata: {\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}\n\n"))
	if u := s.Usage(); !u.Final || u.Output != 2 {
		t.Errorf("the usage after a long line is %+v", u)
	}
}
