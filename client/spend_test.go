package client_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/client"
	"github.com/drawgate/drawgate/server"
	"github.com/drawgate/drawgate/spend"
	"github.com/drawgate/drawgate/store/memstore"
)

// TestSpend: what was counted in meters is asked for by days, fields and names.
func TestSpend(t *testing.T) {
	t.Parallel()
	store := memstore.New(nil)
	lim, err := drawgate.New(store, spend.Policy("usd_micros"), nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range []spend.Meter{
		{Day: "2026-11-01", Team: "red", Key: "alice", Upstream: "openai", Model: "a"},
		{Day: "2026-11-01", Team: "red", Key: "anna", Upstream: "openai", Model: "b"},
		{Day: "2026-11-30", Team: "", Key: "bob", Upstream: "gemini", Model: "c"},
		{Day: "2026-12-01", Team: "red", Key: "alice", Upstream: "openai", Model: "a"},
	} {
		tenant, key := m.Bucket()
		d, _, err := lim.Take(t.Context(), drawgate.Request{Buckets: []drawgate.Ask{{
			Limiter: lim, Tenant: tenant, Key: key,
			Costs: spend.Costs([]drawgate.Cost{drawgate.Requests(1), drawgate.Units("usd_micros", int64(i+1)*100)}),
		}}})
		if err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
	}
	counts := true
	c := dial(t, listen(t, newServer(t, store, &server.Options{Spend: func() (server.Spend, bool) {
		return server.Spend{Money: "usd_micros", Zone: time.UTC}, counts
	}}).AdminHandler()), nil)
	row := func(r api.SpendRow, requests, micros int64) api.SpendRow {
		r.Used = api.SpendUnits{Requests: requests, CostMicros: micros}
		return r
	}
	none, red := "", "red"
	for _, v := range []struct {
		q    client.SpendQuery
		want []api.SpendRow
	}{
		{client.SpendQuery{From: "2026-11-01", To: "2026-11-30"}, []api.SpendRow{row(api.SpendRow{}, 3, 600)}},
		{client.SpendQuery{From: "2026-11-01", To: "2026-12-31", By: []string{"team"}}, []api.SpendRow{
			row(api.SpendRow{}, 1, 300), row(api.SpendRow{Team: "red"}, 3, 700),
		}},
		{
			client.SpendQuery{From: "2026-11-01", To: "2026-12-31", By: []string{"day", "key"}, Team: &red},
			[]api.SpendRow{
				row(api.SpendRow{Day: "2026-11-01", Key: "alice"}, 1, 100),
				row(api.SpendRow{Day: "2026-11-01", Key: "anna"}, 1, 200),
				row(api.SpendRow{Day: "2026-12-01", Key: "alice"}, 1, 400),
			},
		},
		{
			client.SpendQuery{From: "2026-11-01", To: "2026-12-31", By: []string{"upstream", "model"}, Team: &none},
			[]api.SpendRow{row(api.SpendRow{Upstream: "gemini", Model: "c"}, 1, 300)},
		},
		{client.SpendQuery{From: "2025-11-01", To: "2025-11-30"}, []api.SpendRow{}},
	} {
		got, err := c.Spend(t.Context(), v.q)
		want := api.SpendAnswer{From: v.q.From, To: v.q.To, Zone: "UTC", Currency: "usd", Rows: v.want}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%+v: %v\n%s", v.q, err, diff)
		}
	}
	first := time.Now().UTC().Format("2006-01") + "-01"
	if got, err := c.Spend(t.Context(), client.SpendQuery{To: first}); err != nil || got.From != first ||
		got.To != first {
		t.Errorf("the first day of this month: %+v, %v", got, err)
	}
	month, err := c.Spend(t.Context(), client.SpendQuery{})
	now := time.Now().UTC()
	if err != nil || month.To < now.Add(-time.Hour).Format(time.DateOnly) || month.From[8:] != "01" {
		t.Errorf("%+v, %v, want this month", month, err)
	}
	for _, q := range []client.SpendQuery{
		{From: "1 November"},
		{To: "2026-11-31"},
		{From: "2026-11-02", To: "2026-11-01"},
		{By: []string{"week"}},
		{From: "2024-01-01", To: "2026-01-01"},
	} {
		if _, err := c.Spend(t.Context(), q); client.Code(err) != api.CodeInvalid {
			t.Errorf("%+v: %v", q, err)
		}
	}
	counts = false
	if _, err := c.Spend(t.Context(), client.SpendQuery{}); client.Code(err) != api.CodeNotSupported {
		t.Error(err)
	}
	if err := lim.Close(); err != nil {
		t.Error(err)
	}
}
