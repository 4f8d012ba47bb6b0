package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/drawgate/drawgate/internal/sleep"
)

// maxReply is how many bytes are read of an answer, so that its connection can be used again.
const maxReply = 64 << 10

// delivery is the outcome of a webhook call: of an event, or of one attempt to deliver it.
type delivery uint8

const (
	delivered delivery = iota // the receiver accepted an event
	retried                   // an attempt failed, and another one follows
	rejected                  // the receiver's answer was final: sending the event again would not help
	gaveUp                    // the receiver accepted an event at no attempt
	dropped                   // an event was not sent: the queue was full, or the process ended
	deliveries
)

var deliveryNames = [deliveries]string{"delivered", "retried", "rejected", "gave_up", "dropped"}

// run delivers what is queued until the queue is closed and empty. When ctx ends it drops the rest.
func (h *Webhook) run(ctx context.Context) {
	defer close(h.done)
	for q := range h.queue {
		if ctx.Err() == nil {
			h.deliver(ctx, q.event)
		} else {
			h.drop()
		}
		close(q.done)
	}
}

// drop counts an event that was not sent.
func (h *Webhook) drop() {
	h.dropped.Add(1)
	h.opts.Metrics.posted(dropped)
}

// deliver sends an event until the receiver accepts or rejects it, or the last attempt fails.
func (h *Webhook) deliver(ctx context.Context, e *Event) {
	body, err := json.Marshal(e)
	if err != nil {
		h.lose(e, rejected, err)
		return
	}
	for i := 1; ; i++ {
		after, err := h.post(ctx, e, body)
		switch _, final := errors.AsType[*finalError](err); {
		case err == nil:
			h.opts.Metrics.posted(delivered)
			return
		case ctx.Err() != nil:
			h.drop()
			return
		case final:
			h.lose(e, rejected, err)
			return
		case i == h.opts.Attempts:
			h.lose(e, gaveUp, err)
			return
		}
		h.opts.Metrics.posted(retried)
		if !sleep.For(ctx, h.pause(i, after)) {
			h.drop()
			return
		}
	}
}

// lose counts and logs an event that was not delivered.
func (h *Webhook) lose(e *Event, d delivery, err error) {
	h.dropped.Add(1)
	h.opts.Metrics.posted(d)
	h.opts.Logger.Warn("a webhook event was not delivered", "event", string(e.Kind), "id", e.ID, "host", h.host, "error", err)
}

// pause returns how long to wait after attempt i has failed. after is what the receiver asked for;
// 0 means nothing.
func (h *Webhook) pause(i int, after time.Duration) time.Duration {
	d := h.opts.Backoff
	for range i - 1 {
		d = min(2*d, h.opts.MaxBackoff)
	}
	d = d/2 + rand.N(d) //nolint:gosec // jitter needs no secrecy
	return min(max(d, after), h.opts.MaxBackoff)
}

// finalError is an answer after which sending the event again would not help.
type finalError struct{ status string }

func (e *finalError) Error() string { return "it was answered with " + e.status }

// post makes one attempt. after is how long the receiver asked to wait.
func (h *Webhook) post(ctx context.Context, e *Event, body []byte) (after time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, h.opts.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url, bytes.NewReader(body))
	if err != nil {
		return 0, withoutURL(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "drawgate")
	req.Header.Set("Drawgate-Event", string(e.Kind))
	req.Header.Set("Drawgate-Id", e.ID)
	req.Header.Set(SignatureHeader, Sign(h.secret, body, time.Now()))
	res, err := h.client.Do(req)
	if err != nil {
		return 0, withoutURL(err)
	}
	defer res.Body.Close() //nolint:errcheck // it was only read
	_, _ = io.CopyN(io.Discard, res.Body, maxReply)
	switch s := res.StatusCode; {
	case s >= 200 && s < 300:
		return 0, nil
	case s >= 500, s == http.StatusTooManyRequests, s == http.StatusRequestTimeout, s == http.StatusTooEarly:
		return retryAfter(res.Header), fmt.Errorf("it was answered with %s", status(s))
	default:
		return 0, &finalError{status(s)}
	}
}

// status returns a status with the standard text, because the receiver's text may contain anything.
func status(code int) string { return fmt.Sprintf("%d %s", code, http.StatusText(code)) }

// withoutURL removes the URL, which may be a secret, from an error.
func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// retryAfter reads the seconds of a Retry-After header; 0 if there are none.
func retryAfter(h http.Header) time.Duration {
	s, err := strconv.ParseInt(h.Get("Retry-After"), 10, 32)
	if err != nil || s < 0 {
		return 0
	}
	return time.Duration(s) * time.Second
}
