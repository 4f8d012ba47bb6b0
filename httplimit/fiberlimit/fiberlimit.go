// Package fiberlimit adapts package httplimit to fiber.
//
//	limit, err := httplimit.New([]httplimit.Bucket{{Limiter: lim, Key: httplimit.ByIP(nil)}}, nil)
//	app.Use(fiberlimit.Middleware(limit))
//
// Key and cost functions get an *http.Request with the content of fiber's request, except its body;
// [Context] returns its fiber.Ctx. [httplimit.ByRoute] counts by the pattern that fiber matched if
// the middleware is part of the route: app.Get("/users/:id", fiberlimit.Middleware(limit),
// handler). In front of all routes fiber does not know it yet.
//
// Fiber does not report that a client has disconnected: a waiting request keeps its place until its
// waiting time has run out, and a slot stays taken until the handler returns.
package fiberlimit

import (
	"context"
	"io"
	"net/http"
	"net/url"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"

	"github.com/drawgate/drawgate/httplimit"
)

// Middleware returns limit as a fiber handler. A refused request ends here, without an error for
// fiber to handle. While units are held, the handlers' context ends if they are lost. A streamed
// response (SendStreamWriter) is part of the handler: units are held until it has been sent.
func Middleware(limit *httplimit.Middleware) fiber.Handler {
	return func(c fiber.Ctx) error {
		r := request(c)
		h := http.Header{}
		p := limit.Begin(h, r)
		if p.Problem != nil {
			refuse(c, limit, r, h, p.Problem)
			return nil
		}
		copyHeaders(c, h)
		if !p.Held() {
			return c.Next()
		}
		e := &end{Pass: p}
		defer e.returned(c)
		c.SetContext(p.Context(r.Context()))
		return c.Next()
	}
}

type contextKey struct{}

// Context returns the fiber context of a request passed to a key or cost function; nil for any
// other request. Fiber reuses the strings that it returns: a key must be a copy (strings.Clone).
func Context(r *http.Request) fiber.Ctx {
	c, _ := r.Context().Value(contextKey{}).(fiber.Ctx)
	return c
}

// request converts fiber's request to net/http. Everything is copied.
func request(c fiber.Ctx) *http.Request {
	in := c.Request()
	path, err := url.PathUnescape(string(in.URI().PathOriginal()))
	if err != nil {
		path = string(in.URI().PathOriginal())
	}
	r := &http.Request{
		Method: string(in.Header.Method()), Host: string(in.Host()), RequestURI: string(in.RequestURI()),
		URL:    &url.URL{Path: path, RawQuery: string(in.URI().QueryString())},
		Header: make(http.Header, in.Header.Len()), Body: http.NoBody,
		ContentLength: max(-1, int64(in.Header.ContentLength())),
		RemoteAddr:    c.RequestCtx().RemoteAddr().String(), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	for k, v := range in.Header.All() {
		name := http.CanonicalHeaderKey(string(k))
		r.Header[name] = append(r.Header[name], string(v))
	}
	if c.Matched() { // not in a middleware for all routes, which fiber calls before it looks for a route
		r.Pattern = string([]byte(c.FullPath()))
	}
	return r.WithContext(context.WithValue(c.Context(), contextKey{}, c))
}

// copyHeaders sets headers of the answer. Lists are added to existing values.
func copyHeaders(c fiber.Ctx, h http.Header) {
	out := &c.Response().Header
	for name, values := range h {
		if name != httplimit.HeaderRateLimit && name != httplimit.HeaderPolicy {
			out.Del(name)
		}
		for _, v := range values {
			out.Add(name, v)
		}
	}
}

// refuse answers with the middleware's response, which the program may have replaced.
func refuse(c fiber.Ctx, limit *httplimit.Middleware, r *http.Request, h http.Header, p *httplimit.Problem) {
	w := &answer{header: h, out: c.Response()}
	limit.Refuse(w, r, p)
	h.Del("Content-Length") // fasthttp computes it
	copyHeaders(c, h)
}

// answer is a response writer into fiber's response.
type answer struct {
	header http.Header
	out    *fasthttp.Response
	begun  bool
}

func (w *answer) Header() http.Header { return w.header }

func (w *answer) WriteHeader(status int) {
	if !w.begun {
		w.begun = true
		w.out.SetStatusCode(status)
	}
}

func (w *answer) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	w.out.AppendBody(b)
	return len(b), nil
}

// end gives back what is held once the answer has been sent.
type end struct{ httplimit.Pass }

var _ io.Closer = (*end)(nil)

// returned is called when the handler has returned, or panicked. If it left a stream, the stream is
// sent later: fasthttp closes a request's values when it is done, whether the client received
// everything or not. A request that was abandoned by a timeout is never closed.
func (e *end) returned(c fiber.Ctx) {
	if !c.IsAbandoned() && c.Response().IsBodyStream() {
		c.RequestCtx().SetUserValue(endKey{}, e)
		return
	}
	e.End()
}

type endKey struct{}

// Close implements [io.Closer].
func (e *end) Close() error {
	e.End()
	return nil
}
