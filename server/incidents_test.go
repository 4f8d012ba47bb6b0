package server_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/server"
)

// incident returns an incident with every detail.
func incident(id string, at time.Time) api.Incident {
	at = at.UTC()
	call := api.IncidentTake{
		Granted: at, Sent: &at, Answered: &at, Model: "m", Estimate: api.Costs{"requests": 1},
		Limit: "quota/rpm", Remaining: 3, Outcome: "refused",
	}
	return api.Incident{
		ID: id, At: at, Instance: "node-1", Severity: api.SeverityError, Upstream: "openai", Model: "m",
		Meaning: "minute", Summary: "refused",
		Diagnosis: []string{"somebody else"}, Count: 2, Last: at, Until: &at, Status: http.StatusTooManyRequests,
		Reason:   "minute, requests, limit 5",
		Provider: &api.ProviderLimit{Unit: "requests", Amount: new(int64(5))}, Call: call, Concurrent: 1,
		Limits: []api.Limit{{
			Policy: "quota", Name: "rpm", Unit: "requests", Amount: 10, Most: 10, Remaining: 3,
			ResetAt: at,
		}},
		Now: &api.StatusAnswer{
			Policy: "quota", Key: "openai", At: at, Take: api.Answer{Allowed: true},
			Limits: []api.LimitStatus{},
		},
		Minute: &api.IncidentSum{Calls: 7, Costs: api.Costs{"requests": 7}}, Takes: []api.IncidentTake{call},
	}
}

// Administrators list incidents and see one; the list is short, and callers bound to a tenant see
// none, because an incident shows the calls of all.
func TestIncidents(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	list := []api.Incident{incident("newer", start.Add(time.Hour)), incident("older", start)}
	token := func(c string) string { return strings.Repeat(c, 16) }
	h := setup{options: &server.Options{
		Incidents: func() []api.Incident { return list },
		Tokens: []server.Token{
			{Secret: token("r"), Roles: []server.Role{server.RoleRead}},
			{Secret: token("t"), Roles: []server.Role{server.RoleTake}},
			{Secret: token("b"), Roles: []server.Role{server.RoleAdmin}, Tenant: "acme"},
		},
	}}.make(t)
	ask := func(h http.Handler, path, secret string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		r.Header.Set("Authorization", "Bearer "+secret)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	ids := func(path string) (all []string) {
		var a api.IncidentsAnswer
		w := ask(h.AdminHandler(), path, token("r"))
		if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil || w.Code != http.StatusOK {
			t.Fatalf("%s: %d %s: %v", path, w.Code, w.Body, err)
		}
		for i := range a.Incidents {
			if a.Incidents[i].Takes != nil || a.Incidents[i].Limits != nil || a.Incidents[i].Now != nil {
				t.Errorf("%s: the list has details: %+v", path, a.Incidents[i])
			}
			all = append(all, a.Incidents[i].ID)
		}
		return all
	}
	if got := strings.Join(ids("/v1/incidents"), " "); got != "newer older" {
		t.Errorf("all: %s", got)
	}
	if got := strings.Join(ids("/v1/incidents?since=2026-07-01T12:30:00Z"), " "); got != "newer" {
		t.Errorf("since: %s", got)
	}
	for path, want := range map[string]string{"last": "newer", "older": "older"} {
		var in api.Incident
		w := ask(h.AdminHandler(), "/v1/incidents/"+path, token("r"))
		if err := json.Unmarshal(w.Body.Bytes(), &in); err != nil || in.ID != want || len(in.Takes) != 1 {
			t.Errorf("%s: %d %s: %v", path, w.Code, w.Body, err)
		}
	}
	for secret, want := range map[string]int{
		token("t"): http.StatusForbidden, token("b"): http.StatusForbidden,
		"nobody": http.StatusUnauthorized,
	} {
		for _, path := range []string{"/v1/incidents", "/v1/incidents/last"} {
			if w := ask(h.AdminHandler(), path, secret); w.Code != want {
				t.Errorf("%s with %s: got %d, want %d", path, secret, w.Code, want)
			}
		}
	}
	if w := ask(h, "/v1/incidents", token("r")); w.Code != http.StatusNotFound {
		t.Errorf("on the public listener: got %d, want 404", w.Code)
	}
	list = nil
	if w := ask(h.AdminHandler(), "/v1/incidents/last", token("r")); w.Code != http.StatusUnprocessableEntity {
		t.Errorf("without incidents: got %d", w.Code)
	}
}
