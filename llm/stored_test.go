package llm_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/drawgate/drawgate/llm"
)

// TestItems: an answer tells the ids of its items that later calls name, once and however it is cut
// into pieces: of documents those of the output, of streams those that are complete.
func TestItems(t *testing.T) {
	t.Parallel()
	const items = `{"id":"rs_1","type":"reasoning","summary":[]},{"type":"message","id":"msg_1","content":[{"id":"rs_0","text":"t"}]},` +
		`{"type":"reasoning","encrypted_content":"e","id":"rs_2"},{"encrypted_content":null,"id":"rs_3","type":"reasoning"},` +
		`{"type":"web_search_call","id":"ws_1"},{"type":"mcp_approval_request","id":"mcpr_1","arguments":"{}"},` +
		`{"type":"function_call","id":"fc_1"},{"type":"new","id":"new_1"},{"type":"reasoning"}`
	document := `{"id":"resp_1","metadata":{"item":{"type":"reasoning","id":"rs_9"}},"output":[` + items + `]}`
	var events strings.Builder
	for _, kind := range []string{"added", "done"} {
		fmt.Fprintf(&events, `data: {"item":{"type":"reasoning","id":"rs_%s"},"type":"response.output_item.%s"}`+"\n\n", kind, kind)
	}
	events.WriteString(`data: {"type":"response.completed","response":{"id":"resp_1","output":[` + items + `]}}` + "\n\n")
	rapid.Check(t, func(t *rapid.T) {
		text, want := document, []string{"rs_1", "rs_3", "ws_1", "mcpr_1"}
		if rapid.Bool().Draw(t, "stream") {
			text, want = events.String(), []string{"rs_done"}
		}
		s := llm.OpenAI().NewStream(&llm.Call{Operation: llm.OpResponses})
		var got []string
		for rest := text; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
			s.Write([]byte(rest[:n]))
			got, rest = append(got, s.Items()...), rest[n:]
		}
		if !slices.Equal(got, want) {
			t.Fatalf("got %q, want %q", got, want)
		}
	})
}

// TestItemsAreBounded: nobody's answer fills the memory, whether somebody asks for its items or
// not.
func TestItemsAreBounded(t *testing.T) {
	t.Parallel()
	s := llm.OpenAI().NewStream(&llm.Call{Operation: llm.OpResponses})
	s.Write([]byte(`{"output":[` + strings.Repeat(`{"type":"reasoning","id":"rs"},`, 5000) + `{}]}`))
	if n := len(s.Items()); n != 100 {
		t.Errorf("got %d items", n)
	}
}
