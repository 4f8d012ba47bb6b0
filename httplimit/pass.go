package httplimit

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/internal/admit"
	"github.com/drawgate/drawgate/internal/failure"
	"github.com/drawgate/drawgate/internal/hold"
	"github.com/drawgate/drawgate/store"
)

// ErrHoldLost is the cause with which a handler's context ends if its hold could not be renewed in
// time, or its bucket was reset. Another request may have the slot then, so the handler should
// stop.
var ErrHoldLost = errors.New("httplimit: the hold of this request is lost")

// Pass is the answer to a request: serve it and call End, or refuse it with Problem.
type Pass struct {
	Problem *Problem   // nil: serve the request
	hold    *hold.Hold // nil: nothing is held
}

// Held reports whether units are held until End: the handler should then run under [Pass.Context].
func (p Pass) Held() bool { return p.hold != nil }

// Context returns the context for the handler of a request whose context is ctx. If units are held
// and the hold is lost, it ends with [ErrHoldLost] as its cause.
func (p Pass) Context(ctx context.Context) context.Context {
	if p.hold == nil {
		return ctx
	}
	return p.hold.Context()
}

// End gives back what is held. It must be called after the request was served, also after a
// failure, and may be called again. It waits for the store for at most a second.
func (p Pass) End() {
	if p.hold != nil {
		_ = p.hold.End() // it is logged
	}
}

// Begin decides a request and writes the decision into the headers of its answer. It is for
// adapters, which do what [Middleware.Handler] does in other frameworks. If the middleware waits,
// so does Begin, at most until r's context ends.
func (m *Middleware) Begin(h http.Header, r *http.Request) Pass {
	if m.skips(r) {
		return Pass{}
	}
	switch {
	case m.engine != nil:
		return m.beginByRules(h, r)
	case m.lone == nil:
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
	return m.beginLate(h, r, key, admit.Answer{Decision: d, Err: err})
}

// take is what is taken for one request.
type take struct {
	admit.Take

	m    *Middleware
	from [store.MaxBuckets]uint8 // of each ask: its position among the buckets; unused if the middleware has one bucket

	hidden uint64 // the buckets that the headers do not describe, one bit each
}

// beginLate goes on after a first answer that did not let the request pass. It is a separate func
// so that the common path in Begin stays short and fast.
func (m *Middleware) beginLate(h http.Header, r *http.Request, key string, a admit.Answer) Pass {
	t := take{m: m, Take: admit.Take{Asks: []drawgate.Ask{{Limiter: m.lone, Key: drawgate.BoundedKey(key)}}}}
	return m.settle(h, r, m.limiter.WaitAfter(r.Context(), &t.Take, a), &t)
}

// beginMany is Begin for everything but one request from a single bucket.
func (m *Middleware) beginMany(h http.Header, r *http.Request) Pass {
	t := take{m: m, Take: admit.Take{Asks: make([]drawgate.Ask, 0, len(m.buckets)), Priority: m.priority(r)}}
	for i := range m.buckets {
		b := &m.buckets[i]
		key, ok := b.Key(r)
		if !ok {
			continue
		}
		var costs []drawgate.Cost
		if b.Costs != nil {
			costs = b.Costs(r)
		}
		if b.Shared && m.hidden {
			t.hidden |= 1 << len(t.Asks)
		}
		t.from[len(t.Asks)] = uint8(i)
		t.Add(b.limiter(r), key, costs)
	}
	if len(t.Asks) == 0 {
		return Pass{}
	}
	return m.settle(h, r, m.limiter.Decide(r.Context(), &t.Take), &t)
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

func (m *Middleware) priority(r *http.Request) int {
	if m.opts.Priority == nil {
		return 0
	}
	return m.opts.Priority(r)
}

// settle converts an answer to a pass.
func (m *Middleware) settle(h http.Header, r *http.Request, a admit.Answer, t *take) Pass {
	if m.hidden && t.Engine != nil {
		t.hide(&a)
	}
	switch {
	case a.Err != nil:
		return m.fail(h, r, &a, t)
	case !a.Decision.Allowed:
		return m.refuse(h, &a, t)
	}
	m.headers.append(h, &a.Decision, t.hidden)
	if a.Held == nil {
		return Pass{}
	}
	return Pass{hold: m.limiter.Keep(r.Context(), a.Held, func(err error) { m.report(r, err) })}
}

func (m *Middleware) refuse(h http.Header, a *admit.Answer, t *take) Pass {
	m.headers.append(h, &a.Decision, t.hidden)
	p := Refused(&a.Decision, func(bucket int) bool { return t.shared(a, bucket) })
	if a.Full {
		p.Code = CodeQueueFull
		p.Detail = p.sentence(&drawgate.LimitResult{})
	}
	return Pass{Problem: p}
}

// fail answers a request that was not decided.
func (m *Middleware) fail(h http.Header, r *http.Request, a *admit.Answer, t *take) Pass {
	kind := failure.Of(a.Err)
	switch {
	case r.Context().Err() != nil:
		return Pass{Problem: blank(CodeCancelled, statusCancelled, "The client closed the connection.")}
	case kind == failure.NeverFits:
		m.headers.appendStatus(h, t.status(r.Context(), a))
		return Pass{Problem: neverFits(&Problem{})}
	}
	m.report(r, a.Err)
	switch {
	case kind == failure.Closed:
		return Pass{Problem: unavailable(CodeClosing, "This server is stopping. Try again in 1 s.")}
	case !kind.Undecided():
		return Pass{Problem: blank(CodeInvalid, http.StatusInternalServerError,
			"The limits of this server are configured wrongly.")}
	case m.opts.FailOpen:
		h[HeaderFallback] = []string{"true"}
		return Pass{}
	}
	p := unavailable(CodeStoreUnavailable, "")
	p.Detail = p.sentence(&drawgate.LimitResult{})
	return Pass{Problem: p}
}

// shared reports whether all callers share a bucket of the take.
func (t *take) shared(a *admit.Answer, bucket int) bool {
	switch {
	case t.Engine != nil:
		i := slices.IndexFunc(a.Applied, func(a engine.Applied) bool { return a.Bucket == bucket })
		return i >= 0 && slices.Contains(t.m.rules.Shared, a.Applied[i].Policy)
	case len(t.m.buckets) == 1:
		return t.m.buckets[0].Shared
	}
	return t.m.buckets[t.from[bucket]].Shared
}

// hide records which of the buckets that rules chose are shared by all callers.
func (t *take) hide(a *admit.Answer) {
	for i := range a.Applied {
		if p := &a.Applied[i]; p.Bucket >= 0 && slices.Contains(t.m.rules.Shared, p.Policy) {
			t.hidden |= 1 << p.Bucket
		}
	}
}

// statusTimeout bounds how long the answer to a request that can never pass waits for the store to
// say what is left.
const statusTimeout = 2 * time.Second

// status asks the store what is left in the buckets that the headers describe. It is for takes that
// can never fit, because these have no decision. It returns nil if the store does not answer.
func (t *take) status(ctx context.Context, a *admit.Answer) (list []drawgate.Status) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	asks := t.Asks
	if t.Engine != nil {
		asks = a.Asked
	}
	for i := range asks {
		if t.hidden>>i&1 != 0 || !t.m.headers.describes(asks[i].Limiter.Plan().Name()) {
			continue
		}
		st, err := asks[i].Status(ctx, t.Priority)
		if err != nil {
			return nil
		}
		list = append(list, st)
	}
	return list
}
