package grpclimit

import (
	"context"
	"net/http"
	"net/textproto"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/engine/rules"
	"github.com/drawgate/drawgate/internal/admit"
)

// RuleOptions holds what [NewByRules] can do without. The zero value is ready to use.
type RuleOptions struct {
	Options

	// Proxies finds the address of the client. Nil means the address that opened the connection.
	Proxies Proxies
	// User returns who is signed in, which an authentication before this interceptor has put into
	// the context. Nil means that nobody is.
	User func(ctx context.Context) string
	// Class returns the class of a call by its metadata, as headers, which may carry an API key.
	// The method Class of a *config.Runtime does this. Nil means that there are no classes.
	Class func(h http.Header) string
}

// NewByRules returns a Limit that lets the rules of an engine choose, for each call, the policies
// and keys that count it, with their overrides and shadows. A new configuration of the engine
// applies from the next call on. For a configuration file use the engine of a *config.Runtime. opts
// may be nil.
//
// For rules a call is what it is in HTTP/2: a POST whose path is the full method, with the metadata
// as headers. The route is also the full method.
func NewByRules(e *engine.Engine, opts *RuleOptions) (*Limit, error) {
	l := &Limit{engine: e}
	if opts != nil {
		l.rules, l.opts = *opts, opts.Options
	}
	if err := l.checkOptions(); err != nil {
		return nil, err
	}
	return l, l.limiter.CheckEngine(e)
}

// byRules describes a call by the attributes of rules.
func (l *Limit) byRules(ctx context.Context, method string, t *admit.Take) error {
	if err := rules.CheckRequestPath(method); err != nil {
		return status.Error(codes.InvalidArgument, "the name of the method can be understood in more than one way")
	}
	md, _ := metadata.FromIncomingContext(ctx)
	headers := make(http.Header, len(md))
	for name, values := range md {
		headers[textproto.CanonicalMIMEHeaderKey(name)] = values
	}
	a := &rules.Attributes{
		Method: http.MethodPost, Path: method, Route: method, IP: client(ctx, l.rules.Proxies),
		Headers: headers,
	}
	if authority := md[":authority"]; len(authority) > 0 {
		a.Host = authority[0]
	}
	if l.rules.User != nil {
		a.User = l.rules.User(ctx)
	}
	if l.rules.Class != nil {
		a.Class = l.rules.Class(headers)
	}
	t.Engine, t.Attributes = l.engine, a
	return nil
}
