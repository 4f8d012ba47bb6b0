package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/client"
	"github.com/drawgate/drawgate/server"
	"github.com/drawgate/drawgate/store/memstore"
	"github.com/drawgate/drawgate/store/sqlitestore"
)

func TestPlainTakeIsSentOnce(t *testing.T) {
	t.Parallel()
	at := listen(t, newServer(t, memstore.New(nil), nil))
	proxy := cutting(t, at)
	c := dial(t, proxy.address, nil)
	proxy.lose.Store(1)
	_, err := c.Take(t.Context(), take("k", 100))
	e, ok := errors.AsType[*client.Error](err)
	if !ok || !e.Maybe || proxy.passed.Load() != 1 {
		t.Fatalf("%d requests, %v", proxy.passed.Load(), err)
	}
	if got := used(t, dial(t, at, nil), "k"); got["tpm"] != 100 {
		t.Errorf("used %v: it had arrived", got)
	}
	if _, err := c.TakeBatch(t.Context(), []api.Take{take("k", 1)}); err != nil {
		t.Error(err)
	}
	proxy.lose.Store(1)
	if _, err := c.TakeBatch(t.Context(), []api.Take{
		{Bucket: take("k", 1).Bucket, HoldMS: 1000, ID: "a"},
		take("k", 1),
	}); err == nil {
		t.Error("a batch with a plain take was sent again")
	}
}

// TestAReplayedHoldEndsAsBefore: a process that asks again with the same id and grant is told the
// end of the hold as it is, not a whole hold from now.
func TestAReplayedHoldEndsAsBefore(t *testing.T) {
	t.Parallel()
	c := dial(t, listen(t, newServer(t, memstore.New(nil), nil)), nil)
	ask := api.Take{Bucket: take("k", 1).Bucket, HoldMS: 60_000, ID: "a", Grant: "00000000000000ab"}
	if _, _, err := c.Reserve(t.Context(), ask); err != nil {
		t.Fatal(err)
	}
	res, a, err := c.Reserve(t.Context(), ask)
	if err != nil || !a.Replayed || a.HoldEnd == nil {
		t.Fatalf("%+v, %v", a, err)
	}
	if res.Deadline().After(*a.HoldEnd) {
		t.Errorf("it may be used until %v, but its hold ends at %v", res.Deadline(), a.HoldEnd)
	}
}

// TestEndOfAHoldWithOtherClocks: a holder's end does not depend on the server's clock. It is
// counted from when the request was sent.
func TestEndOfAHoldWithOtherClocks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		ask      api.Take
		replayed bool
		holdMS   int64 // as the server says
	}{
		{"at once", api.Take{HoldMS: 60_000}, false, 60_000},
		{"after a wait", api.Take{HoldMS: 60_000, WaitMS: 30_000}, false, 80_000},
		{"again", api.Take{HoldMS: 60_000, ID: "a", Grant: "00000000000000ab"}, true, 5_000},
	} {
		for _, ahead := range []time.Duration{-time.Hour, 0, time.Hour} { // the server's clock
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				end := time.Now().Add(ahead + time.Duration(c.holdMS)*time.Millisecond)
				w.Header().Set("Content-Type", "application/json")
				_ = json.NewEncoder(w).Encode(api.Answer{
					Allowed: true, Reservation: "token", HoldEnd: &end, HoldMS: c.holdMS, Replayed: c.replayed,
				})
			}))
			c.ask.Bucket = take("k", 1).Bucket
			before := time.Now()
			res, _, err := dial(t, s.URL, nil).Reserve(t.Context(), c.ask)
			if err != nil {
				t.Fatal(err)
			}
			hold := time.Duration(c.holdMS) * time.Millisecond
			if end := res.Deadline(); end.Before(before.Add(hold-hold/100)) || end.After(time.Now().Add(hold)) {
				t.Errorf("%s, a clock that is %v ahead: it ends after %v, want %v", c.name, ahead, end.Sub(before),
					hold)
			}
			s.Close()
		}
	}
}

// What has an id costs nothing more when it is sent again.
func TestLostRepliesCostNothing(t *testing.T) {
	t.Parallel()
	at := listen(t, newServer(t, memstore.New(nil), nil))
	proxy := cutting(t, at)
	c, direct := dial(t, proxy.address, nil), dial(t, at, nil)
	for _, end := range []struct {
		name string
		do   func(*client.Reservation) error
		want int64
	}{
		{"settled", func(r *client.Reservation) error { return r.Settle(t.Context(), api.Costs{"tokens": 30}) }, 30},
		{
			"with debt", func(r *client.Reservation) error { return r.Settle(t.Context(), api.Costs{"tokens": 300}) },
			300,
		},
		{"cancelled", func(r *client.Reservation) error { return r.Cancel(t.Context()) }, 0},
	} {
		proxy.lose.Store(2)
		res, a, err := c.Reserve(t.Context(), api.Take{Bucket: take(end.name, 100).Bucket, HoldMS: 60_000})
		if err != nil || res == nil || !a.Replayed || a.Grant == "" {
			t.Fatalf("%s: %v, %+v, %v", end.name, res, a, err)
		}
		if got := used(t, direct, end.name); got["tpm"] != 100 || got["rpm"] != 1 {
			t.Errorf("%s: held %v", end.name, got)
		}
		proxy.lose.Store(2)
		if err := res.Renew(t.Context(), time.Hour); err != nil {
			t.Errorf("%s: renew: %v", end.name, err)
		}
		proxy.lose.Store(2)
		if err := end.do(res); err != nil {
			t.Errorf("%s: %v", end.name, err)
		}
		if got := used(t, direct, end.name); got["tpm"] != end.want {
			t.Errorf("%s: used %v, want %d", end.name, got, end.want)
		}
	}
}

func TestAttemptsEnd(t *testing.T) {
	t.Parallel()
	proxy := cutting(t, listen(t, newServer(t, memstore.New(nil), nil)))
	c := dial(t, proxy.address, &client.Options{Attempts: 3})
	proxy.lose.Store(100)
	if _, err := c.Policies(t.Context()); err == nil || proxy.passed.Load() != 3 {
		t.Errorf("%d attempts, %v", proxy.passed.Load(), err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	proxy.passed.Store(0)
	// the first pause is 25 ms at least
	if _, err := dial(t, proxy.address, &client.Options{Attempts: 1000}).Policies(ctx); err == nil ||
		proxy.passed.Load() > 1 {
		t.Errorf("%d attempts in 20 ms, %v", proxy.passed.Load(), err)
	}
}

// A server that takes the request and never answers.
func TestTimeoutIsOfOneAttempt(t *testing.T) {
	t.Parallel()
	hang := listen(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then it is seen that the client goes away
		<-r.Context().Done()
	}))
	c := dial(t, hang, &client.Options{Timeout: 20 * time.Millisecond, Attempts: 2})
	if _, err := c.Policies(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	_, err := c.Take(t.Context(), take("secret-key", 1))
	if e, ok := errors.AsType[*client.Error](err); !ok || !e.Maybe || strings.Contains(err.Error(), "secret-key") {
		t.Errorf("got %v", err)
	}
}

// A server that was restarted on the same file knows what was held; whoever asks meanwhile asks
// again.
func TestServerIsRestarted(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "drawgate.db")
	begin := func(address string) (at string, stop func()) {
		store, err := sqlitestore.Open(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		s := newServer(t, store, &server.Options{})
		at, end := run(t, s, address)
		return at, func() {
			end()
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	at, stop := begin("")
	c := dial(t, "http://"+at, &client.Options{Attempts: 20})
	res, _, err := c.Reserve(t.Context(), api.Take{Bucket: take("k", 100).Bucket, HoldMS: 60_000})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Take(t.Context(), take("k", 50)); err != nil {
		t.Fatal(err)
	}
	c.Close()
	stop()
	taken, settled := make(chan error, 1), make(chan error, 1)
	// not sent while nobody listens, so it may be tried again
	go func() { _, err := c.Take(t.Context(), take("k", 7)); taken <- err }()
	go func() { settled <- res.Settle(t.Context(), api.Costs{"tokens": 30}) }()
	_, stop = begin(at)
	defer stop()
	for _, err := range []error{<-taken, <-settled} {
		if err != nil {
			t.Error(err)
		}
	}
	if got := used(t, c, "k"); got["tpm"] != 50+30+7 || got["rpm"] != 3 {
		t.Errorf("used %v, want 87 tokens and 3 requests", got)
	}
}

// A reservation whose caller gave it up is cancelled by what was sent, since nobody has its token;
// Close waits for that. Who gave its grant may still want it.
func TestGivenUpReservationsAreCancelled(t *testing.T) {
	t.Parallel()
	at := listen(t, newServer(t, memstore.New(nil), nil))
	proxy := cutting(t, at)
	direct := dial(t, at, nil)
	for name, give := range map[string]func(*client.Client) error{
		"reserve": func(c *client.Client) error {
			_, _, err := c.Reserve(t.Context(), api.Take{Bucket: take("reserve", 100).Bucket, HoldMS: 60_000})
			return err
		},
		"take": func(c *client.Client) error {
			_, err := c.Take(t.Context(), api.Take{Bucket: take("take", 100).Bucket, HoldMS: 60_000, ID: "a"})
			return err
		},
		"batch": func(c *client.Client) error {
			_, err := c.TakeBatch(t.Context(), []api.Take{
				{Bucket: take("batch", 100).Bucket, HoldMS: 60_000, ID: "b"},
				{Bucket: take("batch", 100).Bucket, HoldMS: 60_000, ID: "c"},
			})
			return err
		},
	} {
		c := dial(t, proxy.address, &client.Options{Attempts: 1})
		proxy.lose.Store(1)
		if err := give(c); err == nil {
			t.Errorf("%s: the answer was not lost", name)
		}
		c.Close()
		if got := used(t, direct, name); got["tpm"] != 0 {
			t.Errorf("%s: %v are used", name, got)
		}
	}
	c := dial(t, proxy.address, &client.Options{Attempts: 1})
	proxy.lose.Store(1)
	mine := api.Take{Bucket: take("mine", 100).Bucket, HoldMS: 60_000, ID: "d", Grant: "00000000000000a1"}
	if _, err := c.Take(t.Context(), mine); err == nil {
		t.Error("the answer was not lost")
	}
	c.Close()
	if a, err := c.Take(t.Context(), mine); err != nil || !a.Replayed {
		t.Errorf("sent again with its grant: %+v, %v", a, err)
	}
}
