package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/drawgate/drawgate/internal/outbox"
)

// maxReply is how many bytes are read of an answer, so that its connection can be used again.
const maxReply = 64 << 10

// deliver sends an event until the receiver accepts or rejects it, or the last attempt fails.
func (h *Webhook) deliver(ctx context.Context, e *Event) error {
	body, err := json.Marshal(e)
	if err != nil {
		h.ended(e, outbox.Rejected, err)
		return err
	}
	post := func(ctx context.Context) (time.Duration, error) { return h.post(ctx, e, body) }
	return h.retry.Do(ctx, post, func(r outbox.Result, err error) { h.ended(e, r, err) })
}

// ended counts how an attempt ended, and logs an event that is lost.
func (h *Webhook) ended(e *Event, r outbox.Result, err error) {
	h.opts.Metrics.posted(r)
	if r == outbox.Rejected || r == outbox.GaveUp {
		h.opts.Logger.Warn("a webhook event was not delivered",
			"event", string(e.Kind), "id", e.ID, "host", h.host, "error", err)
	}
}

// post makes one attempt. after is how long the receiver asked to wait before the next one.
func (h *Webhook) post(ctx context.Context, e *Event, body []byte) (after time.Duration, err error) {
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
	s := res.StatusCode
	if s >= 200 && s < 300 {
		return 0, nil
	}
	after = outbox.Never
	if s >= 500 || s == http.StatusTooManyRequests || s == http.StatusRequestTimeout || s == http.StatusTooEarly {
		after = retryAfter(res.Header)
	}
	// The receiver's own text may contain anything.
	return after, fmt.Errorf("it was answered with %d %s", s, http.StatusText(s))
}

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
