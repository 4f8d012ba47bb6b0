package server

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/httplimit"
)

// forwardPath is where proxies ask.
const forwardPath = "/auth"

// ForwardAuth configures the door at /auth, where proxies ask whether a request may pass: nginx
// auth_request, Caddy forward_auth, Traefik ForwardAuth, HAProxy. The rules decide. The zero value
// is ready to use.
type ForwardAuth struct {
	// Proxies may ask for the requests of others, and are not taken for clients themselves. None:
	// programs of this machine, by loopback or a Unix socket.
	Proxies []netip.Prefix
	// Unix trusts peers on a Unix socket beside Proxies.
	Unix bool
	// ClientHeader is where they say who the client is: "" is X-Forwarded-For. See
	// [httplimit.ProxyOptions].
	ClientHeader string
	// URI, Method and Host name the headers in which they describe the request. "" is
	// X-Forwarded-Uri, X-Original-URI or X-Original-URL; X-Forwarded-Method or X-Original-Method;
	// X-Forwarded-Host. The proxies must overwrite them: what they pass on, a client has written.
	URI, Method, Host string
	// User and Class name headers in which the proxies say who is signed in, and the class of the
	// API key; "": they do not.
	User, Class string
	// Status answers a refusal: 0 is 429, or 503 where a fallback refuses for want of the store;
	// 401 and 403 are for nginx, which passes nothing else on. The query parameter status goes
	// before it.
	Status int
	// AllowAway lets requests pass, marked with X-RateLimit-Fallback, if the store does not decide.
	// Otherwise they are answered with 503. What a fallback decides while the store is away is a
	// decision, to which this does not apply.
	AllowAway bool
	// Shared names policies of which all callers share a bucket: a refusal then says that it is not
	// the caller's own limit.
	Shared []string
	// Headers says how decisions are described; nil means all policies, in all headers. Its
	// MaxBytes is 2560 if it is 0.
	Headers *httplimit.HeaderOptions
}

// Headers of the door's answers, beside those of httplimit.
const (
	headerShadow = "X-Ratelimit-Shadow" // shadow policies that differ: "policy=would_refuse, other=would_allow"
	headerStatus = "X-Ratelimit-Status" // the status that a refusal has, whatever the answer's own: 429, 503 or 422
)

// The headers of an answer have less than 4 KiB in all, which is what nginx has for them unless it
// is told otherwise: a longer answer is an error for it, with which its configuration may let
// requests pass.
const (
	maxLists   = 2560 // bytes of RateLimit and RateLimit-Policy together
	maxShadows = 512  // bytes of X-RateLimit-Shadow
)

// forwarding is a ForwardAuth made ready.
type forwarding struct {
	ForwardAuth
	clients           *httplimit.Proxies
	say               *httplimit.Headers
	uri, method, host []string                 // names of headers
	class             func(http.Header) string // Options.Class
}

func newForwarding(f *ForwardAuth) (out forwarding, err error) {
	if f != nil {
		out.ForwardAuth = *f
	}
	if len(out.Proxies) == 0 {
		out.Unix, out.Proxies = true, loopback()
	}
	if out.Status, err = refusalStatus(out.Status); err != nil {
		return out, fmt.Errorf("server: forward-auth: %w", err)
	}
	out.clients, err = httplimit.NewProxies(out.Proxies, &httplimit.ProxyOptions{Header: out.ClientHeader, Unix: out.Unix})
	if err != nil {
		return out, fmt.Errorf("server: forward-auth: %w", err)
	}
	describe := httplimit.HeaderOptions{}
	if out.Headers != nil {
		describe = *out.Headers
	}
	if describe.MaxBytes == 0 {
		describe.MaxBytes = maxLists
	}
	out.say = httplimit.NewHeaders(&describe)
	out.uri = oneOr(out.URI, "X-Forwarded-Uri", "X-Original-Uri", "X-Original-Url")
	out.method = oneOr(out.Method, "X-Forwarded-Method", "X-Original-Method")
	out.host = oneOr(out.Host, "X-Forwarded-Host")
	out.User, out.Class = textproto.CanonicalMIMEHeaderKey(out.User), textproto.CanonicalMIMEHeaderKey(out.Class)
	return out, nil
}

// oneOr returns the header that is configured, or else the usual ones.
func oneOr(configured string, usual ...string) []string {
	if configured == "" {
		return usual
	}
	return []string{textproto.CanonicalMIMEHeaderKey(configured)}
}

func refusalStatus(n int) (int, error) {
	switch n {
	case 0:
		return http.StatusTooManyRequests, nil
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests:
		return n, nil
	}
	return 0, fmt.Errorf("a refusal cannot be answered with %d: 401, 403 or 429", n)
}

// forwardAuth serves /auth.
func (s *Server) forwardAuth(w http.ResponseWriter, r *http.Request) {
	q, p := s.forward.query(r)
	var req engine.Request
	var unclear *api.Problem
	if p == nil {
		unclear, p = s.forwarded(r, q.route, &req)
	}
	switch {
	case p != nil:
		writeProblem(w, p)
		return
	case unclear != nil:
		refuseUnclear(w, q.status, unclear)
		return
	}
	var res engine.Result
	if err := s.engine.TakeInto(r.Context(), &req, &res); err != nil {
		s.forwardFailed(w, q.status, err)
		return
	}
	h := w.Header()
	s.forward.say.Append(h, &res.Decision)
	sayShadows(h, res.Shadow)
	if res.Decision.Allowed {
		h["Cache-Control"] = noStore
		w.WriteHeader(http.StatusOK)
		return
	}
	s.forward.refuse(w, q.status, httplimit.Refused(&res.Decision, func(b int) bool { return s.forward.shared(res.Applied, b) }))
}

// forwarded says in the engine's words what a proxy asks. unclear says why nobody can know what the
// proxy's client asks of the site.
func (s *Server) forwarded(r *http.Request, route string, req *engine.Request) (unclear, p *api.Problem) {
	if s.closed.Load() {
		return nil, Problem(drawgate.ErrClosed)
	}
	who := everyone
	if len(s.gate) > 0 { // Authorization is the client's
		if who = s.gate.find(r.Header.Get(tokenHeader)); who == nil || !who.take {
			return nil, problem(api.CodeForbidden, "the proxy must send an access token with the role %s in %s", RoleTake, tokenHeader)
		}
	}
	if !s.forward.trusts(r.RemoteAddr) {
		return nil, problem(api.CodeUntrusted, "%s is not one of the trusted proxies, which alone may ask for the requests of others: name it among them", r.RemoteAddr)
	}
	if p := s.forward.undescribed(r.Header); p != nil {
		return nil, p
	}
	if req.Attributes, unclear = s.forward.attributes(r, route); unclear != nil || who.tenant == "" {
		return unclear, nil
	}
	return nil, s.within(who, req)
}

// refuseUnclear refuses a request of which nobody can know what it asks of the site. It is the
// client's doing, so the proxy must be able to refuse it whatever it does with mistakes and with a
// Drawgate that is unavailable: nginx can by no other status than 401 and 403.
func refuseUnclear(w http.ResponseWriter, status int, p *api.Problem) {
	w.Header()[headerStatus] = []string{strconv.Itoa(p.Status)}
	if status != http.StatusTooManyRequests {
		p.Status = status
	}
	write(w, p.Status, problemType, append(marshal(p), '\n'))
}

// forwardFailed answers a request that was not decided.
func (s *Server) forwardFailed(w http.ResponseWriter, status int, err error) {
	p := s.fail(err)
	switch p.Code {
	case api.CodeStoreAway:
		if s.forward.AllowAway {
			w.Header().Set(httplimit.HeaderFallback, "true")
			w.WriteHeader(http.StatusOK)
			return
		}
	case api.CodeNeverFits:
		s.forward.refuse(w, status, &httplimit.Problem{
			Type: p.Type, Title: p.Title, Status: http.StatusTooManyRequests, Code: httplimit.CodeNeverFits,
			Detail: "This request costs more than a limit ever allows: sending it again will not help.",
		})
		return
	case api.CodeNeedsHold:
		p.Detail = "a rule applies a policy with a concurrency limit here: a proxy that asks does not say when the request ends, so nothing would free the slot. " +
			"Limit what runs at once in the program (httplimit), or by /v1/take with hold_ms"
		p.Status = http.StatusInternalServerError
	case api.CodeCancelled, api.CodeClosing:
	default: // nobody who asks can do anything about it
		p.Status = http.StatusInternalServerError
	}
	if p.Status == http.StatusInternalServerError {
		s.warn("a proxy's question could not be answered", errors.New(p.Detail))
	}
	writeProblem(w, p)
}

// refuse answers a refusal. For want of the store it is a 503 wherever else it would be a 429, as
// it is of httplimit.
func (f *forwarding) refuse(w http.ResponseWriter, status int, p *httplimit.Problem) {
	own := http.StatusTooManyRequests
	if p.Status == http.StatusServiceUnavailable {
		own = p.Status
	}
	if status == http.StatusTooManyRequests {
		status = own
	}
	w.Header()[headerStatus] = []string{strconv.Itoa(own)}
	p.SetHeaders(w.Header())
	p.Status = status
	w.WriteHeader(status)
	_, _ = w.Write(p.JSON())
}

// shared reports whether all callers share a bucket.
func (f *forwarding) shared(list []engine.Applied, bucket int) bool {
	for i := range list {
		if list[i].Bucket == bucket {
			return slices.Contains(f.Shared, list[i].Policy)
		}
	}
	return false
}

// sayShadows says which shadows differ, as far as there is room.
func sayShadows(h http.Header, list []engine.Shadow) {
	var b []byte
	for i := range list {
		if list[i].Divergence == engine.Same {
			continue
		}
		name := url.PathEscape(list[i].Policy)
		if len(b)+len(", ")+len(name)+len("=")+len(list[i].Divergence) > maxShadows {
			break
		}
		if len(b) > 0 {
			b = append(b, ", "...)
		}
		b = append(append(append(b, name...), '='), list[i].Divergence...)
	}
	if len(b) > 0 {
		h[headerShadow] = []string{string(b)}
	}
}

// forwardQuery is what the address that a proxy asks says.
type forwardQuery struct {
	status int
	route  string
}

func (f *forwarding) query(r *http.Request) (q forwardQuery, p *api.Problem) {
	q.status = f.Status
	if r.URL.RawQuery == "" {
		return q, nil
	}
	all, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return q, problem(api.CodeInvalid, "the query of %s is not well-formed", forwardPath)
	}
	for name, values := range all {
		if len(values) > 1 {
			return q, problem(api.CodeInvalid, "%q is there %d times", strings.ToValidUTF8(name, "?"), len(values))
		}
		v := values[0]
		switch name {
		case "status":
			n, _ := strconv.Atoi(v)
			status, err := refusalStatus(n)
			if err != nil || n == 0 {
				return q, problem(api.CodeInvalid, "status %q is not 401, 403 or 429", v)
			}
			q.status = status
		case "route":
			q.route = v
		default:
			return q, problem(api.CodeInvalid, "%q is not one of status and route: a proxy must not pass on the query of the request here", strings.ToValidUTF8(name, "?"))
		}
	}
	return q, nil
}
