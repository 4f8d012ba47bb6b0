package grpclimit

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/hold"
)

// Unary is a grpc.UnaryServerInterceptor.
func (l *Limit) Unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	set := func(md metadata.MD) { _ = grpc.SetHeader(ctx, md) } // it fails where headers were sent: nothing is lost but they
	h, err := l.begin(ctx, info.FullMethod, set)
	if err != nil {
		return nil, err
	}
	if h == nil {
		return next(ctx, request)
	}
	defer h.End()                     //nolint:contextcheck // what was held is given back, whoever has left
	return next(h.Context(), request) //nolint:contextcheck // it is ctx, and ends with what is held
}

// Stream is a grpc.StreamServerInterceptor. A stream is one call: it is decided when it is opened,
// and what it holds is held while it is open.
func (l *Limit) Stream(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	set := func(md metadata.MD) { _ = stream.SetHeader(md) } // as above
	h, err := l.begin(stream.Context(), info.FullMethod, set)
	if err != nil {
		return err
	}
	if h == nil {
		return next(server, stream)
	}
	defer h.End()
	return next(server, &heldStream{ServerStream: stream, ctx: h.Context()})
}

// heldStream is a stream whose context ends when what it holds is lost.
type heldStream struct {
	grpc.ServerStream

	ctx context.Context //nolint:containedctx // it is the stream's
}

// Context implements grpc.ServerStream.
func (s *heldStream) Context() context.Context { return s.ctx }

// take is a call being decided.
type take struct {
	l       *Limit
	method  string
	request drawgate.Request
	holds   bool
	res     *drawgate.Reservation
}

// begin decides a call. Without an error it may run, and holds h, which may be nil.
func (l *Limit) begin(ctx context.Context, method string, set func(metadata.MD)) (*hold.Hold, error) {
	if l.skips(ctx, method) {
		return nil, nil //nolint:nilnil // no hold and no error: the call runs
	}
	t := take{l: l, method: method}
	for i := range l.buckets {
		b := &l.buckets[i]
		key, ok := b.Key(ctx, method)
		if !ok {
			continue
		}
		ask := drawgate.Ask{Limiter: b.Limiter, Key: drawgate.BoundedKey(key)}
		if b.Costs != nil {
			ask.Costs = b.Costs(ctx, method)
		}
		t.request.Buckets = append(t.request.Buckets, ask)
		t.holds = t.holds || b.Limiter.Plan().NeedsHold()
	}
	if len(t.request.Buckets) == 0 {
		return nil, nil //nolint:nilnil // as above
	}
	if l.opts.Priority != nil {
		t.request.Priority = l.opts.Priority(ctx, method)
	}
	return t.decide(ctx, set)
}

func (t *take) decide(ctx context.Context, set func(metadata.MD)) (*hold.Hold, error) {
	d, err := t.ask(ctx, false)
	full := false
	if err == nil && !d.Allowed {
		d, full, err = t.wait(ctx, d)
	}
	if err != nil {
		return nil, t.failed(ctx, err, set)
	}
	set(describe(&d, t.l.opts.Quiet))
	if !d.Allowed {
		return nil, refusal(&d, full)
	}
	if t.res == nil {
		return nil, nil //nolint:nilnil // as in begin
	}
	return t.l.keep(ctx, t.method, t.res), nil
}

// ask takes, and holds if a policy needs it. A refusal is a decision.
func (t *take) ask(ctx context.Context, wait bool) (drawgate.Decision, error) {
	r := t.request
	r.Wait = wait
	if t.holds {
		r.Hold.For = t.l.opts.Hold
	}
	d, res, err := r.Buckets[0].Limiter.Take(ctx, r)
	t.res = res
	return d, err
}

// wait lets a call that was refused wait, if it may. full says that too many wait already.
func (t *take) wait(ctx context.Context, d drawgate.Decision) (_ drawgate.Decision, full bool, err error) {
	o := &t.l.opts
	if o.Wait == 0 || d.RetryAfter == drawgate.Never || d.EarliestRetry > o.Wait {
		return d, false, nil
	}
	if t.l.waiting.Add(1) > int64(o.Queue) {
		t.l.waiting.Add(-1)
		return d, true, nil
	}
	defer t.l.waiting.Add(-1)
	waiting, cancel := context.WithTimeoutCause(ctx, o.Wait, drawgate.ErrDeadline)
	defer cancel()
	w, err := t.ask(waiting, true)
	switch {
	case err == nil || ctx.Err() != nil || errors.Is(err, drawgate.ErrStoreUnavailable) || errors.Is(err, drawgate.ErrClosed):
		return w, false, err
	case errors.Is(err, drawgate.ErrQueueFull):
		return d, true, nil
	case errors.Is(err, drawgate.ErrDeadline), errors.Is(err, context.DeadlineExceeded):
		w, err = t.ask(ctx, false) // what it was refused with before it waited is old
	}
	return w, false, err
}
