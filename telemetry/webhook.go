package telemetry

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/drawgate/drawgate/internal/outbox"
)

const (
	defaultQueue   = 1000
	idleConnection = 90 * time.Second
	minSecret      = 16 // bytes
)

// WebhookOptions holds what a [Webhook] can do without. The zero value is ready to use.
type WebhookOptions struct {
	// Kinds are those that are posted; none means all of them.
	Kinds []Kind
	// Milestones are those, in per cent, that are posted; none means all of 50, 80, 95 and 100.
	Milestones []int
	// Queue is the maximum number of waiting events: 0 means 1000. What does not fit is dropped and
	// counted.
	Queue int
	// Timeout bounds one attempt, including the answer: 0 means 5 seconds.
	Timeout time.Duration
	// Attempts is the maximum number of times that one event is sent: 0 means 8.
	Attempts int
	// Backoff is the mean pause after the first attempt that fails; it doubles with each further
	// one up to MaxBackoff. 0 means one second and one minute. Each pause is random, between half
	// and one and a half times the mean. A receiver may ask for more by Retry-After, up to
	// MaxBackoff.
	Backoff, MaxBackoff time.Duration
	// CloseTimeout is how long Close goes on delivering: 0 means 5 seconds, negative means not at
	// all.
	CloseTimeout time.Duration
	// Transport makes the calls; nil means a new one like http.DefaultTransport.
	Transport http.RoundTripper
	// Instance names this process in the events; "" means the host's name.
	Instance string
	// Logger gets the events that were not delivered, with the receiver's host but never its whole
	// URL. nil discards.
	Logger *slog.Logger
	// Metrics counts the calls by outcome; it may be nil.
	Metrics *Metrics
}

// Webhook posts warnings as JSON to a URL, signed: [Event] is the body, [SignatureHeader] the
// signature, [Verify] checks it.
//
// Events go out one after the other, in order, from a bounded queue, by a goroutine of its own. One
// that is answered with 2xx is delivered. If there is no answer, or it is 408, 425, 429 or 5xx, it
// is sent again with growing pauses; so a receiver may get one twice, with the same id. Any other
// answer, also a redirect, is final. It is safe for concurrent use.
type Webhook struct {
	opts   WebhookOptions
	url    string
	host   string
	secret []byte
	client *http.Client
	retry  outbox.Retry
	box    *outbox.Outbox[*Event]
	full   atomic.Int64 // events that did not fit in box since the last Flush
}

// NewWebhook returns a Webhook that posts to an http or https URL, signing with secret, of at least
// 16 bytes. opts may be nil. It must be closed.
func NewWebhook(address string, secret []byte, opts *WebhookOptions) (*Webhook, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("telemetry: webhook: the address must be an http or https URL; it is not shown, since it may be a secret")
	}
	if len(secret) < minSecret {
		return nil, fmt.Errorf("telemetry: webhook: the secret has %d bytes, but needs at least %d: generate one with openssl rand -hex 32", len(secret), minSecret)
	}
	h := &Webhook{url: u.String(), host: u.Host, secret: bytes.Clone(secret)}
	if opts != nil {
		h.opts = *opts
	}
	for _, k := range h.opts.Kinds {
		if k.position() < 0 {
			return nil, fmt.Errorf("telemetry: webhook: unknown kind of event %q (have: %q)", k, kinds)
		}
	}
	for _, p := range h.opts.Milestones {
		if !slices.Contains(milestones[:], int64(p)) {
			return nil, fmt.Errorf("telemetry: webhook: unknown milestone %d%% (have: %d)", p, milestones)
		}
	}
	h.retry = outbox.Retry{
		Timeout: h.opts.Timeout, Attempts: h.opts.Attempts, Backoff: h.opts.Backoff, MaxBackoff: h.opts.MaxBackoff,
	}.WithDefaults()
	h.opts.defaults(h.retry.Timeout)
	h.client = &http.Client{
		Transport:     h.opts.Transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	h.box = outbox.New(h.opts.Queue, h.deliver)
	return h, nil
}

func (o *WebhookOptions) defaults(timeout time.Duration) {
	o.Queue = outbox.Positive(o.Queue, defaultQueue)
	o.CloseTimeout = cmp.Or(o.CloseTimeout, outbox.DefaultClose)
	if o.Transport == nil {
		o.Transport = &http.Transport{
			Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true,
			MaxIdleConns: 1, IdleConnTimeout: idleConnection, TLSHandshakeTimeout: timeout,
		}
	}
	if o.Instance == "" {
		o.Instance, _ = os.Hostname()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// Warn queues a warning: it is a sink of a [Warner]. It never waits.
func (h *Webhook) Warn(w *Warning) {
	if !h.wants(w) {
		return
	}
	if _, err := h.box.Add(event(w, h.opts.Instance)); err != nil {
		h.full.Add(1)
		h.opts.Metrics.posted(outbox.Dropped)
	}
}

// wants reports whether a warning is to be posted.
func (h *Webhook) wants(w *Warning) bool {
	if len(h.opts.Kinds) > 0 && !slices.Contains(h.opts.Kinds, w.Kind) {
		return false
	}
	return w.Kind != Milestone || len(h.opts.Milestones) == 0 ||
		slices.ContainsFunc(h.opts.Milestones, func(p int) bool { return w.From <= p && p <= w.Percent })
}

// Flush waits until the events that were queued before are delivered. The error says how many were
// not, since the last Flush; or it is ctx's, and those that wait are delivered later.
func (h *Webhook) Flush(ctx context.Context) error {
	lost, err := h.box.Flush(ctx)
	if err != nil {
		return fmt.Errorf("telemetry: webhook: not all events were delivered yet: %w", err)
	}
	if n := int64(lost) + h.full.Swap(0); n > 0 {
		return fmt.Errorf("telemetry: webhook: %d events were not delivered to %s; see the log", n, h.host)
	}
	return nil
}

// Close accepts no more events, delivers those that wait for up to CloseTimeout, and ends. The
// error says how many were not delivered.
func (h *Webhook) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), h.opts.CloseTimeout)
	defer cancel()
	_, late := h.box.Close(ctx)
	h.client.CloseIdleConnections()
	if late > 0 {
		return fmt.Errorf("telemetry: webhook: %d events were not delivered to %s before it was closed", late, h.host)
	}
	return nil
}
