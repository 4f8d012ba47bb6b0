package gateway

import (
	"cmp"
	"errors"
	"net/http"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/outbound"
)

// ladder makes a call that is counted, or gives what it can instead: an answer from the cache, one
// that is too old while the quota is exhausted, another model's, a place in the queue, a refusal.
func (x *exchange) ladder(c *call) {
	if answered := x.h.opts.Answered; answered != nil {
		defer func() {
			meant := cmp.Or(x.meant, c)
			answered(meant.up.config.Name, meant.entry.Name, x.result)
		}()
	}
	var k *keep
	var old *answer
	if m := &c.entry.Cache; m.TTL > 0 && !asksFor(x.r.Header, "no-store") {
		k = &keep{key: x.cacheKey(c), most: x.h.opts.Cache / maxPart}
		old = x.h.cache.get(k.key, time.Now())
		switch {
		case asksFor(x.r.Header, "no-cache"):
			old = nil
		case old != nil && time.Since(old.at) < m.TTL:
			x.cached(c, old, CacheHit)
			return
		}
	}
	if old != nil || len(c.entry.Fallbacks) > 0 {
		if x.instead(c, k, old) {
			return
		}
	}
	made, resp, err := x.anywhere(c, x.wait) //nolint:bodyclose // end closes it
	x.end(made, k, resp, err)
}

// instead makes the call if the quota grants it at once, and otherwise tries what may take its
// place. It reports whether there was an answer; if not, the queue is left.
func (x *exchange) instead(c *call, k *keep, old *answer) bool {
	made, resp, err := x.anywhere(c, 0)
	if !exhausted(resp, err) {
		x.end(made, k, resp, err)
		return true
	}
	if old != nil {
		drop(resp)
		x.cached(c, old, CacheStale)
		return true
	}
	granted := x.ask.decision
	for _, name := range c.entry.Fallbacks {
		other := x.as(c, name)
		if other == nil {
			continue
		}
		x.up = other.up // which answers from here on
		got, failed := x.send(other, 0)
		if failed == nil && got.StatusCode < http.StatusBadRequest {
			drop(resp)
			c.forget()
			x.deliver(other, got, nil)
			return true
		}
		x.warnFallback(other, got, failed)
		drop(got) // whatever is wrong with it is not wrong with the model that was asked for
	}
	x.up, x.ask.decision = made.up, granted
	if resp != nil { // it was sent, and refused by the provider: the queue does not help it
		x.deliver(made, resp, nil)
		return true
	}
	return false
}

// warnFallback logs why a fallback gave no answer, unless it is exhausted too: its caller only sees
// that of the model that was asked for.
func (x *exchange) warnFallback(c *call, resp *http.Response, err error) {
	switch {
	case exhausted(resp, err) || x.r.Context().Err() != nil:
	case err != nil:
		if _, known := errorOf(err, c.up.config.Name); !known {
			x.h.warn("a fallback failed", "upstream", c.up.config.Name, "model", c.label, "error", err)
		}
	case resp.StatusCode == http.StatusUnauthorized:
		x.h.warn(c.up.config.keyRefused(), "upstream", c.up.config.Name)
	default:
		x.h.warn("a fallback was refused: look at the url of the upstream, and at the model's name", "upstream",
			c.up.config.Name, "model", c.label,
			"status", resp.StatusCode, "path", x.request(c).URL.EscapedPath())
	}
}

// end answers with the outcome of a call.
func (x *exchange) end(c *call, k *keep, resp *http.Response, err error) {
	if err != nil {
		x.failed(c, err)
		return
	}
	x.deliver(c, resp, k)
}

// exhausted reports whether something else may take the place of a call: it was not granted, or the
// provider refused it for its quota, or is overloaded.
func exhausted(resp *http.Response, err error) bool {
	if err == nil {
		return resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable ||
			resp.StatusCode == llm.StatusOverloaded
	}
	for _, e := range []error{
		drawgate.ErrLimited, drawgate.ErrQueueFull, drawgate.ErrDeadline,
		drawgate.ErrStoreUnavailable, outbound.ErrCircuitOpen, outbound.ErrNotOffered,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// drop closes an answer that nobody gets. resp may be nil.
func drop(resp *http.Response) {
	if resp != nil {
		_ = resp.Body.Close() // nobody reads it
	}
}
