package outbound_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/outbound"
)

// TestObserversAreToldBothEnds: each observer hears when a call was granted and when it ended, by
// the same id, with the instants between which the upstream counted it. A call that was not granted
// has no id and no such instants.
func TestObserversAreToldBothEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var heard []string
		var ids []uint64
		var ended outbound.Event
		note := func(who string) *outbound.Observer {
			return &outbound.Observer{
				Asking: func(e *outbound.Event) {
					if heard = append(heard, who+" asking"); e.ID == 0 || e.Upstream != "api" || !e.Granted.IsZero() {
						t.Errorf("asking: %+v", e)
					}
				},
				Granted: func(e *outbound.Event) {
					heard, ids = append(heard, who+" granted"), append(ids, e.ID)
					if e.ID == 0 || e.Upstream != "api" || !e.Granted.Equal(start) || !e.Sent.IsZero() {
						t.Errorf("granted: %+v", e)
					}
				},
				Ended: func(e *outbound.Event) {
					if heard = append(heard, who+" ended"); e.ID != 1 || e.Outcome != outbound.Failed ||
						e.Ended.IsZero() {
						t.Errorf("ended: %+v", e)
					}
				},
				Called: func(e *outbound.Event) {
					heard, ids, ended = append(heard, who+" "+e.Outcome.String()), append(ids, e.ID), *e
				},
				Circuit: func(_ string, c *outbound.Circuit) { heard = append(heard, who+" "+c.State) },
			}
		}
		c := outbound.New(outbound.PerModel("project", limiter(t, tokens("m", 1, 100))), &outbound.Options{
			Upstream: "api", Breaker: outbound.Breaker{Failures: 1},
			Observer: outbound.Join(note("first"), nil, &outbound.Observer{}, note("second")),
		})
		call := outbound.Call{Model: "m", NoWait: true, Costs: []drawgate.Cost{drawgate.Units("tokens", 10)}}
		made := func(ctx context.Context) (int, []drawgate.Cost, error) {
			time.Sleep(3 * time.Second)
			return 0, nil, context.DeadlineExceeded
		}
		_, _ = outbound.Do(t.Context(), c, call, made)
		if want := []string{
			"first asking", "second asking", "first granted", "second granted", "first open", "second open",
			"first ended",
			"second ended", "first failed", "second failed",
		}; !slices.Equal(heard, want) {
			t.Errorf("heard %q, want %q", heard, want)
		}
		if !slices.Equal(ids, []uint64{1, 1, 1, 1}) {
			t.Errorf("ids %d", ids)
		}
		if !ended.Sent.Equal(start) || !ended.Answered.Equal(start.Add(3*time.Second)) {
			t.Errorf("sent %v, answered %v after the start", ended.Sent.Sub(start), ended.Answered.Sub(start))
		}
		if !errors.Is(ended.Err, context.DeadlineExceeded) {
			t.Errorf("ended with %v, want the error of the function", ended.Err)
		}
		time.Sleep(2 * time.Minute)
		_, _ = outbound.Do(t.Context(), c, outbound.Call{Model: "other", NoWait: true}, made)
		if ended.Outcome != outbound.NotGranted || ended.ID != 2 || !ended.Granted.IsZero() || !ended.Sent.IsZero() {
			t.Errorf("not granted: %+v", ended)
		}
	})
}

// TestTransportSaysWhenItSent: the instants of a call through a Transport are those of its first
// byte and of the answer's header, and a call that never leaves has none.
func TestTransportSaysWhenItSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broken := false
		b := newBench(t, "openai chat", nil, outbound.Options{}, func(sim http.RoundTripper) http.RoundTripper {
			return roundTrip(func(r *http.Request) (*http.Response, error) {
				time.Sleep(time.Second)
				if broken {
					return nil, io.ErrUnexpectedEOF
				}
				resp, err := sim.RoundTrip(r)
				time.Sleep(time.Second)
				return resp, err
			})
		})
		for _, broken = range []bool{false, true} {
			start := time.Now()
			_, _, _ = b.call(t.Context(), true, "hello")
			e := b.last()
			if !e.Granted.Equal(start) {
				t.Errorf("granted %v after it began", e.Granted.Sub(start))
			}
			if broken && (!e.Sent.IsZero() || !e.Answered.IsZero()) {
				t.Errorf("never sent: sent %v, answered %v", e.Sent, e.Answered)
			}
			if !broken && (!e.Sent.Equal(start.Add(time.Second)) || e.Answered.Before(start.Add(2*time.Second))) {
				t.Errorf("sent %v, answered %v after it began", e.Sent.Sub(start), e.Answered.Sub(start))
			}
		}
	})
}

// TestRefusalsCloseTheCircuit: an upstream that refuses a trial is up, whatever the refusal means,
// and its observers are told that the circuit is closed.
func TestRefusalsCloseTheCircuit(t *testing.T) {
	t.Parallel()
	for what, amount := range map[string]string{"the quota is used up": "250", "the model is not offered": "0"} {
		synctest.Test(t, func(t *testing.T) {
			status, body := http.StatusInternalServerError, ""
			b := newBench(t, "gemini", nil, outbound.Options{Breaker: outbound.Breaker{
				Failures: 1, Open: time.Minute,
				Successes: 1,
			}}, func(http.RoundTripper) http.RoundTripper {
				return roundTrip(func(r *http.Request) (*http.Response, error) {
					_, err := io.Copy(io.Discard, r.Body)
					return &http.Response{
						StatusCode: status, Header: http.Header{},
						Body: io.NopCloser(strings.NewReader(body)), Request: r,
					}, err
				})
			})
			_, _, _ = b.call(t.Context(), false, "hello")
			status, body = http.StatusTooManyRequests,
				`{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.QuotaFailure",`+
					`"violations":[{"quotaId":"GenerateRequestsPerDayPerProjectPerModel-FreeTier","quotaValue":"`+amount+`"}]}]}}`
			time.Sleep(time.Minute)
			if _, _, err := b.call(t.Context(), false, "hello"); err != nil {
				t.Fatal(err)
			}
			if want := []string{outbound.CircuitOpen, outbound.CircuitClosed}; !slices.Equal(b.circuits, want) {
				t.Errorf("%s: the circuit became %q, want %q", what, b.circuits, want)
			}
		})
	}
}
