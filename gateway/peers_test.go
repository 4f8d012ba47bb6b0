package gateway_test

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/gateway"
	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/llm/simulator"
)

// What other gateways get wrong, seen by the callers and by the provider. peers_test.go in the root
// has the same of the library.

// atOnce is the header of a call that does not wait in the queue.
const atOnce = gateway.HeaderTimeout + ": 0"

// quotaOf returns the policy of the upstream with these limits.
func quotaOf(limits ...drawgate.Limit) func(*setup) {
	return func(s *setup) {
		s.policies = append(s.policies, drawgate.Policy{Name: "upstream", Limits: limits})
		s.options.Wait = 365 * 24 * time.Hour
	}
}

// named returns a limit with another name.
func named(name string, l drawgate.Limit) drawgate.Limit {
	l.Name = name
	return l
}

// TestPeers02RefusedTokensBurnNothing: no request, no slot, and nothing of the caller's own limits,
// however often a call is refused for its tokens. Once the tokens are there it is granted.
// req: PEERS 2, PEERS 3, A2
func TestPeers02RefusedTokensBurnNothing(t *testing.T) {
	t.Parallel()
	for kind, tokens := range map[string]drawgate.Limit{
		"rolling":  drawgate.RollingLimit("tpm", 400, time.Minute),
		"bucket":   drawgate.BucketLimit("tpm", 400, time.Minute, 400),
		"calendar": drawgate.CalendarLimit("tpm", 400, drawgate.Minute, "UTC"),
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(s *setup) {
				quotaOf(drawgate.RollingLimit("rpm", 1000, time.Hour), tokens.Of(llm.UnitTokens))(s)
				s.policies = append(s.policies, drawgate.Policy{Name: "caller", Limits: []drawgate.Limit{
					drawgate.RollingLimit("requests", 3, time.Hour), drawgate.ConcurrencyLimit("slots", 1),
				}})
				s.rules = callerRule(`attr("key")`)
			}, func(t *testing.T, b *bench) {
				if got := b.call("openai", false, "Hello!\nsimulate: output=200"); got.status != http.StatusOK {
					t.Fatalf("got %d %s", got.status, got.body)
				}
				quota, caller := b.used("upstream", "account"), b.used("caller", "alice")
				refused := 0
				for got := b.call("openai", false, "Hello!",
					atOnce); got.status != http.StatusOK; got = b.call("openai", false, "Hello!", atOnce) {
					if got.status != http.StatusTooManyRequests || !strings.Contains(got.body, `limit \"tpm\"`) {
						t.Fatalf("got %d %s, want a refusal for the tokens", got.status, got.body)
					}
					now := b.used("upstream", "account")
					if kind == "bucket" { // it drains
						now["tpm"] = quota["tpm"]
					}
					if !maps.Equal(now, quota) || !maps.Equal(b.used("caller", "alice"), caller) {
						t.Fatalf("after %d refusals %v and %v are used, want %v and %v", refused, now,
							b.used("caller", "alice"), quota, caller)
					}
					refused++
					time.Sleep(100 * time.Millisecond)
				}
				if now := b.used("upstream", "account"); refused < 10 || now["rpm"] != 2 || len(b.sim.Calls()) != 2 {
					t.Errorf("%d refusals, and then %v are used by %d calls, want 2 requests", refused, now,
						len(b.sim.Calls()))
				}
			})
		})
	}
}

// mostWithin returns the largest number of calls that reached the provider within a time.
func mostWithin(calls []simulator.Call, window time.Duration) (most int) {
	first := 0
	for i := range calls {
		for calls[i].Arrived.Sub(calls[first].Arrived) >= window {
			first++
		}
		most = max(most, i+1-first)
	}
	return most
}

// TestPeers04NoMinuteHasTwiceTheLimit at the provider, across the edge of its minute or of one that
// begins with the first call, and all of the limit can be used. Calls that wait and calls that do
// not are the same.
// req: PEERS 4, C1
func TestPeers04NoMinuteHasTwiceTheLimit(t *testing.T) {
	t.Parallel()
	for _, header := range []string{atOnce, gateway.HeaderTimeout + ": 1h"} {
		limit := drawgate.RollingLimit("rpm", 10, time.Minute)
		limit.Margin = 2 * time.Second
		inBubble(t, quotaOf(limit), func(t *testing.T, b *bench) {
			b.call("gemini", false, "first")
			time.Sleep(59 * time.Second) // one second before the edge, with 9 left
			var group sync.WaitGroup
			for range 40 {
				for range 5 {
					group.Go(func() { b.call("gemini", false, "Hello!", header) })
				}
				time.Sleep(5 * time.Second)
			}
			group.Wait()
			if most := mostWithin(b.sim.Calls(), time.Minute); most != 10 {
				t.Errorf("%s: %d calls within a minute, want 10", header, most)
			}
		})
	}
}

// TestPeers06CallsAtOnceDoNotOvershoot: what a call costs is known only when its answer has ended,
// and yet many calls at once never use more than the limit together, in tokens or in money.
// req: PEERS 6, C1, B12
func TestPeers06CallsAtOnceDoNotOvershoot(t *testing.T) {
	t.Parallel()
	const callers, limit = 50, 2000
	for unit, name := range map[string]string{
		llm.UnitTokens: "openai", llm.UnitOutputTokens: "anthropic",
		"usd_micros": "gemini",
	} {
		t.Run(unit, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(s *setup) {
				quotaOf(drawgate.RollingLimit("most", limit, time.Hour).Of(unit))(s)
				// a token of output costs one millionth
				s.config.Prices = &llm.Prices{Currency: "usd", Models: map[string]llm.Price{
					"gpt-4o": {Output: 1_000_000}, "claude-sonnet-4-5": {Output: 1_000_000},
					"gemini-2.5-flash": {Output: 1_000_000},
				}}
			}, func(t *testing.T, b *bench) {
				var group sync.WaitGroup
				statuses := make(chan int, callers)
				for range callers {
					group.Go(func() {
						statuses <- b.call(name, true, "Hello!\nsimulate: output=200 chunk=1s",
							atOnce).status
					})
				}
				synctest.Wait() // all streams have begun, and none has ended
				held := b.used("upstream", "account")["most"]
				group.Wait()
				close(statuses)
				granted := map[int]int{}
				for s := range statuses {
					granted[s]++
				}
				var really int64
				for _, c := range b.sim.Calls() {
					if really += c.Output; unit == llm.UnitTokens {
						really += c.Input
					}
				}
				if n := granted[http.StatusOK]; n < 6 || n > limit/200 ||
					granted[http.StatusTooManyRequests] != callers-n {
					t.Errorf("answers by status: %v, want 6 to %d of 200 %s each", granted, limit/200, unit)
				}
				if used := b.used("upstream", "account")["most"]; held > limit || really > limit || used < really ||
					used > limit {
					t.Errorf("%d %s were held, %d are used; the provider counts %d, and the limit is %d", held, unit,
						used, really, limit)
				}
			})
		})
	}
}

// TestPeers07LateSettlementCreditsItsOwnWindow: an answer that ends after the window in which it
// began gives back nothing to the next one, which has lost nothing to it. A longer window that is
// still open gets it all.
// req: PEERS 7, C1
func TestPeers07LateSettlementCreditsItsOwnWindow(t *testing.T) {
	t.Parallel()
	for kind, minute := range map[string]drawgate.Limit{
		"calendar": drawgate.CalendarLimit("minute", 1000, drawgate.Minute, "UTC"),
		"rolling":  drawgate.RollingLimit("minute", 1000, time.Minute),
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			inBubble(t, quotaOf(minute.Of(llm.UnitInputTokens),
				drawgate.CalendarLimit("day", 10_000, drawgate.Day, "UTC").Of(llm.UnitInputTokens)),
				func(t *testing.T, b *bench) {
					prompt := strings.Repeat("word ", 100)
					time.Sleep(50 * time.Second)
					late := make(chan reply)
					go func() { late <- b.call("gemini", true, prompt+"\nsimulate: output=9 size=1 chunk=10s") }()
					time.Sleep(75 * time.Second) // its minute is over, and it runs
					if got := b.call("gemini", false, prompt); got.status != http.StatusOK {
						t.Fatalf("got %d %s", got.status, got.body)
					}
					before := b.used("upstream", "account")
					if got := <-late; got.status != http.StatusOK || b.h.UnderWay() != 0 {
						t.Fatalf("the long call: %d %s", got.status, got.body)
					}
					after := b.used("upstream", "account")
					if e := b.events[1]; e.Estimate[1].N <= e.Usage.Input {
						t.Fatalf("%d tokens were held for %d, want that some come back", e.Estimate[1].N, e.Usage.Input)
					}
					if after["minute"] != before["minute"] {
						t.Errorf("%d tokens of the minute are used, and %d after a call of the minute before has ended",
							before["minute"], after["minute"])
					}
					if want := b.events[0].Usage.Input + b.events[1].Usage.Input; after["day"] != want ||
						before["day"] <= want {
						t.Errorf("%d tokens of the day are used, and then %d, want %d", before["day"], after["day"],
							want)
					}
				})
		})
	}
}

// waits returns what a refusal says of when to come back: in seconds, exactly, and as Gemini's own
// error says it.
func waits(t *testing.T, got reply) (seconds int, exact time.Duration) {
	t.Helper()
	seconds, err := strconv.Atoi(got.header.Get("Retry-After"))
	if err != nil {
		t.Errorf("Retry-After is %q, want seconds", got.header.Get("Retry-After"))
	}
	ms, err := strconv.Atoi(got.header.Get("Retry-After-Ms"))
	if err != nil {
		t.Errorf("Retry-After-Ms is %q", got.header.Get("Retry-After-Ms"))
	}
	exact = time.Duration(ms) * time.Millisecond
	if seconds != int(math.Ceil(exact.Seconds())) {
		t.Errorf("Retry-After is %d, and Retry-After-Ms %d", seconds, ms)
	}
	return seconds, exact
}

// TestPeers14RetryAfterIsTheRealWait: not the whole window, nor a time of another zone. A call fits
// when it says, and not before, also across the edge of a day of 23 hours in California.
// req: PEERS 14, A6, C7
func TestPeers14RetryAfterIsTheRealWait(t *testing.T) {
	t.Parallel()
	california, err := time.LoadLocation("America/Los_Angeles")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		limit drawgate.Limit
		taken time.Time // both of the limit's requests
		asked time.Time
		fits  time.Time
	}{
		"minute": {
			drawgate.RollingLimit("rpm", 2, time.Minute),
			time.Date(2026, 3, 1, 12, 0, 30, 0, time.UTC), time.Date(2026, 3, 1, 12, 1, 10, 500e6, time.UTC),
			time.Date(2026, 3, 1, 12, 1, 30, 0, time.UTC),
		},
		"bucket": { // drains one in 30 s
			drawgate.BucketLimit("rpm", 2, time.Minute, 2),
			time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), time.Date(2026, 3, 1, 12, 0, 7, 0, time.UTC),
			time.Date(2026, 3, 1, 12, 0, 30, 0, time.UTC),
		},
		"the last seconds of a day": {
			drawgate.CalendarLimit("rpd", 2, drawgate.Day, "America/Los_Angeles"),
			time.Date(2026, 3, 1, 20, 0, 0, 0, california), time.Date(2026, 3, 1, 23, 59, 30, 0, california),
			time.Date(2026, 3, 2, 0, 0, 0, 0, california),
		},
		"midnight is over in UTC": {
			drawgate.CalendarLimit("rpd", 2, drawgate.Day, "America/Los_Angeles"),
			time.Date(2026, 3, 1, 15, 0, 0, 0, california), time.Date(2026, 3, 2, 0, 30, 0, 0, time.UTC),
			time.Date(2026, 3, 2, 0, 0, 0, 0, california),
		},
		"a day of 23 hours": { // the clocks go forward at 2:00
			drawgate.CalendarLimit("rpd", 2, drawgate.Day, "America/Los_Angeles"),
			time.Date(2026, 3, 8, 0, 30, 0, 0, california), time.Date(2026, 3, 8, 1, 0, 0, 0, california),
			time.Date(2026, 3, 9, 0, 0, 0, 0, california),
		},
	} {
		for _, provider := range llm.Names() {
			t.Run(name+" "+provider, func(t *testing.T) {
				t.Parallel()
				inBubble(t, quotaOf(c.limit), func(t *testing.T, b *bench) {
					time.Sleep(time.Until(c.taken))
					b.call(provider, false, "one")
					b.call(provider, false, "two")
					time.Sleep(time.Until(c.asked))
					got := b.call(provider, false, "three", atOnce)
					seconds, exact := waits(t, got)
					if want := c.fits.Sub(c.asked); got.status != http.StatusTooManyRequests || exact != want {
						t.Errorf("got %d, retry after %v, want 429 and %v", got.status, exact, want)
					}
					if want := fmt.Sprintf(`"retryDelay":"%vs"`, exact.Seconds()); provider == "gemini" &&
						!strings.Contains(got.body, want) {
						t.Errorf("got %s, want %s", got.body, want)
					}
					time.Sleep(exact - time.Millisecond)
					if got := b.call(provider, false, "too early", atOnce); got.status != http.StatusTooManyRequests {
						t.Errorf("a millisecond earlier: got %d", got.status)
					}
					time.Sleep(time.Until(c.asked.Add(time.Duration(seconds) * time.Second)))
					if got := b.call(provider, false, "in time", atOnce); got.status != http.StatusOK {
						t.Errorf("after %d seconds: got %d %s", seconds, got.status, got.body)
					}
				})
			})
		}
	}
}

// A call that can never fit because a part of its prompt is not in it is told so: a smaller
// max_tokens would not help.
func TestHiddenPromptAboveTheLimit(t *testing.T) {
	t.Parallel()
	inBubble(t, quotaOf(drawgate.RollingLimit("most", 10_000, time.Minute).Of(llm.UnitTokens)),
		func(t *testing.T, b *bench) {
			for field, says := range map[string]string{
				`"previous_response_id":"resp_1"`:             "an earlier response",
				`"tools":[{"type":"web_search"}]`:             "what its tools find",
				`"something_new":{"of":"next year's models"}`: "is not known here",
			} {
				got := b.do(b.raw(t.Context(), http.MethodPost, "/openai/v1/responses",
					`{"model":"gpt-4o","max_output_tokens":10,"input":"Hello!",`+field+`}`, apis["openai"].key+alice))
				if got.status != http.StatusBadRequest || !strings.Contains(got.body, "can never fit") ||
					!strings.Contains(got.body, says) || strings.Contains(got.body, "max_tokens") {
					t.Errorf("%s: got %d %s", field, got.status, got.body)
				}
			}
		})
}

// TestPeers15CostAboveTheLimitIsRefusedAtOnce, although it might wait, with an error that says that
// waiting does not help, and that SDKs do not send again. Nothing is spent, and nobody waits behind
// it.
// req: PEERS 15, C7
func TestPeers15CostAboveTheLimitIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	for unit, name := range map[string]string{
		llm.UnitTokens: "openai", llm.UnitOutputTokens: "anthropic",
		llm.UnitInputTokens: "gemini",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, quotaOf(drawgate.RollingLimit("rpm", 1, time.Minute),
				drawgate.RollingLimit("most", 199, time.Minute).Of(unit)), func(t *testing.T, b *bench) {
				long := "Hello! " + strings.Repeat("word ", 300)
				began := time.Now()
				got := b.call(name, false, long)
				if got.status != http.StatusBadRequest || time.Since(began) != 0 {
					t.Errorf("got %d %s after %v, want 400 at once", got.status, got.body, time.Since(began))
				}
				for _, part := range []string{
					"can never fit", `limit \"most\"`, "199", "a smaller max_tokens",
					"without it",
				} {
					if !strings.Contains(got.body, part) {
						t.Errorf("got %s, want that it says %q", got.body, part)
					}
				}
				if got.header.Get("Retry-After") != "" || got.header.Get("Retry-After-Ms") != "" ||
					strings.Contains(got.body, "retryDelay") {
					t.Errorf("got %v %s, want nothing of when to come back", got.header, got.body)
				}
				if name != "gemini" && got.header.Get("X-Should-Retry") != "false" {
					t.Errorf("got %v, want that the SDK does not come back", got.header)
				}
				used := b.used("upstream", "account")
				if n := slices.Max(slices.Collect(maps.Values(used))); n != 0 || len(b.sim.Calls()) != 0 {
					t.Errorf("%v used by %d calls, want nothing", used, len(b.sim.Calls()))
				}
			})
		})
	}
}

// TestPeers17MinuteDayWeekAndMonthTogether: all of them hold at once, a refusal names the one that
// says how long it takes, and days, weeks and months are those of the calendar.
// req: PEERS 17, A6, D1
func TestPeers17MinuteDayWeekAndMonthTogether(t *testing.T) {
	t.Parallel()
	inBubble(t, quotaOf(
		named("minute", drawgate.RollingLimit("", 2, time.Minute)),
		named("day", drawgate.CalendarLimit("", 4, drawgate.Day, "UTC")),
		named("week", drawgate.CalendarLimit("", 10, drawgate.Week, "UTC")),
		named("month", drawgate.CalendarLimit("", 16, drawgate.Month, "UTC")),
	), func(t *testing.T, b *bench) {
		at := func(day, hour, minute int) time.Time { return time.Date(2026, 2, day, hour, minute, 0, 0, time.UTC) }
		// February 2026 begins on a Sunday and has 28 days.
		for _, step := range []struct {
			at      time.Time
			calls   int // that are granted
			refused string
			until   time.Time
		}{
			{at(2, 9, 0), 2, "minute", at(2, 9, 1)}, // Monday
			{at(2, 9, 1), 2, "day", at(3, 0, 0)},
			{at(3, 0, 0), 2, "minute", at(3, 0, 1)},
			{at(3, 0, 1), 2, "day", at(4, 0, 0)},
			{at(8, 23, 0), 2, "week", at(9, 0, 0)}, // Sunday evening: the minute would fit sooner
			{at(9, 0, 0), 2, "minute", at(9, 0, 1)},
			{at(9, 0, 1), 2, "day", at(10, 0, 0)},
			{at(10, 0, 0), 2, "month", at(29, 0, 0)}, // the first of March
			{at(29, 0, 0), 2, "minute", at(29, 0, 1)},
		} {
			time.Sleep(time.Until(step.at))
			for i := range step.calls {
				if got := b.call("openai", false, "Hello!", atOnce); got.status != http.StatusOK {
					t.Fatalf("%v, call %d: got %d %s", step.at, i+1, got.status, got.body)
				}
			}
			got := b.call("openai", false, "Hello!", atOnce)
			_, wait := waits(t, got)
			if got.status != http.StatusTooManyRequests || !strings.Contains(got.body,
				fmt.Sprintf(`limit \"%s\"`, step.refused)) || !time.Now().Add(wait).Equal(step.until) {
				t.Errorf("%v: got %d %s, want a refusal by the limit per %s until %v", step.at, got.status, got.body,
					step.refused, step.until)
			}
		}
	})
}
