//go:build unix

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/drawgate/drawgate/llm/simulator"
)

// referee returns what the provider counted.
func (o *overage) referee() (report simulator.Report, calls []simulator.Call) {
	o.t.Helper()
	report = decoded[simulator.Report](o.simulator, o.simulator.public+"/simulator/report", nil)
	for after := int64(0); ; {
		page := decoded[struct {
			Calls []simulator.Call
			Next  int64
		}](o.simulator, fmt.Sprintf("%s/simulator/ledger?limit=10000&after=%d", o.simulator.public, after), nil)
		calls = append(calls, page.Calls...)
		if after = page.Next; after == 0 {
			return report, calls
		}
	}
}

// judge prints what the run has shown, and checks it.
func (o *overage) judge(report *simulator.Report, calls []simulator.Call) {
	o.t.Helper()
	o.t.Logf("%d gateways, %d callers, windows of %v (%s at the provider), margin %v, calls travel up to %v",
		o.gateways, o.callers, o.window, o.windows, o.margin, o.travel)
	o.t.Logf("the provider saw %d calls; violations: %d %v; outcomes: %v", report.Calls, report.Violations,
		report.ByDimension, report.Outcomes)
	o.t.Logf("callers saw, by status (0: the connection was lost): %v; %d answers broke off", o.seen.status, o.seen.cut)
	for _, text := range slices.Sorted(maps.Keys(o.seen.refused)) {
		o.t.Logf("%d refusals: %s", o.seen.refused[text], text)
	}
	if report.Violations > 0 || report.Dropped > 0 {
		o.t.Errorf("%d violations, and %d calls that nobody counted, want none: %s", report.Violations, report.Dropped,
			violations(calls))
	}
	if report.Outcomes[simulator.Rejected] > 0 {
		o.t.Errorf("%d calls were not as the provider wants them", report.Outcomes[simulator.Rejected])
	}
	for i := range report.Limits {
		l := &report.Limits[i]
		most, worst := o.most(l), max(l.Worst, l.WorstRolling, l.WorstAligned)
		text := fmt.Sprintf("%s/%s: at most %d in a window, rolling or aligned; the provider allows %d, the policy %d",
			l.Quota, l.Limit, worst, l.Amount, most)
		if o.t.Log(text); worst > most {
			o.t.Error(text)
		}
	}
	if o.trouble {
		o.judgeFaults(calls)
	}
	if o.rounds > 0 {
		o.judgeUse(calls)
		o.judgeWaits()
	}
}

// most returns what the policy lets pass of a limit: with headroom less than the provider allows.
func (o *overage) most(l *simulator.LimitReport) int64 {
	for _, m := range o.models() {
		switch {
		case m.model != l.Quota:
		case l.Limit == "rpm":
			return m.passes
		case l.Limit == "rpd":
			return m.daily
		}
	}
	return l.Amount
}

// violations describes the first of them.
func violations(calls []simulator.Call) string {
	var b strings.Builder
	n := 0
	for i := range calls {
		if c := &calls[i]; c.Outcome == simulator.Refused && n < 5 {
			fmt.Fprintf(&b, "\n%s %s: %+v", c.Arrived.Format(time.StampMilli), c.Model, c.Refusals)
			n++
		}
	}
	return b.String()
}

// judgeUse compares what was used with what the policies allow: their amounts in every window and
// its margin, from the first call on.
func (o *overage) judgeUse(calls []simulator.Call) {
	o.t.Helper()
	least := 0.95
	if o.trouble {
		least = 0.8
	}
	for _, m := range o.tiers {
		requests, tokens := make([]int64, o.rounds), make([]int64, o.rounds)
		var first time.Time
		for i := range calls {
			c := &calls[i]
			if c.Model != m.model || !c.Admitted {
				continue
			}
			if first.IsZero() {
				first = c.Arrived
			}
			if k := int(c.Arrived.Sub(first) / (o.window + o.margin)); k < o.rounds {
				requests[k] += c.Final.Requests
				tokens[k] += c.Final.InputTokens
			}
		}
		used := max(o.share(m.model, "requests", requests, m.passes), o.share(m.model, "input tokens", tokens, m.tpm))
		if used < least {
			o.t.Errorf("%s: %.1f %% of what its limits allow were used, want at least %.0f %%", m.model, 100*used,
				100*least)
		}
	}
}

// share returns the part of an amount that was used, in all windows together.
func (o *overage) share(model, unit string, used []int64, amount int64) float64 {
	var sum int64
	for _, n := range used {
		sum += n
	}
	part := float64(sum) / float64(amount*int64(len(used)))
	o.t.Logf("%s: %s used in windows of %v: %v of %d each: %.1f %%", model, unit, o.window+o.margin, used, amount,
		100*part)
	return part
}

// judgeWaits compares callers of one gateway who wait for the same model with prompts of the same
// size, and the same priority: by the mean of their calls' waits, and by the longest one. Both are
// compared with the median caller.
func (o *overage) judgeWaits() {
	o.t.Helper()
	groups := slices.SortedFunc(maps.Keys(o.seen.waits), func(a,
		b group,
	) int {
		return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
	})
	bySize := map[string][]*waited{}
	for _, g := range groups {
		all := o.seen.waits[g]
		means, longest := sorted(all, (*waited).mean), sorted(all, func(w *waited) time.Duration { return w.worst })
		for name, d := range map[string][]time.Duration{"mean": means, "longest": longest} {
			if median, most := d[len(d)/2], d[len(d)-1]; !o.trouble && most > 3*median {
				o.t.Errorf("gateway %d, %s, %s prompts, urgent %v: the %s wait of one caller is %v, of the median one %v", g.gateway, g.model, sizes[g.size], g.urgent, name, most, median)
			}
		}
		name := fmt.Sprintf("%s, %s prompts, urgent %v", g.model, sizes[g.size], g.urgent)
		bySize[name] = append(bySize[name], all...)
	}
	for _, name := range slices.Sorted(maps.Keys(bySize)) {
		all := bySize[name]
		means, longest, calls := sorted(all, (*waited).mean),
			sorted(all, func(w *waited) time.Duration { return w.worst }), 0
		for _, w := range all {
			calls += w.calls
		}
		o.t.Logf("waits, %s: %d callers, %d calls; mean: median caller %v, most %v; longest: median caller %v, most %v",
			name, len(all), calls,
			means[len(means)/2], means[len(means)-1], longest[len(longest)/2], longest[len(longest)-1])
	}
}

func (w *waited) mean() time.Duration { return w.sum / time.Duration(max(1, w.calls)) }

func sorted(all []*waited, of func(*waited) time.Duration) (d []time.Duration) {
	for _, w := range all {
		d = append(d, of(w).Round(time.Millisecond))
	}
	slices.Sort(d)
	return d
}

// judgeFaults checks that every fault has happened, and that nothing is sent any more after the
// provider has said that a quota is closed for long. Calls that were granted before may still
// arrive, within the margin.
func (o *overage) judgeFaults(calls []simulator.Call) {
	o.t.Helper()
	happened := map[simulator.FaultKind]int{}
	for i := range calls {
		if c := &calls[i]; c.Fault != "" {
			happened[c.Fault]++
		}
	}
	o.t.Logf("faults: %v", happened)
	for _, k := range simulator.FaultKinds() {
		if happened[k] == 0 {
			o.t.Errorf("the fault %s did not happen", k)
		}
	}
	for _, k := range closing[2:] {
		var closed time.Time
		later := 0
		for i := range calls {
			c := &calls[i]
			if c.Model != "closed-by-"+string(k) {
				continue
			}
			if !closed.IsZero() && c.Arrived.Sub(closed) > o.margin+time.Second {
				later++
			}
			if c.Fault == k {
				closed = c.Ended
			}
		}
		if later > 0 {
			o.t.Errorf("the provider said %s at %v, and got %d calls after that, want none", k, closed, later)
		}
	}
}
