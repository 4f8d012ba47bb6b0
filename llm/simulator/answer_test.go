package simulator_test

import (
	"testing"
)

// TestShapes: the fields that clients read, of each operation.
func TestShapes(t *testing.T) {
	t.Parallel()
	const steer = "simulate: output=3"
	for name, c := range map[string]struct {
		path, body string
		want       map[string]any
	}{
		"chat": {chatPath, chat(steer), map[string]any{
			"object": "chat.completion", "choices.0.message.content": "the gate lets",
			"choices.0.finish_reason": "stop",
			"usage.prompt_tokens":     13.0, "usage.completion_tokens": 3.0, "usage.total_tokens": 16.0,
		}},
		"chat, cut off by the bound": {chatPath, chat(steer, `"max_tokens":2`, `"n":2`), map[string]any{
			"choices.1.message.content": "the gate", "choices.1.finish_reason": "length",
			"usage.completion_tokens": 4.0,
		}},
		"responses": {responsePath, `{"model":"gpt-4.1","input":"simulate: output=3 thoughts=5"}`, map[string]any{
			"object": "response", "status": "completed", "output.0.content.0.text": "the gate lets",
			"output.0.type":       "message",
			"usage.output_tokens": 8.0, "usage.output_tokens_details.reasoning_tokens": 5.0,
		}},
		"responses, cut off by the bound": {
			responsePath, `{"model":"gpt-4.1","input":"x","max_output_tokens":16}`,
			map[string]any{
				"status": "incomplete", "incomplete_details.reason": "max_output_tokens",
				"output.0.status":     "incomplete",
				"usage.output_tokens": 16.0,
			},
		},
		"embeddings": {
			embedPath, `{"model":"text-embedding-3-small","input":["one","two"],"dimensions":2}`,
			map[string]any{
				"object": "list", "data.1.index": 1.0, "data.1.embedding.1": 1.0, "data.1.embedding.0": 0.0,
				"usage.prompt_tokens": 2.0,
			},
		},
		"embeddings in base64": {
			embedPath,
			`{"model":"text-embedding-3-small","input":"one","dimensions":2,"encoding_format":"base64"}`,
			map[string]any{
				"data.0.embedding": "AACAPwAAAAA=",
			},
		},
		"messages": {messagePath, message("simulate: output=3 cache_read=4 cache_write=2"), map[string]any{
			"type": "message", "content.0.text": "the gate lets", "stop_reason": "end_turn",
			"usage.cache_read_input_tokens": 4.0, "usage.cache_creation_input_tokens": 2.0, "usage.output_tokens": 3.0,
		}},
		"messages, of which the cache has more than there is": {
			messagePath,
			message("simulate: cache_read=400 cache_write=9"),
			map[string]any{
				"usage.cache_read_input_tokens": 20.0, "usage.cache_creation_input_tokens": 0.0,
				"usage.input_tokens": 0.0,
			},
		},
		"messages, cut off by the bound": {
			messagePath, message(steer, `"max_tokens":1`),
			map[string]any{"stop_reason": "max_tokens", "content.0.text": "the"},
		},
		"counting": {
			countPath, message("one", `"tools":[]`),
			map[string]any{"input_tokens": 8.0},
		},
		"gemini": {geminiPath, contents("simulate: output=3 thoughts=7"), map[string]any{
			"candidates.0.content.parts.0.text": "the gate lets", "candidates.0.finishReason": "STOP",
			"usageMetadata.candidatesTokenCount": 3.0, "usageMetadata.thoughtsTokenCount": 7.0,
		}},
		"gemini, cut off by the bound": {
			geminiPath, contents(steer, `"generationConfig":{"maxOutputTokens":2}`),
			map[string]any{"candidates.0.finishReason": "MAX_TOKENS"},
		},
		"gemini's counting": {tokensPath, contents("one"), map[string]any{"totalTokens": 8.0}},
		"generic": {
			genericPath, `{"a":[{"b":"simulate: output=3"}]}`,
			map[string]any{"model": "anything", "output": "the gate lets", "usage.output_tokens": 3.0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, nil)
			got := post(t, s, c.path, c.body)
			if got.status != 200 || got.err != nil {
				t.Fatalf("got %d %s, %v", got.status, got.body, got.err)
			}
			for path, want := range c.want {
				if v := at(t, got.body, path); v != want {
					t.Errorf("%s is %v, want %v, in %s", path, v, want, got.body)
				}
			}
		})
	}
}
