package rls_test

import (
	"cmp"
	"debug/buildinfo"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/rls"
)

// The answers of envoyproxy/ratelimit's own server to the scenarios below are kept in
// testdata/ratelimit, and ours are compared with them. To ask it again, with redis-server in the
// PATH:
//
//	GOBIN=/tmp go install github.com/envoyproxy/ratelimit/src/service_cmd@v1.4.1-0.20260122083618-3fb702589d36
//	go test ./rls -run TestAnswersOfEnvoyproxyRatelimit -ratelimit /tmp/service_cmd
var (
	theirServer = flag.String("ratelimit", "",
		"a built server of envoyproxy/ratelimit, whose answers are written into testdata/ratelimit")
	theirName = flag.String("ratelimit-name", "",
		"what that server is called in the file, where it is no released build")
	theirFile = flag.String("ratelimit-file", pinned, "the file; scenarios of other files are not asked")
)

// The files. Wildcards elsewhere than at the end came after the version that can be installed as
// above: the server of the second file is that version with the matching of commit 759083401cf4 in
// src/config/config_impl.go (wildcardMatch, and what calls it). A checkout of that commit serves as
// well.
const (
	pinned = "3fb702589d36.json"
	later  = "759083401cf4.json"
)

// scenario is what both servers are asked.
type scenario struct {
	name  string
	file  string            // of the answers; "" is pinned
	files map[string]string // by path; "-> target" is a link
	down  bool              // the store is unavailable
	ask   []*ratelimit.RateLimitRequest
}

// one is a directory with one file.
func one(text string) map[string]string { return map[string]string{"config.yaml": text} }

// twice asks for each of the descriptors twice.
func twice(domain string, texts ...string) (list []*ratelimit.RateLimitRequest) {
	for _, text := range texts {
		r := request(domain, descriptor(text))
		list = append(list, r, r)
	}
	return list
}

func nine() *ratelimit.RateLimitRequest {
	r := request("d")
	for i := range 9 {
		r.Descriptors = append(r.Descriptors, descriptor(fmt.Sprintf("part%d=x", i)))
	}
	return r
}

func scenarios() []scenario {
	parts := "domain: d\ndescriptors:\n"
	for i := range 9 {
		parts += fmt.Sprintf("  - {key: part%d, rate_limit: {unit: day, requests_per_unit: %d}}\n", i, 100-98*(i/8))
	}
	const wild = `
domain: d
descriptors:
  - {key: end, value: a*, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: shared, value: s/*, share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: x-*, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: z-*, share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: order, value: a*, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: order, value: ab*, rate_limit: {unit: hour, requests_per_unit: 2}}
  - {key: order, value: abc, rate_limit: {unit: hour, requests_per_unit: 3}}
  - {key: order, rate_limit: {unit: hour, requests_per_unit: 4}}
`
	const users = "domain: d\ndescriptors:\n  - {key: user, rate_limit: {unit: minute, requests_per_unit: 2}}\n  - {key: all, rate_limit: {unit: day, requests_per_unit: 100}}\n"
	domain := func(name string) string {
		return `{"domain": "` + name +
			`", "descriptors": [{"key": "k", "rate_limit": {"unit": "hour", "requests_per_unit": 1}}]}`
	}
	user := request("d", descriptor("user=ann"))
	return []scenario{
		{name: "E1: a * at the end", files: one(wild), ask: twice("d", "end=a", "end=ab", "end=b", "shared=s/a",
			"shared=s/b", "x-=1", "x-a=1", "x-a=2",
			"x=1", "z-a=1", "z-a=2", "z-b=1", "order=abd", "order=abc", "order=b")},
		{name: "E1: a * anywhere", file: later, files: one(wild + `
  - {key: mid, value: a*z, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: host, value: "*.example.com", rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: two, value: a*b*, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: all, value: "*", rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: api, value: /api/*/items, share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: y-*-end, value: v, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: w*w, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: v*, value: a*c, share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - key: tenant
    value: t*prod
    share_threshold: true
    descriptors:
      - {key: user, value: "*@*", rate_limit: {unit: hour, requests_per_unit: 1}}
`), ask: twice("d", "end=ab", "shared=s/b", "x-a=1", "z-a=2", "order=abd", "order=abc", "order=b",
			"mid=az", "mid=abcz", "mid=a*z", "mid=a", "mid=bcz", "mid=azq", "mid=", "host=.example.com",
			"host=www.example.com", "host=example.com",
			"host=www.example.com.evil", "two=ab", "two=a1b2", "two=ba", "two=a", "all=", "all=x", "api=/api/v1/items",
			"api=/api/v2/items", "api=/api/items",
			"api=/api/v1/items/9", "y-k-end=v", "y-l-end=v", "y--end=w", "y-end=v", "w1=2w", "w1w=2", "ww=w", "w*w=2",
			"va=abc", "va=adc", "vb=abc", "va=ab",
			"tenant=t1prod,user=a@b", "tenant=t2prod,user=a@b", "tenant=tprod,user=c@d", "tenant=tproduct,user=a@b",
			"tenant=t1prod,user=ab")},
		{
			name: "E2: nine limited descriptors", files: one(parts),
			ask: []*ratelimit.RateLimitRequest{nine(), nine(), nine()},
		},
		{name: "E3: the store is unavailable", files: one(users), down: true, ask: []*ratelimit.RateLimitRequest{user}},
		{name: "E6: files of any name", files: map[string]string{
			"plain": domain("plain"), "a.json": domain("json"), ".hidden": domain("hidden"),
			"below/deep/b.yaml": domain("deep"), ".git/config": domain("dotted"),
			"link.yaml": "-> ../beside", "../beside": domain("text"), "folder": "-> below",
			"nothing.yaml": "-> nowhere",
		}, ask: append(append(append(append(append(append(twice("plain", "k=1"), twice("json", "k=1")...),
			twice("hidden", "k=1")...), twice("deep", "k=1")...),
			twice("dotted", "k=1")...), twice("text", "k=1")...), twice("other", "k=1")...)},
		{name: "E7: resets", files: one(users), ask: []*ratelimit.RateLimitRequest{
			user, user, user,
			request("d", descriptor("all=x")),
		}},
		{name: "E8: more hits than the limit", files: one(users), ask: []*ratelimit.RateLimitRequest{
			request("d", hits(descriptor("user=ann"), 3)), request("d", descriptor("all=x"),
				hits(descriptor("user=bob"), 1000)),
			request("d", hits(descriptor("all=y"), 101), descriptor("user=cid")),
		}},
	}
}

// recorded is what a server answered.
type recorded struct {
	Server    string
	Scenarios map[string]recording
}

// recording is what it answered to a scenario, and when.
type recording struct {
	At      time.Duration // since midnight, UTC
	Answers []reply
}

// reply is what is compared of an answer.
type reply struct {
	Error    string `json:",omitempty"` // gRPC code
	Code     string `json:",omitempty"`
	Statuses []answerStatus
	Headers  map[string]string `json:",omitempty"`
}

type answerStatus struct {
	Status    string
	Limit     string `json:",omitempty"`
	Remaining uint32
	Reset     string `json:",omitempty"`
}

// answerOf returns what an answer says.
func answerOf(a *ratelimit.RateLimitResponse, err error) (o reply) {
	if err != nil {
		return reply{Error: status.Code(err).String()}
	}
	o.Code = a.GetOverallCode().String()
	for _, s := range a.GetStatuses() {
		st := answerStatus{Status: s.GetCode().String(), Remaining: s.GetLimitRemaining()}
		if l := s.GetCurrentLimit(); l != nil {
			st.Limit = fmt.Sprint(l.GetRequestsPerUnit(), " per ", l.GetUnit())
		}
		if d := s.GetDurationUntilReset(); d != nil {
			st.Reset = d.AsDuration().String()
		}
		o.Statuses = append(o.Statuses, st)
	}
	for _, name := range []string{"RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"} {
		if value := header(a, name); value != "" {
			if o.Headers == nil {
				o.Headers = map[string]string{}
			}
			o.Headers[name] = value
		}
	}
	return o
}

// comparable returns the answer without what differs on purpose: which error it is, and what a
// refusal leaves, as there it spends.
func (o reply) comparable() string {
	if o.Error != "" {
		return "an error"
	}
	left := func(n string) string {
		if o.Code != ok.String() {
			return "some"
		}
		return n
	}
	text := o.Code
	for _, s := range o.Statuses {
		text += fmt.Sprintf("; %s, %s, %s left, reset %s", s.Status, s.Limit, left(fmt.Sprint(s.Remaining)), s.Reset)
	}
	return fmt.Sprintf("%s; %s, %s, %s", text, o.Headers["RateLimit-Limit"], left(o.Headers["RateLimit-Remaining"]),
		o.Headers["RateLimit-Reset"])
}

// TestAnswersOfEnvoyproxyRatelimit: what its own server answers, ours answers.
//
// req: B2, E1
func TestAnswersOfEnvoyproxyRatelimit(t *testing.T) {
	t.Parallel()
	if *theirServer != "" {
		record(t)
	}
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			file := read(t, cmp.Or(s.file, pinned))
			theirs, found := file.Scenarios[s.name]
			if !found || len(theirs.Answers) != len(s.ask) {
				t.Fatalf("%d answers, want %d: ask the server again", len(theirs.Answers), len(s.ask))
			}
			dir := filepath.Join(t.TempDir(), "config")
			layOut(t, dir, s.files)
			c, err := rls.Load([]string{dir}, &rls.ConfigOptions{Windows: rls.Aligned})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) { // from midnight on
				store := memory(t)
				if s.down {
					store = marking{store}
				}
				srv, _ := service(t, store, c, &rls.Options{Headers: rls.HeadersLegacy, StoreErrors: true})
				time.Sleep(theirs.At)
				for i, r := range s.ask {
					a, err := srv.ShouldRateLimit(t.Context(), r)
					if got, want := answerOf(a, err).comparable(), theirs.Answers[i].comparable(); got != want {
						t.Errorf("request %d, %v:\n got %s (%v)\nwant %s, as %s answers", i+1, r, got, err, want,
							file.Server)
					}
				}
			})
		})
	}
}

func read(t *testing.T, name string) (file recorded) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "ratelimit", name))
	if err == nil {
		err = json.Unmarshal(data, &file)
	}
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// layOut writes files into a directory.
func layOut(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		target, link := strings.CutPrefix(text, "-> ")
		var err error
		if link {
			err = os.Symlink(filepath.FromSlash(target), path)
		} else {
			err = os.WriteFile(path, []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// record asks the server of envoyproxy/ratelimit and writes its answers.
func record(t *testing.T) {
	t.Helper()
	info, err := buildinfo.ReadFile(*theirServer)
	if err != nil {
		t.Fatal(err)
	}
	file := recorded{
		Server:    cmp.Or(*theirName, info.Main.Path+" "+info.Main.Version),
		Scenarios: map[string]recording{},
	}
	for _, s := range scenarios() {
		if cmp.Or(s.file, pinned) == *theirFile {
			file.Scenarios[s.name] = askThem(t, &s)
		}
	}
	data, err := json.Marshal(&file)
	// a line each
	data = []byte(strings.NewReplacer(`{"At"`, "\n"+`{"At"`, `{"Error"`, "\n"+`{"Error"`, `{"Code"`,
		"\n"+`{"Code"`).Replace(string(data)))
	if err == nil {
		err = os.MkdirAll(filepath.Join("testdata", "ratelimit"), 0o750)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join("testdata", "ratelimit", *theirFile), append(data, '\n'), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// askThem starts their server for a scenario, and asks it within one second of the clock.
func askThem(t *testing.T, s *scenario) (o recording) {
	t.Helper()
	root, store := t.TempDir(), redistest.Start(t)
	layOut(t, filepath.Join(root, "ratelimit", "config"), s.files)
	addr := redistest.FreeAddr(t)
	host, port, _ := net.SplitHostPort(addr)
	cmd := exec.Command(*theirServer)
	cmd.Env = append(os.Environ(), "GRPC_HOST="+host, "GRPC_PORT="+port, "HOST=127.0.0.1", "PORT=0",
		"DEBUG_HOST=127.0.0.1", "DEBUG_PORT=0", "LOG_LEVEL=error",
		"USE_STATSD=false", "RUNTIME_ROOT="+root, "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_WATCH_ROOT=false",
		"REDIS_SOCKET_TYPE=tcp", "REDIS_TYPE=SINGLE",
		"REDIS_URL="+store.Addr, "REDIS_TIMEOUT=1s", "LIMIT_RESPONSE_HEADERS_ENABLED=true", "TRACING_ENABLED=false")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c := ratelimit.NewRateLimitServiceClient(conn)
	if _, err := c.ShouldRateLimit(t.Context(), request("nobody", descriptor("k=v")),
		grpc.WaitForReady(true)); err != nil {
		t.Fatal(err)
	}
	if s.down {
		store.Kill9()
	}
	now := time.Now().UTC()
	time.Sleep(now.Truncate(time.Second).Add(1300 * time.Millisecond).Sub(now))
	now = time.Now().UTC()
	o.At = now.Sub(now.Truncate(24 * time.Hour)).Truncate(time.Millisecond)
	for _, r := range s.ask {
		o.Answers = append(o.Answers, answerOf(c.ShouldRateLimit(t.Context(), r)))
	}
	if !s.down && time.Now().Unix() != now.Unix() {
		t.Fatalf("%s: it took longer than a second: try again", s.name)
	}
	return o
}
