package gateway

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/outbound"
	"github.com/drawgate/drawgate/store/memstore"
)

// TestArrange: each account is the first of as many callers as its weight says, and of those who
// come second to it as well.
func TestArrange(t *testing.T) {
	t.Parallel()
	accounts := []Target{
		{Upstream: "a", Model: "m", Weight: 3},
		{Upstream: "b", Model: "m"},
		{Upstream: "c", Model: "m", Weight: 1},
	}
	first, second := map[string]int{}, map[string]int{}
	const callers = 20_000
	for i := range callers {
		list := arrange(accounts, fmt.Sprint("caller ", i))
		first[list[0].Upstream]++
		if list[0].Upstream == "b" {
			second[list[1].Upstream]++
		}
	}
	near := func(n int, share, of float64) bool { return math.Abs(float64(n)-share*of) < 0.03*of }
	if !near(first["a"], 0.6, callers) || !near(first["b"], 0.2, callers) || !near(first["c"], 0.2, callers) {
		t.Errorf("%v of %d callers come first to each account", first, callers)
	}
	if of := float64(first["b"]); !near(second["a"], 0.75, of) || !near(second["c"], 0.25, of) {
		t.Errorf("%v of the callers of b come second to each", second)
	}
}

// TestArrangeMovesNobodyElse: without one of its accounts, the others of a group keep their order,
// for every caller.
func TestArrangeMovesNobodyElse(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var accounts []Target
		for i := range rapid.IntRange(1, 8).Draw(t, "accounts") {
			accounts = append(accounts, Target{
				Upstream: fmt.Sprint("u", i), Model: "m", Weight: rapid.IntRange(0, maxWeight).Draw(t, "weight"),
			})
		}
		caller := rapid.String().Draw(t, "caller")
		all := arrange(accounts, caller)
		gone := rapid.SampledFrom(accounts).Draw(t, "gone")
		is := func(a Target) bool { return a == gone }
		want := slices.DeleteFunc(slices.Clone(all), is)
		if got := arrange(slices.DeleteFunc(slices.Clone(accounts), is), caller); !slices.Equal(got, want) {
			t.Errorf("without %v: got %v, want %v", gone, got, want)
		}
	})
}

// TestOneGrantOfARace: of accounts that grant a call at the same time one makes it, and the others
// get back what they have granted. The one that makes it may be asked again.
//
// req: C1
func TestOneGrantOfARace(t *testing.T) {
	t.Parallel()
	store := memstore.New(nil)
	defer store.Close()
	conf := engine.Config{}
	accounts := []string{"one", "two", "three"}
	for _, name := range accounts {
		conf.Policies = append(conf.Policies, engine.Policy{Policy: drawgate.Policy{
			Name: name, Limits: []drawgate.Limit{drawgate.RollingLimit("rpm", 2, time.Hour)},
		}})
	}
	e, err := engine.New(store, conf, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	h, err := New(e, Config{Keys: []Key{{Name: "alice", Sum: [32]byte{1}}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	r := &race{}
	var left []string
	for _, name := range accounts {
		r.asks = append(r.asks, &ask{
			key: &Key{Name: "alice"}, secret: [32]byte{1}, model: &Model{Policy: name},
			wait: time.Hour, race: r,
		})
		r.leave = append(r.leave, func(error) { left = append(left, name) }) // too late: it is granted
	}
	take := func(i int) error {
		q := &quota{h, "", accounts[i]}
		_, err := q.Take(context.WithValue(t.Context(), askKey{}, r.asks[i]), &outbound.Call{}, time.Minute)
		return err
	}
	for i := range accounts {
		if err := take(i); i == 0 && err != nil || i > 0 && !errors.Is(err, errElsewhere) {
			t.Errorf("account %d: %v", i, err)
		}
	}
	if !slices.Equal(left, accounts[1:]) {
		t.Errorf("%q were told to leave", left)
	}
	if err := take(0); err != nil {
		t.Errorf("asked again: %v", err)
	}
	if err := take(0); !errors.Is(err, drawgate.ErrLimited) {
		t.Errorf("asked again without room: %v, want a refusal, and no wait in this queue", err)
	}
	for i, want := range []int64{2, 0, 0} {
		bucket, err := e.Ask(accounts[i], "", accounts[i])
		if err != nil {
			t.Fatal(err)
		}
		if st, err := bucket.Status(t.Context(), 0); err != nil || st.States[0].Used != want {
			t.Errorf("account %d: %+v, %v, want %d used", i, st, err, want)
		}
	}
}
