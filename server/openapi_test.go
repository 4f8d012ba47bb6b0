package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"github.com/google/go-cmp/cmp"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/engine/rules"
	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/server"
	"github.com/drawgate/drawgate/store/memstore"
)

// document loads api/openapi.json, and checks it.
func document(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData([]byte(api.OpenAPI()))
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return doc
}

// everyRoute has all that a server can serve.
func everyRoute(t *testing.T) *server.Server {
	t.Helper()
	return setup{options: &server.Options{Metrics: http.NotFoundHandler()}}.make(t)
}

func TestOpenAPIDescribesEveryRoute(t *testing.T) {
	t.Parallel()
	var described, served []string
	for path, item := range document(t).Paths.Map() {
		admin := len(item.Servers) > 0
		for method, op := range item.Operations() {
			line := method + " " + path
			for _, need := range *op.Security {
				for _, roles := range need {
					line += " " + strings.Join(roles, ",")
				}
			}
			if admin {
				line += " admin listener"
			}
			described = append(described, line)
		}
	}
	for _, r := range everyRoute(t).Routes() {
		for _, m := range r.Methods {
			line := strings.TrimRight(m+" "+r.Path+" "+string(r.Role), " ")
			if r.Admin {
				line += " admin listener"
			}
			served = append(served, line)
		}
	}
	slices.Sort(described)
	slices.Sort(served)
	if diff := cmp.Diff(described, served); diff != "" {
		t.Errorf("(-described +served)\n%s", diff)
	}
}

// The documentation of package api lists every path that is served, with its methods, but for
// metrics, which have a format of their own.
func TestPackageListsEveryPath(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../api/api.go")
	if err != nil {
		t.Fatal(err)
	}
	list, _, _ := strings.Cut(string(text), "\npackage api")
	for _, r := range everyRoute(t).Routes() {
		for _, m := range r.Methods {
			if r.Path != "/metrics" &&
				!regexp.MustCompile(`(?m)^//\t(`+m+`)? +`+regexp.QuoteMeta(r.Path)+` `).MatchString(list) {
				t.Errorf("%s %s is missing", m, r.Path)
			}
		}
	}
}

// schemas are the types that the document describes, by the names that it has for them.
var schemas = map[string]any{
	"Bucket": api.Bucket{}, "Attributes": api.Attributes{}, "Take": api.Take{}, "LimitName": api.LimitName{},
	"Limit": api.Limit{}, "Applied": api.Applied{},
	"Shadow": api.Shadow{}, "Answer": api.Answer{}, "SettleRequest": api.SettleRequest{},
	"SettleAnswer": api.SettleAnswer{}, "StatusRequest": api.StatusRequest{},
	"LimitStatus": api.LimitStatus{}, "StatusAnswer": api.StatusAnswer{}, "ExplainRequest": api.ExplainRequest{},
	"Explanation":   api.Explanation{},
	"ExplainAnswer": api.ExplainAnswer{}, "LimitSpec": api.LimitSpec{}, "Policy": api.Policy{},
	"PoliciesAnswer": api.PoliciesAnswer{},
	"DisableRequest": api.DisableRequest{}, "BucketsAnswer": api.BucketsAnswer{}, "UsageAnswer": api.UsageAnswer{},
	"BucketUsage": api.BucketUsage{}, "LimitUse": api.LimitUse{}, "ResetRequest": api.ResetRequest{},
	"ResetAnswer":     api.ResetAnswer{},
	"UpstreamsAnswer": api.UpstreamsAnswer{}, "Upstream": api.Upstream{}, "Calls": api.Calls{},
	"Circuit": api.Circuit{}, "Quota": api.Quota{},
	"PauseRequest": api.PauseRequest{}, "PauseAnswer": api.PauseAnswer{}, "Pause": api.Pause{},
	"UnpauseRequest": api.UnpauseRequest{}, "UnpauseAnswer": api.UnpauseAnswer{},
	"AdjustRequest": api.AdjustRequest{}, "AdjustAnswer": api.AdjustAnswer{}, "Event": api.Event{},
	"ReloadAnswer": api.ReloadAnswer{}, "Health": api.Health{}, "StoreHealth": api.StoreHealth{},
	"PolicyHealth": api.PolicyHealth{}, "Problem": api.Problem{},
	"ProviderLimit": api.ProviderLimit{}, "IncidentTake": api.IncidentTake{}, "IncidentSum": api.IncidentSum{},
	"Incident":        api.Incident{},
	"IncidentsAnswer": api.IncidentsAnswer{}, "ProgressLine": api.ProgressLine{}, "Progress": api.Progress{},
	"WaitingAnswer": api.WaitingAnswer{}, "WaitingLine": api.WaitingLine{}, "LineEntry": api.LineEntry{},
	"RefusalsAnswer": api.RefusalsAnswer{}, "Refusal": api.Refusal{},
	"Key": api.Key{}, "KeySecret": api.KeySecret{}, "KeyWithSecret": api.KeyWithSecret{},
	"KeysAnswer":       api.KeysAnswer{},
	"CreateKeyRequest": api.CreateKeyRequest{}, "ChangeKeyRequest": api.ChangeKeyRequest{},
	"RotateKeyRequest": api.RotateKeyRequest{}, "KeyEvent": api.KeyEvent{}, "KeyField": api.KeyField{},
	"KeyEventsAnswer": api.KeyEventsAnswer{},
	"SpendAnswer":     api.SpendAnswer{}, "SpendRow": api.SpendRow{}, "SpendUnits": api.SpendUnits{},
}

// The document has every field of every type, and no other.
func TestOpenAPIDescribesEveryField(t *testing.T) {
	t.Parallel()
	doc := document(t)
	for name, v := range schemas {
		ref := doc.Components.Schemas[name]
		if ref == nil {
			t.Errorf("%s is not described", name)
			continue
		}
		var described []string
		for field := range ref.Value.Properties {
			described = append(described, field)
		}
		slices.Sort(described)
		want := fields(reflect.TypeOf(v))
		slices.Sort(want)
		if diff := cmp.Diff(want, described); diff != "" {
			t.Errorf("%s: (-type +document)\n%s", name, diff)
		}
	}
	for name := range doc.Components.Schemas {
		if _, ok := schemas[name]; !ok && !slices.Contains([]string{
			"Costs", "Batch", "TakeRequest", "Answers",
			"TakeAnswer",
		}, name) {
			t.Errorf("%s is no type of ours", name)
		}
	}
}

// fields returns the names that JSON has for the fields of a type.
func fields(t reflect.Type) (names []string) {
	for f := range t.Fields() {
		if f.Anonymous {
			names = append(names, fields(f.Type)...)
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

// Every code of a problem is in the document.
func TestOpenAPINamesEveryCode(t *testing.T) {
	t.Parallel()
	code := document(t).Components.Schemas["Problem"].Value.Properties["code"].Value
	var named []string
	for _, c := range code.Examples {
		named = append(named, c.(string))
	}
	var want []string
	for _, c := range server.Codes() {
		want = append(want, string(c))
	}
	slices.Sort(named)
	slices.Sort(want)
	if diff := cmp.Diff(want, named); diff != "" {
		t.Errorf("(-server +document)\n%s", diff)
	}
}

// checker asks a server, and holds what is asked and answered against the document.
type checker struct {
	t       *testing.T
	router  routers.Router
	handler http.Handler
	seen    map[string]bool // operations that were answered with 200
}

// ask sends a request. Where it is wrong by intent, bad says so, and the document must refuse it
// too.
func (c *checker) ask(method, path, body string, want int, bad bool) []byte {
	c.t.Helper()
	r := httptest.NewRequest(method, "http://localhost"+path, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	r.RemoteAddr = "127.0.0.1:1"
	if strings.HasPrefix(path, "/auth") {
		r.Header.Set("X-Forwarded-Uri", "/api/x")
		r.Header.Set("X-Forwarded-Method", "GET")
	}
	route, params, err := c.router.FindRoute(r)
	if err != nil {
		c.t.Fatalf("%s %s: %v", method, path, err)
	}
	in := &openapi3filter.RequestValidationInput{
		Request: r.Clone(c.t.Context()), PathParams: params, Route: route,
		Options: &openapi3filter.Options{
			AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true,
			SkipSettingDefaults: true,
		},
	}
	in.Request.Body = io.NopCloser(strings.NewReader(body))
	if err := openapi3filter.ValidateRequest(c.t.Context(), in); (err != nil) != bad {
		c.t.Errorf("%s %s %s: the document says %v", method, path, body, err)
	}
	w := httptest.NewRecorder()
	c.handler.ServeHTTP(w, r)
	if w.Code != want {
		c.t.Errorf("%s %s %s: %d %s, want %d", method, path, body, w.Code, w.Body, want)
	}
	out := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: in, Status: w.Code, Header: w.Header(),
		Options: in.Options,
	}
	if method != http.MethodHead {
		out.SetBodyBytes(bytes.Clone(w.Body.Bytes()))
		if err := openapi3filter.ValidateResponse(c.t.Context(), out); err != nil {
			c.t.Errorf("%s %s %s: %d %s: %v", method, path, body, w.Code, w.Body, err)
		}
	}
	if want == http.StatusOK {
		c.seen[route.Operation.OperationID] = true
	}
	return w.Body.Bytes()
}

// reservation takes and returns the token.
func (c *checker) reservation(body string) string {
	c.t.Helper()
	var a api.Answer
	if err := json.Unmarshal(c.ask("POST", "/v1/take", body, 200, false), &a); err != nil || a.Reservation == "" {
		c.t.Fatalf("%v in %+v", err, a)
	}
	return a.Reservation
}

// lastLine decodes the last line of what is sent line by line.
func lastLine(body io.Reader, _ http.Header, _ *openapi3.SchemaRef, _ openapi3filter.EncodingFn) (v any, err error) {
	for d := json.NewDecoder(body); err == nil; {
		err = d.Decode(&v)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return v, err
}

// Real questions and real answers of every operation are what the document says.
func TestOpenAPIHoldsForEveryAnswer(t *testing.T) {
	t.Parallel()
	openapi3filter.RegisterBodyDecoder(api.HistoryType, lastLine)
	doc := document(t)
	doc.Servers = nil
	for _, item := range doc.Paths.Map() {
		item.Servers = nil
	}
	router, err := gorillamux.NewRouter(doc)
	if err != nil {
		t.Fatal(err)
	}
	fail := false
	s := setup{
		config: engine.Config{
			Policies: append(enforced(policies()...), engine.Policy{Policy: policies()[0], Shadow: true}),
			Rules: []rules.Rule{
				{Name: "health", Match: rules.Match{Path: "/health"}, Exempt: true},
				{
					Name: "api", Match: rules.Match{Path: "/api/*"},
					Apply: []rules.Apply{{Policy: "tiers", Key: "ip"}, {Policy: "shadow", Key: "ip"}},
				},
			},
		},
		options: &server.Options{
			Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/plain")
				_, _ = io.WriteString(w, "up 1\n")
			}),
			Incidents: func() []api.Incident { return []api.Incident{incident("one", time.Now())} },
			Refusals: func() ([]api.Refusal, bool) {
				at := time.Now().UTC()
				return []api.Refusal{{
					Policy: "llm", Tenant: "t", Key: "k", Reason: "limited", Limit: "rpm",
					Unit: "requests", Count: 2, First: at, Last: at, Asked: 1, Max: 10, Fallback: true,
				}}, true
			},
			Upstreams: func() []api.Upstream {
				return []api.Upstream{{
					Name: "openai", Provider: "openai", Owner: "project",
					Calls: &api.Calls{
						Circuit: api.CircuitOpen, RetryAfterMS: 5000, UnderWay: 1,
						Circuits: []api.Circuit{{
							Model: "gpt-4o", Caller: "key a", State: api.CircuitOpen,
							RetryAfterMS: 5000,
						}, {State: api.CircuitHalfOpen}},
					},
					Quotas: []api.Quota{
						{Policy: "llm", Models: []string{"gpt-*"}},
						{Policy: "none", Models: []string{"o3"}},
					},
				}}
			},
			Keys:  keyBook(t, memstore.New(nil)),
			Spend: func() (server.Spend, bool) { return server.Spend{Money: "usd_micros", Zone: time.UTC}, true },
			Reload: func(context.Context) ([]string, error) {
				if fail {
					return nil, errors.New("line 3")
				}
				return []string{"store"}, nil
			},
		},
	}
	s.config.Policies[3].Name = "shadow"
	c := &checker{t: t, router: router, handler: s.make(t).AdminHandler(), seen: map[string]bool{}}
	c.takes()
	c.settlements()
	c.questions()
	c.administration()
	c.keys()
	fail = true
	c.ask("POST", "/v1/reload", "", 422, false)
	c.history()
	for _, item := range doc.Paths.Map() {
		for _, op := range item.Operations() {
			if !c.seen[op.OperationID] {
				t.Errorf("%s was not asked", op.OperationID)
			}
		}
	}
	c.handler = setup{store: downStore{memstore.New(nil)}}.make(t).AdminHandler()
	c.ask("POST", "/v1/take", `{"policy":"llm"}`, 503, false)
	c.ask("GET", "/readyz", "", 503, false)
	c.ask("POST", "/v1/reload", "", 501, false)
	c.ask("GET", "/v1/incidents", "", 501, false)
	c.ask("GET", "/v1/spend", "", 501, false)
	c.ask("GET", "/v1/keys", "", 501, false)
	c.ask("POST", "/v1/keys", `{"name":"alice"}`, 501, false)
	c.ask("GET", "/v1/incidents/last", "", 501, false)
	locked := &server.Options{Tokens: []server.Token{{
		Secret: strings.Repeat("s", 16),
		Roles:  []server.Role{server.RoleTake},
	}}}
	c.handler = setup{options: locked}.make(t).AdminHandler()
	c.ask("POST", "/v1/take", `{"policy":"llm"}`, 401, false)
	c.ask("GET", "/auth", "", 403, false)
}

func (c *checker) takes() {
	for body, want := range map[string]int{
		`{"policy":"llm","key":"k","costs":{"requests":1,"tokens":5},"priority":3,"labels":{"task":"embed"}}`:               200,
		`{"buckets":[{"policy":"llm","key":"k"},{"policy":"tiers","tenant":"t","key":"k"}],"wait_ms":1}`:                    200,
		`{"takes":[{"policy":"llm"},{"policy":"nope"},{"policy":"slots"}]}`:                                                 200,
		`{"attributes":{"method":"GET","path":"/api/x","host":"h","ip":"192.0.2.1","headers":{"a":"b"},"attrs":{"c":"d"}}}`: 200,
		`{"attributes":{"path":"/health"}}`:                         200,
		`{"attributes":{"path":"/"}}`:                               200,
		`{"policy":"nope"}`:                                         422,
		`{"policy":"slots"}`:                                        422,
		`{"policy":"llm","costs":{"tokens":1001}}`:                  422,
		`{"policy":"llm","key":"k","attributes":{"path":"/api/x"}}`: 422,
	} {
		c.ask("POST", "/v1/take", body, want, false)
	}
	for range 3 {
		c.ask("POST", "/v1/take", `{"attributes":{"path":"/api/x","ip":"192.0.2.2"},"costs":{"requests":1}}`, 200,
			false)
	}
	c.ask("POST", "/v1/take", `{"attributes":{"path":"/api/x","ip":"192.0.2.2"}}`, 200, false)
	for body, want := range map[string]int{
		`{"policy":"llm","wait_ms":-1}`: 422, `{"policy":"llm","priority":10}`: 422,
		`{"policy":"llm","costs":{"tokens":"5"}}`: 400, `{"nope":1}`: 400,
		`{"takes":[]}`: 422, `{"policy":"llm","takes":[{}]}`: 422, `[]`: 400,
		`{"policy":"llm","costs":{"tokens":-1}}`: 422,
	} {
		c.ask("POST", "/v1/take", body, want, true)
	}
	c.ask("POST", "/v1/take", `{"policy":"llm","key":"`+strings.Repeat("k", api.MaxBody)+`"}`, 413, false)
	c.reservation(`{"policy":"slots","hold_ms":60000,"id":"a","grant":"00000000000000a1"}`)
	c.reservation(`{"policy":"slots","hold_ms":60000,"id":"a","grant":"00000000000000a1"}`)
	c.ask("POST", "/v1/take", `{"policy":"slots","hold_ms":60001,"id":"a","grant":"00000000000000a1"}`, 409, false)
}

func (c *checker) settlements() {
	token := c.reservation(`{"policy":"llm","costs":{"tokens":5},"hold_ms":60000}`)
	for _, rest := range []string{`,"renew_ms":1000`, `,"used":{"tokens":3}`, ``, `,"cancel":true`} {
		c.ask("POST", "/v1/settle", `{"reservation":"`+token+`"`+rest+`}`, 200, false)
	}
	c.ask("POST", "/v1/settle", `{"reservation":"nonsense"}`, 422, false)
	c.ask("POST", "/v1/settle", `{"reservation":""}`, 422, true)
	c.ask("POST", "/v1/settle", `{}`, 422, true)
}

func (c *checker) questions() {
	for _, path := range []string{
		"/v1/status?policy=llm&key=k&priority=3", "/v1/status?policy=tiers&tenant=t&key=k",
		"/v1/policies", "/healthz", "/readyz", "/healthcheck", "/openapi.json", "/metrics",
	} {
		c.ask("GET", path, "", 200, false)
	}
	c.ask("GET", "/v1/status?policy=nope", "", 422, false)
	c.ask("POST", "/v1/status", `{"policy":"llm","key":"k","costs":{"tokens":2000}}`, 200, false)
	for _, body := range []string{
		`{"policy":"llm","key":"k"}`, `{"buckets":[{"policy":"llm"},{"policy":"slots"}],"priority":1}`,
		`{"attributes":{"path":"/api/x","ip":"192.0.2.2"}}`,
		`{"attributes":{"path":"/health"}}`, `{"attributes":{}}`,
	} {
		c.ask("POST", "/v1/explain", body, 200, false)
	}
	c.ask("POST", "/v1/explain", `{"policy":"nope"}`, 422, false)
	c.ask("GET", "/auth", "", 200, false)
	c.ask("HEAD", "/auth?status=403&route=r", "", 200, false)
	c.ask("GET", "/auth", "", 200, false)
	c.ask("GET", "/auth", "", 429, false)
	c.ask("GET", "/auth?status=403", "", 403, false)
	c.ask("GET", "/auth?status=401", "", 401, false)
	c.ask("GET", "/auth?status=500", "", 422, true)
}

func (c *checker) administration() {
	c.ask("POST", "/v1/policies/llm/disable", `{"for_ms":60000}`, 200, false)
	c.ask("GET", "/v1/policies", "", 200, false)
	c.ask("GET", "/readyz", "", 200, false)
	c.ask("POST", "/v1/take", `{"policy":"llm"}`, 200, false)
	c.ask("POST", "/v1/policies/llm/enable", "", 200, false)
	c.ask("POST", "/v1/policies/nope/enable", "", 422, false)
	c.ask("POST", "/v1/policies/llm/disable", `{}`, 422, false)
	c.ask("POST", "/v1/policies/llm/disable", `{"for_ms":0}`, 422, true)
	c.ask("GET", "/v1/waiting?policy=llm&tenant=t", "", 200, false)
	c.ask("GET", "/v1/waiting?policy=nope", "", 422, false)
	c.ask("GET", "/v1/waiting?key=k", "", 422, false)
	c.ask("GET", "/v1/refusals?policy=llm&tenant=&limit=10", "", 200, false)
	c.ask("GET", "/v1/refusals?limit=0", "", 422, true)
	c.ask("GET", "/v1/refusals?key=k", "", 422, false)
	c.ask("GET", "/v1/upstreams", "", 200, false)
	c.ask("GET", "/v1/upstreams?name=openai", "", 200, false)
	c.ask("GET", "/v1/upstreams?name=nobody", "", 422, false)
	c.ask("GET", "/v1/buckets?policy=llm&limit=1", "", 200, false)
	c.ask("GET", "/v1/buckets?policy=llm&limit=0", "", 422, true)
	c.ask("GET", "/v1/usage", "", 200, false)
	c.ask("GET", "/v1/usage?policy=llm&match=K&limit=2", "", 200, false)
	c.ask("GET", "/v1/usage?limit=1001", "", 422, true)
	c.ask("POST", "/v1/reset", `{"policy":"llm","keys":["a","b"]}`, 200, false)
	c.ask("POST", "/v1/reset", `{"policy":"llm","keys":[]}`, 422, true)
	c.ask("POST", "/v1/pause", `{"policy":"llm","key":"paused","for_ms":60000,"reason":"an incident"}`, 200, false)
	c.ask("GET", "/v1/status?policy=llm&key=paused", "", 200, false)
	c.ask("POST", "/v1/take", `{"policy":"llm","key":"paused"}`, 200, false)
	c.ask("POST", "/v1/pause", `{"policy":"llm"}`, 422, true)
	c.ask("POST", "/v1/pause", `{"policy":"llm","for_ms":1,"until":"2026-01-01T00:00:00Z"}`, 422, true)
	c.ask("POST", "/v1/pause", `{"policy":"llm","key":"paused","for_ms":1}`, 200, false)
	c.ask("POST", "/v1/unpause", `{"policy":"llm","key":"paused","until":"2026-01-01T00:00:00Z","reason":"a mistake"}`,
		200, false)
	c.ask("POST", "/v1/unpause", `{"policy":"llm","key":"unused","until":"2026-01-01T00:00:00Z"}`, 200, false)
	c.ask("POST", "/v1/unpause", `{"policy":"llm","key":"paused"}`, 422, true)
	c.ask("POST", "/v1/adjust", `{"policy":"llm","key":"k","limit":"rpm","used":3,"reason":"seen"}`, 200, false)
	c.ask("POST", "/v1/adjust", `{"policy":"llm","key":"k","limit":"none","used":3,"reason":"seen"}`, 422, false)
	c.ask("POST", "/v1/adjust", `{"policy":"llm","key":"k","limit":"rpm","reason":"seen"}`, 422, true)
	c.ask("GET", "/v1/incidents", "", 200, false)
	c.ask("GET", "/v1/spend?from=2026-11-01&to=2026-11-30&by=day,key&team=red", "", 200, false)
	c.ask("GET", "/v1/spend?by=week", "", 422, false)
	c.ask("GET", "/v1/incidents?since=2026-01-01T00:00:00Z", "", 200, false)
	c.ask("GET", "/v1/incidents?before=now", "", 422, false)
	c.ask("GET", "/v1/incidents/last", "", 200, false)
	c.ask("GET", "/v1/incidents/none", "", 422, false)
	c.ask("POST", "/v1/reload", "", 200, false)
}

func (c *checker) keys() {
	c.ask("POST", "/v1/keys", `{"name":"alice","team":"red","user":"u","class":"c","priority":3,"models":["openai/*"],`+
		`"others":["openai/v1/files"],"paths":["openai/*"],"addresses":["10.0.0.0/8"],"expires":"2030-01-01T00:00:00Z",`+
		`"limits":{"llm":{"rpm":5}},"disabled":true}`, 200, false)
	c.ask("POST", "/v1/keys", `{"name":"bob","limits":{"llm":{"rpm":0}}}`, 422, true)
	c.ask("POST", "/v1/keys", `{"name":"alice"}`, 409, false)
	c.ask("POST", "/v1/keys", `{"name":""}`, 422, true)
	c.ask("POST", "/v1/keys", `{"name":"corp#bob"}`, 422, false)
	c.ask("POST", "/v1/keys", `{"name":"bob","sha256":"00"}`, 400, true)
	c.ask("POST", "/v1/keys", `{"name":"bob","priority":10}`, 422, true)
	c.ask("GET", "/v1/keys", "", 200, false)
	c.ask("GET", "/v1/keys/alice", "", 200, false)
	c.ask("GET", "/v1/keys/bob", "", 404, false)
	c.ask("PUT", "/v1/keys/alice", `{"version":1,"team":"blue"}`, 200, false)
	c.ask("PUT", "/v1/keys/alice", `{"version":1,"team":"green"}`, 409, false)
	c.ask("PUT", "/v1/keys/bob", `{"version":1}`, 404, false)
	c.ask("POST", "/v1/keys/alice/rotate", `{"until":"2030-01-01T00:00:00Z"}`, 200, false)
	c.ask("POST", "/v1/keys/alice/rotate", `{}`, 422, true)
	c.ask("POST", "/v1/keys/alice/disable", "", 200, false)
	c.ask("POST", "/v1/keys/alice/enable", "", 200, false)
	c.ask("POST", "/v1/keys/bob/enable", "", 404, false)
	c.ask("GET", "/v1/history/keys?key=alice&last=10", "", 200, false)
	c.ask("GET", "/v1/history/keys?last=0", "", 422, true)
	c.ask("GET", "/v1/history/keys?since=now", "", 422, false)
	c.ask("DELETE", "/v1/keys/alice", "", 200, false)
	c.ask("DELETE", "/v1/keys/alice", "", 404, false)
}

func (c *checker) history() {
	c.ask("GET", "/v1/history", "", 501, false)
	c.handler = setup{store: sqlite(c.t)}.make(c.t).AdminHandler()
	c.ask("POST", "/v1/adjust", `{"policy":"llm","limit":"rpm","used":3,"reason":"seen"}`, 200, false)
	c.ask("GET", "/v1/history?last=3&op=charge&label=reason=seen&label=limit=rpm&since=2026-01-01T00:00:00Z", "", 200,
		false)
	c.ask("GET", "/v1/history?last=0", "", 422, true)
}

// TestOpenAPIKnowsHowLongALineIs: clients that check answers would refuse those of longer lines.
func TestOpenAPIKnowsHowLongALineIs(t *testing.T) {
	t.Parallel()
	schemas := document(t).Components.Schemas
	line := schemas["StatusAnswer"].Value.Properties["line"].Value
	tickets := schemas["WaitingLine"].Value.Properties["tickets"].Value
	if line.MaxItems == nil || *line.MaxItems != record.MaxTickets || tickets.Max == nil ||
		*tickets.Max != record.MaxTickets {
		t.Errorf("at most %v entries and %v tickets, want %d", line.MaxItems, tickets.Max, record.MaxTickets)
	}
}
