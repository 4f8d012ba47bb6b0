package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/server"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/sqlitestore"
)

func sqlite(t testing.TB) *sqlitestore.Store {
	t.Helper()
	s, err := sqlitestore.Open(filepath.Join(t.TempDir(), "x.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// events asks for a history, and returns its lines.
func (f fixture) events(query, token string) (out []api.Event, err error) {
	f.t.Helper()
	req, err := http.NewRequestWithContext(f.t.Context(), http.MethodGet, f.url+"/v1/history?"+query, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != api.HistoryType {
		text, _ := io.ReadAll(res.Body)
		f.t.Fatalf("%s: %d %s", query, res.StatusCode, text)
	}
	for d := json.NewDecoder(res.Body); ; {
		var e api.Event
		if err := d.Decode(&e); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return out, err
		}
		out = append(out, e)
	}
}

// req: D5, U14, U15
func TestHistory(t *testing.T) {
	t.Parallel()
	list := []server.Token{
		{Secret: "secret-of-the-admin", Roles: []server.Role{server.RoleAdmin}},
		{Secret: "secret-of-a-tenant", Roles: []server.Role{server.RoleAdmin}, Tenant: "acme"},
	}
	store := sqlite(t)
	open := setup{store: store}.start(t)
	f := setup{store: store, options: &server.Options{Tokens: list}}.start(t)
	open.take(`{"policy":"llm","key":"a","costs":{"requests":2,"tokens":60},"labels":{"task":"nightly","id":"17"}}`)
	open.take(`{"policy":"llm","key":"b","labels":{"task":"hourly"}}`)
	open.take(`{"policy":"llm","key":"a","tenant":"acme","labels":{"task":"nightly"}}`)
	r := open.take(`{"policy":"tiers","key":"<&é>","hold_ms":60000,"id":"job"}`)
	open.settle(`{"reservation":"` + r.Reservation + `","cancel":true}`)
	var done api.AdjustAnswer
	if got := open.do("POST", "/v1/adjust",
		`{"policy":"llm","key":"b","limit":"tpm","used":500,"reason":"the console says so"}`, &done); got != 200 ||
		done != (api.AdjustAnswer{Policy: "llm", Limit: "tpm", Was: 0, Used: 500}) {
		t.Errorf("adjusted: %d, %+v", got, done)
	}
	if used := open.used("llm", "b"); used["tpm"] != 500 || used["rpm"] != 1 {
		t.Errorf("used %v", used)
	}
	text := func(e *api.Event) string {
		return fmt.Sprint(e.Op, " ", e.Policy, " ", e.Tenant, "/", e.Key, " ", e.ID, e.Units, e.Labels)
	}
	all := []string{
		"take llm /a map[requests:2 tokens:60] map[id:17 task:nightly]", "take llm /b map[requests:1] map[task:hourly]",
		"take llm acme/a map[requests:1] map[task:nightly]",
		"take tiers /<&é> jobmap[requests:1] map[]", "cancel tiers /<&é> jobmap[] map[]",
		"charge llm /b map[tokens:500] map[limit:tpm reason:the console says so]",
	}
	for query, want := range map[string][]string{
		"": all, "last=2": all[4:], "last=10000": all, "op=cancel": all[4:5], "policy=tiers": all[3:5],
		"key=" + url.QueryEscape("<&é>"): all[3:5],
		"label=task%3Dnightly":           {all[0], all[2]}, "label=task%3Dnightly&label=id%3D17": all[:1],
		"tenant=acme": all[2:3], "tenant=": {all[0], all[1], all[3], all[4], all[5]},
		"policy=gone": nil, "label=task%3Dnightly&last=1": all[2:3],
		"until=2026-01-01T00:00:00Z&since=2025-01-01T00:00:00Z":                    nil,
		"since=" + url.QueryEscape(time.Now().Add(time.Hour).Format(time.RFC3339)): nil,
	} {
		got, err := f.events(query, "secret-of-the-admin")
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for i := range got {
			lines = append(lines, text(&got[i]))
			if since := time.Since(got[i].At); since < 0 || since > time.Hour || got[i].At.Location() != time.UTC {
				t.Errorf("at %v", got[i].At)
			}
		}
		if !slices.Equal(lines, want) {
			t.Errorf("%q: %q, want %q", query, lines, want)
		}
	}
	for _, query := range []string{"", "tenant=acme"} {
		if own, err := f.events(query, "secret-of-a-tenant"); err != nil || len(own) != 1 || own[0].Tenant != "acme" {
			t.Errorf("a token that is bound to a tenant sees %+v, %v", own, err)
		}
	}
	if w := ask(f.srv.AdminHandler(), "GET", "/v1/history?tenant=other", "",
		bearer("secret-of-a-tenant")); w.Code != 403 {
		t.Errorf("another tenant: %d", w.Code)
	}
	var p api.Problem
	for query, want := range map[string]string{
		"since=yesterday": "since is not an instant", "op=grant": "is not one of take", "label=task": "not NAME=VALUE",
		"last=0": "1 to 10000", "last=x": "1 to 10000", "before=x": "is not one of since",
		"since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z": "nothing lies between",
	} {
		if got := open.do("GET", "/v1/history?"+query, "", &p); got != 422 || !strings.Contains(p.Detail, want) {
			t.Errorf("%s: %d %+v", query, got, p)
		}
	}
	for body, want := range map[string]string{
		`{"policy":"llm","limit":"rpm","reason":"r"}`: "used is missing",
		`{"policy":"llm","limit":"rpm","used":1}`:     "needs a reason",
		`{"policy":"llm","used":1,"reason":"r"}`:      "name one of rpm, tpm",
		`{"policy":"llm","limit":"rpm","used":1,"reason":"r","key":"` + strings.Repeat("k", drawgate.MaxKey+1) +
			`"}`: "key has 65537 bytes, more than 65536",
		`{"policy":"slots","used":1,"reason":"r"}`:                "slots",
		`{"policy":"llm","limit":"rpm","used":1,"reason":"a\nb"}`: "control characters",
		`{"policy":"llm","limit":"rpm","used":-1,"reason":"r"}`:   "between 0 and",
	} {
		if got := open.do("POST", "/v1/adjust", body, &p); got != 422 || !strings.Contains(p.Detail, want) {
			t.Errorf("%s: %d %+v", body, got, p)
		}
	}
}

// failing is a store whose history breaks off.
type failing struct {
	drawgate.Store
	journal store.Journal
	after   int
}

func (s failing) Read(ctx context.Context, want store.EventQuery, yield func(store.Event) bool) error {
	n := 0
	err := s.journal.Read(ctx, want, func(e store.Event) bool {
		n++
		return n <= s.after && yield(e)
	})
	return errors.Join(err, &drawgate.StoreError{Store: "sqlite", Op: "read", Err: errors.New("the disk is gone")})
}

// TestAHistoryThatBreaksOff is no answer, or one that is cut: nobody takes a part for the whole.
func TestAHistoryThatBreaksOff(t *testing.T) {
	t.Parallel()
	store := sqlite(t)
	for i, c := range []struct{ after, status int }{{0, 503}, {2, 503}, {900, 200}} {
		f := setup{
			store:  failing{store, store, c.after},
			config: engine.Config{Policies: enforced(policies()...)},
		}.start(t)
		for k := range c.after + 1 {
			f.take(fmt.Sprintf(`{"policy":"llm","key":"%s %d %d"}`, strings.Repeat("k", 200), i, k))
		}
		if c.status != 200 {
			var p api.Problem
			if got := f.do("GET", "/v1/history", "", &p); got != c.status || p.Code != api.CodeStoreUnavailable {
				t.Errorf("%d %+v", got, p)
			}
			continue
		}
		if got, err := f.events("", ""); err == nil {
			t.Errorf("%d events, and no error", len(got))
		} else if len(got) == 0 {
			t.Errorf("no event: %v", err)
		}
	}
}

// TestHistoryBehindAGuard is the same history.
func TestHistoryBehindAGuard(t *testing.T) {
	t.Parallel()
	g := guard.New(sqlite(t), &guard.Options{Timeout: time.Minute})
	t.Cleanup(func() { _ = g.Close() })
	f := setup{store: g.Full()}.start(t)
	for i := range 2500 { // more than one page of the store, and more than are sent at once
		f.take(fmt.Sprintf(`{"policy":"llm","key":"k%d"}`, i))
	}
	got, err := f.events("", "")
	if err != nil || len(got) != 2500 || got[0].Key != "k0" || got[2499].Key != "k2499" {
		t.Errorf("%d events, %v", len(got), err)
	}
}
