package llm_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/drawgate/drawgate/llm"
)

// ordinary is a call of text alone, and what it reserved when it was written down: before fields,
// tools and parts that are not known were reserved the most for.
type ordinary struct {
	Profile string          `json:"profile"`
	Path    string          `json:"path"`
	Body    json.RawMessage `json:"body"`
	Input   int64           `json:"input"`
	Likely  int64           `json:"likely"`
	Output  int64           `json:"output"`
}

// TestOrdinaryCallsReserveNoMore: calls of text and of the caller's own tools, with every setting
// that the SDKs know, reserve what they did before the rule of what is not understood.
func TestOrdinaryCallsReserveNoMore(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/ordinary.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	for line := range strings.Lines(string(text)) {
		var c ordinary
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatal(err)
		}
		calls++
		p := profile(t, c.Profile)
		call := parse(t, p, c.Path, string(c.Body))
		upper, likely := p.Upper(call), new(llm.Estimator).Likely(p, call)
		if upper.Input > c.Input || upper.Output > c.Output || likely.Input > c.Likely || likely.Output > c.Output ||
			!upper.Upper {
			t.Errorf("%s %.300s: reserved %d (likely %d) and %d, recorded are %d (%d) and %d",
				c.Path, c.Body, upper.Input, likely.Input, upper.Output, c.Input, c.Likely, c.Output)
		}
		if _, _, err := prices(call.Model).Hold(call, upper); err != nil {
			t.Errorf("%s %.300s: %v", c.Path, c.Body, err)
		}
	}
	if calls < 40 {
		t.Errorf("%d calls were recorded, want 40", calls)
	}
}

// prices cost something for every token of a model.
func prices(model string) *llm.Prices {
	return &llm.Prices{Currency: "usd", Models: map[string]llm.Price{model: {
		Input: 2_000_000, CacheRead: 1_000_000,
		CacheWrite: 2_500_000, Output: 8_000_000,
	}}}
}
