package deploy_test

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/textproto"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drawgate/drawgate/internal/needs"
)

// verdict is the required outcome of a request.
type verdict int

const (
	passes  verdict = iota // it reaches the site, and is counted once, as itself
	exempt                 // it reaches the site, and is not counted
	limited                // it does not reach the site, nor is it counted; 429
	failed                 // it does not reach the site, nor is it counted; 500
	refused                // it does not reach the site, nor is it counted; 400 or 422
	either                 // passes, or the proxy or Drawgate refuses it, each as it understands HTTP
)

// row is a request that a client sends, and its required outcome.
type row struct {
	want    verdict
	request string // the request line without the version, or all of the request's lines, without what send adds
	as      string // "METHOD path" under which it may be counted; "": as the request line says
	host    string // "": that of the proxy
}

// table has the requests to proxies. HOST is the proxy's address.
var table = slices.Concat(
	rows(passes, "", "GET /", "GET /login", "GET /login/", "GET /Login", "GET /loginx", "GET /healthz/", "GET /Healthz",
		"GET /publicx", "GET /.well-known/x", "GET /a..b", "GET /...",
		"GET /v1;a=b/x", "GET /a:b@c!$&'()*+,=~-_.", "HEAD /x", "POST /x", "PUT /x", "DELETE /x", "PATCH /x",
		"OPTIONS /x"),
	// Queries and their parameters are the site's own.
	rows(passes, "GET /x", "GET /x?q=1", "GET /x?", "GET /x?/healthz", "GET /x?status=403",
		"GET /x?status=200&status=429", "GET /x?route=hooks", "GET /x?route=a&route=b", "GET /x?a=1&a=2",
		"GET /x?file=../../etc/passwd", "GET /x?u=http://h/public/", "GET /x?a=%23b", "GET /x?a=..;/b", "GET /x??",
		"GET /x?%00", "GET /x?"+strings.Repeat("a", 3000)),
	// Other spellings of a path are the same path.
	rows(passes, "GET /login", "GET /%6cogin", "GET /%6C%6Fgin", "GET /./login", "GET /.//login",
		"GET http://HOST/login", "GET HTTP://HOST/login?x=1"),
	rows(passes, "GET /a/b", "GET /a//b", "GET /a/./b", "GET /a%2fb", "GET /a%2Fb"),
	rows(passes, `GET /wiki/\frac`, "GET /wiki/%5Cfrac", "GET /wiki/%5cfrac"),
	rows(passes, "GET /100%", "GET /100%25"),
	rows(passes, "GET /C#", "GET /C%23"),
	rows(passes, "GET /a b", "GET /a%20b"),
	rows(passes, "GET /café", "GET /caf%C3%A9"),
	rows(passes, "GET /fetch/https:/example.com/a", "GET /fetch/https%3A%2F%2Fexample.com%2Fa"),
	rows(exempt, "", "GET /healthz", "HEAD /healthz", "GET /healthz?x=1", "GET /public/a.css", "GET /public/a/b",
		"GET /public/%5C", "POST /public/x\nContent-Length: 3\n\nabc"),
	// A client cannot choose how it is refused.
	rows(passes, "", "GET /full"),
	rows(limited, "", "GET /full", "HEAD /full", "POST /full", "GET /full?status=403", "GET /full?status=200",
		"GET /full?status=401&route=x", "GET /full\nX-RateLimit-Status: 200"),
	// A request that Drawgate cannot decide is not treated as an outage of Drawgate.
	rows(failed, "", "GET /strict", "GET /strict?status=403", "GET /strict\nX-N: many"),
	// Clients pretend that their requests are different ones, or those of other clients.
	rows(passes, "GET /x", "GET /x\nX-Original-URI: /healthz", "GET /x\nx-original-uri: /x",
		"GET /x\nX-Original-URI: /healthz\nX-Original-URI: /x", "GET /x\nX-Original-URL: http://HOST/healthz",
		"GET /x\nX-Original-URL: /healthz", "GET /x\nX-Original-Method: POST", "GET /x\nX-Forwarded-Uri: /healthz",
		"GET /x\nX-Forwarded-Uri:", "GET /x\nX-Forwarded-Method: POST",
		"GET /x\nX-Forwarded-Host: other.example", "GET /x\nX-Forwarded-For: 192.0.2.1",
		"GET /x\nX-Forwarded-For: 127.0.0.1", "GET /x\nX-Forwarded-For: 192.0.2.1, 127.0.0.1",
		"GET /x\nX-Forwarded-For: 192.0.2.1\nX-Forwarded-For: 192.0.2.2", "GET /x\nX-Forwarded-For: \"",
		"GET /x\nForwarded: for=192.0.2.1;host=other.example", "GET /x\nX-Real-IP: 192.0.2.1",
		"GET /x\nX-Rewrite-URL: /healthz", "GET /x\nX_Original_URI: /healthz", "GET /x\nX-RateLimit-Status: 200",
		"GET /x\nX-Drawgate-Token: guess", "GET /x\nX-HTTP-Method-Override: POST",
		"GET /x\nX-Forwarded-Proto: https\nX-Forwarded-Port: 443\nX-Forwarded-Prefix: /healthz",
		"GET /x\nAuthorization: Bearer x\nCookie: a=b; c=d",
		"GET /x\nX-Forwarded-Uri: /healthz\nConnection: X-Forwarded-Uri",
		"GET /x\nSec-Fetch-Site: cross-site\nOrigin: https://evil.example",
		"GET /x\nX-Long: "+strings.Repeat("a", 4000)),
	rows(passes, "POST /login", "POST /login\nContent-Length: 9\n\nstatus=ok",
		"POST /login\nTransfer-Encoding: chunked\n\n3\nabc\n0\n\n", "POST /login?route=a\nContent-Length: 0\n\n",
		"POST /login\nX-Original-URI: /healthz\nContent-Length: 3\n\nabc"),
	// Programs read these as different paths.
	rows(refused, "", "GET /login#/../healthz", "GET /login#/healthz/..", "GET /public/#/../../login", "GET /x?a#b",
		"GET /public/..;/login", "GET /public/..;x=y/login", "GET /public/%2e%2e;x/login",
		`GET /public/..\login`, `GET /public\..\login`, "GET /public/..%5clogin", "GET /public/..%5Clogin",
		"GET /public%5c..%5clogin", "GET /public/%252e%252e/login", "GET /public/..%252flogin",
		"GET /public/..%255clogin", "GET /public/%252e%252e%252flogin", "GET /api/x/../../healthz",
		"GET /healthz/../login", "GET /public/../login", "GET /public/%2e%2e/login",
		"GET /public/.%2E/login", "GET /public/a/%2e./..;/login", "GET /login/..%2fhealthz",
		"GET /login%2f..%2fhealthz", "GET /login%2F../healthz", "GET /public/..%3b/login",
		"GET /public/..%253b/login", "GET /public/x%25/%252e%252e/login", "GET /../healthz", "GET /..",
		"GET /public/..", "GET /.;/healthz", "GET /public/.%2f../login", "GET /healthz%00/login",
		"GET /healthz%2500", "GET http://HOST/login#/../healthz", "GET http://HOST/public/..;/login",
		"GET http://HOST/public/../login", "POST /public/..;/login\nContent-Length: 3\n\nabc",
		"HEAD /public/..%5clogin", "GET /public/..;/login?x=1", "GET /public/..;/login\nX-Forwarded-Uri: /healthz",
		"GET /public/..;/login\nX-Original-URI: /healthz",
		"GET //login", "GET //x/login", "GET //public/login", "GET //healthz", "GET http://HOST//public/login",
		"GET /%zz", "GET /healthz%", "GET healthz"),
	// Invalid or almost invalid HTTP: a proxy that lets it pass must count it as what the site
	// sees.
	rows(either, "GET /login#", "GET /login#"), rows(either, "GET /healthz#", "GET /healthz#"),
	rows(either, "", "GET /x\nConnection: close, X-Forwarded-For, X-Forwarded-Uri, X-Forwarded-Method, X-Original-URI",
		"OPTIONS *", "GET *", "CONNECT /x", "TRACE /x", "get /x", "FOO /x", "GET /a\x01b", "GET /a\x7fb", "GET /\xff",
		"GET /é",
		"GET /x?"+strings.Repeat("a", 9000), "GET /x?"+strings.Repeat("a", 11000), "GET /x?"+strings.Repeat("a", 12100),
		"GET /x\nX-Long: "+strings.Repeat("a", 11900),
		"GET /x\nX-Long: "+strings.Repeat("a", 40000), "GET /x\nX-Bad: \x01", "GET /x\nX-Bad: \xff", "GET /x\n: x",
		"GET /x\nX@Bad: x", "GET /x\nHost:",
		"GET /x\nHost: other.example", "GET /x\nX-Original-URI : /healthz", "GET /x\nX-Original-URI\n : /healthz",
		"GET /x\nExpect: 100-continue", "GET /x\nUpgrade: websocket\nConnection: Upgrade",
		"GET /x\nContent-Length: 3\nTransfer-Encoding: chunked\n\n0\n\n",
		"GET /x\nContent-Length: 3\nContent-Length: 4\n\nabcd"),
	rows(either, "CONNECT /", "CONNECT HOST"),
	rows(either, `GET /\x/login`, `GET /\x/login`),
	[]row{
		{either, "GET http://other.example/login", "GET /login", "other.example"},
		{either, "GET http://other.example:80/healthz2", "GET /healthz2", "other.example"},
		{either, "GET http:///login", "GET /login", ""},
		{either, "GET foo://HOST/login", "GET /login", ""},
		{either, `GET http://HOST\@x/healthz`, "", ""},
	},
)

func rows(want verdict, as string, requests ...string) (list []row) {
	for _, request := range requests {
		list = append(list, row{want: want, request: request, as: as})
	}
	return list
}

// counting has a bucket for each distinguishable request, and returns which requests used a bucket.
const counting = `
store: sqlite:drawgate.db
store_timeout: 30s
policies:
  seen: {limits: [{name: h, rolling: 1h, amount: 1000}]}
  full: {limits: [{name: h, rolling: 1h, amount: 1}]}
rules:
  - {name: health, match: {path: /healthz}, exempt: true}
  - {name: public, match: {path: /public/*}, exempt: true}
  - {name: strict, match: {path: /strict}, when: 'int(header("X-N")) > 1', exempt: true}
  - {name: full, match: {path: /full}, apply: [{policy: full, key: '"all"'}]}
  - {name: everybody, apply: [{policy: seen, key: 'join(ip, host, route, method, path)'}]}
server: {listen: 127.0.0.1:7878, grpc: 127.0.0.1:7880, admin: off, proxies: {trusted: [127.0.0.1/32]}}
envoy: {headers: draft}
`

// traefik starts Traefik.
func traefik(s *testbed) *process {
	s.copied("traefik/traefik.yaml")
	s.copied("traefik/dynamic.yaml")
	return s.start("traefik", "--configFile=traefik.yaml")
}

// hasTraefik reports whether Traefik is tested. It takes long to build, so only the long form
// requires it.
func hasTraefik() bool {
	_, err := exec.LookPath("traefik")
	return err == nil || needs.Long()
}

// documented starts proxies with configurations from docs/forward-auth.md that are not files of
// this folder.
var documented = map[string]func(*testbed) *process{
	"nginx": func(s *testbed) *process {
		s.write("nginx.conf", "daemon off;\npid nginx.pid;\nerror_log stderr;\nevents {}\nhttp {\naccess_log off;\n"+
			"client_body_temp_path a;\nproxy_temp_path b;\nfastcgi_temp_path c;\nuwsgi_temp_path d;\nscgi_temp_path e;\n"+
			"upstream site { server "+siteAddr+"; }\nserver {\nlisten "+proxyAddr+";\nproxy_set_header Host $host;\n"+
			longer.Replace(snippet(s.t, "nginx"))+"}\n}\n")
		return s.start("nginx", "-p", s.dir, "-c", s.dir+"/nginx.conf")
	},
	"caddy": func(s *testbed) *process {
		s.write("Caddyfile", "{\nadmin off\nauto_https off\n}\nhttp://"+proxyAddr+" {\n"+snippet(s.t,
			"caddyfile")+"}\n")
		return s.start("caddy", "run", "--config", "Caddyfile", "--adapter", "caddyfile")
	},
}

// snippet returns the block of docs/forward-auth.md in that language.
func snippet(t *testing.T, language string) string {
	t.Helper()
	text, err := os.ReadFile("../docs/forward-auth.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut(string(text), "```"+language+"\n")
	block, _, _ = strings.Cut(block, "```")
	if !found {
		t.Fatalf("docs/forward-auth.md has no block in %s", language)
	}
	return block
}

// Whatever a client sends, no request reaches the site uncounted, or counted as another request or
// as another client's. Ordinary requests pass. Envoy is tested only with addresses.
//
// req: B4
func TestOddRequestsAreCountedAsTheSiteSeesThem(t *testing.T) {
	t.Parallel()
	for _, p := range proxies {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			oddRequests(t, p.name, p.start)
		})
	}
	if hasTraefik() {
		t.Run("traefik", func(t *testing.T) {
			t.Parallel()
			oddRequests(t, "traefik", traefik)
		})
	}
	for name, start := range documented {
		t.Run(name+", as docs/forward-auth.md has it", func(t *testing.T) {
			t.Parallel()
			oddRequests(t, name, start)
		})
	}
	// Without the last refusal, requests pass while Drawgate is unavailable. Clients must not be
	// able to cause that.
	t.Run("haproxy, open", func(t *testing.T) {
		t.Parallel()
		oddRequests(t, "haproxy", func(s *testbed) *process {
			s.copied("haproxy/drawgate.lua")
			text, err := os.ReadFile("haproxy/haproxy.cfg")
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(longer.Replace(string(text)), "\n")
			n := len(lines)
			lines = slices.DeleteFunc(lines, func(line string) bool {
				return strings.Contains(line,
					"!{ var(txn.drawgate) -m str pass }")
			})
			if len(lines) != n-1 {
				t.Fatalf("%d lines refuse what is not decided, want 1", n-len(lines))
			}
			s.write("haproxy.cfg", strings.Join(lines, "\n"))
			return s.start("haproxy", "-f", "haproxy.cfg")
		})
	})
}

func oddRequests(t *testing.T, proxy string, start func(*testbed) *process) {
	t.Helper()
	if len(table) < 80 || len(table) > 250 { // each has an address of its own
		t.Fatalf("%d requests", len(table))
	}
	site := newRawSite(t)
	s := newTestbedFor(t, counting, site.addr)
	start(s)
	s.await("http://"+s.proxy+"/healthz", http.StatusOK)
	answers := make([]string, len(table))
	for i := range table {
		answers[i] = s.send(i)
	}
	counted, passed, uncounted := s.admitted("seen"), 0, 0
	for i := range table {
		c := &table[i]
		var keys []string
		n := 0
		for key, at := range counted {
			if strings.Contains(key, from(i)+"|") {
				n += len(at)
				keys = append(keys, key)
				delete(counted, key)
			}
		}
		reached := site.reached(i)
		if passed += len(reached); n == 0 {
			uncounted += len(reached)
		}
		status := strings.TrimPrefix(answers[i], "HTTP/1.1 ")
		fails := ""
		switch want := s.key(proxy, i); {
		case len(reached) > 1:
			fails = "the site saw it several times"
		case len(reached) == 1 && proxy != "envoy" && c.want == refused && resolved(reached[0]):
			if want, free := s.keyOf(i, reached[0]); n > 1 || free != (n == 0) || n == 1 && keys[0] != want {
				fails = "it must be counted as what the site sees"
			}
		case len(reached) == 1 && c.want == exempt && proxy != "envoy":
			if n != 0 {
				fails = "it is exempt"
			}
		case len(reached) == 1 && (c.want == refused || c.want == limited || c.want == failed) && proxy != "envoy":
			fails = "it reached the site"
		case len(reached) == 1 && (n != 1 || keys[0] != want):
			fails = "it must be counted as " + want
		case len(reached) == 1:
		case c.want == passes, c.want == exempt:
			fails = "it did not reach the site"
		case n != 0 && proxy != "envoy":
			fails = "it is counted, and did not reach the site"
		case c.want == limited && status != "429", c.want == failed && status != "500":
			fails = "it is refused with another status"
		case c.want == refused && proxy != "envoy" && status != "400" && status != "422":
			fails = "it is refused with another status"
		}
		if fails != "" {
			t.Errorf("%.100q: %s: answered with %q, counted as %.200q, reached the site as %.100q", c.request, fails,
				answers[i], keys, reached)
		}
	}
	t.Logf("%d requests, %d reached the site, %d of them uncounted", len(table), passed, uncounted)
	if proxy == "envoy" {
		delete(counted, "127.0.0.1||||") // that it was awaited
	}
	for key := range counted {
		t.Errorf("counted as somebody else: %q", key)
	}
}

// The headers of a decision by 8 policies with 6 limits each are not too long for any proxy. Such
// an error could let requests pass.
//
// req: B4
func TestHeadersOfManyLimitsAreNoError(t *testing.T) {
	t.Parallel()
	var policies, apply []string
	for i := range 8 {
		var limits []string
		for j := range 6 {
			limits = append(limits, fmt.Sprintf("{name: limit-with-a-name-%d, rolling: %dh, amount: %d}", j, j+1,
				1000000-i-j))
		}
		name := fmt.Sprintf("policy-with-a-rather-long-name-%d", i)
		policies = append(policies, "  "+name+": {limits: ["+strings.Join(limits, ", ")+"]}\n")
		apply = append(apply, "{policy: "+name+`, key: '"all"'}`)
	}
	config := strings.Replace(one(3), "policies:\n", "policies:\n"+strings.Join(policies, ""), 1)
	config = strings.NewReplacer("apply: [{policy: site", "apply: ["+strings.Join(apply[1:], ", ")+", {policy: site",
		"rolling: 1s", "rolling: 1h").Replace(config)
	starts := maps.Clone(documented)
	for _, p := range proxies {
		starts[p.name+"'s file"] = p.start
	}
	if hasTraefik() {
		starts["traefik's file"] = traefik
	}
	for name, start := range starts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTestbed(t, config)
			start(s)
			s.await("http://"+s.proxy+"/", http.StatusOK)
			s.await("http://"+s.proxy+"/", http.StatusTooManyRequests)
			if n := len(s.admitted("site")["all"]); n != 3 {
				t.Errorf("%d are counted, want 3", n)
			}
		})
	}
}

// from is the address that a row is sent from.
func from(i int) string { return fmt.Sprintf("127.3.0.%d", i+1) }

// key is the bucket that a row uses.
func (s *testbed) key(proxy string, i int) (key string) {
	if proxy == "envoy" {
		return from(i) + "||||"
	}
	as := table[i].as
	if as == "" {
		as, _, _ = strings.Cut(table[i].request, "\n")
	}
	key, _ = s.keyOf(i, as)
	return key
}

// resolved reports whether the proxy changes a path so that all programs read it alike: Traefik
// resolves ".." before it asks.
func resolved(line string) bool {
	path, _, _ := strings.Cut(strings.Fields(line)[1], "?")
	return !strings.ContainsAny(path, `%;\#`) && !strings.Contains(path, "..") && !strings.Contains(path, "//")
}

// keyOf returns the bucket that a row uses if the site sees that request line, and whether it is
// exempt.
func (s *testbed) keyOf(i int, line string) (key string, free bool) {
	host, _, _ := net.SplitHostPort(s.proxy)
	if table[i].host != "" {
		host = table[i].host
	}
	method, path, _ := strings.Cut(strings.TrimSuffix(line, " HTTP/1.1"), " ")
	path, _, _ = strings.Cut(path, "?")
	free = path == "/healthz" || strings.HasPrefix(path, "/public/")
	return from(i) + "|" + host + "||" + strings.ToUpper(method) + "|" +
		strings.NewReplacer("%", "%25", "|", "%7C").Replace(path), free
}

// send sends a row unchanged, and returns the status of the answer, or "" if there is none.
func (s *testbed) send(i int) (status string) {
	s.t.Helper()
	d := &net.Dialer{Timeout: hang, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from(i))}}
	conn, err := d.DialContext(s.t.Context(), "tcp", s.proxy)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(hang))
	head, body, _ := strings.Cut(table[i].request, "\n\n")
	line, headers, _ := strings.Cut(head, "\n")
	if headers != "" {
		headers += "\n"
	}
	text := line + " HTTP/1.1\nHost: HOST\nX-Row: " + strconv.Itoa(i) + "\n"
	if !strings.Contains(headers, "Connection:") {
		text += "Connection: close\n"
	}
	text = strings.ReplaceAll(strings.ReplaceAll(text+headers+"\n"+body, "HOST", s.proxy), "\n", "\r\n")
	if _, err := io.WriteString(conn, text); err != nil {
		return ""
	}
	return finalStatus(bufio.NewReader(conn))
}

// finalStatus reads the status of an answer, or "" if there is none. It reads past "100 Continue":
// a proxy may drop the request if its client leaves after that.
func finalStatus(r *bufio.Reader) string {
	for {
		line, _ := r.ReadString('\n')
		words := strings.Fields(line)
		if len(words) < 2 {
			return ""
		}
		if words[1] != "100" {
			return words[1]
		}
		for line != "\r\n" { // the end of its headers
			var err error
			if line, err = r.ReadString('\n'); err != nil {
				return "100"
			}
		}
	}
}

// rawSite is a site that accepts whatever it gets, and records it.
type rawSite struct {
	addr string
	mu   sync.Mutex
	rows map[string][]string // request lines, by X-Row; guarded by mu
}

func newRawSite(t *testing.T) *rawSite {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &rawSite{addr: ln.Addr().String(), rows: map[string][]string{}}
	var wg sync.WaitGroup
	conns := make(chan net.Conn, 10000) // to be closed in the end
	wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			conns <- conn
			wg.Go(func() { s.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		for {
			select {
			case conn := <-conns:
				_ = conn.Close()
				continue
			default:
			}
			break
		}
		wg.Wait()
	})
	return s
}

// serve answers requests until the connection ends.
func (s *rawSite) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	r := textproto.NewReader(bufio.NewReader(conn))
	for {
		line, err := r.ReadLine()
		if err != nil {
			return
		}
		row, length, chunked := "", int64(0), false
		for {
			header, err := r.ReadLine()
			if err != nil {
				return
			}
			if header == "" {
				break
			}
			name, v, _ := strings.Cut(header, ":")
			switch v = strings.TrimSpace(v); strings.ToLower(name) {
			case "x-row":
				row = v
			case "content-length":
				length, _ = strconv.ParseInt(v, 10, 64)
			case "transfer-encoding":
				chunked = true
			}
		}
		s.mu.Lock()
		s.rows[row] = append(s.rows[row], line)
		s.mu.Unlock()
		body := io.LimitReader(r.R, length)
		if chunked {
			body = httputil.NewChunkedReader(r.R)
		}
		if _, err := io.Copy(io.Discard, body); err != nil {
			return
		}
		if chunked {
			if _, err := r.ReadLine(); err != nil { // behind the last chunk
				return
			}
		}
		answer := "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"
		if !strings.HasPrefix(line, "HEAD ") {
			answer += "the site\n"
		}
		if _, err := io.WriteString(conn, answer); err != nil {
			return
		}
	}
}

// reached returns the request lines with which a row reached the site.
func (s *rawSite) reached(i int) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rows[strconv.Itoa(i)]
}
