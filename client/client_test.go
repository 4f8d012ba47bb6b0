package client_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/client"
	"github.com/drawgate/drawgate/server"
	"github.com/drawgate/drawgate/store/memstore"
)

func TestRefusalIsAnAnswer(t *testing.T) {
	t.Parallel()
	c := plain(t)
	if a, err := c.Take(t.Context(), take("k", 600)); err != nil || !a.Allowed {
		t.Fatalf("got %+v, %v", a, err)
	}
	a, err := c.Take(t.Context(), take("k", 600))
	if err != nil || a.Allowed || a.Reason != api.ReasonLimited || a.RefusedBy == nil || a.RefusedBy.Limit != "tpm" ||
		a.RetryAfterMS.Duration() < 59*time.Minute {
		t.Errorf("got %+v, %v", a, err)
	}
	if res, a, err := c.Reserve(t.Context(), api.Take{Bucket: take("k", 600).Bucket, HoldMS: 1000}); err != nil ||
		res != nil || a.Allowed {
		t.Errorf("reserve: %v, %+v, %v", res, a, err)
	}
}

func TestBatch(t *testing.T) {
	t.Parallel()
	c := plain(t)
	answers, err := c.TakeBatch(t.Context(), []api.Take{
		take("k", 600), take("k", 600),
		{Bucket: api.Bucket{Policy: "nope"}},
	})
	if none, err := c.TakeBatch(t.Context(), nil); none != nil || err != nil || used(t, c, api.DefaultKey)["rpm"] != 0 {
		t.Errorf("an empty batch: %v, %v", none, err)
	}
	if err != nil || len(answers) != 3 || !answers[0].Allowed || answers[1].Allowed || answers[2].Error == nil ||
		answers[2].Error.Code != api.CodeUnknownPolicy {
		t.Errorf("got %+v, %v", answers, err)
	}
}

func TestReservation(t *testing.T) {
	t.Parallel()
	c := plain(t)
	hold := func() *client.Reservation {
		res, _, err := c.Reserve(t.Context(), api.Take{Bucket: take("k", 300).Bucket, HoldMS: 60_000})
		if err != nil || res == nil {
			t.Fatalf("got %v, %v", res, err)
		}
		return res
	}
	settled, cancelled := hold(), hold()
	if left := time.Until(settled.Deadline()); left < 50*time.Second || left > time.Minute {
		t.Errorf("%v are left of a minute", left)
	}
	token := settled.Token()
	if err := settled.Renew(t.Context(), time.Hour); err != nil || settled.Token() == token ||
		time.Until(settled.Deadline()) < 59*time.Minute {
		t.Errorf("renewed until %v, %v", settled.Deadline(), err)
	}
	if err := c.Resume(settled.Token()).Settle(t.Context(), api.Costs{"tokens": 100}); err != nil {
		t.Error(err)
	}
	if err := cancelled.Cancel(t.Context()); err != nil {
		t.Error(err)
	}
	for name, err := range map[string]error{
		"settle": settled.Settle(t.Context(), nil), "cancel": cancelled.Cancel(t.Context()),
		"renew": cancelled.Renew(t.Context(), time.Minute),
	} {
		if err != client.ErrGone { //nolint:errorlint // exactly that
			t.Errorf("%s once more: %v, want gone", name, err)
		}
	}
	if got := used(t, c, "k"); got["tpm"] != 100 || got["rpm"] != 1 {
		t.Errorf("used %v, want 100 tokens and 1 request", got)
	}
}

// TestReserveNeedsAHold: without one the units would be used at once, and Settle would settle
// nothing.
func TestReserveNeedsAHold(t *testing.T) {
	t.Parallel()
	c := plain(t)
	for _, ms := range []int64{0, -1} {
		res, _, err := c.Reserve(t.Context(), api.Take{Bucket: take("k", 600).Bucket, HoldMS: ms})
		if res != nil || err == nil || !strings.Contains(err.Error(), "HoldMS") {
			t.Errorf("HoldMS %d: %v, %v", ms, res, err)
		}
	}
	if n := used(t, c, "k")["tpm"]; n != 0 {
		t.Errorf("%d are used", n)
	}
}

func TestNothingIsHeldWhereNothingCounts(t *testing.T) {
	t.Parallel()
	c := plain(t)
	res, a, err := c.Reserve(t.Context(), api.Take{Attributes: &api.Attributes{Path: "/"}, HoldMS: 1000})
	if err != nil || res == nil || !a.Unmatched {
		t.Fatalf("got %v, %+v, %v", res, a, err)
	}
	for _, err := range []error{
		res.Renew(t.Context(), time.Second), res.Settle(t.Context(), nil),
		res.Cancel(t.Context()),
	} {
		if err != nil {
			t.Error(err)
		}
	}
}

func TestExplainAndStatus(t *testing.T) {
	t.Parallel()
	c := plain(t)
	at := &api.Attributes{Path: "/upload/x", User: "u"}
	if a, err := c.Take(t.Context(), api.Take{Attributes: at}); err != nil || !a.Allowed || len(a.Applied) != 1 ||
		a.Applied[0].Rule != "uploads" {
		t.Fatalf("got %+v, %v", a, err)
	}
	e, err := c.Explain(t.Context(), api.ExplainRequest{Attributes: at})
	if err != nil || len(e.Applied) != 1 || e.Applied[0].Key != "u" || e.Applied[0].Status.Limits[0].Used != 1 {
		t.Errorf("got %+v, %v", e, err)
	}
	if h, err := c.Ready(t.Context()); err != nil || h.Status != api.StatusOK {
		t.Errorf("got %+v, %v", h, err)
	}
}

func TestAdministration(t *testing.T) {
	t.Parallel()
	reloaded := 0
	opts := &server.Options{Reload: func(context.Context) ([]string, error) {
		if reloaded++; reloaded > 1 {
			return nil, errors.New("line 3: amount must be at least 1")
		}
		return []string{"store"}, nil
	}, Upstreams: func() []api.Upstream {
		return []api.Upstream{{Name: "a"}, {
			Name: "b c", Owner: "a", Calls: &api.Calls{Circuit: api.CircuitOpen},
			Quotas: []api.Quota{{Policy: "llm", Models: []string{"*"}}},
		}}
	}}
	c := dial(t, listen(t, newServer(t, memstore.New(nil), opts).AdminHandler()), nil)
	ps, err := c.Policies(t.Context())
	if err != nil || len(ps) != 2 || ps[0].Name != "llm" ||
		ps[0].Limits[1].Description != "1000 tokens per rolling 1h" {
		t.Errorf("got %+v, %v", ps, err)
	}
	if p, err := c.Disable(t.Context(), "llm", time.Hour); err != nil || p.DisabledUntil == nil {
		t.Errorf("got %+v, %v", p, err)
	}
	if a, err := c.Take(t.Context(), take("off", 1000)); err != nil || !a.Allowed || len(a.Limits) != 0 {
		t.Errorf("got %+v, %v", a, err)
	}
	if p, err := c.Enable(t.Context(), "llm"); err != nil || p.DisabledUntil != nil {
		t.Errorf("got %+v, %v", p, err)
	}
	want := []string{"a", "b", "c/d e", "é"}
	for _, k := range want {
		if _, err := c.Take(t.Context(), take(k, 1)); err != nil {
			t.Fatal(err)
		}
	}
	var keys []string
	for k, err := range c.Keys(t.Context(), client.BucketsQuery{Policy: "llm", Limit: 3}) {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, k)
	}
	if diff := cmp.Diff(want, keys); diff != "" {
		t.Error(diff)
	}
	u, err := c.Usage(t.Context(), client.UsageQuery{Policy: "llm", Match: "D E", Limit: 2})
	if err != nil || len(u.Buckets) != 1 || u.Buckets[0].Key != "c/d e" || u.Buckets[0].Limits[1].Used != 1 || u.More {
		t.Errorf("got %+v, %v", u, err)
	}
	if n, err := c.Reset(t.Context(), api.ResetRequest{Policy: "llm", Keys: []string{"a", "b"}}); err != nil ||
		n != 2 || used(t, c, "a")["tpm"] != 0 {
		t.Errorf("got %d, %v", n, err)
	}
	month, err := c.Pause(t.Context(), api.PauseRequest{
		Policy: "llm", Key: "a", ForMS: 31 * 86_400_000,
		Reason: "a typo",
	})
	if err != nil || time.Until(month.Until) < 30*24*time.Hour || month.Kept {
		t.Errorf("paused: %+v, %v", month, err)
	}
	q := api.PauseRequest{Policy: "llm", Key: "a", ForMS: 600_000, Reason: "an incident"}
	if p, err := c.Pause(t.Context(), q); err != nil || !p.Kept || !p.Until.Equal(month.Until) ||
		!strings.Contains(p.Message, "use unpause") {
		t.Errorf("a shorter pause: %+v, %v", p, err)
	}
	un := api.UnpauseRequest{Policy: "llm", Key: "a", Until: new(month.Until.Add(time.Microsecond)), Reason: "a typo"}
	if u, err := c.Unpause(t.Context(), un); err != nil || u.Until == nil || !u.Until.Equal(month.Until) {
		t.Errorf("another pause: %+v, %v", u, err)
	}
	un.Until = &month.Until
	if u, err := c.Unpause(t.Context(), un); err != nil || u.Until != nil {
		t.Errorf("ended: %+v, %v", u, err)
	}
	if p, err := c.Pause(t.Context(), q); err != nil || p.Kept || time.Until(p.Until) < 9*time.Minute ||
		time.Until(p.Until) > time.Hour {
		t.Errorf("paused: %+v, %v", p, err)
	}
	if a, err := c.Take(t.Context(), take("a", 1)); err != nil || a.Allowed || a.Reason != api.ReasonPaused {
		t.Errorf("a paused bucket: %+v, %v", a, err)
	}
	if us, err := c.Upstreams(t.Context(), ""); err != nil || len(us) != 2 {
		t.Errorf("got %+v, %v", us, err)
	}
	us, err := c.Upstreams(t.Context(), "b c")
	if err != nil || len(us) != 1 || us[0].Calls.Circuit != api.CircuitOpen ||
		us[0].Quotas[0].Status.Paused.Reason != "an incident" {
		t.Errorf("got %+v, %v", us, err)
	}
	if got, err := c.Reload(t.Context()); err != nil || !slices.Equal(got.Restart, []string{"store"}) {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := c.Reload(t.Context()); client.Code(err) != api.CodeNotReloaded ||
		!strings.Contains(err.Error(), "line 3") {
		t.Errorf("got %v", err)
	}
}

// req: C7
func TestErrorsAreTyped(t *testing.T) {
	t.Parallel()
	const secret = "a long enough secret"
	opts := &server.Options{Tokens: []server.Token{{Secret: secret, Roles: []server.Role{server.RoleTake}}}}
	at := listen(t, newServer(t, memstore.New(nil), opts))
	c := dial(t, at, &client.Options{Token: secret})
	ctx := t.Context()
	calls := map[api.Code]func() error{
		api.CodeUnauthorized: func() error { _, err := dial(t, at, nil).Take(ctx, take("k", 1)); return err },
		api.CodeForbidden:    func() error { _, err := c.Policies(ctx); return err },
		api.CodeNotFound:     func() error { _, err := c.Reload(ctx); return err },
		api.CodeNeverFits:    func() error { _, err := c.Take(ctx, take("k", 1001)); return err },
		api.CodeNeedsHold: func() error {
			_, err := c.Take(ctx,
				api.Take{Bucket: api.Bucket{Policy: "slots"}})
			return err
		},
		api.CodeBadToken: func() error { return c.Resume("nonsense").Settle(ctx, nil) },
		api.CodeInvalid: func() error {
			_, err := c.Take(ctx,
				api.Take{Bucket: take("k", 1).Bucket, Priority: 10})
			return err
		},
	}
	for want, call := range calls {
		if err := call(); client.Code(err) != want || strings.Contains(err.Error(), secret) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{
		"", "127.0.0.1:7878", "ftp://x", "http://", "http://user:secret@x",
		"http://x?token=secret", "http://u:secret@ x",
	} {
		if _, err := client.New(bad, nil); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	s := newServer(t, memstore.New(nil), nil)
	at := listen(t, http.StripPrefix("/limits", s))
	if a, err := dial(t, at+"/limits/", nil).Take(t.Context(), take("k", 1)); err != nil || !a.Allowed {
		t.Errorf("behind a prefix: %+v, %v", a, err)
	}
}

// Some other server must not be taken for one that allows.
func TestOtherServersAreNotUnderstood(t *testing.T) {
	t.Parallel()
	var seen []string
	at := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Method+" "+r.URL.Path)
		switch r.URL.Query().Get("after") {
		case "redirect":
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		case "problem":
			w.Header().Set("Content-Type", api.ProblemType)
			_, _ = w.Write([]byte(`{"allowed":true}`))
		case "json":
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"keys":`))
		default:
			_, _ = w.Write([]byte(`<html>{"allowed":true}`))
		}
	}))
	c := dial(t, at, &client.Options{Attempts: 1})
	for _, kind := range []string{"redirect", "problem", "json", "html-secret"} {
		_, err := c.Buckets(t.Context(), client.BucketsQuery{After: kind})
		if e, ok := errors.AsType[*client.Error](err); !ok || !e.Maybe || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if slices.ContainsFunc(seen, func(s string) bool { return strings.Contains(s, "elsewhere") }) {
		t.Errorf("a redirect was followed: %v", seen)
	}
}
