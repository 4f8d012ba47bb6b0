package models

import (
	"bytes"
	"encoding/json"
	"maps"
	"os/exec"
	"slices"
	"strconv"
	"testing"

	"github.com/drawgate/drawgate/internal/needs"
)

// TestHistories repeats the random histories of histories.py with package record, which ships, and
// compares after each event: who is granted, or why not and by which limits; who has a ticket
// where, for how many units and in which order; what is used of each limit, and what passed a
// ticket.
//
// Left out, because the model has no time: how long a refusal says to wait, takes with a patience,
// and the life of tickets (the replay makes them end where the model does).
//
// Not in the model: the bounds of 128 tickets, 127 names and 16 grants that are told apart; more
// than two priorities; takes that are granted ahead or sent again; what a paused bucket says of
// each of its limits. Takes over several servers are made by the stores, which have tests of their
// own.
//
// Left out of the histories, because the code counts for longer what passed a ticket: takes of
// several kept units of a bucket. Bucket and calendar limits are charged at the start there.
//
// req: C5
func TestHistories(t *testing.T) {
	t.Parallel()
	python, seen := needs.Program(t, "python3"), counts{}
	const batch = 500
	for seed := 1; seed < needs.Rounds(1, 2000, 20_000); seed += batch {
		cmd := exec.CommandContext(t.Context(), python, "-B", "histories.py", strconv.Itoa(batch), strconv.Itoa(seed))
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v", cmd, err)
		}
		n := 0
		for line := range bytes.Lines(out) {
			h := &history{}
			if err := json.Unmarshal(line, h); err != nil {
				t.Fatal(err)
			}
			if err := newReplay(h, seen).run(); err != nil {
				t.Fatalf("%v\nThis prints the whole history: models/histories.py 1 %d", err, h.Seed)
			}
			n++
		}
		if n != batch {
			t.Fatalf("%v: %d histories, want %d", cmd, n, batch)
		}
	}
	seen.check(t)
}

// history is what histories.py prints. Times are in seconds.
type history struct {
	Seed   uint64
	At     int64
	Limits []limit
	High   int8 // priority from which on a take may use High of a limit
	One    bool // the limits are of one bucket
	Slots  []slot
	Start  []int // slots that have a ticket in the beginning
	Events []event
}

// slot is a caller that comes again and again.
type slot struct {
	Need     []int64 // per limit
	Priority int     // 0, 1
	Kind     string
}

type limit struct {
	Kind            string
	Window          int64
	Low, High, Held int64
	End             bool // it is charged at the end
}

// event is what happens to a slot, and what is the case afterwards. One more slot than there are is
// the ghost: a waiter that is gone, whose ticket has stayed.
type event struct {
	At         int64
	Do         string
	Slot, Take int
	Out        string  // of a question
	Refused    []int   // limits
	Place      int     // among those in line; -1: it is known there
	Next       [][]int // who is named, and its place
	Line       int     // a limit, for whose bucket these wait
	Until      int64   // when what begins here ends by itself
	Actual     []int64 // of a settlement, per limit: what was used; -1: as estimated
	Want       int64   // of a lease
	Granted    int64
	Spent      int64

	Order   []int   // slots
	Tickets []int64 // per slot: a bit per limit
	Used    []int64 // per limit
	Past    []int64 // of these, what passed a ticket
	First   []int64 // what passed the first ticket
}

// counts says how often what happened.
type counts map[string]int

// check sees to it that all happened that is to be compared.
func (c counts) check(t *testing.T) {
	t.Helper()
	for _, what := range []string{
		"granted", "full", "queued", "paused", "waits", "polls", "ignores", "named", "named too early", "dies",
		"withdraw", "expire", "settle", "cancel", "over", "unpause", "lease", "part of a lease", "renew", "return",
		"passed", "passed the first",
	} {
		if c[what] < 10 {
			t.Errorf("%s: %d times", what, c[what])
		}
	}
	if c["cut short"] > c["comes"]/1000 {
		t.Errorf("%d histories were cut short", c["cut short"])
	}
	for _, what := range slices.Sorted(maps.Keys(c)) {
		t.Logf("%d times: %s", c[what], what)
	}
}
