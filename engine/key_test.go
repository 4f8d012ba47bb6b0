package engine_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/engine/rules"
)

// TestLongKeys of rules are cut, stay apart, and have the overrides of their start.
func TestLongKeys(t *testing.T) {
	t.Parallel()
	p := perDay("p", 1)
	p.Overrides = []engine.Override{{Key: "bot*", Amounts: map[string]int64{"day": 2}}}
	e := newEngine(t, engine.Config{Policies: policies(p), Rules: []rules.Rule{by("r", "p", "user")}}, nil)
	for user, n := range map[string]int{
		strings.Repeat("é", 40_000): 1, strings.Repeat("é", 40_000) + "x": 1, "x" + strings.Repeat("é", 40_000): 1,
		"bot" + strings.Repeat("b", 100_000): 2,
		strings.Repeat("a", 256):             1, strings.Repeat("a", 257): 1,
	} {
		for i := range n + 1 {
			res := take(t, e, from(user))
			if res.Decision.Allowed != (i < n) {
				t.Errorf("take %d of %.5s: allowed %v", i, user, res.Decision.Allowed)
			}
			if key := res.Applied[0].Key; len(key) > 256 || !utf8.ValidString(key) || len(user) <= 256 && key != user {
				t.Errorf("a key of %d bytes has become one of %d", len(user), len(key))
			}
		}
	}
}

// TestLongKeysAskedByName are in the same bucket as those of rules, with the overrides of the whole
// key, and are counted once where a rule applies to the same.
func TestLongKeysAskedByName(t *testing.T) {
	t.Parallel()
	long := "bot" + strings.Repeat("b", 1000)
	p := perDay("p", 1)
	p.Overrides = []engine.Override{{Key: long, Amounts: map[string]int64{"day": 3}}}
	e := newEngine(t, engine.Config{Policies: policies(p), Rules: []rules.Rule{by("r", "p", "user")}}, nil)
	named := []engine.Ask{{Policy: "p", Key: long}}
	both := from(long)
	both.Asks = named
	for i, r := range []*engine.Request{from(long), {Asks: named}, both, from(long), {Asks: named}} {
		if res := take(t, e, r); res.Decision.Allowed != (i < 3) || len(res.Applied[0].Key) > 256 {
			t.Errorf("take %d: allowed %v, %+v", i, res.Decision.Allowed, res.Applied)
		}
	}
	ask, err := e.Ask("p", "", drawgate.BoundedKey(long))
	if err != nil {
		t.Fatal(err)
	}
	if n := ask.Limiter.Plan().Policy().Limits[0].Amount; n != 3 {
		t.Errorf("the key as it is listed has the amount %d, want 3", n)
	}
}
