package gateway

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/ending"
	"github.com/drawgate/drawgate/outbound"
)

// arrange sorts the accounts of an alias by rendezvous hashing: the same caller's calls begin with
// the same account, whose cache knows their prompts, and an account that comes or goes moves no
// call between two others. An account is the first of as many callers as its weight says.
func arrange(accounts []Target, caller string) []Target {
	type scored struct {
		Target

		score float64
	}
	list := make([]scored, len(accounts))
	for i, t := range accounts {
		sum := sha256.Sum256([]byte(caller + "\x00" + t.Upstream + "/" + t.Model))
		const bits = 53 // of a float's fraction
		uniform := (float64(binary.BigEndian.Uint64(sum[:])>>(64-bits)) + 0.5) / (1 << bits)
		// How often one's is the least of several such numbers is in proportion to its weight
		// (Efraimidis and Spirakis, "Weighted random sampling with a reservoir").
		list[i] = scored{t, -math.Log(uniform) / float64(cmp.Or(t.Weight, 1))}
	}
	slices.SortStableFunc(list, func(a, b scored) int { return cmp.Compare(a.score, b.score) })
	sorted := make([]Target, len(list))
	for i := range list {
		sorted[i] = list[i].Target
	}
	return sorted
}

// members returns a call as each of its accounts makes it, itself first.
func (x *exchange) members(c *call) []*call {
	if c.group != nil {
		return c.group
	}
	group := []*call{c}
	for _, t := range c.others {
		m := x.of(c, x.state.upstreams[t.Upstream], t.Model)
		if m == nil {
			continue
		}
		m.alias, m.label = c.alias, x.called(m.up, t.Model)
		if x.route(m) == nil {
			group = append(group, m)
		}
	}
	for _, m := range group {
		m.group = group
	}
	return group
}

// outcome is what became of a call at one of its accounts.
type outcome struct {
	call     *call
	ask      ask
	resp     *http.Response
	err      error
	won      bool // the account's grant was the first of a race
	panicked any
}

// elsewhere reports whether another account may make the call: this one has not begun to, or its
// provider has refused it for the quota, or is overloaded.
func (o *outcome) elsewhere() bool {
	return exhausted(o.resp, o.err) || errors.Is(o.err, outbound.ErrNotSent) || errors.Is(o.err, outbound.ErrLate) ||
		errors.Is(o.err, drawgate.ErrNeverFits)
}

// waits reports whether the queue of the account may help.
func (o *outcome) waits() bool { return errors.Is(o.err, drawgate.ErrLimited) }

// after returns when the account may have room, as far as that is known.
func (o *outcome) after() time.Duration {
	if o.err != nil {
		if why, _ := errorOf(o.err, ""); why.after > 0 {
			return why.after
		}
	}
	return math.MaxInt64
}

// sooner returns the one of two refusals that is over sooner, and closes the other one's answer. a
// may be nil.
func sooner(a, b *outcome) *outcome {
	if a == nil {
		return b
	}
	if b.after() < a.after() {
		a, b = b, a
	}
	drop(b.resp)
	return a
}

// anywhere makes a call at the first of its accounts that grants it, and waits for at most so long
// until one does: in the queues of all of them at once. It returns as which account's call it was
// made, or would be soonest.
func (x *exchange) anywhere(c *call, wait time.Duration) (*call, *http.Response, error) {
	if len(c.others) == 0 {
		resp, err := x.send(c, wait)
		return c, resp, err
	}
	o := x.choose(c, wait)
	queued := max(x.ask.queued, o.ask.queued)
	x.ask, x.up, x.meant = o.ask, o.call.up, o.call
	x.ask.queued, x.ask.race = queued, nil
	return o.call, o.resp, o.err
}

// choose is anywhere for a call of several accounts.
func (x *exchange) choose(c *call, wait time.Duration) *outcome {
	end := time.Now().Add(wait)
	last := x.try(c)
	if !last.elsewhere() {
		return last
	}
	left := []*call{}
	note := func(o *outcome) {
		if o.waits() {
			left = append(left, o.call)
		}
	}
	note(last)
	for _, m := range x.members(c)[1:] {
		o := x.try(m)
		if !o.elsewhere() {
			drop(last.resp)
			return o
		}
		note(o)
		last = sooner(last, o)
	}
	for len(left) > 0 && x.ctx.Err() == nil {
		rest := time.Until(end)
		if rest < leastWait {
			break
		}
		o := x.race(left, rest)
		x.ask.queued = o.ask.queued
		if !o.elsewhere() {
			drop(last.resp)
			return o
		}
		last = sooner(last, o)
		// What was granted, and could not be sent in time, waits again: it has not begun.
		if !o.won || !o.waits() {
			left = slices.DeleteFunc(left, func(m *call) bool { return m == o.call })
		}
	}
	return last
}

// try makes a call if its account grants it at once.
func (x *exchange) try(c *call) *outcome {
	o := &outcome{call: c, ask: x.ask}
	o.resp, o.err = x.sendBy(x.ctx, c, &o.ask, 0) //nolint:bodyclose // whoever gets the outcome does
	x.ask.queued = o.ask.queued
	return o
}

// errElsewhere ends the wait in a queue whose call another account makes.
var errElsewhere = errors.New("gateway: another account makes the call")

// race is a call that waits in the queues of several accounts.
type race struct {
	asks  []*ask
	leave []context.CancelCauseFunc // of each
	won   atomic.Pointer[ask]       // the first that was granted
}

// claim reports whether a call is to be made with the grant of one of the accounts. The others then
// leave their queues.
func (r *race) claim(a *ask) bool {
	if !r.won.CompareAndSwap(nil, a) {
		return r.won.Load() == a // it is made again
	}
	for i, other := range r.asks {
		if other != a {
			r.leave[i](errElsewhere)
		}
	}
	return true
}

// race waits in the queues of several accounts at once. The one that grants the call first makes
// it; without any, it returns the refusal that is over soonest.
func (x *exchange) race(group []*call, wait time.Duration) *outcome {
	r := &race{}
	outcomes, starts := make([]*outcome, len(group)), make([]func(), len(group))
	for i, m := range group {
		o := &outcome{call: m, ask: x.ask}
		o.ask.race = r
		ctx, leave := context.WithCancelCause(x.ctx) // the winner's ends with the request
		r.asks, r.leave, outcomes[i] = append(r.asks, &o.ask), append(r.leave, leave), o
		starts[i] = func() {
			defer func() { o.panicked = recover() }()
			o.resp, o.err = x.sendBy(ctx, o.call, &o.ask, wait) //nolint:bodyclose // whoever gets the outcome does
		}
	}
	var all sync.WaitGroup
	for _, start := range starts {
		all.Go(start)
	}
	all.Wait() // for the others too: they read the call's body
	var last *outcome
	for _, o := range outcomes {
		if o.panicked != nil {
			panic(o.panicked) //nolint:forbidigo // that of another goroutine, for the server's handler of panics
		}
		if r.won.Load() == &o.ask {
			o.won, last = true, o
		}
	}
	for _, o := range outcomes {
		if r.won.Load() == nil {
			last = sooner(last, o)
		}
	}
	return last
}

// giveBack cancels a grant that nobody uses.
func (q *quota) giveBack(ctx context.Context, g outbound.Grant) {
	ctx, stop := ending.Context(ctx)
	defer stop()
	if err := g.Cancel(ctx); err != nil && !errors.Is(err, drawgate.ErrGone) {
		q.h.warn("what was held for a call that is not made ends by itself, as used", "owner", q.owner,
			"error", err)
	}
}
