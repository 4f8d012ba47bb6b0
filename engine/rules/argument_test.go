package rules_test

import (
	"strings"
	"testing"

	"github.com/drawgate/drawgate/engine/rules"
)

// TestUnknownNamesInArguments are mistakes when rules are compiled: YAML takes the quotes of key:
// "header(X-API-Key)".
func TestUnknownNamesInArguments(t *testing.T) {
	t.Parallel()
	for _, key := range []string{`header(X-API-Key)`, `attr(foo)`, `join(foo, user)`, `header(foo) + "x"`} {
		list := []rules.Rule{{Name: "r", Apply: []rules.Apply{{Policy: "p", Key: key}}}}
		_, err := rules.Compile(list, func(string) error { return nil })
		if err == nil || !strings.Contains(err.Error(), "r") {
			t.Errorf("key %s: %v", key, err)
		}
	}
	list := []rules.Rule{{Name: "r", When: `header(foo) == "x"`, Apply: []rules.Apply{{Policy: "p", Key: "ip"}}}}
	if _, err := rules.Compile(list, func(string) error { return nil }); err == nil {
		t.Error("when: no mistake")
	}
}
