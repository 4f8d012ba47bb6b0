//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/drawgate/drawgate/audit"
	"github.com/drawgate/drawgate/llm/simulator"
)

// end lets the gateways end.
func (o *overage) end() {
	o.t.Helper()
	for _, d := range o.running {
		d.signal(syscall.SIGTERM)
		<-d.done
	}
}

// judgeAudit compares the audit of the gateways' ledgers with the referee: no limit was exceeded,
// and what the referee counted in its worst windows is between the least and the most by the
// ledgers. The quotas that the provider closed are left out.
func (o *overage) judgeAudit(report *simulator.Report) {
	o.t.Helper()
	args := []string{"audit", "--config", fileOf(0), "--json"}
	for i := range o.gateways {
		args = append(args, ledgerOf(i))
	}
	out, code := o.b.do(args...)
	var found audit.Report
	if err := json.Unmarshal([]byte(out), &found); err != nil {
		o.t.Fatalf("the audit ended with %d: %v: %s", code, err, out)
	}
	o.t.Logf("audit: %d calls were granted: %d settled, %d refunded, %d without an end; the provider refused %d; exit code %d",
		found.Calls, found.Settled, found.Refunded, found.Unended, found.RefusalCount, code)
	compared := 0
	for i := range found.Limits {
		a := &found.Limits[i]
		model, worst, ok := o.counted(report, a)
		if !ok {
			continue
		}
		compared++
		text := fmt.Sprintf("audit: %s/%s, %s: %s; from %d to %d in a window, by the referee %d", model, a.Limit,
			a.Window, a.Verdict, a.Least.Units, a.Most.Units, worst)
		if o.t.Log(text); a.Verdict != audit.Within || worst < a.Least.Units || worst > a.Most.Units {
			o.t.Error(text)
		}
	}
	want := 0
	for _, m := range o.tiers {
		if want += 3; m.limited { // requests of a day, of windows that roll, and of aligned ones
			want += 2
		}
	}
	if compared != want {
		o.t.Errorf("the audit judged %d limits, want %d", compared, want)
	}
}

// counted returns what the referee counted in the worst window of a limit of the audit.
func (o *overage) counted(report *simulator.Report, a *audit.LimitReport) (model string, worst int64, ok bool) {
	tier := -1
	for i := range o.tiers {
		if a.Quota == policyOf(i) {
			tier = i
		}
	}
	if tier < 0 {
		return "", 0, false
	}
	model = o.tiers[tier].model
	i := slices.IndexFunc(report.Limits, func(l simulator.LimitReport) bool {
		return l.Quota == model &&
			l.Limit == a.Limit
	})
	if i < 0 {
		return model, 0, false
	}
	l := &report.Limits[i]
	switch a.Window {
	case audit.Rolling:
		return model, l.WorstRolling, true
	case audit.Aligned:
		return model, l.WorstAligned, true
	}
	return model, l.Worst, true
}

// judgeSpend compares what the gateways counted of what was spent with their ledgers: to the
// millionth, but for the calls whose gateway was killed. Each of these is named.
func (o *overage) judgeSpend() {
	o.t.Helper()
	yesterday := time.Now().AddDate(0, 0, -1).Format(time.DateOnly) // midnight may have passed
	args := []string{"spend", "--config", fileOf(0), "--json", "--from", yesterday}
	for i := range o.gateways {
		args = append(args, "--check", ledgerOf(i))
	}
	out, code := o.b.do(args...)
	var found spendCheck
	if err := json.Unmarshal([]byte(out), &found); err != nil {
		o.t.Fatalf("spend --check ended with %d: %v: %s", code, err, out)
	}
	o.t.Logf("spend: %d calls in the ledgers, %d without an end; exit code %d", found.Calls, len(found.Unended), code)
	if code != 0 || len(found.Differences) > 0 || found.Calls == 0 || found.OtherCalls > 0 {
		o.t.Errorf("spend --check ended with %d: %s", code, out)
	}
	if !o.trouble && len(found.Unended) > 0 {
		o.t.Errorf("no gateway was killed, and calls have no end: %+v", found.Unended)
	}
}
