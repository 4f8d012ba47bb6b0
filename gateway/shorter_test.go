package gateway_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/gateway"
	"github.com/drawgate/drawgate/internal/money"
	"github.com/drawgate/drawgate/llm"
)

// limitedTo gives each caller one limit. Everything costs two cents per thousand tokens.
func limitedTo(l drawgate.Limit, prices bool) func(*setup) {
	return func(s *setup) {
		price := llm.Price{Input: 20_000_000, Output: 20_000_000}
		costs := map[string]int64{l.Unit: 0} // calls say what they cost
		if l.Unit == "" {
			costs = nil
		}
		if prices {
			s.config.Prices = &llm.Prices{Currency: "usd", Models: map[string]llm.Price{
				"gpt-4o": price, "claude-sonnet-4": price, "gemini-2.5-flash": price,
			}}
		}
		s.policies = append(s.policies, drawgate.Policy{Name: "caller", Limits: []drawgate.Limit{l}})
		s.rules = callerRule(`attr("key")`)
		s.rules[0].Apply[0].Costs = costs
	}
}

// TestRefusalSaysWhichAnswerWouldFit: where a call is refused for the length of its answer, the
// error says what is left, and with which max_tokens the call would fit. It does with that, and not
// with one more.
//
// req: B12 C7
func TestRefusalSaysWhichAnswerWouldFit(t *testing.T) {
	t.Parallel()
	budget := drawgate.CalendarLimit("budget", 40_000, drawgate.Day, "UTC").Of("usd_micros")
	for name, c := range map[string]struct {
		api, field string
		limit      drawgate.Limit
		prices     bool
	}{
		"a budget":            {"openai", "max_tokens", budget, true},
		"a budget, responses": {"responses", "max_output_tokens", budget, true},
		"a budget, anthropic": {"anthropic", "max_tokens", budget, true},
		"a budget, gemini":    {"gemini", "maxOutputTokens", budget, true},
		"tokens": {
			"openai", "max_tokens", drawgate.RollingLimit("tpm", 2000, time.Hour).Of("tokens"),
			false,
		},
		"tokens of answers": {
			"anthropic", "max_tokens", drawgate.RollingLimit("otpm", 1900, time.Hour).Of("output_tokens"), false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, limitedTo(c.limit, c.prices), func(t *testing.T, b *bench) {
				ask := func(longest int64) reply {
					a := apis[c.api]
					body := strings.Replace(fmt.Sprintf(a.body, "Hello!\nsimulate: output=900", ""), "200",
						strconv.FormatInt(longest, 10), 1)
					return b.do(b.raw(t.Context(), http.MethodPost, "/"+a.upstream+a.path, body, a.key+alice,
						gateway.HeaderTimeout+": 0"))
				}
				if got := ask(900); got.status != http.StatusOK {
					t.Fatalf("the first call: got %d %s", got.status, got.body)
				}
				got := ask(1500)
				say := regexp.MustCompile(`limit .*"` + c.limit.Name + `.*; ([^;]+)` +
					` of that limit are left, and with ` + c.field + ` of at most (\d+) the call would fit now`).
					FindStringSubmatch(got.body)
				if got.status != http.StatusTooManyRequests || say == nil {
					t.Fatalf("got %d %s", got.status, got.body)
				}
				used := b.used("caller", "alice")[c.limit.Name]
				if left := money.Text(c.limit.Amount-used, c.limit.Unit); say[1] != left {
					t.Errorf("it says that %s are left, want %s", say[1], left)
				}
				longest, _ := strconv.ParseInt(say[2], 10, 64)
				if got := ask(longest + 1); got.status != http.StatusTooManyRequests {
					t.Errorf("one more than %d: got %d %s", longest, got.status, got.body)
				}
				if got := ask(longest); got.status != http.StatusOK {
					t.Errorf("%d: got %d %s", longest, got.status, got.body)
				}
			})
		})
	}
}

// TestRefusalPromisesNothing: a call that a shorter answer would not help is told of none: of a
// limit that does not count answers, where the prompt alone is too much, or where the call has what
// is not understood, so that its max_tokens may not bound it.
func TestRefusalPromisesNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		limit  drawgate.Limit
		prices bool
		prompt string
		more   string // of the body
	}{
		"requests": {drawgate.RollingLimit("rpm", 1, time.Hour), false, "Hello!", ""},
		"a prompt": {
			drawgate.CalendarLimit("budget", 40_000, drawgate.Day, "UTC").Of("usd_micros"), true,
			strings.Repeat("hello ", 283), "",
		},
		"unknown": {
			drawgate.RollingLimit("tpm", 145_000, time.Hour).Of("tokens"), false, "Hello!", `,"new_field":true`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, limitedTo(c.limit, c.prices), func(t *testing.T, b *bench) {
				a := apis["openai"]
				ask := func(prompt, more string) reply {
					body := strings.Replace(fmt.Sprintf(a.body, prompt+"\nsimulate: output=90", more), "200", "90", 1)
					return b.do(b.raw(t.Context(), http.MethodPost, "/openai"+a.path, body, a.key+alice,
						gateway.HeaderTimeout+": 0"))
				}
				for i := 0; ; i++ {
					got := ask(c.prompt, c.more)
					if got.status == http.StatusOK && i < 20 {
						continue
					}
					if got.status != http.StatusTooManyRequests || strings.Contains(got.body, "would fit") {
						t.Errorf("call %d: got %d %s", i, got.status, got.body)
					}
					return
				}
			})
		})
	}
}
