package config_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/drawgate/drawgate/config"
)

// Incidents are kept where the file says, relative to its folder; without that beside the SQLite
// store, and nowhere with another store.
func TestIncidentsFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const gateway = "policies: {q: {limits: [{name: rpm, rolling: 1m, amount: 1}]}}\ngateway: {upstreams: {openai: {models: [{model: '*', policy: q}]}}, keys: [{name: a, secret_env: A}]"
	for text, want := range map[string]string{
		"store: sqlite:x/q.db\n" + gateway + ", incidents: {file: i.jsonl}}": filepath.Join(dir, "i.jsonl"),
		"store: sqlite:x/q.db\n" + gateway + "}":                             filepath.Join(dir, "x", "q.db-incidents.jsonl"),
		"store: 'memory:'\n" + gateway + "}":                                 "",
		"store: 'memory:'\n" + gateway + ", incidents: {file: /i}}":          "/i",
	} {
		path := filepath.Join(dir, "drawgate.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := config.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.IncidentsFile(); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}
