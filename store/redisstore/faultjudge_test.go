package redisstore_test

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store/guard"
)

// span is from when until when something lasted, in µs.
type span struct{ from, to int64 }

func (s span) meets(o span) bool { return s.from <= o.to && o.from <= s.to }

// bucketOf is one of the buckets that processes take from.
type bucketOf struct{ kind, key int }

// parts returns the buckets of a take.
func (a *act) parts() []bucketOf {
	if a.kind == ofBoth {
		return []bucketOf{{ofShare, a.key}, {ofClosed, a.key}}
	}
	return []bucketOf{{a.kind, a.key}}
}

// verdict is what one run of a fault showed.
type verdict struct {
	Fault, Servers     string
	Rate               float64           // takes a second
	Takes, Without     int               // all, and those decided without the store
	Over, May          [faultKinds]int64 // of the bucket that was most over its limit
	Back               [2]int64          // units and reservations that servers lost, and have again
	Broken             int               // buckets that were over what they may be
	P999, Longest      time.Duration
	Machine            time.Duration // how late it woke a process that waited for nothing
	Normal             time.Duration // until each process's takes were decided by the store again; negative: never
	Failed, Unanswered int

	seen [faultKinds]bool
}

// kept says whether no more was admitted than may be, and each take was answered.
func (v *verdict) kept() bool {
	return v.Broken == 0 && v.Failed == 0 && v.Unanswered == 0 && v.Normal >= 0
}

// judge looks at the processes' logs.
func (f *trial) judge() *verdict {
	v := &verdict{Fault: f.fault.name, Servers: f.fault.on, Rate: f.rate, Normal: f.normalAfter()}
	var took []time.Duration
	of := map[bucketOf][]act{}
	for _, p := range f.procs {
		p.mu.Lock()
		acts := p.freed()
		v.Back[0], v.Back[1] = v.Back[0]+p.back[0], v.Back[1]+p.back[1]
		p.mu.Unlock()
		v.Takes += len(acts)
		if !p.killed && p.said != int64(len(acts)) {
			v.Unanswered += int(p.said) - len(acts)
		}
		v.Machine = max(v.Machine, p.lateness())
		for _, a := range acts {
			if a.fallback {
				v.Without++
			}
			if a.failed {
				v.Failed++
			}
			if !p.stood(span{a.due, a.got}) {
				took = append(took, time.Duration(a.got-a.due)*time.Microsecond)
			}
			for _, b := range a.parts() {
				if a.allowed {
					of[b] = append(of[b], a)
				}
			}
		}
	}
	slices.Sort(took)
	v.P999, v.Longest = took[int(0.999*float64(len(took)-1))], took[len(took)-1]
	for b, acts := range of {
		f.count(v, b, acts)
	}
	return v
}

// count looks how far a bucket was over its limit.
func (f *trial) count(v *verdict, b bucketOf, acts []act) {
	var most int64
	if b.kind == ofSlots {
		most = mostHeld(acts) - faultSlots
	} else {
		most = mostInWindow(acts, f.fault.window()) - faultAmount
	}
	over, may := max(0, most), f.bound[b.kind]+f.lostOf(b, acts)
	if over > may {
		v.Broken++
	}
	if was := v.Over[b.kind]; !v.seen[b.kind] || over > was || over == was && may < v.May[b.kind] {
		v.seen[b.kind], v.Over[b.kind], v.May[b.kind] = true, over, may
	}
}

// lostOf returns how much of what was admitted of a bucket the servers may have forgotten. One loss
// is no more than the limit.
func (f *trial) lostOf(b bucketOf, acts []act) (sum int64) {
	limit := int64(faultAmount)
	if b.kind == ofSlots {
		limit = faultSlots
	}
	for _, s := range f.lost {
		n := int64(0)
		for _, a := range acts {
			if !a.fallback && s.meets(span{a.sent, a.got}) {
				n++
			}
		}
		sum += min(n, limit)
	}
	return sum
}

// mostInWindow returns the most that was certainly admitted in a window: asked and answered in it.
func mostInWindow(acts []act, window time.Duration) (most int64) {
	slices.SortFunc(acts, func(a, b act) int { return int(a.sent - b.sent) })
	for i, a := range acts {
		n, end := int64(0), a.sent+window.Microseconds()
		for _, b := range acts[i:] {
			if b.sent >= end {
				break
			}
			if b.got < end {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// mostHeld returns how many slots were certainly held at the same time: from when they were known
// to be until they were given back, or their hold ended.
func mostHeld(acts []act) (most int64) {
	type change struct{ at, by int64 }
	var all []change
	for _, a := range acts {
		if end := min(a.until, a.sent+faultHold.Microseconds()); end > a.got {
			all = append(all, change{a.got, 1}, change{end, -1})
		}
	}
	slices.SortFunc(all, func(a, b change) int {
		if a.at != b.at {
			return int(a.at - b.at)
		}
		return int(a.by - b.by)
	})
	n := int64(0)
	for _, c := range all {
		n += c.by
		most = max(most, n)
	}
	return most
}

// inARow is how many decisions of the store in a row show that a process is back.
const inARow = 20

// normalAfter returns how long after the fault each process's takes were decided by the store
// again; a negative one if that is not so.
func (f *trial) normalAfter() (most time.Duration) {
	for _, p := range f.procs {
		if p.killed {
			continue
		}
		at, ok := p.normal(f.healed)
		if !ok {
			return -1
		}
		most = max(most, time.Duration(at-f.healed)*time.Microsecond)
	}
	return most
}

// faultBounds returns how far over their limits outages may lead, as it is printed by "drawgate
// bound".
func faultBounds() (bounds [faultKinds]int64, err error) {
	for kind, policy := range faultPolicies(time.Second) {
		lines, err := guard.Bound([]drawgate.Policy{policy}, faultProcesses)
		if err != nil {
			return bounds, err
		}
		bounds[kind] = max(lines[0].Extra, lines[0].Partly, 0)
	}
	return bounds, nil
}

// parse reads a line of a process.
func (p *process) parse(line string) {
	word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	if word == "error" {
		p.mu.Lock()
		p.errors = append(p.errors, rest)
		p.mu.Unlock()
		return
	}
	var n [9]int64
	for i, field := range strings.Fields(rest) {
		n[min(i, len(n)-1)], _ = strconv.ParseInt(field, 10, 64)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch word {
	case "take":
		p.acts = append(p.acts, act{
			kind: int(n[0]), key: int(n[1]), allowed: n[2] == 1, fallback: n[3] == 1, failed: n[4] == 1,
			due: n[5], sent: n[6], got: n[7], id: n[8],
		})
	case "free":
		p.free[n[0]] = n[1]
	case "late":
		p.late = append(p.late, span{n[0] - n[1], n[0]})
	case "back":
		p.back[0], p.back[1] = p.back[0]+n[0], p.back[1]+n[1]
	case "end":
		p.said = n[0]
	}
}

// freed returns all takes, and until when the slots were used.
func (p *process) freed() []act {
	acts := slices.Clone(p.acts)
	for i := range acts {
		if a := &acts[i]; a.id != 0 && a.allowed {
			a.until = math.MaxInt64
			if at, ok := p.free[a.id]; ok {
				a.until = at
			}
		}
	}
	return acts
}

// normal returns the first instant after another from which the store decided inARow takes of the
// process.
func (p *process) normal(after int64) (at int64, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	row := 0
	for i := range p.acts {
		a := &p.acts[i]
		switch {
		case a.sent < after:
		case a.fallback || a.failed:
			row = 0
		default:
			if row++; row == 1 {
				at = a.got
			}
			if row == inARow {
				return at, true
			}
		}
	}
	return 0, false
}

// stood reports whether the process stood still during a span.
func (p *process) stood(s span) bool { return slices.ContainsFunc(p.stops, s.meets) }

// lateness returns by how much the machine woke the process too late.
func (p *process) lateness() (most time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.late {
		if !p.stood(s) {
			most = max(most, time.Duration(s.to-s.from)*time.Microsecond)
		}
	}
	return most
}

func (v *verdict) String() string {
	return fmt.Sprintf("%.0f takes a second; %d takes, %d without the store, %d failed, %d not answered; over by "+
		"share %d (may be %d), closed %d (%d), slots %d (%d); %d units and %d reservations came back; p99.9 %v, longest %v, machine %v; normal after %v",
		v.Rate, v.Takes, v.Without, v.Failed, v.Unanswered, v.Over[ofShare], v.May[ofShare], v.Over[ofClosed],
		v.May[ofClosed], v.Over[ofSlots], v.May[ofSlots], v.Back[0], v.Back[1], v.P999, v.Longest, v.Machine, v.Normal)
}

// TestJudgeOfFaults: what is over a limit is found, what is at its edge is not, and what may have
// happened otherwise is not counted.
func TestJudgeOfFaults(t *testing.T) {
	t.Parallel()
	s := int64(time.Second / time.Microsecond)
	taken := func(sent, got int64) act { return act{allowed: true, sent: sent, got: got} }
	for what, c := range map[string]struct {
		acts []act
		want int64
	}{
		"in one window":            {[]act{taken(0, 1), taken(s, s+1), taken(2*s-2, 2*s-1)}, 3},
		"at both edges":            {[]act{taken(0, 1), taken(s, s+1), taken(2*s, 2*s+1)}, 2},
		"answered after its end":   {[]act{taken(0, 1), taken(s, 3*s)}, 1},
		"in a window of their own": {[]act{taken(5*s, 5*s), taken(0, 0), taken(6*s, 6*s)}, 2},
	} {
		if got := mostInWindow(c.acts, 2*time.Second); got != c.want {
			t.Errorf("%s: %d, want %d", what, got, c.want)
		}
	}
	slot := func(sent, got, until int64) act { return act{allowed: true, sent: sent, got: got, until: until} }
	for what, c := range map[string]struct {
		acts []act
		want int64
	}{
		"at the same time":          {[]act{slot(0, 1, s), slot(1, 2, s), slot(3, 4, 5)}, 3},
		"one after the other":       {[]act{slot(0, 1, s), slot(s-5, s, 2*s)}, 1},
		"after a hold ended":        {[]act{slot(0, 1, math.MaxInt64), slot(6*s, 6*s, math.MaxInt64)}, 1},
		"answered after its hold":   {[]act{slot(0, 6*s, math.MaxInt64)}, 0},
		"before the hold has ended": {[]act{slot(0, 1, math.MaxInt64), slot(4*s, 4*s, math.MaxInt64)}, 2},
	} {
		if got := mostHeld(c.acts); got != c.want {
			t.Errorf("%s: %d slots, want %d", what, got, c.want)
		}
	}
	acts := []act{taken(0, 1), taken(10, 11), taken(20, 21), {allowed: true, fallback: true, sent: 10, got: 11}}
	f := &trial{fault: &fault{}, lost: []span{{5, 15}}}
	if got := f.lostOf(bucketOf{ofShare, 0}, acts); got != 1 {
		t.Errorf("%d admissions may be lost, want the one that the store granted meanwhile", got)
	}
}
