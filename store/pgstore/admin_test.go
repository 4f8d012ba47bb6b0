package pgstore_test

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/pgtest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/pgstore"
	"github.com/drawgate/drawgate/store/storetest"
)

// as returns a URL with another user.
func as(t *testing.T, text, role string) string {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User(role)
	return u.String()
}

// TestStoreWithGrantedRole runs the contract as a role that has only what GrantsSQL says, in tables
// that another one made by what TablesSQL says.
func TestStoreWithGrantedRole(t *testing.T) {
	needs.NoRace(t) // the others are for goroutines
	t.Parallel()
	server := pgtest.Start(t)
	server.Do(`CREATE ROLE "the app" LOGIN; REVOKE ALL ON SCHEMA public FROM PUBLIC; REVOKE CREATE, TEMPORARY ON DATABASE postgres FROM PUBLIC`)
	var mu sync.Mutex // two GRANTs on a database exclude each other
	storetest.Run(t, harness(func(t *testing.T) string {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		at := as(t, server.Schema(t), "the app")
		for _, f := range []func() (string, error){
			func() (string, error) { return pgstore.TablesSQL(at, "") },
			func() (string, error) { return pgstore.GrantsSQL(at, "", pgstore.GrantOptions{}) },
		} {
			text, err := f()
			if err != nil {
				t.Fatal(err)
			}
			server.Do(text)
		}
		return at
	}))
}

// TestCleaningNeedsNoMoreThanGranted: what nobody calls needs permissions too.
func TestCleaningNeedsNoMoreThanGranted(t *testing.T) {
	needs.NoRace(t) // the others are for goroutines
	t.Parallel()
	server := pgtest.Start(t)
	server.Do("CREATE ROLE app LOGIN")
	at := as(t, server.Schema(t), "app")
	for _, f := range []func(string, string) (string, error){
		pgstore.TablesSQL,
		func(url, prefix string) (string, error) {
			return pgstore.GrantsSQL(url, prefix, pgstore.GrantOptions{})
		},
	} {
		text, err := f(at, "q")
		if err != nil {
			t.Fatal(err)
		}
		server.Do(text)
	}
	s := open(t, at, &pgstore.Options{Prefix: "q", Existing: true})
	if err := s.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if err := s.Sweep(t.Context(), 0); err != nil {
		t.Error(err)
	}
	if err := s.Pass(t.Context()); err != nil {
		t.Error(err)
	}
	if list, err := pgstore.CheckTables(t.Context(), at, "q"); err != nil || len(serious(list)) > 0 {
		t.Errorf("got %v, %v, want nothing", list, err)
	}
}

// serious returns the findings that are no warnings.
func serious(list []pgstore.Finding) (codes []string) {
	for _, f := range list {
		if !f.Warning {
			codes = append(codes, f.Code+": "+f.Message)
		}
	}
	return codes
}

// warned returns the warnings.
func warned(list []pgstore.Finding) (codes []string) {
	for _, f := range list {
		if f.Warning {
			codes = append(codes, f.Code)
		}
	}
	return codes
}

// TestFindings: each thing that is wrong is found, and said together with what to do.
func TestFindings(t *testing.T) {
	needs.NoRace(t) // the others are for goroutines
	t.Parallel()
	server := pgtest.Start(t, "fsync=on", "full_page_writes=on")
	server.Do("CREATE ROLE app LOGIN")
	ready := func(t *testing.T) string {
		t.Helper()
		at := server.Schema(t)
		if made, err := pgstore.CreateTables(t.Context(), at, ""); err != nil || !made {
			t.Fatal(made, err)
		}
		if made, err := pgstore.CreateTables(t.Context(), at, ""); err != nil || made {
			t.Fatalf("a second time: made %v, %v", made, err)
		}
		return at
	}
	schema := func(at string) string { u, _ := url.Parse(at); return u.Query().Get("schema") }
	ofVersion := func(version string) func(t *testing.T) string {
		return func(t *testing.T) string {
			t.Helper()
			at := ready(t)
			server.Do("UPDATE " + schema(at) + ".drawgate_setting SET value = '" + version + "'")
			return at
		}
	}
	for name, c := range map[string]struct {
		url      func(t *testing.T) string
		want     string
		warnings string
	}{
		"nothing":   {url: ready},
		"no tables": {url: func(t *testing.T) string { t.Helper(); return server.Schema(t) }, want: "no-tables: there are no tables drawgate_*"},
		"no schema": {
			url:  func(*testing.T) string { return server.URL() + "&schema=nowhere" },
			want: "no-tables: there are no tables drawgate_*",
		},
		"another table": {
			url: func(t *testing.T) string {
				t.Helper()
				at := ready(t)
				server.Do("ALTER TABLE " + schema(at) + ".drawgate_history RENAME takes TO taken")
				return at
			},
			want: "tables: the table drawgate_history is missing, or another program has made it",
		},
		"a table less": {
			url: func(t *testing.T) string {
				t.Helper()
				at := ready(t)
				server.Do("DROP TABLE " + schema(at) + ".drawgate_document")
				return at
			},
			want: "tables: the table drawgate_document is missing, or another program has made it",
		},
		"a version that is none": {
			url:  ofVersion("x"),
			want: `tables: the table drawgate_setting says that their version is "x", and this program knows 1 to 1`,
		},
		"an old version": {
			url:  ofVersion("0"),
			want: `tables: the table drawgate_setting says that their version is "0", and this program knows 1 to 1`,
		},
		"an encoding without all characters": {
			url: func(t *testing.T) string {
				t.Helper()
				server.Do("CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
				at := strings.Replace(server.URL(), "/postgres?", "/latin?", 1)
				if _, err := pgstore.CreateTables(t.Context(), at, ""); err != nil {
					t.Fatal(err)
				}
				return at
			},
			warnings: "encoding",
		},
		"no permission": {
			url: func(t *testing.T) string {
				t.Helper()
				at := ready(t)
				server.Do("GRANT USAGE ON SCHEMA " + schema(at) + " TO app; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA " +
					schema(at) + " TO app; REVOKE DELETE ON " + schema(at) + ".drawgate_bucket FROM app")
				return as(t, at, "app")
			},
			want: `permission: the role lacks DELETE on "SCHEMA"."drawgate_bucket"`,
		},
		"no role":     {url: func(t *testing.T) string { t.Helper(); return as(t, ready(t), "nobody") }, want: `login: role "nobody" does not exist`},
		"no database": {url: func(*testing.T) string { return strings.Replace(server.URL(), "/postgres?", "/none?", 1) }, want: `no-database: database "none" does not exist`},
		"no server":   {url: func(*testing.T) string { return "postgres://u:hunter2@127.0.0.1:1/db" }, want: "unreachable: "},
		"read only": {
			url: func(t *testing.T) string {
				t.Helper()
				return ready(t) + "&options=-c%20default_transaction_read_only%3Don"
			},
			want: "read-only: the server takes no writes",
		},
		"forgetful": {
			url:      func(t *testing.T) string { t.Helper(); return ready(t) + "&synchronous_commit=off" },
			warnings: "loss",
		},
		"a pooler": {
			url: func(t *testing.T) string {
				t.Helper()
				return server.Pooler(t, ready(t))
			},
			warnings: "notifications",
		},
		"a pooler, and the server itself": {
			url: func(t *testing.T) string {
				t.Helper()
				return server.Pooler(t, ready(t)) + "&listen=" + server.Addr
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := c.url(t)
			list, err := pgstore.CheckTables(t.Context(), at, "")
			// The machine may be so slow that a notification takes longer than a check waits.
			for range 10 {
				if c.warnings == pgstore.CodeListen || !slices.Contains(warned(list), pgstore.CodeListen) {
					break
				}
				list, err = pgstore.CheckTables(t.Context(), at, "")
			}
			if err != nil {
				t.Fatal(err)
			}
			want := strings.ReplaceAll(c.want, "SCHEMA", schema(at))
			if got := strings.Join(serious(list), "; "); got != want &&
				(!strings.HasSuffix(want, ": ") || !strings.HasPrefix(got, want)) {
				t.Errorf("got %s, want %s", got, want)
			}
			if got := strings.Join(warned(list), " "); got != c.warnings {
				t.Errorf("warnings %s, want %s", got, c.warnings)
			}
			for _, f := range list {
				if f.Message == "" || f.Advice == "" || strings.Contains(f.Message, "hunter2") {
					t.Errorf("%+v", f)
				}
			}
		})
	}
}

// TestStandbysAreWarnedOf: commits do not wait for those that follow, so one that takes the place
// of the server may have forgotten answers.
func TestStandbysAreWarnedOf(t *testing.T) {
	needs.NoRace(t) // the others are for goroutines
	t.Parallel()
	server := pgtest.Start(t, "fsync=on", "full_page_writes=on")
	standby := server.Standby(t)
	if _, err := pgstore.CreateTables(t.Context(), server.URL(), ""); err != nil {
		t.Fatal(err)
	}
	list, err := pgstore.CheckTables(t.Context(), server.URL(), "")
	if got := strings.Join(warned(list), " "); err != nil || got != "loss" || len(list) != 1 ||
		!strings.Contains(list[0].Message, "standbys copy the server with a delay") {
		t.Errorf("got %+v, %v", list, err)
	}
	for end := time.Now().Add(time.Minute); standby.Do("SELECT to_regclass('drawgate_document')") == "" && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	list, err = pgstore.CheckTables(t.Context(), standby.URL(), "")
	if got := strings.Join(serious(list), "; "); err != nil || !strings.Contains(got, "read-only: the server takes no writes") {
		t.Errorf("the standby: got %s, %v", got, err)
	}
}

// TestPasswordOfAFile: it is read before each connection, because it may change.
func TestPasswordOfAFile(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	server.Do("CREATE ROLE guest LOGIN SUPERUSER PASSWORD 'first'; COPY (VALUES ('host all guest 127.0.0.1/32 scram-sha-256'), " +
		"('host all all 127.0.0.1/32 trust')) TO '" + server.Do("SHOW hba_file") + "'; SELECT pg_reload_conf()")
	file := filepath.Join(t.TempDir(), "password")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("wrong\n")
	s := open(t, as(t, server.Schema(t), "guest")+"&password_file="+file, nil)
	err := s.Ping(t.Context())
	if e, ok := errors.AsType[*store.Error](err); !ok || e.Fault != store.FaultConfiguration || !strings.Contains(err.Error(), "the server refuses the password") {
		t.Errorf("with a wrong password: %v", err)
	}
	write("first\n")
	if err := s.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	server.Do("ALTER ROLE guest PASSWORD 'second'; SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'guest'")
	write("second")
	if err := s.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

func ExampleGrantsSQL() {
	text, err := pgstore.GrantsSQL("postgres://app@db/quotas?schema=limits", "", pgstore.GrantOptions{})
	fmt.Println(text, err)
	// Output:
	// GRANT CONNECT ON DATABASE "quotas" TO "app";
	// GRANT USAGE ON SCHEMA "limits" TO "app";
	// GRANT SELECT, INSERT, UPDATE, DELETE ON "limits"."drawgate_setting", "limits"."drawgate_bucket", "limits"."drawgate_history", "limits"."drawgate_document" TO "app";
	//  <nil>
}
