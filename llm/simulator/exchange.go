package simulator

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// api is one operation of a provider.
type api struct {
	// parse reads a request. Even if there is an error, the model is in q if it could be read.
	parse func(r *http.Request, body []byte, q *request) error
	// answer returns the body of an answer that is not streamed.
	answer func(x *exchange) any
	// stream returns what a streamed answer consists of.
	stream func(x *exchange) stream
}

// dialect is what all operations of a provider have in common.
type dialect struct {
	provider Provider
	apart    bool            // its paths are behind /PROVIDER only: others have the same
	apis     map[string]*api // the operations with fixed paths
	// route returns the operation at another path, and whether the path is the provider's: then it
	// may be nil.
	route    func(path string) (a *api, ok bool)
	charging Charging // by default
	// key returns the API key of a request.
	key func(r *http.Request) string
	// refuse returns the answer to a call that fails, and sets its headers.
	refuse func(x *exchange, f failure, h http.Header) (status int, body any)
	// headers sets the headers of every answer to a call that was decided by limits.
	headers func(x *exchange, h http.Header)
	// usage returns the usage of chat completions; nil: OpenAI's.
	usage func(x *exchange) object
	// last puts the usage into the last chunk of a stream, whether it was asked for or not; nil: it
	// has a chunk of its own, if it was asked for.
	last func(chunk, usage object)
	// frame returns how a stream is framed; nil means as events.
	frame func(x *exchange) framer
}

// reason is why a call gets no answer.
type reason int

const (
	invalid reason = iota
	tooLarge
	unauthorized
	unknownModel
	unknownPath
	wrongMethod
	overQuota
	faulty // by a fault
)

// failure is why a call gets no answer, for its dialect to say.
type failure struct {
	reason  reason
	message string
	param   string    // of invalid: the field that is wrong, or ""
	fault   FaultKind // of faulty
}

// exchange is one call while it runs.
type exchange struct {
	s       *Server
	w       http.ResponseWriter
	r       *http.Request
	api     *api
	dialect *dialect
	q       request
	call    *Call
	id      int64 // of the call
	began   time.Time
	ledger  *ledger
	charge  Charging
	admission
	fault  Fault
	output int64 // tokens that were produced
	bytes  int64 // that were written
	sent   int64 // tokens that were written
	status int

	completed bool
	aborted   bool // the answer is to be cut off when the call has been recorded
}

// ServeHTTP answers one call.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/simulator/") {
		s.serveAdmin(w, r)
		return
	}
	x := &exchange{s: s, w: w, call: &Call{Path: clip(r.URL.Path)}}
	var inner url.URL // as the provider sees it
	inner.RawQuery = r.URL.RawQuery
	if x.dialect, x.api, inner.Path = route(r.URL.Path); x.dialect != nil {
		x.call.Provider = x.dialect.provider
	}
	x.r = r.WithContext(r.Context())
	x.r.URL = &inner
	x.charge = s.options.Charging[x.call.Provider]
	bad := x.read()
	if !sleep(r.Context(), s.travelTime()) {
		return
	}
	x.finish(x.run(r.Context(), bad))
	if x.aborted {
		panic(http.ErrAbortHandler) //nolint:forbidigo // the documented way to abort an answer
	}
}

// run decides about a call and answers it. bad is what is wrong with it, or nil.
func (x *exchange) run(ctx context.Context, bad *failure) Outcome {
	if x.decide(&bad); bad != nil {
		if bad.reason == faulty {
			return x.failed(ctx, *bad)
		}
		x.writeFailure(*bad)
		if bad.reason == overQuota {
			return Refused
		}
		return Rejected
	}
	if x.q.kept != nil {
		return x.answerKept()
	}
	if x.q.stream {
		return x.streamAnswer(ctx)
	}
	return x.plainAnswer(ctx)
}

// read reads the request. It returns what is wrong with it, or nil.
func (x *exchange) read() *failure {
	key, ok := x.owner()
	x.call.Key, x.call.Organization, x.call.Project = key.Name, orDefault(key.Organization), orDefault(key.Project)
	switch {
	case x.api == nil:
		return &failure{reason: unknownPath, message: "there is nothing at " + x.call.Path}
	case x.r.Method != http.MethodPost && x.api != keptAPI:
		return &failure{reason: wrongMethod, message: "the method must be POST"}
	case !ok:
		return &failure{reason: unauthorized}
	}
	body, err := io.ReadAll(http.MaxBytesReader(x.w, x.r.Body, x.s.options.MaxBody))
	if _, long := errors.AsType[*http.MaxBytesError](err); long {
		return &failure{reason: tooLarge, message: "the request is too large"}
	}
	if err != nil {
		return &failure{reason: invalid, message: "the request could not be read"}
	}
	o := &x.s.options
	x.q = request{choices: 1, steer: steer{
		output: o.Output, thoughts: o.Thoughts, delay: o.Delay, pause: o.ChunkDelay,
		size: o.ChunkTokens,
	}}
	if err = x.api.parse(x.r, body, &x.q); err == nil {
		var all any
		if json.Unmarshal(body, &all) == nil {
			x.q.look(all)
		}
		err = x.q.count(o.Tokens)
	}
	x.call.Model, x.call.Stream, x.call.Input = clip(x.q.model), x.q.stream, x.q.input
	x.call.Surcharges = slices.Compact(slices.Sorted(slices.Values(x.q.surcharges)))
	if err != nil {
		f := &failure{reason: invalid, message: err.Error()}
		if e, ok := errors.AsType[*fieldError](err); ok {
			f.param = e.field
		}
		return f
	}
	return nil
}

// longestName bounds what a client can let the ledger keep of a path or a model.
const longestName = 200

func clip(name string) string { return name[:min(len(name), longestName)] }

// owner returns whose call it is, and whether the key is known.
func (x *exchange) owner() (Key, bool) {
	if len(x.s.keys) == 0 || x.dialect == nil {
		return Key{}, true
	}
	k, ok := x.s.keys[x.dialect.key(x.r)]
	return k, ok
}

// decide records the arrival of a call, lets it pass its limits and chooses its fault. If it gets
// no answer, *bad says why.
func (x *exchange) decide(bad **failure) {
	s, c := x.s, x.call
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	x.began, c.Arrived = now, now
	x.ledger = s.ledger
	x.ledger.open(c)
	x.id = c.ID
	if *bad != nil && ((*bad).reason != invalid || x.q.model == "") {
		return // nobody's quota
	}
	i, known := s.quotaOf(c.Provider, x.q.model)
	if x.q.kept != nil { // it names no model
		i, known = -1, true
	}
	switch {
	case !known && *bad == nil:
		*bad = &failure{reason: unknownModel, message: x.q.model}
		return
	case !known:
		return
	case i >= 0:
		c.Quota = s.quotas[i].Name
	}
	x.apply(i, now, bad)
}

// apply applies a quota and a fault. The caller holds s.mu.
func (x *exchange) apply(i int, now time.Time, bad **failure) {
	s, c := x.s, x.call
	charge, need := x.charge.admission(&x.q)
	fault := x.q.fault
	if *bad != nil || x.q.free {
		charge, need = Amounts{}, Amounts{}
	}
	if *bad != nil && x.charge.Failed {
		charge.Requests, need.Requests = 1, 1
	}
	x.admission = s.admit(c, i, now, charge, need)
	if !c.Admitted {
		x.ledger.refused(c)
		*bad = &failure{reason: overQuota}
		return
	}
	x.ledger.summary.admitted++
	if *bad == nil {
		if fault.Kind == "" {
			fault = s.faults.next(c.Provider, x.q.model)
		}
		x.fault, c.Fault = fault, fault.Kind
	}
	switch {
	case x.fault.refuses():
		*bad = &failure{reason: faulty, fault: x.fault.Kind}
		charge = x.uncharge(now, charge)
	case x.fault.fails() && !x.charge.Failed:
		charge = x.uncharge(now, charge)
	}
	if x.fault.fails() {
		*bad = &failure{reason: faulty, fault: x.fault.Kind}
	}
	c.Charged, c.Final = charge, charge
}

// uncharge gives back the charge of a call that a fault refuses, except its request if failed
// requests count. It returns what remains.
func (x *exchange) uncharge(now time.Time, charge Amounts) (left Amounts) {
	if x.charge.Failed {
		left.Requests = charge.Requests
	}
	back := charge
	back.Requests -= left.Requests
	x.giveBack(now, back)
	return left
}

// refuses reports whether a fault refuses a call before anything is done for it.
func (f Fault) refuses() bool {
	switch f.Kind {
	case FaultMinute, FaultDay, FaultCredit, FaultSpendCap, FaultTransient, FaultOverload, FaultUnavailable,
		FaultOverloaded:
		return true
	}
	return false
}

// fails reports whether a fault makes a call fail after it was admitted, before any answer.
func (f Fault) fails() bool { return f.Kind == FaultInternal || f.Kind == FaultBadGateway }

// failed answers a call that a fault refuses.
func (x *exchange) failed(ctx context.Context, f failure) Outcome {
	if !sleep(ctx, x.fault.Delay) {
		return Left
	}
	x.writeFailure(f)
	return Failed
}

// produce counts tokens of output that the model makes now.
func (x *exchange) produce(n int64) {
	x.output += n
	x.later(x.charge.produced(&x.q, n))
}

// later counts more for the call.
func (x *exchange) later(more Amounts) {
	if more == (Amounts{}) {
		return
	}
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	now := time.Now()
	x.admission.later(now, more)
	x.ledger.later(x.call, now, more)
}

// complete counts what is known only when the answer ends, however it ends. Only the first call
// does something.
func (x *exchange) complete() {
	if x.completed {
		return
	}
	x.completed = true
	x.s.mu.Lock()
	more, back := x.charge.completed(&x.q, x.call.Charged, x.output)
	if back != (Amounts{}) {
		x.giveBack(time.Now(), back)
		x.call.Charged.OutputTokens -= back.OutputTokens
		x.call.Final.OutputTokens -= back.OutputTokens
	}
	x.s.mu.Unlock()
	x.later(more)
}

// finish records the end of a call.
func (x *exchange) finish(o Outcome) {
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	c := x.call
	c.Status, c.Output, c.Delivered, c.Bytes = x.status, x.output, x.sent, x.bytes
	c.Images, c.ImageInput = x.q.images.images, x.q.imageInput
	c.CacheRead, c.CacheWrite, c.Reasoning = x.q.cacheRead, x.q.cacheWrite, min(x.output, x.q.thoughts*x.q.choices)
	x.ledger.close(c, time.Now(), o)
	x.release()
}

// sleep waits, and reports whether ctx still goes on. A negative duration waits for ever.
func sleep(ctx context.Context, d time.Duration) bool {
	if d == 0 {
		return ctx.Err() == nil
	}
	if d < 0 {
		<-ctx.Done()
		return false
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
