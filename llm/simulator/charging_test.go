package simulator_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate/llm/simulator"
)

// allDimensions has a limit for each dimension that is never full.
func allDimensions(p simulator.Provider) []simulator.Quota {
	var limits []simulator.Limit
	for _, d := range []simulator.Dimension{
		simulator.Requests, simulator.InputTokens, simulator.OutputTokens,
		simulator.Tokens,
	} {
		limits = append(limits, simulator.Limit{
			Name: string(d), Dimension: d, Amount: 1_000_000,
			Window: simulator.Rolling,
		})
	}
	return quota(p, limits...)
}

// TestCharging: what each provider counts at the admission and in the end. A message costs 7
// tokens in addition to its text, and words30 has 6.
func TestCharging(t *testing.T) {
	t.Parallel()
	maxTokens := simulator.DefaultCharging(simulator.Anthropic)
	maxTokens.Output = simulator.MaxTokens
	lenient := simulator.Charging{Tokens: simulator.Total, Output: simulator.Produced}
	const words30 = "simulate: output=30" // 19 characters
	type amounts = simulator.Amounts
	for name, c := range map[string]struct {
		provider       simulator.Provider
		charging       *simulator.Charging
		path, body     string
		fault          simulator.FaultKind
		charged, final amounts
		outcome        simulator.Outcome
	}{
		"OpenAI charges the bound": {
			simulator.OpenAI, nil, chatPath, chat(words30, `"max_tokens":100`), "",
			amounts{1, 13, 0, 100, 0},
			amounts{1, 13, 30, 100, 0},
			simulator.Answered,
		},
		"OpenAI charges characters, and the rest at the end": {
			simulator.OpenAI, nil, chatPath, chat(words30), "",
			amounts{1, 13, 0, 5, 0},
			amounts{1, 13, 30, 43, 0},
			simulator.Answered,
		},
		"OpenAI charges the rest beyond the bound": {
			simulator.OpenAI, nil, chatPath, chat(words30, `"max_tokens":32`), "",
			amounts{1, 13, 0, 32, 0},
			amounts{1, 13, 30, 43, 0},
			simulator.Answered,
		},
		"OpenAI charges the bound of all answers": {
			simulator.OpenAI, nil, chatPath, chat(words30, `"max_tokens":40,"n":2`), "",
			amounts{1, 13, 0, 80, 0},
			amounts{1, 13, 60, 80, 0},
			simulator.Answered,
		},
		"OpenAI embeds": {
			simulator.OpenAI, nil, embedPath, `{"model":"e","input":"one two three four five"}`, "",
			amounts{1, 5, 0, 6, 0},
			amounts{1, 5, 0, 6, 0},
			simulator.Answered,
		},
		"Anthropic leaves out what the cache had": {
			simulator.Anthropic, nil, messagePath, message(words30 + " cache_read=10 cache_write=5"), "",
			amounts{1, 13, 0, 13, 0},
			amounts{1, 13, 30, 43, 0},
			simulator.Answered,
		},
		"Anthropic charges the bound and corrects it": {
			simulator.Anthropic, &maxTokens, messagePath, message(words30), "",
			amounts{1, 13, 30, 13, 0},
			amounts{1, 13, 30, 43, 0},
			simulator.Answered,
		},
		"Anthropic counts tokens for nothing": {
			simulator.Anthropic, nil, countPath, message("x"), "", amounts{}, amounts{}, simulator.Answered,
		},
		"Gemini counts what the cache had, and thoughts as output": {
			simulator.Gemini, nil, geminiPath, contents(words30 + " cache_read=10 thoughts=7"), "",
			amounts{1, 22, 0, 22, 0},
			amounts{1, 22, 37, 59, 0},
			simulator.Answered,
		},
		"Gemini counts a request that is invalid": {
			simulator.Gemini, nil, geminiPath, `{}`, "", amounts{Requests: 1}, amounts{Requests: 1}, simulator.Rejected,
		},
		"or does not": {
			simulator.Gemini, &lenient, geminiPath, `{}`, "", amounts{}, amounts{}, simulator.Rejected,
		},
		"Gemini counts in full a request that fails": {
			simulator.Gemini, nil, geminiPath, contents(words30), simulator.FaultInternal,
			amounts{1, 13, 0, 13, 0},
			amounts{1, 13, 0, 13, 0},
			simulator.Failed,
		},
		"or does not count it": {
			simulator.Gemini, &lenient, geminiPath, contents(words30), simulator.FaultInternal,
			amounts{},
			amounts{},
			simulator.Failed,
		},
		"what a fault refuses is one request": {
			simulator.OpenAI, nil, chatPath, chat(words30), simulator.FaultTransient,
			amounts{Requests: 1},
			amounts{Requests: 1},
			simulator.Failed,
		},
		"a closed connection costs the whole answer": {
			simulator.OpenAI, nil, chatPath, chat(words30), simulator.FaultClose,
			amounts{1, 13, 0, 5, 0},
			amounts{1, 13, 30, 43, 0},
			simulator.Failed,
		},
		"a stream that fails at its end costs all of it": {
			simulator.OpenAI, nil, chatPath, chat(words30+" size=30", `"stream":true`), simulator.FaultErrorEvent,
			amounts{1, 16, 0, 7, 0},
			amounts{1, 16, 30, 46, 0},
			simulator.Cut,
		},
		"a stream that is cut costs what was produced": {
			simulator.Anthropic, &maxTokens, messagePath, message(words30+" size=5", `"max_tokens":100,"stream":true`),
			simulator.FaultCut,
			amounts{1, 16, 10, 16, 0},
			amounts{1, 16, 10, 26, 0},
			simulator.Cut,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := &simulator.Options{Quotas: allDimensions(c.provider)}
			if c.charging != nil {
				o.Charging = map[simulator.Provider]simulator.Charging{c.provider: *c.charging}
			}
			s := newServer(t, o)
			if c.fault != "" {
				if err := s.Inject(simulator.Fault{Kind: c.fault, After: 2}); err != nil {
					t.Fatal(err)
				}
			}
			post(t, s, c.path, c.body)
			call := last(t, s)
			if call.Charged != c.charged || call.Final != c.final || call.Outcome != c.outcome {
				t.Errorf("got %s, charged %+v, in the end %+v\nwant %s, %+v, %+v", call.Outcome, call.Charged,
					call.Final, c.outcome, c.charged, c.final)
			}
			used := map[string]int64{}
			for _, l := range s.Report(time.Time{}).Limits {
				used[l.Limit] = l.Total
				if l.Worst != l.Total {
					t.Errorf("%s: the worst window has %d of %d", l.Limit, l.Worst, l.Total)
				}
			}
			for d, want := range map[string]int64{
				"requests": c.final.Requests, "input_tokens": c.final.InputTokens,
				"output_tokens": c.final.OutputTokens, "tokens": c.final.Tokens,
			} {
				if used[d] != want {
					t.Errorf("the report says %d %s, want %d", used[d], d, want)
				}
			}
		})
	}
}

// TestOutputCountsWhenProduced: a chunk counts when it is produced. The next call is refused only
// when nothing fits any more, and what exceeds the limit is in the report.
func TestOutputCountsWhenProduced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, &simulator.Options{Quotas: quota(simulator.Anthropic, perMinute(simulator.OutputTokens, 10))})
		stream := message("simulate: output=12 size=4 chunk=10s", `"max_tokens":100,"stream":true`)
		start := time.Now()
		if got := post(t, s, messagePath, stream); got.status != 200 || got.err != nil {
			t.Fatalf("got %d %s, %v", got.status, got.body, got.err)
		}
		c := last(t, s)
		if len(c.Later) != 3 {
			t.Fatalf("got %+v", c.Later)
		}
		for i, e := range c.Later {
			if d := e.At.Sub(start); e.Amount.OutputTokens != 4 || d != time.Duration(i)*10*time.Second {
				t.Errorf("chunk %d: %d tokens after %v", i, e.Amount.OutputTokens, d)
			}
		}
		got := post(t, s, messagePath, message("x"))
		if got.status != 429 || got.header.Get("Retry-After") != "40" { // the first chunk is a minute old then
			t.Errorf("got %d, retry-after %q", got.status, got.header.Get("Retry-After"))
		}
		l := s.Report(time.Time{}).Limits[0]
		if l.Over != 2 || l.Worst != 12 || !l.WorstAt.Equal(start) || l.Refused != 1 {
			t.Errorf("the report says %+v", l)
		}
	})
}

// TestLeavingAtTheEndCostsOnce: the rest of the total is charged once, even if the client does not
// take the end of the stream.
func TestLeavingAtTheEndCostsOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, &simulator.Options{Quotas: allDimensions(simulator.OpenAI)})
		resp, err := s.Transport().RoundTrip(newRequest(t.Context(), t, chatPath,
			chat("simulate: output=30 size=30", `"stream":true`)))
		if err != nil {
			t.Fatal(err)
		}
		read, part := "", make([]byte, 100)
		for !strings.Contains(read, "has his share") { // the last words
			n, err := resp.Body.Read(part)
			if read += string(part[:n]); err != nil {
				t.Fatal(err)
			}
		}
		for n := len(part); n == len(part); { // the rest of that event
			if n, err = resp.Body.Read(part); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		resp.Body.Close()
		synctest.Wait()
		if c := last(t, s); c.Outcome != simulator.Left || c.Final != (simulator.Amounts{
			Requests: 1, InputTokens: 16,
			OutputTokens: 30, Tokens: 46,
		}) {
			t.Errorf("the ledger has %+v", c)
		}
	})
}

// TestRefusedRequestsCount: OpenAI counts them against the minute and not against the day.
func TestRefusedRequestsCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		day := simulator.Limit{Name: "day", Dimension: simulator.Requests, Amount: 2, Window: simulator.Day}
		s := newServer(t, &simulator.Options{Quotas: quota(simulator.OpenAI, perMinute(simulator.Requests, 1), day)})
		for i, want := range []int{200, 429, 429, 200} {
			if got := post(t, s, chatPath, chat("x")); got.status != want {
				t.Errorf("call %d: got %d %s, want %d", i, got.status, got.body, want)
			}
			if i < 2 {
				time.Sleep(30 * time.Second)
			} else {
				time.Sleep(time.Minute)
			}
		}
		if v := s.Violations(); v.Total != 2 {
			t.Errorf("got %d violations", v.Total)
		}
	})
}
