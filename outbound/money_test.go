package outbound_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/llm/simulator"
	"github.com/drawgate/drawgate/outbound"
)

// money is a policy of a dollar a day.
func money() drawgate.Policy {
	return drawgate.Policy{Name: "gpt-4o", Limits: []drawgate.Limit{drawgate.CalendarLimit("budget", 1_000_000,
		drawgate.Day, "UTC").Of("usd_micros")}}
}

// spentOf returns what is used of a budget.
func spentOf(t *testing.T, l *drawgate.Limiter) int64 {
	t.Helper()
	st, err := l.Status(t.Context(), "project", drawgate.Units("usd_micros", 0))
	if err != nil {
		t.Fatal(err)
	}
	return st.States[0].Used
}

// TestBudgetInMoney: the most that a call can cost is held, and what it was stays.
//
// req: B12 D12
func TestBudgetInMoney(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sim, err := simulator.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		l := limiter(t, money())
		var events []outbound.Event
		client := outbound.New(outbound.PerModel("project", l), &outbound.Options{
			Observer: &outbound.Observer{Called: func(e *outbound.Event) { events = append(events, *e) }},
		})
		prices := &llm.Prices{Currency: "USD", Models: map[string]llm.Price{"gpt-4o": {
			Input:  2_000_000,
			Output: 10_000_000,
		}}}
		rt := outbound.NewTransport(client, llm.OpenAI(), &outbound.TransportOptions{
			Base:   sim.Transport(),
			Prices: prices,
		})
		call := func(ctx context.Context, model, words string) error {
			body := `{"model":"` + model +
				`","max_tokens":1000,"messages":[{"role":"user","content":"Hello!\nsimulate: ` + words + `"}]}`
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://upstream.test/v1/chat/completions",
				strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			resp, err := rt.RoundTrip(req)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			_, err = io.Copy(io.Discard, resp.Body)
			return err
		}
		if err := call(t.Context(), "gpt-4o", "output=100"); err != nil {
			t.Fatal(err)
		}
		e := events[0]
		spent := 2*e.Usage.Input + 10*100
		if e.Usage.Output != 100 || e.Usage.Input == 0 {
			t.Fatalf("usage %+v, want 100 tokens of output", e.Usage)
		}
		if got := spentOf(t, l); got != spent {
			t.Errorf("a call of 100 tokens: %d spent, want %d", got, spent)
		}
		if err := call(t.Context(), "gpt-4o", "fault=500"); err != nil {
			t.Fatal(err)
		}
		if got := spentOf(t, l); got != spent {
			t.Errorf("a call that failed: %d spent, want %d as before", got, spent)
		}
		if err := call(t.Context(), "gpt-4.1", ""); !errors.Is(err, outbound.ErrNoPrice) {
			t.Errorf("a model without a price: %v, want ErrNoPrice", err)
		}
		if n := len(sim.Calls()); n != 2 {
			t.Errorf("%d calls reached the provider, want 2", n)
		}
		calls := 0
		for ; calls < 200; calls++ { // each costs a little more than a cent
			ctx, stop := context.WithTimeout(t.Context(), time.Second)
			err := call(ctx, "gpt-4o", "output=1000")
			stop()
			if err != nil {
				if !errors.Is(err, drawgate.ErrDeadline) {
					t.Error(err)
				}
				break
			}
		}
		if got := spentOf(t, l); calls < 80 || got > 1_000_000 || got < 980_000 {
			t.Errorf("%d calls for %d millionths, want all of the budget of a million, and no more", calls, got)
		}
	})
}

// TestCallsThatDoNotWait: such a call is refused at once, and the refusal says when it would fit.
//
// req: C8
func TestCallsThatDoNotWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, drawgate.PerMinute("model", 1))
		c := outbound.New(outbound.PerModel("project", l), nil)
		call := outbound.Call{Model: "model", NoWait: true}
		if _, err := outbound.Do(t.Context(), c, call, answer(nil, nil)); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		_, err := outbound.Do(t.Context(), c, call, answer(nil, nil))
		limited, ok := errors.AsType[*drawgate.LimitedError](err)
		if !ok || limited.RetryAfter != time.Minute || !time.Now().Equal(began) {
			t.Errorf("got %v after %v, want a refusal at once, for a minute", err, time.Since(began))
		}
	})
}

// errorAnswer answers every call with an error.
type errorAnswer struct {
	status int
	body   string
}

// RoundTrip implements http.RoundTripper.
func (a errorAnswer) RoundTrip(r *http.Request) (*http.Response, error) {
	_, err := io.Copy(io.Discard, r.Body)
	return &http.Response{
		StatusCode: a.status, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
		Body: io.NopCloser(strings.NewReader(a.body)),
	}, err
}

// TestErrorsThatAreBilled: what Azure bills although it answers with an error stays counted.
//
// req: B12 C1
func TestErrorsThatAreBilled(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		errorAnswer
		stands bool
	}{
		{
			errorAnswer{
				http.StatusBadRequest,
				`{"error":{"message":"The response was filtered","param":"prompt","code":"content_filter","status":400}}`,
			},
			true,
		},
		{
			errorAnswer{http.StatusRequestTimeout, `{"error":{"code":"Timeout","message":"The operation was timeout."}}`},
			true,
		},
		{errorAnswer{http.StatusBadRequest, `{"error":{"message":"Invalid value","code":"invalid_value"}}`}, false},
		{
			errorAnswer{http.StatusTooManyRequests, `{"error":{"code":"429","message":"Try again in 3 seconds."}}`},
			false,
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := limiter(t, money())
			prices := &llm.Prices{Currency: "USD", Models: map[string]llm.Price{"gpt-4o": {
				Input:  2_000_000,
				Output: 10_000_000,
			}}}
			rt := outbound.NewTransport(outbound.New(outbound.PerModel("project", l), nil), llm.OpenAI(),
				&outbound.TransportOptions{Base: c.errorAnswer, Prices: prices})
			const body = `{"model":"gpt-4o","max_tokens":1000,"messages":[{"role":"user","content":"Hello!"}]}`
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
				"http://upstream.test/v1/chat/completions", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			resp, err := rt.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if spent := spentOf(t, l); spent >= 10*1000 != c.stands {
				t.Errorf("after %d %s: %d are spent", c.status, c.body, spent)
			}
		})
	}
}
