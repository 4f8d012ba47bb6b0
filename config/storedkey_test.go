package config_test

import (
	"strings"
	"testing"

	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/engine"
)

// inStore is a file whose keys are in the store.
func inStore(more string) string {
	return `policies:
  gpt: {limits: [{name: rpm, rolling: 1m, amount: 10, margin: 2s}], fallback: closed}
gateway:
  upstreams:
    openai: {url: "http://127.0.0.1:1", models: [{model: "*", policy: gpt}], others: [/v1/files]}
  aliases: {fast: openai/gpt-4.1-mini}
  keys_in_store: true
` + more
}

const adminToken = "server: {tokens: [{name: ops, token_env: OPS, role: admin}]}\n"

// TestKeysInTheStoreNeedAStore that keeps them, and administrators with a credential.
func TestKeysInTheStoreNeedAStore(t *testing.T) {
	t.Parallel()
	environ := []string{"OPS=0123456789abcdef-ops"}
	for name, c := range map[string]struct{ more, problem, warning string }{
		"sqlite":   {adminToken + "store: sqlite:state.db\n", "", ""},
		"redis":    {adminToken + "store: redis://127.0.0.1:1\n", "", ""},
		"memory":   {adminToken + "store: \"memory:\"\n", "", "lost when this process ends"},
		"dynamodb": {adminToken + "store: dynamodb://table?region=eu-west-1\n", "", ""},
		"no token": {"store: sqlite:state.db\n", "everybody who reaches the address for administrators", ""},
		"take only": {
			strings.Replace(adminToken, "admin", "take", 1) + "store: sqlite:state.db\n",
			"nobody could change keys", "",
		},
		"no admin": {"store: sqlite:state.db\nserver: {admin: off}\n", "", ""},
		"insecure": {"store: sqlite:state.db\nserver: {insecure: true}\n", "", ""},
	} {
		path := writeFile(t, inStore(c.more))
		conf, err := config.Resolve(environ, config.Flags{Config: path})
		switch {
		case c.problem == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.problem != "" && (err == nil || !strings.Contains(err.Error(), c.problem)):
			t.Errorf("%s: %v, want %q", name, err, c.problem)
		case err == nil && !conf.Gateway.KeysIn:
			t.Errorf("%s: keys are not in the store", name)
		case err == nil && strings.Contains(problemsText(conf.Warnings),
			"keys in the store are lost") != (c.warning != ""):
			t.Errorf("%s: warnings %s", name, problemsText(conf.Warnings))
		}
	}
}

func problemsText(list []config.Problem) (text string) {
	for _, p := range list {
		text += p.OneLine() + "\n"
	}
	return text
}

// TestStoredKeysAreCheckedAgainstTheFile: a name that the file has, or something that it has not,
// is refused.
func TestStoredKeysAreCheckedAgainstTheFile(t *testing.T) {
	t.Parallel()
	path := writeFile(t, inStore("  keys: [{name: alice, secret_env: ALICE}]\n"+adminToken+"store: sqlite:state.db\n"))
	conf, err := config.Resolve([]string{"OPS=0123456789abcdef-ops", "ALICE=0123456789abcdef-alice"},
		config.Flags{Config: path})
	if err != nil {
		t.Fatal(err)
	}
	for want, k := range map[string]config.VirtualKey{
		"":                               {Name: "bob"},
		"has a key of this name":         {Name: "alice"},
		`may use "azure/*", which is of`: {Name: "bob", Models: []string{"openai/*", "fast", "azure/*"}},
		`may call "azure/v1/files"`:      {Name: "bob", Others: []string{"azure/v1/files"}},
		`may call "azure/v1"`:            {Name: "bob", Paths: []string{"openai/*", "azure/v1"}},
	} {
		err := conf.CheckStoredKey(&k, nil)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", k, err, want)
		}
	}
	err = conf.CheckStoredKey(&config.VirtualKey{Name: "bob"}, engine.Amounts{"gpt": {"rpm": 5}})
	if err == nil || !strings.Contains(err.Error(), `no rule applies policy "gpt" by attr("key")`) {
		t.Errorf("amounts of a provider's quota: %v", err)
	}
}
