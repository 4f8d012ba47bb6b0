//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/client"
	"github.com/drawgate/drawgate/internal/top"
)

// topConfig has limits in which nothing comes back while a test runs.
const topConfig = `store: 'memory:'
policies:
  llm: {limits: [{name: rpd, rolling: 24h, amount: 4}, {name: tpd, unit: tokens, rolling: 24h, amount: 1000}]}
  builds: {limits: [{name: at-once, concurrency: 1}]}
`

// address is one address at which servers come and go.
type address struct {
	*httptest.Server
	to atomic.Pointer[string] // nil: nobody answers
}

func newAddress(t *testing.T) *address {
	t.Helper()
	a := &address{}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			to, _ := url.Parse(*a.to.Load())
			r.SetURL(to)
		},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.to.Load() == nil {
			panic(http.ErrAbortHandler)
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(a.Close)
	return a
}

// In a terminal: what is used and who waits, sizes and keys, and a server that goes away and comes
// back.
func TestTopInATerminal(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.write("drawgate.yaml", topConfig)
	d := b.daemon()
	front := newAddress(t)
	front.to.Store(&d.admin)
	for key, n := range map[string]int64{"team-a": 3, "team-b": 1, "evil\x1b[2Jred": 2} {
		d.must(d.public+"/v1/take", api.Take{Bucket: api.Bucket{
			Policy: "llm", Key: key,
			Costs: api.Costs{"requests": n, "tokens": 10},
		}})
	}
	d.must(d.public+"/v1/take", api.Take{Bucket: api.Bucket{Policy: "builds"}, HoldMS: 3_600_000})
	waiter := *d
	waiter.http = &http.Client{}
	go func() { // until the server is killed
		_, _ = waiter.ask(waiter.public+"/v1/take", api.Take{
			Bucket: api.Bucket{Policy: "builds"}, HoldMS: 1000,
			WaitMS: 3_600_000,
		})
	}()
	p := b.pane(120, 24, "drawgate top --interval 200ms --server "+front.URL)
	p.until(`^██████████ 100%  builds  at-once  1/1 requests  1     1     default$`)
	p.until(`^███████░░░  75%  llm     rpd      3/4 requests  0     0     team-a$`)
	p.until(`^█████░░░░░  50%  llm     rpd      2/4 requests  0     0     evil\\x1b\[2Jred$`)
	p.until(`^1 for key default, the longest for .*: open reservations hold limit "at-once" of policy "builds"$`)
	p.until(`^s: sorted by use  /: filter  space: pause  q: quit  every 200ms$`)
	for range 2 {
		d.must(d.public+"/v1/take", api.Take{Bucket: api.Bucket{
			Policy: "llm", Key: "team-a",
			Costs: api.Costs{"requests": 3},
		}})
	}
	p.until(`(?s)^REFUSED$.*^\S+ \S+Z  2 for key team-a: limit "rpd" of policy "llm" \(asked for 3 requests, 1 of 4 left\)$`)

	p.tmux("resize-window", "-x", "60", "-y", "12")
	small := p.until(`^there are more buckets$`)
	if lines := strings.Split(small, "\n"); len(lines) != 12 {
		t.Errorf("%d lines:\n%s", len(lines), small)
	}
	p.tmux("resize-window", "-x", "120", "-y", "24")
	p.keys("s")
	p.until(`sorted by name`)
	p.until(`(?s)default.*evil.*team-a.*team-b`)
	p.keys("/", "t", "e", "a", "m", "-", "b", "Enter")
	if got := p.until(`/: filter "team-b"`); !strings.Contains(got, "team-b") || strings.Contains(got, "team-a") {
		t.Errorf("filtered:\n%s", got)
	}
	p.keys("Escape")
	p.until(`team-a`)
	p.keys("Space")
	p.until(`  paused$`)
	d.must(d.public+"/v1/take", api.Take{Bucket: api.Bucket{Policy: "llm", Key: "new", Costs: api.Costs{"tokens": 1}}})
	p.keys("s")
	if got := p.until(`sorted by open reservations`); strings.Contains(got, "new") {
		t.Errorf("paused:\n%s", got)
	}
	p.keys("Space")
	p.until(`  new$`)

	front.to.Store(nil)
	if got := p.until(`^no answer since .*Z: `); !strings.Contains(got, "team-a") {
		t.Errorf("what was known is gone:\n%s", got)
	}
	d.kill()
	d = b.daemon()
	d.must(d.public+"/v1/take", api.Take{Bucket: api.Bucket{Policy: "llm", Key: "again"}})
	front.to.Store(&d.admin)
	if got := p.until(`  again$`); strings.Contains(got, "no answer") || strings.Contains(got, "team-a") {
		t.Errorf("the server is back:\n%s", got)
	}
	p.keys("q")
	if got := p.until(`^ended with 0$`); got != "ended with 0" {
		t.Errorf("it left behind\n%s", got)
	}
}

// Whatever ends it, the terminal is as it was, and the exit code says what it was.
func TestTopRestoresTheTerminal(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.write("drawgate.yaml", topConfig)
	d := b.daemon()
	d.must(d.public+"/v1/take", api.Take{Bucket: api.Bucket{Policy: "llm", Key: "team-a"}})
	for _, c := range []struct {
		signal string
		code   int
	}{{"INT", 130}, {"TERM", 143}, {"HUP", 129}} {
		pid := "pid-" + c.signal
		p := b.pane(120, 24,
			"stty -a > before\nsh -c 'echo $$ > "+pid+"; exec drawgate top --interval 200ms --server "+d.admin+"'\n"+
				"set -- $?; stty -a | cmp before - && (exit $1)")
		p.until(`  team-a$`)
		text, err := os.ReadFile(filepath.Join(b.dir, pid))
		if err != nil {
			t.Fatal(err)
		}
		if out, err := p.command("run-shell",
			"kill -"+c.signal+" "+strings.TrimSpace(string(text))).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if got := p.until(`^ended with`); got != fmt.Sprintf("ended with %d", c.code) {
			t.Errorf("%s left behind\n%s", c.signal, got)
		}
		if got := p.tmux("display-message", "-p", "#{alternate_on} #{cursor_flag}"); strings.TrimSpace(got) != "0 1" {
			t.Errorf("%s: alternate screen and cursor are %s", c.signal, got)
		}
	}
}

// NO_COLOR is heeded, in a terminal and in a frame.
func TestTopWithoutColors(t *testing.T) {
	t.Parallel()
	color := regexp.MustCompile("\x1b\\[3[0-7]m")
	for _, env := range []string{"NO_COLOR=1", "OTHER=1"} {
		b := newBench(t, env, "DRAWGATE_STORE=sqlite:top.db")
		if _, code := b.do("take", "-n", "9"); code != 0 {
			t.Fatal(code)
		}
		for _, script := range []string{"drawgate top --once", "exec drawgate top"} {
			p := b.pane(120, 24, script)
			p.until(`9/10 requests`)
			if got := p.tmux("capture-pane", "-p", "-e"); color.MatchString(got) != (env == "OTHER=1") {
				t.Errorf("%s, %s: %q", script, env, got)
			}
		}
	}
}

// Without a terminal it prints one frame of a store, or one snapshot as JSON.
func TestTopOfAStore(t *testing.T) {
	t.Parallel()
	b := newBench(t, "DRAWGATE_STORE=sqlite:top.db")
	if _, code := b.do("take", "-n", "9", "--key", "k\x1b"); code != 0 {
		t.Fatal(code)
	}
	for _, args := range [][]string{{"top"}, {"top", "--once"}} {
		got, code := b.do(args...)
		want := `(?s)^drawgate top  sqlite:\S+top\.db  \d{4}-[^\n]+\nstore ok, \d+ ms   policies: 1 ok\n.*\n█████████░  90%  sample  minute  9/10 requests  0     0     k\\x1b\n` +
			`left out: waiting takes, refusals and incidents: only a server knows them, see --server\n$`
		if code != 0 || !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("%v: %d\n%s", args, code, got)
		}
	}
	got, code := b.do("top", "--json")
	var s top.Snapshot
	if err := json.Unmarshal([]byte(got), &s); err != nil || code != 0 || s.Usage == nil || len(s.Usage.Buckets) != 1 ||
		s.Health == nil || s.Health.Status != api.StatusOK {
		t.Errorf("%d, %v: %s", code, err, got)
	}
	for want, args := range map[int][]string{
		exitUsage:       {"top", "--interval", "1ms"},
		exitUnavailable: {"top", "--server", "http://127.0.0.1:1"},
	} {
		if got, code := b.do(args...); code != want {
			t.Errorf("%v: %d, want %d: %s", args, code, want, got)
		}
	}
}

// What an access token does not allow is left out, and so is what another address does not serve.
func TestTopLeavesOut(t *testing.T) {
	t.Parallel()
	b := newBench(t, "READER=secret-of-the-reader")
	b.write("drawgate.yaml", topConfig+"server: {tokens: [{name: reader, token_env: READER, role: read}]}\n")
	d := b.daemon()
	for _, c := range []struct {
		token, address string
		want           []string
	}{
		{"", d.admin, []string{
			"store ok",
			"left out: buckets, upstreams, waiting takes, refusals, incidents: set DRAWGATE_TOKEN to an access token of the server",
		}},
		{"secret-of-the-reader", d.admin, []string{
			"policies: 2 ok",
			"left out: buckets, waiting takes, refusals: the access token does not allow it",
		}},
		{"secret-of-the-reader", d.public, []string{
			"policies: 2 ok",
			"left out: buckets, upstreams, waiting takes, refusals, incidents: this is not the server's address for administrators, or its version does not have this yet",
		}},
	} {
		cmd := b.command("top", "--once", "--server", c.address)
		cmd.Env = slices.Concat(b.env, []string{"DRAWGATE_TOKEN=" + c.token})
		out, err := cmd.Output()
		for _, want := range c.want {
			if err != nil || !strings.Contains(string(out), want) {
				t.Errorf("%v: want %s in\n%s", err, want, out)
			}
		}
	}
}

// When one request has no answer, the others are not waited for, and its error is the one that is
// shown.
func TestTopEndsWithTheFirstThatHasNoAnswer(t *testing.T) {
	t.Parallel()
	for _, dead := range []string{"/readyz", "/v1/usage", "/v1/upstreams", "/v1/waiting", "/v1/incidents"} {
		ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == dead {
				panic(http.ErrAbortHandler) // closes the connection
			}
			<-r.Context().Done()
		}))
		c, err := client.New(ts.URL, &client.Options{Attempts: 1, Timeout: -1})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), endTime)
		w := &watch{client: c, waiting: true}
		if s := w.read(ctx, ""); ctx.Err() != nil || s.Err == nil || !strings.Contains(s.Err.Error(), dead) {
			t.Errorf("%s: %v, %v", dead, s.Err, ctx.Err())
		}
		cancel()
		c.Close()
		ts.Close()
	}
}
