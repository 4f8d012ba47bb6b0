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
	"github.com/drawgate/drawgate/internal/present"
)

// forwardPath is the path for proxies.
const forwardPath = "/auth"

// ForwardAuth configures /auth, where proxies ask whether a request may pass: nginx auth_request,
// Caddy forward_auth, Traefik ForwardAuth, HAProxy. The rules decide. The zero value is ready to
// use.
type ForwardAuth struct {
	// Proxies may ask on behalf of clients, and are never counted as clients themselves. If there
	// are none, only programs on this machine may ask, through loopback or a Unix socket.
	Proxies []netip.Prefix
	// Unix trusts peers on a Unix socket in addition to Proxies.
	Unix bool
	// ClientHeader is the header with the client's address: "" is X-Forwarded-For. See
	// [httplimit.ProxyOptions].
	ClientHeader string
	// URI, Method and Host name the headers in which the proxies describe the request. "" is
	// X-Forwarded-Uri, X-Original-URI or X-Original-URL; X-Forwarded-Method or X-Original-Method;
	// X-Forwarded-Host. The proxies must overwrite these headers, because otherwise the client
	// could write them.
	URI, Method, Host string
	// User and Class name the headers in which the proxies send who is signed in, and the class of
	// the API key; "": they do not send it.
	User, Class string
	// Status is the status of a refusal: 0 is 429, or 503 if a fallback refuses because the store
	// is unavailable; 401 and 403 are for nginx, which passes on no others. The query parameter
	// status takes precedence.
	Status int
	// AllowUnavailable lets requests pass, marked with X-RateLimit-Fallback, if nothing can be
	// decided. Otherwise they are answered with 503. It does not apply to decisions that a fallback
	// makes during an outage.
	AllowUnavailable bool
	// Shared names policies whose bucket all callers share: a refusal then says that it is not the
	// caller's own limit.
	Shared []string
	// Undecided receives why a request was not decided, or would not be because its path can be
	// read in more than one way; nil: nobody.
	Undecided func(reason Undecided)
	// Headers configures the description of decisions; nil means all policies, in all headers. A
	// MaxBytes of 0 means 2560.
	Headers *httplimit.HeaderOptions
}

// Undecided is why a request to /auth was not decided.
type Undecided string

// The reasons.
const (
	UndecidedToken       Undecided = "token"       // the proxy sends no access token with RoleTake
	UndecidedUntrusted   Undecided = "untrusted"   // its address is not trusted
	UndecidedUndescribed Undecided = "undescribed" // it does not describe the request, or its own query is wrong
	UndecidedAmbiguous   Undecided = "ambiguous"   // programs could read the request differently; clients cause it
	UndecidedRule        Undecided = "rule"        // a rule failed, or it applies a concurrency limit
	UndecidedStore       Undecided = "store"       // the store did not decide
	UndecidedEnded       Undecided = "ended"       // the proxy did not wait, or the server is stopping
)

// Headers of the answers, besides those of httplimit.
const (
	headerShadow = "X-Ratelimit-Shadow" // policies in shadow that differ: "policy=would_refuse, other=would_allow"
	headerStatus = "X-Ratelimit-Status" // the status of a refusal (429, 503 or 422), whatever the answer's own status
)

// The headers of an answer have less than 4 KiB in total, which is nginx's default buffer: nginx
// treats a longer answer as an error, on which its configuration may let requests pass.
const (
	maxLists   = 2560 // bytes of RateLimit and RateLimit-Policy together
	maxShadows = 512  // bytes of X-RateLimit-Shadow
)

// forwarding is a prepared ForwardAuth.
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
	out.clients, err = httplimit.NewProxies(out.Proxies, &httplimit.ProxyOptions{
		Header: out.ClientHeader,
		Unix:   out.Unix,
	})
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

// oneOr returns the configured header, or the usual ones.
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
	if p != nil {
		s.forward.undecided(UndecidedUndescribed)
	} else {
		unclear, p = s.forwarded(r, q.route, &req)
	}
	switch {
	case p != nil:
		writeProblem(w, p)
		return
	case unclear != nil:
		s.forward.undecided(UndecidedAmbiguous)
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
	s.forward.refuse(w, q.status, httplimit.Refused(&res.Decision,
		func(b int) bool { return s.forward.shared(res.Applied, b) }))
}

// undecided reports that a request was not decided.
func (f *forwarding) undecided(reason Undecided) {
	if f.Undecided != nil {
		f.Undecided(reason)
	}
}

// forwarded converts a proxy's request for the engine. unclear is set if the site may understand
// the request differently.
func (s *Server) forwarded(r *http.Request, route string, req *engine.Request) (unclear, p *api.Problem) {
	if s.closed.Load() {
		s.forward.undecided(UndecidedEnded)
		return nil, present.Problem(drawgate.ErrClosed)
	}
	who := everyone
	if len(s.gate) > 0 { // Authorization belongs to the client
		if who = s.gate.find(r.Header.Get(tokenHeader)); who == nil || !who.take {
			s.forward.undecided(UndecidedToken)
			s.proxyRefused(&s.warned.noToken, r.RemoteAddr, whyNoToken(r.Header, who))
			return nil, problem(api.CodeForbidden, "the proxy must send an access token with the role %s in %s",
				RoleTake, tokenHeader)
		}
	}
	if !s.forward.trusts(r.RemoteAddr) {
		s.forward.undecided(UndecidedUntrusted)
		s.proxyRefused(&s.warned.untrusted, r.RemoteAddr,
			"its address is not trusted: add it to server.proxies.trusted")
		return nil, problem(api.CodeUntrusted,
			"%s is not one of the trusted proxies, and only they may ask on behalf of clients: add it to them",
			r.RemoteAddr)
	}
	if p := s.forward.undescribed(r.Header); p != nil {
		s.forward.undecided(UndecidedUndescribed)
		return nil, p
	}
	if req.Attributes, unclear = s.forward.attributes(r, route); unclear != nil || who.tenant == "" {
		return unclear, nil
	}
	if p = s.within(who, req); p != nil {
		s.forward.undecided(UndecidedRule)
	}
	return nil, p
}

// whyNoToken says what is wrong with the access token of a proxy, which may belong to who. It shows
// nothing of it.
func whyNoToken(h http.Header, who *access) string {
	switch {
	case who != nil:
		return "the access token in " + tokenHeader + " does not have the role take: send another one, or change server.tokens"
	case h.Get(tokenHeader) != "":
		return "the access token in " + tokenHeader + " is not one of server.tokens"
	}
	return "it sends no access token: let it send one of server.tokens with the role take in " + tokenHeader
}

// refuseUnclear refuses a request that the site may understand differently. The client caused this,
// so the proxy must be able to refuse it regardless of how it handles errors and an unavailable
// Drawgate: nginx can only do so with the statuses 401 and 403.
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
	case api.CodeStoreUnavailable:
		s.forward.undecided(UndecidedStore)
		if s.forward.AllowUnavailable {
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
		p.Detail = "a rule applies a policy with a concurrency limit here: the proxy does not report when the request ends, so nothing would free the slot. " +
			"Limit concurrency in the program (httplimit), or by /v1/take with hold_ms"
		p.Status = http.StatusInternalServerError
	case api.CodeCancelled, api.CodeClosing:
	default: // the caller cannot do anything about it
		p.Status = http.StatusInternalServerError
	}
	if p.Code == api.CodeCancelled || p.Code == api.CodeClosing {
		s.forward.undecided(UndecidedEnded)
	}
	if p.Status == http.StatusInternalServerError {
		s.forward.undecided(UndecidedRule)
		s.warn(&s.warned.proxy, "a request from a proxy could not be answered", errors.New(p.Detail))
	}
	writeProblem(w, p)
}

// refuse answers a refusal. If the store's absence is the reason, it is a 503 where otherwise it
// would be a 429, as in httplimit.
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

// sayShadows lists which shadows differ, as far as there is room.
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

// forwardQuery has the parameters in the address of /auth.
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
			return q, problem(api.CodeInvalid, "%q occurs %d times", strings.ToValidUTF8(name, "?"), len(values))
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
			return q, problem(api.CodeInvalid,
				"%q is neither status nor route: the proxy must not pass on the request's query here",
				strings.ToValidUTF8(name, "?"))
		}
	}
	return q, nil
}
