package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/llm/simulator"
)

// The prices of the tests of what calls are settled with, per token: in millionths.
const (
	inputPrice, readPrice, writePrice, outputPrice = 3, 1, 4, 12
)

// bill is what the provider bills for a call, in millionths.
func bill(c *simulator.Call) int64 {
	return (c.Input-c.CacheRead-c.CacheWrite)*inputPrice + c.CacheRead*readPrice + c.CacheWrite*writePrice +
		c.Output*outputPrice
}

// counting makes every call be counted under a key of its own, which its header X-Call names, in
// all units, with prices for some models.
func counting(models ...string) func(s *setup) {
	return func(s *setup) {
		caller := drawgate.Policy{Name: "caller", Limits: []drawgate.Limit{drawgate.ConcurrencyLimit("running", 1)}}
		for _, unit := range []string{llm.UnitTokens, llm.UnitInputTokens, llm.UnitOutputTokens, "usd_micros"} {
			caller.Limits = append(caller.Limits, drawgate.RollingLimit(unit, 1_000_000_000_000, time.Hour).Of(unit))
		}
		s.policies = append(s.policies, hourly(), caller)
		for i := range s.policies[0].Limits {
			s.policies[0].Limits[i].Amount = 1_000_000_000_000
		}
		s.rules = callerRule(`header("X-Call")`)
		if len(models) == 0 {
			return
		}
		s.config.Prices = &llm.Prices{Currency: "usd", Models: map[string]llm.Price{}}
		for _, m := range models {
			s.config.Prices.Models[m] = llm.Price{
				Input: inputPrice * 1_000_000, CacheRead: readPrice * 1_000_000, CacheWrite: writePrice * 1_000_000,
				Output: outputPrice * 1_000_000,
			}
		}
	}
}

// leaver is a caller that leaves when it has so many bytes of its answer, or never if that is
// negative.
type leaver struct {
	header http.Header
	status int
	got    strings.Builder
	after  int
	leave  context.CancelFunc
	err    error // why the answer broke off
}

var errLeft = errors.New("the caller has left")

func (l *leaver) Header() http.Header { return l.header }

func (l *leaver) WriteHeader(status int) { l.status = status }

func (l *leaver) Write(p []byte) (int, error) {
	if l.status == 0 {
		l.status = http.StatusOK
	}
	l.got.Write(p)
	if l.after >= 0 && l.got.Len() >= l.after {
		l.leave()
		return len(p), errLeft
	}
	return len(p), nil
}

func (l *leaver) Flush() {}

// visit makes a call in a bubble, by a caller that leaves after so many bytes of its answer, or
// after so much time if that is not 0, and returns how it was answered when all is over.
func (b *bench) visit(r *http.Request, after int, stay time.Duration) *leaver {
	b.Helper()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	if stay > 0 {
		defer time.AfterFunc(stay, cancel).Stop()
	}
	r.RemoteAddr = "192.0.2.1:1234"
	l := &leaver{header: http.Header{}, after: after, leave: cancel}
	l.err = b.serve(l, r.WithContext(ctx))
	synctest.Wait()
	return l
}

// settledWith returns what a call was settled with, by unit, or what it still holds.
func (b *bench) settledWith(call string) map[string]int64 {
	b.Helper()
	if st := b.status("caller", call); st.Open != 0 {
		b.Errorf("%s: %d holds are open", call, st.Open)
	}
	return b.used("caller", call)
}

// reservedFor returns what the last call reserved, by unit.
func (b *bench) reservedFor() map[string]int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	units := map[string]int64{}
	for _, c := range b.events[len(b.events)-1].Estimate {
		units[c.Unit] = c.N
	}
	return units
}

// TestReasoningOfAStreamThatIsLeft: whoever leaves a stream of a model that may reason, before the
// provider has told how much it did, pays for all that was reserved: the reasoning is billed, and
// nobody saw it. Models that do not reason are charged for what they delivered.
//
// req: B12 C1 D12
func TestReasoningOfAStreamThatIsLeft(t *testing.T) {
	t.Parallel()
	const words = `Hello!\nsimulate: thoughts=3000 output=120 chunk=10ms`
	const plain = `Hello!\nsimulate: output=90 chunk=10ms`
	for _, c := range []struct {
		name, path, body string
		whole            bool // all that was reserved stays
	}{
		{
			"chat", "/openai/v1/chat/completions",
			`{"model":"gpt-5-mini","stream":true,"messages":[{"role":"user","content":"` + words + `"}]}`, true,
		},
		{
			"chat with max_tokens", "/openai/v1/chat/completions",
			`{"model":"o3","stream":true,"max_completion_tokens":4000,"messages":[{"role":"user","content":"` +
				words + `"}]}`, true,
		},
		{
			"a chat of a model that is not known", "/openai/v1/chat/completions",
			`{"model":"next","stream":true,"max_tokens":4000,"messages":[{"role":"user","content":"` + words +
				`"}]}`, true,
		},
		{"response", "/openai/v1/responses", `{"model":"gpt-5","stream":true,"input":"` + words + `"}`, true},
		{"message", "/anthropic/v1/messages", `{"model":"claude-sonnet-4-5","stream":true,"max_tokens":5000,` +
			`"thinking":{"type":"enabled","budget_tokens":4000},"messages":[{"role":"user",` +
			`"content":"` + words + `"}]}`, true},
		{
			"generation that does not tell", "/gemini/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse",
			`{"contents":[{"role":"user","parts":[{"text":"` + words + ` fault=no_usage"}]}]}`, true,
		},
		{
			"several answers", "/openai/v1/chat/completions",
			`{"model":"gpt-4o","stream":true,"n":8,"max_tokens":100,"messages":[{"role":"user","content":"` + plain +
				`"}]}`, true,
		},
		{
			"chat without reasoning", "/openai/v1/chat/completions",
			`{"model":"gpt-4o","stream":true,"messages":[{"role":"user","content":"` + plain + `"}]}`, false,
		},
		{
			"message without reasoning", "/anthropic/v1/messages",
			`{"model":"claude-sonnet-4-5","stream":true,"max_tokens":5000,"messages":[{"role":"user","content":"` +
				plain + `"}]}`, false,
		},
		{
			"generation that tells", "/gemini/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse",
			`{"contents":[{"role":"user","parts":[{"text":"` + words + `"}]}]}`, false,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, counting("gpt-5-mini", "o3", "next", "gpt-5", "gpt-4o", "claude-sonnet-4-5",
				"gemini-2.5-pro"), func(t *testing.T, b *bench) {
				for i, after := range []int{700, 2500} {
					key := fmt.Sprintf("call-%d", i)
					r := b.raw(t.Context(), http.MethodPost, c.path, c.body, "Authorization: Bearer "+alice,
						"X-Api-Key: "+alice, "X-Goog-Api-Key: "+alice, "X-Call: "+key)
					if l := b.visit(r, after, 0); l.status != http.StatusOK || l.got.Len() < after {
						t.Fatalf("%d: %s", l.status, l.got.String())
					}
					got, held, last := b.settledWith(key), b.reservedFor(), b.last()
					if last.Outcome != simulator.Left {
						t.Fatalf("%s after %d bytes", last.Outcome, after)
					}
					outputHeld := (held["usd_micros"] - got["usd_micros"])
					switch {
					case got["usd_micros"] < bill(&last):
						t.Errorf("after %d bytes: settled with %d, the provider bills %d (%+v)", after,
							got["usd_micros"], bill(&last), last)
					case c.whole && (outputHeld > held["usd_micros"]/10 && outputHeld > 4*inputPrice*200 ||
						got[llm.UnitOutputTokens] < held[llm.UnitOutputTokens]):
						t.Errorf("after %d bytes: settled with %v of %v, want all of the output", after, got, held)
					case !c.whole && 2*got["usd_micros"] > held["usd_micros"]:
						t.Errorf("after %d bytes: settled with %v of %v, want what was delivered", after, got, held)
					}
				}
			})
		})
	}
}

// TestPromptOfAStreamThatIsLeft: whoever leaves a stream before the provider has told the size of
// the prompt pays for what its text can have at most, and not for a token for each of its bytes.
//
// req: C1
func TestPromptOfAStreamThatIsLeft(t *testing.T) {
	t.Parallel()
	prompt := strings.Repeat("Please summarise the minutes of the meeting, and say what was decided. ", 150)
	for name, body := range map[string]string{
		"chat/completions": `{"model":"gpt-4o","stream":true,"max_tokens":100,"messages":[{"role":"user",` +
			`"content":%q}]}`,
		"responses": `{"model":"gpt-4o","stream":true,"max_output_tokens":100,"input":%q}`,
	} {
		for _, likely := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, likely %v", name, likely), func(t *testing.T) {
				t.Parallel()
				inBubble(t, func(s *setup) {
					counting("gpt-4o")(s)
					s.config.Upstreams[0].Likely = likely
				}, func(t *testing.T, b *bench) {
					r := b.raw(t.Context(), http.MethodPost, "/openai/v1/"+name, fmt.Sprintf(body,
						prompt+"\nsimulate: output=90 chunk=10ms"), "Authorization: Bearer "+alice, "X-Call: one")
					b.visit(r, 2000, 0)
					got, last := b.settledWith("one"), b.last()
					if last.Outcome != simulator.Left || got["usd_micros"] < bill(&last) ||
						got[llm.UnitTokens] < last.Input+last.Output {
						t.Errorf("settled with %v, the provider bills %d (%+v)", got, bill(&last), last)
					}
					if most := int64(len(prompt)) * 3 / 4; got[llm.UnitTokens] > most ||
						got["usd_micros"] > most*inputPrice+100*outputPrice {
						t.Errorf("settled with %v, want at most three quarters of a token for each byte: %d", got, most)
					}
				})
			})
		}
	}
}
