package ledgerfile_test

import (
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/audit"
	"github.com/drawgate/drawgate/audit/ledgerfile"
	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/outbound"
	"github.com/drawgate/drawgate/store"
)

// TestHeardIsNotOfLaterCalls: a call that is settled while it is found out whether the store has
// heard of the others is not meant by the answer: the store may have gone away in between.
func TestHeardIsNotOfLaterCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		var between func()
		var pending atomic.Bool
		w := open(t, dir, &ledgerfile.Options{Pending: func() bool {
			answer := pending.Load()
			if f := between; f != nil {
				between = nil
				f()
			}
			return answer
		}})
		o := w.Observer()
		end := func(e *outbound.Event) {
			e.Sent, e.Answered, e.Ended, e.Status, e.Used = time.Now(), time.Now(), time.Now(), 200, e.Estimate
			o.Ended(e)
		}
		first, second := begin(w, 1), begin(w, 2)
		end(first)
		var endOfSecond uint64
		between = func() {
			pending.Store(true)
			end(second)
			l, _ := last(t, dir)
			endOfSecond = l.N
			o.Called(second)
		}
		o.Called(first)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if _, heard := last(t, dir); heard >= endOfSecond {
			t.Errorf("the store has heard of all up to %d, want less than %d: it is away", heard, endOfSecond)
		}
		pending.Store(false)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if _, heard := last(t, dir); heard < endOfSecond {
			t.Errorf("the store is back: it has heard of all up to %d, want at least %d", heard, endOfSecond)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestNothingHeard: of a process that ended while the store was away, before it heard of any call,
// the calls are doubtful.
func TestNothingHeard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		w := open(t, dir, &ledgerfile.Options{Pending: func() bool { return true }})
		o := w.Observer()
		for id := range uint64(3) {
			now := time.Now()
			e := &outbound.Event{
				ID: id + 1, Upstream: "u", Asked: now, Granted: now, Sent: now, Answered: now, Ended: now, Status: 200,
				Labels:   []store.Label{{Name: "key", Value: "alice"}},
				Estimate: []drawgate.Cost{drawgate.Units(llm.UnitPromptTokens, 10)},
			}
			o.Granted(e)
			o.Ended(e)
			o.Called(e)
			time.Sleep(2 * time.Minute)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(parts(t, dir)[0])
		if err != nil {
			t.Fatal(err)
		}
		s, err := audit.Spending(t.Context(), []string{dir}, func(time.Time) string { return "" })
		if err != nil || len(s.Doubtful) != 3 {
			t.Errorf("%d calls are doubtful, %v, want 3, in:\n%s", len(s.Doubtful), err, text)
		}
	})
}
