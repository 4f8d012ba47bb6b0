package server_test

import (
	"net/http"
	"testing"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/server"
	"github.com/drawgate/drawgate/telemetry"
)

// /v1/refusals lists what takes were refused, each tenant's token its own.
//
// req: B10, E4
func TestRefusals(t *testing.T) {
	t.Parallel()
	kept := telemetry.NewRefusals()
	s := setup{
		engine:  &engine.Options{Observer: kept.Observer()},
		options: &server.Options{Tokens: tokens(), Refusals: kept.List},
	}.make(t)
	for _, take := range []string{
		`{"policy":"slots","hold_ms":600000}`, `{"policy":"slots","tenant":"acme","key":"k","hold_ms":600000}`,
		`{"policy":"llm","costs":{"tokens":1000}}`,
	} {
		for range 4 {
			if w := ask(s.AdminHandler(), "POST", "/v1/take", take, bearer(admin)); w.Code != http.StatusOK {
				t.Fatalf("%s: %d %s", take, w.Code, w.Body)
			}
		}
	}
	type row struct {
		policy, tenant, key, limit string
		count                      int64
	}
	ours := row{"slots", "acme", "k", "slots", 3}
	for _, c := range []struct {
		path, token string
		total       int
		want        []row
	}{
		{"/v1/refusals", admin, 3, []row{{"llm", "", "default", "tpm", 3}, ours, {"slots", "", "default", "slots", 3}}},
		{"/v1/refusals?limit=1", admin, 3, []row{{"llm", "", "default", "tpm", 3}}},
		{"/v1/refusals?policy=slots&tenant=acme", admin, 1, []row{ours}},
		{"/v1/refusals", bound, 1, []row{ours}},
	} {
		var got api.RefusalsAnswer
		w := ask(s.AdminHandler(), "GET", c.path, "", bearer(c.token))
		decode(t, w, &got)
		var rows []row
		for _, f := range got.Refusals {
			rows = append(rows, row{f.Policy, f.Tenant, f.Key, f.Limit, f.Count})
		}
		wantSame(t, c.path, rows, c.want)
		if got.Total != c.total || got.Dropped {
			t.Errorf("%s: %d in all, dropped %v", c.path, got.Total, got.Dropped)
		}
	}
	for token, want := range map[string]int{reader: 403, bound: 403} {
		if w := ask(s.AdminHandler(), "GET", "/v1/refusals?tenant=other", "", bearer(token)); w.Code != want {
			t.Errorf("%d, want %d: %s", w.Code, want, w.Body)
		}
	}
	if w := ask(s, "GET", "/v1/refusals", "", bearer(admin)); w.Code != http.StatusNotFound {
		t.Errorf("on the address for programs: %d", w.Code)
	}
	if w := ask(setup{}.make(t).AdminHandler(), "GET", "/v1/refusals", ""); w.Code != http.StatusNotImplemented {
		t.Errorf("where nothing is kept: %d", w.Code)
	}
}
