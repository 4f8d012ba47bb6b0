//go:build long && unix

package main

import (
	"context"
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/audit"
	"github.com/drawgate/drawgate/spend"
)

// judge compares the bill, the ledgers and what drawgate spend shows.
func (s *spenders) judge() {
	s.Helper()
	var ledgers []string
	for i := range s.gateways {
		ledgers = append(ledgers, filepath.Join(s.b.dir, ledgerOf(i)))
	}
	reported, err := audit.Spending(context.WithoutCancel(s.Context()), ledgers,
		func(t time.Time) string { return t.In(s.biller.zone).Format(time.DateOnly) })
	if err != nil {
		s.Fatal(err)
	}
	shown, open := s.shown()
	eventually(s.T, "end of what killed gateways held", func() bool {
		if open > 0 {
			shown, open = s.shown()
		}
		return open == 0
	})
	found := s.check(ledgers)
	listed := map[spend.Meter]spend.Units{} // the most of calls that are listed
	for _, calls := range [][]unendedCall{found.Unended, found.Doubtful} {
		for i := range calls {
			m := spend.Meter(calls[i].Of)
			listed[m] = plus(listed[m], spend.Units{
				Requests: 1, PromptTokens: calls[i].Units["prompt_tokens"],
				AnswerTokens: calls[i].Units["answer_tokens"],
				Micros:       calls[i].Units["usd_micros"],
			})
		}
	}
	s.compare(shown, reported, listed)
	if s.biller.twice > 0 {
		s.Errorf("the provider got %d calls twice", s.biller.twice)
	}
}

// check runs drawgate spend --check, whose exit code says that the ledgers explain all.
func (s *spenders) check(ledgers []string) (found spendCheck) {
	s.Helper()
	args := []string{"spend", "--config", fileOf(0), "--json", "--from", s.dayBefore()}
	for _, l := range ledgers {
		args = append(args, "--check", l)
	}
	out, code := s.b.do(args...)
	if err := json.Unmarshal([]byte(out), &found); err != nil {
		s.Fatalf("spend --check ended with %d: %v: %s", code, err, out)
	}
	s.Logf("drawgate spend --check: exit code %d; %d calls in the ledgers: %d without an end and %d whose end the store may "+
		"not have heard are listed; %d lines are missing, %d meters differ by others", code, found.Calls, len(found.Unended), len(found.Doubtful), found.MissingLine, len(found.Differences))
	if code != 0 || found.MissingLine > 0 || found.OtherCalls > 0 {
		s.Errorf("spend --check ended with %d: %s", code, out)
	}
	return found
}

// dayBefore returns the last day of the month that ended.
func (s *spenders) dayBefore() string {
	return s.edge.In(s.biller.zone).AddDate(0, 0, -1).Format(time.DateOnly)
}

// shown returns what drawgate spend shows of both months, and how many calls are under way.
func (s *spenders) shown() (all map[spend.Meter]spend.Units, open int64) {
	s.Helper()
	all = map[spend.Meter]spend.Units{}
	for _, at := range []time.Time{s.edge.Add(-time.Hour), s.edge} {
		out, code := s.b.do("spend", "--config", fileOf(0), "--json", "--by", "day,team,key,upstream,model",
			"--month", at.In(s.biller.zone).Format("2006-01"))
		var a api.SpendAnswer
		if err := json.Unmarshal([]byte(out), &a); err != nil || code != 0 {
			s.Fatalf("spend ended with %d: %v: %s", code, err, out)
		}
		for i := range a.Rows {
			r := &a.Rows[i]
			m := spend.Meter{Day: r.Day, Team: r.Team, Key: r.Key, Upstream: r.Upstream, Model: r.Model}
			all[m] = spend.Units{
				Requests: r.Used.Requests, PromptTokens: r.Used.PromptTokens, AnswerTokens: r.Used.AnswerTokens,
				Micros: r.Used.CostMicros,
			}
			open += r.Open.Requests
		}
	}
	return all, open
}

// compare checks that meters without calls that are listed have what was billed and what the
// ledgers tell, and that others differ by no more than these calls reserved.
func (s *spenders) compare(shown map[spend.Meter]spend.Units, reported *audit.Spent,
	listed map[spend.Meter]spend.Units,
) {
	s.Helper()
	bill, ledgers := maps.Clone(s.biller.bill), map[spend.Meter]spend.Units{}
	for m, u := range s.biller.edge {
		bill[m] = plus(bill[m], u)
	}
	for p, units := range reported.Ended {
		ledgers[spend.Meter(p)] = spend.Units{
			Requests: units["requests"], PromptTokens: units["prompt_tokens"], AnswerTokens: units["answer_tokens"],
			Micros: units["usd_micros"],
		}
	}
	for _, of := range []*map[spend.Meter]spend.Units{&shown, &ledgers, &listed, &bill} {
		*of = sums(*of, s.day)
	}
	equal, none, open := 0, spend.Units{}, s.open(reported)
	all := maps.Clone(bill)
	maps.Copy(all, shown)
	for m := range all {
		b, l, got, rest := bill[m], ledgers[m], shown[m], listed[m]
		most := plus(l, rest)
		switch {
		case l == b && got == b:
			equal++
		case rest == none, !within(b, l, most), !within(got, none, most), !within(b, none, plus(got, rest)):
			s.Errorf("%+v: billed %+v, in the ledgers %+v, shown %+v; calls that are listed reserved %+v", m, b, l, got, rest)
		}
		if got.Requests > l.Requests+open[m] {
			s.Errorf("%+v: %d calls in the ledgers, %d without an end, and %d shown: some count twice", m, l.Requests, open[m],
				got.Requests)
		}
	}
	s.Logf("%d meters: %d have to the millionth what was billed and what the ledgers tell, the others differ by calls that "+
		"are listed", len(bill), equal)
	s.inAll(bill, ledgers, shown, listed)
	s.whoEnded(reported, total(bill).Requests)
	s.noMoreThanNeeded(reported, total(bill).Requests-total(shown).Requests)
}

// noMoreThanNeeded checks that the calls that are listed are those of which the store has nothing,
// but for some that were open when their gateway was killed or just ended, and of which it may have
// all (each caller had one at a time); those that it did not answer; and those that may count
// twice.
func (s *spenders) noMoreThanNeeded(reported *audit.Spent, lacking int64) {
	s.Helper()
	unanswered, twice := s.unanswered.Load(), int64(0)
	for i := range reported.Doubtful {
		if reported.Doubtful[i].Twice {
			twice++
		}
	}
	n := int64(len(reported.Unended) + len(reported.Doubtful))
	atKills := n - lacking - unanswered - twice
	s.Logf("%d calls are listed: the store has nothing of %d; %d may count twice, %d were not answered; %d were open or had "+
		"just ended when one of %d gateways was killed", n, lacking, twice, unanswered, atKills, s.gateways)
	if atKills > int64(s.callers*s.gateways) {
		s.Errorf("%d calls are listed too many", atKills-int64(s.callers*s.gateways))
	}
}

// open returns how many calls of each meter have no end in the ledgers.
func (s *spenders) open(reported *audit.Spent) map[spend.Meter]int64 {
	open := map[spend.Meter]int64{}
	for i := range reported.Unended {
		open[s.day(spend.Meter(reported.Unended[i].Spender))]++
	}
	return open
}

// day returns the meter whose day is told for certain. On which side of midnight the gateway had a
// call that was on its way then, the bill does not know: both days are taken together.
func (s *spenders) day(m spend.Meter) spend.Meter {
	for at := range s.biller.edge {
		if at.Day = m.Day; at == m {
			m.Day = "both days"
		}
	}
	return m
}

// inAll logs the sums of each day.
func (s *spenders) inAll(bill, ledgers, shown, listed map[spend.Meter]spend.Units) {
	s.Helper()
	byDay := func(of map[spend.Meter]spend.Units) map[spend.Meter]spend.Units {
		return sums(of, func(m spend.Meter) spend.Meter { return spend.Meter{Day: m.Day} })
	}
	b, l, g, r := byDay(bill), byDay(ledgers), byDay(shown), byDay(listed)
	for _, m := range slices.SortedFunc(maps.Keys(b), func(x, y spend.Meter) int {
		return strings.Compare(x.Day,
			y.Day)
	}) {
		s.Logf("%s: billed %+v, in the ledgers %+v, shown %+v; calls that are listed reserved %+v", m.Day, b[m],
			l[m], g[m], r[m])
	}
}

// whoEnded checks that only gateways that were killed leave calls without an end, and that the
// provider has each call of which a caller knows.
func (s *spenders) whoEnded(reported *audit.Spent, billed int64) {
	s.Helper()
	runs := map[string]bool{}
	for i := range reported.Unended {
		runs[reported.Unended[i].Run] = true
	}
	if len(runs) > s.gateways {
		s.Errorf("%d runs have calls without an end, and %d were killed", len(runs), s.gateways)
	}
	if least := s.answered.Load(); billed < least || billed > least+s.broken.Load() {
		s.Errorf("%d calls were billed, %d answered, and %d broken off", billed, least, s.broken.Load())
	}
}

// total adds all up.
func total(of map[spend.Meter]spend.Units) spend.Units {
	return sums(of, func(spend.Meter) spend.Meter { return spend.Meter{} })[spend.Meter{}]
}

// sums adds up what meters have, as by names them.
func sums(of map[spend.Meter]spend.Units, by func(spend.Meter) spend.Meter) map[spend.Meter]spend.Units {
	all := map[spend.Meter]spend.Units{}
	for m, u := range of {
		all[by(m)] = plus(all[by(m)], u)
	}
	return all
}

// within reports whether each unit is between its least and its most.
func within(u, least, most spend.Units) bool {
	between := func(n, from, to int64) bool { return from <= n && n <= to }
	return between(u.Requests, least.Requests, most.Requests) &&
		between(u.PromptTokens, least.PromptTokens, most.PromptTokens) &&
		between(u.AnswerTokens, least.AnswerTokens, most.AnswerTokens) && between(u.Micros, least.Micros, most.Micros)
}
