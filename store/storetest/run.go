package storetest

import (
	"slices"
	"testing"
)

// testCase is one promise.
type testCase struct {
	name    string
	promise string
	run     func(e *env)
	still   bool // also holds on a real clock: no other instant is needed
}

// Cases returns the names of the cases that [Run] runs with a harness.
func Cases(h Harness) (names []string) {
	for _, c := range h.cases() {
		names = append(names, c.name)
	}
	return names
}

// cases returns those that the harness asks for. They differ in their names.
func (h Harness) cases() []testCase {
	all := slices.Concat(
		kindCases, refusalCases, answerCases, shareCases, marginCases, calendarCases, reserveCases, settleCases,
		chargeEndCases, leaseCases,
		chargeCases, grantCases, pauseCases, bookCases, refundCases, changeCases, keyCases, batchCases, endCases,
		raceCases, optionalCases, documentCases, lineCases, historyCases,
	)
	if h.Advance == nil {
		all = append(all, testCase{
			name: "real time", promise: "units come back as time passes", run: testRealTime,
			still: true,
		})
	}
	return slices.DeleteFunc(all, func(c testCase) bool {
		return h.Without[c.name] != "" ||
			h.Advance == nil && !c.still
	})
}

// Run checks every promise, one subtest each. Promises of [store.Resetter], [store.Lister],
// [store.Journal], [store.Pinger], [store.Documents], [store.Watcher] and [store.Liner] are checked
// if the store implements them; go test -v says of which it does not.
func Run(t *testing.T, h Harness) {
	t.Helper()
	cases := h.cases()
	for _, c := range cases {
		h.subtest(t, c)
	}
	every := h
	every.Without = nil
	if left, all := len(cases)+len(h.Without), Cases(every); left != len(all) {
		t.Errorf("%d of %d cases run, and %d are left out: the harness names one that does not exist, or gives no reason", len(cases), len(all), len(h.Without))
	}
}

func (h Harness) subtest(t *testing.T, c testCase) {
	t.Helper()
	t.Run(c.name, func(t *testing.T) {
		t.Parallel()
		h.wrap(t, func(t *testing.T) {
			t.Helper()
			e := &env{T: t, h: h, s: h.New(t)}
			defer func() {
				if t.Failed() {
					t.Logf("promise: %s", c.promise)
				}
			}()
			c.run(e)
		})
	})
}

func (h Harness) wrap(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	if h.Wrap != nil {
		h.Wrap(t, f)
	} else {
		f(t)
	}
}
