package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/memstore"
	"github.com/drawgate/drawgate/telemetry"
)

var secret = []byte("0123456789abcdef0123456789abcdef")

// receiver is an HTTP server that accepts webhook calls, and answers the first ones as the test
// says.
type receiver struct {
	*httptest.Server
	t *testing.T

	mu     sync.Mutex
	script []http.HandlerFunc
	events []telemetry.Event // those that were taken
	calls  int
}

func newReceiver(t *testing.T, script ...http.HandlerFunc) *receiver {
	t.Helper()
	r := &receiver{t: t, script: script}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	if err := telemetry.Verify(secret, body, req.Header.Get(telemetry.SignatureHeader), time.Now(),
		time.Minute); err != nil {
		r.t.Error(err)
	}
	r.mu.Lock()
	r.calls++
	if len(r.script) > 0 {
		f := r.script[0]
		r.script = r.script[1:]
		r.mu.Unlock()
		f(w, req)
		return
	}
	defer r.mu.Unlock()
	var e telemetry.Event
	if err := json.Unmarshal(body, &e); err != nil || req.Method != http.MethodPost ||
		req.Header.Get("Content-Type") != "application/json" {
		r.t.Errorf("%s of %s: %v", req.Method, req.Header.Get("Content-Type"), err)
	}
	if req.Header.Get("Drawgate-Event") != string(e.Kind) || req.Header.Get("Drawgate-Id") != e.ID {
		r.t.Errorf("the headers %v are not of %+v", req.Header, e)
	}
	r.events = append(r.events, e)
}

// got returns the accepted events, and the number of calls.
func (r *receiver) got() ([]telemetry.Event, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events), r.calls
}

func answer(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// hook makes a Webhook with short pauses and with metrics.
func hook(t *testing.T, address string, opts telemetry.WebhookOptions) (*telemetry.Webhook, *rig, *bytes.Buffer) {
	t.Helper()
	reg := prometheus.NewRegistry()
	m, err := telemetry.NewMetrics(reg, nil)
	if err != nil {
		t.Fatal(err)
	}
	log := &bytes.Buffer{}
	opts.Metrics, opts.Logger = m, slog.New(slog.NewTextHandler(log, nil))
	if opts.Backoff == 0 {
		opts.Backoff = time.Millisecond
	}
	if opts.CloseTimeout == 0 {
		opts.CloseTimeout = time.Minute
	}
	h, err := telemetry.NewWebhook(address, secret, &opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h, &rig{T: t, m: m, reg: reg}, log
}

func milestone(percent int) *telemetry.Warning {
	return &telemetry.Warning{
		Kind: telemetry.Milestone, At: time.Now(), Policy: "p", Limit: "rpd", Unit: "requests", Period: "day",
		Identifier: "0123456789ab",
		Percent:    percent, Used: int64(percent), Most: 100, ResetAt: time.Now().Add(time.Hour),
	}
}

// Flush waits until what was queued before is delivered, but no longer than its context: then it is
// delivered later.
func TestWebhookFlush(t *testing.T) {
	t.Parallel()
	asked, open := make(chan struct{}), make(chan struct{})
	r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) {
		close(asked)
		<-open
		w.WriteHeader(http.StatusServiceUnavailable) // it is sent again
	})
	h, _, _ := hook(t, r.URL, telemetry.WebhookOptions{})
	w := telemetry.NewWarner(nil, h.Warn)
	flush := func(ctx context.Context) error { return errors.Join(w.Flush(ctx), h.Flush(ctx)) }
	if err := flush(t.Context()); err != nil {
		t.Errorf("nothing waits: %v", err)
	}
	w.Incident(&api.Incident{ID: "ID"})
	if err := w.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-asked
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.Flush(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	close(open)
	for range 2 {
		if err := flush(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if events, calls := r.got(); len(events) != 1 || calls != 2 {
		t.Errorf("%d events were taken of %d calls, want 1 of 2", len(events), calls)
	}
	if err := h.Flush(ended); err != nil {
		t.Errorf("nothing waits any more: %v", err)
	}
	if err := errors.Join(w.Close(), w.Flush(t.Context())); err != nil { // also when it is closed
		t.Error(err)
	}
}

// Warnings reach the receiver signed and in order, without keys and without the store's error.
//
// req: D9
func TestLimitWarningsArePosted(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	h, m, _ := hook(t, r.URL, telemetry.WebhookOptions{Instance: "node-1"})
	w := telemetry.NewWarner(nil, h.Warn)
	l, err := drawgate.New(memstore.New(nil), tiers("tiers", 2), &drawgate.Options{Observer: w.Observer()})
	if err != nil {
		t.Fatal(err)
	}
	allow(t, l, "user-maria", 3)
	g := w.Guard()
	g.FallbackActivated(&guard.FallbackActivated{At: time.Now(), Err: errDown})
	g.Closed(&guard.Closed{At: time.Now(), Outage: time.Minute, Decided: 17})
	w.Close()
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	events, _ := r.got()
	var kinds []string
	for i, e := range events {
		kinds = append(kinds, string(e.Kind))
		if e.Version != 1 || e.Instance != "node-1" || e.ID == "" || e.Message == "" ||
			time.Since(e.At) > time.Minute || i > 0 && e.ID == events[0].ID {
			t.Errorf("event %d: got %+v, want version, instance, a new id, a message and the time", i, e)
		}
		if all := fmt.Sprintf("%+v", e); strings.Contains(all, "maria") || strings.Contains(all, "connection refused") {
			t.Errorf("got a key or the store's error in an event, want neither: %s", all)
		}
	}
	check(t, kinds, "milestone", "milestone", "limit_exceeded", "fallback_activated", "fallback_ended")
	if e := events[2]; e.Policy != "tiers" || e.Limit != "rpm" || e.Period != "minute" || e.Used != 2 || e.Most != 2 ||
		e.RetryAfterMS < 50_000 || e.ResetAt == nil {
		t.Errorf("got %+v, want the refusal by limit rpm of policy tiers", e)
	}
	m.want(5, "drawgate_webhook_deliveries_total", "result", "delivered")
}

// A receiver that fails gets the same event again until it accepts it.
//
// req: D9
func TestFailingReceiverIsTriedAgain(t *testing.T) {
	t.Parallel()
	hang := func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() }
	cut := func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			c.Close()
		}
	}
	r := newReceiver(t, answer(500), answer(503), cut, hang, answer(429))
	h, m, log := hook(t, r.URL, telemetry.WebhookOptions{Timeout: 10 * time.Second}) // a busy machine answers late
	h.Warn(milestone(80))
	h.Warn(milestone(95))
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	events, calls := r.got()
	if len(events) != 2 || events[0].Percent != 80 || events[1].Percent != 95 || calls != 7 {
		t.Errorf("got %d calls and the events %+v", calls, events)
	}
	m.want(5, "drawgate_webhook_deliveries_total", "result", "retried")
	m.want(2, "drawgate_webhook_deliveries_total", "result", "delivered")
	m.want(0, "drawgate_webhook_deliveries_total", "result", "dropped")
	if log.Len() > 0 {
		t.Error(log)
	}
}

// A redirect is not followed. Like any other final answer it is logged once, without the address,
// and the event is not sent again.
//
// req: D9
func TestRedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	target := newReceiver(t)
	r := newReceiver(t, func(w http.ResponseWriter, req *http.Request) {
		http.Redirect(w, req, target.URL, http.StatusTemporaryRedirect)
	}, answer(400))
	h, m, log := hook(t, r.URL+"/services/T0/secret-path?token=hush", telemetry.WebhookOptions{})
	h.Warn(milestone(50))
	h.Warn(milestone(80))
	h.Warn(milestone(95))
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if _, calls := target.got(); calls != 0 {
		t.Error("the redirect was followed")
	}
	if events, calls := r.got(); len(events) != 1 || calls != 3 {
		t.Errorf("got %d calls and the events %+v", calls, events)
	}
	m.want(2, "drawgate_webhook_deliveries_total", "result", "rejected")
	if s := log.String(); strings.Count(s, "\n") != 2 || strings.Contains(s, "secret-path") ||
		strings.Contains(s, "hush") || !strings.Contains(s, "307") {
		t.Errorf("got the log %q, want two lines with the status 307 and without the address", s)
	}
}

// With a receiver that cannot be reached, events that do not fit into the queue are dropped, and
// others are given up after the last attempt. All are counted. Neither the log nor an error shows
// the address or the secret.
//
// req: D9
func TestUnreachableReceiverIsCounted(t *testing.T) {
	t.Parallel()
	warned := make(chan struct{})
	network := roundTrip(func(r *http.Request) (*http.Response, error) {
		<-warned // whoever warns does not wait for this
		return http.DefaultTransport.RoundTrip(r)
	})
	h, m, log := hook(t, "http://127.0.0.1:1/hush", telemetry.WebhookOptions{
		Queue: 5, Attempts: 3,
		Backoff: 20 * time.Millisecond, Transport: network,
	})
	for range 1000 {
		h.Warn(milestone(80))
	}
	close(warned)
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	gaveUp, _ := m.value("drawgate_webhook_deliveries_total", "result", "gave_up")
	dropped, _ := m.value("drawgate_webhook_deliveries_total", "result", "dropped")
	if gaveUp < 5 || gaveUp > 6 || gaveUp+dropped != 1000 {
		t.Errorf("%v were given up, %v dropped", gaveUp, dropped)
	}
	if s := log.String(); strings.Contains(s, "hush") || strings.Contains(s, string(secret)) ||
		!strings.Contains(s, "connection refused") {
		t.Errorf("got the log %q, want the error without address and secret", s)
	}
	h.Warn(milestone(80)) // after the end
	m.want(dropped+1, "drawgate_webhook_deliveries_total", "result", "dropped")
}

// Close delivers for as long as it may, and says how many events were left.
//
// req: D9
func TestCloseIsBounded(t *testing.T) {
	t.Parallel()
	free := make(chan struct{})
	second := make(chan struct{})
	stall := func(http.ResponseWriter, *http.Request) {
		close(second)
		<-free
	}
	r := newReceiver(t, nil, stall)
	r.script[0] = answer(200)
	t.Cleanup(func() { close(free) })
	h, m, _ := hook(t, r.URL, telemetry.WebhookOptions{CloseTimeout: 200 * time.Millisecond, Timeout: time.Minute})
	for range 4 {
		h.Warn(milestone(80))
	}
	<-second
	start := time.Now()
	err := h.Close()
	if took := time.Since(start); err == nil || !strings.Contains(err.Error(), "3 events") || took > 10*time.Second ||
		took < 200*time.Millisecond {
		t.Errorf("it took %v: %v", took, err)
	}
	m.want(3, "drawgate_webhook_deliveries_total", "result", "dropped")
	if err := h.Close(); err != nil {
		t.Errorf("the second time: %v", err)
	}
}

// roundTrip is a transport that is a func.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Pauses grow with jitter up to the maximum, and follow what the receiver asks for.
//
// req: D9
func TestPausesGrow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		var signatures []string
		h, err := telemetry.NewWebhook("https://receiver.example", secret, &telemetry.WebhookOptions{
			MaxBackoff: 20 * time.Second,
			Transport: roundTrip(func(req *http.Request) (*http.Response, error) {
				at = append(at, time.Now())
				signatures = append(signatures, req.Header.Get(telemetry.SignatureHeader))
				res := &http.Response{
					StatusCode: http.StatusServiceUnavailable, Header: http.Header{},
					Body: http.NoBody,
				}
				switch len(at) {
				case 1:
					return nil, errors.New("no route")
				case 3:
					res.Header.Set("Retry-After", "15")
				case 4:
					res.Header.Set("Retry-After", "3600")
				}
				return res, nil
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		h.Warn(milestone(80))
		time.Sleep(10 * time.Minute)
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		mean := []time.Duration{
			time.Second, 2 * time.Second, 15 * time.Second, 20 * time.Second, 16 * time.Second,
			20 * time.Second, 20 * time.Second,
		}
		if len(at) != 8 {
			t.Fatalf("got %d attempts", len(at))
		}
		for i, m := range mean {
			if d := at[i+1].Sub(at[i]); d < m/2 || d > min(m*3/2, 20*time.Second) || (i == 2 || i == 3) && d != m {
				t.Errorf("pause %d is %v, want about %v", i, d, m)
			}
		}
		if signatures[7] == signatures[0] {
			t.Error("the last attempt has the signature of the first, want a new one")
		}
	})
}

// Mistakes in the options are reported without showing what may be a secret.
func TestWebhookRejectsMistakes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		address, secret string
		kind            telemetry.Kind
		want            string
	}{
		{"ftp://hush", string(secret), "", "http or https"},
		{"https://", string(secret), "", "http or https"},
		{"https://a b/hush%zz", string(secret), "", "http or https"},
		{"https://receiver.example", "hush", "", "needs at least 16"},
		{"https://receiver.example", string(secret), "nothing", "unknown kind of event"},
		{"https://receiver.example", string(secret), telemetry.Milestone, "unknown milestone 90%"},
	} {
		opts := &telemetry.WebhookOptions{}
		if c.kind != "" {
			opts.Kinds, opts.Milestones = []telemetry.Kind{c.kind}, []int{90}
		}
		_, err := telemetry.NewWebhook(c.address, []byte(c.secret), opts)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hush") {
			t.Errorf("address %q: got %v, want an error that says %q", c.address, err, c.want)
		}
	}
}

// Only the chosen kinds of warnings are posted.
func TestOnlyChosenKindsArePosted(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	h, _, _ := hook(t, r.URL, telemetry.WebhookOptions{Kinds: []telemetry.Kind{telemetry.FallbackEnded}})
	h.Warn(milestone(80))
	h.Warn(&telemetry.Warning{Kind: telemetry.FallbackEnded, At: time.Now()})
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if events, _ := r.got(); len(events) != 1 || events[0].Kind != telemetry.FallbackEnded {
		t.Errorf("got %+v, want one fallback_ended", events)
	}
}

// Only the chosen milestones are posted, also those that a take passes on its way to a higher one.
func TestOnlyChosenMilestonesArePosted(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	h, _, _ := hook(t, r.URL, telemetry.WebhookOptions{Milestones: []int{80}})
	w := telemetry.NewWarner(nil, h.Warn)
	l, err := drawgate.New(memstore.New(nil), rolling("p", "rpm", 10, time.Minute),
		&drawgate.Options{Observer: w.Observer()})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"a", "b"} {
		for _, n := range map[string][]int64{"a": {5, 3, 2}, "b": {6, 4}}[key] { // 50, 80, 100 per cent; 50, 100
			if _, err := l.Allow(t.Context(), key, drawgate.Cost{N: n}); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = w.Close()
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	events, _ := r.got()
	var got []string
	for _, e := range events {
		got = append(got, fmt.Sprint(e.Percent))
	}
	check(t, got, "80", "100")
}

// A signature is valid only for its secret, its body and its time.
func TestSignatureIsValidForOneSecretBodyAndTime(t *testing.T) {
	t.Parallel()
	now, body := time.Unix(1_800_000_000, 0), []byte(`{"version":1}`)
	good := telemetry.Sign(secret, body, now)
	// printf '1800000000.{"version":1}' | openssl dgst -sha256 -hmac
	// 0123456789abcdef0123456789abcdef
	if want := "t=1800000000,v1=0a2259bdff7d2c451d6ee61a55f52ab673a1b8fe616fbd4e1abf193a2037b566"; good != want {
		t.Errorf("got %s, want %s", good, want)
	}
	other := telemetry.Sign([]byte("another secret of 32 bytes......"), body, now)
	_, v1, _ := strings.Cut(good, ",")
	for _, c := range []struct {
		header string
		body   []byte
		now    time.Time
		valid  bool
	}{
		{good, body, now, true},
		{good, body, now.Add(5 * time.Minute), true},
		{good, body, now.Add(-5 * time.Minute), true},
		{other + "," + v1, body, now, true}, // while the secret is changed
		{"v2=new," + good, body, now, true},
		{good, body, now.Add(301 * time.Second), false},
		{good, body, now.Add(-301 * time.Second), false},
		{good, []byte(`{"version":2}`), now, false},
		{other, body, now, false},
		{v1, body, now, false},
		{"t=1800000001," + v1, body, now, false},
		{"t=01800000000," + v1, body, now, false},
		{"t=1800000000,v1=", body, now, false},
		{"t=1800000000", body, now, false},
		{"", body, now, false},
		{good + strings.Repeat(",", 1024), body, now, false},
	} {
		err := telemetry.Verify(secret, c.body, c.header, c.now, 5*time.Minute)
		if (err == nil) != c.valid || err != nil && !errors.Is(err, telemetry.ErrSignature) {
			t.Errorf("%q at %v: %v", c.header, c.now, err)
		}
	}
}
