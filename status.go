package drawgate

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/drawgate/drawgate/store"
)

// Status describes the bucket of key, and what a take of costs at priority 0 would get. It spends
// nothing.
func (l *Limiter) Status(ctx context.Context, key string, costs ...Cost) (Status, error) {
	return l.Ask(key, costs...).Status(ctx, 0)
}

// Status is [Limiter.Status] for a priority. A cost that never fits shows as a RetryAfter of
// [Never].
func (a Ask) Status(ctx context.Context, priority int) (Status, error) {
	b, err := a.bucket()
	if err == nil {
		err = checkPriority(priority)
	}
	if err == nil {
		b.N, err = a.Limiter.plan.Amounts(a.Costs)
	}
	if err != nil {
		return Status{}, err
	}
	l := a.Limiter
	var out [1]store.State
	err = l.within(ctx, "peek", l.step, func(ctx context.Context) error {
		if err := l.store.Peek(ctx, []store.BucketCost{b}, int8(priority), out[:]); err != nil {
			return err
		}
		return out[0].Fail
	})
	if err != nil {
		return Status{}, l.storeError(ctx, "peek", err)
	}
	if alone := out[0].Barging; alone != nil && l.plan.policy.Wait.Barge {
		out[0].Verdict = *alone
	}
	st := status(&out[0], l.plan, priority)
	l.queue.describe(b.Key, l.plan, int8(priority), &st)
	return st, nil
}

// status makes a status of what the store said of a bucket.
func status(s *store.State, plan *Plan, priority int) Status {
	st := Status{
		Decision: decisionOf(&s.Verdict, []*Plan{plan}), States: s.States, Open: s.Open,
		Pause: Pause{Until: s.Pause.Until, Reason: s.Pause.Reason}, Line: s.Line,
	}
	if len(st.States) != len(plan.specs) { // a store that forgot one
		st.States = make([]store.LimitUsage, len(plan.specs))
		copy(st.States, s.States)
	}
	st.priority = uint8(priority)
	return st
}

// describe adds to a status who waits for its bucket. Where others come first, a take that would
// pass otherwise is refused.
func (q *waitQueue) describe(key Key, plan *Plan, priority int8, s *Status) {
	if q.some.Load() == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.look()
	for i, ln := range q.of(key) {
		next := max(0, time.Until(ln.next))
		if s.Waiting += ln.Len(); i == 0 || next < s.NextTry {
			s.NextTry = next
		}
	}
	ln := q.lines[q.key(key, plan, priority)]
	if ln == nil {
		return
	}
	if s.Allowed && !plan.policy.Wait.Barge && !ln.Leads(q.places.Next(priority, q.now())) {
		s.Allowed, s.Reason = false, Queued
		s.RetryAfter, s.EarliestRetry = max(time.Millisecond, time.Until(ln.next)), max(0, time.Until(ln.earliest))
	}
}

// Line describes the callers of this process that wait for one bucket, and where the first of them
// stands in the line of all processes.
type Line struct {
	Key     Key
	Waiting int
	Longest time.Duration // the longest-waiting one has been waiting
	Next    time.Duration // until the first tries again; 0: it is doing so
	Reason  Reason        // this and the rest as in [Progress]
	Held    bool
	Limit   string

	// As the store said when the first one tried last; 0 if it keeps no line, or if nobody waits
	// for the bucket that refused it.

	Tickets int           // in the line of all processes, 128 at most
	Others  int           // of other processes, in front of the first one; as in [Progress]
	Oldest  time.Duration // the one that has waited longest has been waiting
}

// Lines describes who waits in this process, the longest line first: for all limiters that were
// made from each other.
func (l *Limiter) Lines() []Line {
	all := l.queue.describeLines()
	slices.SortFunc(all, func(a, b Line) int {
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(b.Longest, a.Longest),
			strings.Compare(a.Key.Policy, b.Key.Policy), strings.Compare(a.Key.Tenant, b.Key.Tenant),
			strings.Compare(a.Key.Name, b.Key.Name))
	})
	return all
}

func (q *waitQueue) describeLines() []Line {
	q.mu.Lock()
	defer q.mu.Unlock()
	all, at := make([]Line, 0, len(q.lines)), make(map[Key]int, len(q.lines))
	for key := range q.lines {
		if _, ok := at[key.Key]; !ok {
			at[key.Key] = len(all)
			all = append(all, describeLine(key.Key, q.of(key.Key)))
		}
	}
	for _, w := range q.waiters {
		x := &all[at[w.bucket().Key]]
		x.Longest = max(x.Longest, time.Since(w.since))
	}
	return all
}

// describeLine describes the lines of one bucket. What holds them up, and where they stand, is said
// of those who may use least.
func describeLine(key Key, lines []*line) Line {
	first := lines[0]
	x := Line{
		Key: key, Next: max(0, time.Until(first.next)), Reason: Queued, Limit: first.by.name(),
		Tickets: first.stands.tickets, Others: first.others, Oldest: first.stands.longest(),
	}
	if first.by.plan != nil {
		x.Reason, x.Held = first.by.reason, first.held()
	}
	for _, ln := range lines {
		x.Waiting, x.Next = x.Waiting+ln.Len(), min(x.Next, max(0, time.Until(ln.next)))
	}
	return x
}
