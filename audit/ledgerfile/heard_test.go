package ledgerfile_test

import (
	"bytes"
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate/audit"
	"github.com/drawgate/drawgate/audit/ledgerfile"
	"github.com/drawgate/drawgate/outbound"
)

// last returns the last line of a ledger in one file, and the last that tells what was heard.
func last(t *testing.T, dir string) (l *audit.Line, heard uint64) {
	t.Helper()
	text, err := os.ReadFile(parts(t, dir)[0])
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		if l, err = audit.ParseLine(line); err != nil {
			t.Fatal(err)
		}
		heard = max(heard, l.Heard)
	}
	return l, heard
}

// TestHeard: a ledger tells which ends of calls the store has heard of, within a second: none
// before they were settled, or while what an outage left is still to be sent; and of which the
// store will never hear.
func TestHeard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		var pending atomic.Bool
		w := open(t, dir, &ledgerfile.Options{Pending: pending.Load})
		o := w.Observer()
		end := func(e *outbound.Event) uint64 {
			e.Sent, e.Answered, e.Ended, e.Status, e.Used = time.Now(), time.Now(), time.Now(), 200, e.Estimate
			o.Ended(e)
			l, _ := last(t, dir)
			return l.N
		}
		want := func(when string, n uint64) {
			t.Helper()
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if _, heard := last(t, dir); heard != n {
				t.Errorf("%s: the store has heard of all up to %d, want %d", when, heard, n)
			}
		}
		first, second, third := begin(w, 1), begin(w, 2), begin(w, 3)
		endOfSecond := end(second)
		o.Called(second)
		want("one call was settled", endOfSecond)
		end(first)
		endOfThird := end(third)
		o.Called(third)
		want("the first one is being settled", endOfSecond)
		pending.Store(true)
		o.Called(first)
		want("the store is away", endOfSecond)
		pending.Store(false)
		time.Sleep(2 * time.Second)
		if _, heard := last(t, dir); heard < endOfThird {
			t.Errorf("the store is back: it has heard of all up to %d, want at least %d", heard, endOfThird)
		}
		before, _ := last(t, dir)
		time.Sleep(time.Hour)
		if after, _ := last(t, dir); after.N > before.N+1 {
			t.Errorf("%d lines were written while nothing happened", after.N-before.N)
		}
		fourth := begin(w, 4)
		end(fourth)
		fourth.Unsettled = errors.New("no room")
		o.Called(fourth)
		l, _ := last(t, dir)
		if l.Event != audit.Unheard || l.Call != 4 || l.Granted != fourth.Granted.UnixNano() {
			t.Errorf("after a call that could not be settled: %+v", l)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if l, _ := last(t, dir); l.Event != audit.Closed || l.Heard != l.N-1 {
			t.Errorf("at the end: %+v", l)
		}
	})
}

// TestMiscounted: a ledger tells once that a call may be counted wrongly, with the line that says
// that the store has heard of it.
func TestMiscounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		var pending atomic.Bool
		var wrong atomic.Uint64
		w := open(t, dir, &ledgerfile.Options{Pending: pending.Load, Miscounted: wrong.Load})
		o := w.Observer()
		for id := range uint64(3) {
			e := begin(w, id+1)
			e.Sent, e.Answered, e.Ended, e.Status, e.Used = time.Now(), time.Now(), time.Now(), 200, e.Estimate
			o.Ended(e)
			end, _ := last(t, dir)
			pending.Store(true)
			o.Called(e)
			time.Sleep(10 * time.Second)
			if id == 1 {
				wrong.Add(1)
			}
			pending.Store(false)
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if l, _ := last(t, dir); l.Event != audit.Alive || l.Heard < end.N || l.Miscounted != (id == 1) {
				t.Errorf("call %d: %+v", id+1, l)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
