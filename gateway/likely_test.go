package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/llm/simulator"
	"github.com/drawgate/drawgate/outbound"
)

// TestLikelyOverrunIsTheDebt: with estimates of what is likely, a provider whose tokenizer becomes
// finer and finer finds its limit of tokens exceeded by no more than what the calls that run then
// use beyond their reservations. Each such call is observed, with both numbers, and so is each
// refusal. Requests never exceed their limit.
//
// req: C1
func TestLikelyOverrunIsTheDebt(t *testing.T) {
	t.Parallel()
	const callers, rpm, tpm = 8, 30, 10_000
	inBubble(t, func(s *setup) {
		s.config.Upstreams = s.config.Upstreams[2:] // Gemini's
		s.config.Upstreams[0].Likely = true
		quota := drawgate.Policy{Name: "upstream", Limits: []drawgate.Limit{
			drawgate.RollingLimit("rpm", rpm, time.Minute), drawgate.RollingLimit("tpm", tpm,
				time.Minute).Of(llm.UnitInputTokens),
		}}
		for i := range quota.Limits {
			quota.Limits[i].Margin = 2 * time.Second
		}
		s.policies = append(s.policies, quota)
		s.options.Wait = time.Hour
		var calls atomic.Int64
		s.sim.Tokens = func(_, text string) int { return simulator.CountTokens(text) * int(20+calls.Add(1)) / 20 }
		s.sim.Quotas = []simulator.Quota{{
			Provider: simulator.Gemini, Name: "all", Models: []string{"*"}, Shared: true,
			Limits: []simulator.Limit{
				{Name: "rpm", Dimension: simulator.Requests, Amount: rpm, Window: simulator.Rolling},
				{Name: "tpm", Dimension: simulator.InputTokens, Amount: tpm, Window: simulator.Rolling},
			},
		}}
	}, func(t *testing.T, b *bench) {
		began := time.Now()
		var group sync.WaitGroup
		for caller := range callers {
			group.Go(func() {
				for n := 0; time.Since(began) < 10*time.Minute; n++ {
					prompt := fmt.Sprintf("%s\nsimulate: delay=3s", strings.Repeat("word ", 100*(1+(caller+n)%callers)))
					b.do(b.raw(t.Context(), http.MethodPost,
						fmt.Sprintf("/gemini/v1beta/models/caller-%d:generateContent", caller),
						fmt.Sprintf(`{"contents":[{"role":"user","parts":[{"text":%q}]}]}`, prompt),
						"X-Goog-Api-Key: "+alice))
				}
			})
		}
		group.Wait()
		b.compareDebt()
	})
}

// compareDebt compares the calls that found a limit full with what was observed. Each caller has a
// model of its own and makes one call at a time, so that its calls have the same order in both.
func (b *bench) compareDebt() {
	b.Helper()
	const early = time.Millisecond // more than Granted precedes the decision
	type call struct {
		simulator.Call
		event *outbound.Event
		debt  int64
	}
	perModel, all := map[string][]*outbound.Event{}, []call{}
	refusals, beyond := int64(0), int64(0)
	for i := range b.events {
		e := &b.events[i]
		if e.Sent.IsZero() {
			continue
		}
		perModel[e.Model] = append(perModel[e.Model], e)
		if e.Outcome == outbound.Refused {
			refusals++
		} else {
			beyond += max(0, tokensOf(e.Used)-tokensOf(e.Estimate))
		}
	}
	for _, c := range b.sim.Calls() {
		e := perModel[c.Model][0]
		perModel[c.Model] = perModel[c.Model][1:]
		all = append(all, call{c, e, max(0, c.Input-tokensOf(e.Estimate))})
	}
	v := b.sim.Violations()
	if v.ByDimension[simulator.Requests] > 0 || v.Total == 0 || refusals != v.Total || beyond == 0 {
		b.Errorf("violations: %v, %d refusals observed, and %d tokens beyond reservations; want both of tokens, all observed", v.ByDimension, refusals, beyond)
	}
	most := int64(0)
	for _, c := range all {
		for _, r := range c.Refusals {
			debt := int64(0)
			for _, o := range all {
				if end := o.event.Granted.Add(o.event.Took - o.event.Queued); !o.event.Granted.After(c.Arrived) &&
					end.After(c.Arrived.Add(-early)) {
					debt += o.debt
				}
			}
			if most = max(most, r.Over); r.Over > debt {
				b.Errorf("%v: a call of %d tokens found %d of %d used, %d too many; the calls that ran used %d beyond their reservations",
					c.Arrived, r.Requested, r.Used, r.Amount, r.Over, debt)
			}
		}
	}
	b.Logf("%d calls, %d refused, the worst for %d tokens too many; answered calls used %d tokens beyond their reservations", len(all), v.Total, most, beyond)
}

func tokensOf(costs []drawgate.Cost) (n int64) {
	for _, c := range costs {
		if c.Unit == llm.UnitInputTokens {
			n += c.N
		}
	}
	return n
}

// TestKeysLearnApart: what one key's calls show of a prompt's size does not lower what calls of
// another key reserve.
//
// req: C1
func TestKeysLearnApart(t *testing.T) {
	t.Parallel()
	inBubble(t, func(s *setup) {
		s.config.Upstreams[0].Likely = true
		s.sim.Tokens = func(_, text string) int { return simulator.CountTokens(text) / 4 }
	}, func(t *testing.T, b *bench) {
		reserved := func(key string) int64 {
			b.call("openai", false, strings.Repeat("The river was calm. ", 100)+"\nsimulate: output=1",
				"Authorization: Bearer "+key)
			return b.reservedFor()[llm.UnitTokens]
		}
		first := reserved(alice)
		last := first
		for range 100 {
			last = reserved(bob)
		}
		if got := reserved(alice); got != first || last >= first {
			t.Errorf("alice's calls reserve %d, at first %d; bob's reserve %d", got, first, last)
		}
	})
}
