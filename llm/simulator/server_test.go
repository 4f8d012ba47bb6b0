package simulator_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/drawgate/drawgate/llm/simulator"
)

// charges returns what a call was charged, and when.
func charges(c simulator.Call) (all []simulator.Entry) {
	all = append(all, simulator.Entry{At: c.Arrived, Amount: c.Charged})
	return append(all, c.Later...)
}

// usedBefore adds up what earlier calls were charged in the minute before a call arrived.
func usedBefore(calls []simulator.Call, c simulator.Call, d simulator.Dimension) (sum int64) {
	for _, other := range calls {
		for _, e := range charges(other) {
			if other.ID < c.ID && other.Admitted && !e.At.After(c.Arrived) && c.Arrived.Sub(e.At) < time.Minute {
				sum += e.Amount.Of(d)
			}
		}
	}
	return sum
}

// TestEveryCallIsDecidedByTheRules sends random calls, one after the other, and decides each again
// from the ledger alone.
func TestEveryCallIsDecidedByTheRules(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		p := rapid.SampledFrom([]simulator.Provider{simulator.OpenAI, simulator.Anthropic, simulator.Gemini}).Draw(rt,
			"provider")
		charging := simulator.DefaultCharging(p)
		charging.Refused = false // the ledger's admitted calls are then all that counts
		if rapid.Bool().Draw(rt, "by max_tokens") {
			charging.Output = simulator.MaxTokens
		}
		amounts := map[simulator.Dimension]int64{}
		var limits []simulator.Limit
		for _, d := range []simulator.Dimension{
			simulator.Requests, simulator.InputTokens, simulator.OutputTokens,
			simulator.Tokens,
		} {
			amounts[d] = rapid.Int64Range(1, 200).Draw(rt, string(d))
			limits = append(limits, simulator.Limit{
				Name: string(d), Dimension: d, Amount: amounts[d],
				Window: simulator.Rolling,
			})
		}
		type step struct {
			wait time.Duration
			body string
		}
		var steps []step
		for range rapid.IntRange(1, 30).Draw(rt, "calls") {
			prompt := fmt.Sprintf("simulate: output=%d size=3 chunk=%ds", rapid.IntRange(0, 30).Draw(rt, "output"),
				rapid.IntRange(0, 5).Draw(rt, "chunk"))
			most, stream := rapid.IntRange(1, 40).Draw(rt, "max_tokens"), rapid.Bool().Draw(rt, "stream")
			var body string
			switch p {
			case simulator.OpenAI:
				body = chat(prompt, fmt.Sprintf(`"max_tokens":%d,"stream":%v`, most, stream))
			case simulator.Anthropic:
				body = message(prompt, fmt.Sprintf(`"max_tokens":%d,"stream":%v`, most, stream))
			default:
				body = contents(prompt, fmt.Sprintf(`"generationConfig":{"maxOutputTokens":%d}`, most))
			}
			steps = append(steps, step{
				time.Duration(rapid.IntRange(0, 20_000).Draw(rt, "ms")) * time.Millisecond,
				body,
			})
		}
		var all []simulator.Call
		var report simulator.Report
		var violations int64
		synctest.Test(t, func(t *testing.T) {
			s := newServer(t, &simulator.Options{
				Quotas:   quota(p, limits...),
				Charging: map[simulator.Provider]simulator.Charging{p: charging},
			})
			for _, st := range steps {
				time.Sleep(st.wait)
				post(t, s, calls[p].path, st.body)
			}
			all, report, violations = s.Calls(), s.Report(time.Time{}), s.Violations().Total
		})
		refused := int64(0)
		for _, c := range all {
			full := false
			for d, amount := range amounts {
				need := c.Charged.Of(d)
				for _, r := range c.Refusals {
					if r.Dimension == d {
						need = r.Requested
					}
				}
				if d == simulator.OutputTokens {
					need = max(1, need)
				}
				if charging.Output == simulator.MaxTokens && d == simulator.OutputTokens && c.Admitted {
					continue // it was corrected afterwards
				}
				over := usedBefore(all, c, d) + need - amount
				full = full || over > 0 && !c.Admitted
				if c.Admitted && over > 0 {
					rt.Fatalf("call %d was admitted, %d %s over: %+v", c.ID, over, d, c)
				}
			}
			if !c.Admitted {
				refused++
				if !full && charging.Output == simulator.Produced {
					rt.Fatalf("call %d was refused, but nothing was full: %+v", c.ID, c)
				}
			}
		}
		if violations != refused || report.Violations != refused {
			rt.Fatalf("%d calls were refused, and there are %d violations", refused, violations)
		}
		for _, l := range report.Limits {
			if l.Dimension == simulator.Requests && (l.Over > 0 || l.Total != int64(len(all))-refused) {
				rt.Fatalf("the report says %+v", l)
			}
		}
	})
}

// TestManyAtOnce: whatever arrives at once, a limit admits what it says, and every violation is
// counted.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	for _, w := range []simulator.Window{
		simulator.Rolling, simulator.Aligned, simulator.Day, simulator.Month,
		simulator.Bucket,
	} {
		t.Run(string(w), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := simulator.Limit{Name: "l", Dimension: simulator.Requests, Amount: 40, Window: w}
				s := newServer(t, &simulator.Options{Quotas: quota(simulator.Gemini, l)})
				var ok atomic.Int64
				var all sync.WaitGroup
				for range 100 {
					all.Go(func() {
						if post(t, s, geminiPath, contents("x")).status == 200 {
							ok.Add(1)
						}
					})
				}
				all.Wait()
				r := s.Report(time.Time{})
				if ok.Load() != 40 || s.Violations().Total != 60 || r.Limits[0].Worst != 40 || r.Limits[0].Over != 0 ||
					r.Limits[0].Refused != 60 {
					t.Errorf("%d were admitted, %d violations, %+v", ok.Load(), s.Violations().Total, r.Limits)
				}
			})
		})
	}
}

// TestBothReadingsOfAMinute: the report has the worst window of both kinds.
func TestBothReadingsOfAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, &simulator.Options{
			Windows: simulator.Aligned,
			Quotas:  quota(simulator.Gemini, perMinute(simulator.Requests, 5)),
		})
		time.Sleep(59 * time.Second) // the bubble begins at second 00
		for range 2 {
			for range 5 {
				post(t, s, geminiPath, contents("x"))
			}
			time.Sleep(time.Second)
		}
		l := s.Report(time.Time{}).Limits[0]
		if l.Worst != 5 || l.WorstAligned != 5 || l.WorstRolling != 10 || l.Over != 0 || l.Window != simulator.Aligned {
			t.Errorf("got %+v", l)
		}
	})
}

// TestLastDirective: the directive of an earlier turn does not count any more.
func TestLastDirective(t *testing.T) {
	t.Parallel()
	for prompt, want := range map[string]float64{
		`"simulate: output=5"},{"role":"assistant","content":"simulate: output=6"},{"role":"user","content":"go on"`: 6,
		`"simulate: fault=500 output=5"},{"role":"user","content":"x\nsimulate: output=7\nand so on"`:                7,
		`"simulate: output=5\nsimulate: output=4"`:                                                                   4,
		`"do not simulate: output=5"`: 32,
		`"Simulate: output=5"`:        32,
	} {
		got := post(t, newServer(t, nil), chatPath, `{"model":"m","messages":[{"role":"user","content":`+prompt+`}]}`)
		if got.status != 200 || at(t, got.body, "usage.completion_tokens") != want {
			t.Errorf("%s: got %d %s, want %v", prompt, got.status, got.body, want)
		}
	}
}

// TestDirectiveOfAFault: the words of a fault may stand in any order.
func TestDirectiveOfAFault(t *testing.T) {
	t.Parallel()
	for words, want := range map[string]int{
		"fault=latency stall=2s": 200, "stall=2s fault=latency": 200,
		"fault=latency": 400, "fault=x": 400,
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(t, nil)
			start := time.Now()
			got := post(t, s, chatPath, chat("simulate: "+words))
			if took := time.Since(start); got.status != want || want == 200 && took != 2*time.Second {
				t.Errorf("%s: got %d %s after %v, want %d", words, got.status, got.body, took, want)
			}
		})
	}
}

// TestWholeWindows: the report's share of whole windows, for a caller that uses a limit fully.
func TestWholeWindows(t *testing.T) {
	t.Parallel()
	for w, want := range map[simulator.Window]simulator.LimitReport{
		simulator.Rolling: {Windows: 3, Allowed: 12, Used: 12},
		simulator.Aligned: {Windows: 3, Allowed: 12, Used: 12},
		simulator.Bucket:  {Windows: 0, Allowed: 16, Used: 16},
	} {
		t.Run(string(w), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := simulator.Limit{Name: "l", Dimension: simulator.Requests, Amount: 4, Window: w}
				s := newServer(t, &simulator.Options{Quotas: quota(simulator.Gemini, l)})
				for range 3 {
					for range 4 {
						post(t, s, geminiPath, contents("x"))
					}
					time.Sleep(time.Minute)
				}
				if w == simulator.Bucket {
					for range 4 {
						post(t, s, geminiPath, contents("x"))
					}
				}
				got := s.Report(time.Time{}).Limits[0]
				if got.Windows != want.Windows || got.Allowed != want.Allowed || got.Used != want.Used ||
					got.Share != 1 || s.Violations().Total != 0 {
					t.Errorf("got %+v, want %+v", got, want)
				}
			})
		})
	}
}

// TestDaysOfAYear: 400 days of one call more than the limit allows, across both changes of the
// clocks in California: each day admits its own, and the report agrees.
func TestDaysOfAYear(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		zone, err := time.LoadLocation(simulator.Pacific)
		if err != nil {
			t.Fatal(err)
		}
		day := simulator.Limit{Name: "day", Dimension: simulator.Requests, Amount: 24, Window: simulator.Day}
		s := newServer(t, &simulator.Options{Quotas: quota(simulator.Gemini, day), Zone: simulator.Pacific})
		perDay := map[string]int{}
		hours := map[int]int{}
		first := time.Now().In(zone).Format(time.DateOnly)
		for range 400 * 24 {
			date := time.Now().In(zone).Format(time.DateOnly)
			if post(t, s, geminiPath, contents("x")).status == 200 {
				perDay[date]++
			}
			time.Sleep(time.Hour)
		}
		delete(perDay, first)
		delete(perDay, time.Now().In(zone).Format(time.DateOnly))
		for _, n := range perDay {
			hours[n]++
		}
		// One day of 23 hours has only 23 calls, and in one of 25 hours the last call is refused.
		if hours[23] != 1 || hours[24] != len(perDay)-1 || s.Violations().Total != 1 {
			t.Errorf("days by calls: %v; %d violations", hours, s.Violations().Total)
		}
		if c := s.Violations().Calls[0]; c.Refusals[0].RetryAfter != time.Hour {
			t.Errorf("the refusal at 23:00 says %v", c.Refusals[0].RetryAfter)
		}
		l := s.Report(time.Time{}).Limits[0]
		if l.Worst != 24 || l.Over != 0 || l.Windows < 399 {
			t.Errorf("the report says %+v", l)
		}
	})
}

// TestTravel: calls that are sent at once arrive at different instants, within the bound, in the
// order of the ledger; the same seed gives the same ones. One that is given up never arrives.
func TestTravel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		run := func() (arrivals []time.Duration) {
			s := newServer(t, &simulator.Options{Travel: time.Second, Seed: 7})
			start := time.Now()
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() { post(t, s, genericPath, `{}`) })
			}
			all.Wait()
			for _, c := range s.Calls() {
				arrivals = append(arrivals, c.Arrived.Sub(start))
			}
			return arrivals
		}
		got := run()
		if !slices.IsSorted(got) || got[0] < 0 || got[19] > time.Second || got[19]-got[0] < 500*time.Millisecond {
			t.Errorf("they arrived after %v", got)
		}
		if again := run(); !slices.Equal(got, again) {
			t.Errorf("they arrived after %v and %v", got, again)
		}
		s := newServer(t, &simulator.Options{Travel: time.Hour, Seed: 7})
		ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
		defer cancel()
		if got := do(s, newRequest(ctx, t, genericPath, `{}`)); !errors.Is(got.err, context.DeadlineExceeded) {
			t.Errorf("got %+v", got)
		}
		synctest.Wait()
		if n := len(s.Calls()); n != 0 {
			t.Errorf("%d calls arrived", n)
		}
	})
}

// TestScopes: who shares a limit.
func TestScopes(t *testing.T) {
	t.Parallel()
	keys := []simulator.Key{
		{Secret: "a", Name: "a", Organization: "one", Project: "p"},
		{Secret: "b", Name: "b", Organization: "one", Project: "q"},
		{Secret: "c", Name: "c", Organization: "two", Project: "p"},
	}
	one := func(scope simulator.Scope) simulator.Limit {
		return simulator.Limit{
			Name: "l", Dimension: simulator.Requests, Amount: 1, Window: simulator.Rolling,
			Scope: scope,
		}
	}
	for name, c := range map[string]struct {
		scope  simulator.Scope
		shared bool
		calls  string // key and model
		want   string
		lines  int // of the report
	}{
		"organization":          {simulator.Organization, false, "ax ax bx cx", "200 429 429 200", 2},
		"project":               {simulator.Project, false, "ax ax bx cx", "200 429 200 200", 3},
		"each model":            {simulator.Organization, false, "ax ay", "200 200", 2},
		"models that share one": {simulator.Organization, true, "ax ay cy", "200 429 200", 2},
		"another quota":         {simulator.Organization, true, "ax az", "200 200", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, &simulator.Options{Keys: keys, Quotas: []simulator.Quota{
				{
					Provider: simulator.Generic, Name: "z", Models: []string{"z"},
					Limits: []simulator.Limit{one(c.scope)},
				},
				{
					Provider: simulator.Generic, Name: "rest", Models: []string{"x", "*"}, Shared: c.shared,
					Limits: []simulator.Limit{one(c.scope)},
				},
			}})
			var got []string
			for call := range strings.FieldsSeq(c.calls) {
				got = append(got, fmt.Sprint(post(t, s, "/generic/"+call[1:], `{}`, "X-Api-Key: "+call[:1]).status))
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("got %v, want %s", got, c.want)
			}
			r := s.Report(time.Time{})
			for _, l := range r.Limits {
				if l.Worst != 1 || l.Over != 0 {
					t.Errorf("the report says %+v", l)
				}
			}
			if len(r.Limits) != c.lines {
				t.Errorf("the report has %d limits, want %d: %+v", len(r.Limits), c.lines, r.Limits)
			}
		})
	}
}

// TestProjectHeaders: OpenAI names the limit of the project apart.
func TestProjectHeaders(t *testing.T) {
	t.Parallel()
	project := perMinute(simulator.Tokens, 500)
	project.Name, project.Scope = "project", simulator.Project
	s := newServer(t, &simulator.Options{Quotas: quota(simulator.OpenAI, perMinute(simulator.Tokens, 1000), project)})
	got := post(t, s, chatPath, chat("x", `"max_tokens":100`))
	for name, want := range map[string]string{
		"X-Ratelimit-Limit-Tokens": "1000", "X-Ratelimit-Remaining-Tokens": "900", "X-Ratelimit-Reset-Tokens": "1m0s",
		"X-Ratelimit-Limit-Project-Tokens": "500", "X-Ratelimit-Remaining-Project-Tokens": "400",
		"X-Request-Id": "req_000000000000000000000001",
	} {
		if v := got.header.Get(name); v != want {
			t.Errorf("%s is %q, want %q", name, v, want)
		}
	}
}

// TestLedgerIsBounded: the oldest calls are dropped and counted; sums know them still.
func TestLedgerIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, &simulator.Options{MaxCalls: 10, Quotas: quota(simulator.Gemini,
			perMinute(simulator.Requests, 20))})
		for range 25 {
			post(t, s, geminiPath, contents("simulate: output=0"))
		}
		calls := s.Calls()
		if len(calls) != 10 || calls[0].ID != 16 || s.Dropped() != 15 {
			t.Errorf("%d calls from %d on, and %d were dropped", len(calls), calls[0].ID, s.Dropped())
		}
		v := s.Violations()
		if v.Total != 5 || len(v.Calls) != 5 {
			t.Errorf("%d violations, of which %d are there", v.Total, len(v.Calls))
		}
		if r := s.Report(time.Time{}); r.Calls != 25 || r.Admitted != 20 || r.Dropped != 15 || r.Limits[0].Worst != 5 {
			t.Errorf("the report says %+v", r)
		}
		// A call with more entries than there is room for is dropped while it runs.
		time.Sleep(time.Minute)
		post(t, s, streamPath, contents("simulate: output=40 size=1 chunk=1s"))
		if calls := s.Calls(); len(calls) != 0 || s.Dropped() != 26 {
			t.Errorf("%d calls are left, and %d were dropped", len(calls), s.Dropped())
		}
		s.Reset()
		if r := s.Report(time.Time{}); r.Calls != 0 || len(r.Limits) != 0 || len(r.Outcomes) != 0 ||
			s.Violations().Total != 0 || s.Dropped() != 0 {
			t.Errorf("after a reset: %+v", r)
		}
		if got := post(t, s, geminiPath, contents("x")); got.status != 200 || last(t, s).ID != 1 {
			t.Errorf("after a reset: %d, %+v", got.status, last(t, s))
		}
	})
}

// TestLedgerKeepsNoLongNames: a client cannot fill the ledger with a path or a model.
func TestLedgerKeepsNoLongNames(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	long := strings.Repeat("x", 10_000)
	post(t, s, "/generic/"+long, `{"model":"`+long+`"}`)
	if c := last(t, s); len(c.Path) != 200 || len(c.Model) != 200 {
		t.Errorf("a path of %d bytes and a model of %d are kept", len(c.Path), len(c.Model))
	}
}

// TestResetWhileRunning: a call that began before a reset does not count after it.
func TestResetWhileRunning(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, &simulator.Options{Quotas: quota(simulator.Anthropic,
			perMinute(simulator.OutputTokens, 100))})
		var running sync.WaitGroup
		running.Go(func() {
			post(t, s, messagePath, message("simulate: output=8 size=1 chunk=1s", `"max_tokens":9,"stream":true`))
		})
		time.Sleep(2500 * time.Millisecond)
		s.Reset()
		running.Wait()
		if r := s.Report(time.Time{}); len(s.Calls()) != 0 || r.Calls != 0 || len(r.Outcomes) != 0 {
			t.Errorf("after the reset: %+v", r)
		}
	})
}

// TestManyModels: counters that count nothing any more are not kept.
func TestManyModels(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, &simulator.Options{Quotas: quota(simulator.Generic, perMinute(simulator.Requests, 1))})
		for i := range 6000 {
			if got := post(t, s, fmt.Sprintf("/generic/m%d", i), `{}`); got.status != 200 {
				t.Fatal(got)
			}
			time.Sleep(time.Minute)
		}
		if n := s.Counters(); n > 5000 {
			t.Errorf("%d counters are kept", n)
		}
	})
}

// TestCounterOfARunningCall: a counter is kept while a call runs that may count more, even if it
// counts nothing at the moment.
func TestCounterOfARunningCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, &simulator.Options{Quotas: quota(simulator.Generic, perMinute(simulator.OutputTokens, 1))})
		var running sync.WaitGroup
		running.Go(func() {
			post(t, s, "/generic/m", `{"stream":true,"prompt":"simulate: output=2 size=1 chunk=5m"}`)
		})
		time.Sleep(2 * time.Minute)
		for i := range 5000 { // the counters that count nothing are removed meanwhile
			post(t, s, fmt.Sprintf("/generic/m%d", i), `{}`)
		}
		running.Wait()
		if got := post(t, s, "/generic/m", `{}`); got.status != 429 {
			t.Errorf("just after the second token of the stream: got %d, want 429", got.status)
		}
	})
}

// TestOverHTTP: the ledger and the report as JSON.
func TestOverHTTP(t *testing.T) {
	t.Parallel()
	s := newServer(t, &simulator.Options{
		Quotas: quota(simulator.Gemini, perMinute(simulator.Requests, 2)),
		Keys:   []simulator.Key{{Secret: "secret", Name: "ci"}},
	})
	for range 5 {
		post(t, s, geminiPath, contents("x"), "X-Goog-Api-Key: secret")
	}
	get := func(path string) reply {
		r := newRequest(t.Context(), t, path, "")
		r.Method = http.MethodGet
		got := do(s, r)
		if strings.Contains(got.body, "secret") {
			t.Errorf("%s has the key: %s", path, got.body)
		}
		return got
	}
	var ids []int64
	for next := int64(0); ; {
		var page struct {
			Calls []simulator.Call
			Next  int64
		}
		got := get(fmt.Sprintf("/simulator/ledger?limit=2&after=%d", next))
		if err := json.Unmarshal([]byte(got.body), &page); err != nil {
			t.Fatalf("%v in %s", err, got.body)
		}
		for _, c := range page.Calls {
			ids = append(ids, c.ID)
			if c.Key != "ci" || c.Quota != "all" || c.Model != "gemini-2.5-flash" {
				t.Errorf("the ledger has %+v", c)
			}
		}
		if next = page.Next; next == 0 {
			break
		}
	}
	if fmt.Sprint(ids) != "[1 2 3 4 5]" {
		t.Errorf("the pages have the calls %v", ids)
	}
	report := get("/simulator/report").body
	for path, want := range map[string]any{
		"calls": 5.0, "admitted": 2.0, "violations": 3.0, "violations_by_dimension.requests": 3.0,
		"outcomes.answered": 2.0, "outcomes.refused": 3.0,
		"limits.0.worst": 2.0, "limits.0.limit": "per minute", "limits.0.over": 0.0, "limits.0.refused": 3.0,
	} {
		if v := at(t, report, path); v != want {
			t.Errorf("%s is %v, want %v, in %s", path, v, want, report)
		}
	}
	for path, body := range map[string]string{
		"/simulator/faults":   `{"kind":"credit","x":1}`,
		"/simulator/faults?a": `[{"kind":"latency"}]`,
		"/simulator/faults?b": ``,
		"/simulator/faults?c": `{"kind":"cut"} {}`,
	} {
		if got := post(t, s, path, body); got.status != 400 || !strings.Contains(got.body, `"error":"simulator: `) {
			t.Errorf("%s: got %d %s", body, got.status, got.body)
		}
	}
	if got := get("/simulator/ledger?after=x"); got.status != 400 {
		t.Errorf("got %d %s", got.status, got.body)
	}
	if got := get("/simulator/reset"); got.status != 404 {
		t.Errorf("got %d %s", got.status, got.body)
	}
	if got := post(t, s, "/simulator/faults", `[{"kind":"500"},{"kind":"latency","delay":"1ms"}]`); got.status != 200 ||
		at(t, got.body, "injected") != 2.0 {
		t.Errorf("got %d %s", got.status, got.body)
	}
	if got := post(t, s, "/simulator/reset", ""); got.status != 200 || len(s.Calls()) != 0 {
		t.Errorf("got %d, %d calls", got.status, len(s.Calls()))
	}
}
