package server_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/internal/syncbuffer"
	"github.com/drawgate/drawgate/server"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/memstore"
	"github.com/drawgate/drawgate/virtualkey"
)

var madeSecrets atomic.Int64

// keyBook returns the keys of a store.
func keyBook(t *testing.T, s store.Store) *virtualkey.Book {
	t.Helper()
	b, err := virtualkey.Open(t.Context(), s, func() string { return fmt.Sprint("dg_secret_", madeSecrets.Add(1)) },
		nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// token is an access token of a test.
func accessToken(name, tenant string, role server.Role) server.Token {
	return server.Token{
		Name: name, Secret: "secret-of-" + name + "-0123456789", Roles: []server.Role{role},
		Tenant: tenant,
	}
}

// status sends a request with an access token, and returns the status of the answer.
func (f fixture) status(method, path, body, token string) int {
	f.t.Helper()
	req, err := http.NewRequestWithContext(f.t.Context(), method, f.url+path, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer secret-of-"+token+"-0123456789")
	}
	res, err := (&http.Client{Transport: f.web}).Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	_ = res.Body.Close()
	return res.StatusCode
}

// TestOnlyAdministratorsChangeKeys: neither other roles, nor administrators of one tenant, nor
// virtual keys themselves see or change any key.
func TestOnlyAdministratorsChangeKeys(t *testing.T) {
	t.Parallel()
	book := keyBook(t, memstore.New(nil))
	log := &syncbuffer.Buffer{}
	f := setup{options: &server.Options{
		Keys: book, Logger: slog.New(slog.NewTextHandler(log, nil)),
		Tokens: []server.Token{
			accessToken("ops", "", server.RoleAdmin), accessToken("bound", "t", server.RoleAdmin),
			accessToken("reader", "", server.RoleRead), accessToken("taker", "", server.RoleTake),
		},
	}}.start(t)
	k, secret, err := book.Create(t.Context(), "", "alice", api.KeySettings{})
	if err != nil {
		t.Fatal(err)
	}
	requests := []struct{ method, path, body string }{
		{"GET", "/v1/keys", ""},
		{"POST", "/v1/keys", `{"name":"bob"}`},
		{"GET", "/v1/keys/alice", ""},
		{"PUT", "/v1/keys/alice", fmt.Sprintf(`{"version":%d,"team":"red"}`, k.Version)},
		{"POST", "/v1/keys/alice/rotate", `{"until":"2030-01-01T00:00:00Z"}`},
		{"POST", "/v1/keys/alice/disable", ""},
		{"POST", "/v1/keys/alice/enable", ""},
		{"GET", "/v1/history/keys", ""},
		{"DELETE", "/v1/keys/alice", ""},
	}
	for _, q := range requests {
		for token, want := range map[string]int{"": 401, "nobody": 401, "bound": 403, "reader": 403, "taker": 403} {
			if got := f.status(q.method, q.path, q.body, token); got != want {
				t.Errorf("%s %s as %q: %d, want %d", q.method, q.path, token, got, want)
			}
		}
		req, _ := http.NewRequestWithContext(t.Context(), q.method, f.url+q.path, strings.NewReader(q.body))
		req.Header.Set("Authorization", "Bearer "+secret)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s %s with a virtual key: %d", q.method, q.path, res.StatusCode)
		}
	}
	if events, err := book.Events(t.Context(), "", 10); err != nil || len(events) != 1 {
		t.Errorf("somebody changed something: %+v, %v", events, err)
	}
	for _, q := range requests {
		if got := f.status(q.method, q.path, q.body, "ops"); got != http.StatusOK {
			t.Errorf("%s %s as an administrator: %d", q.method, q.path, got)
		}
	}
	events, err := book.Events(t.Context(), "", 10)
	if err != nil || len(events) != 7 || events[0].By != "ops" || events[0].Op != api.KeyDeleted {
		t.Errorf("the history: %+v, %v", events, err)
	}
	if text := log.String(); strings.Contains(text, "dg_") {
		t.Errorf("the log has a secret: %s", text)
	}
	// The address for everybody has none of these paths.
	public := fixture{t: t, url: "http://localhost", srv: f.srv, web: direct{f.srv}}
	for _, q := range requests {
		if got := public.status(q.method, q.path, q.body, "ops"); got < 400 {
			t.Errorf("%s %s is served to everybody: %d", q.method, q.path, got)
		}
	}
}

// TestHostileBodiesOfKeys: whatever is not understood is refused, and changes nothing.
func TestHostileBodiesOfKeys(t *testing.T) {
	t.Parallel()
	book := keyBook(t, memstore.New(nil))
	f := setup{options: &server.Options{Keys: book}}.start(t)
	var made api.KeyWithSecret
	if got := f.do("POST", "/v1/keys", `{"name":"alice","models":["openai/*"]}`, &made); got != 200 || made.Secret == "" ||
		made.Version != 1 || len(made.Secrets) != 1 {
		t.Fatalf("%d %+v", got, made)
	}
	var p api.Problem
	for _, body := range []string{
		``, `[]`, `null`, `{`, `{"name":"bob"}{}`, `{"name":"bob","Team":"x"}`, `{"name":"bob","name":"eve"}`,
		`{"name":"bob","secret":"dg_mine-0123456789abcdef"}`, `{"name":"bob","secrets":[]}`, `{"name":5}`,
		`{"name":"bob","expires":"tomorrow"}`, `{"name":"bob","expires":"0001-01-01T00:00:00Z"}`,
		`{"name":"bob","priority":-1}`, `{"name":"bob","priority":1e99}`, `{"name":"b\u0000ob"}`, `{"name":"\ud800"}`,
		"{\"name\":\"b\xffob\"}", `{"name":"bob","models":[` + strings.Repeat(`"a",`, 200) + `"a"]}`,
		`{"name":"bob","models":"openai/*"}`, `{"name":"bob","models":[null]}`, `{"name":"bob","addresses":["::1/129"]}`,
		`{"name":"` + strings.Repeat("n", 1<<20) + `"}`, `{"name":"bob","version":1}`,
		strings.Repeat(`{"name":`, 100) + `1` + strings.Repeat(`}`, 100),
	} {
		if got := f.do("POST", "/v1/keys", body, &p); got < 400 || got > 422 {
			t.Errorf("create %.60q: %d %s", body, got, p.Detail)
		}
	}
	for _, body := range []string{
		``, `{}`, `{"version":0}`, `{"version":2}`, `{"version":1,"name":"bob"}`,
		`{"version":"1"}`,
	} {
		if got := f.do("PUT", "/v1/keys/alice", body, &p); got < 400 || got > 422 {
			t.Errorf("change %.60q: %d %s", body, got, p.Detail)
		}
	}
	for _, body := range []string{``, `{}`, `{"until":null}`, `{"until":1}`, `{"until":"9999-99-99T00:00:00Z"}`} {
		if got := f.do("POST", "/v1/keys/alice/rotate", body, &p); got < 400 || got > 422 {
			t.Errorf("rotate %.60q: %d %s", body, got, p.Detail)
		}
	}
	for _, path := range []string{
		"/v1/keys/bob", "/v1/keys/%23", "/v1/keys/a%2Fb", "/v1/keys/key:alice",
		"/v1/keys/..%2Fhead",
	} {
		if got := f.do("GET", path, "", &p); got != http.StatusNotFound || p.Code != api.CodeUnknownKey {
			t.Errorf("%s: %d %s", path, got, p.Code)
		}
	}
	var all api.KeysAnswer
	if f.do("GET", "/v1/keys", "", &all); len(all.Keys) != 1 || all.Keys[0].Version != 1 ||
		all.Keys[0].Name != "alice" {
		t.Errorf("%+v", all)
	}
}

// TestKeysWhileTheStoreIsAway are neither shown nor changed: 503.
func TestKeysWhileTheStoreIsAway(t *testing.T) {
	t.Parallel()
	s := &awayDocuments{Store: memstore.New(nil)}
	log := &syncbuffer.Buffer{}
	f := setup{options: &server.Options{
		Keys: keyBook(t, s), Logger: slog.New(slog.NewTextHandler(log, nil)),
	}}.start(t)
	var p api.Problem
	f.do("POST", "/v1/keys", `{"name":"alice"}`, &p)
	s.down.Store(true)
	for _, q := range []struct{ method, path, body string }{
		{"GET", "/v1/keys", ""},
		{"POST", "/v1/keys", `{"name":"bob"}`},
		{"POST", "/v1/keys/alice/disable", ""},
		{"GET", "/v1/history/keys", ""},
	} {
		if got := f.do(q.method, q.path, q.body, &p); got != http.StatusServiceUnavailable ||
			p.Code != api.CodeStoreUnavailable || strings.Contains(p.Detail, "10.0.0.1") {
			t.Errorf("%s %s: %d %+v", q.method, q.path, got, p)
		}
	}
	if text := log.String(); !strings.Contains(text, "10.0.0.1") {
		t.Errorf("the log does not say why: %s", text)
	}
}

// awayDocuments is a store that can be away.
type awayDocuments struct {
	*memstore.Store
	down atomic.Bool
}

func (s *awayDocuments) ReadDocuments(ctx context.Context, c string, names []string) ([]store.Document, error) {
	if s.down.Load() {
		return nil, &store.Error{Store: "test", Op: "read", Err: fmt.Errorf("dial 10.0.0.1: refused at %v", time.Now())}
	}
	return s.Store.ReadDocuments(ctx, c, names)
}

// TestKeyThatIsNotUnderstoodIsDeleted: as the error says that one gets who looks at it.
func TestKeyThatIsNotUnderstoodIsDeleted(t *testing.T) {
	t.Parallel()
	s := memstore.New(nil)
	before := keyBook(t, s)
	if _, _, err := before.Create(t.Context(), "", "alice", api.KeySettings{}); err != nil {
		t.Fatal(err)
	}
	before.Close()
	head, err := s.ReadDocuments(t.Context(), "keys", []string{"head"})
	if err != nil {
		t.Fatal(err)
	}
	newer := []store.Document{{Name: "key:alice", Value: []byte(`{"name":"alice","budget":5}`)}}
	if done, err := s.WriteDocuments(t.Context(), "keys", head[0], newer); !done || err != nil {
		t.Fatal(done, err)
	}
	f := setup{options: &server.Options{
		Keys: keyBook(t, s), Tokens: []server.Token{accessToken("ops", "", server.RoleAdmin)},
	}}.start(t)
	for _, c := range []struct {
		method string
		want   int
	}{{"GET", http.StatusServiceUnavailable}, {"DELETE", http.StatusOK}, {"GET", http.StatusNotFound}} {
		if got := f.status(c.method, "/v1/keys/alice", "", "ops"); got != c.want {
			t.Errorf("%s: got %d, want %d", c.method, got, c.want)
		}
	}
}
