package ledgerfile

import (
	"errors"
	"slices"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/audit"
	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/outbound"
)

// Observer returns an observer that writes what clients do. Clients whose upstreams have different
// names can share it.
func (w *Writer) Observer() *outbound.Observer {
	return &outbound.Observer{Asking: w.asking, Granted: w.granted, Ended: w.ended, Called: w.called}
}

// asking writes who makes a call, if it is counted what it spends: if this process is killed, the
// store may have granted a call of which no other line tells.
func (w *Writer) asking(e *outbound.Event) {
	if !slices.ContainsFunc(e.Estimate, func(c drawgate.Cost) bool { return c.Unit == llm.UnitPromptTokens }) {
		return
	}
	l := audit.Line{
		Event: audit.Asked, Call: e.ID, Upstream: e.Upstream, Model: e.Model, Asked: nanos(e.Asked),
		Reserved: reserved(e.Estimate),
	}
	l.Key, l.Team = caller(e)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.write(&l)
}

// granted writes that a call was granted, before it is sent.
func (w *Writer) granted(e *outbound.Event) {
	l := audit.Line{
		Event: audit.Reserved, Call: e.ID, Upstream: e.Upstream, Owner: e.Owner, Model: e.Model,
		Policy: policy(&e.Decision),
		Asked:  nanos(e.Asked), Granted: nanos(e.Granted), Reserved: reserved(e.Estimate),
		Fallback: e.Decision.Fallback, Unsure: e.Decision.Unsure(),
	}
	l.Key, l.Team = caller(e)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running++
	w.write(&l)
}

// ended writes how a call ended, before what it did not use is given back: whoever uses that next
// must find room in the ledger, even if this process is killed in between.
func (w *Writer) ended(e *outbound.Event) {
	l := audit.Line{Call: e.ID, Upstream: e.Upstream, Outcome: e.Outcome.String()}
	end(&l, e)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running--
	w.write(&l)
	w.ends.add(nameOf(e), w.n)
}

// called notes that a call was settled, or writes that it was not granted.
func (w *Writer) called(e *outbound.Event) {
	if e.Outcome != outbound.NotGranted && e.Outcome != outbound.TurnedAway {
		w.settled(e)
		return
	}
	l := audit.Line{
		Event: audit.Refused, Call: e.ID, Upstream: e.Upstream, Outcome: e.Outcome.String(), Asked: nanos(e.Asked),
		Owner: e.Owner, Model: e.Model, Reserved: reserved(e.Estimate), Limit: limits(e.Err),
	}
	if r, ok := errors.AsType[*drawgate.LimitedError](e.Err); ok && r.Decision.Unsure() {
		l.Fallback, l.Unsure = true, true
	}
	l.Key, l.Team = caller(e)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.write(&l)
}

// settled notes that a call was settled. If that failed, it writes so.
func (w *Writer) settled(e *outbound.Event) {
	w.mu.Lock()
	if e.Unsettled != nil {
		w.write(&audit.Line{Event: audit.Unheard, Call: e.ID, Upstream: e.Upstream, Granted: nanos(e.Granted)})
	}
	w.ends.settle(nameOf(e))
	w.mu.Unlock()
	w.listen()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.watch()
}

// listen finds out what the store has heard. A call that is settled after the question is not meant
// by its answer, so it waits for the next one.
func (w *Writer) listen() {
	w.mu.Lock()
	upTo := w.ends.settled(w.n)
	w.mu.Unlock()
	if w.pending() {
		return
	}
	miscounted := uint64(0) // after what was pending: a call that is counted wrongly was pending before
	if w.opts.Miscounted != nil {
		miscounted = w.opts.Miscounted()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ends.hear(upTo)
	w.ends.miscounted = max(w.ends.miscounted, miscounted)
}

// pending reports whether the store has yet to be told of calls that were settled.
func (w *Writer) pending() bool { return w.opts.Pending != nil && w.opts.Pending() }

func nameOf(e *outbound.Event) callName { return callName{e.Upstream, e.ID, nanos(e.Granted)} }

// caller returns the names of the key and the team that made a call, as its labels have them.
func caller(e *outbound.Event) (key, team string) {
	for _, l := range e.Labels {
		switch l.Name {
		case "key":
			key = l.Value
		case "team":
			team = l.Value
		}
	}
	return key, team
}

// end says how a call ended.
func end(l *audit.Line, e *outbound.Event) {
	l.Event, l.Granted = audit.Refunded, nanos(e.Granted)
	if e.Sent.IsZero() {
		return
	}
	l.Event, l.Sent, l.Answered, l.Ended = audit.Settled, nanos(e.Sent), nanos(e.Answered), nanos(e.Ended)
	l.Status, l.Used, l.Reported = e.Status, amounts(e.Used), reported(e)
	if e.Refusal != (llm.Refusal{}) {
		l.Meaning, l.Unit = e.Refusal.Meaning.String(), e.Refusal.Unit
	}
}

// reported says what the upstream said of the usage. A function that says what its call used knows
// it. What it said of the input is not all of it if the call was settled with more: searches add to
// the prompt until the answer ends.
func reported(e *outbound.Event) audit.Reported {
	switch {
	case e.Usage.Final && e.Usage.InputKnown, e.Status == 0 && e.Outcome == outbound.Succeeded && e.Used != nil:
		return audit.ReportedAll
	case e.Usage.InputKnown && !slices.ContainsFunc(e.Used, func(c drawgate.Cost) bool {
		return c.Unit == llm.UnitInputTokens && c.N > e.Usage.Input
	}):
		return audit.ReportedInput
	}
	return ""
}

// policy returns the policy of the upstream's quota: that of the first bucket.
func policy(d *drawgate.Decision) string {
	for r := range d.Limits() {
		return r.Policy
	}
	return ""
}

// limits returns which limits refused a call, as policy/limit; or the reason if none did.
func limits(err error) (text string) {
	l, ok := errors.AsType[*drawgate.LimitedError](err)
	if !ok {
		return ""
	}
	for r := range l.Decision.Limits() {
		if !r.Refused() {
			continue
		}
		if text != "" {
			text += " "
		}
		text += r.Policy + "/" + r.Limit.Name
	}
	if text == "" {
		return l.Decision.Reason.String()
	}
	return text
}

// reserved returns what was held. Without any costs a call is one request.
func reserved(costs []drawgate.Cost) []audit.Amount {
	if costs == nil {
		return []audit.Amount{{Unit: drawgate.UnitRequests, N: 1}}
	}
	return amounts(costs)
}

func amounts(costs []drawgate.Cost) []audit.Amount {
	if costs == nil {
		return nil
	}
	list := make([]audit.Amount, len(costs))
	for i, c := range costs {
		list[i] = audit.Amount{Unit: c.Unit, N: c.N}
		if c.Unit == "" {
			list[i].Unit = drawgate.UnitRequests
		}
	}
	return list
}

// nanos returns nanoseconds since 1970; 0 for the zero time.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}
