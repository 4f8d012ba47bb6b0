package grpclimit

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/admit"
	"github.com/drawgate/drawgate/internal/hold"
)

// Unary is a grpc.UnaryServerInterceptor.
func (l *Limit) Unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any,
	error,
) {
	// it fails only if the headers were sent already, and then only these are lost
	set := func(md metadata.MD) { _ = grpc.SetHeader(ctx, md) }
	h, err := l.begin(ctx, info.FullMethod, set)
	if err != nil {
		return nil, err
	}
	if h == nil {
		return next(ctx, request)
	}
	defer func() { _ = h.End() }()    //nolint:contextcheck // units are given back even if the client has left
	return next(h.Context(), request) //nolint:contextcheck // it is derived from ctx, and ends when the hold is lost
}

// Stream is a grpc.StreamServerInterceptor. A stream is one call: it is decided when it is opened,
// and its units are held while it is open.
func (l *Limit) Stream(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo,
	next grpc.StreamHandler,
) error {
	set := func(md metadata.MD) { _ = stream.SetHeader(md) } // as above
	h, err := l.begin(stream.Context(), info.FullMethod, set)
	if err != nil {
		return err
	}
	if h == nil {
		return next(server, stream)
	}
	defer func() { _ = h.End() }()
	return next(server, &heldStream{ServerStream: stream, ctx: h.Context()})
}

// heldStream is a stream whose context ends when its hold is lost.
type heldStream struct {
	grpc.ServerStream

	ctx context.Context //nolint:containedctx // it is the stream's
}

// Context implements grpc.ServerStream.
func (s *heldStream) Context() context.Context { return s.ctx }

// begin decides a call. If there is no error the call may run; it then holds h, which may be nil.
func (l *Limit) begin(ctx context.Context, method string, set func(metadata.MD)) (*hold.Hold, error) {
	if l.skips(ctx, method) {
		return nil, nil //nolint:nilnil // no hold and no error: the call runs
	}
	var t admit.Take
	if l.opts.Priority != nil {
		t.Priority = l.opts.Priority(ctx, method)
	}
	if l.engine != nil {
		if err := l.byRules(ctx, method, &t); err != nil {
			return nil, err
		}
		return l.decide(ctx, method, &t, set)
	}
	for i := range l.buckets {
		b := &l.buckets[i]
		key, ok := b.Key(ctx, method)
		if !ok {
			continue
		}
		var costs []drawgate.Cost
		if b.Costs != nil {
			costs = b.Costs(ctx, method)
		}
		t.Add(b.Limiter, key, costs)
	}
	if len(t.Asks) == 0 {
		return nil, nil //nolint:nilnil // as above
	}
	return l.decide(ctx, method, &t, set)
}

func (l *Limit) decide(ctx context.Context, method string, t *admit.Take, set func(metadata.MD)) (*hold.Hold, error) {
	a := l.limiter.Decide(ctx, t)
	if a.Err != nil {
		return nil, l.failed(ctx, method, a.Err, set)
	}
	set(describe(&a.Decision, l.opts.Quiet))
	switch {
	case !a.Decision.Allowed:
		return nil, refusal(&a.Decision, a.Full)
	case a.Held == nil:
		return nil, nil //nolint:nilnil // as in begin
	}
	return l.limiter.Keep(ctx, a.Held, func(err error) { l.report(ctx, method, err) }), nil
}
