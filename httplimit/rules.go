package httplimit

import (
	"fmt"
	"net/http"

	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/engine/rules"
)

// RuleOptions holds what [NewByRules] can do without. The zero value is ready to use.
type RuleOptions struct {
	Options

	// Proxies finds the address of the client; nil: it is whoever opened the connection.
	Proxies *Proxies
	// User returns who is signed in, as authentication middleware before this one has put it into
	// the request's context; nil: nobody is.
	User func(r *http.Request) string
	// Class returns the class of a request from its headers, which carry an API key: use the method
	// Class of a *config.Runtime. nil: there are no classes.
	Class func(h http.Header) string
	// Route returns the pattern that the router matched; nil means [Route]. A router of another
	// package has a function of its own, such as chilimit.Route.
	Route func(r *http.Request) string
	// Shared names policies of which all callers share a bucket. A refusal then says that the API's
	// limit was hit and not the caller's own, and unless Describe names it the headers do not tell
	// how busy the others are.
	Shared []string
}

// NewByRules returns a Middleware that lets the rules of an engine choose, for each request, the
// policies and keys that count it, with their overrides and shadows. A new configuration of the
// engine applies from the next request on. For a configuration file, use the engine of a
// *config.Runtime. opts may be nil.
func NewByRules(e *engine.Engine, opts *RuleOptions) (*Middleware, error) {
	m := &Middleware{engine: e}
	if opts != nil {
		m.rules, m.opts = *opts, opts.Options
	}
	if err := m.checkOptions(); err != nil {
		return nil, err
	}
	if err := m.limiter.CheckEngine(e); err != nil {
		return nil, err
	}
	if name := m.opts.Describe; name != "" {
		if _, ok := e.Policy(name); !ok {
			return nil, fmt.Errorf("httplimit: describe: the engine has no policy %q", name)
		}
	}
	if m.rules.Route == nil {
		m.rules.Route = Route
	}
	m.hidden = m.opts.Describe == "" && len(m.rules.Shared) > 0
	return m, nil
}

// beginByRules is Begin where the rules of an engine decide.
func (m *Middleware) beginByRules(h http.Header, r *http.Request) Pass {
	if err := rules.CheckRequestPath(r.URL.EscapedPath()); err != nil {
		return Pass{Problem: blank(CodePath, http.StatusBadRequest,
			"The path of this request can be understood in more than one way.")}
	}
	o := &m.rules
	a := rules.Attributes{
		Method: r.Method, Path: r.URL.Path, Host: r.Host, Route: o.Route(r),
		IP: o.Proxies.ClientIP(r), Headers: r.Header,
	}
	if o.User != nil {
		a.User = o.User(r)
	}
	if o.Class != nil {
		a.Class = o.Class(r.Header)
	}
	t := take{m: m}
	t.Engine, t.Attributes, t.Priority = m.engine, &a, m.priority(r)
	return m.settle(h, r, m.limiter.Decide(r.Context(), &t.Take), &t)
}
