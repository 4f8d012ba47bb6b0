package chat_test

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/drawgate/drawgate/benchmarks/internal/chat"
	"github.com/drawgate/drawgate/llm/simulator"
)

// TestPromptIsChargedByItsTokens: both rules of counting a prompt give the same, its tokens.
func TestPromptIsChargedByItsTokens(t *testing.T) {
	t.Parallel()
	var q struct {
		Messages []struct {
			Content string `json:"content"`
		} `json:"messages"`
	}
	if err := json.Unmarshal(chat.Body(4000, false, false), &q); err != nil {
		t.Fatal(err)
	}
	text := q.Messages[0].Content
	if tokens, characters := simulator.CountTokens(text), utf8.RuneCountInString(text); 4*tokens < characters {
		t.Errorf("%d tokens, but %d characters", tokens, characters)
	}
}
