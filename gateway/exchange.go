package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/llm"
)

// exchange is one request and its answer.
type exchange struct {
	h     *Handler
	state *state
	asked *upstream // the one that the path names
	up    *upstream // the one that answers
	// of the URL, as rules see it: of a call by an alias, that of the same call by the model's own
	// name
	path string
	key  *Key
	w    http.ResponseWriter
	rc   *http.ResponseController
	r    *http.Request

	// Of its calls: the request's, which ends when the handler cuts answers off as well.
	ctx    context.Context //nolint:containedctx // an exchange ends with its request
	ask    ask
	meant  *call         // as which account's call it was made; nil: there is one account
	result string        // how it was answered
	wait   time.Duration // longest wait in the queue
	tail   []byte        // of the answer, as far as it was written
	crlf   bool          // its lines end with \r\n
	note   *noter        // of what the answer stores; may be nil
	size   int64         // bytes of Handler.bodies that are reserved for this request
}

// call is what goes to the provider: the caller's own call, or that of another model.
type call struct {
	*llm.Call

	up      *upstream
	path    string // of the URL, without the upstream's name; plain: see plainPath
	body    []byte
	entry   *Model     // how it is counted; nil: it is not
	made    llm.Stored // of llm.OpStored: what the call is for
	filter  bool       // the usage was asked for on the caller's behalf: leave it out of the stream
	alias   string     // the name by which the caller asked for it; "": the model's own
	label   string     // the model that it is of, if the caller asked for another one, or by an alias
	others  []Target   // other accounts that may make it
	group   []*call    // of all these accounts; nil: they were not needed so far
	instead bool       // it takes the place of the call that was asked for
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.itself(w, r) {
		return
	}
	x := &exchange{h: h, state: h.state.Load(), w: w, rc: http.NewResponseController(w), r: r, path: r.URL.Path}
	ctx, end := context.WithCancelCause(r.Context())
	defer end(nil)
	defer context.AfterFunc(h.rest, func() { end(errCut) })() //nolint:contextcheck // it is the handler's
	x.ctx = ctx
	// Deadlines are the connection's, and stay from its previous request. Of a request that is
	// refused unread net/http reads on before it answers: not for longer than that. A test's
	// recorder has none.
	_ = x.rc.SetWriteDeadline(time.Time{})
	if r.Body != nil && r.Body != http.NoBody {
		_ = x.rc.SetReadDeadline(time.Now().Add(discardTime))
	}
	name, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")
	x.asked = x.state.upstreams[name]
	if x.up = x.asked; x.up == nil {
		x.unknownPath(name)
		return
	}
	defer x.release()
	x.serve("/" + rest) //nolint:contextcheck // it is that of x.r
}

// unknownPath answers a request to nobody, in the form of the provider for whom its path looks:
// SDKs show no other one.
func (x *exchange) unknownPath(name string) {
	if name == "healthz" && (x.r.Method == http.MethodGet || x.r.Method == http.MethodHead) {
		x.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(x.w, "ok\n") // whoever has left needs no answer
		return
	}
	if p, known := llm.ByPath(x.r.URL.Path); known {
		x.up = &upstream{config: &Upstream{Profile: p}}
		x.refuse(&refusal{kind: llm.NoSuchPath, message: noUpstream})
		return
	}
	h := x.w.Header()
	h.Set("Content-Type", api.ProblemType)
	h.Set("X-Should-Retry", "false")
	x.w.WriteHeader(http.StatusNotFound)
	_ = json.NewEncoder(x.w).Encode(&api.Problem{ // whoever has left needs no answer
		Type: "about:blank", Title: "not found", Status: http.StatusNotFound, Code: api.CodeNotFound,
		Detail: "this is the gateway's address for callers, and " + noUpstream,
	})
}

const noUpstream = "there is no such upstream: the path must begin with the name of one, as in /openai/v1/chat/completions; add it to the base URL"

func (x *exchange) serve(path string) {
	var why *refusal
	if x.key, why = x.state.caller(x.r); why == nil {
		why = x.key.refuseAddress(x.h.client(x.r))
	}
	if why != nil {
		x.refusedKey(why)
		x.refuse(why)
		return
	}
	path, why = plainPath(path)
	if why == nil {
		why = x.options()
	}
	if why != nil {
		x.refuse(why)
		return
	}
	body, why := x.readBody()
	if why != nil {
		x.refuse(why)
		return
	}
	c, why := x.parse(path, body)
	if why != nil {
		x.refuse(why)
		return
	}
	x.ask.secret = sha256.Sum256([]byte(secretOf(x.r)))
	x.ask.key, x.ask.labels = x.key, []drawgate.Label{{Name: "key", Value: x.key.Name}}
	if x.key.Team != "" {
		x.ask.labels = append(x.ask.labels, drawgate.Label{Name: "team", Value: x.key.Team})
	}
	x.ask.from = x.state.from(x.key)
	if x.up.config.Profile.Counts(c.Operation) {
		x.ladder(c)
	} else {
		x.pass(c)
	}
}

// refusedKey counts and logs a call that is refused for its key.
func (x *exchange) refusedKey(why *refusal) {
	if why.kind != llm.Unavailable { // otherwise it may be a right one
		x.h.wrongKey(x.up.config.Name, x.key, why, x.r)
	}
}

// options reads what the request says in its headers.
func (x *exchange) options() *refusal {
	if why := oneBody(x.r.Header); why != nil {
		return why
	}
	x.ask.level = x.key.Priority
	if text := x.r.Header.Get(HeaderPriority); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n > drawgate.MaxPriority {
			return &refusal{kind: llm.BadRequest, message: fmt.Sprintf("%s must be a whole number from 0 to %d",
				HeaderPriority, drawgate.MaxPriority)}
		}
		x.ask.level = min(n, x.key.Priority)
	}
	x.wait = x.h.opts.Wait
	if text := x.r.Header.Get(HeaderTimeout); text != "" {
		d, ok := parseTimeout(text)
		if !ok {
			return &refusal{kind: llm.BadRequest, message: HeaderTimeout +
				" must be a number of seconds, or a duration such as 1m30s"}
		}
		if x.wait = min(d, x.wait); x.wait < leastWait {
			x.wait = 0
		}
	}
	return nil
}

// leastWait is the shortest wait in the queue. Within a shorter one the store might not answer, and
// would be taken for unavailable.
const leastWait = 50 * time.Millisecond

// parseTimeout reads seconds, or a duration.
func parseTimeout(text string) (time.Duration, bool) {
	if len(text) > 32 {
		return 0, false
	}
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		const most = 1 << 32
		return time.Duration(min(n, most) * float64(time.Second)), n >= 0
	}
	d, err := time.ParseDuration(text)
	return d, err == nil && d >= 0
}

// Times and bounds of reading a request.
const (
	readTimeout = 30 * time.Second // for the next piece
	readWhole   = 10 * time.Minute
	discardTime = 5 * time.Second // for the next piece of a request that is not wanted
	// bytes of a request that is too large, which are read so that its sender reads the answer.
	discardMost = 64 << 20
	firstBuffer = 64 << 10
	believed    = 8 // a length is believed, and memory taken for all of it, once so great a part of it has come
)

// readBody reads the request, to its end: net/http would read what is left of it before the answer
// begins, and end the answer if that fails. Its full-duplex mode, which avoids that, panics where a
// request is refused before it was read (go.dev/issue/68560).
func (x *exchange) readBody() ([]byte, *refusal) {
	most := x.h.opts.MaxBody
	if x.r.Body == nil || x.r.Body == http.NoBody {
		return nil, nil
	}
	if x.r.ContentLength > most {
		x.discard()
		return nil, x.tooLarge()
	}
	body, err := x.readWhole(&steady{x, readTimeout, time.Now().Add(readWhole)}, most)
	switch {
	case errors.Is(err, errTooLarge):
		x.discard()
		return nil, x.tooLarge()
	case errors.Is(err, errFull):
		x.discard()
		return nil, &refusal{
			kind:    llm.Overloaded,
			message: "too many large requests wait for their answers: try again later", after: time.Second,
		}
	case err != nil:
		return nil, &refusal{
			kind:    llm.BadRequest,
			message: "the request could not be read to its end: it was cut off, or came too slowly",
		}
	}
	_ = x.rc.SetReadDeadline(time.Time{}) // from here on only its caller's leaving is read
	return body, nil
}

// steady reads a request that has to keep coming.
type steady struct {
	x    *exchange
	next time.Duration // for each piece
	end  time.Time     // of all
}

// Read implements io.Reader.
func (s *steady) Read(p []byte) (int, error) {
	next := time.Now().Add(s.next)
	if next.After(s.end) {
		next = s.end
	}
	_ = s.x.rc.SetReadDeadline(next) // a test's recorder has none
	return s.x.r.Body.Read(p)
}

// discard gives the memory of the request back, and reads on for a while: many clients read no
// answer before they have sent everything, except those that have asked whether they should begin.
func (x *exchange) discard() {
	x.release()
	if x.r.Header.Get("Expect") != "" {
		return
	}
	// nothing is expected of it
	_, _ = io.CopyN(io.Discard, &steady{x, discardTime, time.Now().Add(readWhole)}, discardMost)
	x.w.Header().Set("Connection", "close")
}

func (x *exchange) tooLarge() *refusal {
	return &refusal{
		kind:    llm.TooLarge,
		message: fmt.Sprintf("the request is larger than the %d bytes that this gateway reads: make it shorter, or have gateway.max_body raised", x.h.opts.MaxBody),
	}
}

// parse reads what a request asks for, and finds out how it is counted. path is plain.
func (x *exchange) parse(path string, body []byte) (*call, *refusal) {
	if why := x.key.refusePath(x.asked.config.Name, path); why != nil {
		return nil, why
	}
	c, why := x.read(x.asked, path, body)
	if why != nil || c.Operation == llm.OpOther || c.Operation == llm.OpStored {
		return c, why
	}
	if a := x.state.aliases[c.Model]; a != nil && c.Other == "" {
		return x.resolve(c, a)
	}
	return c, x.route(c)
}

// read reads what a request asks an upstream for. A call that nothing counts may pass then. path is
// plain.
func (x *exchange) read(up *upstream, path string, body []byte) (*call, *refusal) {
	profile := up.config.Profile
	parsed, err := profile.Parse(x.r.Method, path, x.r.Header, body)
	if err != nil {
		return nil, &refusal{kind: llm.BadRequest, message: err.Error()}
	}
	parsed.Caller = x.key.Name
	parsed.Owner = "" // the upstream's: headers that choose another one are not passed on
	c := &call{Call: parsed, up: up, path: path, body: body}
	what, stored := profile.StoredCall(x.r.Method, path)
	switch documented := profile.Documented(x.r.Method, path); {
	case stored && !documented && parsed.Operation == llm.OpOther && !x.listed(c):
		return c, x.stored(c, what)
	case !documented:
		return c, x.other(c)
	case parsed.Operation == llm.OpOther: // a list of models: whatever a body of it may mean, it is not sent
		c.body = nil
		return c, nil
	}
	if parsed.Operation == llm.OpImageEdits { // Parse has read its form
		return c, nil
	}
	if kind, _, err := mime.ParseMediaType(x.r.Header.Get("Content-Type")); err == nil && kind != "application/json" &&
		!strings.HasSuffix(kind, "+json") {
		return nil, &refusal{
			kind:    llm.BadRequest,
			message: fmt.Sprintf("the content type %.60q is not application/json", kind),
		}
	}
	return c, nil
}

// route finds out how a call's model is counted.
func (x *exchange) route(c *call) *refusal {
	if c.Model == "" {
		return &refusal{kind: llm.BadRequest, message: "the call does not name its model"}
	}
	unseen := func(r rune) bool { return r == utf8.RuneError || !unicode.IsGraphic(r) || unicode.IsSpace(r) }
	if strings.ContainsFunc(c.Model, unseen) {
		const message = "the model %.80q has a blank, or a character that cannot be seen: " +
			"programs do not agree on what it names"
		return &refusal{kind: llm.BadRequest, message: fmt.Sprintf(message, c.Model)}
	}
	if c.Other != "" {
		const same = "the path names the model %.80q and the body %.80q: send the same in both"
		message := fmt.Sprintf(same, c.Model, c.Other)
		return &refusal{kind: llm.BadRequest, message: message}
	}
	up := c.up.config
	c.entry = up.model(c.Model)
	if c.entry == nil || !x.mayUse(c) {
		return noModel(c.name(), x.asked.config.Name)
	}
	const anyName = "\x00" // of no model: only patterns for all fit
	if c.Elsewhere != "" && !x.key.may(up.Name, anyName) {
		const message = "this key may use certain models only, " +
			"and the call has what may choose another one (%s): leave it out"
		return &refusal{kind: llm.BadRequest, message: fmt.Sprintf(message, c.Elsewhere)}
	}
	if why := x.mayUseStored(c); why != nil {
		return why
	}
	if c.Background && (up.Stored == nil || c.Unstored) {
		const message = "background: true is not supported: the answer would be paid for, " +
			"and could not be fetched through this gateway. Leave it out, or have stored of the upstream configured"
		return &refusal{kind: llm.BadRequest, message: message}
	}
	if c.Implied {
		body, err := c.WithImplied(c.body)
		if err != nil {
			return &refusal{kind: llm.ServerError, message: err.Error()}
		}
		c.body = body
	}
	if !c.NeedsUsage() {
		return nil
	}
	body, err := c.WithUsage(c.body)
	if err != nil {
		return &refusal{kind: llm.ServerError, message: err.Error()}
	}
	c.body, c.filter = body, true
	return nil
}

// as returns the call for a fallback, or nil if this key may not use that.
func (x *exchange) as(c *call, fallback string) *call {
	name, model := x.state.config.fallback(c.up.config.Name, fallback)
	other := x.of(c, x.state.upstreams[name], model)
	if other == nil || x.key.refusePath(name, other.path) != nil || x.route(other) != nil {
		return nil
	}
	other.instead, other.label = true, x.called(other.up, model)
	return other
}

// of returns a call as one of another model, or of another upstream; nil if it cannot be made.
func (x *exchange) of(c *call, up *upstream, model string) *call {
	path, body := c.path, c.body
	if model != c.Model {
		// The usage may have been asked for in the body, so the call is read again.
		again, err := up.config.Profile.Parse(x.r.Method, path, x.r.Header, body)
		if err != nil {
			return nil
		}
		if path, body, err = again.WithModel(path, body, model); err != nil {
			x.h.warn("a call cannot be made of another model", "upstream", up.config.Name, "model", model, "error", err)
			return nil
		}
	}
	other, why := x.read(up, path, body)
	if why != nil {
		return nil
	}
	other.filter = c.filter
	return other
}

// forget lets go of the body of a call that is not sent again: its answer may last an hour.
func (c *call) forget() {
	c.body = nil
	for _, m := range c.group {
		m.body = nil
	}
}

// send makes a call, and waits for at most so long in the queue.
func (x *exchange) send(c *call, wait time.Duration) (*http.Response, error) {
	return x.sendBy(x.ctx, c, &x.ask, wait)
}

// sendBy is send for a call that is counted as a says.
func (x *exchange) sendBy(ctx context.Context, c *call, a *ask, wait time.Duration) (*http.Response, error) {
	a.model, a.caller, a.wait = c.entry, x.attributes(c), wait
	a.decision = drawgate.Decision{}
	return c.up.transport.Send(x.request(c).WithContext(context.WithValue(ctx, askKey{}, a)), c.body, c.Call)
}

// request returns what is sent to the provider, but for its body.
func (x *exchange) request(c *call) *http.Request {
	up := c.up.config
	u := *up.URL
	u.RawPath = strings.TrimSuffix(u.EscapedPath(), "/") + c.path
	u.Path, _ = url.PathUnescape(u.RawPath) // of the configuration, and plain
	u.RawQuery = outQuery(x.r.URL.RawQuery, up.Profile)
	return &http.Request{
		Method: x.r.Method, URL: &u, Host: u.Host, Header: up.outHeader(x.header()), Body: http.NoBody,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
}

// pass makes a call that nothing counts.
func (x *exchange) pass(c *call) {
	resp, err := c.up.transport.Send(x.request(c).WithContext(x.ctx), c.body, c.Call)
	if err != nil {
		x.failed(c, err)
		return
	}
	x.deliver(c, resp, nil)
}
