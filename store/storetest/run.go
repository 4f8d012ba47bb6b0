package storetest

import (
	"testing"
)

// testCase is one promise.
type testCase struct {
	name    string
	promise string
	run     func(e *env)
	still   bool // also holds on a real clock: no other instant is needed
}

// lengthy are the names of the cases that Harness.Brief leaves out.
var lengthy = map[string]bool{
	"ids used again": true, "huge numbers": true, "bucket odd rates": true, "bookings": true, "64 buckets": true, "never over, never idle": true,
	"bucket fractions": true, "days of a year": true, "peek": true, "many open": true,
}

// Run checks every promise, one subtest each. Promises of [drawgate.Resetter], [drawgate.Lister],
// [drawgate.Journal], [drawgate.Pinger] and [drawgate.Watcher] are checked if the store implements
// them.
func Run(t *testing.T, h Harness) {
	t.Helper()
	for _, group := range [][]testCase{
		kindCases, refusalCases, answerCases, shareCases, marginCases, calendarCases, reserveCases, settleCases, chargeEndCases, leaseCases,
		chargeCases, grantCases, pauseCases, bookCases, refundCases, changeCases, keyCases, batchCases, endCases, raceCases, optionalCases,
	} {
		for _, c := range group {
			if (h.Advance != nil || c.still) && (!h.Brief || !lengthy[c.name]) {
				h.subtest(t, c)
			}
		}
	}
	if h.Advance == nil {
		h.subtest(t, testCase{name: "real time", promise: "units come back as time passes", run: testRealTime})
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
