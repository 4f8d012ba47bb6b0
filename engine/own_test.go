package engine_test

import (
	"errors"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/store/memstore"
)

// TestOwnPolicies: a policy that this module made for itself can be used by whoever says that it is
// one, and by nobody who only knows its name.
func TestOwnPolicies(t *testing.T) {
	t.Parallel()
	own := drawgate.Policy{
		Name:   engine.OwnPrefix + "x",
		Limits: []drawgate.Limit{drawgate.RollingLimit("r", 10, time.Hour)},
	}
	st := memstore.New(nil)
	e, err := engine.New(st, engine.Config{Policies: []engine.Policy{{Policy: own, Base: true}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	take := func(own bool) error {
		_, err := e.Take(t.Context(), &engine.Request{Asks: []engine.Ask{{
			Policy: engine.OwnPrefix + "x", Key: "k",
			Own: own,
		}}})
		return err
	}
	if err := take(true); err != nil {
		t.Error(err)
	}
	_, askErr := e.Ask(own.Name, "", "k")
	disableErr := e.Disable(own.Name, time.Now().Add(time.Hour))
	for what, err := range map[string]error{"take": take(false), "ask": askErr, "disable": disableErr} {
		if !errors.Is(err, engine.ErrUnknownPolicy) {
			t.Errorf("%s by its name: %v", what, err)
		}
	}
	if _, ok := e.Policy(own.Name); ok {
		t.Error("it can be looked at")
	}
	if _, err := engine.New(st, engine.Config{Policies: []engine.Policy{{Policy: own}}}, nil); err == nil {
		t.Error("a configured policy has such a name")
	}
}
