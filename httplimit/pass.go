package httplimit

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/hold"
)

// Pass is the answer to a request: serve it and call End, or refuse it with Problem.
type Pass struct {
	Problem *Problem   // nil: serve the request
	hold    *hold.Hold // nil: nothing is held
}

// Held reports whether units are held until End: the handler should then run under [Pass.Context].
func (p Pass) Held() bool { return p.hold != nil }

// Context returns the context for the handler of a request whose context is ctx. If units are held
// it ends when they are lost, with [ErrHoldLost] as its cause.
func (p Pass) Context(ctx context.Context) context.Context {
	if p.hold == nil {
		return ctx
	}
	return p.hold.Context()
}

// End gives back what is held. It must be called when the request was served, however that ended,
// and may be called again. It waits for the store, for a second at most.
func (p Pass) End() {
	if p.hold != nil {
		p.hold.End()
	}
}

// Begin decides a request and writes what was decided into the headers of its answer: for adapters,
// which do what [Middleware.Handler] does where the framework is another. It waits if the
// middleware does, for as long as r's context lasts.
func (m *Middleware) Begin(h http.Header, r *http.Request) Pass {
	if m.skips(r) {
		return Pass{}
	}
	if m.lone == nil {
		return m.beginMany(h, r)
	}
	key, ok := m.key(r)
	if !ok {
		return Pass{}
	}
	d, err := m.lone.Allow(r.Context(), drawgate.BoundedKey(key))
	if err == nil && d.Allowed {
		m.headers.Append(h, &d)
		return Pass{}
	}
	return m.beginLate(h, r, key, answer{d: d, err: err})
}

// beginLate is what follows on a first answer that did not let the request pass: apart, so that
// Begin stays short.
func (m *Middleware) beginLate(h http.Header, r *http.Request, key string, a answer) Pass {
	t := take{m: m, asks: []drawgate.Ask{{Limiter: m.lone, Key: drawgate.BoundedKey(key)}}}
	return m.settle(h, r, t.waitAfter(r.Context(), a), &t)
}

// beginMany is Begin where more is asked than one request of one bucket.
func (m *Middleware) beginMany(h http.Header, r *http.Request) Pass {
	t := take{m: m, asks: make([]drawgate.Ask, 0, len(m.buckets))}
	if m.opts.Priority != nil {
		t.priority = m.opts.Priority(r)
	}
	for i := range m.buckets {
		b := &m.buckets[i]
		key, ok := b.Key(r)
		if !ok {
			continue
		}
		ask := drawgate.Ask{Limiter: b.limiter(r), Key: drawgate.BoundedKey(key)}
		if b.Costs != nil {
			ask.Costs = b.Costs(r)
		}
		if b.Shared && m.hidden {
			t.hidden |= 1 << len(t.asks)
		}
		t.from[len(t.asks)] = uint8(i)
		t.asks = append(t.asks, ask)
		t.holds = t.holds || ask.Limiter.Plan().NeedsHold()
	}
	if len(t.asks) == 0 {
		return Pass{}
	}
	return m.settle(h, r, t.waitAfter(r.Context(), t.ask(r.Context(), false)), &t)
}

// limiter returns the limiter of a request.
func (b *Bucket) limiter(r *http.Request) *drawgate.Limiter {
	if b.Policy != nil {
		if l := b.Policy(r); l != nil {
			return l
		}
	}
	return b.Limiter
}

// settle makes a pass of an answer.
func (m *Middleware) settle(h http.Header, r *http.Request, a answer, t *take) Pass {
	switch {
	case a.err != nil:
		return m.fail(h, r, a.err, t)
	case !a.d.Allowed:
		return m.refuse(h, &a, t)
	}
	m.headers.append(h, &a.d, t.hidden)
	if a.held == nil {
		return Pass{}
	}
	return Pass{hold: m.keep(r, a.held)}
}

func (m *Middleware) refuse(h http.Header, a *answer, t *take) Pass {
	m.headers.append(h, &a.d, t.hidden)
	p := Refused(&a.d, t.shared)
	if a.full {
		p.Code = CodeQueueFull
		p.Detail = p.sentence(nil)
	}
	return Pass{Problem: p}
}

// fail answers what was not decided.
func (m *Middleware) fail(h http.Header, r *http.Request, err error, t *take) Pass {
	switch {
	case r.Context().Err() != nil:
		return Pass{Problem: blank(CodeCancelled, statusCancelled, "The client went away.")}
	case errors.Is(err, drawgate.ErrNeverFits):
		m.headers.appendStatus(h, t.status(r.Context()))
		return Pass{Problem: neverFits(&Problem{})}
	}
	m.report(r, err)
	switch {
	case errors.Is(err, drawgate.ErrClosed):
		return Pass{Problem: unavailable(CodeClosing, "This server is stopping. Try again in 1 s.")}
	case !errors.Is(err, drawgate.ErrStoreUnavailable) && !errors.Is(err, drawgate.ErrDeadline):
		return Pass{Problem: blank(CodeInvalid, http.StatusInternalServerError, "The limits of this server are not set up rightly.")}
	case m.opts.FailOpen:
		h[HeaderFallback] = []string{"true"}
		return Pass{}
	}
	p := unavailable(CodeStoreAway, "")
	p.Detail = p.sentence(nil)
	return Pass{Problem: p}
}

// take is what is asked for one request.
type take struct {
	m        *Middleware
	asks     []drawgate.Ask
	from     [drawgate.MaxBuckets]uint8 // of each ask: its position among the buckets; unused if the middleware has one bucket
	hidden   uint64                     // the asks of which the headers do not tell, a bit for each
	priority int
	holds    bool
}

// shared reports whether all callers share a bucket of the take.
func (t *take) shared(i int) bool {
	if len(t.m.buckets) == 1 {
		return t.m.buckets[0].Shared
	}
	return t.m.buckets[t.from[i]].Shared
}

// statusTimeout bounds how long the answer to a request that can never pass waits for what is left.
const statusTimeout = 2 * time.Second

// status asks for what is left in the buckets that the headers describe: a take that can never fit
// is not decided, so no decision says it. It is nil if the store does not answer.
func (t *take) status(ctx context.Context) (list []drawgate.Status) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	for i := range t.asks {
		if t.hidden>>i&1 != 0 || !t.m.headers.describes(t.asks[i].Limiter.Plan().Name()) {
			continue
		}
		st, err := t.asks[i].Status(ctx, t.priority)
		if err != nil {
			return nil
		}
		list = append(list, st)
	}
	return list
}

// answer is what came of a take.
type answer struct {
	d    drawgate.Decision
	held *drawgate.Reservation // nil: nothing is held
	full bool                  // refused because too many wait
	err  error                 // it was not decided
}

// ask asks once, or in the queue. A refusal is no error, unless it ended waiting.
func (t *take) ask(ctx context.Context, wait bool) (a answer) {
	req := drawgate.Request{Buckets: t.asks, Wait: wait, Priority: t.priority}
	if t.holds {
		req.Hold.For = t.m.opts.Hold
	}
	a.d, a.held, a.err = t.asks[0].Limiter.Take(ctx, req)
	return a
}

// waitAfter lets a request that was refused wait, if it may. What it returns is never older than
// the end of the waiting.
func (t *take) waitAfter(ctx context.Context, a answer) answer {
	m := t.m
	if a.err != nil || a.d.Allowed || m.opts.Wait == 0 || a.d.RetryAfter == drawgate.Never || a.d.EarliestRetry > m.opts.Wait {
		return a
	}
	if m.waiting.Add(1) > int64(m.opts.Queue) {
		m.waiting.Add(-1)
		a.full = true
		return a
	}
	defer m.waiting.Add(-1)
	until, cancel := context.WithTimeoutCause(ctx, m.opts.Wait, drawgate.ErrDeadline)
	defer cancel()
	w := t.ask(until, true)
	switch {
	case w.err == nil || ctx.Err() != nil || errors.Is(w.err, drawgate.ErrStoreUnavailable) || errors.Is(w.err, drawgate.ErrClosed):
		return w
	case errors.Is(w.err, drawgate.ErrQueueFull):
		a.full = true
		return a
	case errors.Is(w.err, drawgate.ErrDeadline), errors.Is(w.err, context.DeadlineExceeded):
		return t.ask(ctx, false) // what it was refused with before it waited is old
	}
	return w
}
