package server_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/server"
	"github.com/drawgate/drawgate/store/memstore"
)

// stateLog is a log that notes with each line whether a policy is on.
type stateLog struct {
	slog.Handler
	until func() time.Time
	lines []string
}

func (*stateLog) Enabled(context.Context, slog.Level) bool { return true }

func (l *stateLog) Handle(_ context.Context, r slog.Record) error {
	state := " while it is on"
	if !l.until().IsZero() {
		state = " while it is off"
	}
	l.lines = append(l.lines, r.Message+state)
	return nil
}

// What was done is logged after it was done: it may fail, since a reload can remove the policy
// meanwhile.
func TestSwitchedPoliciesAreLoggedAfterwards(t *testing.T) {
	t.Parallel()
	store := memstore.New(nil)
	t.Cleanup(func() { _ = store.Close() })
	e, err := engine.New(store, engine.Config{Policies: enforced(policies()...)}, slowStore)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	log := &stateLog{Handler: slog.DiscardHandler, until: func() time.Time {
		info, _ := e.Policy("llm")
		return info.DisabledUntil
	}}
	s, err := server.New(e, store, &server.Options{Logger: slog.New(log)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	for _, c := range []struct {
		path, body string
		status     int
	}{
		{"/v1/policies/llm/disable", `{"for_ms":60000}`, 200},
		{"/v1/policies/nope/disable", `{"for_ms":60000}`, 422},
		{"/v1/policies/llm/enable", "", 200},
		{"/v1/policies/nope/enable", "", 422},
	} {
		if w := ask(s.AdminHandler(), "POST", c.path, c.body); w.Code != c.status {
			t.Errorf("%s: %d %s, want %d", c.path, w.Code, strings.TrimSpace(w.Body.String()), c.status)
		}
	}
	if want := []string{
		"a policy was switched off while it is off",
		"a policy was switched on while it is on",
	}; !slices.Equal(log.lines, want) {
		t.Errorf("logged %q, want %q", log.lines, want)
	}
}
