package client_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/client"
	"github.com/drawgate/drawgate/store/memstore"
)

// A take that waits reports what it waits for, and then answered.
func TestProgress(t *testing.T) {
	t.Parallel()
	c := plain(t)
	one := api.Take{Bucket: api.Bucket{Policy: "slots"}, HoldMS: 600_000, WaitMS: 60_000}
	first, _, err := c.Reserve(client.WithProgress(t.Context(),
		func(p api.Progress) { t.Errorf("it need not wait: %+v", p) }), one)
	if err != nil || first == nil {
		t.Fatal(err)
	}
	reports := 0
	ctx := client.WithProgress(t.Context(), func(p api.Progress) {
		if reports++; reports > 1 {
			return
		}
		if p.Place != 1 || p.Reason != api.ReasonHeld || p.Policy != "slots" {
			t.Errorf("got %+v", p)
		}
		if err := first.Settle(t.Context(), nil); err != nil {
			t.Error(err)
		}
	})
	second, a, err := c.Reserve(ctx, one)
	if err != nil || second == nil || reports == 0 {
		t.Fatalf("%d reports: %+v, %v", reports, a, err)
	}
	one.WaitMS = 0
	if a, err := c.Take(ctx, one); err != nil || a.Allowed {
		t.Errorf("%+v, %v", a, err)
	}
}

// A problem that ends the wait is an error, as without lines.
func TestProgressThenProblem(t *testing.T) {
	t.Parallel()
	s := newServer(t, memstore.New(nil), nil)
	c := dial(t, listen(t, s.AdminHandler()), &client.Options{Attempts: 1})
	one := api.Take{Bucket: api.Bucket{Policy: "slots"}, HoldMS: 600_000, WaitMS: 60_000}
	if _, _, err := c.Reserve(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	ctx := client.WithProgress(t.Context(), func(api.Progress) { _ = s.Close() })
	if _, _, err := c.Reserve(ctx, one); client.Code(err) != api.CodeClosing {
		t.Errorf("got %v", err)
	}
}

// A server that knows nothing of progress answers as ever. Lines that break off are no answer.
func TestProgressOfOtherServers(t *testing.T) {
	t.Parallel()
	const line, answer = `{"progress":{"place":1}}` + "\n", `{"allowed":true}` + "\n"
	for _, c := range []struct{ media, body, want string }{
		{"application/json", answer, ""},
		{api.ProgressType, answer, ""},
		{api.ProgressType, line + line + answer, ""},
		{api.ProgressType, "", "EOF"},
		{api.ProgressType, line, "EOF"},
		{api.ProgressType, line + strings.TrimSpace(answer), "EOF"},
		{api.ProgressType, "nonsense\n", "invalid character"},
	} {
		address := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if got := r.Header.Get("Accept"); got != "application/x-ndjson, application/json" {
				t.Errorf("Accept: %s", got)
			}
			w.Header().Set("Content-Type", c.media)
			_, _ = w.Write([]byte(c.body))
		}))
		reports := 0
		a, err := dial(t, address, nil).Take(client.WithProgress(t.Context(), func(api.Progress) { reports++ }),
			api.Take{WaitMS: 1})
		if reports != strings.Count(c.body, line) {
			t.Errorf("%q: %d reports", c.body, reports)
		}
		if c.want == "" && (err != nil || !a.Allowed) || c.want != "" &&
			(err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%q: %+v, %v, want %q", c.body, a, err, c.want)
		}
	}
}

func TestWaiting(t *testing.T) {
	t.Parallel()
	c := plain(t)
	if a, err := c.Waiting(t.Context(), "slots", "acme"); err != nil || len(a.Lines) != 0 || a.At.IsZero() {
		t.Errorf("%+v, %v", a, err)
	}
	if _, err := c.Waiting(t.Context(), "nope", ""); client.Code(err) != api.CodeUnknownPolicy {
		t.Errorf("got %v", err)
	}
}
