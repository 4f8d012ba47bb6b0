package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/client"
	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/engine"
)

// Without a limit nothing is held, so there is no end. A command that outlives its hold is not
// ended, and the hold is not renewed in a busy loop.
func TestNothingHeldHasNoEnd(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]held{
		"of a store":  heldHere{Result: &engine.Result{}},
		"of a server": heldThere{&client.Reservation{Answer: api.Answer{Allowed: true}}},
	} {
		if left := time.Until(h.Deadline()); left < drawgate.MaxHold/2 {
			t.Errorf("a hold %s ends in %v", name, left)
		}
		if err := h.Settle(t.Context()); err != nil || !h.free() {
			t.Errorf("a hold %s: free=%v, settled %v", name, h.free(), err)
		}
	}
}

// A command must not see our secrets just because we got them from the environment.
func TestCommandsDoNotInheritSecrets(t *testing.T) {
	t.Parallel()
	environ := []string{
		"A=1", "DRAWGATE_TOKEN=t", "DRAWGATE_SERVER=http://h", "DRAWGATE_STORE=redis://u:p@h/0",
		"DRAWGATE_ADMIN_TOKEN=t", "DRAWGATE_BROKER=redis://:p@h/0", "NAMED=t",
	}
	if got := strings.Join(childEnv(slices.Clone(environ), nil), " "); got != "A=1 DRAWGATE_SERVER=http://h NAMED=t" {
		t.Errorf("without a configuration: %s", got)
	}
	c := &config.Config{}
	c.Server.Tokens = []config.Token{{Secret: config.Secret{Env: "NAMED"}}, {}}
	environ[3] = "DRAWGATE_STORE=sqlite:a@b.db"
	if got := strings.Join(childEnv(environ, c),
		" "); got != "A=1 DRAWGATE_SERVER=http://h DRAWGATE_STORE=sqlite:a@b.db" {
		t.Errorf("with one: %s", got)
	}
}
