package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/drawgate/drawgate/config"
)

// Secrets under unknown keys are not shown, because mistakes in a reloaded file are logged.
func TestSecretsUnderUnknownKeysAreNotShown(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"secret", "Password", "bearer_token", "apikey", "api-key"} {
		for _, value := range []string{`hush-hush`, `"hush-hush"`, "|\n        hush-hush\n"} {
			text := "policies: {p: {limits: [{name: a, rolling: 1m, amount: 1}]}}\nserver:\n  tokens:\n    - name: x\n      " + key + ": " + value + "\n"
			_, problems := config.Parse("file.yaml", []byte(text))
			said := fmt.Sprint(problems)
			for i := range problems {
				said += problems[i].Error()
			}
			if strings.Contains(said, "hush") || !strings.Contains(said, key) {
				t.Errorf("%s: got %s, want a problem that names the key %q and hides its value", text, said, key)
			}
		}
	}
}
