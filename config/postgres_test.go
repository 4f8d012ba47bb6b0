package config_test

import (
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/pgstore"
)

// A mistake in the URL of a database says what to write, and shows no password.
func TestMistakesOfPostgresURLs(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"postgres://u:hunter2@h/db?sslmode=bogus":        `sslmode is invalid`,
		"postgres://u:hunter2@h/db?regoin=x":             `the URL has a parameter "regoin" that this store does not know; such as postgres://user:password@host:5432/database?sslmode=verify-full`,
		"postgres://h/db?password=hunter2":               `the URL has the password as a parameter: write it before the host, or name a file that has it with password_file`,
		"postgres://u:hunter2@h/db?password_file=/run/x": `the URL has a password, and names a file of one: leave one of them out`,
		"postgres://u:hun/ter2hunter2@h/db":              `characters such as %, /, ? and # in a password must be written as %25, %2F, %3F and %23`,
		"postgres://u@h:70000/db":                        `the URL cannot be used: invalid port`,
		"postgres://u@h/db?listen=h":                     `listen=h is not host:port`,
		"postgres://u@h/db?schema=a'b":                   `is not a name of at most 63 letters and digits`,
		"postgres://u@h/db?schema=a&schema=b":            `the URL gives "schema" more than once`,
		"postgresq://u:hunter2@h/db":                     `did you mean "postgres:"?`,
		"postgres:db":                                    `the URL is not of the form postgres://`,
		"psql://u:hunter2@h/db":                          `is not of a known kind (memory:, sqlite:, redis://, redis+sentinel://, redis+cluster://, the same with rediss or valkey, postgres://, or dynamodb://)`,
	} {
		_, problems := config.Parse("f.yaml", []byte("store: \""+url+"\""))
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

// Forms of URLs that libpq has.
func TestPostgresURLs(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"postgres://", "postgres:///quotas", "postgres://?sslmode=disable", "postgresql://u:p@h/db",
		"postgres://u:p%40@h1:5432,h2:5433/db?target_session_attrs=read-write&schema=quotas&listen=h1:5432",
		"postgres://u@h/db?sslmode=require&password_file=/run/secrets/pg&pool_max_conns=4",
	} {
		c, problems := config.Parse("f.yaml", []byte("store: "+url))
		if len(problems) > 0 {
			t.Errorf("%s: %v", url, config.Problems(problems))
		} else if c.SharedBy() != (config.Instances{Auto: true}) {
			t.Errorf("%s: the limits are shared by %+v, want those who are counted", url, c.SharedBy())
		}
	}
}

// A database is a shared store: limits count as distributed on it, with the presets' prefix, and
// its store is opened without a connection.
func TestDatabaseOfPostgres(t *testing.T) {
	t.Parallel()
	const url = "postgres://u@127.0.0.1:1/db"
	c, err := config.FromEnv([]string{
		"ENABLE_DISTRIBUTED_RATE_LIMITING=true", "RATE_LIMIT_PER_DAY=5", "DRAWGATE_STORE=" + url,
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
		if _, ok := store.(*pgstore.Store); !ok {
			t.Errorf("the %s is a %T", what, store)
		}
		g := guard.New(store, nil)
		if got := g.TakeTime(0); got != 500*time.Millisecond {
			t.Errorf("a take may need %v, want 500ms", got)
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}
}

// What the settings of a file do on PostgreSQL.
func TestSettingsOnPostgres(t *testing.T) {
	t.Parallel()
	const at = "store: postgres://h/db\n"
	long := strings.Repeat("x", 41)
	for text, want := range map[string]string{
		at + "prefix: a.b:c":             "",
		at + "prefix: " + long:           `prefix "` + long + `" is not 1 to 40 letters and digits: tables are named by it`,
		"prefix: " + long:                "",
		at + "store_mark: required":      "store_mark is for Redis and has no effect on the store postgres://h/db",
		at + "store_batches: false":      "store_batches is for Redis and has no effect",
		at + "store_recovery: off":       "store_recovery is for Redis and has no effect",
		at + "instances: 3":              "",
		"store: 'memory:'\ninstances: 3": "name a Redis server, a PostgreSQL database or a table of DynamoDB as the store",
		at + "policies: {a: {limits: [{name: l, rolling: 1d, amount: 209715, precision: exact}]}}": "",
		at + "policies: {a: {limits: [{name: l, rolling: 1d, amount: 209716, precision: exact}]}}": "limit \"l\" of policy \"a\" is exact: 209716 takes need about 1048580 bytes, " +
			"and a bucket on PostgreSQL has at most 1048576: more takes are then refused; leave precision out, or make the amount smaller",
		at + "policies: {a: {limits: [{name: l, rolling: 1d, amount: 209716}]}}":                                "",
		"store: redis://h\npolicies: {a: {limits: [{name: l, rolling: 1d, amount: 209716, precision: exact}]}}": "",
	} {
		path := filepath.Join(t.TempDir(), "drawgate.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := config.Resolve(nil, config.Flags{Config: path})
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			for _, w := range c.Warnings {
				got += w.Error() + "\n"
			}
		}
		if want == "" {
			if strings.Contains(got, "no effect on the store") || strings.Contains(got, "PostgreSQL") || err != nil {
				t.Errorf("%s: got %s", text, got)
			}
			continue
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %q", text, got, want)
		}
	}
}

// Files that a URL names are relative to the configuration's folder, like all others, and are not
// read before they are used.
func TestFilesOfPostgresURLs(t *testing.T) {
	t.Parallel()
	path := writeFile(t, "store: postgres://u@h/db?sslrootcert=ca.crt&sslmode=verify-full&password_file=s%20b/pw&sslkey=/abs\n"+
		"policies: {p: {limits: [{name: l, rolling: 1m, amount: 1}]}}\n")
	dir := filepath.Dir(path)
	c, err := config.Resolve([]string{"XDG_STATE_HOME=/state"}, config.Flags{Config: path})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"sslrootcert=" + url.QueryEscape(dir+"/ca.crt"), "password_file=" +
		url.QueryEscape(dir) + "%2Fs%20b%2Fpw", "sslkey=/abs"} {
		if !strings.Contains(c.Store, want) {
			t.Errorf("store %s, want %s in it", c.Store, want)
		}
	}
}

// The password of libpq's other form, and of a parameter that is written wrong, is shown nowhere.
func TestPasswordsOfOtherForms(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"host=127.0.0.1 user=drawgate password=hunter2", "PGPASSWORD=hunter2", "postgres://u@h/db?pasword=hunter2",
		"postgres://u@h/db?passwd=hunter2", "user=u password='hunter2'",
	} {
		_, problems := config.Parse("f.yaml", []byte("store: \""+text+"\"\n"))
		_, err := config.Resolve([]string{"XDG_STATE_HOME=/state", "DRAWGATE_STORE=" + text}, config.Flags{})
		if said := fmt.Sprint(problems, err); len(problems) == 0 || err == nil || strings.Contains(said, "hunter2") {
			t.Errorf("%s: %s", text, said)
		}
	}
}
