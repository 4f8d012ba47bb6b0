package outbound

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/sleep"
	"github.com/drawgate/drawgate/llm"
)

// TransportOptions holds what a [Transport] can do without. The zero value is ready to use.
type TransportOptions struct {
	Base http.RoundTripper // makes the calls; nil means http.DefaultTransport
	// Estimate says how many tokens a call may use; nil means [llm.Profile.Upper], which reserves
	// enough for any text, and far too much for most: what is too much comes back when the call
	// ends. [llm.Estimator.Likely] reserves little more than is used.
	Estimate func(p *llm.Profile, c *llm.Call) llm.Estimate
	// Ended is told what a call really used, as far as the provider says so, such as
	// [llm.Estimator.Learn]; may be nil.
	Ended   func(p *llm.Profile, c *llm.Call, u llm.Usage)
	MaxBody int64 // largest request in bytes; 0 means 32 MiB
	// Call changes how a request is counted, by its caller for example; may be nil. An error is
	// the request's.
	Call func(r *http.Request, c *llm.Call, count *Call) error
	// Learned are the limits that answers and refusals name, and that takes obey where they are
	// lower than what is configured; nil means some of its own.
	Learned *llm.Learned
	// Prices adds what calls cost in money: the most that it can be is held, and what it was
	// settled, in a unit such as usd_micros. A call of a model without a price is an error, and so
	// is one that asks for what costs more than they say ([llm.ErrUnpriced]). nil: nothing counts
	// money.
	Prices *llm.Prices
	// Tokens adds what calls use in tokens, in the units [llm.UnitPromptTokens] and
	// [llm.UnitAnswerTokens], whatever the provider's limits count: the most that it can be is
	// held, and what it was settled.
	Tokens bool
}

const (
	defaultMaxBody = 32 << 20
	maxErrorBody   = 1 << 20 // of an answer that is an error
)

// Transport is an http.RoundTripper that keeps calls to an LLM provider within a quota: give it to
// an official SDK's HTTP client. It counts a call by the family of its model: see
// [llm.Profile.Family].
//
// A call waits until the quota grants it; the request's context bounds that. It is then sent within
// the limits' margin, or not at all. Its hold is renewed while the answer lasts, and settled when
// the answer has been read to its end, or is closed before: so close every answer.
//
// Answers are passed on as they are, errors included. A refusal for the quota pauses the quota, a
// failure counts for the breaker: see [Client]. Limits that answers and refusals name lower what is
// configured, for a day unless they are told again. A call that is not made fails with an error of
// [Do]'s kind, which errors.As finds in what the SDK returns.
//
// It asks for answers without compression, because it reads the usage from them. It reads a
// request's body before it sends it.
type Transport struct {
	client  *Client
	profile *llm.Profile
	opts    TransportOptions
	learned learned
}

var _ http.RoundTripper = (*Transport)(nil)

// NewTransport returns a Transport that makes the calls of client, which are a provider's. opts may
// be nil.
func NewTransport(client *Client, profile *llm.Profile, opts *TransportOptions) *Transport {
	t := &Transport{client: client, profile: profile}
	if opts != nil {
		t.opts = *opts
	}
	if t.opts.Base == nil {
		t.opts.Base = http.DefaultTransport
	}
	if t.opts.Estimate == nil {
		t.opts.Estimate = (*llm.Profile).Upper
	}
	t.opts.MaxBody = cmp.Or(t.opts.MaxBody, defaultMaxBody)
	if t.learned.limits = t.opts.Learned; t.learned.limits == nil {
		t.learned.limits = &llm.Learned{}
	}
	t.learned.tell = func(l *Lowered) {
		l.Upstream = client.opts.Upstream
		client.opts.Observer.lowered(l)
	}
	return t
}

// request is a request that was read.
type request struct {
	http  *http.Request
	body  []byte
	call  *llm.Call
	est   llm.Estimate
	count Call
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := t.readBody(req)
	if err != nil {
		return nil, err
	}
	call, err := t.profile.Parse(req.Method, req.URL.Path, req.Header, body)
	if err != nil {
		return nil, fmt.Errorf("outbound: the request cannot be counted: %w", err)
	}
	return t.Send(req, body, call)
}

// Send is [Transport.RoundTrip] for a request whose body was read and parsed. It leaves req.Body
// alone.
func (t *Transport) Send(req *http.Request, body []byte, call *llm.Call) (*http.Response, error) {
	if !t.profile.Counts(call.Operation) {
		return t.opts.Base.RoundTrip(withBody(req.Context(), req, body, nil)) //nolint:wrapcheck // as it is
	}
	if err := t.learned.check(call); err != nil {
		return nil, err
	}
	r := &request{http: req, body: body, call: call, est: t.opts.Estimate(t.profile, call)}
	costs, err := t.costs(call, r.est)
	if err != nil {
		return nil, err
	}
	r.count = Call{
		Model: call.Family, Costs: costs,
		Adapt: func(l *drawgate.Limiter) *drawgate.Limiter { return t.learned.lower(call, l) },
	}
	if t.opts.Call != nil {
		if err := t.opts.Call(req, call, &r.count); err != nil {
			return nil, err
		}
	}
	ctx := req.Context()
	for try := 0; ; try++ {
		resp, err, again := t.once(ctx, r)
		if !again || try >= t.client.opts.Retries {
			return resp, err
		}
		why := err
		if resp != nil && resp.StatusCode == http.StatusTooManyRequests {
			why = ErrRefused // the queue waits until the pause ends
		}
		if !sleep.For(ctx, retryPause(try, why)) {
			return resp, err
		}
		if resp != nil {
			_ = resp.Body.Close() // it was read
		}
	}
}

// costs returns what a call reserves.
func (t *Transport) costs(call *llm.Call, est llm.Estimate) ([]drawgate.Cost, error) {
	costs := t.profile.Admission(call, est)
	if t.opts.Prices != nil {
		unit, micros, err := t.opts.Prices.Hold(call, est)
		switch {
		case errors.Is(err, llm.ErrUnpriced):
			return nil, fmt.Errorf("outbound: %w", err)
		case err != nil:
			return nil, fmt.Errorf("%w: %w", ErrNoPrice, err)
		}
		costs = append(costs, drawgate.Units(unit, micros))
	}
	if t.opts.Tokens {
		costs = append(costs, drawgate.Units(llm.UnitPromptTokens, est.Input),
			drawgate.Units(llm.UnitAnswerTokens, est.Output))
	}
	return costs, nil
}

// LongestAnswer returns the longest answer, in tokens, with which a call would fit that the limits
// of a decision have refused; of a call that asks for several answers, each of them. It is shorter
// than what the call asks for. ok is false if no shorter answer makes it fit, or if that cannot be
// told from the decision.
func (t *Transport) LongestAnswer(call *llm.Call, d *drawgate.Decision) (tokens int64, ok bool) {
	if d.Allowed || d.Fallback || d.Reason != drawgate.Limited || !t.profile.Counts(call.Operation) {
		return 0, false
	}
	fits := func(longest int64) bool {
		shorter := *call
		shorter.MaxOutput = longest
		costs, err := t.costs(&shorter, t.opts.Estimate(t.profile, &shorter))
		return err == nil && fit(costs, d)
	}
	most := call.MaxOutput
	if most < 0 {
		most = t.profile.Family(call.Model).MaxOutput
	}
	least := int64(1)
	if most <= least || fits(most) || !fits(least) {
		return 0, false
	}
	for least+1 < most { // least fits, and most does not
		if middle := least + (most-least)/2; fits(middle) {
			least = middle
		} else {
			most = middle
		}
	}
	return least, true
}

// fit reports whether every limit of a refusal has room for these costs.
func fit(costs []drawgate.Cost, d *drawgate.Decision) bool {
	for l := range d.Limits() {
		i := slices.IndexFunc(costs, func(c drawgate.Cost) bool { return unitOf(c.Unit) == unitOf(l.Limit.Unit) })
		if i < 0 && l.Refused() || i >= 0 && costs[i].N > l.Remaining {
			return false
		}
	}
	return true
}

// readBody reads a request's body, and closes it.
func (t *Transport) readBody(req *http.Request) ([]byte, error) {
	if req.Body == nil || req.Body == http.NoBody {
		return nil, nil
	}
	defer req.Body.Close() //nolint:errcheck // it was read to its end, or is not sent
	if req.ContentLength > t.opts.MaxBody {
		return nil, fmt.Errorf("%w: it has %d bytes, and at most %d are read", ErrTooLarge, req.ContentLength,
			t.opts.MaxBody)
	}
	body, err := io.ReadAll(io.LimitReader(req.Body, t.opts.MaxBody+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("outbound: reading the request: %w", err)
	case int64(len(body)) > t.opts.MaxBody:
		return nil, fmt.Errorf("%w: at most %d bytes are read", ErrTooLarge, t.opts.MaxBody)
	}
	return body, nil
}

// withBody returns a copy of a request that sends body through a gate, which may be nil.
func withBody(ctx context.Context, req *http.Request, body []byte, g *gate) *http.Request {
	out := req.WithContext(ctx)
	out.ContentLength, out.Body, out.GetBody = int64(len(body)), http.NoBody, nil
	if g != nil {
		out.Header = maps.Clone(req.Header) // its values are not changed
		out.Header.Set("Accept-Encoding", "identity")
	}
	if len(body) == 0 {
		return out
	}
	if g == nil {
		g = &gate{}
	}
	g.reader.Store(bytes.NewReader(body))
	out.Body = g
	// A request that was not sent at all may be sent again over another connection; any other one
	// would be counted twice. See http.Transport on requests that it sends again.
	out.GetBody = func() (io.ReadCloser, error) {
		if g.opened.Load() != 0 {
			return nil, errSent
		}
		return g, nil
	}
	return out
}

var errSent = errors.New("outbound: the connection was lost after the request was sent")

// gate is a request's body that is not sent any more once it is too late. It is first read when a
// connection is there, and before anything is written to it.
type gate struct {
	late   func() bool // may be nil
	reader atomic.Pointer[bytes.Reader]
	opened atomic.Int64 // in Unix nanoseconds: some of it was read then, so it may have been sent; 0: nothing was
	closed atomic.Bool  // it was too late
}

func (g *gate) Read(p []byte) (int, error) {
	if g.opened.Load() == 0 {
		if g.late != nil && g.late() {
			g.closed.Store(true)
			return 0, ErrLate
		}
		g.opened.Store(time.Now().UnixNano())
	}
	if r := g.reader.Load(); r != nil {
		return r.Read(p)
	}
	return 0, errSent
}

// Close lets go of a body that was sent: an answer, which keeps its request, may take an hour.
func (g *gate) Close() error {
	if g.opened.Load() != 0 {
		g.reader.Store(nil)
	}
	return nil
}

// lateTries is how often a call is granted anew because it could not be sent in time.
const lateTries = 3

// once makes one attempt. again says that another one may succeed.
func (t *Transport) once(ctx context.Context, r *request) (resp *http.Response, err error, again bool) {
	for range lateTries {
		resp, err, again = t.send(ctx, r)
		if !errors.Is(err, ErrLate) {
			return resp, err, again
		}
	}
	return nil, fmt.Errorf("%w: %d grants were given back; is the upstream reached slowly, or this machine overloaded?",
		ErrLate, lateTries), false
}

// send takes from the quota and sends the request.
func (t *Transport) send(ctx context.Context, r *request) (resp *http.Response, err error, again bool) {
	run, err := t.client.begin(ctx, &r.count)
	if err != nil {
		return nil, err, false
	}
	connected := atomic.Bool{}
	sending := httptrace.WithClientTrace(run.hold.Context(), &httptrace.ClientTrace{
		GetConn: func(string) { connected.Store(false) }, // another one, if the first was stale
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	})
	over := false
	defer func() {
		if !over { // the base panicked
			run.failed(nil)
		}
	}()
	g := &gate{late: run.late}
	now := time.Now()
	resp, err = t.opts.Base.RoundTrip(withBody(sending, r.http, r.body, g))
	over = true
	if at := g.opened.Load(); at != 0 {
		run.event.Sent = time.Unix(0, at)
	} else if len(r.body) == 0 {
		run.event.Sent = now
	}
	if g.closed.Load() && resp != nil { // a base that answers although it could not read the request
		_ = resp.Body.Close() // nobody reads it
		err = ErrLate
	}
	if err != nil {
		again, err = t.lost(ctx, run, g, connected.Load(), err, t.unheard(r))
		return nil, err, again
	}
	now = time.Now()
	run.event.Answered = now
	if resp.StatusCode < http.StatusBadRequest || resp.StatusCode == http.StatusTooManyRequests {
		// Other errors may be of a model that does not exist: callers could name any number of
		// them, and nothing more would be learned of those that do.
		t.learned.limits.NoteObserved(t.profile, r.call, t.profile.Observed(resp.Header, now), now)
	}
	if run.event.Status = resp.StatusCode; resp.StatusCode >= http.StatusBadRequest {
		return resp, nil, t.refusal(run, r, resp)
	}
	run.attempt.answered()
	t.answer(ctx, run, r, resp)
	return resp, nil, false
}

// lost ends a call that got no answer, with what it may have used.
func (t *Transport) lost(ctx context.Context, run *running, g *gate, connected bool, err error,
	used []drawgate.Cost,
) (again bool, _ error) {
	if cause := context.Cause(run.hold.Context()); errors.Is(cause, ErrHoldLost) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	run.event.Err = err
	left := errors.Is(ctx.Err(), context.Canceled) || errors.Is(err, ErrHoldLost)
	switch {
	case g.closed.Load():
		run.unsent(false, connected)
		return false, ErrLate
	case g.opened.Load() == 0 && g.reader.Load() != nil:
		run.unsent(!left, connected)
		err = &notSentError{err}
	case left:
		run.dropped(used)
	default:
		run.failed(used)
	}
	return !left && ctx.Err() == nil, err
}

// refusal ends a call whose answer is an error, and leaves the answer to the caller.
func (t *Transport) refusal(run *running, r *request, resp *http.Response) (again bool) {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	_ = resp.Body.Close() // what was read of it is enough
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	if resp.Header.Get("Content-Length") != "" {
		resp.Header.Set("Content-Length", fmt.Sprint(len(body)))
	}
	what := t.profile.Refusal(resp.StatusCode, resp.Header, body, time.Now())
	used := t.failed(r)
	if u, ok := t.profile.ErrorUsage(r.call, body); ok {
		run.event.Usage = u
		used = atLeast(t.settlement(r, u), used)
	} else if what.Billed || unheard(resp.StatusCode, body) {
		used = t.unheard(r)
	}
	return t.ended(run, r, what, used)
}

// atLeast returns costs, of each unit no less than least says.
func atLeast(costs, least []drawgate.Cost) []drawgate.Cost {
	for i := range costs {
		for _, l := range least {
			if l.Unit == costs[i].Unit {
				costs[i].N = max(costs[i].N, l.N)
			}
		}
	}
	return costs
}

// unheard reports whether an error is that of a proxy that did not get the provider's answer: the
// provider may still be working on it. 520 to 524 are Cloudflare's, 499 is Google's for a call that
// was given up (google.rpc.Code). Envoy answers 503 if it lost a connection, and says how.
func unheard(status int, body []byte) bool {
	if _, why, ok := bytes.Cut(body, []byte("disconnect/reset before headers")); ok {
		return !slices.ContainsFunc([]string{"connection failure", "connection timeout", "overflow"},
			func(unsent string) bool {
				return bytes.Contains(why, []byte(unsent))
			})
	}
	switch status {
	case 499, http.StatusBadGateway, http.StatusGatewayTimeout:
		return true
	}
	return status >= 520 && status <= 524
}

// failed returns what a call used that was answered with an error which says nothing of usage: no
// provider is paid for it.
func (t *Transport) failed(r *request) []drawgate.Cost {
	used := t.profile.Failed(r.call, r.est)
	if p := t.opts.Prices; p != nil {
		used = append(used, drawgate.Units(p.Unit(), 0))
	}
	if t.opts.Tokens {
		used = append(used, drawgate.Units(llm.UnitPromptTokens, 0), drawgate.Units(llm.UnitAnswerTokens, 0))
	}
	return used
}

// unheard returns what a call may have used of which the provider has told nothing: nil, for the
// estimate stands, unless that was no bound.
func (t *Transport) unheard(r *request) []drawgate.Cost {
	if r.est.Upper {
		return nil
	}
	return t.settlement(r, llm.Usage{})
}

// settlement returns what a call used.
func (t *Transport) settlement(r *request, u llm.Usage) []drawgate.Cost {
	used := t.profile.Settlement(r.call, r.est, u)
	if t.opts.Tokens {
		prompt, answer := t.profile.Tokens(r.call, r.est, u)
		used = append(used, drawgate.Units(llm.UnitPromptTokens, prompt), drawgate.Units(llm.UnitAnswerTokens, answer))
	}
	if t.opts.Prices == nil {
		return used
	}
	unit, micros, err := t.opts.Prices.Cost(r.call, r.est, u)
	if err != nil { // it had a price when it began: what is held stands
		return used
	}
	return append(used, drawgate.Units(unit, micros))
}

// ended ends a call by the meaning of an error, with what it used.
func (t *Transport) ended(run *running, r *request, what llm.Refusal, used []drawgate.Cost) (again bool) {
	run.event.Refusal = what
	if !t.profile.Concerns(r.call, &what) {
		run.succeeded(used) // it is up, and its refusal says nothing about our count
		return false
	}
	t.learned.limits.NoteRefusal(r.call, what, time.Now())
	switch {
	case what.Meaning == llm.NotOffered:
		run.notOffered(used, reason(&what))
		return false
	case what.Meaning.Quota() && !what.Oversize:
		until := what.ReopenAt
		if until.IsZero() { // only an operator ends it
			until = time.Now().Add(drawgate.MaxHold)
		}
		run.refused(used, until, reason(&what))
		return true
	case what.Meaning == llm.Transient && callCaused(what.Status):
		run.succeeded(used)
		return true
	case what.Meaning == llm.Overload, what.Meaning == llm.Transient:
		run.failed(used)
		return true
	}
	run.succeeded(used) // it is up, and the call is at fault
	return false
}

// callCaused reports whether a status that is worth another attempt can be the call's own fault:
// then five such calls must not stop everybody's. The official SDKs of OpenAI and Anthropic make
// calls again after both (openai-go v3, anthropic-sdk-go); RFC 9110 calls them the client's errors.
func callCaused(status int) bool {
	return status == http.StatusRequestTimeout || status == http.StatusConflict
}

// reason says what a refusal means, for people.
func reason(r *llm.Refusal) string {
	text := r.Meaning.String()
	if r.Unit != "" {
		text += ", " + r.Unit
	}
	if r.Limit >= 0 {
		text += fmt.Sprintf(", limit %d", r.Limit)
	}
	return text
}

// answer lets the call end with its answer.
func (t *Transport) answer(ctx context.Context, run *running, r *request, resp *http.Response) {
	r.body = nil // it is not sent again
	b := &answerBody{ctx: ctx, t: t, run: run, r: r, body: resp.Body}
	// What was stored tells the usage of another call, and may be of any type.
	stored := r.call.Operation == llm.OpStored
	if enc := resp.Header.Get("Content-Encoding"); !stored && (enc == "" || strings.EqualFold(enc, "identity")) {
		b.stream = t.profile.NewStream(r.call)
	}
	resp.Body = b
}

// answerBody reads the usage from an answer as it passes, and ends the call with it. It may be
// closed while it is read.
type answerBody struct {
	ctx  context.Context //nolint:containedctx // the request's, which says if the caller has left
	t    *Transport
	run  *running
	r    *request
	body io.ReadCloser

	mu      sync.Mutex
	stream  *llm.Stream // guarded by mu; nil: it is compressed, though we asked for it as it is, or of what was stored
	over    bool        // guarded by mu
	reading bool        // guarded by mu
	read    time.Time   // guarded by mu: when the latest read ended; zero: there was none
	behind  bool        // guarded by mu: the provider may have sent more than was read
}

// A reader that pauses for longer than pausedTime leaves what the provider sends meanwhile on its
// way, perhaps a whole answer. It has caught up once it had to wait for the provider for
// waitedTime.
const (
	pausedTime = time.Second
	waitedTime = 5 * time.Millisecond
)

func (b *answerBody) Read(p []byte) (int, error) {
	begun := time.Now()
	b.mu.Lock()
	b.behind, b.reading = b.isBehind(begun), true
	b.mu.Unlock()
	n, err := b.body.Read(p)
	b.mu.Lock()
	b.reading, b.read = false, time.Now()
	b.behind = b.behind && (err != nil || b.read.Sub(begun) < waitedTime)
	if b.stream != nil && n > 0 && !b.over {
		_, _ = b.stream.Write(p[:n]) // it never fails
	}
	b.mu.Unlock()
	if err != nil {
		b.finish(err)
		if cause := context.Cause(b.run.hold.Context()); !errors.Is(err, io.EOF) && errors.Is(cause, ErrHoldLost) {
			err = fmt.Errorf("%w: %w", cause, err)
		}
	}
	return n, err
}

// isBehind reports whether the provider may have sent more than was read. The caller holds b.mu.
func (b *answerBody) isBehind(now time.Time) bool {
	return b.behind || !b.reading && !b.read.IsZero() && now.Sub(b.read) > pausedTime
}

// Close ends the call. What was delivered counts.
func (b *answerBody) Close() error {
	err := b.body.Close()
	b.finish(nil)
	return err
}

// finish ends the call: err is io.EOF at the answer's end, another error if it was cut off, and nil
// if it was closed before its end.
func (b *answerBody) finish(err error) {
	b.mu.Lock()
	over, behind := b.over, b.isBehind(time.Now())
	b.over = true
	b.mu.Unlock()
	if over {
		return
	}
	if b.stream == nil { // the estimate stands
		b.end(err, errors.Is(err, io.EOF), b.t.unheard(b.r))
		return
	}
	_ = b.stream.Close() // it has no error
	used := b.stream.Usage()
	used.Unread = behind && !b.stream.Ended() && !errors.Is(err, io.EOF)
	b.run.event.Usage = used
	if what, ok := b.stream.Refusal(time.Now()); ok {
		b.t.ended(b.run, b.r, what, b.t.settlement(b.r, used))
		return
	}
	if used.Final && b.t.opts.Ended != nil {
		b.t.opts.Ended(b.t.profile, b.r.call, used)
	}
	b.end(err, b.stream.Ended(), b.t.settlement(b.r, used))
}

func (b *answerBody) end(err error, whole bool, used []drawgate.Cost) {
	left := err == nil || errors.Is(b.ctx.Err(), context.Canceled) ||
		errors.Is(context.Cause(b.run.hold.Context()), ErrHoldLost)
	switch {
	case whole:
		b.run.succeeded(used)
	case left:
		if b.run.event.Err = b.ctx.Err(); b.run.event.Err == nil {
			b.run.event.Err = context.Cause(b.run.hold.Context())
		}
		b.run.dropped(used)
	default:
		if b.run.event.Err = err; errors.Is(err, io.EOF) {
			b.run.event.Err = io.ErrUnexpectedEOF
		}
		b.run.failed(used)
	}
}
