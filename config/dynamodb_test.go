package config_test

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/internal/awstest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/dynamostore"
	"github.com/drawgate/drawgate/store/guard"
)

// A mistake in the URL of a table says what to write, and shows no password.
func TestMistakesOfDynamoDBURLs(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"dynamodb://":                             `store "dynamodb://" names no table; write dynamodb://TABLE?region=REGION, such as dynamodb://quotas?region=eu-central-1`,
		"dynamodb://q":                            `store "dynamodb://q" has a table name that DynamoDB does not allow; use 3 to 255 letters`,
		"dynamodb://AKIA:hunter2@quotas":          `store "dynamodb://AKIA:xxxxx@quotas" contains credentials; leave them out: they come from AWS_ACCESS_KEY_ID`,
		"dynamodb://quotas?regoin=x":              `has an unknown parameter regoin; there are region and endpoint`,
		"dynamodb://quotas?endpoint=localhost:80": `has an endpoint that is not the http:// or https:// URL of a server; such as endpoint=http://127.0.0.1:8000`,
		"dynamo://quotas":                         `is not of a known kind (memory:, sqlite:, redis://, redis+sentinel://, redis+cluster://, the same with rediss or valkey, postgres://, or dynamodb://)`,
		"dynamodbs://quotas":                      `did you mean "dynamodb:"?`,
	} {
		_, problems := config.Parse("f.yaml", []byte("store: '"+url+"'"))
		if got := config.Problems(problems).Error(); !strings.Contains(got, want) || strings.Contains(got, "hunter2") {
			t.Errorf("%s in a file: got %s, want %q", url, got, want)
		}
		for source, f := range map[string]func() error{
			"variable": func() error { _, err := config.FromEnv([]string{"DRAWGATE_STORE=" + url}); return err },
			"flag":     func() error { _, err := config.Resolve(nil, config.Flags{Store: url}); return err },
		} {
			if err := f(); err == nil || !strings.Contains(err.Error(), want) ||
				strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s in a %s: got %v, want %q", url, source, err, want)
			}
		}
	}
}

// The tests of the store of tables use the document's policy as it is in Go.
//
// req: A1
func TestPolicyOfTheTablesTestsIsThePreset(t *testing.T) {
	t.Parallel()
	data, err := config.Preset(config.GeminiTranslationBucket)
	if err != nil {
		t.Fatal(err)
	}
	c, problems := config.Parse("preset", data)
	if len(problems) > 0 {
		t.Fatal(config.Problems(problems))
	}
	if diff := cmp.Diff([]drawgate.Policy{awstest.Gemini()}, c.Policies); diff != "" {
		t.Errorf("awstest.Gemini is not the preset (-awstest +preset):\n%s", diff)
	}
}

// A table is a shared store: limits count as distributed on it, with the presets' prefix, and its
// store is opened without a connection.
//
// req: A1
func TestTableOfDynamoDB(t *testing.T) {
	t.Parallel()
	const url = "dynamodb://quotas?region=local&endpoint=http://127.0.0.1:1"
	c, err := config.FromEnv([]string{
		"ENABLE_DISTRIBUTED_RATE_LIMITING=true", "RATE_LIMIT_PER_DAY=5",
		"DRAWGATE_STORE=" + url,
	})
	if err != nil {
		t.Fatal(err)
	}
	if c.Store != url || c.Prefix != "rl" || c.SharedBy() != (config.Instances{Number: 1}) {
		t.Errorf("store %s, prefix %q, %+v", c.Store, c.Prefix, c.SharedBy())
	}
	for what, open := range map[string]func(*slog.Logger) (store.Store, error){
		"store":          c.OpenStore,
		"existing store": c.OpenExistingStore,
	} {
		store, err := open(slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := store.(*dynamostore.Store); !ok {
			t.Errorf("the %s is a %T", what, store)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A table has more time than Redis has, because a take needs two requests over TLS, and throttling
// means pauses. What is configured comes first.
func TestTimeForATable(t *testing.T) {
	t.Parallel()
	const table = "store: 'dynamodb://quotas?region=local&endpoint=http://127.0.0.1:1'\n"
	for text, want := range map[string]time.Duration{
		table:                            time.Second,
		table + "store_timeout: 200ms\n": 200 * time.Millisecond,
		"store: redis://127.0.0.1:1\n":   40 * time.Millisecond,
		"store: 'sqlite://" + filepath.Join(t.TempDir(), "q.db") + "'\n": 500 * time.Millisecond,
	} {
		c, problems := config.Parse("f.yaml", []byte(text))
		if len(problems) > 0 {
			t.Fatal(config.Problems(problems))
		}
		store, err := c.OpenStore(slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		g := guard.New(store, &guard.Options{Timeout: c.StoreTimeout})
		if got := g.TakeTime(0); got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
}
