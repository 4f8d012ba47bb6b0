package telemetry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Defaults and bounds of webhooks.
const (
	defaultQueue      = 1000
	defaultTimeout    = 5 * time.Second
	defaultAttempts   = 8
	defaultBackoff    = time.Second
	defaultClose      = 5 * time.Second
	defaultMaxBackoff = time.Minute
	idleConnection    = 90 * time.Second
	minSecret         = 16 // bytes
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

	mu     sync.Mutex
	closed bool          // guarded by mu: queue is closed
	queue  chan queued   // guarded by mu against sending after it was closed
	last   chan struct{} // guarded by mu: done of the last event that was queued; nil: there was none

	cancel   context.CancelFunc // ends what the goroutine is doing
	done     chan struct{}      // closed when the goroutine has ended
	dropped  atomic.Int64
	reported atomic.Int64 // of dropped, by Flush
}

// queued is an event that waits.
type queued struct {
	event *Event
	done  chan struct{} // closed when it was delivered or dropped
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
	h := &Webhook{url: u.String(), host: u.Host, secret: bytes.Clone(secret), done: make(chan struct{})}
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
	h.opts.defaults()
	h.queue = make(chan queued, h.opts.Queue)
	h.client = &http.Client{Transport: h.opts.Transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	ctx, cancel := context.WithCancel(context.Background())
	h.cancel = cancel
	go h.run(ctx)
	return h, nil
}

func (o *WebhookOptions) defaults() {
	o.Queue, o.Attempts = positive(o.Queue, defaultQueue), positive(o.Attempts, defaultAttempts)
	o.Timeout, o.Backoff = positive(o.Timeout, defaultTimeout), positive(o.Backoff, defaultBackoff)
	o.MaxBackoff = max(o.Backoff, positive(o.MaxBackoff, defaultMaxBackoff))
	if o.CloseTimeout == 0 {
		o.CloseTimeout = defaultClose
	}
	if o.Transport == nil {
		o.Transport = &http.Transport{
			Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, MaxIdleConns: 1, IdleConnTimeout: idleConnection, TLSHandshakeTimeout: o.Timeout,
		}
	}
	if o.Instance == "" {
		o.Instance, _ = os.Hostname()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

func positive[N int | time.Duration](n, otherwise N) N {
	if n <= 0 {
		return otherwise
	}
	return n
}

// Warn queues a warning: it is a sink of a [Warner]. It never waits.
func (h *Webhook) Warn(w *Warning) {
	if !h.wants(w) {
		return
	}
	q := queued{event(w, h.opts.Instance), make(chan struct{})}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		select {
		case h.queue <- q:
			h.last = q.done
			return
		default:
		}
	}
	h.drop()
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
	h.mu.Lock()
	last := h.last
	h.mu.Unlock()
	if last == nil {
		return nil
	}
	select {
	case <-last:
	case <-ctx.Done():
		select {
		case <-last:
		default:
			return fmt.Errorf("telemetry: webhook: not all events were delivered yet: %w", ctx.Err())
		}
	}
	dropped := h.dropped.Load()
	if n := dropped - h.reported.Swap(dropped); n > 0 {
		return fmt.Errorf("telemetry: webhook: %d events were not delivered to %s; see the log", n, h.host)
	}
	return nil
}

// Close accepts no more events, delivers those that wait for up to CloseTimeout, and ends. The
// error says how many were not delivered.
func (h *Webhook) Close() error {
	h.mu.Lock()
	if !h.closed {
		h.closed = true
		close(h.queue)
	}
	h.mu.Unlock()
	if h.opts.CloseTimeout > 0 {
		t := time.NewTimer(h.opts.CloseTimeout)
		defer t.Stop()
		select {
		case <-h.done:
		case <-t.C:
		}
	}
	before := h.dropped.Load()
	h.cancel()
	<-h.done
	h.client.CloseIdleConnections()
	if n := h.dropped.Load() - before; n > 0 {
		return fmt.Errorf("telemetry: webhook: %d events were not delivered to %s before it was closed", n, h.host)
	}
	return nil
}
