package gateway

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/internal/admit"
	"github.com/drawgate/drawgate/internal/failure"
	"github.com/drawgate/drawgate/internal/money"
	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/outbound"
)

// refusal is an answer of ours in the place of the provider's.
type refusal struct {
	kind     llm.ErrorKind
	message  string // for people; no secrets, and nothing of the prompt
	after    time.Duration
	again    bool               // nothing was sent: the SDK may try again, whatever the kind says
	decision *drawgate.Decision // of the quota, if it refused; may be nil
	token    error              // what is wrong with the caller's token; nil: it is not about one
}

// errorOf returns the refusal that an error of a call means. known is false for one that has to be
// logged.
func errorOf(err error, upstream string) (why *refusal, known bool) {
	if open, ok := errors.AsType[*outbound.CircuitOpenError](err); ok {
		calls := "calls"
		if open.Caller != "" {
			calls += " by " + open.Caller
		}
		if open.Model != "" {
			calls += " of " + open.Model
		}
		message := calls + " to " + upstream + " fail, and none is made for a while"
		return &refusal{kind: llm.Unavailable, message: message, after: open.RetryAfter}, true
	}
	if e, ok := errors.AsType[*keyError](err); ok {
		return e.why, true
	}
	switch {
	case errors.Is(err, outbound.ErrNoPrice):
		_, why, _ := strings.Cut(err.Error(), "llm: ") // the model's name may be another one than the caller's
		return &refusal{kind: llm.NotFound, message: why + " in gateway.prices, as calls are limited by what they cost"}, true
	case errors.Is(err, llm.ErrUnpriced):
		return &refusal{kind: llm.BadRequest, message: strings.TrimPrefix(err.Error(), "outbound: llm: ")}, true
	case errors.Is(err, outbound.ErrNotOffered):
		return &refusal{kind: llm.NotFound, message: strings.TrimPrefix(err.Error(), "outbound: ")}, true
	case errors.Is(err, errStopping):
		return &refusal{kind: llm.Unavailable, message: errStopping.Error(), after: time.Second}, true
	case errors.Is(err, errCut):
		message := "this gateway is stopping, and cut the answer of " + upstream + " off; " +
			"the call may have been counted there"
		return &refusal{kind: llm.Lost, message: message}, true
	case errors.Is(err, outbound.ErrLate):
		return &refusal{
			kind: llm.Unavailable, message: "the call could not be sent in time, and nothing was spent",
			after: time.Second,
		}, false
	case errors.Is(err, outbound.ErrHoldLost):
		return &refusal{kind: llm.Lost, message: "what the call holds could not be renewed, so it was ended"}, false
	case errors.Is(err, errSilent), errors.Is(err, errTooLong), errors.Is(err, os.ErrDeadlineExceeded):
		return &refusal{kind: llm.TimedOut, message: upstream + " did not answer in time"}, false
	}
	if why := limited(err); why != nil {
		return why, true
	}
	if _, ok := errors.AsType[*callError](err); ok {
		return lost(err, upstream), false
	}
	return &refusal{
		kind:    llm.ServerError,
		message: "the call could not be counted, and was not made: the log of the gateway says why",
	}, false
}

// limited returns the refusal of a call that the quota did not grant, or nil.
func limited(err error) *refusal {
	var d *drawgate.Decision
	after := time.Duration(0)
	if l, ok := errors.AsType[*drawgate.LimitedError](err); ok {
		d = &l.Decision
		after, _ = admit.RetryAfter(d)
	}
	text := strings.TrimPrefix(err.Error(), "outbound: ")
	kind := failure.Of(err)
	if d != nil && d.Reason == drawgate.Unavailable && (kind == failure.Limited || kind == failure.TimedOut) {
		return &refusal{kind: llm.Unavailable, message: text, after: max(after, time.Second), decision: d}
	}
	if kind == failure.TimedOut && d != nil && d.RetryAfter >= drawgate.Never/2 {
		kind = failure.Limited // of a prepaid budget: to wait longer would not have helped
		text = "drawgate: " + strings.TrimPrefix(text, drawgate.ErrDeadline.Error()+": ")
	}
	switch kind {
	case failure.NeverFits:
		return &refusal{kind: llm.BadRequest, message: text, decision: d}
	case failure.Limited:
		if l, ok := refusing(d); ok && l.Limit.Every == drawgate.Total && d.Reason == drawgate.Limited {
			if d.EarliestRetry == d.RetryAfter {
				return &refusal{kind: llm.NoCredit, message: text, decision: d}
			}
			after = time.Second // calls under way hold some of it, and may use less
		}
		return &refusal{kind: llm.RateLimited, message: text, after: after, decision: d}
	case failure.TimedOut:
		return &refusal{kind: llm.RateLimited, message: text, after: max(after, time.Second), decision: d}
	case failure.QueueFull:
		return &refusal{
			kind: llm.Overloaded, message: "as many calls wait as may: try again later",
			after: max(after, time.Second), decision: d,
		}
	case failure.Unavailable, failure.Closed, failure.TooManyOpen:
		return &refusal{
			kind:    llm.Unavailable,
			message: "the store of the quota does not answer, and without it nothing is granted", after: time.Second,
		}
	}
	return nil
}

// refusing returns the limit that refuses longest, if one does. d may be nil.
func refusing(d *drawgate.Decision) (drawgate.LimitResult, bool) {
	if d == nil {
		return drawgate.LimitResult{}, false
	}
	return d.Refusing()
}

// lost returns the refusal of a call that went wrong on its way. Details are for the log alone:
// they have addresses.
func lost(err error, upstream string) *refusal {
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
		return &refusal{kind: llm.TimedOut, message: upstream + " did not answer in time", again: dialled(err)}
	}
	if dialled(err) {
		return &refusal{kind: llm.Lost, message: upstream + " cannot be reached; nothing was sent", again: true}
	}
	return &refusal{kind: llm.Lost, message: "the connection to " + upstream +
		" was lost; the call may have been counted there"}
}

// dialled reports whether a call failed before there was a connection.
func dialled(err error) bool {
	e, ok := errors.AsType[*net.OpError](err)
	return ok && e.Op == "dial"
}

// failed answers a call that was not made, or got no answer.
func (x *exchange) failed(c *call, err error) {
	if x.r.Context().Err() != nil {
		x.result = ResultLeft
		return // nobody reads it
	}
	why, known := errorOf(err, x.up.config.Name)
	if !known {
		x.h.warn("a call failed", "upstream", x.up.config.Name, "key", x.key.Name, "error", err)
	}
	if _, ok := errors.AsType[*keyError](err); ok {
		x.refusedKey(why)
	}
	if (why.kind == llm.RateLimited || why.kind == llm.NoCredit) && why.decision != nil {
		why.message += shorter(c, why.decision)
	}
	if errors.Is(err, drawgate.ErrNeverFits) {
		why.message += smaller(c)
	}
	x.refuse(why)
}

// smaller says how a call that can never fit might.
func smaller(c *call) string {
	switch c.Operation {
	case llm.OpImages, llm.OpImageEdits:
		return ": ask for fewer images (n), or name a smaller size and a lower quality"
	case llm.OpEmbeddings, llm.OpModerations:
		return ": send less at a time"
	}
	switch {
	case c.Unknown > 0:
		return ": the call has a field or a value that is not known here, and may use the model's whole context and its longest answer: leave it out"
	case c.Hidden+c.Searches > 0:
		return ": what the provider alone knows of the prompt (an earlier response, a file by its id, a stored prompt, what its tools find) " +
			"counts as the model's whole context: send the content itself, or ask whoever runs the gateway for a larger limit (or estimate: likely)"
	}
	return ": make the prompt smaller, or set a smaller max_tokens: without it the longest answer of the model counts"
}

// shorter says which call would fit in the place of one that a limit has refused, if the same with
// a shorter answer would.
func shorter(c *call, d *drawgate.Decision) string {
	tokens, ok := c.up.transport.LongestAnswer(c.Call, d)
	l, limited := d.Refusing()
	if !ok || !limited {
		return ""
	}
	field := "max_tokens"
	switch c.Operation {
	case llm.OpResponses:
		if field = "max_output_tokens"; tokens < leastResponse {
			return ""
		}
	case llm.OpGenerate, llm.OpStreamGenerate:
		field = "maxOutputTokens"
	case llm.OpGeneric:
		field = "a longest answer, in tokens,"
	}
	unit := cmp.Or(l.Limit.Unit, drawgate.UnitRequests)
	left := fmt.Sprintf("; %s of that limit are left, and", money.Text(l.Remaining, unit))
	if l.Limit.Every == drawgate.Total { // it has been said
		left = ";"
	}
	return fmt.Sprintf("%s with %s of at most %d the call would fit now", left, field, tokens)
}

// leastResponse is the least max_output_tokens that OpenAI takes ("minimum: 16" in its API
// reference).
const leastResponse = 16

// refuse answers in the provider's own form.
func (x *exchange) refuse(why *refusal) {
	x.result = ResultRefused
	resp := x.up.config.Profile.Error(why.kind, why.message, why.after)
	if x.key != nil {
		x.h.journal.refuses(x.key.Name, api.MeRefusal{
			At: time.Now().UTC(), Upstream: x.up.config.Name, Status: resp.Status, Message: why.message,
		})
	}
	h := x.w.Header()
	maps.Copy(h, resp.Header)
	if why.again {
		h.Del("X-Should-Retry")
	}
	if why.decision != nil {
		after := h["Retry-After"]
		x.h.headers.Append(h, why.decision)
		x.warnOfBudget(h, why.decision)
		if h["Retry-After"] = after; after == nil {
			delete(h, "Retry-After")
		}
	}
	h.Set("Cache-Control", "no-store")
	if x.ask.queued > 0 {
		h.Set(HeaderQueued, strconv.FormatInt(x.ask.queued.Milliseconds(), 10))
	}
	h.Set("Content-Length", strconv.Itoa(len(resp.Body)))
	_ = x.rc.SetWriteDeadline(time.Now().Add(writeTimeout)) // a test's recorder has none
	x.w.WriteHeader(resp.Status)
	if x.r.Method != http.MethodHead {
		_, _ = x.w.Write(resp.Body) // whoever has left needs no answer
	}
}
