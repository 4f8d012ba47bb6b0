package config_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/internal/pgtest"
	"github.com/drawgate/drawgate/internal/syncbuffer"
	"github.com/drawgate/drawgate/server"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }

// Tasks are checked against two tiers, recorded with their type and id, and cancelled if they fail.
// Without the database the long tier steps aside, and the short one stays; the log and the health
// say so. When it is back all goes on with what was counted before.
//
// req: D5, D8, D10
func TestTiersOnPostgres(t *testing.T) {
	t.Parallel()
	pg := pgtest.Start(t)
	c, problems := config.Parse("drawgate.yaml", []byte("store: "+pg.Schema(t)+`
instances: 1
store_timeout: 5s
policies:
  tasks:
    start: cold
    limits:
      - {name: short, rolling: 59m, amount: 4, fallback: share}
      - {name: day, calendar: day, amount: 1000, fallback: open}
`))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	var log syncbuffer.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	r, err := config.Start(t.Context(), c, &config.OpenOptions{Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	web, err := server.New(r.Engine, r.Store, &server.Options{
		Logger:   logger,
		Fallback: func(p *drawgate.Policy, i int) drawgate.Fallback { return p.Limits[i].Fallback },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = web.Close() })
	do := func(method, path, body string, out any) {
		t.Helper()
		w := httptest.NewRecorder()
		web.AdminHandler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path,
			strings.NewReader(body)))
		if err := json.Unmarshal(w.Body.Bytes(), out); err != nil ||
			w.Code/100 == 4 && w.Code != http.StatusTooManyRequests {
			t.Fatalf("%s %s: %d %s", method, path, w.Code, w.Body)
		}
	}
	task := func(id string, allowed, fallback bool) string {
		t.Helper()
		var a api.Answer
		do("POST", "/v1/take", `{"policy": "tasks", "id": "`+id+`", "hold_ms": 3600000, "labels": {"type": "summary"}}`, &a)
		if a.Allowed != allowed || a.Fallback != fallback {
			t.Fatalf("task %s: %+v, want allowed %t, by the fallback %t", id, a, allowed, fallback)
		}
		return a.Reservation
	}
	healthy := func(store, policy api.Status) {
		t.Helper()
		var h api.Health
		do("GET", "/readyz", "", &h)
		if h.Store.Status != store || h.States[0].Status != policy ||
			!slices.Equal(h.States[0].NotApplied, []string{"day"}) {
			t.Errorf("health %+v, store %+v; want the store %s and the policy %s", h, h.Store, store, policy)
		}
	}
	settled := func(token, body string) {
		t.Helper()
		var a api.SettleAnswer
		do("POST", "/v1/settle", `{"reservation": "`+token+`"`+body+`}`, &a)
		if a.Outcome == api.OutcomeGone {
			t.Errorf("settle: %+v", a)
		}
	}

	settled(task("1", true, false), "")
	settled(task("2", true, false), `, "cancel": true`) // it failed
	healthy("ok", "ok")

	pg.Kill9()
	settled(task("3", true, true), "")
	settled(task("4", true, true), "")
	healthy("unavailable", "degraded")
	if text := log.String(); !strings.Contains(text, "level=WARN") || !strings.Contains(text, "postgres store") {
		t.Errorf("logged %s", text)
	}

	pg.Restart()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		var h api.Health
		do("GET", "/readyz", "", &h)
		if h.Status == "ok" {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the store does not decide again: %+v", h)
		}
	}
	settled(task("5", true, false), "") // with 1, 3 and 4
	task("6", false, false)
	var last api.Event
	do("GET", "/v1/history?policy=tasks&label=type%3Dsummary&last=1", "", &last)
	if last.Labels["type"] != "summary" || last.ID != "5" {
		t.Errorf("history %+v", last)
	}
	var done map[string]any
	do("POST", "/v1/reset", `{"policy": "tasks"}`, &done)
	settled(task("7", true, false), "")
}
